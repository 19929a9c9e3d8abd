"""`make demo`: a catalogue of real tools and a stream of requests, compiled and masked on a real vocabulary.

First every tool of the bundled catalogue is compiled by itself, twice: cold, then warm. Then requests come, each with
its own random subset of 10, 100 or 300 tools as JSON text; the answer is free text, a call of one of them, free text.
Along the answer every mask is filled, must allow the next token, and is timed. A tool that was not offered must be
refused.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from gramary.cluster.measure import GreedyEncoder, percentile, walk
from gramary.compiler import Compiler, Tokenizer
from gramary.runtime import allocate_bitmask

CATALOGUE = Path(__file__).parents[1] / "data" / "tools.jsonl.gz"
OFFERS = (10, 100, 300)
BEGIN, END = "<function={name}>", "</function>"
WRONG_CALL = "On it. " + BEGIN.format(name="no.such_tool_here") + "{}" + END
EXPLANATION = """\
compile: one tool's JSON text to a grammar (catalogue), all offered tools' JSON text to the first mask (requests).
mask: fill and accept of one token. tools: distinct tools seen in the phase. units, kept: what the compiler holds
after the phase, which grows with distinct tools, not with requests."""


@dataclass
class Phase:
    """What one row of the table shows; times in seconds."""

    name: str
    compiled: list[float] = field(default_factory=list)
    masks: list[float] = field(default_factory=list)
    tools_seen: int = 0
    wrong: int = 0
    units: int = 0
    bytes_kept: int = 0

    def note(self, stats: dict[str, int]) -> None:
        self.units, self.bytes_kept = stats["units"], stats["bytes"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "phase": self.name,
            "compiles": len(self.compiled),
            "compile_p50_us": round(percentile(self.compiled, 0.5) * 1e6, 1),
            "compile_p99_us": round(percentile(self.compiled, 0.99) * 1e6, 1),
            "masks": len(self.masks),
            "masks_per_second": round(len(self.masks) / sum(self.masks)) if self.masks else None,
            "mask_p50_us": round(percentile(self.masks, 0.5) * 1e6, 2) if self.masks else None,
            "mask_p99_us": round(percentile(self.masks, 0.99) * 1e6, 2) if self.masks else None,
            "tools_seen": self.tools_seen,
            "units": self.units,
            "bytes_kept": self.bytes_kept,
            "wrong": self.wrong,
        }


def watched(items: Iterable[Any], total: int, label: str) -> Iterable[Any]:
    console = Console(stderr=True)
    return track(items, label, total=total, console=console, transient=True, disable=not console.is_terminal)


def compile_catalogue(compiler: Compiler, tools: list[dict[str, Any]], name: str) -> Phase:
    """Every tool by itself, from its JSON text."""
    phase = Phase(name, tools_seen=len(tools))
    texts = [json.dumps(tool["parameters"]) for tool in tools]
    for text in watched(texts, len(texts), name):
        start = perf_counter()
        compiler.compile_json_schema(text)
        phase.compiled.append(perf_counter() - start)
    phase.note(compiler.stats())
    return phase


def serve(
    compiler: Compiler, encoder: GreedyEncoder, tools: list[dict[str, Any]], offer: int, requests: int, seed: int
) -> Phase:
    """A stream of requests; each is compiled, its answer is masked and checked."""
    rng = random.Random(seed)
    callable_ = [tool for tool in tools if tool["call"] is not None]
    bitmask = allocate_bitmask(1, compiler.vocab_size)
    phase = Phase(f"{offer} tools")
    seen: set[str] = set()
    wrong_call = encoder.encode(WRONG_CALL)
    for _ in watched(range(requests), requests, phase.name):
        called = rng.choice(callable_)
        offered = rng.sample([tool for tool in tools if tool is not called], offer - 1)
        offered.insert(rng.randrange(offer), called)
        seen.update(tool["name"] for tool in offered)
        text = json.dumps([{"name": tool["name"], "parameters": tool["parameters"]} for tool in offered])

        start = perf_counter()
        grammar = compiler.compile_tools(text, begin=BEGIN, end=END)
        matcher = grammar.matcher()
        matcher.fill_bitmask(bitmask)
        phase.compiled.append(perf_counter() - start)

        call = BEGIN.format(name=called["name"]) + json.dumps(called["call"], ensure_ascii=False) + END
        answer = walk(matcher, encoder.encode(f"Let me look that up.\n{call}\nThat is done."), bitmask)
        phase.masks += answer.seconds
        matcher.reset()
        refused = walk(matcher, wrong_call, bitmask)
        phase.wrong += not answer.matches or refused.accepted == refused.tokens
    phase.tools_seen = len(seen)
    phase.note(compiler.stats())
    return phase


def shown(phases: list[Phase], title: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("each")
    for name in (
        "compiles",
        "compile p50",
        "p99",
        "masks",
        "masks/s",
        "mask p50",
        "p99",
        "tools",
        "units",
        "kept",
        "wrong",
    ):
        table.add_column(name, justify="right")
    for phase in phases:
        row = phase.as_dict()
        table.add_row(
            phase.name,
            f"{row['compiles']:,}",
            span(row["compile_p50_us"]),
            span(row["compile_p99_us"]),
            *(
                (
                    f"{row['masks']:,}",
                    f"{row['masks_per_second']:,}",
                    span(row["mask_p50_us"]),
                    span(row["mask_p99_us"]),
                )
                if row["masks"]
                else ("", "", "", "")
            ),
            f"{row['tools_seen']:,}",
            f"{row['units']:,}",
            f"{row['bytes_kept'] / 2**20:.1f} MiB",
            f"[red]{row['wrong']}[/]" if row["wrong"] else "0",
        )
    return table


def span(microseconds: float) -> str:
    return f"{microseconds / 1e3:.2f} ms" if microseconds >= 1e3 else f"{microseconds:.1f} us"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--requests", type=int, default=200, help="requests of each size")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()

    with gzip.open(CATALOGUE, "rt", encoding="utf-8") as file:
        tools = [json.loads(line) for line in file]
    start = perf_counter()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    loaded = perf_counter() - start
    compiler = Compiler(tokenizer)
    start = perf_counter()
    entries = compiler.prewarm()
    warmed = perf_counter() - start
    encoder = GreedyEncoder(compiler.vocabulary)

    phases = [compile_catalogue(compiler, tools, f"catalogue {state}") for state in ("cold", "warm")]
    phases += [serve(compiler, encoder, tools, offer, args.requests, args.seed) for offer in OFFERS]

    if args.json:
        print(json.dumps([phase.as_dict() for phase in phases], indent=2))
    else:
        title = (
            f"{len(compiler.vocabulary):,} tokens loaded in {loaded * 1e3:.0f} ms, "
            f"{entries} shared mask entries built in {warmed * 1e3:.1f} ms"
        )
        console = Console(width=max(Console().width, 132))
        console.print(shown(phases, title))
        console.print(EXPLANATION, style="dim")
    return 1 if any(phase.wrong for phase in phases) else 0


if __name__ == "__main__":
    sys.exit(main())
