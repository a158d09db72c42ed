"""Decisions of a member of a group that brokers coordinate."""
