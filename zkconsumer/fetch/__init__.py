"""The data plane: fetch from brokers, decode to Arrow, queue per consumer thread.

Importing this package loads neither numba nor pyarrow; :func:`zkconsumer.fetch.decode.warm` does both ahead of time.
"""
