"""``group.protocol=consumer`` (KIP-848): the broker assigns."""
