"""Check 6: what constraints cost.

Tokens per second at batch 1, 8 and 16, with and without, interleaved in one engine; and our own time per token.
"""

from __future__ import annotations

import time
from typing import Any

from tests.vllm.checks.common import engine_in_process, expect, manager_of, spread

BATCHES = (1, 8, 16)
ROUNDS = 5
TOKENS = 32
SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 24}, "n": {"type": "integer", "maximum": 99999}},
        "required": ["name", "n"],
        "additionalProperties": False,
    },
    "minItems": 20,
    "maxItems": 40,
}
PROMPT = "A list of people with their numbers, as JSON: "


class Recorded:
    """Stands in for a histogram of the backend's and keeps every duration."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.nanoseconds = inner, list[int]()

    def add(self, nanoseconds: int) -> None:
        self.nanoseconds.append(nanoseconds)
        self.inner.add(nanoseconds)


def run() -> dict[str, Any]:
    llm = engine_in_process("gramary")
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    def timed(batch: int, constrained: bool) -> float:
        """Tokens per second."""
        params = [
            SamplingParams(
                temperature=0.8,
                seed=i,
                max_tokens=TOKENS,
                ignore_eos=not constrained,
                structured_outputs=StructuredOutputsParams(json=SCHEMA) if constrained else None,
            )
            for i in range(batch)
        ]
        start = time.perf_counter()
        outputs = llm.generate([PROMPT] * batch, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        expect(tokens == batch * TOKENS, f"{tokens} tokens of {batch * TOKENS}")
        return tokens / seconds

    for constrained in (True, False, True):
        timed(2, constrained)
    counts = manager_of(llm).backend.serving.counts
    calls = {name: Recorded(counts.calls[name]) for name in ("fill", "accept")}
    figures: dict[str, Any] = {}
    for batch in BATCHES:
        rates: dict[bool, list[float]] = {True: [], False: []}
        for recorded in calls.values():
            recorded.nanoseconds.clear()
        counts.calls.update(calls)
        for round_ in range(ROUNDS):
            for constrained in (True, False) if round_ % 2 else (False, True):
                rates[constrained].append(timed(batch, constrained))
        fills, accepts = calls["fill"].nanoseconds, calls["accept"].nanoseconds
        both = [(fill + accept) / 1e3 for fill, accept in zip(fills, accepts, strict=False)]
        figures[f"batch_{batch}"] = {
            "constrained_tokens_per_s": spread(rates[True]),
            "unconstrained_tokens_per_s": spread(rates[False]),
            "ratio_of_medians": round(spread(rates[True])["p50"] / spread(rates[False])["p50"], 3),
            "our_us_per_token": spread(both),
            "fill_us": spread([one / 1e3 for one in fills]),
            "accept_us": spread([one / 1e3 for one in accepts]),
        }
    median = max(one["our_us_per_token"]["p50"] for one in figures.values())
    return {"ok": median < 20, "our_us_per_token_p50_worst": median, "rounds": ROUNDS, **figures}
