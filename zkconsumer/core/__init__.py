"""Decisions without I/O: each function gets a snapshot and returns a plan. No sockets, threads, clocks or clients."""
