"""The steps of a release up to the upload, each on a clean checkout of a revision."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fixtures.interpreters import find_python
from tests.release.site import build_site
from zkconsumer.decode.library import MACHINES

MINORS: Final = (11, 12, 13, 14)
_AUDIT_S: Final = 180
_SMOKE: Final = (
    "import zkconsumer; from zkconsumer.decode.kernelloader import kernels; "
    "print(zkconsumer.__version__, type(kernels()).__name__)"
)


class StepFailed(Exception):
    """A step of a release failed; the text is for the person who releases."""


@dataclass(frozen=True)
class Release:
    """What is released.

    Attributes:
        source: a clean checkout of the revision.
        work: a directory for environments and the site.
        built: where the distributions and the bill of materials are written.
        tag: the tag of the revision; None for one that is not released yet.
    """

    source: Path
    work: Path
    built: Path
    tag: str | None

    @property
    def version(self) -> str:
        """The version in setup.cfg."""
        parser = configparser.ConfigParser()
        parser.read(self.source / "setup.cfg", encoding="utf-8")
        return parser["metadata"]["version"]

    @property
    def distributions(self) -> list[Path]:
        """What is uploaded."""
        return sorted([*self.built.glob("*.whl"), *self.built.glob("*.tar.gz")])

    def environment(self, minor: int) -> Path:
        """The virtual environment of an interpreter."""
        return self.work / f"python3.{minor}"


def run(command: list[str | Path], directory: Path, **variables: str) -> str:
    """Run a program without variables that change which modules Python imports, and return what it prints.

    Raises:
        StepFailed: its exit code is not 0.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=directory, env=environment | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise StepFailed(f"{words} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_version(release: Release) -> str:
    """The changelog has a section of the version; a tag has the version's name, and the section of a tag has a date."""
    if release.tag not in (None, f"v{release.version}"):
        raise StepFailed(f"the tag is {release.tag}, and setup.cfg has version {release.version}")
    changelog = (release.source / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(release.version)} \((.*)\)$\s+(?!## )\S", changelog, re.MULTILINE)
    if found is None:
        raise StepFailed(f"CHANGELOG.md has no section '## {release.version} (date)' with a text")
    if release.tag is not None and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", found[1]):
        raise StepFailed(f"CHANGELOG.md has no date for {release.version}, but ({found[1]})")
    return f"{release.version} ({found[1]})"


def build(release: Release) -> str:
    """A source distribution, and a wheel for each platform."""
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", release.built]
    run(command, release.source)  # the wheel for this machine is built from the source distribution
    for machine in sorted({*MACHINES, "any"} - {os.uname().machine}):
        run([*command, "--wheel"], release.source, ZKCONSUMER_MACHINE=machine)
    return ", ".join(path.name for path in release.distributions)


def check_descriptions(release: Release) -> str:
    """Descriptions are such that an index shows them."""
    run([sys.executable, "-m", "twine", "check", "--strict", *release.distributions], release.work)
    return "twine has nothing to report"


def install(release: Release) -> str:
    """The wheel for this machine is installed for each interpreter, with dependencies from an index, and works.

    It is installed by name, so that the bill of materials has no path of this machine, and without the index, which may
    have this version already.
    """
    pythons = {minor: python for minor in MINORS if (python := find_python(minor))}
    name = f"zkconsumer=={release.version}"
    for minor, python in pythons.items():
        environment = release.environment(minor)
        run([python, "-m", "venv", environment], release.work)
        own = environment / "bin" / "python"
        pip: list[str | Path] = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", name]
        run([*pip, "--no-deps", "--no-index", "--find-links", release.built], release.work)
        run(pip, release.work)
        printed = run([own, "-c", _SMOKE], release.work).strip()
        if printed != f"{release.version} NativeKernels":
            raise StepFailed(f"Python 3.{minor}: the version and the decoder are {printed}")
        run([environment / "bin" / "zkconsumer", "--help"], release.work)
        # What is audited and listed next is what the package needs.
        run([own, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip"], release.work)
    missing = "".join(f"; no Python 3.{minor} was found" for minor in MINORS if minor not in pythons)
    return ", ".join(f"Python 3.{minor}" for minor in pythons) + missing


def audit(release: Release) -> str:
    """Known vulnerabilities of what was installed. They are reported, and are no failure: an operator judges them."""
    (packages,) = (release.environment(_newest(release)) / "lib").glob("python*/site-packages")
    options = ("--progress-spinner", "off", "--format", "json", "--path", str(packages))
    command = [sys.executable, "-m", "pip_audit", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_AUDIT_S)
    except subprocess.TimeoutExpired:
        return f"NOT CHECKED: pip-audit had no answer for {_AUDIT_S} s; it needs a network"
    if not done.stdout.strip():
        return f"NOT CHECKED: pip-audit failed, as it does without a network: {done.stderr.strip()[-200:]}"
    return audited(done.stdout)


def audited(report: str) -> str:
    """What a report of pip-audit has found, and which packages it could not ask about."""
    packages = [package for package in json.loads(report)["dependencies"] if package["name"] != "zkconsumer"]
    found = [
        f"{package['name']} {package['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'none'}"
        for package in packages
        for known in package.get("vulns", ())
    ]
    unchecked = [package["name"] for package in packages if "skip_reason" in package]
    counts = f"{len(packages) - len(unchecked)} packages checked, {len(found)} known vulnerabilities"
    missing = [f"NOT CHECKED, the index has no advisories for them: {', '.join(unchecked)}"] if unchecked else []
    return "\n".join([counts, *found, *missing])


def _newest(release: Release) -> int:
    return max(minor for minor in MINORS if release.environment(minor).exists())


def write_bill_of_materials(release: Release) -> str:
    """What is installed with the package, as CycloneDX."""
    environment = release.environment(_newest(release))
    bill = release.built / f"zkconsumer-{release.version}.cdx.json"
    write_bill(environment / "bin" / "python", bill)
    names = components(bill)
    if names.get("zkconsumer") != release.version:
        raise StepFailed(f"{bill.name} does not have zkconsumer {release.version}")
    return f"{bill.name}, {len(names)} components"


def write_bill(python: Path, bill: Path) -> None:
    """Write the bill of materials of an environment."""
    options: list[str | Path] = ["--output-format", "JSON", "--output-reproducible", "--output-file", bill]
    run([sys.executable, "-m", "cyclonedx_py", "environment", *options, python], bill.parent)


def components(bill: Path) -> Mapping[str, str]:
    """Names and versions."""
    listed = json.loads(bill.read_text(encoding="utf-8"))["components"]
    return {component["name"]: component["version"] for component in listed}


def check_site(release: Release) -> str:
    """The site is built without a warning."""
    done = build_site(release.source, release.work / "site")
    if done.returncode:
        raise StepFailed(done.stderr)
    return f"{len(list((release.work / 'site').rglob('*.html')))} pages"


STEPS: Final[Mapping[str, Callable[[Release], str]]] = {
    "version": check_version,
    "build": build,
    "descriptions": check_descriptions,
    "install": install,
    "audit": audit,
    "bill of materials": write_bill_of_materials,
    "site": check_site,
}
"""In this order; each returns what to report."""
