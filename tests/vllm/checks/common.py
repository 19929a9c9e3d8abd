"""What checks share: the model, an engine in this process, a server beside it, spreads."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MODEL = os.environ.get("GRAMARY_VLLM_MODEL", "")
CATALOGUE = ROOT / "tests" / "data" / "tools.jsonl.gz"

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TOKENIZERS_PARALLELISM": "false",
}


class Failed(Exception):
    """A check did not hold."""

    def __init__(self, message: str, **figures: Any) -> None:
        super().__init__(message)
        self.figures = figures


def expect(holds: object, message: str, **figures: Any) -> None:
    """Fail the check unless it holds."""
    if not holds:
        raise Failed(message, **figures)


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Median and quartiles."""
    ordered = sorted(values)
    low, middle, high = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else ordered * 3
    return {"p25": round(low, digits), "p50": round(middle, digits), "p75": round(high, digits)}


def percentile(values: Sequence[float], q: float) -> float:
    """The value below which a share `q` lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


def catalogue_tools(count: int, skip: int = 0) -> list[dict[str, Any]]:
    """Tools of the bundled catalogue, OpenAI style."""
    tools = []
    with gzip.open(CATALOGUE, "rt", encoding="utf-8") as lines:
        for entry in list(map(json.loads, lines))[skip : skip + count]:
            tools.append({"type": "function", "function": {"name": entry["name"], "parameters": entry["parameters"]}})
    return tools


def engine_in_process(backend: str, **options: Any) -> Any:
    """`vllm.LLM` with its engine core in this process, so that its parts can be timed."""
    os.environ.update(QUIET, VLLM_ENABLE_V1_MULTIPROCESSING="0")
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # before the configuration is checked
    from vllm import LLM

    arguments = {"max_model_len": 2048, "max_num_seqs": 16, "dtype": "float32", "seed": 0} | options
    return LLM(MODEL, enforce_eager=True, structured_outputs_config={"backend": backend}, **arguments)


def manager_of(llm: Any) -> Any:
    """The engine core's `StructuredOutputManager`."""
    return llm.llm_engine.engine_core.engine_core.structured_output_manager


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """An OpenAI server of vLLM."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def post(self, path: str, body: Mapping[str, Any], timeout: float = 300) -> tuple[int, Any]:
        """Status and JSON of an answer; errors too."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            with contextlib.suppress(ValueError):
                return error.code, json.loads(text)
            return error.code, {"text": text}

    def stream(self, path: str, body: Mapping[str, Any], timeout: float = 300) -> list[dict[str, Any]]:
        """The events of a streamed answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps({**body, "stream": True}).encode(),
            {"Content-Type": "application/json"},
        )
        events = []
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            for line in answer:
                if line.startswith(b"data: ") and b"[DONE]" not in line:
                    events.append(json.loads(line[6:]))
        return events

    def is_up(self) -> bool:
        """Does it answer?"""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def log_text(self) -> str:
        """What it wrote."""
        return self.log.read_text("utf-8", "replace")


@contextlib.contextmanager
def serving(
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    wait_s: float = 1200,
    log: str = "server",
    beside: subprocess.Popen[bytes] | None = None,
) -> Iterator[Server]:
    """A server with these further arguments, until the block ends; `beside`: a process that it cannot start without."""
    port = free_port()
    path = Path(f"/tmp/gramary_vllm_{log}_{port}.log")
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL, "--port", str(port)),
        *("--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "16", "--dtype", "float32"),
        *("--served-model-name", "model", "--seed", "0"),
        *arguments,
    ]
    with path.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **QUIET, **(environ or {})}, stdout=out, stderr=out, start_new_session=True
        )
    server = Server(process, port, path)
    try:
        deadline = time.monotonic() + wait_s
        while not server.is_up():
            expect(process.poll() is None, f"the server ended: {server.log_text()[-2000:]}")
            expect(beside is None or beside.poll() is None, "the process that the server waits for ended")
            expect(time.monotonic() < deadline, f"the server does not come up: {server.log_text()[-2000:]}")
            time.sleep(0.5)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
