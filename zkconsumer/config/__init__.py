"""The consumer's properties: one validated value, and the table that it is made from."""
