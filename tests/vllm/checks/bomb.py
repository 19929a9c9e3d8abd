"""Check 5: schema bombs beside 16 running requests: each bomb gets its error, the others hardly notice.

Inter-token latency is the time of an engine step with all 16 running, in rounds with and without a bomb, interleaved.
What a bomb takes of the engine's thread is `grammar_init`; the rest of it happens on the compile threads.
"""

from __future__ import annotations

import json
import time
from typing import Any

from tests.vllm.checks.common import engine_in_process, expect, manager_of, percentile, spread

ROUNDS = 4
STEPS = 12


def bombs() -> dict[str, dict[str, Any]]:
    """Requests that come up against a limit: after seconds of work, after much text, at once."""
    alternatives = [{"anyOf": [{"properties": {f"k{i}": {"const": j}}} for j in range(4)]} for i in range(12)]
    return {
        "complement": {"json": json.dumps({"type": "string", "not": {"pattern": "^[ab]*a[ab]{20}$"}})},
        "enumeration": {"json": json.dumps({"enum": [f"value {i} " * 8 for i in range(60_000)]})},
        "combinations": {"json": json.dumps({"allOf": alternatives})},
        "groups": {"regex": "(" * 1500 + "a" + ")*" * 1500},
    }


def run() -> dict[str, Any]:
    llm = engine_in_process("gramary", max_num_seqs=17)
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import StructuredOutputsParams

    engine = llm.llm_engine
    manager = manager_of(llm)
    schema = {"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 80}
    number = 0

    def add(max_tokens: int = 400, **structured: Any) -> str:
        nonlocal number
        number += 1
        params = SamplingParams(
            temperature=0.8,
            seed=number,
            max_tokens=max_tokens,
            structured_outputs=StructuredOutputsParams(**structured),
        )
        engine.add_request(str(number), "Write: ", params)
        return str(number)

    # What of the engine's thread goes to structured output.
    init_seconds: list[float] = []
    original_init = manager.grammar_init

    def timed_init(request: Any) -> None:
        start = time.perf_counter()
        original_init(request)
        init_seconds.append(time.perf_counter() - start)

    manager.grammar_init = timed_init
    outcomes: dict[str, list[str]] = {name: [] for name in bombs()}
    admission: dict[str, list[float]] = {name: [] for name in bombs()}
    engine_share: dict[str, list[float]] = {name: [] for name in bombs()}

    def bomb(name: str) -> str | None:
        """Its id if it was admitted."""
        before = len(init_seconds)
        start = time.perf_counter()
        try:
            identity = add(20, **bombs()[name])
        except VLLMValidationError as error:
            admission[name].append((time.perf_counter() - start) * 1e3)
            outcomes[name].append(f"HTTP 400: {str(error)[:80]}")
            return None
        took = sum(init_seconds[before:])
        admission[name].append((time.perf_counter() - start - took) * 1e3)
        engine_share[name].append(took * 1e3)
        return identity

    def steps(count: int, ended: dict[str, str]) -> list[float]:
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            outputs = engine.step()
            seconds.append((time.perf_counter() - start) * 1e3)
            for output in outputs:
                if output.finished:
                    ended[output.request_id] = str(output.outputs[0].finish_reason)
        return seconds

    ended: dict[str, str] = {}
    normal = [add(json=schema) for _ in range(16)]
    steps(4, ended)
    latencies: dict[bool, list[float]] = {True: [], False: []}
    names = list(bombs())
    waiting: dict[str, str] = {}
    for round_ in range(ROUNDS * 2):
        for identity in [one for one in normal if one in ended]:
            normal.remove(identity)
            normal.append(add(json=schema))
            steps(2, ended)
        with_bomb = round_ % 2 == 1
        if with_bomb:
            name = names[(round_ // 2) % len(names)]
            identity = bomb(name)
            if identity is not None:
                waiting[identity] = name
        latencies[with_bomb] += steps(STEPS, ended)
    deadline = time.monotonic() + 60
    while any(identity not in ended for identity in waiting) and time.monotonic() < deadline:
        steps(1, ended)
    for identity, name in waiting.items():
        outcomes[name].append(ended.get(identity, "never ended"))
    expect(all(ended.get(one, "error") != "error" for one in normal if one in ended), "a normal request failed")
    worst = max((value for values in engine_share.values() for value in values), default=0.0)
    plain, bombed = latencies[False], latencies[True]
    answered = all(one.startswith("HTTP 400") or one == "error" for values in outcomes.values() for one in values)
    return {
        "ok": answered and worst < 5.0,
        "outcomes": {name: sorted(set(values)) for name, values in outcomes.items()},
        "engine_thread_ms_worst": round(worst, 3),
        "admission_ms": {name: spread(values) for name, values in admission.items() if values},
        "inter_token_ms_without": spread(plain) | {"p99": round(percentile(plain, 0.99), 2)},
        "inter_token_ms_with": spread(bombed) | {"p99": round(percentile(bombed, 0.99), 2)},
        "steps": len(plain),
    }
