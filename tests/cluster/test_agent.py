"""Node agents and their commands: tokenizers on demand, serving and draining, clusters of one machine, warming up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gramary.cluster.kernel import Source, Vocabulary
from gramary.cluster.peer import PeerError, SourceItem
from gramary.cluster.records import Key, Kind
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.node import Finished, Progress
from tests.cluster.cluster_tools import TOKENIZER, accepts, agents, client_of, example, free_ports, schema

VOCABULARY = TOKENIZER.vocabulary


def item(value: Any) -> SourceItem:
    source = Source("json_schema", value)
    return SourceItem(source.key, source.kind, source.options, source.text)


# Tokenizers


def test_a_tokenizer_comes_from_another_node(tmp_path: Path) -> None:
    with agents(tmp_path, 3, peers={"replicas": 1}) as nodes:
        vocabulary = Vocabulary.from_tokens([bytes([n]) for n in range(256)] + [b"one more", None], special=[257])
        fingerprint = vocabulary.fingerprint

        async def check() -> None:
            async with GrpcPeer(nodes.addresses[0]) as first, GrpcPeer(nodes.addresses[2]) as third:
                [unknown] = await asyncio.gather(
                    third.compile_sources([item(schema("token"))], tokenizers=[fingerprint], deadline_s=20),
                    return_exceptions=True,
                )
                assert isinstance(unknown, PeerError)
                assert "no node knows the tokenizer" in str(unknown)
                assert await first.register_tokenizer(fingerprint, vocabulary.to_bytes())
                assert not await first.register_tokenizer(fingerprint, vocabulary.to_bytes())
                [outcome] = await third.compile_sources(
                    [item(schema("token"))], tokenizers=[fingerprint], deadline_s=20
                )
                assert outcome.manifest is not None
                assert await third.find_missing([Key(Kind.TOKENIZER, fingerprint)]) == []

        asyncio.run(check())


def test_a_tokenizer_is_what_its_fingerprint_says(tmp_path: Path) -> None:
    with agents(tmp_path, 1) as nodes:

        async def check() -> None:
            async with GrpcPeer(nodes.addresses[0]) as peer:
                for data in (b"noise", VOCABULARY.to_bytes()[:-1], Vocabulary.from_tokens([b"a", b"b"]).to_bytes()):
                    with pytest.raises(PeerError):
                        await peer.register_tokenizer(VOCABULARY.fingerprint, data)
                assert await peer.find_missing([Key(Kind.TOKENIZER, VOCABULARY.fingerprint)])
                clients = [peer.register_tokenizer(VOCABULARY.fingerprint, VOCABULARY.to_bytes()) for _ in range(5)]
                await asyncio.gather(*clients)

        asyncio.run(check())


def test_compiling_with_progress(tmp_path: Path) -> None:
    # One node: these have no credentials, and without any, nodes give each other no leases.
    with agents(tmp_path, 1) as nodes:
        items = [item(schema("progress", n)) for n in range(100)] + [item({"type": "nonsense"})]

        async def check() -> None:
            async with GrpcPeer(nodes.addresses[0]) as peer:
                events = [event async for event in peer.compile_events(items, tokenizers=[], deadline_s=60)]
            finished = {event.index: event.outcome for event in events if isinstance(event, Finished)}
            assert sorted(finished) == list(range(101))
            assert all(finished[index].manifest for index in range(100))
            assert finished[100].error["type"] == "InvalidSchema"
            done = [event.done for event in events if isinstance(event, Progress)]
            assert done == sorted(done)

        asyncio.run(check())
        compiled = sum(agent.coordinator.stats.units_compiled for agent in nodes.agents)
        stored = {key.digest for agent in nodes.agents for key in agent.store.live.keys(Kind.UNIT)}
        assert compiled == len(stored)
        slowest = nodes.agents[0].node.stats().slowest
        assert [unit.cost_ns for unit in slowest] == sorted((unit.cost_ns for unit in slowest), reverse=True)
        assert 0 < len(slowest) <= 20
        assert all(unit.digest in stored and unit.name for unit in slowest)


def test_entries_follow_behind_answers(tmp_path: Path) -> None:
    with agents(tmp_path, 1) as nodes:
        [agent] = nodes.agents
        items = [item(schema("behind", n)) for n in range(30)]
        fingerprint = VOCABULARY.fingerprint

        async def check() -> None:
            async with GrpcPeer(nodes.addresses[0]) as peer:
                await peer.register_tokenizer(fingerprint, VOCABULARY.to_bytes())
                assert all(
                    o.manifest for o in await peer.compile_sources(items, tokenizers=[fingerprint], deadline_s=60)
                )
                assert not list(agent.store.live.keys(Kind.ENTRY)), "nobody waited for them"
                # Who listens to the end, waits for them.
                async for event in peer.compile_events(items, tokenizers=[fingerprint], deadline_s=60):
                    last = event
                assert isinstance(last, Progress)
                assert list(agent.store.live.keys(Kind.ENTRY))

        asyncio.run(check())
        stats = agent.coordinator.stats
        assert stats.shards_compiled + stats.shards_empty == stats.units_compiled
        assert stats.entries_failed == 0


# Commands


def environment(folder: Path) -> dict[str, str]:
    more = {"XDG_CACHE_HOME": str(folder / "cache"), "GRAMARY_EXECUTOR_KIND": "inline", "GRAMARY_METRICS_LISTEN": ""}
    return {**os.environ, **more}


def command(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run `gramary` and return what it prints."""
    whole = [sys.executable, "-m", "gramary.cluster.cli", *arguments]
    done = subprocess.run(
        whole, capture_output=True, text=True, timeout=120, env=environment(folder), cwd=folder, check=False
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `gramary serve`, and wait until it serves."""
    whole = [sys.executable, "-m", "gramary.cluster.cli", "serve", *arguments]
    process = subprocess.Popen(whole, stderr=subprocess.PIPE, text=True, env=environment(folder), cwd=folder)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("gramary: serving"):
            return process
    raise AssertionError("it ended at once")


def end(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    process.stderr.close()
    return process.wait(60)


def test_serve_drains(tmp_path: Path) -> None:
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    process = begin(tmp_path, "--listen", address, "--store", str(tmp_path / "store"))
    try:
        with client_of(address, tmp_path / "store") as client:
            assert accepts(client.compile_json_schema(schema("serve")), example("serve"))
            assert client.stats.cluster == 1

            async def go_on() -> list[Any]:
                async with GrpcPeer(address) as peer:
                    items = [item(schema("drain", n)) for n in range(50)]
                    asking = asyncio.ensure_future(peer.compile_sources(items, tokenizers=[], deadline_s=60))
                    await asyncio.sleep(0.05)
                    process.send_signal(signal.SIGTERM)
                    return list(await asyncio.gather(asking, return_exceptions=True))

            [answer] = asyncio.run(go_on())
            if isinstance(answer, list):  # it had begun: it was finished
                assert all(outcome.manifest for outcome in answer)
            else:
                assert isinstance(answer, PeerError)
                assert answer.retryable
        assert end(process) == 0
        with client_of(None, tmp_path / "store") as later:  # what was acknowledged is stored
            assert later.ensure([Source("json_schema", schema("serve"))]) == "lmdb"  # type: ignore[arg-type]
    finally:
        process.kill()
        process.wait()


def test_a_cluster_of_one_machine(tmp_path: Path) -> None:
    ports = free_ports(1)
    folder = str(tmp_path / "nodes")
    up = json.loads(command(tmp_path, "cluster", "up", "-n", "2", "--port", str(ports[0]), "--dir", folder, "--json"))
    try:
        assert [node["name"] for node in up["nodes"]] == ["node-0", "node-1"]
        command(tmp_path, "cluster", "up", "--dir", folder, code=2)  # it runs already
        told = json.loads(command(tmp_path, "cluster", "status", "--dir", folder, "--json"))
        assert "node-1" in json.dumps(told)
        address = up["nodes"][0]["address"]
        top = json.loads(command(tmp_path, "top", "--once", "--json", "--config", up["config"], "-a", address))
        assert "node-0" in json.dumps(top)
        command(tmp_path, "top", "--once", "-a", address, code=1)  # without the token it tells nothing
    finally:
        assert "2 nodes stopped" in command(tmp_path, "cluster", "down", "--dir", folder, "--wipe")
    command(tmp_path, "cluster", "status", "--dir", folder, code=2)
    until = time.monotonic() + 10
    while any(Path(f"/proc/{node['pid']}").exists() for node in up["nodes"]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{node['pid']}").exists() for node in up["nodes"])


def test_warm_goes_on_where_it_was(tmp_path: Path) -> None:
    tools = [{"name": f"tool_{n}", "parameters": schema("catalogue", n)} for n in range(12)]
    (tmp_path / "first.json").write_text(json.dumps(tools[:8]))
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(tool) + "\n" for tool in tools))
    (tmp_path / "bad.json").write_text(json.dumps([tools[0], {"name": "bad", "parameters": {"type": "nonsense"}}]))
    tokens = [bytes([n]) for n in range(256)]
    tokenizer = tmp_path / "tokenizer.gramary"
    Vocabulary.from_tokens(tokens).save(str(tokenizer))
    common = ("-t", str(tokenizer), "--json", "--store", str(tmp_path / "store"))
    first = json.loads(command(tmp_path, "warm", str(tmp_path / "first.json"), *common))
    assert (first["sources"], first["compiled"], first["failed"]) == (8, 8, 0)
    whole = json.loads(command(tmp_path, "warm", str(tmp_path / "all.jsonl"), *common))
    assert (whole["sources"], whole["compiled"], whole["failed"]) == (12, 12, 0)
    bad = json.loads(command(tmp_path, "warm", str(tmp_path / "bad.json"), *common, code=1))
    assert (bad["compiled"], bad["failed"]) == (1, 1)
    with client_of(None, tmp_path / "store") as client:
        assert client.warm() == 12
