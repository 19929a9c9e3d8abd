"""A node's figures as JSON, and what `gramary top` shows of them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from gramary.cluster import top
from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.stats import NodeStats, SlowUnit, TokenizerFigures, values_of


def node(name: str, hits: int = 90, misses: int = 10, uptime_s: float = 100.0) -> NodeStats:
    metrics = NodeMetrics()
    for _ in range(hits):
        metrics.lookup("lmdb", "hit", 2e-6)
    for _ in range(misses):
        metrics.lookup("lmdb", "miss", 2e-6)
        metrics.lookup("peer", "hit", 1e-3)
    metrics.units_compiled.inc("cluster", by=1234)
    metrics.compile_inflight.set(3)
    metrics.store_bytes.follow(lambda: {("live",): 96 << 20, ("budget",): 100 << 20})
    metrics.peers.set(4, "closed")
    metrics.peers.set(1, "open")
    metrics.corruption.inc("peer")
    return NodeStats(
        name,
        uptime_s,
        values_of([metrics]),
        [TokenizerFigures(b"\x01" * 32, 500, 3 << 20)],
        [SlowUnit(b"\x02" * 32, "json_string", 12_345_678)],
    )


def shown(nodes: Sequence[NodeStats], **arguments: Any) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(top.render(nodes, **arguments))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_series_are_summed_by_label() -> None:
    one = node("n1")
    assert one.values['gramary_lookups_total{tier="lmdb",result="hit"}'] == 90
    assert one.total("gramary_lookups_total") == 110
    assert one.total("gramary_lookups_total", tier="lmdb") == 100
    assert one.by("gramary_lookups_total", "result") == {"hit": 100, "miss": 10}
    assert one.hit_rates() == {"lmdb": 0.9, "peer": 1.0}
    assert one.total("gramary_lookup_duration_seconds_count", tier="lmdb") == 100
    assert one.total("gramary_nothing") == 0
    assert not [series for series, value in one.values.items() if value == 0]


def test_figures_survive_json() -> None:
    one = node("n1")
    assert NodeStats.from_json(json.loads(json.dumps(one.as_json()))) == one


@pytest.mark.parametrize(
    "change",
    [
        {"node": 3},
        {"node": "x" * 1000},
        {"uptime_s": float("nan")},
        {"uptime_s": True},
        {"values": {"a": "b"}},
        {"values": [1]},
        {"values": {f"v{i}": 1 for i in range(6000)}},
        {"tokenizers": [{"fingerprint": "zz", "entries": 1, "size_bytes": 1}]},
        {"tokenizers": [{"fingerprint": "00", "entries": -1, "size_bytes": 1}]},
        {"tokenizers": [{"fingerprint": "00" * 33, "entries": 1, "size_bytes": 1}]},
        {"slowest": [{"digest": "00"}]},
        {"slowest": 5},
    ],
)
def test_figures_from_outside_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        NodeStats.from_json({**NodeStats("n").as_json(), **change})
    with pytest.raises(ValueError, match="no figures"):
        NodeStats.from_json([])


def test_a_look_shows_what_matters() -> None:
    text = shown([node("n1"), node("n2"), NodeStats("n3", error="connection refused")])
    assert "3 nodes, 1 not reachable" in text
    assert "units compiled 2,468" in text
    for part in ("90.0%", "100.0%", "96.0 MiB 96%", "4 up 1 open", "1 corrupt", "connection refused"):
        assert part in text, part
    assert "0101010101010101" in text
    assert "12.3 ms" in text
    assert "json_string" in text
    assert "6.0 MiB" in text


def test_rates_are_between_two_looks() -> None:
    before = {"n1": (10.0, node("n1", hits=50, uptime_s=98)), "n2": (10.0, node("n2", uptime_s=5000))}
    lines = shown([node("n1", hits=90), node("n2")], before=before, now=12.0).splitlines()
    assert next(line for line in lines if line.startswith("n1")).split()[2] == "20"
    assert next(line for line in lines if line.startswith("n2")).split()[2] == "-"


def test_no_nodes_and_many_nodes() -> None:
    assert "0 nodes" in shown([])
    assert "10 more nodes" in shown([NodeStats(f"n{i:02}") for i in range(50)])


def test_names_cannot_drive_the_terminal() -> None:
    text = shown([NodeStats("[bold]\x1b[2J\nx", slowest=[SlowUnit(b"", "[red]\x07" + "y" * 100, 1)])])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]" in text
    assert "…" in text


def looks(*answers: Sequence[NodeStats]) -> top.Ask:
    left = list(answers)

    async def ask() -> Sequence[NodeStats]:
        return left.pop(0)

    return ask


def test_once_and_json() -> None:
    console = Console(file=io.StringIO(), width=200)
    assert top.run(looks([node("n1")]), once=True, console=console) == 0
    assert isinstance(console.file, io.StringIO)
    assert "n1" in console.file.getvalue()
    out = io.StringIO()
    assert top.run(looks([node("n1"), NodeStats("n2", error="gone")]), once=True, as_json=True, out=out) == 1
    (answer,) = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (answer["nodes"], answer["unreachable"], answer["hits"]["lmdb"]) == (2, ["n2"], 90)
    assert NodeStats.from_json(answer["each"][0]).node == "n1"


def test_it_goes_on_until_it_is_told_to_stop() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    assert top.run(looks([node("a")], [node("b")]), looks=2, interval_s=0, console=console) == 0
    assert isinstance(console.file, io.StringIO)
    assert "b" in console.file.getvalue()
    out = io.StringIO()
    assert top.run(looks([node("a")], []), looks=2, interval_s=0, as_json=True, out=out) == 1
    assert len(out.getvalue().splitlines()) == 2

    async def interrupted() -> Sequence[NodeStats]:
        raise KeyboardInterrupt

    assert top.run(interrupted, console=console) == 0


def test_units_of_measure() -> None:
    assert [top._bytes(n) for n in (0, 1023, 1024, 5 << 30, 3 << 40, 1 << 60)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "3.0 TiB", "1048576.0 TiB",
    ]  # fmt: skip
    assert [top._time(n) for n in (5, 1500, 2e6, 3e9)] == ["5 ns", "1.5 us", "2 ms", "3 s"]
    assert [top._span(n) for n in (5, 120, 7200, 86400 * 3)] == ["5s", "2m", "2h", "3d"]
