"""``python -m tests.release``: rehearse a release. Nothing is published."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from tests.release.rehearsal import STEPS, Release, StepFailed, run

ROOT: Final = Path(__file__).parents[2]


@click.command()
@click.option("--tag", help="Release this tag, and keep what was built in dist/; by default HEAD, and nothing is kept.")
@click.option("--only", multiple=True, type=click.Choice(list(STEPS)), help="A step to run; by default all of them.")
def main(tag: str | None, only: tuple[str, ...]) -> None:
    """Build and check a release in a clean checkout of HEAD or of a tag.

    Exit codes: 0 if it can be published, 1 if a step failed; it is the last one.
    """
    with tempfile.TemporaryDirectory(prefix="zkconsumer-release-") as directory:
        work = Path(directory)
        release = Release(check_out(work, tag or "HEAD"), work, ROOT / "dist" if tag else work / "dist", tag)
        if tag and release.distributions:
            raise click.ClickException("dist/ has distributions; remove them first")
        release.built.mkdir(exist_ok=True)
        sys.exit(0 if all(_passes(name, release) for name in only or STEPS) else 1)


def check_out(work: Path, revision: str) -> Path:
    """A new clone of this repository at a revision."""
    source = work / "source"
    run(["git", "clone", "--quiet", "--no-checkout", ROOT, source], work)
    commit = subprocess.run(
        ["git", "rev-parse", f"{revision}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if commit.returncode:
        raise click.ClickException(f"there is no revision {revision}")
    run(["git", "checkout", "--quiet", "--detach", commit.stdout.strip()], source)
    return source


def _passes(name: str, release: Release) -> bool:
    """Run a step and print its result."""
    began = time.monotonic()
    try:
        passed, text = True, STEPS[name](release)
    except StepFailed as error:
        passed, text = False, str(error)
    click.echo(f"{'passed' if passed else 'FAILED'}  {name} ({time.monotonic() - began:.0f} s): {text}")
    return passed


if __name__ == "__main__":
    main()
