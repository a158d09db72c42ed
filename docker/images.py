"""Prepare the build contexts of the images, and build them.

::

    python docker/images.py prepare                # then: docker build docker/zookeeper, or docker compose up --build
    python docker/images.py build                  # on the public bases that the Dockerfiles name
    python docker/images.py build --local-bases    # on bases made of this machine's files, without a pull

Runs in the environment that the Makefile creates. An image is tagged ``zkconsumer/`` and the name of its directory.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import distribution, distributions
from pathlib import Path

import click
from local_base import provide_base
from packaging.requirements import Requirement

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION, JarSource
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.pysparkjars import zookeeper_jars

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent

# What the project's wheel is made of, next to the package itself.
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE", "pyspark_zkconsumer.py")


def prepare_zookeeper() -> None:
    """Put ZooKeeper's jars into its build context."""
    _copy_jars(zookeeper_jars(), HERE / "zookeeper" / "jars")


def prepare_kafka() -> None:
    """Put Kafka's jars into its build context; fetch them if no sandbox has done so before."""
    jars = JarSource.from_environment().provide(read_lock(f"kafka-{DEFAULT_KAFKA_VERSION}"), Progress())
    _copy_jars(jars, HERE / "kafka" / "jars")


def prepare_wheels(image: str, *extras: str) -> None:
    """Put two sets of wheels into an image's build context: the project's, and its dependencies' with extras."""
    wheels = HERE / image / "wheels"
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        _copy_project(source)
        # What builds it is installed here, too.
        _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", _emptied(wheels / "project"), source)
    _prepare_dependencies(_requirements(wheels / "project", extras), wheels / "dependencies")


def _copy_project(target: Path) -> None:
    """Copy the sources to a new directory first: setuptools leaves build files there, and includes existing ones."""
    target.mkdir()
    for name in _PROJECT_FILES:
        if (PROJECT / name).exists():
            shutil.copy(PROJECT / name, target)
    shutil.copytree(PROJECT / "zkconsumer", target / "zkconsumer", ignore=shutil.ignore_patterns("__pycache__"))


def _prepare_dependencies(requirements: str, wheels: Path) -> None:
    """Provide wheels of the versions installed here, so that the image runs the tested versions."""
    listed = wheels / "requirements.txt"
    if listed.exists() and listed.read_text(encoding="utf-8") == requirements:
        return
    with tempfile.TemporaryDirectory(dir=wheels.parent) as name:  # the list marks a complete directory
        fresh = Path(name) / "dependencies"
        fresh.mkdir()
        (fresh / "requirements.txt").write_text(requirements, encoding="utf-8")
        _pip("wheel", "--no-deps", "--wheel-dir", fresh, "--requirement", fresh / "requirements.txt")
        shutil.rmtree(wheels, ignore_errors=True)
        fresh.rename(wheels)


def _requirements(project: Path, extras: Sequence[str]) -> str:
    """Pin, for this interpreter, each direct and indirect dependency of the wheel in ``project``, and of its extras.

    The metadata come from the wheel that was just built, since those of an editable installation may be older.
    """
    versions: dict[str, str] = {}
    (wheel,) = project.glob("*.whl")
    to_read = [(found, frozenset(extras)) for found in distributions(path=[str(wheel)])]
    known = set()
    while to_read:
        found, chosen = to_read.pop()
        for needed in map(Requirement, found.requires or ()):
            wanted = (needed.name, frozenset(needed.extras))
            if wanted not in known and _applies(needed, chosen):
                known.add(wanted)
                installed = distribution(needed.name)
                versions[needed.name] = installed.version
                to_read.append((installed, wanted[1]))
    header = f"# For Python {sys.version_info.major}.{sys.version_info.minor}.\n"
    return header + "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def _applies(needed: Requirement, extras: frozenset[str]) -> bool:
    marker = needed.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _copy_jars(jars: Sequence[Path], target: Path) -> None:
    _emptied(target)
    for jar in jars:
        shutil.copyfile(jar, target / jar.name)


def _emptied(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _pip(command: str, *words: str | Path) -> None:
    # A wheel of unchanged sources is an identical file, so that layers on it are not built again.
    environment = {"SOURCE_DATE_EPOCH": "946684800", **os.environ}
    complete = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(complete, check=True, env=environment)


PREPARATIONS: Mapping[str, Callable[[], None]] = {
    "zookeeper": prepare_zookeeper,
    "kafka": prepare_kafka,
    "consumer": partial(prepare_wheels, "consumer", "web"),
    "spark": partial(prepare_wheels, "spark", "spark", "sandbox"),  # the latter for its Java
}
"""Every image, by the name of its directory."""

_BASE_KIND = {"zookeeper": "java", "kafka": "java", "consumer": "python", "spark": "spark"}
_DEFAULT = ("zookeeper", "kafka", "consumer")
"""The images of a group. Spark's takes minutes and 950 MB."""
_IMAGE_ARGUMENT = click.argument("images", nargs=-1, type=click.Choice(list(PREPARATIONS)))


@click.group(help=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
def main() -> None:
    """Prepare and build the project's images."""


@main.command()
@_IMAGE_ARGUMENT
def prepare(images: tuple[str, ...]) -> None:
    """Put jars and wheels beside the Dockerfiles of IMAGES; by default of all images but spark."""
    for image in images or _DEFAULT:
        click.echo(f"preparing docker/{image}", err=True)
        PREPARATIONS[image]()


@main.command()
@click.option("--local-bases", is_flag=True, help="Create the bases that are not given from this machine's files.")
@click.option("--java-base", envvar="ZKCONSUMER_JAVA_IMAGE", metavar="IMAGE", help="Base with Java 17 or later.")
@click.option("--python-base", envvar="ZKCONSUMER_PYTHON_IMAGE", metavar="IMAGE", help="Base with this Python and pip.")
@click.option(
    "--spark-base", envvar="ZKCONSUMER_SPARK_IMAGE", metavar="IMAGE", help="Base with this Python, pip and bash."
)
@_IMAGE_ARGUMENT
@click.pass_context
def build(
    context: click.Context,
    images: tuple[str, ...],
    local_bases: bool,
    java_base: str | None,
    python_base: str | None,
    spark_base: str | None,
) -> None:
    """Prepare and build IMAGES, by default all but spark.

    The bases may also be given as ZKCONSUMER_JAVA_IMAGE, ZKCONSUMER_PYTHON_IMAGE and ZKCONSUMER_SPARK_IMAGE.
    """
    images = images or _DEFAULT
    bases = {"java": java_base, "python": python_base, "spark": spark_base}
    for kind in sorted({_BASE_KIND[image] for image in images}):
        if local_bases and bases[kind] is None:
            bases[kind] = f"zkconsumer/{kind}-base:local"
            click.echo(f"making {bases[kind]}", err=True)
            provide_base(kind, bases[kind])
    for kind in ("python", "spark"):
        bases[kind] = (
            bases[kind] or f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
        )  # as for the wheels
    context.invoke(prepare, images=images)
    for image in images:
        click.echo(f"building zkconsumer/{image}", err=True)
        _docker_build(image, bases[_BASE_KIND[image]])


def _docker_build(image: str, base: str | None) -> None:
    chosen = ["--build-arg", f"BASE_IMAGE={base}"] if base else []
    command = ["docker", "build", "--quiet", "--tag", f"zkconsumer/{image}", *chosen, str(HERE / image)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        main()
    except (SandboxError, FileNotFoundError) as error:  # the latter: a program that is missing here
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:  # its output is on standard error already
        sys.exit(f"failed ({error.returncode}): {' '.join(map(str, error.cmd))}")
