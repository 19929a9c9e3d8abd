"""Runs checks, each in a process of its own, and prints what they found: `python -m tests.vllm.main [CHECK...]`.

The last line is JSON: `{"checks": {NAME: {"ok": bool, ...figures}}}`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
import traceback

CHECKS = {
    "kinds": "every kind of request, tools, streaming, 50 at once",
    "nodes": "two engine cores as two nodes: compiled once",
    "restart": "100 tools: time to first token, cold and after a restart, against xgrammar",
    "faults": "the cluster killed, hanging, corrupt: no request notices",
    "bomb": "a schema bomb beside 16 requests",
    "throughput": "constrained against unconstrained; our time per token",
}
_MARK = "CHECK RESULT "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; none: all")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.checks) - set(CHECKS)
    if unknown:
        parser.error(f"no such check: {min(unknown)}; there are {', '.join(CHECKS)}")
    if options.one:
        return _one(options.checks[0])
    results = {}
    for name in options.checks or CHECKS:
        print(f"== {name}: {CHECKS[name]}", file=sys.stderr, flush=True)
        start = time.monotonic()
        child = subprocess.run(
            [sys.executable, "-m", "tests.vllm.main", "--one", name], stdout=subprocess.PIPE, text=True
        )
        lines = [line for line in child.stdout.splitlines() if line.startswith(_MARK)]
        result = json.loads(lines[-1][len(_MARK) :]) if lines else {"ok": False, "error": f"exit {child.returncode}"}
        results[name] = {**result, "seconds": round(time.monotonic() - start, 1)}
        print(json.dumps({name: results[name]}, indent=1), file=sys.stderr, flush=True)
    print(json.dumps({"checks": results}))
    return 0 if all(result["ok"] for result in results.values()) else 1


def _one(name: str) -> int:
    from tests.vllm.checks.common import Failed

    try:
        result = importlib.import_module(f"tests.vllm.checks.{name}").run()
    except Failed as error:
        result = {"ok": False, "error": str(error), **error.figures}
    except Exception:
        result = {"ok": False, "error": traceback.format_exc(limit=5)}
    print(_MARK + json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
