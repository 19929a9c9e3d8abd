"""Outputs at random, validated: every text that masks allow must satisfy its schema, and nearly no other.

    python -m tests.benchmarks.random_outputs --tokenizer DIR [--data cases.jsonl.gz] [--schemas 500] [--outputs 20]
        [--mutants 0]

Schemas come from a file with one `{"schema": ...}` or tool a line (default: the bundled catalogue). Each is compiled,
and its masks are walked at random (`tests/outputs.py`); what comes out is judged by `tests/judge.py`. With `--mutants`,
so many values that differ a little from each output are judged, and a matcher must accept those that are valid and no
others. (Where the judge is no judge, valid ones are refused: its e-mail addresses and URI templates may hold anything,
it has no formats that are younger than a draft, and an integer of draft 4 may end in `.0`.) Every finding is a line of
JSON as it comes; so is the last line, with the counts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gramary.compiler import CompileError, Compiler, Tokenizer

from ..mutants import plain
from ..outputs import Walker

CATALOGUE = Path(__file__).parents[1] / "data" / "tools.jsonl.gz"


def schemas_of(path: Path, seed: int) -> list[tuple[str, Any]]:
    """The schemas of a file in any order, with their names."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    random.Random(seed).shuffle(cases)
    return [(str(case.get("id") or case.get("name")), case.get("schema", case.get("parameters"))) for case in cases]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--data", type=Path, default=CATALOGUE)
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--outputs", type=int, default=20)
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="the name of one schema")
    arguments = parser.parse_args()
    compiler = Compiler(Tokenizer.from_file(arguments.tokenizer))
    walker = Walker(compiler, arguments.seed)
    counts: Counter[str] = Counter()
    started = time.monotonic()
    # Some of what is drawn is refused: more are drawn until there are enough.
    for name, schema in schemas_of(arguments.data, arguments.seed):
        if counts["schemas"] == arguments.schemas:
            break
        if arguments.only not in (None, name):
            continue
        try:
            grammar = compiler.compile_json_schema(json.dumps(schema), property_order="any")
        except CompileError as error:
            counts[f"refused: {type(error).__name__}"] += 1
            continue
        counts["schemas"] += 1
        values = []
        for output in walker.outputs(grammar, schema, arguments.outputs):
            kind = "wrong" if output.wrong else "valid" if output.ended else "did not end"
            counts[kind] += 1
            if kind == "valid":
                values.append(plain(output.text))
            if output.wrong or not output.ended:
                finding = {
                    "schema": name,
                    kind: output.wrong[:400],
                    "text": output.text.decode("utf-8", "replace")[-2000:],
                }
                print(json.dumps(finding), flush=True)
        for text, valid, accepted in walker.mutants(grammar, schema, values, arguments.mutants * len(values)):
            counts["valid mutants" if valid else "invalid mutants"] += 1
            if valid != accepted:
                kind = "valid refused" if valid else "invalid accepted"
                counts[kind] += 1
                print(json.dumps({"schema": name, kind: text[-2000:]}), flush=True)
        if counts["schemas"] % 50 == 0:
            sys.stderr.write(f"{counts['schemas']} schemas: {dict(counts)}\n")
    print(json.dumps({**counts, "seconds": round(time.monotonic() - started, 1)}))
    return 1 if counts["wrong"] or counts["invalid accepted"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
