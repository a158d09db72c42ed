"""The parts of the metadata that depend on where the project is published; the rest is in ``setup.cfg``.

A package index shows README.md away from the repository, where relative links lead nowhere. If the environment variable
``ZKCONSUMER_PROJECT_URL`` names the repository, they become links to the files of this version there, and the metadata
has its URLs. Otherwise a link becomes its text.
"""

import os
import re
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")


def description(readme: str, project_url: str, version: str) -> str:
    """The README as an index shows it."""
    if not project_url:
        return _LINK.sub(r"\1", readme)
    return _LINK.sub(rf"[\1]({project_url}/blob/v{version}/\2)", readme)


def urls(project_url: str, version: str) -> dict[str, str]:
    """What the metadata links to."""
    if not project_url:
        return {}
    files = f"{project_url}/blob/v{version}"
    return {
        "Source": project_url,
        "Documentation": f"{files}/docs/index.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{project_url}/issues",
    }


def _run() -> None:
    here = Path(__file__).parent
    found = re.search(r"^version = (.*)$", (here / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    version, project_url = found.group(1), os.environ.get("ZKCONSUMER_PROJECT_URL", "").rstrip("/")
    readme = (here / "README.md").read_text(encoding="utf-8")
    setup(long_description=description(readme, project_url, version), project_urls=urls(project_url, version))


if __name__ == "__main__":
    _run()
