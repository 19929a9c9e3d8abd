"""Check 3: 100 tools, cold and after a restart, against stock xgrammar.

Each phase is a process of its own with an engine in it: xgrammar, which sees seven sets of 100 tools for the first time
(cold) and once more (warm); ours with an empty store (cold); ours again with that store (restart). Measured are the
time from request to first token, and, inside the engine, compile plus first mask.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.vllm.checks.agents import agents
from tests.vllm.checks.common import Failed, catalogue_tools, engine_in_process, expect, manager_of, spread

SETS = 7
TOOLS = 100
_MARK = "PHASE RESULT "


def tag_of(tools: list[dict[str, Any]]) -> str:
    """Free text with calls of these tools, as vLLM's builders write it."""
    tags = [
        {
            "begin": '<tool_call>\n{"name": "' + tool["function"]["name"] + '", "arguments": ',
            "content": {"type": "json_schema", "json_schema": tool["function"]["parameters"]},
            "end": "}\n</tool_call>",
        }
        for tool in tools
    ]
    form = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": tags, "at_least_one": True}
    return json.dumps({"type": "structural_tag", "format": form})


def phase(backend: str) -> dict[str, list[dict[str, float]]]:
    """Seven sets of tools, twice, on an engine in this process; all times in ms."""
    llm = engine_in_process(backend)
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    engine, manager = llm.llm_engine, manager_of(llm)
    now: dict[str, float] = {}

    def request(structured: StructuredOutputsParams, identity: str) -> dict[str, float]:
        now.clear()
        params = SamplingParams(temperature=0, max_tokens=2, structured_outputs=structured)
        start = time.perf_counter()
        engine.add_request(identity, "Call a function: ", params)
        first = None
        while engine.has_unfinished_requests():
            outputs = engine.step()
            if not outputs:
                time.sleep(0.001)  # as the engine core's own loop does while nothing can run
            if first is None and any(output.outputs and output.outputs[0].token_ids for output in outputs):
                first = time.perf_counter()
            expect(not any(o.outputs and o.outputs[0].finish_reason == "error" for o in outputs), "a request failed")
        if first is None:
            raise Failed("no token came")
        return {"ttft": (first - start) * 1e3, **now}  # the first request of all is not watched yet

    request(StructuredOutputsParams(regex="ab"), "first")  # the backend is built
    _watch(manager, now)
    time.sleep(3)  # what a start does in the background
    sets = [tag_of(catalogue_tools(TOOLS, skip=i * TOOLS)) for i in range(SETS)]
    passes: dict[str, list[dict[str, float]]] = {}
    for name in ("first", "second"):
        passes[name] = [
            request(StructuredOutputsParams(structural_tag=tag), f"{name}-{i}") for i, tag in enumerate(sets)
        ]
    manager.clear_backend()
    return passes


def _watch(manager: Any, now: dict[str, float]) -> None:
    """Time every compile, and the first mask of every grammar, of either backend."""
    compile_grammar = manager.backend.compile_grammar

    def timed_compile(*arguments: Any, **more: Any) -> Any:
        start = time.perf_counter()
        grammar = compile_grammar(*arguments, **more)
        now["compile"] = (time.perf_counter() - start) * 1e3
        watched.setdefault(type(grammar), _watch_fill(type(grammar), now))
        return grammar

    watched: dict[type, None] = {}
    manager.backend.compile_grammar = timed_compile


def _watch_fill(kind: Any, now: dict[str, float]) -> None:
    if getattr(kind, "_watched", False):
        return
    fill = kind.fill_bitmask

    def timed_fill(self: Any, bitmask: Any, row: int) -> None:
        start = time.perf_counter()
        fill(self, bitmask, row)
        now.setdefault("fill", (time.perf_counter() - start) * 1e3)

    kind.fill_bitmask, kind._watched = timed_fill, True


def _run_phase(backend: str, environ: dict[str, str]) -> dict[str, list[dict[str, float]]]:
    child = subprocess.run(
        [sys.executable, "-m", "tests.vllm.checks.restart", backend],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [line for line in child.stdout.splitlines() if line.startswith(_MARK)]
    expect(lines, f"the phase with {backend} ended with {child.returncode}")
    return dict(json.loads(lines[-1][len(_MARK) :]))


def _figures(samples: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "ttft_ms": spread([one["ttft"] for one in samples]),
        "compile_and_first_mask_ms": spread([one["compile"] + one["fill"] for one in samples], 3),
    }


def run() -> dict[str, Any]:
    stock = _run_phase("xgrammar", {"VLLM_PLUGINS": ""})
    with tempfile.TemporaryDirectory() as folder, agents(Path(folder)) as (agent,):
        cold = _run_phase("gramary", agent.worker_environ)
        restarted = _run_phase("gramary", agent.worker_environ)
    after = _figures(restarted["first"])
    return {
        "ok": after["compile_and_first_mask_ms"]["p50"] <= 2.0,
        "sets": SETS,
        "tools": TOOLS,
        "xgrammar_cold": _figures(stock["first"]),
        "xgrammar_warm": _figures(stock["second"]),
        "ours_cold": _figures(cold["first"]),
        "ours_warm": _figures(cold["second"]),
        "ours_after_restart": after,
    }


if __name__ == "__main__":
    print(_MARK + json.dumps(phase(sys.argv[1])), flush=True)
