import json
import subprocess
import sys


def test_a_small_cluster_reads_what_is_planned_and_closes_idle_connections():
    sizes = {"partitions": 12, "brokers": 3, "executors": 2, "batches": 2, "idle": 1}
    options = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    command = [sys.executable, "-m", "benchmarks", "sparkscale", "--json", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(ended.stdout)["figures"]
    assert figures["tasks of a batch"] == 2
    assert figures["open connections, most"] <= 2 * (3 + 1) + 3 + 1, "each executor and the driver, and one to ask any"
    assert figures["open connections, a while after the last task"] <= 3 + 1, "the driver's"
    assert figures["driver: questions for each batch"] >= 3
    assert figures["peak memory of one task of all partitions, MiB"] > 0
