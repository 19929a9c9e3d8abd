"""The executor on child processes that are supervised one by one.

A child is a fresh interpreter (`child.py`), connected by a socket pair. Every few milliseconds it tells what it has
answered and which task it is at, so that when it is lost nearly everything that it finished is kept, and the task to
blame is known unless it ended the child at once (then what is left is tried one by one). It watches its own clock and
memory; the parent watches the child, for the case that it cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gramary.cluster.executor.base import Failed, Result, WorkLimits
from gramary.cluster.executor.batch import KERNEL, Batch, failed
from gramary.cluster.executor.dispatch import Dispatcher, Worker, WorkerLost
from gramary.compiler.errors import GramaryError, LimitExceeded

FRAME = struct.Struct(">I")
MOST_FRAME = 1 << 30
START_S = 30.0
"""Seconds in which a child must have loaded the kernel."""
OVERDUE_S = 3.0
"""Seconds beyond the hard limit of a batch's tasks after which a child that tells nothing more is killed."""


class ProcessPool(Dispatcher):
    """Runs tasks in `workers` child processes, started when there is work."""

    def __init__(self, workers: int = 2, *, limits: WorkLimits | None = None, bench: str = KERNEL) -> None:
        async def make(slot: int) -> Worker:
            return await _Process.start(bench)

        super().__init__(make, workers, limits=limits, name="the process pool")


class _Process:
    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def start(cls, bench: str) -> _Process:
        ours, theirs = socket.socketpair()
        try:
            path = os.pathsep.join(dict.fromkeys([p for p in sys.path if p] + [os.getcwd()]))
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gramary.cluster.executor.child",
                str(theirs.fileno()),
                bench,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        self = cls(process, reader, writer)
        try:
            await asyncio.wait_for(self._receive(), START_S)
        except BaseException:
            await asyncio.shield(self.end())
            raise
        return self

    async def _send(self, *message: Any) -> None:
        data = pickle.dumps(message, protocol=5)
        try:
            self._writer.write(FRAME.pack(len(data)))
            self._writer.write(data)
            await self._writer.drain()
        except (ConnectionError, RuntimeError):
            raise WorkerLost(await self._fate()) from None

    async def _receive(self) -> tuple[Any, ...]:
        try:
            (size,) = FRAME.unpack(await self._reader.readexactly(FRAME.size))
            if size > MOST_FRAME:
                raise WorkerLost(f"a worker sent a frame of {size} bytes")
            message: tuple[Any, ...] = pickle.loads(await self._reader.readexactly(size))
            return message
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerLost(await self._fate()) from None

    async def _fate(self) -> str:
        """How the child ended, in words."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), 1.0)
        code = self._process.returncode
        if code is None:
            return "the worker closed its connection"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the worker was ended by {signal.Signals(-code).name}"
        return f"the worker exited with status {code}"

    async def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        await self._send("learn", fingerprint, vocabulary)
        (_, error) = await self._receive()
        if error is not None:
            raise error if isinstance(error, GramaryError) else WorkerLost(str(error))

    async def run(self, batch: Batch, done: Callable[[int, Result], None]) -> None:
        loop = asyncio.get_running_loop()
        running = 0 if len(batch.tasks) == 1 else None
        overdue: Failed | None = None
        most_s = max(task.limits.hard_seconds for task in batch.tasks) + OVERDUE_S

        def kill() -> None:
            nonlocal overdue
            text = f"the work did not stop and its worker was killed after {most_s:.1f} s"
            overdue = failed(LimitExceeded(text, limit="seconds", value=most_s))
            self._kill()

        timer = loop.call_later(most_s, kill)
        try:
            await self._send("run", batch)
            while True:
                what, *rest = await self._receive()
                timer.cancel()
                if what == "done":
                    answers, running = rest
                    for index, result in answers:
                        done(index, result)
                elif what == "over":
                    raise WorkerLost("the worker hit a hard limit", rest[0], rest[1])
                else:
                    return
                timer = loop.call_later(most_s, kill)
        except WorkerLost as lost:
            if lost.index is not None:
                raise
            # Of several tasks the one that runs may be one further than was told: that is no ground for an answer.
            raise WorkerLost(lost.reason, running, overdue if len(batch.tasks) == 1 else None) from None
        finally:
            timer.cancel()

    def cancel(self) -> None:
        data = pickle.dumps(("cancel",), protocol=5)
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._writer.write(FRAME.pack(len(data)) + data)

    async def end(self) -> None:
        self._writer.close()
        self._kill()
        await self._process.wait()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
