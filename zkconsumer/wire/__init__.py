"""Kafka's wire protocol: the only package that knows the library ``kafka`` (kafka-python).

Its imports of that library are inside functions: loading it takes 0.2 s, and a pure fetch path never needs it.
"""
