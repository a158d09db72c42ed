"""The text in which a JVM hands over what its consumers did."""

from benchmarks.groupevents import Kind, Row
from benchmarks.javapoll import parse_rows


def test_every_kind_of_row_is_parsed():
    text = "\n".join(
        [
            "[1000000000, m000, read, 17]",
            "[1500000000, m000, onPartitionsAssigned, [[flowing-2, flowing-10]]]",
            "[1600000000, m000, onPartitionsAssigned, [[]]]",
            "[2000000000, m-1, onPartitionsRevoked, [[flowing-2]]]",
            "[2100000000, m-1, onPartitionsLost, [[flowing-10]]]",
            "[3000000000, m000, committing, ]",
            "[4000000000, m000, answered, null]",
            "[5000000000, m000, answered, org.apache.kafka.common.errors.RebalanceInProgressException: a [b], c]",
            "[6000000000, m000, failed, java.lang.Exception: line one",
            "line two]",
        ]
    )
    refused = "org.apache.kafka.common.errors.RebalanceInProgressException: a [b], c"
    assert parse_rows(text) == [
        Row(1.0, "m000", Kind.READ, (17,)),
        Row(1.5, "m000", Kind.GAINED, (2, 10)),
        Row(1.6, "m000", Kind.GAINED),
        Row(2.0, "m-1", Kind.LOST, (2,)),
        Row(2.1, "m-1", Kind.LOST, (10,)),
        Row(3.0, "m000", Kind.COMMITTING),
        Row(4.0, "m000", Kind.ACCEPTED),
        Row(5.0, "m000", Kind.REFUSED, text=refused),
        Row(6.0, "m000", Kind.FAILED, text="java.lang.Exception: line one\nline two"),
    ]


def test_empty_text_has_no_rows():
    assert parse_rows("") == []
