"""Packages of extras, which a command that needs them asks for before it does anything else."""

from __future__ import annotations

import importlib.util

import click


def require_extra(extra: str, *packages: str, of_checkout: bool = False) -> None:
    """Refuse to run without packages.

    Args:
        extra: with which they are installed.
        packages: names of their modules.
        of_checkout: True for a command that a checkout has and the installed package has not.

    Raises:
        click.UsageError: some are missing; the message has the line that installs them.
    """
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        requirement = f"-e '.[{extra}]'" if of_checkout else f"'zkconsumer[{extra}]'"
        raise click.UsageError(f"{', '.join(missing)} missing; install with: pip install {requirement}")
