"""Decisions about what is believed of a cluster."""
