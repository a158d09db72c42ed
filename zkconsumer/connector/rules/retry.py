"""Retry: how often a handler gets a record for which it raised, and after which pauses."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after which pauses, :func:`~zkconsumer.run` calls a handler again for a record.

    Attributes:
        attempts: calls for one record, the first one included; at least 1.
        backoff_s: pause after the first failure, in seconds.
        factor: by which each further pause is longer; at least 1.
        limit_s: longest pause, in seconds.
        unless: types of exceptions that another attempt does not cure: the first one counts as the last attempt.

    Raises:
        UsageError: a value is out of its range.
    """

    attempts: int = 3
    backoff_s: float = 0.5
    factor: float = 2.0
    limit_s: float = 30.0
    unless: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.unless, tuple) or not all(
            isinstance(one, type) and issubclass(one, Exception) for one in self.unless
        ):
            raise UsageError(f"unless must be a tuple of types of exceptions, not {self.unless!r}")
        if self.attempts < 1 or self.backoff_s < 0 or self.factor < 1 or self.limit_s < 0:
            raise UsageError(f"{self}: attempts and factor must be at least 1, backoff_s and limit_s at least 0")

    def pause_s(self, failures: int, error: Exception) -> float | None:
        """Seconds from a failure to the next attempt; None if there is none.

        Args:
            failures: of this record so far, at least 1.
            error: what the handler has raised.
        """
        if failures >= self.attempts or isinstance(error, self.unless):
            return None
        pause = self.backoff_s
        for _ in range(failures - 1):  # not a power, which overflows
            if pause >= self.limit_s:
                break
            pause *= self.factor
        return min(pause, self.limit_s)
