"""The import graph of the package and of what a checkout has besides, and what importing the package loads."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import zkconsumer


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Module to the modules that it imports, anywhere: in functions and for type checkers, too."""
    graph = grimp.build_graph("zkconsumer", "benchmarks", "demo", "jvmclients", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one import circle, the first one repeated at the end; none if there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}


def test_imports_for_type_checkers_count(imports):
    assert "zkconsumer.decode.batchdecoder" in imports["zkconsumer.ranges.rangereading"]


def test_imports_inside_functions_count(imports):
    assert "zkconsumer.offsets.storechoice" in imports["zkconsumer.spark.clusterview"]


def test_there_is_no_import_circle(imports):
    assert circle(imports) == []


def test_type_checkers_and_programs_see_the_same_names():
    tree = ast.parse(Path(zkconsumer.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (node.module, name.name, name.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    lazy = {(module, name, name) for module, names in zkconsumer._LAZY.items() for name in names}
    assert typed == lazy
    at_once = [
        name.asname for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names if name.asname
    ]
    assert sorted([*at_once, *(name for _, name, _ in lazy)]) == zkconsumer.__all__, "each name once"


@pytest.mark.parametrize("name", zkconsumer.__all__)
def test_every_public_name_can_be_imported(name):
    value = getattr(zkconsumer, name)
    assert value.__name__ == name
    assert value.__module__ == zkconsumer._HOMES.get(name, value.__module__)


def test_importing_the_package_loads_errors_and_values_alone():
    script = "import sys, zkconsumer; print(sorted(name for name in sys.modules if name.startswith('zkconsumer.')))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['zkconsumer.errors', 'zkconsumer.model']"


UNUSED = {
    "difflib",
    "zkconsumer.cli.writing",
    "zkconsumer.group.coordinator.rules.coordinatorznodes",
    "zkconsumer.java.javaregex",
    "zkconsumer.operate.groups.rules.lagstatus",
    "zkconsumer.offsets.offsetcoordinator",
    "zkconsumer.wire.sasl",
    "zkconsumer.operate.groups.grouplist",
    "zkconsumer.zookeeper.fencedtransaction",
}
"""What `groups describe` needs only for some groups, options or brokers; its start is most of its time."""


def test_describing_a_group_imports_only_what_it_needs(imports):
    assert {name for name in UNUSED if name.startswith("zkconsumer.")} <= imports.keys(), "names that exist"
    script = (
        "import sys; from zkconsumer.cli.main import command; "
        "import zkconsumer.cli.groups, zkconsumer.cli.grouptables, zkconsumer.operate.groups.groupdescription; "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert UNUSED & set(loaded.split()) == set()
