"""Which regexes are translated. That they then match what Java matches is shown in tests/interop/test_javaregex.py."""

import re

import pytest

from zkconsumer.java.javaregex import UnsupportedRegex, to_python, to_re2j


def matches(regex, name):
    return re.compile(to_python(regex), re.ASCII).fullmatch(name) is not None


@pytest.mark.parametrize(
    ("regex", "yes", "no"),
    [
        (r"\Qa.b\E", "a.b", "axb"),
        (r"\p{Upper}\p{Alnum}*", "Ab1", "ab1"),
        (r"\pL\p{IsNd}\P{L}", "a1-", "a1b"),
        ("[a-z&&[^bc]]", "a", "b"),
        ("[a-c[x-z]]", "y", "d"),
        ("[]-]", "-", "a"),
        ("(?i)logs-(?-i)x", "LOGS-x", "LOGS-X"),
        ("(?i:a)b", "Ab", "AB"),
        ("a(?i)b|c", "C", "A"),
        (r"(?<n>ab)+", "abab", "aba"),
        (r"a++b", "aab", "b"),
        (r"\x61\0142\u0063\x{64}", "abcd", "abce"),
        (r"a\tb|\ca|\e|\R|ok", "ok", "a"),
        (r".*[^\d]", "a1-", "a1"),
        (r"^a$|\Ab\z", "b", "c"),
        (r"[\w&&\D]+", "ab_", "ab1"),
        (r"(?=a).{2}", "ab", "ba"),
        (r"^ab$", "ab", "ba"),
        (r"(?<=^a|b)b*|ab*", "abb", "b"),
        (r"a(?<!b)b+", "abb", "bb"),
        (r"\x{10FFFF}|a", "\U0010ffff", "b"),
        (r"a\RB|a", "a\nB", "aB"),
        (r"\cA|\c!", "\x01", "A"),
        (r"\ca", "!", "a"),
        (r"\é\-", "é-", "e-"),
        (r"(?i)[a-c]x", "BX", "DX"),
        ("[a-c]", "b", "B"),
        ("[a-a]", "a", "-"),
        ("[a-[b]]", "-", "c"),
        ("[ab-]", "-", "c"),
    ],
)
def test_java_constructs(regex, yes, no):
    assert matches(regex, yes)
    assert not matches(regex, no)


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("a)", "closing parenthesis"),
        ("(a", "opening parenthesis"),
        ("[a", "ends too early"),
        ("[[]a", "ends too early"),
        ("a\\", "ends too early"),
        ("a{", "repeats"),
        ("a{2|3}", "repeats"),
        ("a**", "repeats"),
        ("*a", "repeats"),
        ("(?i)*", "repeats"),
        ("(?#c)a", "no group that Java knows"),
        ("(?P<n>a)", "no group that Java knows"),
        ("(a)(?(1)b)", "no group that Java knows"),
        ("(?a)a", "flags a"),
        ("(?x)a", "flags x"),
        (r"(a)\1", "references"),
        (r"(?<n>a)\k<n>", "references"),
        ("(?<n>a)(?<n>b)", "the name n"),
        ("(?<=(?:)*)a", "lookbehind must not contain"),
        (r"\08", "not supported"),
        (r"\y", "not supported"),
        (r"\N{DIGIT ONE}", "not supported"),
        (r"\b{g}", "not supported"),
        (r"[\b]", "not supported"),
        (r"\p{Klingon}", "Klingon"),
        (r"(?i)\p{Lu}", "Lu"),
        ("[&&a]", "nothing is before"),
        ("[a&&]", "nothing follows"),
        ("[a&&&b]", "nothing follows"),
        ("[^a[b]]", "releases differ"),
        ("[^a-d&&b]", "releases differ"),
        ("[a-z&&[b]c]", "in an unusual way"),
        ("[z-a]", "range"),
        (r"[a-\d]", "range"),
        (r"\x{110000}", "no character"),
        ("(?i)é", "case"),
    ],
)
def test_what_java_refuses_or_reads_in_more_than_one_way(regex, reason):
    with pytest.raises(UnsupportedRegex, match=reason):
        to_python(regex)


@pytest.mark.parametrize(
    ("regex", "translated"),
    [
        (r"a.*b?\.c|(?i:d)", r"a.*b?\.c|(?:[Dd])"),
        (r"\Aa\z|^b$|\bc\Z", r"(?:\A)a(?:\z)|(?:\A)b(?:\z)|(?:\b)c(?:\z)"),
        (r"(?<n>a){999}x??", r"(?:a){999}x??"),
        (r"\Q(?=a)++\E[+*]+\\\\u", r"\(\?=a\)\+\+[\*\+]+\\\\u"),
    ],
)
def test_what_re2_has_is_translated_for_it(regex, translated):
    assert to_re2j(regex) == translated


@pytest.mark.parametrize(
    "regex", ["a(?=b)", "(?!a)b", "(?<=a)b", "(?<!a)b", "(?>a)", "a*+", "a{2}+", "a{1001}", r"\R", "é"]
)
def test_what_re2_does_not_have_is_not_translated_for_it(regex):
    assert to_re2j(regex) is None
