"""Inputs of the fuzzer: the first inputs of each target, and those of earlier runs that reached new code."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.batches import ABORT, CODECS, COMMIT, build, control
from tests.fixtures.messagesets import OLD_CODECS, compressed_set, message
from tests.fuzz import login
from tests.golden.captures import captures
from zkconsumer.sandbox.producer import Record


def archive_of(target: str) -> Path:
    """The file with the kept inputs of a target."""
    return Path(__file__).with_name(f"{target}.zip")


def first_inputs(target: str) -> Iterator[tuple[str, bytes]]:
    """(name, input): golden captures and small batches, as records and as responses, or conversations with a broker."""
    if target == "login":
        yield from login.seeds()
        return
    for capture in captures():
        name = f"golden {capture}".replace(" ", "-").replace(",", "")
        yield f"{name}-records", b"\0" + bytes(capture.fetched.records)
        yield f"{name}-response", bytes([capture.version + 1]) + capture.response
    for name, records in small_batches():
        yield name, b"\0" + records


def small_batches() -> Iterator[tuple[str, bytes]]:
    """(name, records) of many batches of one record each."""
    headers = [("h", b"1"), ("h", None), ("", b"")]
    records = [
        Record(None if number % 5 == 1 else b"value %d" % number, b"k" * (number % 4) or None, 1_000 + number, headers)
        for number in range(12)
    ]
    for codec in CODECS:
        yield f"ones-{codec}", b"".join(build([one], offset=at, codec=codec) for at, one in enumerate(records))
    for magic in (0, 1):
        yield f"ones-{magic}", b"".join(message(one, magic, at) for at, one in enumerate(records))
        for codec in OLD_CODECS:
            sets = (compressed_set([one], magic, [at], codec) for at, one in enumerate(records))
            yield f"ones-{magic}-{codec}", b"".join(sets)
    three_formats = [message(records[0], 0, 0), message(records[1], 1, 1), build([records[2]], offset=2)]
    three_formats += [message(records[3], 1, 3), build([records[4]], offset=4, codec="lz4"), message(records[5], 0, 5)]
    yield "ones-of-all-formats", b"".join(three_formats)
    yield (
        "transactions",
        b"".join(
            control(at, ABORT if at % 4 == 3 else COMMIT, producer=at // 2 % 3)
            if at % 4 > 1
            else build([records[at]], offset=at, attributes=0x10, producer=at % 3)
            for at in range(len(records))
        ),
    )


def kept_inputs(target: str) -> Iterator[tuple[str, bytes]]:
    """(name, input) of each kept input."""
    if archive_of(target).exists():
        with zipfile.ZipFile(archive_of(target)) as archive:
            for name in archive.namelist():
                yield name, archive.read(name)
