"""Mutants of a module: small changes of its behaviour, each of which some test should notice.

Texts are left alone: string constants, f-strings with all that they contain, what is raised with an exception, and the
arguments of log calls. So are annotations, decorators and assertions, which only tools read.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_CONTEXT: Final = 40
"""Characters of a statement that are shown before and after what was changed."""

_OPERATORS: Final[dict[type[ast.AST], tuple[type[ast.AST], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitXor: (ast.BitAnd,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.Continue: (ast.Break,),
    ast.Break: (ast.Continue,),
}
_FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception"})
_NO_BEHAVIOUR: Final = (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
_UNREAD_FIELDS: Final = frozenset({"annotation", "returns", "decorator_list", "bases", "exc", "cause", "msg"})
"""Fields of nodes that hold annotations, decorators, or what is raised."""
_UNREAD_KEYWORDS: Final = frozenset({"strict", "repr"})
"""Of ``zip`` and ``field``: they guard against defects, and make texts."""
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(slots=True)
class _Place:
    """Where a node is in the tree: in a field of its parent, or at an index of a list in that field."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


@dataclass(slots=True)
class Mutant:
    """A changed module.

    Attributes:
        line: of the changed statement or expression.
        function: qualified name of the function or class around it, empty at the top of the module.
        original: the statement's first line, shortened around the change; without the statements inside it.
        mutated: the same after the change.
    """

    line: int
    function: str
    original: str
    mutated: str
    _place: _Place
    _replacement: ast.AST

    def apply(self) -> None:
        """Change the tree that the mutant was found in."""
        self._place.put(self._replacement)


def mutants_of(tree: ast.Module) -> list[Mutant]:
    """All mutants of a module, in the order of its source. The tree itself is left as it was."""
    return list(_mutants_below(tree, tree, ()))


def _mutants_below(node: ast.AST, statement: ast.AST, scope: tuple[str, ...]) -> Iterator[Mutant]:
    for field, value in ast.iter_fields(node):
        if field in _UNREAD_FIELDS:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _is_unread(child):
                continue
            place = _Place(node, field, index)
            unit = child if isinstance(child, ast.stmt | ast.match_case) else statement
            for replacement in _replacements(child, node, field, scope):
                yield _described(place, child, replacement, unit, scope)
            named = (child.name,) if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ()
            yield from _mutants_below(child, unit, (*scope, *named))


def _is_unread(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.FunctionDef(body=[ast.Expr(value=ast.Constant())]):
            return True  # of a protocol
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.keyword(arg=str(name)):
            return name in _UNREAD_KEYWORDS
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in _LOG_METHODS
        case ast.IfExp(body=first, orelse=second):
            texts = [isinstance(branch, ast.JoinedStr) or _is_string(branch) for branch in (first, second)]
            return all(texts) and (_is_text(first) or _is_text(second))
    return isinstance(node, _NO_BEHAVIOUR)


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_text(node: ast.AST) -> bool:
    """True if people read it, so that it is no key or name."""
    match node:
        case ast.JoinedStr():
            return True
        case ast.Constant(value=str(text)):
            return not text or " " in text
    return False


def _replacements(node: ast.AST, parent: ast.AST, field: str, scope: tuple[str, ...]) -> Iterator[ast.AST]:
    if isinstance(node, ast.operator) and _joins_texts_or_types(parent, scope):
        return
    for operator in _OPERATORS.get(type(node), ()):
        yield operator()
    if isinstance(node, ast.stmt):
        yield from _statements_for(node)
    elif isinstance(node, ast.expr):
        yield from _expressions_for(node)
        if field in ("test", "ifs", "guard") and not _mutated_within(node):
            yield ast.UnaryOp(ast.Not(), node)


def _mutated_within(condition: ast.expr) -> bool:
    """True if mutants of the condition's parts have the effect of its negation."""
    match condition:
        case ast.Compare() | ast.BoolOp() | ast.Constant() | ast.UnaryOp(op=ast.Not()):
            return True
    return False


def _joins_texts_or_types(node: ast.AST, scope: tuple[str, ...]) -> bool:
    """True for ``"a" + b``, ``"%s" % a``, and for ``A | B`` outside of functions."""
    match node:
        case ast.BinOp(left=left, op=operator, right=right):
            if isinstance(operator, ast.BitOr):
                return not scope
            operands = [left, right]
            while operands:
                operand = operands.pop()
                if _is_string(operand) or isinstance(operand, ast.JoinedStr):
                    return True
                if isinstance(operand, ast.BinOp):
                    operands += [operand.left, operand.right]
    return False


def _statements_for(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=None | ast.Constant(value=None | True | False)):
            pass
        case ast.Return():
            yield ast.Return(ast.Constant(None))
        case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
            pass  # it cannot be reached
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield ast.Pass()


def _expressions_for(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(number) | float(number)):
            yield ast.Constant(0 if number == 1 else number + 1)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Call(func=ast.Name(id="sorted"), args=[iterable, *_]):
            yield ast.Call(ast.Name("list", ast.Load()), [iterable], [])
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            yield ast.Call(ast.Name(_FUNCTIONS[name], ast.Load()), node.args, node.keywords)


def _described(
    place: _Place, node: ast.AST, replacement: ast.AST, statement: ast.AST, scope: tuple[str, ...]
) -> Mutant:
    original = _first_line(statement)
    if statement is node:
        mutated = _first_line(replacement)
    else:
        place.put(replacement)
        mutated = _first_line(statement)
        place.put(node)
    position = node if hasattr(node, "lineno") else place.parent
    line = getattr(position, "lineno", getattr(statement, "lineno", 1))
    for new in ast.walk(replacement):
        if "lineno" in new._attributes and not hasattr(new, "lineno"):
            ast.copy_location(new, position)
    return Mutant(line, ".".join(scope), *shortened(original, mutated), place, replacement)


def _first_line(node: ast.AST) -> str:
    bare = copy.copy(node)
    for block in _BLOCKS:
        if isinstance(getattr(bare, block, None), list):
            setattr(bare, block, [])
    if hasattr(bare, "decorator_list"):
        bare.decorator_list = []
    return ast.unparse(bare).strip()


def shortened(original: str, mutated: str) -> tuple[str, str]:
    """Both texts without what is equal in them and far from their difference."""
    shorter = min(len(original), len(mutated))
    start = next((i for i in range(shorter) if original[i] != mutated[i]), shorter)
    end = next((i for i in range(shorter - start) if original[-1 - i] != mutated[-1 - i]), shorter - start)
    before, after = max(0, start - _CONTEXT), max(0, end - _CONTEXT)

    def cut(text: str) -> str:
        return ("…" if before else "") + text[before : len(text) - after] + ("…" if after else "")

    return cut(original), cut(mutated)
