"""Decisions of the connector: values in, values out."""
