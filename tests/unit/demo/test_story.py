"""The output of the demo."""

import io
from pathlib import Path

from rich.console import Console

from demo.checks import Check
from demo.story import Story
from zkconsumer.sandbox.progress import Progress


def printed(*checks: Check, kept: Path | None = None) -> str:
    stream = io.StringIO()
    story = Story(Console(file=stream, width=100, highlight=False), Progress(quiet=True))
    story.step("first " + "x" * 200)
    story.add("more of it")
    story.step("second")
    story.verdict(checks, kept, Path("/somewhere/a picture.png"), 12.3)
    return stream.getvalue()


def test_steps_are_numbered_and_not_broken() -> None:
    lines = printed().splitlines()
    assert lines[:3] == [" 1  first " + "x" * 200, "      more of it", " 2  second"]


def test_the_end_of_a_successful_demo() -> None:
    text = printed(Check("this", "1 of 1", True), Check("that", "2 of 2", True))
    assert "FAILED" not in text
    assert text.endswith("All 2 checks hold.\nPicture: /somewhere/a picture.png\nTime: 12 s\n")


def test_the_end_of_a_failed_demo_names_the_failed_checks() -> None:
    text = printed(Check("this", "1 of 1", True), Check("that", "1 of 2", False), kept=Path("/kept here"))
    assert next(line.split() for line in text.splitlines() if "of 2" in line) == ["that", "1", "of", "2", "FAILED"]
    assert "FAILED: 1 of 2 checks: that\nKept: /kept here\nPicture:" in text


def test_no_control_characters_without_a_terminal() -> None:
    text = printed(Check("this", "1", True), Check("that", "2", False))
    assert all(character.isprintable() or character == "\n" for character in text)
