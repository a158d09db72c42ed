"""The parts that the tests are run in, and the sample of each that the gate runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = ROOT / "tests" / "gate.toml"

_BY_FILE: Final = ("--dist", "loadfile")
"""A file stays in one process, so that what its tests share (servers, JVM peers, Spark sessions) is started once."""
_IN_PARALLEL: Final = ("-n", "3", *_BY_FILE)
"""For two cores: a third of what one of these processes does is to wait."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the tests, which one run of pytest can execute.

    Attributes:
        paths: what pytest collects.
        arguments: of pytest, for all runs of the part.
        required: variables that turn what is missing on the machine from a skip into a failure.
    """

    paths: tuple[str, ...]
    arguments: tuple[str, ...] = _IN_PARALLEL
    required: tuple[str, ...] = ()


PARTS: Final[Mapping[str, Part]] = {
    "unit": Part(("tests/property", "tests/unit"), ("-n", "3", "--dist", "worksteal")),
    "integration": Part(("tests/integration",), ("-n", "4", *_BY_FILE)),
    "servers": Part(("tests/brokers", "tests/interop", "tests/stress", "tests/chaos")),
    "spark": Part(("tests/spark",)),
    "demo": Part(("tests/demo",), ()),
    "kerberos": Part(("tests/kerberos",), (), ("ZKCONSUMER_KERBEROS_REQUIRED",)),
    "web": Part(("tests/web",), (), ("ZKCONSUMER_WEB_REQUIRED",)),
    "native": Part(("tests/native",), (), ("ZKCONSUMER_NATIVE_REQUIRED",)),
    "containers": Part(("tests/containers",), ()),
}
"""In the order in which they run. Each test is in one part."""

FAST: Final = ("unit", "integration")
"""Parts of which `make test` runs everything that is not marked slow, so that their sample has slow tests only."""

Sample = Mapping[str, Mapping[str, Sequence[str]]]
"""Part, capability of the product, and the tests that fail when the capability is broken."""


def read_sample(path: Path = SAMPLE) -> Sample:
    """The gate's sample. Raises ValueError for a part that does not exist."""
    sample: Sample = tomllib.loads(path.read_text(encoding="utf-8"))
    if unknown := sample.keys() - PARTS.keys():
        raise ValueError(f"{path.name} names parts that do not exist: {', '.join(sorted(unknown))}")
    return sample


def sampled(sample: Sample, part: str) -> list[str]:
    """The tests of a part, each once, in the order of the file."""
    listed = (test for tests in sample.get(part, {}).values() for test in tests)
    return list(dict.fromkeys(listed))
