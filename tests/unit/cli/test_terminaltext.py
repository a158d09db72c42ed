"""Names from outside, as a terminal shows them."""

import pytest

from zkconsumer.cli.terminaltext import printable


@pytest.mark.parametrize("text", ["clicks", "a b", "größe-日本", "back\\slash", "<script>"])
def test_what_a_terminal_only_shows_stays(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\u202eevil", r"\u202eevil"),
        ("\x9b2J", r"\x9b2J"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text, shown):
    assert printable(text) == shown


def test_an_endless_name_is_cut():
    shown = printable("x" * 65_536)
    assert len(shown) < 1100
    assert shown.endswith("(65536 characters)")
