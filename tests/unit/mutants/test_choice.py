"""Which modules are mutated, and which tests run on them."""

import ast
from pathlib import Path

import pytest

from tests.mutants.choice import Equivalent, chosen_tests, modules_of, read_equivalent, read_tests
from tests.mutants.mutations import mutants_of

ROOT = Path(__file__).parents[3]


def test_rules_and_java_are_mutated_the_longest_module_first():
    modules = modules_of(ROOT)
    assert {"/".join(path.parts[-2:]) for path in modules} >= {"rules/znodes.py", "java/javaregex.py"}
    assert {path.parent.name for path in modules} == {"rules", "java"}
    sizes = [(ROOT / path).stat().st_size for path in modules]
    assert sizes == sorted(sizes, reverse=True)


def test_a_room_may_be_a_directory_or_a_module():
    assert {path.parts[1] for path in modules_of(ROOT, "group")} == {"group"}
    assert set(modules_of(ROOT, "group/rules")) < set(modules_of(ROOT, "group"))
    assert modules_of(ROOT, "java/javastring.py") == [Path("zkconsumer/java/javastring.py")]
    with pytest.raises(ValueError, match="no module"):
        modules_of(ROOT, "cli")


def test_a_module_has_the_tests_of_its_name_and_those_of_the_table():
    module = Path("zkconsumer/java/javastring.py")
    assert chosen_tests(ROOT, module, {}) == ["tests/unit/java/test_javastring.py"]
    assert chosen_tests(ROOT, module, {module.as_posix(): ["more"]}) == ["tests/unit/java/test_javastring.py", "more"]
    assert chosen_tests(ROOT, Path("zkconsumer/java/nothing.py"), {}) == []


def test_the_table_names_modules_and_tests_that_exist():
    table = read_tests()
    assert set(map(Path, table)) <= set(modules_of(ROOT))
    assert all((ROOT / test).is_file() for tests in table.values() for test in tests)


def test_every_module_has_tests():
    assert [module for module in modules_of(ROOT) if not chosen_tests(ROOT, module, read_tests())] == []


def test_equivalent_mutants_exist():
    listed = read_equivalent()
    modules = {Path(one.path) for one in listed}
    assert modules <= set(modules_of(ROOT))
    existing = {
        (module.as_posix(), mutant.function, mutant.original, mutant.mutated)
        for module in modules
        for mutant in mutants_of(ast.parse((ROOT / module).read_text(encoding="utf-8")))
    }
    assert [one for one in listed if (one.path, one.function, one.original, one.mutated) not in existing] == []


def test_an_equivalent_mutant_needs_a_reason(tmp_path):
    file = tmp_path / "equivalent.toml"
    entry = '[[equivalent]]\npath = "a.py"\nfunction = "b"\noriginal = "c"\nmutated = "d"\n'
    file.write_text(entry + 'reason = "because"\n')
    assert read_equivalent(file) == [Equivalent("a.py", "b", "c", "d")]
    file.write_text(entry)
    with pytest.raises(ValueError, match="why"):
        read_equivalent(file)
