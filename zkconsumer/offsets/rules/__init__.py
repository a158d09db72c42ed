"""Decisions about stored offsets: which counts, for which topic, how far it is from the end."""
