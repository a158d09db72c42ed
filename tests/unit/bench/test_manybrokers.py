from zkconsumer.bench.manybrokers import simulate
from zkconsumer.bench.simbrokers import Simulation


def test_a_reader_reads_all_brokers_of_a_simulation():
    counts, reading = simulate(Simulation(brokers=5, partitions=20, busy=10), seconds=0.2)
    assert reading.records > 0
    assert counts.requests >= 5, "each broker leads partitions"
    assert counts.named >= 20
