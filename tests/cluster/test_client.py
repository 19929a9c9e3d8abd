"""The client's ladder: each tier answers, and what goes wrong on one costs no answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gramary.cluster.client import AsyncClient, Client
from gramary.cluster.kernel import Source
from gramary.cluster.records import Key, Kind
from gramary.compiler import Compiler, InvalidSchema, LimitExceeded, ToolError
from tests.cluster.cluster_tools import (
    BOMB,
    TOKENIZER,
    Nodes,
    accepts,
    agents,
    client_of,
    example,
    free_ports,
    schema,
)
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes for the tests that do them no harm."""
    with agents(tmp_path_factory.mktemp("client"), 2) as both:
        yield both


def store_of(nodes: Nodes, place: int = 0) -> Path:
    return nodes.folder / f"n{place}" / "store"


def compiled(nodes: Nodes) -> int:
    return sum(agent.coordinator.stats.units_compiled for agent in nodes.agents)


def test_every_tier_answers(nodes: Nodes) -> None:
    text = example("tier")
    with client_of(nodes.addresses[0], store_of(nodes)) as first:
        source = first.source_of_schema(schema("tier"))
        assert first.ensure([source]) == "cluster"
        assert first.ensure([source]) == "process"
        assert accepts(first.compile_json_schema(schema("tier")), text)
        assert not accepts(first.compile_json_schema(schema("tier")), text.replace("abc", "much too long"))
    with client_of(nodes.addresses[0], store_of(nodes)) as second:
        assert second.ensure([source]) == "lmdb"
        assert accepts(second.compile_json_schema(schema("tier")), text)
    before = compiled(nodes)
    with client_of(nodes.addresses[1]) as third:  # no store: everything comes over the wire
        assert third.ensure([source]) == "cluster"
        assert accepts(third.compile_json_schema(schema("tier")), text)
        assert (third.stats.cluster, third.stats.local, third.stats.fallbacks) == (1, 0, {})
    assert compiled(nodes) == before
    with client_of(None) as alone:
        assert accepts(alone.compile_json_schema(schema("tier")), text)
        assert (alone.stats.local, alone.stats.fallbacks) == (1, {})


def test_kinds_of_sources(nodes: Nodes) -> None:
    tools = [{"name": f"kind_{n}", "parameters": schema("kind", n)} for n in range(5)]
    with client_of(nodes.addresses[0], store_of(nodes)) as client:
        matcher = client.compile_tools(tools).matcher()
        assert matcher.accept_bytes(f"Now <function=kind_3>{example('kind', 3)}</function>")
        assert client.stats.cluster == 5
        matcher = client.compile_tools(list(reversed(tools))).matcher()
        assert client.stats.process == 5
        pattern = client.compile_regex("ab+c")
        assert accepts(pattern, "abbc")
        assert not accepts(pattern, "ac")
        assert client.stats.cluster == 6
        assert client.stats.local == 0


def test_other_options_are_another_source(nodes: Nodes) -> None:
    with client_of(nodes.addresses[0], store_of(nodes)) as client:
        client.compile_json_schema(schema("options"))
        grammar = client.compile_json_schema(schema("options"), property_order="any")
        assert client.stats.cluster == 2
        assert accepts(grammar, '{"also": 3, "options_0": "abc"}')


def test_asyncio(nodes: Nodes) -> None:
    async def check() -> None:
        client = AsyncClient(client_of(nodes.addresses[0], store_of(nodes)))
        try:
            wanted = [client.compile_json_schema(schema("async", n)) for n in range(6)]
            for number, grammar in enumerate(await asyncio.gather(*wanted)):
                assert accepts(grammar, example("async", number))
            tools = [{"name": "one", "parameters": schema("async", 1)}]
            await client.compile_tools(tools)
            await client.compile_regex("a[bc]")
            with pytest.raises(InvalidSchema):
                await client.compile_json_schema({"type": "no such type"})
            assert client.client.stats.cluster >= 7
        finally:
            await client.close()

    asyncio.run(check())


# Errors


def test_errors_are_typed_and_told_once(nodes: Nodes) -> None:
    with client_of(nodes.addresses[0], store_of(nodes)) as client:
        for _ in range(2):
            with pytest.raises(InvalidSchema) as caught:
                client.compile_json_schema({"properties": {"a": {"type": "no such type"}}})
            assert "/properties/a" in str(caught.value.pointer)


def test_a_bomb_is_not_set_off_here(tmp_path: Path) -> None:
    with agents(tmp_path, 2, limits={"fsm_states": 2000}) as small:
        with client_of(small.addresses[0]) as client:
            for _ in range(3):
                with pytest.raises(LimitExceeded):  # the limits here would let it pass
                    client.compile_json_schema(BOMB)
            tools = [{"name": "good", "parameters": schema("good")}, {"name": "bad", "parameters": BOMB}]
            for _ in range(2):
                with pytest.raises(ToolError, match="tool 1") as caught:
                    client.compile_tools(tools)
            assert (caught.value.index, caught.value.name) == (1, "bad")
            assert isinstance(caught.value.cause, LimitExceeded)
            assert (client.stats.cluster, client.stats.local, client.stats.fallbacks) == (1, 0, {})
        with client_of(small.addresses[0]) as another, pytest.raises(LimitExceeded):
            another.compile_json_schema(BOMB)
        assert sum(agent.coordinator.stats.errors_remembered for agent in small.agents) == 1


def test_one_bad_tool_among_good_ones(nodes: Nodes) -> None:
    tools = [{"name": f"good_{n}", "parameters": schema("good", n)} for n in range(3)]
    tools.insert(1, {"name": "bad", "parameters": {"type": "nonsense"}})
    with client_of(nodes.addresses[0], store_of(nodes)) as client:
        for offered in (tools, tools[1:2]):
            with pytest.raises(ToolError, match="bad"):
                client.compile_tools(offered)
            grammar = client.compile_tools(offered, on_error="drop")
            assert [dropped["name"] for dropped in grammar.dropped_tools] == ["bad"]
        assert (client.stats.cluster, client.stats.fallbacks) == (3, {})


# Life


def test_nobody_there(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with client_of(f"127.0.0.1:{port}", tmp_path / "none", wait_s=5.0) as client:
        assert accepts(client.compile_json_schema(schema("nobody")), example("nobody"))
        assert client.stats.fallbacks == {"unreachable": 1}
        for number in range(1, 5):
            client.compile_json_schema(schema("nobody", number))
        start = time.monotonic()
        client.compile_json_schema(schema("nobody", 9))  # the breaker is open: nobody is asked
        assert time.monotonic() - start < 2
        assert client.stats.local == 6


def test_the_deadline_of_a_request(nodes: Nodes, tmp_path: Path) -> None:
    from tests.cluster.faultproxy import FaultProxy

    with FaultProxy(nodes.addresses[0]).in_thread() as proxy, client_of(proxy.address, wait_s=0.5) as client:
        proxy.black_hole = True
        start = time.monotonic()
        assert accepts(client.compile_json_schema(schema("deadline")), example("deadline"))
        assert time.monotonic() - start < 10
        assert client.stats.fallbacks.keys() <= {"deadline", "unreachable"}
        assert client.ensure([client.source_of_schema(schema("deadline", 2))], within_s=0.0) == "local"


def test_another_node_answers_when_the_first_does_not(nodes: Nodes) -> None:
    [port] = free_ports(1)
    others = {"client": {"others": [nodes.addresses[1]]}}
    with client_of(f"127.0.0.1:{port}", **others) as client:
        assert client.ensure([client.source_of_schema(schema("hedge"))]) == "cluster"
        assert accepts(client.compile_json_schema(schema("hedge")), example("hedge"))
        assert (client.stats.local, client.stats.fallbacks) == (0, {})


FORK = """
import os, sys
from pathlib import Path
from tests.cluster.cluster_tools import accepts, client_of, example, schema

with client_of(sys.argv[1], Path(sys.argv[2])) as client:
    client.compile_json_schema(schema("fork"))  # threads, connections and the mapping are there
    pid = os.fork()
    number = 1 if pid else 2
    client.compile_json_schema(schema("fork"))
    assert accepts(client.compile_json_schema(schema("fork", number)), example("fork", number))
    assert (client.stats.cluster, client.stats.fallbacks) == (2, {}), client.stats
    if not pid:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert accepts(client.compile_json_schema(schema("fork", 2)), example("fork", 2))
    assert client.stats.lmdb == 1
print("good")
"""


def test_after_a_fork(nodes: Nodes) -> None:
    command = [sys.executable, "-c", FORK, nodes.addresses[0], str(store_of(nodes))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.stdout == "good\n", done.stderr


def test_warming_up_from_the_store(nodes: Nodes) -> None:
    with client_of(nodes.addresses[0], store_of(nodes)) as client:
        for number in range(4):
            client.compile_json_schema(schema("warm", number))
    told: list[tuple[int, int]] = []
    with client_of(None, store_of(nodes)) as later:
        assert later.warm(progress=lambda done, total: told.append((done, total))) >= 4
        assert told[-1][0] == told[-1][1]
        assert later.ensure([later.source_of_schema(schema("warm", n)) for n in range(4)]) == "process"
        assert accepts(later.compile_json_schema(schema("warm", 2)), example("warm", 2))


def test_following_what_others_compile(nodes: Nodes) -> None:
    with (
        client_of(nodes.addresses[0], store_of(nodes)) as watcher,
        client_of(nodes.addresses[0], store_of(nodes)) as worker,
    ):
        watcher.follow()
        number = 0
        until = time.monotonic() + 20
        while not watcher.stats.watched and time.monotonic() < until:  # until the subscription is there
            worker.compile_json_schema(schema("follow", number))
            time.sleep(0.1)
            number += 1
        assert watcher.stats.watched
        while not watcher.stats.entries_offered and time.monotonic() < until:  # they follow behind the answers
            time.sleep(0.05)
        assert watcher.stats.entries_offered
        source = watcher.source_of_schema(schema("follow", number - 1))
        while watcher.compiler.core.missing_sources([source]) and time.monotonic() < until:
            time.sleep(0.05)
        assert watcher.ensure([source]) == "process"


def test_following_without_a_store(nodes: Nodes) -> None:
    with client_of(nodes.addresses[0]) as client:
        client.follow()
        until = time.monotonic() + 20
        number = 0
        while not client.stats.entries_offered and time.monotonic() < until:
            client.compile_json_schema(schema("afar", number))
            time.sleep(0.1)
            number += 1
        assert client.stats.entries_offered


# Publishing


def compile_away_from(nodes: Nodes, name: str, **more: dict[str, Any]) -> tuple[Client, Source]:
    """A client whose source is compiled here, as if the cluster had been too slow, and is published then."""
    client = client_of(nodes.addresses[0], **more)
    source = client.source_of_schema(schema(name))
    assert client._settle([source], [source]) == "local"
    client.compiler.compile_json_schema(schema(name))
    return client, source


def test_what_is_compiled_here_is_published(nodes: Nodes) -> None:
    client, source = compile_away_from(nodes, "publish")
    with client:
        client.flush()
    [manifest] = nodes.agents[0].store.manifests([source.key], Key(Kind.UNIT, bytes(32)).version)
    assert manifest is not None
    with client_of(None, store_of(nodes)) as other:
        assert other.ensure([source]) == "lmdb"


def test_publishing_follows_the_role(tmp_path: Path) -> None:
    with agents(tmp_path, 1, trust={"publishers": "agents"}) as one:
        client, source = compile_away_from(one, "refused")
        with client:
            client.flush()
            assert client.stats.entries_published == 0
        assert one.agents[0].store.missing([Key(Kind.MANIFEST, source.key)])
        client = client_of(one.addresses[0], client={"publish": False})
        with client:
            assert accepts(client.compile_json_schema(schema("quiet")), example("quiet"))


def test_a_compiler_can_be_given() -> None:
    compiler = Compiler(TOKENIZER)
    with Client(compiler, store=None) as client:
        assert client.compiler is compiler
        client.compile_json_schema(schema("given"))
    assert accepts(compiler.compile_json_schema(schema("given")), example("given"))
