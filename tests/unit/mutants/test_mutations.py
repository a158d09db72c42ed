"""Which mutants a module has, and that each is the module with one change."""

import ast

import pytest

from tests.mutants.mutations import mutants_of, shortened


def mutated(source):
    """The mutated statement of each mutant, without indentation."""
    return [mutant.mutated for mutant in mutants_of(ast.parse(source))]


@pytest.mark.parametrize(
    ("statement", "mutants"),
    [
        ("a = b < c", ["a = b <= c", "a = b >= c"]),
        ("a = b is c", ["a = b is not c"]),
        ("a = b not in c", ["a = b in c"]),
        ("a = b and c", ["a = b or c"]),
        ("a = b + c", ["a = b - c"]),
        ("a += b", ["a -= b"]),
        ("a = 0, 1, 5, 0.5", ["a = (1, 1, 5, 0.5)", "a = (0, 0, 5, 0.5)", "a = (0, 1, 6, 0.5)", "a = (0, 1, 5, 1.5)"]),
        ("a = True", ["a = False"]),
        ("a = not b", ["a = b"]),
        ("a = -b", ["a = b"]),
        ("a = b if c else d", ["a = b if not c else d"]),
        ("a = [b for b in c if b.d]", ["a = [b for b in c if not b.d]"]),
        ("a = min(b, key=c)", ["a = max(b, key=c)"]),
        ("a = any(b)", ["a = all(b)"]),
        ("a = sorted(b, key=c)", ["a = list(b)"]),
        ("a(b)", ["pass"]),
        ("raise A(1)", ["pass"]),
        ("def a(b=1): return b", ["def a(b=0):", "return None"]),
        ("def a(): return False", ["return True"]),
        ("while a: break", ["while not a:", "continue"]),
        ("if a == b: pass\nelif c: pass", ["if a != b:", "if not c:"]),
        ("match a:\n case b if c: pass", ["case b if not c:"]),
    ],
)
def test_statements_and_their_mutants(statement, mutants):
    assert mutated(statement) == mutants


@pytest.mark.parametrize(
    "statement",
    [
        "a = 'text'",
        "a = b'bytes'",
        "'''A docstring.'''",
        "a = f'{b + 1} members'",
        "a = 'text' + b + c",
        "a = 's' if b != 1 else ''",
        "a = f'{b}' if c > 1 else 'none'",
        "logger.warning('it failed %d', 1 + b)",
        "assert a > 1",
        "raise AssertionError('impossible')",
        "a: B | C",
        "A = B | C",
        "if TYPE_CHECKING: a = 1",
        "@a(b=True)\nclass A(B[1]): pass",
        "def __repr__(self): return 1 + a",
        "for a in zip(b, c, strict=True): pass",
        "def a(): return None",
        "def a(b=True): '''A protocol.'''",
    ],
)
def test_what_is_only_read_has_no_mutants(statement):
    assert mutated(statement) == []


def test_names_of_states_are_no_texts():
    assert mutated("a = 'ready' if b else 'waiting'") == ["a = 'ready' if not b else 'waiting'"]


SOURCE = """
class A:
    @property
    def b(self):
        return self.c > [d for d in self.e if d is None][0]
"""


def test_a_mutant_says_where_it_is():
    mutants = mutants_of(ast.parse(SOURCE))
    assert {(mutant.line, mutant.function) for mutant in mutants} == {(5, "A.b")}
    assert mutants[0].original == "return self.c > [d for d in self.e if d is None][0]"
    assert mutants[0].mutated == "return None"


def test_each_mutant_changes_one_place_and_can_be_compiled():
    original = ast.unparse(ast.parse(SOURCE))
    number = len(mutants_of(ast.parse(SOURCE)))
    changed = set()
    for which in range(number):
        tree = ast.parse(SOURCE)
        mutants = mutants_of(tree)
        assert ast.unparse(tree) == original, "to look for mutants changes nothing"
        mutants[which].apply()
        compile(tree, "a.py", "exec")
        changed.add(ast.unparse(tree))
    assert len(changed) == number == 5
    assert original not in changed


def test_a_long_statement_is_shown_around_the_change():
    left, right = "a" * 50, "b" * 50
    assert shortened(f"{left}<{right}", f"{left}>={right}") == (
        f"…{left[10:]}<{right[10:]}…",
        f"…{left[10:]}>={right[10:]}…",
    )
    assert shortened("a + b", "a - b") == ("a + b", "a - b")
    assert shortened("aa", "aaa") == ("aa", "aaa")
