"""Runs the tests of one module on each of its mutants, in a process for each that has everything else imported.

``python -m tests.mutants.examination MODULE TEST...`` prints an ``Examination`` as JSON.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import pytest
from hypothesis import Phase, settings

from tests.mutants.mutations import Mutant, mutants_of

_PLUGINS: Final = ("cacheprovider", "logging", "junitxml", "faulthandler", "unraisableexception")
"""Of pytest: they take time, and the tests do not need them."""
_OPTIONS: Final = "--noconftest --exitfirst -qq --tb=no --assert=plain --capture=sys --show-capture=no"
_ARGUMENTS: Final = ("-p", "pytest_timeout", *(f"-pno:{name}" for name in _PLUGINS), *_OPTIONS.split())
_EXAMPLES: Final = 50
"""Of property tests, always the same ones."""
_MEMORY_BYTES: Final = 2 << 30
"""More than the tests of any module need; a mutant that collects without end fails at it."""
_LONGEST_S: Final = 60
"""Seconds of CPU of a module's tests without a mutant; with one they may take a few times what they took without."""
_PASSED, _FAILED, _INTERRUPTED = 0, 1, 2

Key = tuple[str, str, str]
"""Of a mutant in its module: function, original and mutated text."""


@dataclass(slots=True)
class Outcome:
    """What the tests said about a mutant, see ``Mutant`` for the other attributes."""

    line: int
    function: str
    original: str
    mutated: str
    killed: bool


@dataclass(slots=True)
class Examination:
    """What was found out about a module.

    Attributes:
        path: of the module, relative to the checkout.
        outcomes: in the order of the source, of the mutants that are not equivalent to the module.
        equivalent: the others.
        error: why the tests could not be used, empty if they could.
    """

    path: str
    outcomes: list[Outcome] = field(default_factory=list)
    equivalent: list[Key] = field(default_factory=list)
    error: str = ""


class _Blocked(importlib.abc.MetaPathFinder):
    """Refuses to import a module, and thereby all modules that need it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == self._name:
            raise ImportError(f"{fullname} is mutated")
        return None


class _Code(importlib.machinery.SourceFileLoader):
    """Loads a module from its file, with other code."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Mutated(importlib.abc.MetaPathFinder):
    """Imports one module from the code of a mutant."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self._name = name
        self._path = path
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Code(fullname, str(self._path), self._code)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def examine(module: Path, tests: Sequence[str], equivalent: Collection[Key] = ()) -> Examination:
    """Run the tests on all mutants of a module but those that are equivalent to it.

    Args:
        module: its path relative to the checkout, which is the working directory.
        tests: files; without any, all mutants survive.
        equivalent: mutants that no test can notice.
    """
    found = Examination(module.as_posix())
    tree = ast.parse(module.read_text(encoding="utf-8"))
    name = ".".join(module.with_suffix("").parts)
    limit = _LONGEST_S
    if tests:
        _preload(name, tests)
        status, seconds = _forked(partial(_run_limited, tests, limit))
        limit = 2 + int(5 * seconds)
        if status != _PASSED:
            found.error = f"the tests do not pass without a mutant (status {status}): {', '.join(tests)}"
            return found
    for mutant in mutants_of(tree):
        key = (mutant.function, mutant.original, mutant.mutated)
        if key in equivalent:
            found.equivalent.append(key)
            continue
        status = _forked(partial(_run_mutated, mutant, tree, name, tests, limit))[0] if tests else _PASSED
        if status > _INTERRUPTED:  # less than 0 is a signal: of a limit, or of a library that the mutant has crashed
            found.error = f"{module}:{mutant.line}: pytest ended with status {status}: {mutant.mutated}"
            return found
        found.outcomes.append(Outcome(mutant.line, *key, killed=status != _PASSED))
    return found


def _run_mutated(mutant: Mutant, tree: ast.Module, name: str, tests: Sequence[str], limit: int) -> int:
    """Run the tests with a mutant of the module ``name``, whose tree it is."""
    mutant.apply()
    path = Path(*name.split(".")).with_suffix(".py").resolve()
    sys.meta_path.insert(0, _Mutated(name, path, compile(tree, str(path), "exec")))
    return _run_limited(tests, limit)


def _run_limited(tests: Sequence[str], limit: int) -> int:
    """Run the tests for so many seconds of CPU at most, and with a limit of memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    return _run(tests)


def _preload(name: str, tests: Sequence[str]) -> None:
    """Import what the tests import, except for the module itself and for what needs it."""
    reading, writing = os.pipe()

    def probe() -> int:
        status = _run(tests)
        with open(writing, "w", encoding="utf-8") as pipe:  # noqa: PTH123 - it is a descriptor
            pipe.write(" ".join(sys.modules))
        return status

    child = os.fork()
    if child == 0:
        os.close(reading)
        _exit_with(probe)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123 - it is a descriptor
        imported = pipe.read().split()
    os.waitpid(child, 0)
    blocked = _Blocked(name)
    sys.meta_path.insert(0, blocked)
    for other in imported:
        if not other.startswith(("tests.unit", "tests.property", "test_")):
            with suppress(ImportError):
                importlib.import_module(other)
    sys.meta_path.remove(blocked)
    gc.freeze()  # children then collect only what is their own


def _run(tests: Sequence[str]) -> int:
    return int(pytest.main([*_ARGUMENTS, *tests]))


def _forked(run: Callable[[], int]) -> tuple[int, float]:
    """Status of a child that runs this, negative for a signal, and the seconds of CPU that it took."""
    child = os.fork()
    if child == 0:
        _exit_with(run)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def _exit_with(run: Callable[[], int]) -> None:
    """End this process, a child, without its parent's clean-up. What the tests print is lost."""
    status = _FAILED
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        status = run()
    finally:
        os._exit(status)


def main(module: str, *tests: str) -> None:
    """Print the examination of a module; standard input has those mutants as JSON that are equivalent."""
    settings.register_profile(
        "mutants",
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=_EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("mutants")
    found = examine(Path(module), tests, {(one[0], one[1], one[2]) for one in json.load(sys.stdin)})
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
