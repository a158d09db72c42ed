"""Inputs of the fuzzer: where each target begins, and what earlier runs found to reach something new."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import login
from tests.golden.captures import captures


def archive_of(target: str) -> Path:
    """Where the inputs of a target are kept."""
    return Path(__file__).with_name(f"{target}.zip")


def first_inputs(target: str) -> Iterator[tuple[str, bytes]]:
    """(name, input): every golden capture, as records and as a response, or conversations with a broker."""
    if target == "login":
        yield from login.seeds()
        return
    for capture in captures():
        name = f"golden {capture}".replace(" ", "-").replace(",", "")
        yield f"{name}-records", b"\0" + bytes(capture.fetched.records)
        yield f"{name}-response", bytes([capture.version + 1]) + capture.response


def kept_inputs(target: str) -> Iterator[tuple[str, bytes]]:
    """(name, input) of what was kept."""
    if archive_of(target).exists():
        with zipfile.ZipFile(archive_of(target)) as archive:
            for name in archive.namelist():
                yield name, archive.read(name)
