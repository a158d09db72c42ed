"""Decisions of a query: what it owns, plans and reads, and the texts of its checkpoint."""
