"""Decisions of a member, whichever protocol its group uses."""
