"""The data plane: fetch from brokers, and queue what was fetched per consumer thread.

Importing this package loads neither the kernels nor pyarrow.
"""
