"""The rehearsal of a release: what is checked before something is built, and the bill of materials."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.fixtures.documents import ROOT
from tests.release.rehearsal import Release, StepFailed, audited, check_version, components, write_bill


def release(directory, changelog, tag=None):
    (directory / "setup.cfg").write_text("[metadata]\nversion = 1.2.0\n", encoding="utf-8")
    (directory / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}", encoding="utf-8")
    return Release(directory, directory, directory, tag)


def test_a_section_without_a_date_is_enough_before_the_tag(tmp_path):
    assert check_version(release(tmp_path, "## 1.2.0 (unreleased)\n\nText.\n")) == "1.2.0 (unreleased)"


def test_a_tag_needs_a_date(tmp_path):
    assert check_version(release(tmp_path, "## 1.2.0 (2026-12-01)\n\nText.\n", "v1.2.0")) == "1.2.0 (2026-12-01)"
    with pytest.raises(StepFailed, match="no date"):
        check_version(release(tmp_path, "## 1.2.0 (unreleased)\n\nText.\n", "v1.2.0"))


def test_a_tag_of_another_version(tmp_path):
    with pytest.raises(StepFailed, match=r"v1\.3\.0.*1\.2\.0"):
        check_version(release(tmp_path, "## 1.2.0 (2026-12-01)\n\nText.\n", "v1.3.0"))


@pytest.mark.parametrize(
    "changelog", ["## 1.1.0 (2026-01-01)\n\nText.\n", "## 1.2.0 (2026-12-01)\n\n## 1.1.0 (x)\n\nText.\n"]
)
def test_a_section_that_is_missing_or_empty(tmp_path, changelog):
    with pytest.raises(StepFailed, match="no section"):
        check_version(release(tmp_path, changelog))


def test_an_audit_names_what_was_found_and_what_was_not_checked():
    packages = [
        {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"], "aliases": []}]},
        {"name": "b", "version": "1", "vulns": []},
        {"name": "c", "skip_reason": "Dependency not found"},
    ]
    lines = audited(json.dumps({"dependencies": packages})).splitlines()
    assert lines[:2] == ["2 packages checked, 1 known vulnerabilities", "a 1: CVE-1, fixed in 2"]
    assert lines[2] == "NOT CHECKED, the index has no advisories for them: c"


@pytest.mark.slow
def test_a_bill_of_materials_has_names_and_versions(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    (packages,) = (tmp_path / "environment/lib").glob("python*/site-packages")
    (packages / "installed-1.2.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: installed\nVersion: 1.2\n"
    (packages / "installed-1.2.dist-info/METADATA").write_text(metadata, encoding="utf-8")
    write_bill(tmp_path / "environment/bin/python", tmp_path / "bill.json")
    assert components(tmp_path / "bill.json") == {"installed": "1.2"}


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a clone")
def test_head_is_checked_in_a_clean_clone():
    command = [sys.executable, "-m", "tests.release", "--only", "version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("passed  version")
