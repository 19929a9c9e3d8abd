"""`gramary top`: the cluster in a terminal, again every few seconds.

`run` is given something that asks for the figures of all nodes; it draws them, or prints them once, as a table or as
JSON. Rates are between two looks, so the first look shows totals only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gramary.cluster.stats import NodeStats

Ask = Callable[[], Awaitable[Sequence[NodeStats]]]
"""Gives the figures of every node, also of those that did not answer (`NodeStats.error`)."""

TIERS = ("process", "lmdb", "peer", "compile")
MOST_ROWS = 40
MOST_TEXT = 48


def run(
    ask: Ask, *, once: bool = False, as_json: bool = False, interval_s: float = 2.0, console: Console | None = None,
    out: TextIO | None = None, looks: int | None = None,
) -> int:  # fmt: skip
    """Show the nodes until interrupted (or `looks` times); with `once` one look. Returns the exit code.

    0 if every node answered at the last look, else 1. JSON is one line for each look.
    """
    console = console or Console()
    try:
        return asyncio.run(_run(ask, once, as_json, interval_s, console, out or sys.stdout, looks))
    except KeyboardInterrupt:
        return 0


async def _run(
    ask: Ask, once: bool, as_json: bool, interval_s: float, console: Console, out: TextIO, looks: int | None
) -> int:
    before: Mapping[str, tuple[float, NodeStats]] = {}
    number, left = 0, 1 if once else looks
    live = None if once or as_json else Live(console=console, screen=console.is_terminal, auto_refresh=False)
    if live:
        live.start()
    try:
        while True:
            nodes, now = list(await ask()), time.monotonic()
            number += 1
            if as_json:
                out.write(json.dumps(summary(nodes), allow_nan=False) + "\n")
                out.flush()
            elif live:
                live.update(render(nodes, before, now), refresh=True)
            else:
                console.print(render(nodes, before, now))
            before = {one.node: (now, one) for one in nodes if not one.error}
            if left is not None and number >= left:
                return 1 if not nodes or any(one.error for one in nodes) else 0
            await asyncio.sleep(interval_s)
    finally:
        if live:
            live.stop()


def summary(nodes: Sequence[NodeStats]) -> dict[str, Any]:
    """The cluster's sums and every node's figures, ready for JSON."""
    good = [one for one in nodes if not one.error]
    return {
        "nodes": len(nodes),
        "unreachable": [one.node for one in nodes if one.error],
        "lookups": {tier: sum(one.total("gramary_lookups_total", tier=tier) for one in good) for tier in TIERS},
        "hits": {
            tier: sum(one.total("gramary_lookups_total", tier=tier, result="hit") for one in good) for tier in TIERS
        },
        "units_compiled": {
            where: sum(one.total("gramary_units_compiled_total", where=where) for one in good)
            for where in ("cluster", "local")
        },
        "compile_inflight": sum(one.total("gramary_compile_inflight") for one in good),
        "store_live_bytes": sum(one.total("gramary_store_bytes", kind="live") for one in good),
        "each": [one.as_json() for one in nodes],
    }


def render(
    nodes: Sequence[NodeStats], before: Mapping[str, tuple[float, NodeStats]] | None = None, now: float = 0.0
) -> RenderableType:
    """Everything for one look. `before`: when and what each node said last; `now`: the same clock."""
    before = before or {}
    good = [one for one in nodes if not one.error]
    parts: list[RenderableType] = [_headline(nodes), _nodes(nodes, before, now)]
    if any(one.tokenizers for one in good):
        parts.append(_tokenizers(good))
    if any(one.slowest for one in good):
        parts.append(_slowest(good))
    return Group(*parts)


def _headline(nodes: Sequence[NodeStats]) -> Text:
    facts = summary(nodes)
    down = len(facts["unreachable"])
    text = Text(f"{facts['nodes']} node{'' if facts['nodes'] == 1 else 's'}", style="bold")
    if down:
        text.append(f", {down} not reachable", style="bold red")
    text.append(f"   units compiled {facts['units_compiled']['cluster']:,.0f}", style="default")
    local = facts["units_compiled"]["local"]
    if local:
        text.append(f" (+{local:,.0f} locally)", style="yellow")
    text.append(f"   in flight {facts['compile_inflight']:,.0f}   stored {_bytes(facts['store_live_bytes'])}")
    return text


def _nodes(nodes: Sequence[NodeStats], before: Mapping[str, tuple[float, NodeStats]], now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("node", overflow="ellipsis", max_width=MOST_TEXT)
    names = ("up", "look-ups/s", *(f"{tier} hits" for tier in TIERS[:3]), "in flight", "queued", "units built", "store")
    for name in (*names, "peers", "notes"):
        table.add_column(name, justify="left" if name in ("peers", "notes") else "right", no_wrap=name != "notes")
    for one in sorted(nodes, key=lambda one: one.node)[:MOST_ROWS]:
        if one.error:
            table.add_row(_plain(one.node), *[""] * 10, Text(_cut(one.error), style="red"))
            continue
        rates = one.hit_rates()
        table.add_row(
            _plain(one.node),
            _span(one.uptime_s),
            _rate(one, before, now),
            *(f"{rates[tier]:.1%}" if one.total("gramary_lookups_total", tier=tier) else "-" for tier in TIERS[:3]),
            f"{one.total('gramary_compile_inflight'):,.0f}",
            f"{one.total('gramary_compile_queued'):,.0f}",
            f"{one.total('gramary_units_compiled_total'):,.0f}",
            _filled(one),
            _breakers(one),
            _notes(one),
        )
    if len(nodes) > MOST_ROWS:
        table.caption = f"{len(nodes) - MOST_ROWS} more nodes: --json has all"
    return table


def _rate(one: NodeStats, before: Mapping[str, tuple[float, NodeStats]], now: float) -> str:
    then = before.get(one.node)
    if then is None or now <= then[0] or one.uptime_s < then[1].uptime_s:
        return "-"
    more = one.total("gramary_lookups_total") - then[1].total("gramary_lookups_total")
    return f"{max(0.0, more) / (now - then[0]):,.0f}"


def _filled(one: NodeStats) -> Text:
    live, budget = (one.total("gramary_store_bytes", kind=kind) for kind in ("live", "budget"))
    share = live / budget if budget else 0.0
    style = "red" if share > 0.95 else "yellow" if share > 0.9 else ""
    return Text(f"{_bytes(live)} {share:.0%}", style=style)


def _breakers(one: NodeStats) -> Text:
    states = one.by("gramary_peers", "state")
    text = Text(f"{states.get('closed', 0):.0f} up")
    for state, style in (("half_open", "yellow"), ("open", "red")):
        if states.get(state):
            text.append(f" {states[state]:.0f} {state.replace('_', '-')}", style=style)
    return text


def _notes(one: NodeStats) -> Text:
    notes = (
        ("corrupt", "gramary_corruption_total"),
        ("quarantined", "gramary_quarantined_origins"),
        ("store errors", "gramary_store_errors_total"),
        ("workers lost", "gramary_executor_restarts_total"),
    )
    said = [f"{one.total(metric):,.0f} {name}" for name, metric in notes if one.total(metric)]
    return Text(", ".join(said), style="yellow")


def _tokenizers(nodes: Sequence[NodeStats]) -> Table:
    sums: dict[bytes, list[int]] = {}
    for one in nodes:
        for tokenizer in one.tokenizers:
            known = sums.setdefault(tokenizer.fingerprint, [0, 0, 0])
            known[0] += 1
            known[1] += tokenizer.entries
            known[2] += tokenizer.size_bytes
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("tokenizer")
    for name in ("nodes", "entries", "bytes"):
        table.add_column(name, justify="right")
    for fingerprint, (count, entries, size) in sorted(sums.items(), key=lambda item: -item[1][2])[:5]:
        table.add_row(fingerprint.hex()[:16], str(count), f"{entries:,}", _bytes(size))
    return table


def _slowest(nodes: Sequence[NodeStats]) -> Table:
    units = [(unit.cost_ns, unit, one.node) for one in nodes for unit in one.slowest]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("slowest units")
    table.add_column("time", justify="right")
    for name in ("rule", "node"):
        table.add_column(name)
    for cost, unit, node in sorted(units, key=lambda item: (-item[0], item[1].digest))[:5]:
        table.add_row(unit.digest.hex()[:16], _time(cost), _plain(unit.name), _plain(node))
    return table


def _cut(text: str) -> str:
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return clean if len(clean) <= MOST_TEXT else clean[: MOST_TEXT - 1] + "…"


def _plain(text: str) -> Text:
    """Text from a node, without what a terminal or rich would take for more than text."""
    return Text(_cut(text))


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _time(nanoseconds: float) -> str:
    for limit, unit in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / limit * 1e3:.3g} {unit}"
    return f"{nanoseconds / 1e9:.3g} s"


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
