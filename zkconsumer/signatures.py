"""What ``help()`` shows of a public class or function: signatures without quotes, in lines that can be read."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final, ForwardRef

_LONGEST: Final = 88
"""Length of a signature, in characters, above which each parameter has a line of its own."""

_MADE_HERE: Final = "zkconsumer makes the instances; programs have no need to."


def describe_for_help(public: Any, *, is_made_here: bool) -> None:
    """Replace the signatures of a class's methods, or of a function, as introspection sees them; calls are as before.

    Args:
        public: a class or function of this package.
        is_made_here: True for a class whose instances only this package makes: the parameters of its constructor are
            not shown.
    """
    for function in _functions(public):
        if "__signature__" in vars(function):  # of a base class that was described before
            continue
        signature = _ReadableSignature.of(function)
        if is_made_here and function.__name__ == "__init__":
            signature = _ReadableSignature(list(signature.parameters.values())[:1])
            function.__doc__ = _MADE_HERE
        function.__signature__ = signature  # type: ignore[attr-defined]


def _functions(public: Any) -> Iterator[FunctionType]:
    """The function itself; of a class its methods, also inherited ones, written or generated."""
    if isinstance(public, FunctionType):
        yield public
        return
    for kind in public.__mro__:
        if kind.__module__.startswith(f"{__package__}."):
            for member in vars(kind).values():
                function = getattr(member, "__func__", member)  # of a class method
                if isinstance(function, FunctionType) and function.__module__ != "typing":
                    yield function


class _Text(str):
    """An annotation that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _unquoted(annotation: Any) -> Any:
    """Annotations are text in modules that postpone their evaluation, and in named tuples references."""
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    return _Text(text) if isinstance(text, str) else text


class _ReadableSignature(inspect.Signature):
    """A signature whose text is broken into lines; Python 3.13 and later do that by themselves."""

    @classmethod
    def of(cls, function: FunctionType) -> _ReadableSignature:
        plain = inspect.signature(function)
        parameters = [
            parameter.replace(annotation=_unquoted(parameter.annotation)) for parameter in plain.parameters.values()
        ]
        return cls(parameters, return_annotation=_unquoted(plain.return_annotation))

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) <= _LONGEST:
            return text
        lines: list[str] = []
        kinds = [parameter.kind for parameter in self.parameters.values()]
        for kind, former, parameter in zip(kinds, [None, *kinds], self.parameters.values(), strict=False):
            if former is parameter.POSITIONAL_ONLY and kind is not former:
                lines.append("/")
            if kind is parameter.KEYWORD_ONLY and former not in (kind, parameter.VAR_POSITIONAL):
                lines.append("*")
            lines.append(str(parameter))
        returned = self.return_annotation
        arrow = "" if returned is self.empty else f" -> {inspect.formatannotation(returned)}"
        return "(\n" + "".join(f"    {line},\n" for line in lines) + f"){arrow}"
