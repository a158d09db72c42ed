"""The tree of errors in the docstring, and which of them a user can import from the package itself."""

import inspect
import pickle
import re
from importlib.metadata import version

import pytest

import zkconsumer
import zkconsumer.sandbox
import zkconsumer.spark
from zkconsumer import errors

CLASSES = {
    name: cls
    for name, cls in vars(errors).items()
    if isinstance(cls, type) and issubclass(cls, errors.ZkConsumerError) and cls.__module__ == errors.__name__
}


def test_the_tree_shows_every_error_under_its_base():
    tree, above = {}, ["ZkConsumerError"]
    for indent, name in re.findall(r"^    ([│ ]*)[├└]── (\w+)", errors.__doc__, re.MULTILINE):
        depth = len(indent) // 4 + 1
        tree[name] = above[depth - 1]
        above[depth:] = [name]
    assert tree == {name: cls.__base__.__name__ for name, cls in CLASSES.items() if cls is not errors.ZkConsumerError}


def test_errors_that_public_calls_announce_are_exported():
    announced = set()
    for package in (zkconsumer, zkconsumer.sandbox, zkconsumer.spark):
        for public in (getattr(package, name) for name in package.__all__):
            members = [member for name, member in inspect.getmembers(public) if not name.startswith("_")]
            documented = (each for each in (public, *members) if callable(each) or isinstance(each, property))
            for doc in filter(None, map(inspect.getdoc, documented)):
                announced |= {word for word in re.findall(r"\w+", doc) if word in CLASSES}
    assert {"NotOwner", "OffsetOutOfRange", "SandboxError"} <= announced
    assert announced - set(zkconsumer.__all__) == set()


@pytest.mark.parametrize(("count", "text"), [(0, ""), (1, "0"), (5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3, 4 and 1 more")])
def test_many_things_are_named_in_part(count, text):
    assert errors.name_some(range(count)) == text


@pytest.mark.parametrize(
    "name",
    [
        "ConsumerIdInUse",
        "GenerationEnded",
        "InstanceIdInUse",
        "LeaseLapsed",
        "MalformedZnode",
        "MemberRefused",
        "ZooKeeperRefused",
    ],
)
def test_errors_of_joining_and_committing_are_exported(name):
    assert getattr(zkconsumer, name) is CLASSES[name]
    assert name in zkconsumer.__all__


def test_the_version_is_that_of_the_package():
    assert zkconsumer.__version__ == version("zkconsumer")


@pytest.mark.parametrize(
    "error",
    [
        errors.TopicUnreadable("why", "t"),
        errors.TopicAuthorizationFailed("why", "t", "Read"),
        errors.GroupAuthorizationFailed("why", "Describe"),
    ],
)
def test_refusals_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == "why"
    assert vars(copy) == vars(error)
