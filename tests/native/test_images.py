"""The images on a base that a distribution has made: Debian 12, with its own Python 3.11, pip, shell and Java 17.

No image is pulled. The default bases, ``python:3.11-slim`` and ``eclipse-temurin:17-jre``, are a Debian and an Ubuntu,
too. What is proven of them is that the commands of the Dockerfiles need nothing of this machine's own bases.
"""

import os
import subprocess
import sys

import pytest

from tests.fixtures.containers import docker_engine  # noqa: F401
from tests.fixtures.documents import ROOT
from tests.fixtures.plaindebian import debian

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

BASE = "zkconsumer/debian-base:bookworm"
PACKAGES = "openjdk-17-jre-headless,python3,python3-pip,python3-venv"
VARIABLES = ("ZKCONSUMER_JAVA_IMAGE", "ZKCONSUMER_PYTHON_IMAGE", "ZKCONSUMER_SPARK_IMAGE")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LEFT_OUT = ("./srv", "./proc", "./sys", "./dev")


@pytest.fixture(scope="module")
def base(docker_engine):  # noqa: F811
    """The image of a Debian."""
    with debian("bookworm", PACKAGES) as made:
        excluded = [f"--exclude={name}" for name in LEFT_OUT]
        packed = ["tar", "-C", str(made.root), *excluded, "-c", "."]
        loaded = ["docker", "import", "--change", f"ENV PATH={PATH}", "-", BASE]
        with subprocess.Popen(packed, stdout=subprocess.PIPE) as tar:
            subprocess.run(loaded, stdin=tar.stdout, stdout=subprocess.DEVNULL, check=True, timeout=600)
            assert tar.wait() == 0
    yield
    subprocess.run(["docker", "image", "rm", "--force", BASE], stdout=subprocess.DEVNULL, check=False)


@pytest.mark.parametrize(
    "test",
    [
        "test_compose.py::test_a_consumer_without_zookeeper_stays_healthy_and_reports_it",
        "test_paused_zookeeper.py",
        "test_spark.py",
    ],
)
def test_what_containers_do_on_bases_of_this_machine_they_do_on_debian(base, test):
    environment = {**os.environ, **dict.fromkeys(VARIABLES, BASE)}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/containers/{test}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-4000:]}"
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
