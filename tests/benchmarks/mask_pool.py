"""Bytes moved to the device per step: a `MaskPool` against uploading every request's whole row.

Requests answer with calls from the bundled catalogue of tools, `--batch` of them at a time, as a serving engine would
run them: at each step every running request's mask is filled, applied to its logits through the pool, checked against
the row itself, and its next token accepted. Time is measured on CPU arrays, or with `--device cuda` on a GPU, where
"full" is an upload of the batch's rows from pinned memory and one kernel.

    python tests/benchmarks/mask_pool.py --tokenizer tekken.json [--device cuda] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gramary.cluster.measure import GreedyEncoder, percentile
from gramary.compiler import Compiler, GramaryError, Tokenizer
from gramary.runtime import MaskPool, Matcher, allocate_bitmask, apply_token_bitmask_, fill_bitmasks

CATALOGUE = Path(__file__).parents[1] / "data" / "tools.jsonl.gz"


class Device:
    """Where logits live: numpy arrays, torch CPU tensors or a GPU."""

    def __init__(self, name: str, batch: int, width: int) -> None:
        self.name = name
        if name == "numpy":
            self.logits: Any = np.zeros((batch, width), np.float32)
            return
        import torch  # type: ignore[import-not-found,unused-ignore]

        self.torch = torch
        self.logits = torch.zeros(batch, width, dtype=torch.bfloat16, device=name)
        self.pinned = torch.empty(batch, (width + 31) // 32, dtype=torch.int32, pin_memory=name == "cuda")

    def clear(self) -> None:
        self.logits[:] = 0

    def synchronize(self) -> None:
        if self.name == "cuda":
            self.torch.cuda.synchronize()

    def full(self, masks: np.ndarray) -> None:
        """What is done without a pool."""
        rows = len(masks)
        if self.name == "numpy":
            apply_token_bitmask_(self.logits[:rows], masks)
            return
        self.pinned.numpy()[:rows] = masks
        uploaded = self.pinned[:rows].to(self.name, non_blocking=True)
        apply_token_bitmask_(self.logits[:rows], uploaded)

    def open_tokens(self, rows: int) -> np.ndarray:
        logits = self.logits[:rows]
        return np.isfinite(logits if self.name == "numpy" else logits.float().cpu().numpy())


def requests(compiler: Compiler, encoder: GreedyEncoder, count: int) -> list[tuple[Matcher, list[int]]]:
    """A matcher and the tokens that it will be given, for `count` tools of the catalogue that have a call."""
    found = []
    with gzip.open(CATALOGUE, "rt") as lines:
        for entry in (json.loads(line) for line in lines):
            if len(found) == count:
                break
            if entry.get("call") is None:
                continue
            try:
                grammar = compiler.compile_json_schema(entry["parameters"])
            except GramaryError:
                continue
            tokens = encoder.encode(json.dumps(entry["call"], ensure_ascii=False))
            if grammar.matcher().validate_tokens(tokens) == len(tokens):
                found.append((grammar.matcher(), tokens))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", help="tokenizer file; without one, single bytes")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--budget-mb", type=float, default=64)
    parser.add_argument("--device", choices=["numpy", "cpu", "cuda"], default="numpy")
    parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON only")
    options = parser.parse_args()

    tokenizer = Tokenizer.from_file(options.tokenizer) if options.tokenizer else Tokenizer.from_bytes()
    compiler = Compiler(tokenizer)
    compiler.prewarm()
    width = compiler.vocab_size
    waiting = iter(requests(compiler, GreedyEncoder(compiler.vocabulary), options.requests))
    device = Device(options.device, options.batch, width)
    pool = MaskPool(
        width,
        budget_bytes=int(options.budget_mb * (1 << 20)),
        device=None if options.device == "numpy" else options.device,
    )

    def timed(work: Callable[[np.ndarray], None], masks: np.ndarray) -> float:
        device.clear()
        device.synchronize()
        start = perf_counter()
        work(masks)
        device.synchronize()
        return perf_counter() - start

    running = [(matcher, tokens, 0) for matcher, tokens in islice(waiting, options.batch)]
    bitmask = allocate_bitmask(options.batch, width)
    steps = wrong = 0
    full_seconds, pool_seconds = [], []
    while running:
        masks = bitmask[: len(running)]
        fill_bitmasks([matcher for matcher, _, _ in running], masks)
        ways = [(device.full, full_seconds), (lambda rows: pool.step_(device.logits[: len(rows)], rows), pool_seconds)]
        seen = []
        for work, seconds in ways if steps % 2 else ways[::-1]:  # interleaved, so that neither is always the second
            seconds.append(timed(work, masks))
            seen.append(device.open_tokens(len(masks)))
        wrong += int((seen[0] != seen[1]).any(axis=1).sum())
        steps += 1
        following = []
        for matcher, tokens, at in running:
            assert matcher.accept_token(tokens[at])
            if at + 1 < len(tokens):
                following.append((matcher, tokens, at + 1))
        following += [(matcher, tokens, 0) for matcher, tokens in islice(waiting, options.batch - len(following))]
        running = following

    stats = pool.stats
    figures = {
        "device": options.device,
        "vocab_size": width,
        "steps": steps,
        "rows": stats.rows,
        "distinct_masks": stats.uploads - stats.evictions,
        "uploads": stats.uploads,
        "evictions": stats.evictions,
        "bytes_moved_per_step": round(stats.bytes_moved / steps),
        "bytes_full_per_step": round(stats.bytes_full / steps),
        "ratio": round(stats.bytes_full / stats.bytes_moved, 1),
        "pool_us_p50": round(percentile(pool_seconds, 0.5) * 1e6, 1),
        "full_us_p50": round(percentile(full_seconds, 0.5) * 1e6, 1),
        "wrong_rows": wrong,
    }
    if not options.json:
        table = Table("figure", "value", title="Mask pool against whole rows")
        for name, value in figures.items():
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
        Console().print(table)
    print(json.dumps(figures))
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
