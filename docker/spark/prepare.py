"""Runs once, in the build: gives Spark and Java the paths that Kubernetes and the scripts expect."""

import os
from pathlib import Path

import pyspark

from zkconsumer.sandbox.java import java_home_for_spark

_SPARK = Path("/opt/spark")
_USER = "spark:x:185:0:Spark:/opt/spark/work-dir:/bin/sh\n"


def main() -> None:
    """Make /opt/spark, /opt/java, and an account for Spark's user, without whose name Hadoop's classes do not start."""
    _SPARK.symlink_to(Path(pyspark.__file__).parent)
    for name in ("conf", "work-dir"):
        (_SPARK / name).mkdir()
    # Python files may be added, and Spark writes below its directory of work.
    (_SPARK / "work-dir").chmod(0o775)
    os.chown(_SPARK / "work-dir", 185, 0)
    os.environ["ZKCONSUMER_CACHE"] = "/opt/zkconsumer"
    Path("/opt/java").symlink_to(java_home_for_spark())
    with Path("/etc/passwd").open("a", encoding="utf-8") as accounts:
        accounts.write(_USER)


main()
