"""Servers, faults and pytest fixtures to test one's own consumers with; see ``docs/testing.md``."""
