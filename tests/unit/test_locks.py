"""Which locks the package takes, and how."""

import ast
from pathlib import Path

import zkconsumer

PACKAGE = Path(zkconsumer.__file__).parent


def _is_condition(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("threading.Condition", "Condition")


def test_locks_of_conditions_are_taken_themselves():
    """A condition's own ``__enter__`` is written in Python: a signal's handler may raise in it, with the lock taken."""
    entered = []
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        made = [node for node in nodes if isinstance(node, ast.Assign) and _is_condition(node.value)]
        conditions = {ast.unparse(target) for node in made for target in node.targets}
        assert all(node.value.args for node in made), f"{path}: its lock has a name of its own"
        items = [item for node in nodes if isinstance(node, ast.With) for item in node.items]
        entered += [f"{path}: {name}" for item in items if (name := ast.unparse(item.context_expr)) in conditions]
    assert entered == []
