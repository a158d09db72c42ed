"""Refuses coroutines of functions that are called as plain ones: they would never run, and records be committed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from zkconsumer.errors import UsageError


def refuse_coroutine_functions(*functions: Callable[..., Any] | None) -> None:
    """Refuse coroutine functions.

    Raises:
        UsageError: there is one.
    """
    if any(map(iscoroutinefunction, functions)):
        raise _refused()


def refuse_awaitable(result: object) -> None:
    """Refuse a result that has to be awaited: not every function shows it before it is called.

    Raises:
        UsageError: it is one.
    """
    if result is None or not isawaitable(result):
        return
    if isinstance(result, Coroutine):
        result.close()
    raise _refused()


def _refused() -> UsageError:
    return UsageError("only AsyncConsumerConnector awaits coroutines: pass plain functions, or use it in an event loop")
