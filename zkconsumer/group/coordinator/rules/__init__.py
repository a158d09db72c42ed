"""Decisions of an elected coordinator, and its znodes."""
