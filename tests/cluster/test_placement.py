"""Placement in simulated time: single flight, take-over, faults. Every run is deterministic."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gramary.cluster.peer import Outcome, SourceItem
from gramary.cluster.placement import Settings
from gramary.cluster.placement.entries import shard_claim
from gramary.cluster.records import Key, Kind, Record
from gramary.compiler.errors import GramaryError
from tests.cluster.fakes import digest, manifest_units, source
from tests.cluster.simulated import Cluster, simulate

T1, T2 = b"\1" * 32, b"\2" * 32


def tool(i: int, *, shared: int = 5) -> SourceItem:
    """A tool of its own unit, two of the shared ones, and the one that all have."""
    return source(f"tool-{i}", f"shared-{i % shared}", f"-shared-{(i + 1) % shared}", "string")


def units_of(sources: Sequence[SourceItem]) -> set[bytes]:
    import json

    return {digest(name) for s in sources for name in json.loads(s.text)["units"]}


def assert_compiled(outcomes: Sequence[Outcome], sources: Sequence[SourceItem]) -> None:
    assert [o.key for o in outcomes] == [s.key for s in sources]
    assert all(o.manifest is not None for o in outcomes), [o.error for o in outcomes if o.error]


def assert_exact(cluster: Cluster, units: set[bytes]) -> None:
    """Without faults: what was compiled is what is stored, and each once."""
    assert cluster.stored_units() == units
    assert cluster.total("units_compiled") == len(units)
    for counter in ("fallbacks", "takeovers", "units_unclaimed", "units_repaired", "puts_degraded"):
        assert cluster.total(counter) == 0, counter


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    nodes=st.integers(1, 7),
    seed=st.integers(0, 2**32),
    requests=st.lists(
        st.tuples(st.integers(0, 6), st.lists(st.integers(0, 12), min_size=1, max_size=5), st.floats(0, 0.05)),
        min_size=1,
        max_size=25,
    ),
)
def test_each_unit_is_compiled_once(nodes: int, seed: int, requests: list[tuple[int, list[int], float]]) -> None:
    async def main() -> None:
        cluster = await Cluster(nodes, seed=seed).start()

        async def request(node: int, tools: list[int], delay: float) -> None:
            await asyncio.sleep(delay)
            sources = [tool(i) for i in tools]
            assert_compiled(await cluster.nodes[node % nodes].compile(sources, [T1]), sources)

        await asyncio.gather(*(request(*r) for r in requests))
        sources = [tool(i) for _, tools, _ in requests for i in tools]
        assert_exact(cluster, units_of(sources))
        await cluster.settle()
        lowered = Counter(key for node in cluster.nodes for key in node.executor.lowered)
        assert set(lowered.values()) == {1}, "each source is lowered once"
        built = Counter(pair for node in cluster.nodes for pair in node.executor.built)
        assert set(built.values()) == {1}, "and each shard built once"
        assert set(built) == {(unit, T1) for unit in units_of(sources)}
        assert cluster.total("shards_compiled") + cluster.total("shards_empty") == len(built)
        assert cluster.total("entries_failed") == 0

    simulate(main())


def test_what_others_compiled_is_here_afterwards() -> None:
    async def main() -> None:
        cluster = await Cluster(5).start()
        sources = [tool(i) for i in range(20)]
        for node in cluster.nodes:
            assert_compiled(await node.compile(sources, [T1]), sources)
        assert_exact(cluster, units_of(sources))
        await cluster.settle()
        for node in cluster.nodes:
            assert node.store.of_kind(Kind.UNIT) == units_of(sources)
            assert node.store.with_entries(T1, [digest("string")])
        before = sum(cluster.network.calls.values())
        for node in cluster.nodes:
            assert_compiled(await node.compile(sources, [T1]), sources)
            assert node.coordinator.stats.hits_local >= 20
        await cluster.settle()
        assert sum(cluster.network.calls.values()) == before, "nobody is asked for what is here"

    simulate(main())


def test_every_record_has_its_replicas() -> None:
    async def main() -> None:
        cluster = await Cluster(6).start()
        sources = [tool(i) for i in range(20)]
        await asyncio.gather(*(node.compile(sources, [T1]) for node in cluster.nodes))
        by_name = {node.name: node for node in cluster.nodes}
        for unit in units_of(sources):
            for name in cluster.nodes[0].coordinator.membership.owners(unit, 2):
                assert not by_name[name].store.missing([Key(Kind.UNIT, unit)])
        for item in sources:
            for name in cluster.nodes[0].coordinator.membership.owners(item.key, 2):
                assert not by_name[name].store.missing([Key(Kind.MANIFEST, item.key)])

    simulate(main())


def test_a_further_tokenizer() -> None:
    async def main() -> None:
        cluster = await Cluster(5).start()
        sources = [tool(i) for i in range(12)]
        units = units_of(sources)
        await cluster.nodes[0].compile(sources, [T1])
        await asyncio.gather(*(node.compile(sources, [T1, T2]) for node in cluster.nodes))
        await asyncio.gather(*(node.compile(sources, [T2]) for node in cluster.nodes))
        assert_exact(cluster, units)
        await cluster.settle()
        built = Counter(pair for node in cluster.nodes for pair in node.executor.built)
        assert set(built) == {(unit, t) for unit in units for t in (T1, T2)}
        assert set(built.values()) == {1}
        assert cluster.total("shards_compiled") == 2 * (13 + 5)  # tools, "string", shared
        assert cluster.total("shards_empty") == 2 * 5  # those named "-..." have no entries

    simulate(main())


def test_errors_of_sources_are_outcomes_and_remembered() -> None:
    async def main() -> None:
        cluster = await Cluster(4).start()
        bomb = source(**{"raise": "UnsatisfiableSchema"})
        for _ in range(3):
            results = await asyncio.gather(*(node.compile([tool(1), bomb]) for node in cluster.nodes))
            for good, bad in results:
                assert good.manifest is not None
                assert bad.manifest is None
                assert not bad.retryable
                assert bad.error["type"] == "UnsatisfiableSchema"
        assert cluster.total("errors_remembered") > 0
        assert cluster.total("sources_lowered") == 1

    simulate(main())


async def without_victim(cluster: Cluster, victim: int, sources: Sequence[SourceItem], seconds: float) -> None:
    """All nodes are asked for the same; after so many seconds one dies, and the others answer in time."""
    tasks = [asyncio.create_task(node.compile(sources, [T1])) for node in cluster.nodes]
    await asyncio.sleep(seconds)
    cluster.nodes[victim].kill()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for number, result in enumerate(results):
        if number != victim:
            assert isinstance(result, list), result
            assert_compiled(result, sources)
    assert cluster.stored_units() >= units_of(sources)


@pytest.mark.parametrize("dead", range(4))
def test_take_over_when_who_commits_dies(dead: int) -> None:
    """It has claimed units and not yet put them: whoever waits for them goes on when the leases have run out."""

    async def main() -> None:
        cluster = await Cluster(4, seed=dead).start()
        cluster.network.latency = lambda a, b: 0.05
        await without_victim(cluster, dead, [tool(i) for i in range(10)], 0.25)
        assert cluster.total("takeovers") > 0

    simulate(main())


@pytest.mark.parametrize("dead", range(4))
def test_take_over_when_who_builds_entries_dies(dead: int) -> None:
    async def main() -> None:
        cluster = await Cluster(4, seed=dead).start()
        for node in cluster.nodes:
            node.executor.build_s = 0.2
        sources = [tool(i) for i in range(10)]
        await without_victim(cluster, dead, sources, 0.3)
        await cluster.settle()
        assert cluster.total("takeovers") > 0
        assert cluster.total("entries_failed") == 0
        named = {digest(f"tool-{i}") for i in range(10)} | {digest("string")}
        for node in cluster.nodes:
            if node.alive:
                assert node.store.with_entries(T1, list(named)) == named

    simulate(main())


def test_entries_keep_nobody_waiting() -> None:
    """Answers come as soon as units are stored; a builder of entries that never ends is noticed by nobody."""

    async def main() -> None:
        cluster = await Cluster(3).start()
        for node in cluster.nodes:
            node.executor.build_s = 1000.0
        loop = asyncio.get_running_loop()
        for start in range(0, 20, 5):
            began = loop.time()
            sources = [tool(i) for i in range(start, start + 5)]
            assert_compiled(await cluster.nodes[start % 3].compile(sources, [T1]), sources)
            assert loop.time() - began < 0.1
        await cluster.settle()
        assert cluster.total("entries_failed") > 0

    simulate(main())


def test_entries_that_cannot_be_built_keep_none_of_the_others_away() -> None:
    async def main() -> None:
        cluster = await Cluster(1).start()
        (node,) = cluster.nodes
        build = node.executor.build

        async def picky(
            tokenizer: bytes, closure: Mapping[bytes, bytes], wanted: Sequence[bytes], **more: float
        ) -> list[Record]:
            if digest("tool-7") in wanted:
                raise GramaryError("not this one")
            return await build(tokenizer, closure, wanted, **more)

        node.executor.build = picky  # type: ignore[method-assign, assignment]
        sources = [tool(i) for i in range(20)]
        assert_compiled(await node.compile(sources, [T1]), sources)
        await cluster.settle()
        built = {unit for unit, _ in node.executor.built}
        assert units_of(sources) - built == {digest("tool-7")}
        assert cluster.total("entries_failed") == 1

    simulate(main())


def test_nothing_acknowledged_is_lost() -> None:
    """Kill each node in turn, bring it back empty: what was acknowledged is still answered, without compiling."""

    async def main() -> None:
        cluster = await Cluster(5, settings=Settings(lease_s=1.0, call_s=0.3)).start()
        sources = [tool(i) for i in range(30)]
        assert_compiled(await cluster.nodes[0].compile(sources), sources)
        lowered = cluster.total("sources_lowered")
        for i, node in enumerate(cluster.nodes):
            node.kill()
            asker = cluster.nodes[(i + 1) % 5]
            assert_compiled(await asker.compile(sources), sources)
            node.store.values.clear()
            node.store.slots.clear()
            await node.start()
            await asyncio.sleep(5)  # circuits close again
            assert_compiled(await node.compile(sources), sources)
            node.coordinator.stats.sources_lowered = 0
        assert cluster.total("sources_lowered") <= lowered
        assert cluster.total("fallbacks") == 0

    simulate(main())


def test_partition_and_healing() -> None:
    async def main() -> None:
        cluster = await Cluster(6, settings=Settings(lease_s=1.0, call_s=0.3)).start()
        side = {name: i % 2 for i, name in enumerate(cluster.names)}
        cluster.network.cut = lambda a, b: side[a] != side[b]
        sources = [tool(i) for i in range(20)]
        loop = asyncio.get_running_loop()

        async def request(i: int) -> None:
            began = loop.time()
            assert_compiled(await cluster.nodes[i].compile(sources, [T1], deadline_s=6.0), sources)
            assert loop.time() - began < 6.5

        await asyncio.gather(*(request(i) for i in range(6)))
        cluster.network.cut = lambda a, b: False
        await asyncio.sleep(10)
        for node in cluster.nodes:
            while node.coordinator.delivery.unpublished:
                await node.coordinator.delivery.publish()
                await asyncio.sleep(1)
        more = [tool(i) for i in range(100, 110)]
        before = cluster.total("units_compiled")
        for node in cluster.nodes:
            assert_compiled(await node.compile([*sources, *more], [T1]), [*sources, *more])
        assert cluster.total("units_compiled") == before + 10, "healed: each new unit once"
        by_name = {node.name: node for node in cluster.nodes}
        for unit in units_of(sources):
            owner = cluster.nodes[0].coordinator.membership.owners(unit, 1)[0]
            assert not by_name[owner].store.missing([Key(Kind.UNIT, unit)])

    simulate(main())


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.02, 0.2, 1.0]), kills=st.integers(0, 3))
def test_every_request_is_answered_in_time_whatever_happens(seed: int, loss: float, kills: int) -> None:
    """Messages are lost, nodes die and come back: every request to a live node has a manifest within its deadline."""

    async def main() -> None:
        cluster = await Cluster(6, seed=seed, settings=Settings(lease_s=0.5, call_s=0.2)).start()
        cluster.network.loss = loss
        chance = random.Random(seed)
        loop = asyncio.get_running_loop()
        victims = cluster.nodes[:kills]

        async def faults() -> None:
            for node in victims:
                await asyncio.sleep(chance.uniform(0, 0.3))
                node.kill()
                await asyncio.sleep(chance.uniform(0, 2))
                await node.start()

        async def request() -> None:
            await asyncio.sleep(chance.uniform(0, 3))
            node = chance.choice(cluster.nodes[kills:])
            sources = [tool(chance.randrange(30)) for _ in range(chance.randint(1, 4))]
            began = loop.time()
            outcomes = await node.compile(sources, [T1], deadline_s=4.0)
            assert loop.time() - began <= 4.5
            assert_compiled(outcomes, sources)
            for outcome in outcomes:  # what is acknowledged is here
                assert outcome.manifest is not None
                needed = [Key(Kind.UNIT, unit) for unit in manifest_units(outcome.manifest)]
                assert not node.store.missing(needed)

        await asyncio.gather(faults(), *(request() for _ in range(40)))

    simulate(main())


def test_a_full_disk_is_a_typed_error() -> None:
    async def main() -> None:
        cluster = await Cluster(3).start()
        for node in cluster.nodes:
            node.store.full = True
        (outcome,) = await cluster.nodes[0].compile([tool(1)], deadline_s=3.0)
        assert outcome.manifest is None
        assert outcome.retryable
        assert outcome.error["message"] == "the disk is full"
        for node in cluster.nodes:
            node.store.full = False
        assert_compiled(await cluster.nodes[0].compile([tool(1)]), [tool(1)])

    simulate(main())


def test_a_full_disk_where_others_have_it_is_a_typed_error_too() -> None:
    async def main() -> None:
        cluster = await Cluster(4).start()
        sources = [tool(i) for i in range(8)]
        await cluster.nodes[0].compile(sources, [T1])
        for node in cluster.nodes[1:]:
            node.store.full = True
        for node in cluster.nodes[1:]:
            for outcome in await node.compile(sources, [T1, T2], deadline_s=3.0):
                assert outcome.manifest is not None or outcome.error["message"] == "the disk is full"
            missing = node.store.missing([Key(Kind.UNIT, unit) for unit in units_of(sources)])
            read = await node.coordinator.fetch(missing)
            assert set(read) == set(missing), "what cannot be stored can still be read"

    simulate(main())


def test_cancelling_the_last_request_stops_the_work() -> None:
    async def main() -> None:
        cluster = await Cluster(3).start()
        for node in cluster.nodes:
            node.executor.lower_s = 5.0
        tasks = [asyncio.create_task(node.compile([tool(1)], deadline_s=60.0)) for node in cluster.nodes]
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0.1)
        assert sum(node.coordinator.flights.in_flight for node in cluster.nodes) == 0
        await asyncio.sleep(10)
        assert cluster.total("sources_lowered") == 0

    simulate(main())


def test_cancelling_one_request_does_not_stop_the_others() -> None:
    async def main() -> None:
        cluster = await Cluster(3).start()
        for node in cluster.nodes:
            node.executor.lower_s = 1.0
        tasks = [asyncio.create_task(node.compile([tool(1)], deadline_s=60.0)) for node in cluster.nodes]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        for task in tasks[1:]:
            assert_compiled(await task, [tool(1)])
        assert cluster.total("sources_lowered") == 1

    simulate(main())


def test_claim_names_of_shards() -> None:
    names = {shard_claim(unit, t) for unit in (T1, T2) for t in (T1, T2)}
    assert len(names) == 4
    assert all(len(name) == 32 for name in names)
