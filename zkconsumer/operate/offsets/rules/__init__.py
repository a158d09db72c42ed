"""Decisions about offsets before they are written."""
