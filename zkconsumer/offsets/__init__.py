"""Offset stores: where the next offset to consume of each partition is kept."""
