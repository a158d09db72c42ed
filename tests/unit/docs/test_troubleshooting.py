"""Whoever searches docs/troubleshooting.md for the text of a message of the package finds it there."""

import ast
import functools
import re

from tests.fixtures.documents import ROOT, prose, table
from zkconsumer import errors

PAGE = ROOT / "docs/troubleshooting.md"
HOLE = "\0"
"""Where a message has a name, a number or the text of another message."""

ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
LOGGERS = {"_log", "_events", "self._logger"}
LEVELS = {"warning", "error", "exception"}
OF_COMMANDS = {"BadParameter", "ClickException", "UsageError"}
"""Errors of click about options of a command."""
OF_VALUES = {"ValueError", "UnsupportedRegex"}
"""What parsers raise; their text follows the name of the property, option or file."""

REASONS = {"faults", "problems", "reasons", "refusals", "refused", "violations", "wrong"}
"""Names of lists whose texts become the message of an error, or parts of it."""

FOR_TESTS = ("zookeeper/forcedexpiry.py",)
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


def message_nodes(call):
    """What has the text of a message: an error's, a reason's of an error, or that of a warning or error in the log."""
    match call.func:
        case ast.Name(id="MalformedZnode"):
            return call.args[1:2]
        case ast.Name(id=name) if name in ERRORS or name in OF_VALUES:
            return texts_in(call.args[0])
        case ast.Attribute(value=ast.Name(id="click"), attr=name) if name in OF_COMMANDS:
            return texts_in(call.args[0])
        case ast.Attribute(value=logger, attr=level) if level in LEVELS and ast.unparse(logger) in LOGGERS:
            return call.args[:1]
        case ast.Attribute(value=reasons, attr="append") if ast.unparse(reasons).split(".")[-1] in REASONS:
            return call.args[:1]
    return []


def texts_in(node):
    """The elements of a list that is written out, and both sides of a choice, which are messages of their own."""
    match node:
        case ast.List(elts=items):
            return items
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
    return [node]


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
        if isinstance(node, ast.Call) and node.args:
            for text in map(text_of, message_nodes(node)):
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
    return compiled(entry).search(text) is not None


@functools.cache
def compiled(entry):
    return re.compile(".*".join(re.escape(piece.strip()) for piece in entry.split("...")))


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
