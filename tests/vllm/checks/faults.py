"""Check 4: the cluster dies, hangs, answers noise, then corrupt values, under load: no request notices."""

from __future__ import annotations

import json
import random
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema

from tests.vllm.checks.agents import CORRUPT, agents, samples, total
from tests.vllm.checks.common import Server, expect, free_port, serving, spread

REQUESTS = 24
THREADS = 6


def schema_of(number: int) -> dict[str, Any]:
    """A schema that nobody has seen, with parts that everybody has."""
    return {
        "type": "object",
        "properties": {f"field_{number}": {"enum": [number, "x"]}, "name": {"type": "string", "maxLength": 6}},
        "required": [f"field_{number}"],
        "additionalProperties": False,
    }


class Garbage:
    """Something that answers every connection with noise."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._random = random.Random(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                with connection:
                    connection.sendall(self._random.randbytes(4096))
                    time.sleep(0.05)
            except OSError:
                return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, which keeps the port otherwise
        self._socket.close()


def _load(server: Server, first: int, during: Callable[[], None]) -> list[float]:
    """Requests with new schemas and known ones, with `during` in the midst; seconds of each."""
    seconds: list[float] = []

    def one(i: int) -> None:
        schema = schema_of(first + i if i % 3 else i % 4)
        body = {"model": "model", "prompt": "Answer: ", "max_tokens": 80, "temperature": 0.7, "seed": i}
        start = time.monotonic()
        status, answer = server.post("/v1/completions", {**body, "structured_outputs": {"json": schema}})
        seconds.append(time.monotonic() - start)
        expect(status == 200, f"HTTP {status}: {answer}")
        choice = answer["choices"][0]
        expect(choice["finish_reason"] in ("stop", "length"), f"ended with {choice['finish_reason']}")
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["text"]), schema)

    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(one, i) for i in range(REQUESTS)]
        time.sleep(0.5)
        during()
        for future in running:
            future.result()
    return seconds


def run() -> dict[str, Any]:
    metrics_port = free_port()
    phases: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, agents(Path(folder)) as (agent,):
        environ = {**agent.worker_environ, "GRAMARY_WORKER_METRICS_LISTEN": f"127.0.0.1:{metrics_port}"}
        arguments = ("--structured-outputs-config", '{"backend": "gramary"}')
        with serving(*arguments, environ=environ, log="faults") as server:
            held: list[Garbage] = []

            def corrupt() -> None:
                agent.stop()
                agent.start(CORRUPT)

            def honest() -> None:
                agent.stop()
                agent.start()

            faults: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
                ("healthy", lambda: None, lambda: None),
                ("killed", lambda: agent.stop(signal.SIGKILL), lambda: None),
                ("garbage", lambda: held.append(Garbage(agent.port)), lambda: held.pop().close()),
                ("corrupt", corrupt, honest),
                ("hanging", lambda: agent.send(signal.SIGSTOP), lambda: agent.send(signal.SIGCONT)),
                ("back", lambda: None, lambda: None),
            ]
            for number, (name, begin, end) in enumerate(faults):
                phases[name] = spread(_load(server, 1000 * (number + 1), begin))
                end()
            alive = server.is_up()
            found = samples(metrics_port)
    return {
        "ok": alive and total(found, "gramary_worker_fallbacks_total") > 0,
        "requests": REQUESTS * len(phases),
        "failed": 0,
        "seconds_by_phase": phases,
        "fallbacks": total(found, "gramary_worker_fallbacks_total"),
    }
