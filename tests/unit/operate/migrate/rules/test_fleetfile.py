"""The file of a fleet."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.errors import UsageError
from zkconsumer.operate.migrate.rules.fleetfile import (
    FleetGroup,
    FoundGroup,
    format_fleet,
    format_groups,
    groups_of,
    new_properties,
    parse_fleet,
    why_not_protocol,
)
from zkconsumer.operate.migrate.rules.migrationend import End, parse_end

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


def parse(text, name="c"):
    return parse_fleet(name, text.encode())


def entry(lines):
    return parse(f"[groups.g]\n{lines}").groups[0]


def test_a_new_file_has_waves_of_the_ready_groups():
    found = [FoundGroup("a", "ready", True), FoundGroup("b", "not ready: no", False)]
    found += [FoundGroup(name, "running", True) for name in ("c.d", "e")]
    fleet = parse(format_fleet({"zookeeper": "h:1/k", "config": "x.properties"}, found, 2))
    assert (fleet.name, fleet.zookeeper, fleet.bootstrap_servers, fleet.config) == ("c", "h:1/k", "", "x.properties")
    assert [(group.group, group.wave) for group in fleet.groups] == [("a", 1), ("b", 0), ("c.d", 1), ("e", 2)]
    assert fleet.groups[2] == FleetGroup("c.d", 1, "", End("kafka", "c.d"))
    assert {group.wave for group in parse(format_groups(found, 0)).groups} == {0, 1}


def test_groups_that_are_added_are_in_waves_after_those_of_the_file():
    text = format_fleet({}, [FoundGroup("a", "ready", True), FoundGroup("b", "not ready", False)], 0)
    text = text.replace("wave = 1", "wave = 4")  # as people edit it
    added = [FoundGroup("c", "ready", True), FoundGroup("d", "not ready", False), FoundGroup("e", "ready", True)]
    for wave, numbers in (0, (5, 0, 5)), (1, (5, 0, 6)):
        fleet = parse(text + format_groups(added, wave, parse(text).groups))
        assert tuple(group.wave for group in fleet.groups) == (4, 0, *numbers)


def test_the_file_has_what_was_found_in_comments_and_names_of_any_language():
    text = format_fleet({}, [FoundGroup("fox-\N{LATIN SMALL LETTER E WITH ACUTE}", "running,\n2 members", True)], 0)
    assert '[groups."fox-\N{LATIN SMALL LETTER E WITH ACUTE}"]  # running,?2 members\n' in text
    assert parse(text).groups[0].target == End("kafka", "fox-\N{LATIN SMALL LETTER E WITH ACUTE}")


def _is_end(name):
    try:
        return parse_end(f"kafka:{name}") is not None
    except ValueError:
        return False


@given(st.lists(NAMES.filter(_is_end), min_size=1, unique=True), st.text(max_size=30))
def test_any_name_and_note_can_be_read_again(names, note):
    fleet = parse(format_fleet({}, [FoundGroup(name, note, True) for name in names], 3))
    assert [group.group for group in fleet.groups] == names
    assert len({group.directory for group in fleet.groups}) == len(names)
    assert all("/" not in group.directory and not group.directory.startswith(".") for group in fleet.groups)


def test_what_people_write():
    group = entry(
        'wave = 3\nowner = "ann"\ntarget = "kafka:new"\nprotocol = "consumer"\nmissing = "latest"\nrewind = true\n'
        'window = "2026-12-01T22:00Z/2026-12-02T04:00+02:00"'
    )
    assert (group.wave, group.owner, group.target, group.protocol) == (3, "ann", End("kafka", "new"), "consumer")
    assert (group.missing, group.rewind) == ("latest", True)
    assert group.window.has(datetime(2026, 12, 2, 1, 59, tzinfo=UTC))
    assert not group.window.has(datetime(2026, 12, 2, 2, 0, tzinfo=UTC))
    assert group.window.has(datetime(2026, 12, 1, 22, 0, tzinfo=UTC))
    assert not group.window.has(datetime(2026, 12, 1, 21, 59, tzinfo=UTC))
    plain = entry("")
    assert (plain.wave, plain.target, plain.window) == (0, End("kafka", "g"), None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[groups", "Expected"),
        ("[other]", "other is not known"),
        ("cluster = 1", "are tables"),
        ("[cluster]\nzk = 'h'", "cluster.zk is not known"),
        ("[cluster]\nzookeeper = 1", "cluster.zookeeper is a string"),
        ("[groups]\ng = 1", "groups.g is a table"),
        ("[groups.g]\nwaves = 1", "groups.g.waves is not known"),
        ("[groups.g]\nwave = -1", "groups.g.wave is a number"),
        ("[groups.g]\nwave = true", "groups.g.wave is a number"),
        ("[groups.g]\nprotocol = 'zookeeper'", "groups.g.protocol is one of"),
        ("[groups.g]\nmissing = 'no'", "groups.g.missing is one of"),
        ("[groups.g]\ntarget = 'zookeeper:g'", "groups.g.target is kafka:NAME"),
        ("[groups.g]\ntarget = 'g'", "groups.g.target: "),
        ("[groups.g]\nwindow = 'night'", "groups.g.window: write it as"),
        ("[groups.g]\nwindow = '2026-12-02/2026-12-03'", "groups.g.window: write it as .* with a zone"),
        ("[groups.g]\nwindow = '2026-12-02T01:00Z'", "groups.g.window: write it as"),
        ("[groups.g]\nwindow = '2026-12-02T01:00Z/2026-12-02T01:00Z'", "groups.g.window ends before it begins"),
        ("[groups.g]\nrewind = 'false'", "groups.g.rewind is true or false"),
        ("[groups.g]\nowner = ['a']", "groups.g.owner is a string"),
        ("[groups.g]\nretention = '30d'", "groups.g.retention is not known"),
        ("[groups.g]\n[groups.h]\ntarget = 'kafka:g'", "groups g and h have one target, kafka:g"),
    ],
)
def test_faults(text, fault):
    with pytest.raises(UsageError, match=f"c.toml.*{fault}"):
        parse(text)


def test_all_faults_are_named_at_once():
    with pytest.raises(UsageError, match=r"groups\.g\.wave is .*; groups\.h\.missing is "):
        parse("[groups.g]\nwave = -1\n[groups.h]\nmissing = 'no'")


def test_the_groups_of_a_wave():
    fleets = [
        parse("[groups.a]\nwave = 1\n[groups.b]\nwave = 2\n[groups.z]", "x"),
        parse("[groups.a]\nwave = 2\n[groups.c]\nwave = 2", "y"),
    ]

    def chosen(wave, *names):
        return [(fleet.name, group.group) for fleet, group in groups_of(fleets, wave, names)]

    assert chosen(2) == [("x", "b"), ("y", "a"), ("y", "c")]
    assert chosen(2, "c") == [("y", "c")]
    assert chosen(None, "a") == [("x", "a"), ("y", "a")]
    assert chosen(None, "z") == [("x", "z")], "wave 0 can be named"
    with pytest.raises(UsageError, match="the waves are 1, 2"):
        chosen(3)
    with pytest.raises(UsageError, match=r"has no group x, y, z in wave 2$"):
        chosen(2, "c", "z", "x", "y")
    with pytest.raises(UsageError, match=r"has no group nosuch$"):
        chosen(None, "nosuch")
    many = [parse("".join(f"[groups.g{wave}]\nwave = {wave}\n" for wave in (9, 30, 1, 12, 5)))]
    with pytest.raises(UsageError, match="the waves are 1, 5, 9, 12, 30"):
        groups_of(many, 2, ())


@pytest.mark.parametrize(
    ("protocol", "client", "expected"),
    [("kafka", "zkconsumer", "kafka"), ("kafka", "java", "classic"), ("consumer", "java", "consumer")],
)
def test_what_new_consumers_join_with(protocol, client, expected):
    (group,) = parse_fleet("c", f'[groups.g]\ntarget = "kafka:h"\nprotocol = "{protocol}"'.encode()).groups
    assert new_properties(group, "b:1", client) == {
        "group.id": "h",
        "group.protocol": expected,
        "bootstrap.servers": "b:1",
    }
    assert "bootstrap.servers" not in new_properties(group, "", client)


@pytest.mark.parametrize(
    ("protocol", "releases", "older"),
    [
        ("kafka", {1: (0, 9)}, None),
        ("consumer", {1: (4, 0), 2: (4, 2)}, None),
        ("consumer", {1: (4, 0), 2: (3, 9)}, "brokers 2 are older"),
    ],
)
def test_a_protocol_that_brokers_do_not_have(protocol, releases, older):
    why = why_not_protocol(protocol, releases)
    assert why is None if older is None else older in why
