"""What ``help()`` shows of everything public: pages that can be read."""

import inspect
import pydoc
import re
from functools import cache
from inspect import signature

import pytest

import zkconsumer
from zkconsumer.config.consumerconfig import PROPERTIES

CLASSES = [name for name in zkconsumer.__all__ if inspect.isclass(getattr(zkconsumer, name))]

UNKNOWN_TYPES = {("DecodedMessage", "key"), ("DecodedMessage", "value")}
"""What a user's decoder returns."""


@cache
def page(name):
    return pydoc.plain(pydoc.render_doc(getattr(zkconsumer, name)))


def own_classes(public):
    return [kind for kind in public.__mro__ if kind.__module__.startswith("zkconsumer.")]


def methods(public):
    """The methods of a class that this package defines, by name, constructors and operators included."""
    for kind in own_classes(public):
        for name, member in vars(kind).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function) and not re.match("_[^_]", name):
                yield name, function


def has_meaning(public, name):
    """Whether an attribute has a docstring of its own, or its class describes it."""
    member = inspect.getattr_static(public, name, None)
    doc = inspect.getdoc(member)
    if doc and doc != inspect.getdoc(type(member)) and not doc.startswith("Alias for field number"):
        return True
    described = "\n".join(inspect.getdoc(kind) or "" for kind in own_classes(public))
    return re.search(rf"^ *{name}: |``{name}``", described, re.M) is not None


def attributes(public):
    """The public attributes of a class, and of its instances as far as they are declared."""
    declared = {name for kind in own_classes(public) for name in [*inspect.get_annotations(kind), *vars(kind)]}
    return sorted(name for name in declared if not name.startswith("_"))


@pytest.mark.parametrize("name", zkconsumer.__all__)
def test_no_line_is_long_and_no_object_is_shown_by_its_address(name):
    assert [line for line in page(name).splitlines() if len(line) > 120 or " at 0x" in line] == []


@pytest.mark.parametrize("name", zkconsumer.__all__)
def test_no_public_signature_has_any(name):
    public = getattr(zkconsumer, name)
    functions = dict(methods(public)) if inspect.isclass(public) else {name: public}
    untyped = {(name, key) for key, function in functions.items() if re.search(r"\bAny\b", str(signature(function)))}
    assert untyped <= UNKNOWN_TYPES


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_attribute_has_a_meaning(name):
    public = getattr(zkconsumer, name)
    assert [attribute for attribute in attributes(public) if not has_meaning(public, attribute)] == []


@pytest.mark.parametrize(("attribute", "row"), PROPERTIES.items())
def test_each_property_has_its_meaning_and_default(attribute, row):
    (entry,) = re.findall(rf"^ \|  {attribute}\n((?: \|      .*\n)+)", page("ConsumerConfig"), re.M)
    words = " ".join(line.removeprefix(" |").strip() for line in entry.splitlines())
    assert words.startswith(re.sub(r"docs/(\w+)\.md", r'page "\1" of the documentation', row.meaning))
    default = getattr(zkconsumer.ConsumerConfig, attribute, "required")
    text = row.default_text.strip("*") if row.default_text else default if default == "required" else repr(default)
    assert words.endswith(f"; default: {text}")


def test_the_class_has_the_defaults_themselves():
    assert zkconsumer.ConsumerConfig.auto_commit_interval_ms == 60_000
    assert not hasattr(zkconsumer.ConsumerConfig, "group_id"), "it is required"


@pytest.mark.parametrize("name", sorted(zkconsumer._MADE_HERE))
def test_what_only_the_package_makes_shows_no_constructor(name):
    assert str(signature(getattr(zkconsumer, name))) == "()"
    assert "__init__(self)\n" in page(name)


def test_a_long_signature_has_a_parameter_in_each_line():
    assert str(signature(zkconsumer.MessageStream.batches)).splitlines() == [
        "(",
        "    self,",
        "    *,",
        "    max_rows: int | None = None,",
        "    max_bytes: int | None = None,",
        "    headers: bool = False,",
        ") -> Iterator[pa.RecordBatch]",
    ]
    start = "(source: str | Path | Mapping[str, object], /, **overrides: object) -> Self"
    assert str(signature(zkconsumer.ConsumerConfig.from_properties)) == start
