"""Which modules are mutated, which tests look at them, and which of their mutants no test can notice."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
TESTS: Final = _HERE / "tests.toml"
EQUIVALENT: Final = _HERE / "equivalent.toml"

_PACKAGE: Final = "zkconsumer"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A mutant that behaves as the module does.

    Attributes:
        path: of the module, relative to the checkout.
        function: that it is in, see ``Mutant`` for this and the texts.
        original: text.
        mutated: text.
    """

    path: str
    function: str
    original: str
    mutated: str


def modules_of(root: Path, room: str = "") -> list[Path]:
    """Modules of all ``rules`` packages and of ``java``, or those below a room, such as ``group`` or ``group/kafka``.

    Returns: paths relative to the checkout, the longest module first.
    Raises:
        ValueError: nothing is there.
    """
    package = Path(_PACKAGE)
    below = package / room
    found = [
        path
        for absolute in (root / package).rglob("*.py")
        if (path := absolute.relative_to(root)).name != "__init__.py"
        and (path.parent.name == "rules" or path.parent == package / "java")
        and (path.is_relative_to(below) or path == below.with_suffix(".py"))
    ]
    if not found:
        raise ValueError(f"{below} has no module in a package named rules")
    return sorted(found, key=lambda path: (-(root / path).stat().st_size, path))


def chosen_tests(root: Path, module: Path, more: Mapping[str, Sequence[str]]) -> list[str]:
    """The module's unit tests, and those that the table ``more`` has for it."""
    mirror = Path("tests", "unit", *module.parent.parts[1:], f"test_{module.name}")
    return [*([mirror.as_posix()] if (root / mirror).exists() else []), *more.get(module.as_posix(), ())]


def read_tests(path: Path = TESTS) -> dict[str, list[str]]:
    """Module and tests, beside those in the unit test that is named as the module."""
    tests: dict[str, list[str]] = tomllib.loads(path.read_text(encoding="utf-8"))["tests"]
    return tests


def read_equivalent(path: Path = EQUIVALENT) -> list[Equivalent]:
    """Mutants that no test can notice.

    Raises:
        ValueError: an entry has no reason.
    """
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []):
        reason = entry.pop("reason", "")
        if not reason:
            raise ValueError(f"{path.name} does not say why {entry} is equivalent")
        found.append(Equivalent(**entry))
    return found
