"""A worker process of `ProcessPool`: `python -m gramary.cluster.executor.child FD BENCH`.

The main thread speaks with the parent and watches; a second one works. It ends when its parent does.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import socket
import sys
import threading
from typing import Any

from gramary.cluster import collecting
from gramary.cluster.executor.batch import TICK_S, Watched, open_bench
from gramary.cluster.executor.processes import FRAME

OVER = 3
"""Exit status after a hard limit."""


class _Wire:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def send(self, *message: Any) -> None:
        data = pickle.dumps(message, protocol=5)
        with self._lock:
            self._sock.sendall(FRAME.pack(len(data)) + data)

    def receive(self) -> tuple[Any, ...]:
        (size,) = FRAME.unpack(self._exactly(FRAME.size))
        message: tuple[Any, ...] = pickle.loads(self._exactly(size))
        return message

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        got = 0
        while got < size:
            n = self._sock.recv_into(view[got:])
            if n == 0:
                os._exit(0)  # the parent is gone, and with it everybody who could want the work
            got += n
        return data


def main(fd: int, bench_name: str) -> None:
    """Serve the parent at the other end of `fd` until it goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sock = socket.socket(fileno=fd)
    wire = _Wire(sock)
    bench = open_bench(bench_name)
    idle = threading.Event()
    idle.set()

    def finished() -> None:
        idle.set()
        wire.send("finished")

    watched = Watched(bench, done=lambda answers, running: wire.send("done", answers, running), finished=finished)
    collecting.settle()
    wire.send("ready")
    while True:
        if not select.select([sock], [], [], None if idle.is_set() else TICK_S)[0]:
            over = watched.over()
            watched.tell()
            if over is not None:
                wire.send("over", *over)
                os._exit(OVER)
            continue
        what, *rest = wire.receive()
        if what == "run":
            idle.clear()
            watched.start(rest[0])
        elif what == "cancel":
            watched.cancel()
        elif what == "learn":
            try:
                bench.learn(*rest)
                wire.send("learnt", None)
            except BaseException as error:
                wire.send("learnt", error)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
