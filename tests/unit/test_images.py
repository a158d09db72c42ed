"""The bases of the images by default: the same for each way to build, and with a Python that the wheel accepts."""

import configparser
import re

import pytest

from tests.fixtures.documents import ROOT

yaml = pytest.importorskip("yaml")

DOCKER = ROOT / "docker"
DEFAULTS = {
    path.parent.name: re.findall(r"^ARG BASE_IMAGE=(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    for path in DOCKER.glob("*/Dockerfile")
}


def minor_of_python(image):
    (minor,) = re.findall(r"^python:3\.(\d+)-slim$", image)
    return int(minor)


@pytest.mark.parametrize("image", ["consumer", "spark"])
def test_the_python_of_a_default_base_is_the_oldest_that_the_wheel_accepts(image):
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    (base,) = DEFAULTS[image]
    assert parser["options"]["python_requires"] == f">=3.{minor_of_python(base)}"


def test_every_stage_uses_the_base():
    for path in DOCKER.glob("*/Dockerfile"):
        stages = re.findall(r"^FROM (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(stages) == {"${BASE_IMAGE}"}, path


def test_compose_has_the_bases_of_the_dockerfiles():
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    builds = [service["build"] for service in services.values()]
    defaults = {build["context"]: re.findall(r"^\$\{\w+:-(\S+)\}$", build["args"]["BASE_IMAGE"]) for build in builds}
    assert defaults == {name: DEFAULTS[name] for name in defaults}
