"""Keywords: methods that take the keywords of a constructor, known to type checkers without a second list of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

P = ParamSpec("P")
C = TypeVar("C")
S = TypeVar("S")
R = TypeVar("R")


class Keywords(Generic[P]):
    """A decorator for methods whose last parameter is ``**values: object``; it returns the method itself.

    Type checkers see the parameters of the constructor in place of the values.

    Args:
        constructor: takes the keywords.
    """

    def __init__(self, constructor: Callable[P, object]) -> None:
        del constructor  # its type is all that matters

    @overload
    def __call__(self, method: Callable[[C], R]) -> Callable[Concatenate[C, P], R]: ...

    @overload
    def __call__(self, method: Callable[[C, S], R]) -> Callable[Concatenate[C, S, P], R]: ...

    def __call__(self, method: Any) -> Any:
        """The method, which has no other parameters than itself and the values, or one more before them."""
        return method
