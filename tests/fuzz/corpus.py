"""Inputs of the fuzzer: the golden captures, and what earlier runs found to reach something new."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.golden.captures import captures

CORPUS = Path(__file__).with_name("corpus.zip")


def golden_inputs() -> Iterator[tuple[str, bytes]]:
    """(name, input) of every capture, as records and as a response."""
    for capture in captures():
        name = f"golden {capture}".replace(" ", "-").replace(",", "")
        yield f"{name}-records", b"\0" + bytes(capture.fetched.records)
        yield f"{name}-response", bytes([capture.version + 1]) + capture.response


def kept_inputs() -> Iterator[tuple[str, bytes]]:
    """(name, input) of what was kept."""
    if CORPUS.exists():
        with zipfile.ZipFile(CORPUS) as archive:
            for name in archive.namelist():
                yield name, archive.read(name)
