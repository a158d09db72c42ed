"""Faults on real servers and real processes, and what a ledger proves of a group that went through them.

``python -m tests.chaos --help`` lists the runs; ``docs/reliability.md`` is made of stored trials.
"""
