"""``make fuzz``: :mod:`tests.fuzz.fuzz` with a library that sanitizers watch; without them where clang is missing."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fixtures import sanitized

OPTIONS = "detect_leaks=0:quarantine_size_mb=8:allocator_may_return_null=1"


def main() -> int:
    """Fuzz in this directory, with the code of a copy; returns the fuzzer's exit code."""
    command = [sys.executable, "-m", "tests.fuzz.fuzz", *sys.argv[1:]]
    if shutil.which(sanitized.PROGRAM) is None:
        print(f"fuzzing without sanitizers: {sanitized.PROGRAM} is missing; apt install {sanitized.PACKAGES}")
        return subprocess.run(command, check=False).returncode
    found = importlib.util.find_spec("atheris")
    assert found is not None
    assert found.origin is not None
    runtime = Path(found.origin).parents[1] / "asan_with_fuzzer.so"  # the sanitizers' runtime, with the fuzzer's hooks
    with tempfile.TemporaryDirectory(prefix="zkconsumer-fuzz-") as copy:
        sanitized.copy_code(Path(copy))
        environment = sanitized.build(Path(copy))
        environment |= {"LD_PRELOAD": f"{runtime} libstdc++.so.6", "ASAN_OPTIONS": OPTIONS}
        return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
