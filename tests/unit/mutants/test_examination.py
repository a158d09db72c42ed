"""An examination of a module of three functions, in a checkout of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import good_enough, report
from tests.mutants.choice import Equivalent

ROOT = Path(__file__).parents[3]

MODULE = """
LIMIT = 3

def limited(number):
    return number < LIMIT

def doubled(number):
    while number > 0:
        number -= 1
    return number

def unused(number):
    return number + 0
"""
USER = "from package.rules import limited, doubled\n"
TESTS = """
from package.user import limited, doubled

def test_limited():
    assert [limited(n) for n in (2, 3, 4)] == [True, False, False]

def test_doubled():
    assert doubled(2) == 0
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "rules.py").write_text(MODULE)
    (tmp_path / "package" / "user.py").write_text(USER)
    (tmp_path / "test_rules.py").write_text(TESTS)
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\npythonpath = .\naddopts = --import-mode=importlib\n")
    return tmp_path


def examine(checkout, *tests, equivalent=()):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.mutants.examination", "package/rules.py", *tests],
        cwd=checkout,
        env={"PYTHONPATH": f"{checkout}:{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        input=json.dumps(equivalent),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)


def survivors(examined):
    return [outcome["mutated"] for outcome in examined["outcomes"] if not outcome["killed"]]


UNUSED = ["return None", "return number - 0", "return number + 1"]


@pytest.mark.slow
def test_tests_kill_mutants_of_what_they_check_also_those_that_never_end(checkout):
    examined = examine(checkout, "test_rules.py")
    assert examined["error"] == ""
    assert {outcome["mutated"] for outcome in examined["outcomes"] if outcome["killed"]} >= {
        "LIMIT = 4",
        "return number <= LIMIT",
        "number += 1",
    }
    assert survivors(examined) == UNUSED


def test_equivalent_mutants_are_not_counted(checkout):
    known = ("unused", "return number + 0", "return number - 0")
    examined = examine(checkout, equivalent=[known])
    assert examined["equivalent"] == [list(known)]
    of_function = [outcome["mutated"] for outcome in examined["outcomes"] if outcome["function"] == "unused"]
    assert of_function == [UNUSED[0], UNUSED[2]]


def test_without_tests_all_survive(checkout):
    examined = examine(checkout)
    assert examined["outcomes"]
    assert len(survivors(examined)) == len(examined["outcomes"])


def test_tests_that_fail_without_a_mutant_are_an_error(checkout):
    (checkout / "test_rules.py").write_text("def test_nothing():\n    assert False\n")
    examined = examine(checkout, "test_rules.py")
    assert "do not pass" in examined["error"]
    assert not good_enough([examined], ())


def examined_with(killed, survived):
    outcome = {"line": 7, "function": "f", "original": "a < b", "mutated": "a <= b"}
    outcomes = [{**outcome, "killed": True}] * killed + [{**outcome, "killed": False}] * survived
    return {"path": "p/rules/m.py", "outcomes": outcomes, "equivalent": [["f", "a", "b"]], "error": ""}


@pytest.mark.parametrize(("killed", "survived", "enough"), [(9, 1, True), (89, 11, False), (0, 0, True)])
def test_nine_of_ten_mutants_have_to_be_killed(killed, survived, enough):
    assert good_enough([examined_with(killed, survived)], ()) is enough


def test_an_equivalent_mutant_that_does_not_exist_is_an_error():
    examined = [examined_with(10, 0)]
    assert good_enough(examined, [Equivalent("p/rules/m.py", "f", "a", "b"), Equivalent("other.py", "f", "a", "b")])
    stale = [Equivalent("p/rules/m.py", "f", "a", "c")]
    assert not good_enough(examined, stale)
    assert "does not exist" in report(examined, stale)[-1]


def test_the_report_lists_survivors_modules_and_rooms():
    lines = report([examined_with(3, 1)], ())
    assert lines[0] == "p/rules/m.py:7: a < b -> a <= b"
    assert [line.split()[0] for line in lines[1:]] == ["p/rules/m.py", "p/rules", "all"]
    assert lines[-1].split()[1:] == ["4", "mutants", "3", "killed", "1", "survived", "75.0", "%"]
