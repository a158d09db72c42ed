"""Decisions about groups seen from outside: status, quotas, access."""
