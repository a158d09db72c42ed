"""Runs what Spark's scheduler for Kubernetes asks a container for: ``driver ...`` or ``executor``; else a command.

The scheduler describes an executor by environment variables (Spark's ``Constants`` and ``BasicExecutorFeatureStep``).
"""

import os
import sys
from collections.abc import Mapping

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = "SPARK_JAVA_OPT_"


def driver(arguments: list[str], environment: Mapping[str, str]) -> list[str]:
    """The command of a driver: it runs in its pod, where executors reach it by the pod's address."""
    submit = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--deploy-mode", "client"]
    if address := environment.get("SPARK_DRIVER_BIND_ADDRESS"):
        submit += ["--conf", f"spark.driver.bindAddress={address}"]
        submit += ["--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"]
    return [*submit, *arguments]


def executor(environment: Mapping[str, str]) -> list[str]:
    """The command of an executor."""
    numbered = {int(name.removeprefix(_JAVA_OPTION)): name for name in environment if name.startswith(_JAVA_OPTION)}
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    places = [environment.get("SPARK_CLASSPATH", ""), f"{environment['SPARK_HOME']}/conf"]
    places += [f"{environment['SPARK_HOME']}/jars/*"]
    options = {
        "--driver-url": environment["SPARK_DRIVER_URL"],
        "--executor-id": environment["SPARK_EXECUTOR_ID"],
        "--cores": environment["SPARK_EXECUTOR_CORES"],
        "--app-id": environment["SPARK_APPLICATION_ID"],
        "--hostname": environment["SPARK_EXECUTOR_POD_IP"],
        "--resourceProfileId": environment["SPARK_RESOURCE_PROFILE_ID"],
        "--podName": environment["SPARK_EXECUTOR_POD_NAME"],
    }
    return [
        f"{environment['JAVA_HOME']}/bin/java",
        *(environment[numbered[number]] for number in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(filter(None, places)),
        _BACKEND,
        *(word for option in options.items() for word in option),
    ]


def main() -> None:
    """Become the command."""
    words = sys.argv[1:] or ["spark-submit", "--help"]
    if words[0] == "driver":
        words = driver(words[1:], os.environ)
    elif words[0] == "executor":
        words = executor(os.environ)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
