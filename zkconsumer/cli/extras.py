"""Packages of extras, which a command that needs them asks for before it does anything else."""

from __future__ import annotations

import importlib.util

import click


def require_extra(extra: str, *packages: str) -> None:
    """Refuse to run without packages.

    Raises:
        click.UsageError: some are missing; the message has the line that installs them.
    """
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise click.UsageError(f"{', '.join(missing)} missing; install with: pip install 'zkconsumer[{extra}]'")
