"""``docker/spark/entrypoint.py``: what Kubernetes' arguments and variables become."""

import runpy

import pytest

from tests.fixtures.documents import ROOT

ENTRYPOINT = runpy.run_path(str(ROOT / "docker/spark/entrypoint.py"))
PLACES = {"SPARK_HOME": "/opt/spark", "JAVA_HOME": "/opt/java"}
POD = {
    "SPARK_DRIVER_URL": "spark://d:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_EXECUTOR_POD_NAME": "pod-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_a_driver_is_submitted_in_its_pod():
    words = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/job.py"]
    command = ENTRYPOINT["driver"](words, {**PLACES, "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"})
    assert command[:3] == ["/opt/spark/bin/spark-submit", "--deploy-mode", "client"]
    assert "spark.driver.bindAddress=10.0.0.1" in command
    assert command[-3:] == words


def test_an_executor_has_javas_options_in_the_order_of_their_numbers():
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)}
    command = ENTRYPOINT["executor"]({**PLACES, **POD, **options})
    assert command[:6] == ["/opt/java/bin/java", "-Dn=0", "-Dn=2", "-Dn=10", "-Xms1g", "-Xmx1g"]
    assert command[command.index("--executor-id") + 1] == "3"
    assert command[command.index("--podName") + 1] == "pod-3"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, "/opt/spark/conf:/opt/spark/jars/*"),
        ({"SPARK_CLASSPATH": "/a.jar"}, "/a.jar:/opt/spark/conf:/opt/spark/jars/*"),
    ],
)
def test_the_class_path_has_spark_s_jars(given, path):
    command = ENTRYPOINT["executor"]({**PLACES, **POD, **given})
    assert command[command.index("-cp") + 1] == path
