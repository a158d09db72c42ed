"""Regexes of filters for other engines, compared with what Java's regex selects."""

import doctest
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.operate.migrate.rules import portableregex
from zkconsumer.operate.migrate.rules.portableregex import portable_regex

NAMES = ["clicks", "clicks-2", "Clicks", "a", "b", "ab", "a.b", "axb", "x9", "42", "__x", "-", "views_eu"]


def test_examples():
    assert doctest.testmod(portableregex).failed == 0


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("clicks.*", "^clicks.*$"),
        ("^clicks.*$", "^clicks.*$"),
        ("a|b", "^(a|b)$"),
        ("^a|b$", "^(^a|b$)$"),
        (r"(?:a|b)\d+", "^((a|b)[0-9]+)$"),
        (r"[\w.-]+x", "^.+x$"),
        ("[^-a]", "^[._0-9A-Zb-z]$"),
        ("[a-c&&[^b]]", "^[ac]$"),
        (r"\Qa.b\E", r"^a\.b$"),
        ("(?i)ab", "^[Aa][Bb]$"),
        ("x{2,}?", "^x{2,}$"),
        ("(?<name>a)b", "^(a)b$"),
        (r"a[\s\S]b", "^a.b$"),
        (r"a\+b\.c", r"^a\+b\.c$"),
        (r"a\-b-c_d", "^a-b-c_d$"),
        ("[ab][abc][a-d]", "^[ab][a-c][a-d]$"),
        (r"\x41", "^A$"),
    ],
)
def test_a_regex_is_anchored_for_librdkafka(regex, expected):
    assert portable_regex(regex).librdkafka == expected


@pytest.mark.parametrize("regex", [r"a(?!b).*", r"a++b", "(?>a)b", r"\ba.*", "[+]"])
def test_what_librdkafka_cannot_match_has_no_translation(regex):
    found = portable_regex(regex)
    assert found.librdkafka is None
    assert found.python is not None
    assert "not translatable to librdkafka" in found.features[-1]


@pytest.mark.parametrize(
    ("regex", "feature"),
    [
        ("[a-c&&[^b]]", "class intersection"),
        (r"\p{Alpha}+", r"\p{...}"),
        (r"\Qa\E", r"\Q...\E"),
        ("(?<name>a)", "a named group"),
        ("a*+", "possessive"),
        (r"\d", r"\d"),
        ("(?i)a", "an inline flag"),
        ("a(?=b)b", "a lookaround"),
    ],
)
def test_features_that_other_engines_lack_are_named(regex, feature):
    assert any(feature in each for each in portable_regex(regex).features)


def test_an_escaped_backslash_begins_no_feature():
    assert portable_regex(r"a\\d").features == ()


def test_what_python_cannot_compile_has_no_translation():
    found = portable_regex("a{99999999999}")
    assert (found.python, found.librdkafka) == (None, None)
    assert "not translatable" in found.features[-1]


def test_what_java_releases_interpret_differently_has_no_translation():
    found = portable_regex("[^a[b]]")
    assert (found.python, found.librdkafka) == (None, None)


def test_a_plain_regex_needs_anchors_only():
    assert portable_regex("clicks.*").is_unchanged
    assert portable_regex("a|b").is_unchanged
    assert not portable_regex(r"a\d").is_unchanged


ATOMS = st.sampled_from(
    ["a", "b", "x", ".", r"\d", r"\w", r"\.", "[a-c]", "[^a]", "(?:a|b)", "(ab)", "[a-z&&[^c]]", r"\Q.\E", r"\p{Digit}"]
)
REGEXES = st.lists(st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?", "{1,2}", "*?"])), min_size=1, max_size=4).map(
    lambda parts: "".join(atom + quantifier for atom, quantifier in parts)
)


@given(REGEXES, st.lists(REGEXES, max_size=1), st.lists(st.text("abx9._-", max_size=6), min_size=1))
def test_the_translation_selects_the_same_topics(regex, more, names):
    """What is left after the translation means the same in Python's regexes as in POSIX ones."""
    found = portable_regex("|".join([regex, *more]))
    for name in [*NAMES, *filter(None, names)]:
        selected = re.fullmatch(found.python, name, re.ASCII) is not None
        assert (re.search(found.librdkafka, name, re.ASCII) is not None) == selected, (found, name)


def test_a_line_end_is_not_translated_into_letters():
    forms = portable_regex(r"a\Rb")
    assert forms.librdkafka is None
    assert "line ends" in forms.features[-1]
