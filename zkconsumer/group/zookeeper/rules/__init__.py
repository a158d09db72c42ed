"""Decisions of a member that computes its own share."""
