"""Whoever searches docs/troubleshooting.md for the text of a message of the package finds it there."""

import ast
import functools
import re

import pytest

from tests.fixtures.documents import ROOT, prose, table
from zkconsumer import errors

PAGE = ROOT / "docs/troubleshooting.md"
HOLE = "\0"
"""Where a message has a name, a number or the text of another message."""

ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
LOGGERS = {"_log", "_events", "self._logger"}
LEVELS = {"warning", "error", "exception"}

SAY_WHAT_TO_DO = {"UsageError", "ConfigError", "WriteRefused", "SandboxError"}
"""Errors whose messages say what to write instead, what to do first, or which log to read."""

EXPLAINED_BY_TYPE = {
    *("ConsumerClosed", "CoordinatorMoved", "CoordinatorUnknown", "MalformedZnode", "MembershipLost"),
    *("ProtocolError", "RebalanceAwaited", "RegistrationLost", "SessionExpired", "ShareChanged"),
}
"""Errors of which every message has the meaning of the type; most are reasons why an attempt is repeated."""

FOR_TESTS = ("sandbox/", "testing/", "zookeeper/forcedexpiry.py")
"""Modules that only tests run."""

SHORTEST = 12
"""Letters that a message must have of its own; with less it consists of the text of another one."""


def text_of(node):
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%[-\d.]*[sdfrx]", HOLE, text)
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in parts)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body):
            return text_of(body)
    return HOLE


def is_message(call):
    """True if a call makes an error that has to be on the page, or logs a warning or an error."""
    match call.func:
        case ast.Name(id=name):
            return name in ERRORS - SAY_WHAT_TO_DO - EXPLAINED_BY_TYPE
        case ast.Attribute(value=logger, attr=level):
            return level in LEVELS and ast.unparse(logger) in LOGGERS
    return False


@functools.cache
def nodes():
    """Each call and each text of the package's code, and the module that has it."""
    package = ROOT / "zkconsumer"
    modules = {path.relative_to(package).as_posix(): path for path in sorted(package.rglob("*.py"))}
    return [
        (module, node)
        for module, path in modules.items()
        if not module.startswith(FOR_TESTS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.Constant | ast.JoinedStr)
    ]


def messages():
    """Text of each message, with holes, and the module that has it."""
    for module, node in nodes():
        if isinstance(node, ast.Call) and node.args and is_message(node):
            text = text_of(node.args[0])
            if len(re.sub("[^a-z]", "", text)) >= SHORTEST:
                yield module, text


def entries():
    """What the page says to search for: the code in the first column of its tables, except that of types."""
    tables, _, _ = prose(PAGE).partition("## By type")
    return [
        entry for cell in re.findall(r"^\| (`.*?`) \|", tables, re.MULTILINE) for entry in re.findall("`(.+?)`", cell)
    ]


def finds(entry, text):
    """True if the pieces of an entry, which ``...`` separates, are in the literal text of a message, in order."""
    return re.search(".*".join(re.escape(piece.strip()) for piece in entry.split("...")), text) is not None


def test_each_message_is_found():
    searched = entries()
    missing = [f"{module}: {text}" for module, text in messages() if not any(finds(entry, text) for entry in searched)]
    assert [line.replace(HOLE, "...") for line in missing] == []


def test_each_entry_finds_a_text_of_the_package():
    texts = {text_of(node) for _, node in nodes() if isinstance(node, ast.Constant | ast.JoinedStr)}
    lines = "\n".join(text for text in texts if "\n" not in text)
    assert [entry for entry in entries() if not finds(entry, lines)] == []


def test_each_type_of_error_has_the_meaning_of_the_code():
    tree = errors.__doc__ or ""
    assert [[f"`{name}`", text] for name, text in re.findall(r"── (\w+) +(.*)", tree)] == table(PAGE, "By type")


@pytest.mark.parametrize("name", sorted(SAY_WHAT_TO_DO | EXPLAINED_BY_TYPE))
def test_exceptions_of_the_rule_are_types_of_errors(name):
    assert name in ERRORS
