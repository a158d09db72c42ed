"""Which Java is chosen, and the error if none is usable. The fake Javas are real programs that print a version."""

import subprocess
from pathlib import Path

import pytest

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.java import Java, choose_java, find_java, has_module, wrapped_home

JAVA_8 = 'openjdk version "1.8.0_452"'
JAVA_11 = 'openjdk version "11.0.27" 2025-04-15'
JAVA_21 = 'openjdk version "21.0.7" 2025-04-15 LTS'


def fake_java(home: Path, *output: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in output))
    java.chmod(0o755)
    return home


def test_too_old_java_is_explained_in_one_line(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", JAVA_11)
    with pytest.raises(SandboxError) as raised:
        choose_java({"PATH": str(old / "bin")}, None)
    message = str(raised.value)
    assert "Java 17 or later is needed" in message
    assert f"java on PATH ({old / 'bin' / 'java'}) is Java 11" in message
    assert "pip install 'zkconsumer[sandbox]'" in message
    assert "\n" not in message


def test_no_java_at_all_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="neither JAVA_HOME nor PATH has one"):
        choose_java({"PATH": str(tmp_path)}, None)


def test_java_8_is_not_taken_for_version_1(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "old", JAVA_8)
    with pytest.raises(SandboxError, match="is Java 8"):
        choose_java({"JAVA_HOME": str(home), "PATH": ""}, None)


def test_java_home_takes_precedence_over_path(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.15"')
    home = fake_java(tmp_path / "home", JAVA_21)
    chosen = choose_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}, None)
    assert chosen == Java(home / "bin" / "java", home, 21)


def test_old_java_home_gives_way_to_path_and_path_to_the_wheel(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", JAVA_11)
    new = fake_java(tmp_path / "new", JAVA_21)
    assert choose_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}, None).home == new
    assert choose_java({"JAVA_HOME": str(old), "PATH": str(old / "bin")}, new).home == new


def test_broken_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"JAVA_HOME \(/nowhere/bin/java\) cannot be run"):
        choose_java({"JAVA_HOME": "/nowhere", "PATH": str(tmp_path)}, None)


def test_home_is_the_one_that_java_reports(tmp_path: Path) -> None:
    shim = fake_java(tmp_path / "shims", "Picked up JAVA_TOOL_OPTIONS: -Dx=y", "    java.home = /opt/jdk", JAVA_21)
    assert choose_java({"PATH": str(shim / "bin")}, None).home == Path("/opt/jdk")


def test_a_java_of_this_machine_is_found() -> None:
    java = find_java()
    assert java.version >= 17
    assert (java.home / "bin" / "java").exists()


def test_modules_of_a_runtime(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="25"\nMODULES="java.base jdk.net"\n')
    assert has_module(tmp_path, "jdk.net")
    assert not has_module(tmp_path, "jdk.incubator.vector")
    assert has_module(tmp_path / "without-release-file", "jdk.incubator.vector")


def test_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    real = home / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\nprintf '[%s]' \"$@\"\n")
    real.chmod(0o755)
    wrapped = wrapped_home(Java(real, home, 25), tmp_path / "cache")
    command = [wrapped / "bin" / "java", "-Dx=a b", "--add-modules=jdk.incubator.vector", "", "*", "Main"]
    assert subprocess.check_output(command, text=True) == "[-Dx=a b][][*][Main]"
    assert wrapped_home(Java(real, home, 25), tmp_path / "cache") == wrapped
