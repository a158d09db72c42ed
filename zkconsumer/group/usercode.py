"""UserCodeFailed: an error that user code raised, which is not an error of the member that called it.

User code may use other consumers. What these raise has the same classes as what this member's own group and store
raise, and would end this member, or its membership, in place of the other one. So errors are distinguished by their
origin: all that user code raises is wrapped where it is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UserCodeFailed(Exception):
    """A rebalance listener or ``before_commit`` raised ``cause``; the message is that of ``cause``."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def user_code() -> Iterator[None]:
    """Around a call of user code.

    Raises:
        UserCodeFailed: it raised an exception; interrupts and exits are raised as they are.
    """
    try:
        yield
    except Exception as error:
        raise UserCodeFailed(error) from error


def origin(error: Exception) -> Exception:
    """What user code raised where ``error`` wraps that; otherwise ``error``. For messages, and for users."""
    return error.cause if isinstance(error, UserCodeFailed) else error
