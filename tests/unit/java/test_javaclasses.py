"""Character classes as sets."""

import re
import string

import pytest

from zkconsumer.java.javaclasses import ANYTHING, NOTHING, char_range, charset, property_class

AB, BC = charset("ab"), charset("bc")


def test_sets_have_ascii_characters_and_possibly_all_others():
    assert not AB.others
    assert charset("aé\x80\x7f").members == {"a", "\x7f"}
    assert ANYTHING.members == set(map(chr, range(128)))
    assert ANYTHING.others
    assert NOTHING == NOTHING.complement().complement() == ANYTHING.complement()


def test_operations_of_sets():
    assert AB.union(BC) == charset("abc")
    assert AB.intersection(BC) == charset("b")
    assert AB.complement().members == ANYTHING.members - {"a", "b"}
    for one, other in ((AB, BC.complement()), (AB.complement(), BC)):
        assert one.union(other).others
        assert not one.intersection(other).others
    assert AB.complement().intersection(BC.complement()).others
    assert charset("aZ1").in_either_case() == charset("aAzZ1")


def test_a_range_has_both_ends():
    assert char_range("a", "c") == charset("abc")
    assert char_range("a", "a") == charset("a")


@pytest.mark.parametrize(
    ("chars", "regex"),
    [
        (NOTHING, "(?!)"),
        (ANYTHING, r"[\s\S]"),
        (charset("fbdaec-"), r"[\-abcdef]"),
        (charset("fbdaec").complement(), "[^abcdef]"),
    ],
)
def test_a_set_as_a_regex(chars, regex):
    assert chars.to_regex() == regex
    for char in map(chr, range(128)):
        assert (re.fullmatch(regex, char) is not None) == (char in chars.members)


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("Upper", string.ascii_uppercase),
        ("IsNd", string.digits),
        ("Blank", " \t"),
        ("Pc", "_"),
        ("XDigit", string.hexdigits),
    ],
)
def test_classes_with_names(name, members):
    assert property_class(name) == charset(members)


def test_unknown_classes():
    assert property_class("Klingon") is None
