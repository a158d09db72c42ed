"""The data plane: fetch from brokers, and queue what was fetched per consumer thread.

Importing this package loads neither numba nor pyarrow; :func:`~zkconsumer.decode.batchdecoder.warm` loads both.
"""
