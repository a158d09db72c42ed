"""The coordinator of a group with ``group.protocol=coordinator``: its election, and what it commands (adr/0017)."""
