"""``python -m tests.release.site DIRECTORY``: build the site; each warning is an error."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def build_site(checkout: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout, whose package it imports; warnings are on standard error."""
    with tempfile.TemporaryDirectory(prefix="zkconsumer-site-") as parsed:
        options = ("-q", "-E", "--fail-on-warning", "--keep-going", "-c", "docs/site", "-d", parsed)
        return subprocess.run(
            [sys.executable, "-m", "sphinx", *options, ".", target.absolute()],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            check=False,
        )


if __name__ == "__main__":
    done = build_site(Path(), Path(sys.argv[1]))
    print(done.stderr, end="", file=sys.stderr)
    sys.exit(done.returncode)
