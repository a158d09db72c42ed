#!/bin/sh
# The Python of Spark's processes. Spark puts a zip file of pyspark's sources first in PYTHONPATH. Each process compiles
# them again, which takes a second of processor time, and Spark waits ten seconds for a query's source process to connect.
# The installed pyspark is the same, and compiled.
PYTHONPATH="${PYTHONPATH#*/pyspark.zip:}" exec "$PYSPARK_DRIVER_PYTHON" "$@"
