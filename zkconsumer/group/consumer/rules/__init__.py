"""Decisions of a member to which the broker assigns."""
