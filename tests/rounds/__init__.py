"""Groups that move from ZooKeeper to Kafka and back under load, round after round, and what became of their records.

``python -m tests.rounds --help`` lists the runs; a table in ``docs/reliability.md`` is made of stored runs.
"""
