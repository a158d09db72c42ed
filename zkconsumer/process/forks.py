"""Forks: what a child process may do with objects that it inherited.

A child has a copy of each object of its parent, but of the threads only the one that forked. Connections, sessions and
servers are still the parent's: a request from the child would be mixed with the parent's, an answer would be taken from
the parent, and closing would end them for the parent. A lock that another thread held stays locked in the child. So a
copy is not used, which raises an error, and closing it does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Final, cast

from zkconsumer.errors import UsageError

_log = logging.getLogger(__name__)


class Owner:
    """The process in which an object was made. Takes no lock."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    def is_here(self) -> bool:
        """False in a child that has a copy of the object."""
        return os.getpid() == self._process

    def require(self, what: object) -> None:
        """Refuse to use a copy.

        Args:
            what: the object, for the message.

        Raises:
            UsageError: this process is a child of the one that made it.
        """
        if not self.is_here():
            raise UsageError(f"{what} {self._is_foreign()} cannot be used by its child {os.getpid()}; {_ADVICE}")

    def spares(self, what: object) -> bool:
        """True, with a warning, if this process has a copy, which must not be closed.

        Args:
            what: the object, for the message.
        """
        if self.is_here():
            return False
        _log.warning("%s %s is not closed by its child %d; %s", what, self._is_foreign(), os.getpid(), _ADVICE)
        return True

    def _is_foreign(self) -> str:
        return f"belongs to process {self._process} and"


_ADVICE: Final = "create it after forking"


_in_child: Final[weakref.WeakKeyDictionary[object, Callable[[Any], None]]] = weakref.WeakKeyDictionary()


def call_in_child(method: Callable[[], None]) -> None:
    """Call a method, one of each object, in each child that this process forks from now on, before other code runs.

    It is called on the copy of its object, if that still exists. It must not take a lock: if another thread held it, it
    stays locked in the child.
    """
    # Not a WeakMethod: one that outlives its object's module prints an error when the interpreter ends.
    bound = cast(MethodType, method)
    _in_child[bound.__self__] = bound.__func__


def _after_fork() -> None:
    for instance, function in list(_in_child.items()):
        with contextlib.suppress(Exception):  # the other objects have to be notified, too
            function(instance)


os.register_at_fork(after_in_child=_after_fork)
