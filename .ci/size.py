# ruff: noqa: T201 - it prints
"""Print the lines of code in the package by room: without blank lines, comments and docstrings."""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source: str) -> int:
    """Number of lines that have code."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        # A text as a statement is the docstring of a module, class, function or attribute.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main(package: Path) -> None:
    """Print a line for each room, and the sum."""
    code, modules = Counter[str](), Counter[str]()
    for path in package.rglob("*.py"):
        room = "/".join(part for part in path.parent.relative_to(package).parts if part != "rules") or "(top)"
        code[room] += lines_of_code(path.read_text(encoding="utf-8"))
        modules[room] += 1
    for room, lines in code.most_common():
        print(f"{room:<20} {lines:>7,} lines {modules[room]:>4} modules")
    print(f"\nall {code.total():>22,} lines {modules.total():>5} modules")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
