"""How tests are chosen and run: the gate's sample, everything in parts, where their time is spent, repeats under load.

``python -m tests.suites --help`` lists the commands, which the Makefile calls.
"""
