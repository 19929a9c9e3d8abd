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


class OwnTime:
    """Our own time per token, for every step of the engine: what the backend's histograms gained in it."""

    def __init__(self, llm: Any) -> None:
        self.calls = manager_of(llm).backend.serving.counts.calls
        self.fills, self.accepts, self.both = list[float](), list[float](), list[float]()
        self._before = self._totals()
        engine_step = llm.llm_engine.step

        def step() -> Any:
            outputs = engine_step()
            self._note()
            return outputs

        llm.llm_engine.step = step

    def clear(self) -> None:
        """Forget what was noted."""
        for figures in (self.fills, self.accepts, self.both):
            figures.clear()

    def _totals(self) -> list[tuple[int, float]]:
        snapshots = [self.calls[name].snapshot() for name in ("fill", "accept")]
        return [(one["count"], one["sum"] * 1e6) for one in snapshots]

    def _note(self) -> None:
        before, self._before = self._before, self._totals()
        (fills, fill_us), (accepts, accept_us) = (
            (now[0] - then[0], now[1] - then[1]) for then, now in zip(before, self._before, strict=True)
        )
        if fills and fills == accepts:  # else requests began or ended
            self.fills.append(fill_us / fills)
            self.accepts.append(accept_us / accepts)
            self.both.append((fill_us + accept_us) / fills)


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
    own = OwnTime(llm)
    figures: dict[str, Any] = {}
    for batch in BATCHES:
        rates: dict[bool, list[float]] = {True: [], False: []}
        own.clear()
        for round_ in range(ROUNDS):
            for constrained in (True, False) if round_ % 2 else (False, True):
                rates[constrained].append(timed(batch, constrained))
        figures[f"batch_{batch}"] = {
            "constrained_tokens_per_s": spread(rates[True]),
            "unconstrained_tokens_per_s": spread(rates[False]),
            "ratio_of_medians": round(spread(rates[True])["p50"] / spread(rates[False])["p50"], 3),
            "our_us_per_token": spread(own.both),
            "fill_us": spread(own.fills),
            "accept_us": spread(own.accepts),
        }
    median = max(one["our_us_per_token"]["p50"] for one in figures.values())
    return {"ok": median < 20, "our_us_per_token_p50_worst": median, "rounds": ROUNDS, **figures}
