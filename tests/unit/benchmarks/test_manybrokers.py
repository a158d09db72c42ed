from benchmarks.manybrokers import simulate
from benchmarks.simbrokers import Simulation


def test_a_reader_reads_all_brokers_of_a_simulation():
    for seconds in (0.2, 2.0, 20.0):  # on a slow machine a short reading ends before the last broker is asked
        counts, reading = simulate(Simulation(brokers=5, partitions=20, busy=10), seconds=seconds)
        if reading.records > 0 and counts.requests >= 5 and counts.named >= 20:
            break
    assert reading.records > 0
    assert counts.requests >= 5, "each broker leads partitions"
    assert counts.named >= 20
