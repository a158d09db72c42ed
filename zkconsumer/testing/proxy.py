"""TcpProxy: stands between a client and a server, and cuts, closes, half-closes, delays and throttles connections.

There is no kept Python library for this: toxiproxy is a server of its own, and the asyncio ones neither hold
connections back nor close them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Self

from zkconsumer.sandbox.ports import HOST

_BUFFER: Final = 16 * 1024


@dataclass(eq=False)
class _Link:
    """Both directions of one connection."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def abort(self) -> None:
        """End both sides with a reset, as when a host is gone."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()


class TcpProxy:
    """Forwards connections to one server. A context manager that closes on exit.

    A thread of its own forwards; any thread may call the methods, which return when what they do is done.

    Args:
        target: ``host:port`` of the server.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host.removeprefix("[").removesuffix("]"), int(port))
        self._links: set[_Link] = set()
        self._refusing = False
        self._delay_s = 0.0
        self._bytes_per_s = 0.0
        self._cut_at: tuple[bytes, threading.Event] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy of {target}", daemon=True)
        self._thread.start()
        self._server, self._flowing = self._do(self._serve())

    @property
    def address(self) -> str:
        """Where clients connect, ``host:port``."""
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Hold everything back, in both directions, as a network that loses every packet; new connections hang.

        :meth:`heal` delivers what was held back, late and in order, as TCP does.
        """
        self._do(self._cut())

    def cut_at(self, part: bytes) -> threading.Event:
        """Forward the next bytes of a client that contain ``part``, and :meth:`cut` before the server answers them.

        Returns:
            An event that is set when this has happened. :meth:`heal` before that cancels the cut.
        """
        met = threading.Event()
        self._cut_at = (part, met)
        return met

    def overtake(self) -> None:
        """Hold back what the connections of now carry, while later ones pass: the server serves a later one first.

        What a client sent before it closed such a connection arrives late, at :meth:`heal`.
        """
        self._do(self._overtake())

    def refuse(self) -> None:
        """Reset all connections and every new one, as when the server's process is gone."""
        self._do(self._refuse())

    def half_close(self) -> None:
        """Close the direction to the client of all connections: it reads their end, and what it sends still arrives."""
        self._do(self._half_close())

    def delay(self, seconds: float) -> None:
        """Forward everything later by this time, in both directions."""
        self._delay_s = seconds

    def throttle(self, bytes_per_s: float) -> None:
        """Forward at most this number of bytes per second on each connection and direction; 0 is no limit."""
        self._bytes_per_s = bytes_per_s

    def heal(self) -> None:
        """End every fault."""
        self._delay_s = self._bytes_per_s = 0.0
        self._cut_at = None
        self._do(self._heal())

    def close(self) -> None:
        """End all connections, and the proxy. Idempotent."""
        if self._loop.is_closed():
            return
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, action: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result()

    # -- on the proxy's thread ----------------------------------------------------------------------------------------

    async def _serve(self) -> tuple[asyncio.Server, asyncio.Event]:
        flowing = asyncio.Event()
        flowing.set()
        return await asyncio.start_server(self._accept, HOST, 0), flowing

    async def _cut(self) -> None:
        self._flowing.clear()

    async def _overtake(self) -> None:
        for link in self._links:
            link.flowing.clear()

    async def _refuse(self) -> None:
        self._refusing = True
        for link in list(self._links):
            link.abort()

    async def _half_close(self) -> None:
        for link in self._links:
            if link.client.can_write_eof():
                link.client.write_eof()

    async def _heal(self) -> None:
        self._refusing = False
        self._flowing.set()
        for link in self._links:
            link.flowing.set()

    async def _close(self) -> None:
        self._refusing = True
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for link in list(self._links):
                link.abort()
                for task in link.tasks:
                    task.cancel()
            await asyncio.wait(tasks)
        # Last: asyncio of Python 3.11 leaks the socket of a connection if its server is closed before its task begins.
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        link.flowing.set()
        task = asyncio.current_task()
        if task is not None:
            link.tasks.append(task)
        self._links.add(link)
        try:
            if self._refusing:
                return
            await self._flowing.wait()
            server_reader, link.server = await asyncio.open_connection(*self._target)
            both = [self._forward(link, reader, link.server), self._forward(link, server_reader, writer)]
            link.tasks += [asyncio.ensure_future(direction) for direction in both]
            await asyncio.wait(link.tasks[1:])
        except OSError:
            pass  # the server is down: the client finds its connection reset
        except asyncio.CancelledError:
            pass  # by close(); asyncio of Python 3.11 logs a traceback for each connection whose task ends as cancelled
        finally:
            link.abort()
            self._links.discard(link)

    async def _forward(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # RuntimeError: what is written after half_close()
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(_BUFFER):
                pause = self._delay_s + (len(data) / self._bytes_per_s if self._bytes_per_s else 0.0)
                if pause:
                    await asyncio.sleep(pause)
                await self._until_flowing(link)
                if writer is link.server:
                    self._cut_if_met(data)
                writer.write(data)
                await writer.drain()
        await self._until_flowing(link)
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    def _cut_if_met(self, data: bytes) -> None:
        if self._cut_at is not None and self._cut_at[0] in data:
            _, met = self._cut_at
            self._cut_at = None
            self._flowing.clear()
            met.set()

    async def _until_flowing(self, link: _Link) -> None:
        await self._flowing.wait()
        await link.flowing.wait()
