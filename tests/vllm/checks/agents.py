"""Node agents for checks: started as processes, their metrics read."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.vllm.checks.common import expect, free_port

PROGRAM = "from gramary.cluster.cli import app; app()"
CORRUPT = """
from dataclasses import replace
from gramary.cluster.agent.node import AgentNode

def spoilt(original):
    def answer(*arguments, **more):
        return [
            record and replace(record, payload=bytes([record.payload[0] ^ 255]) + bytes(record.payload[1:]))
            for record in original(*arguments, **more)
        ]
    return answer

for name in ("read", "lookup", "shard_page"):
    setattr(AgentNode, name, spoilt(getattr(AgentNode, name)))
from gramary.cluster.cli import app; app()
"""
"""An agent whose every answer has a byte flipped."""

_KEY = "5a" * 32
_TOKEN = "nodes-of-a-check-know-each-other"
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{([^}]*)\})? ([0-9.e+-]+)$", re.MULTILINE)


def samples(port: int) -> dict[tuple[str, str], float]:
    """Prometheus samples at a port of this host: (name, labels as written) -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {(name, labels): float(value) for name, labels, value in _SAMPLE.findall(text)}


def total(found: dict[tuple[str, str], float], name: str, *labels: str) -> float:
    """Sum of the samples of `name` whose labels hold all of `labels`, such as 'where="cluster"'."""
    return sum(value for (one, held), value in found.items() if one == name and all(part in held for part in labels))


@dataclass
class Agent:
    """One node's agent."""

    folder: Path
    port: int
    metrics_port: int
    peers: list[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def worker_environ(self) -> dict[str, str]:
        """What an engine on this node is told."""
        return {
            "GRAMARY_CLIENT_ADDRESS": self.address,
            "GRAMARY_STORE_PATH": str(self.folder / "store"),
            "GRAMARY_AUTH_TOKENS": _TOKEN,
        }

    def start(self, program: str = PROGRAM) -> None:
        """Start it and wait until it is ready. `program`: Python to run instead of the command."""
        environ = {
            "GRAMARY_NODE_NAME": self.folder.name,
            "GRAMARY_NODE_LISTEN": self.address,
            "GRAMARY_STORE_PATH": str(self.folder / "store"),
            "GRAMARY_METRICS_LISTEN": f"127.0.0.1:{self.metrics_port}",
            "GRAMARY_EXECUTOR_KIND": "process",
            "GRAMARY_EXECUTOR_WORKERS": "1",
            "GRAMARY_LOG_FORMAT": "json",
            "GRAMARY_TRUST_MAC_KEYS": _KEY,
            "GRAMARY_AUTH_TOKENS": _TOKEN,
        }
        if self.peers:
            environ["GRAMARY_PEERS_NODES"] = ",".join(self.peers)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, "agent"],
                env={**os.environ, **environ},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + 90
        while not self._ready():
            expect(self.process.poll() is None, f"the agent ended: {self.log()}")
            expect(time.monotonic() < deadline, f"the agent does not become ready: {self.log()}")
            time.sleep(0.2)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")[-3000:]

    def send(self, number: int) -> None:
        """To the agent and everything that it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it and wait for that."""
        if self.process is None:
            return
        self.send(signal.SIGCONT)
        self.send(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait(10)
        self.process = None


@contextlib.contextmanager
def agents(folder: Path, count: int = 1) -> Iterator[list[Agent]]:
    """`count` nodes that know each other."""
    ports = [free_port() for _ in range(count)]
    nodes = [f"127.0.0.1:{port}" for port in ports] if count > 1 else []
    made = [Agent(folder / f"node{i}", port, free_port(), nodes) for i, port in enumerate(ports)]
    try:
        for agent in made:
            agent.start()
        yield made
    finally:
        for agent in made:
            agent.stop()
