"""Files of offsets: what is written, what is read, and every fault with its line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.offsetfiles import FileRefused, GroupOffset, format_offsets, parse_offsets

ROWS = [
    GroupOffset("g", TopicPartition("clicks", 0), 50),
    GroupOffset("g", TopicPartition("clicks", 1), 2**63 - 1),
    GroupOffset("h", TopicPartition("a-very-long-name-of-a-topic-that-newer-tools-quote", 10), 0),
]


def faults(content, *groups):
    with pytest.raises(FileRefused) as refused:
        parse_offsets("file", content, *groups)
    return [(fault.line, fault.text) for fault in refused.value.faults]


def test_the_formats_are_those_of_the_jvm_tools():
    assert format_offsets(ROWS[:1], "zk", with_group=False) == "/consumers/g/offsets/clicks/0:50\n"
    assert format_offsets(ROWS[:1], "csv", with_group=False) == "clicks,0,50\n"
    assert format_offsets(ROWS[:1], "csv", with_group=True) == "g,clicks,0,50\n"
    assert format_offsets(ROWS[:1], "json", with_group=False) == (
        '{"group": "g", "topic": "clicks", "partition": 0, "offset": 50}\n'
    )


@given(
    st.lists(
        st.builds(
            GroupOffset,
            st.from_regex(r"[a-zA-Z0-9._-]{3,20}", fullmatch=True),
            st.builds(
                TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{3,40}", fullmatch=True), st.integers(0, 2**31 - 1)
            ),
            st.integers(0, 2**63 - 1),
        ),
        min_size=1,
        unique_by=lambda row: row[:2],
    ),
    st.sampled_from(["zk", "csv", "json"]),
)
def test_what_is_written_is_read_again(rows, kind):
    text = format_offsets(rows, kind, with_group=True)
    assert parse_offsets("file", text.encode()).offsets == tuple(rows)


def test_three_columns_are_for_the_group_that_is_given():
    read = parse_offsets("file", b'"clicks",0,50\r\nviews,1,7\n\n \n', "g")
    assert read.offsets == (
        GroupOffset("g", TopicPartition("clicks", 0), 50),
        GroupOffset("g", TopicPartition("views", 1), 7),
    )
    assert read.lines["g", TopicPartition("views", 1)] == 2
    assert faults(b"clicks,0,50\n") == [(1, "three columns name no group; specify the group")]


def test_only_the_offsets_of_one_group_are_taken():
    text = format_offsets(ROWS, "zk", with_group=False).encode()
    assert parse_offsets("file", text, "h").offsets == (ROWS[2],)
    assert parse_offsets("file", text, "h", "g").offsets == tuple(ROWS)
    assert "no offset of group i" in faults(text, "i")[0][1]


def test_a_file_is_refused_with_every_fault_and_its_line():
    lines = [
        "/consumers/g/offsets/t/0:1",
        "/consumers/g/owners/t/1:1",
        "/brokers/topics/t/0:1",
        "/consumers/g/offsets/t/0-3:1",
        "/consumers/g/offsets/t/2:",
        "/consumers/g/offsets/t/3:1:2",
        "/consumers/g/offsets/t/4: 1",
        "/consumers/g/offsets/t/5:-1",
        "/consumers/g/offsets/t/6:9223372036854775808",
        "/consumers/g/offsets/t/0:2",
        "/consumers/g/offsets/t/07:2",
        "/consumers/../offsets/t/8:2",
    ]
    found = faults("\n".join(lines).encode())
    assert [line for line, _ in found] == list(range(2, 13))
    named = [
        "outside /consumers/*/offsets/*/*",
        "outside /consumers/*/offsets/*/*",
        "Kafka 0.7",
        "''",
        "one colon",
        "white space",
        "'-1'",
        "'9223372036854775808'",
        "partition t-0 of group g is also in line 1",
        "'07'",
        "'..' cannot be the name of a group",
    ]
    assert [word for word, (_, text) in zip(named, found, strict=True) if word not in text] == []


@pytest.mark.parametrize(
    ("content", "line", "named"),
    [
        (b"", 1, "no offset"),
        (b"\n\n", 1, "no offset"),
        (b"t,0,5\n\nt,1,5\n", 2, "the JVM's import would ignore"),
        (b"t,0,5\n\xff,1,5\n", 2, "not UTF-8"),
        (b"t,0,5\ng,t,1,5\n", 2, "4 columns; the form of this file is topic,partition,offset"),
        (b"g,t,0,5\nt,1,5\n", 2, "3 columns; the form of this file is group,topic,partition,offset"),
        (b"topic,partition,offset\n", 1, "partition 'partition'"),
        (b"t, 0,5\n", 1, "white space"),
        (b't,"0,5\n', 1, "not CSV"),
        (b"t,0,5.0\n", 1, "'5.0'"),
        (b'{"group":"g","topic":"t","partition":0}\n', 1, "exactly group, topic"),
        (b'{"group":"g","topic":"t","partition":0,"offset":"5"}\n', 1, "offset is not an integer"),
        (b'{"group":"g","topic":"t","partition":0,"offset":true}\n', 1, "offset is not an integer"),
        (b'{"group":"g","topic":"t","partition":0,"offset":5,"offset":6}\n', 1, "given twice"),
        (b'{"group":"g","topic":"t","partition":0,"offset":5}\n{\n', 2, "not JSON"),
        (b'{"group":7,"topic":"t","partition":0,"offset":5}\n', 1, "group is not a text"),
        (b'{"group":"g","topic":"a\\nb","partition":0,"offset":5}\n', 1, "name of a topic"),
    ],
)
def test_a_fault_is_found_in_each_format(content, line, named):
    (found,) = faults(content, "g")
    assert (found[0], named in found[1]) == (line, True), found


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    with contextlib.suppress(FileRefused):
        assert parse_offsets("file", content, "g").offsets


def test_names_that_would_be_read_otherwise_are_not_written():
    for name in ("a:b", "a b", "a\nb"):
        row = GroupOffset(name, TopicPartition("t", 0), 5)
        with pytest.raises(ZkConsumerError, match="use format json"):
            format_offsets([row], "zk", with_group=False)
        assert format_offsets([row], "json", with_group=False).count("\n") == 1


@pytest.mark.parametrize("kind", ["zk", "csv"])
def test_a_name_that_a_format_cannot_express_costs_its_group_only(kind):
    rows = [GroupOffset(name, TopicPartition("t", number), 5) for name in ("a b", "g") for number in (0, 1)]
    skipped = []
    assert format_offsets(rows, kind, with_group=True, skipped=skipped) == format_offsets(
        rows[2:], kind, with_group=True
    )
    assert skipped == [
        f"group 'a b', topic 't' cannot be written in format {kind}: 'a b' needs escapes, which it does not have; use "
        "format json"
    ]


NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
ODD_NAMES = st.sampled_from(["team/app", "/a", "{", "a\u00ad", "..", "a:b", "a,b", '"', "a b", "a\nb"])


@pytest.mark.parametrize("kind", ["zk", "csv", "json"])
@given(groups=st.lists(NAMES | ODD_NAMES, max_size=4))
def test_what_is_written_can_be_read_again(kind, groups):
    """A group of brokers may have any name; one that a format cannot have is reported, and costs no other group."""
    rows = [GroupOffset(group, TopicPartition("t", 0), 5) for group in dict.fromkeys([*groups, "g"])]
    skipped = []
    text = format_offsets(rows, kind, with_group=True, skipped=skipped)
    read = parse_offsets("f", text.encode()).offsets
    assert (len(read) + len(skipped), set(read) <= set(rows)) == (len(rows), True)
    assert kind != "json" or not skipped
