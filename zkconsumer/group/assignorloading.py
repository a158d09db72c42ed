"""Loads the assignors that ``partition.assignment.strategy`` names as ``module:object``."""

from __future__ import annotations

import importlib
from typing import Any

from zkconsumer.config.consumerproperties import STRATEGIES
from zkconsumer.config.propertydef import names_object
from zkconsumer.errors import ConfigError
from zkconsumer.group.rules.partitionassignor import PartitionAssignor

_PROPERTY = "partition.assignment.strategy"


def load_assignors(strategies: str) -> dict[str, PartitionAssignor]:
    """The assignors of the application that a value of ``partition.assignment.strategy`` names, by their reference.

    Args:
        strategies: one or more strategies, divided by commas; those of this package are ignored.

    Raises:
        ConfigError: one of them cannot be imported, or is no assignor, or two have the same name.
    """
    references = dict.fromkeys(name.strip() for name in strategies.split(",") if names_object(name.strip()))
    loaded = {reference: _load(reference) for reference in references}
    names = [assignor.name for assignor in loaded.values()]
    if len(set(names)) < len(names):
        raise ConfigError(f"{_PROPERTY} {strategies} names two assignors with the same name: {', '.join(names)}")
    return loaded


def load_assignor(strategies: str) -> PartitionAssignor | None:
    """The one assignor of the application; None if the value names an assignor of this package. See above."""
    return next(iter(load_assignors(strategies).values()), None)


def _load(reference: str) -> PartitionAssignor:
    where = f"{_PROPERTY} {reference}"
    module, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
        if isinstance(found, type):
            found = found()
        name = getattr(found, "name", None)
    except Exception as error:  # it is the application's code
        raise ConfigError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}; check that the module can be imported here"
        ) from error
    if not callable(getattr(found, "assign", None)):
        raise ConfigError(f"{where} is no assignor: it has no method assign (zkconsumer.PartitionAssignor)")
    if not isinstance(name, str) or not name or "," in name:
        raise ConfigError(f"{where} needs an attribute name, a text without commas, not {name!r}")
    if name in STRATEGIES:
        raise ConfigError(f"{where} has the name {name!r}, which is that of another assignor: give it its own name")
    assignor: PartitionAssignor = found
    return assignor
