"""Workers with a real agent beside them: shared work, and faults that no request notices.

The engine is the simulated one; tests/vllm/checks/faults.py does the same with vLLM.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gramary.compiler import Compiler, Tokenizer
from gramary.runtime.serving import Kind, LocalSource, RequestGrammar, ServingBackend, WorkerOptions
from gramary.runtime.serving.factory import open_source
from gramary.runtime.serving.metrics import WorkerCounts
from tests.vllm.checks.agents import CORRUPT, Agent, agents, samples, total
from tests.vllm.checks.faults import Garbage

pytest.importorskip("lmdb", reason="lmdb is not installed")
pytest.importorskip("grpc", reason="grpcio is not installed")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agents(tmp_path_factory.mktemp("cluster")) as (one,):
        yield one


def started(agent: Agent, monkeypatch: pytest.MonkeyPatch, **environ: str) -> ServingBackend:
    """A worker as vLLM's backend makes it."""
    for name, value in {**agent.worker_environ, **environ}.items():
        monkeypatch.setenv(name, value)
    options = WorkerOptions.load()
    counts = WorkerCounts()
    source = open_source(Compiler(Tokenizer.from_bytes()), options, counts)
    assert not isinstance(source, LocalSource)
    backend = ServingBackend(source, options, counts=counts)
    backend.warm().result(60)
    return backend


def schema_of(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"const": name}, "other": {"type": "array", "items": {"type": "number"}}},
        "required": [name],
        "additionalProperties": False,
    }


def ask(backend: ServingBackend, name: str) -> None:
    """A request from its start to its end."""
    grammar = backend.begin(Kind.JSON_SCHEMA, json.dumps(schema_of(name)), make=RequestGrammar)
    text = json.dumps({name: name, "other": [1, 2.5]}).encode()
    assert grammar.validate_tokens([*text, 256]) == [*text, 256]
    assert grammar.validate_tokens(list(b'{"x')) == list(b'{"')
    assert grammar.accept_tokens(name, [*text, 256])
    assert grammar.is_terminated()


def tiers(backend: ServingBackend) -> dict[str, int]:
    return {tier: one["count"] for tier, one in backend.counts.snapshot()["compiles"].items()}


def test_what_one_worker_compiled_another_takes(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster compiles each unit once, whatever the number of requests, workers and restarts."""
    monkeypatch.setenv("GRAMARY_CLIENT_WAIT_S", "120")  # however busy this machine is
    names = [f"shared_{i}" for i in range(8)]
    counted = []
    for _ in range(3):  # each a process's worth of memory
        backend = started(agent, monkeypatch)
        for name in names * 2:
            ask(backend, name)
        assert tiers(backend).get("local", 0) == 0
        assert backend.counts.value("fallbacks", "unreachable") == 0
        backend.close()
        found = samples(agent.metrics_port)
        counted.append(total(found, "gramary_units_compiled_total", 'where="cluster"'))
    assert counted[0] == counted[1] == counted[2] > 0


@pytest.mark.parametrize("fault", ["killed", "noise", "hanging", "corrupt"])
def test_no_request_notices_a_fault(agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str) -> None:
    monkeypatch.setenv("GRAMARY_CLIENT_WAIT_S", "0.3")
    # What is corrupt is the agent's answers, not its store: a worker that maps the store has no need of them once a
    # compile is committed, so this one is on a host without it.
    elsewhere = {"GRAMARY_STORE_PATH": str(tmp_path / "none")} if fault == "corrupt" else {}
    worker = started(agent, monkeypatch, **elsewhere)
    ask(worker, f"{fault}_before")
    reasons = ("unreachable", "deadline", "corrupt", "error")

    def fallbacks() -> int:
        return sum(worker.counts.value("fallbacks", reason) for reason in reasons)

    before = fallbacks(), tiers(worker).get("local", 0)  # on a busy machine the agent may be late
    noise = None
    if fault == "hanging":
        agent.send(signal.SIGSTOP)
    else:
        agent.stop(signal.SIGKILL)
    if fault == "noise":
        noise = Garbage(agent.port)
    elif fault == "corrupt":
        agent.start(CORRUPT)
    slowest = 0.0
    for i in range(6):
        start = time.monotonic()
        ask(worker, f"{fault}_{i}")
        ask(worker, f"{fault}_before")
        slowest = max(slowest, time.monotonic() - start)
    assert slowest < worker.options.compile_s
    assert (fallbacks(), tiers(worker)["local"]) == (before[0] + 6, before[1] + 6)
    if noise is not None:
        noise.close()
    if fault == "hanging":
        agent.send(signal.SIGCONT)
    else:
        agent.stop()
        agent.start()
    ask(worker, f"{fault}_after")
    worker.close()


def test_a_worker_starts_without_its_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Agent(tmp_path / "nobody", 1, 2, [])
    backend = started(nobody, monkeypatch)
    ask(backend, "alone")
    counts = backend.counts.snapshot()["counts"]
    assert counts["fallbacks.unreachable"] == 1
    assert counts["entries_built.ahead"] > 0
    assert counts["entries_built.first_use"] >= 0
    backend.close()
