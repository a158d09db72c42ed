"""Our interpretation of filters against java.util.regex itself, and that of brokers, RE2/J."""

import re

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from zkconsumer import ConfigError, Whitelist
from zkconsumer.java.javaregex import UnsupportedRegex, to_python, to_re2j
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.progress import Progress

LETTERS = "abAB1_.-"
NAMES = sorted(
    {*LETTERS, *(x + y for x in LETTERS for y in LETTERS), "aab", "abab", "a-b", "A.B", "aaaa", "b1b1", "__a"}
)


@pytest.fixture(scope="module")
def java(jvm):
    """What a regex matches in Java among ``names``; None if Java refuses it."""
    names = jvm.gateway.jvm.java.util.ArrayList(NAMES)

    def run(regex):
        virtual = jvm.gateway.jvm.java
        try:
            compiled = virtual.util.regex.Pattern.compile(regex)
        except Py4JJavaError:
            return None
        left = virtual.util.ArrayList(names)
        left.removeIf(compiled.asMatchPredicate())
        return set(NAMES) - set(left.toString()[1:-1].split(", "))

    return run


@pytest.fixture(scope="module", params=["4.0.1", "4.2.0"])
def broker(jvm, request):
    """What a regex matches in the RE2/J of brokers among ``names``; None if RE2/J refuses it."""
    gateway, lang = jvm.gateway, jvm.gateway.jvm.java.lang
    (jar,) = (
        path for path in JarSource().provide(read_lock(f"kafka-{request.param}"), Progress()) if "re2j" in path.name
    )
    urls = gateway.new_array(gateway.jvm.java.net.URL, 1)
    urls[0] = gateway.jvm.java.io.File(str(jar)).toURI().toURL()
    pattern = gateway.jvm.java.net.URLClassLoader(urls).loadClass("com.google.re2j.Pattern")
    predicate, text = lang.Class.forName("java.util.function.Predicate"), lang.Class.forName("java.lang.String")
    lookup, of_text = lang.invoke.MethodHandles.publicLookup(), lang.invoke.MethodType.methodType
    compiling = lookup.findStatic(pattern, "compile", of_text(pattern, text))
    matching = lookup.findVirtual(pattern, "matches", of_text(lang.Boolean.TYPE, text))
    names = gateway.jvm.java.util.ArrayList(NAMES)

    def run(regex):
        try:
            compiled = compiling.bindTo(regex).invokeWithArguments(gateway.new_array(lang.Object, 0))
        except Py4JJavaError:
            return None
        left = gateway.jvm.java.util.ArrayList(names)
        left.removeIf(lang.invoke.MethodHandleProxies.asInterfaceInstance(predicate, matching.bindTo(compiled)))
        return set(NAMES) - set(left.toString()[1:-1].split(", "))

    return run


def ours(regex):
    compiled = re.compile(to_python(regex), re.ASCII)
    return {name for name in NAMES if compiled.fullmatch(name)}


@pytest.mark.parametrize(
    "regex",
    [
        *(rf"\p{{{name}}}" for name in ("Lower", "Upper", "ASCII", "Alpha", "Digit", "Alnum", "Punct", "Graph")),
        *(rf"\P{{{name}}}" for name in ("Print", "Blank", "Cntrl", "XDigit", "Space", "IsAlphabetic", "IsLatin")),
        *(rf"\p{{{name}}}" for name in ("L", "IsLu", "Ll", "N", "Nd", "P", "Pc", "IsPd", "S", "Z", "C", "Po")),
        *(rf"\p{{{name}}}" for name in ("IsLetter", "IsDigit", "IsUppercase", "IsLowercase")),
        *(rf"\p{{java{name}}}" for name in ("LowerCase", "UpperCase", "Letter", "Digit", "LetterOrDigit")),
        *(rf"[\{letter}]|\{letter}a" for letter in "dDhHsSvVwW"),
        r"\pL\PL",
        r"(?i)[^a]",
        r"(?i)[A-B&&[^b]]+",
        r"(?i)\x41|\p{Alpha}-",
        r"(?i)a(?-i)b|(?i:B)a",
        r"(a(?i)b)a",
        r"\Qa.\E?b?|\Qa-b",
        r"[\Qa-b\E]",
        r"(a|b)_|(?<x>b1)+|()b",
        r"a*+b|(?>a*)a|a{2}+",
        r"a??b??|a+?b*?",
        r"[]a]|[^]a]b",
        r"[a-]|[-b]1|[\d-_]a|[+--]b",
        r"[ab&&b]|[a&b]_|[a-b&&[b]&&[^a]]1",
        r"a\b-\bb|\Ba|.\B.",
        r"\G\Aa\Z|^b$|(?m)^A$|(?s).\z",
        r"(?=a)..|(?!a)[ab]1|.(?<=b)a|.(?<!b)b",
        r"(?:^)*a|(?=b)+b",
        r"}|]|a}|-]",
        r"\0101|\x{62}|\u0031|\.\-|\_",
        r"(|a)b|a||b",
        r"\R|\t|\cA|\e|1",
    ],
)
def test_the_same_names_match(java, regex):
    found = java(regex)
    assert found is not None, "Java refuses it"
    assert ours(regex) == found


FILTERS = [
    *("a{2,3}", "a{2}", "a{", "{a}", "(?P<n>a)", "[a-z&&[^b]]", "[[]a", "[a-z[A-Z]]", "a++", "(?i)A", r"\Aa\Z", "a$"),
    *("(?>a)", "(a)(?(1)b|c)", "(?#c)a", "(?a)a", "(?x)a", "(?s)a", "(?i:A)", "(?<=a)b|a", "[^]a]", "[]a]", "]", "}"),
    *(r"\_", r"\-", "a|", r"[\]{]a", "(?:a)&&", r"x\.y", r"t\{1\}", "[a-b]", r"[\w&&[^\d]]", r"\d", "*a", "(?u)a"),
]


def test_every_accepted_filter_means_the_same_to_the_jvm(jvm):
    """A filter that the JVM rejects stops its members; with one that it interprets differently, members disagree."""
    names = ["a", "aa", "aaa", "b", "A", "t-a", "t_1", "x.y", "1", "_", "-", "]", "}a", "{a", "]a", "t{1}", "a&&", "[a"]
    accepted = []
    for regex in FILTERS:
        try:
            ours = Whitelist(regex)
        except ConfigError:
            continue
        theirs = jvm.gateway.jvm.kafka.consumer.Whitelist(regex)
        accepted.append(regex)
        assert [n for n in names if ours.allows(n)] == [n for n in names if theirs.isTopicAllowed(n, True)], regex
    assert 25 < len(accepted) < len(FILTERS)


CLASS_ITEMS = st.one_of(
    st.sampled_from([*LETTERS, "a-b", "A-Z", "_-b", r"\d", r"\W", r"\p{Upper}", r"\x41", r"\.", "&", "^", "-", "]"])
)
PLAIN_CLASS = st.builds(
    lambda negation, items: f"[{negation}{''.join(items)}]",
    st.sampled_from(["", "", "^"]),
    st.lists(CLASS_ITEMS, min_size=1, max_size=4),
)
CLASSES = st.recursive(
    PLAIN_CLASS,
    lambda inner: st.one_of(
        st.builds("[{}{}]".format, CLASS_ITEMS, inner),
        st.builds("[{}&&{}]".format, CLASS_ITEMS, inner),
        st.builds("[{}&&{}]".format, inner, CLASS_ITEMS),
        st.builds("[^{}{}]".format, CLASS_ITEMS, inner),
        st.builds("[{}&&{}{}]".format, inner, inner, CLASS_ITEMS),
    ),
    max_leaves=4,
)
ATOMS = st.one_of(
    st.sampled_from(
        [*LETTERS, ".", r"\d", r"\w", r"\S", r"\b", r"\B", "^", "$", r"\p{Lower}", r"\PL", r"\Q.-\E", r"\1"]
    ),
    CLASSES,
)
QUANTIFIERS = st.sampled_from(
    ["", "", "", "?", "*", "+", "{2}", "{1,2}", "??", "*?", "+?", "?+", "*+", "++", "{2}+", "**"]
)
OPENINGS = st.sampled_from(["(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:", "(?i)(", "(?<g>"])
REGEXES = st.recursive(
    st.builds("{}{}".format, ATOMS, QUANTIFIERS),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds("{}{}){}".format, OPENINGS, inner, QUANTIFIERS),
    ),
    max_leaves=8,
)


@pytest.mark.timeout(900)
@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
@given(regex=REGEXES)
def test_what_we_translate_matches_what_java_matches(java, regex):
    """What Java refuses must be refused here, too: it would stop every JVM member of the group."""
    try:
        found = ours(regex)
    except (UnsupportedRegex, re.error):
        event("refused")
        return
    event("translated")
    assert found == java(regex)


@pytest.mark.timeout(900)
@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
@given(regex=REGEXES)
def test_what_a_broker_may_select_it_selects_as_java_does(java, broker, regex):
    """Otherwise a member that selects topics by itself, such as one with a blacklist, would see another group."""
    try:
        translated = to_re2j(regex)
    except UnsupportedRegex:
        event("refused")
        return
    if translated is None:
        event("for the member only")
        return
    event("for the broker")
    assert broker(translated) == java(regex)


@pytest.mark.parametrize(
    "regex", ["a{999}|a", "x{999}y|aa", r"[^\n\r]b|\.\-|\ca", r"(?:\Z)*a|\Aa\z|(?:^)b$|\b1\B", ".*"]
)
def test_brokers_accept_what_is_translated_for_them(java, broker, regex):
    assert broker(to_re2j(regex)) == java(regex)
