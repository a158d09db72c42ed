"""The fixtures for users: the examples of docs/testing.md run, as a user's tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_examples_of_the_documentation_pass(tmp_path):
    examples = re.findall(r"^```python (\S+\.py)\n(.*?)^```", (ROOT / "docs/testing.md").read_text(), re.M | re.S)
    assert [name for name, _ in examples] == ["conftest.py", "test_consumer.py"]
    for name, text in examples:
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
