import asyncio
import inspect

import pytest

from zkconsumer.connector.rules.plainresult import refuse_awaitable, refuse_coroutine_functions
from zkconsumer.errors import UsageError


async def later():
    """A coroutine function."""


def test_a_coroutine_is_refused_and_closed():
    coroutine = later()
    with pytest.raises(UsageError, match="AsyncConsumerConnector"):
        refuse_awaitable(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_what_else_has_to_be_awaited_is_refused():
    loop = asyncio.new_event_loop()
    with pytest.raises(UsageError):
        refuse_awaitable(loop.create_future())
    loop.close()


@pytest.mark.parametrize("result", [None, 0, "text", object(), [later]])
def test_other_results_are_ignored(result):
    refuse_awaitable(result)


def test_coroutine_functions_are_refused():
    refuse_coroutine_functions(print, None)
    with pytest.raises(UsageError):
        refuse_coroutine_functions(None, later)
