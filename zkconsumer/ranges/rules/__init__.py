"""Which offsets a range has: its positions, and what a log has of them."""
