import pytest

from tests.fixtures import assignors
from zkconsumer import ConfigError, ConsumerConfig, ConsumerConnector
from zkconsumer.group.assignorloading import load_assignor, load_assignors

HERE = "tests.fixtures.assignors"


def test_an_object_is_used_and_a_class_is_called():
    loaded = load_assignors(f"{HERE}:R1, range,{HERE}:Switchable")
    assert loaded[f"{HERE}:R1"] is assignors.R1
    assert isinstance(loaded[f"{HERE}:Switchable"], assignors.Switchable)
    assert len(loaded) == 2


def test_names_of_this_package_load_nothing():
    assert load_assignor("range") is None


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("no_such_module:R0", "ModuleNotFoundError"),
        (f"{HERE}:Absent", "AttributeError"),
        (f"{HERE}:Broken", "OSError: no such file: racks.json"),
        (f"{HERE}:NOTHING", "no method assign"),
        (f"{HERE}:Nameless", "needs an attribute name"),
        (f"{HERE}:Taken", "that of another assignor"),
        (f"{HERE}:R0,{HERE}:R1", "two assignors with the same name"),
    ],
)
def test_what_is_no_assignor_is_refused(reference, reason):
    with pytest.raises(ConfigError, match=reason):
        load_assignors(reference)


def test_a_connector_refuses_it_before_it_connects():
    config = ConsumerConfig(
        bootstrap_servers="127.0.0.1:1",
        group_id="g",
        group_protocol="kafka",
        partition_assignment_strategy="no_such_module:R0",
    )
    with pytest.raises(ConfigError, match="no_such_module"):
        ConsumerConnector(config)
