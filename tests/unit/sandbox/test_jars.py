"""Lock files, and the verification of jars."""

import hashlib
from pathlib import Path

import pytest

from tests.fixtures.brokers import FULLY_TESTED
from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.cache import cache_directory
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.lockfile import LockFile, known_kafka_versions, parse_lock, read_lock
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.pysparkjars import zookeeper_jars

CONTENT = {"alpha-1.0.jar": b"first jar", "beta_2.13-2.0-1.jar": b"second jar"}
QUIET = Progress(quiet=True)


def lock() -> LockFile:
    alpha, beta = (hashlib.sha256(content).hexdigest() for content in CONTENT.values())
    return parse_lock(f"# two jars\n\n{alpha} org.example:alpha:1.0\n{beta} org.example.b:beta_2.13:2.0-1\n", "pair")


def fill(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        (directory / name).write_bytes(content)
    return directory


def test_the_shipped_lock_pins_every_jar() -> None:
    assert set(FULLY_TESTED) < set(known_kafka_versions())
    for version in known_kafka_versions():
        coordinates = {jar.coordinates.split("_")[0] for jar in read_lock(f"kafka-{version}").jars}
        assert "org.apache.kafka:kafka" in coordinates
    jars = read_lock("kafka-3.9.1").jars
    assert len(jars) == 28
    assert "org.apache.kafka:kafka_2.13:3.9.1" in {jar.coordinates for jar in jars}


def test_unknown_lock_names_the_known_ones() -> None:
    with pytest.raises(SandboxError, match=r"no list of jars for kafka-9\.9\.9; .* Kafka 0\.8\.2\.2, .*3\.9\.1"):
        read_lock("kafka-9.9.9")


@pytest.mark.parametrize("line", ["abc org:a:1", "0" * 64 + " org:a", "0" * 64 + " org:a:", "0" * 64])
def test_malformed_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(SandboxError, match="lock file x, line 2"):
        parse_lock(f"# comment\n{line}\n", "x")


def test_two_jars_of_one_file_name_are_refused() -> None:
    with pytest.raises(SandboxError, match="same file name"):
        parse_lock(f"{'0' * 64} org.a:x:1\n{'1' * 64} org.b:x:1\n", "x")


def test_flat_directory_is_used_in_place(tmp_path: Path) -> None:
    fill(tmp_path)
    paths = JarSource(jars_dir=tmp_path).provide(lock(), QUIET)
    assert paths == [tmp_path / name for name in CONTENT]


def test_directory_laid_out_like_a_maven_repository(tmp_path: Path) -> None:
    for jar, content in zip(lock().jars, CONTENT.values(), strict=True):
        path = tmp_path / jar.repository_path
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    paths = JarSource(jars_dir=tmp_path).provide(lock(), QUIET)
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        "org/example/alpha/1.0/alpha-1.0.jar",
        "org/example/b/beta_2.13/2.0-1/beta_2.13-2.0-1.jar",
    ]


def test_one_flipped_bit_is_refused(tmp_path: Path) -> None:
    bad = fill(tmp_path) / "alpha-1.0.jar"
    content = bytearray(bad.read_bytes())
    content[3] ^= 1
    bad.write_bytes(content)
    with pytest.raises(SandboxError) as raised:
        JarSource(jars_dir=tmp_path).provide(lock(), QUIET)
    message = str(raised.value)
    assert message.startswith(f"refused {bad}: its SHA-256 is {hashlib.sha256(content).hexdigest()}")
    assert f"org.example:alpha:1.0 must have {lock().jars[0].sha256}" in message
    assert "--jars-dir" in message


def test_missing_jars_are_named(tmp_path: Path) -> None:
    (fill(tmp_path) / "alpha-1.0.jar").unlink()
    with pytest.raises(SandboxError, match=r"lacks alpha-1\.0\.jar; check --jars-dir and ZKCONSUMER_JARS_DIR"):
        JarSource(jars_dir=tmp_path).provide(lock(), QUIET)


def test_full_cache_is_used_and_still_verified(tmp_path: Path) -> None:
    cached = fill(tmp_path / "jars" / "pair")
    source = JarSource(cache=tmp_path, maven_url="http://127.0.0.1:1/never-asked")
    assert source.provide(lock(), QUIET) == [cached / name for name in CONTENT]
    (cached / "alpha-1.0.jar").write_bytes(b"tampered")
    with pytest.raises(SandboxError, match=r"refused .*; delete .*pair to fetch it again"):
        source.provide(lock(), QUIET)


def test_source_from_environment(tmp_path: Path) -> None:
    environ = {"ZKCONSUMER_MAVEN_URL": "http://m/", "ZKCONSUMER_JARS_DIR": "/jars", "ZKCONSUMER_CACHE": str(tmp_path)}
    assert JarSource.from_environment(environ=environ) == JarSource("http://m/", Path("/jars"), tmp_path)
    assert JarSource.from_environment("http://own/", environ=environ).jars_dir is None
    assert JarSource.from_environment(jars_dir=Path("/own"), environ=environ).jars_dir == Path("/own")


def test_cache_directory_follows_the_environment(tmp_path: Path) -> None:
    assert cache_directory({"ZKCONSUMER_CACHE": str(tmp_path / "own"), "XDG_CACHE_HOME": "/x"}) == tmp_path / "own"
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "zkconsumer"


def test_unusable_cache_directory_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxError, match="set ZKCONSUMER_CACHE to a writable directory"):
        cache_directory({"ZKCONSUMER_CACHE": str(tmp_path / "file" / "cache")})


def test_pyspark_has_a_zookeeper() -> None:
    names = [path.name for path in zookeeper_jars()]
    assert any(name.startswith("zookeeper-3.") for name in names)
    assert any(name.startswith("zookeeper-jute-") for name in names)
