"""A TCP proxy that is as bad as a network can be: slow, cut, corrupting, silent.

    async with FaultProxy("127.0.0.1:7171") as proxy:
        ... connect to proxy.address ...
        proxy.cut()                     # reset every connection
        proxy.black_hole = True         # take bytes and pass nothing on
        proxy.cut_after = 100_000       # reset the connection after so many more bytes from the server
        proxy.corrupt_after = 5000      # flip a bit in the byte that comes after so many more from the server

For tests without an event loop: `with FaultProxy("...").in_thread() as proxy`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class FaultProxy:
    """Passes connections on to `target` ("HOST:PORT"), with the faults that its attributes ask for."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.delay_s = 0.0
        """Added to every piece, both ways."""
        self.bytes_per_s: float | None = None
        """Of every connection, from the server."""
        self.black_hole = False
        """Nothing passes, connections stay open; new ones are taken."""
        self.refuse = False
        """New connections are reset at once."""
        self.cut_after: int | None = None
        """Bytes from the server until the connection that brings them is reset. Happens once."""
        self.corrupt_after: int | None = None
        """Bytes from the server until a bit of one is flipped. Happens once."""
        self.connections = 0
        """Taken so far."""
        self.passed = 0
        """Bytes from the server passed on so far."""
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> FaultProxy:
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._loop is not None
        # A server that is closed while it is taking a connection forgets it (CPython 3.11): first it stops taking them.
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        await self._rounds()
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._rounds()

    async def _rounds(self) -> None:
        """A connection is closed by the loop, in the round after it was told to, and one that was just being taken
        becomes known some rounds later.
        """
        for _ in range(16):
            self._abort()
            await asyncio.sleep(0)

    @contextmanager
    def in_thread(self) -> Iterator[FaultProxy]:
        """Run in a thread of its own."""
        up, stop = threading.Event(), asyncio.Event()
        loop = asyncio.new_event_loop()

        async def main() -> None:
            async with self:
                up.set()
                await stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(main(),), name="fault-proxy")
        thread.start()
        up.wait(10)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(10)
            loop.close()

    def cut(self) -> None:
        """Reset every connection; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        # From here on it is closed with the proxy, also if that happens while the other side is being dialled.
        self._open.add(writer)
        me = asyncio.current_task()
        if me is not None:
            self._tasks.add(me)
            me.add_done_callback(self._tasks.discard)
        if self.refuse:
            writer.transport.abort()
            return
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._open.add(far_writer)
        for source, sink, down in ((reader, far_writer, False), (far_reader, writer, True)):
            task = asyncio.ensure_future(self._pump(source, sink, down))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, down: bool) -> None:
        with suppress(OSError):
            while data := await source.read(16384):
                while self.black_hole:
                    await asyncio.sleep(0.01)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if down:
                    if self.bytes_per_s:
                        await asyncio.sleep(len(data) / self.bytes_per_s)
                    data = self._corrupted(data)
                    if self.cut_after is not None and len(data) > self.cut_after:
                        sink.write(data[: self.cut_after])
                        self.passed += self.cut_after
                        self.cut_after = None
                        await sink.drain()
                        sink.close()
                        return
                    if self.cut_after is not None:
                        self.cut_after -= len(data)
                    self.passed += len(data)
                sink.write(data)
                await sink.drain()
        sink.close()

    def _corrupted(self, data: bytes) -> bytes:
        if self.corrupt_after is None:
            return data
        if len(data) <= self.corrupt_after:
            self.corrupt_after -= len(data)
            return data
        changed = bytearray(data)
        changed[self.corrupt_after] ^= 0x10
        self.corrupt_after = None
        return bytes(changed)
