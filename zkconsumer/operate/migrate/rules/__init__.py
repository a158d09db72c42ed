"""Decisions of a migration: its plan, its guards, its ways back."""
