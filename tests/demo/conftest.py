"""Fixtures of these tests alone."""

from tests.fixtures.plaindebian import plain_debian  # noqa: F401
