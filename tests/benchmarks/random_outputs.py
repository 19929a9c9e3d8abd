"""Outputs at random, validated: every text that masks allow must satisfy its schema.

    python -m tests.benchmarks.random_outputs --tokenizer DIR [--data cases.jsonl.gz] [--schemas 500] [--outputs 20]

Schemas come from a file with one `{"schema": ...}` or tool a line (default: the bundled catalogue). Each is compiled,
and its masks are walked at random, in favour of what closes strings and containers once a text is long. The judge is
`jsonschema`, with decimals parsed exactly and its format checkers on. Its patterns are Python's: a schema whose
patterns Python reads otherwise than ECMA-262 may be reported by mistake. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import numpy.typing as npt

from gramary.compiler import CompileError, Compiler, Tokenizer
from gramary.runtime import CompiledGrammar, tokens_of

CATALOGUE = Path(__file__).parents[1] / "data" / "tools.jsonl.gz"
LONG = 40
"""Tokens after which a text is to come to its end."""
MOST = 400


def is_integer(_: Any, value: Any) -> bool:
    """1.0 is one, whatever the draft: so are our grammars."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, Decimal) and value == value.to_integral_value())


def judge_of(schema: Any) -> Any:
    """The validator of a schema, by its draft."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    draft = jsonschema.validators.validator_for(exact, default=jsonschema.Draft202012Validator)
    checker = draft.TYPE_CHECKER.redefine("integer", is_integer)
    return jsonschema.validators.extend(draft, type_checker=checker)(exact, format_checker=draft.FORMAT_CHECKER)


class Walker:
    """Writes texts that masks allow."""

    def __init__(self, compiler: Compiler, seed: int) -> None:
        vocabulary = compiler.vocabulary
        self.chance = random.Random(seed)
        self.row = np.zeros((compiler.vocab_size + 31) // 32, np.int32)
        texts = [vocabulary.token_bytes(token) for token in range(len(vocabulary))]
        self.texts = texts
        self.stops = np.isin(np.arange(len(texts)), compiler.stop_token_ids)
        self.closing = np.array([text in (b'"', b"]", b"}", b'"}', b'"]', b"}]", b"]}") for text in texts])
        self.flat = np.array([b"{" not in text and b"[" not in text for text in texts])
        self.short = np.array([0 < len(text) <= 2 for text in texts])

    def text(self, grammar: CompiledGrammar) -> bytes | None:
        """One text; None: it did not end. Raises `AssertionError` where nothing may follow."""
        matcher = grammar.matcher()
        written = bytearray()
        for step in range(MOST):
            assert matcher.fill_bitmask(self.row), f"nothing may follow {bytes(written)!r}"
            allowed = tokens_of(self.row)
            if matcher.is_complete() and (step > LONG or self.chance.random() < 0.3):
                return bytes(written)
            token = self._choice(allowed[~self.stops[allowed]], step > LONG)
            if token is None:
                return bytes(written)
            assert matcher.accept_token(token), f"token {token} is in the mask after {bytes(written)!r}"
            written += self.texts[token]
        return None

    def _choice(self, allowed: npt.NDArray[np.intp], end: bool) -> int | None:
        if not len(allowed):
            return None
        wanted = []
        if end or self.chance.random() < 0.2:
            wanted.append(self.closing)
        if self.chance.random() < 0.5:
            wanted.append(self.short)
        if end:
            allowed = allowed[self.flat[allowed]] if self.flat[allowed].any() else allowed
        for kind in wanted:
            some = allowed[kind[allowed]]
            if len(some):
                return int(some[self.chance.randrange(len(some))])
        return int(allowed[self.chance.randrange(len(allowed))])


def schemas_of(path: Path, number: int, seed: int) -> list[tuple[str, Any]]:
    """So many schemas of a file, with their names."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    random.Random(seed).shuffle(cases)
    named = [(str(case.get("id") or case.get("name")), case.get("schema", case.get("parameters"))) for case in cases]
    return named[:number]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--data", type=Path, default=CATALOGUE)
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--outputs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    compiler = Compiler(Tokenizer.from_file(arguments.tokenizer))
    walker = Walker(compiler, arguments.seed)
    counts: Counter[str] = Counter()
    findings: list[dict[str, str]] = []
    # Some of what is drawn is refused: more are drawn until there are enough.
    for name, schema in schemas_of(arguments.data, 2 * arguments.schemas, arguments.seed):
        if counts["schemas"] == arguments.schemas:
            break
        try:
            grammar = compiler.compile_json_schema(json.dumps(schema), property_order="any")
        except CompileError as error:
            counts[f"refused: {type(error).__name__}"] += 1
            continue
        counts["schemas"] += 1
        judge = judge_of(schema)
        for _ in range(arguments.outputs):
            try:
                text = walker.text(grammar)
                if text is None:
                    counts["did not end"] += 1
                    continue
                error = next(judge.iter_errors(json.loads(text, parse_float=Decimal)), None)
                why = "" if error is None else f"{error.validator} at {error.json_path}: {error.message[:200]}"
            except (AssertionError, ValueError) as error:
                text, why = b"", f"{type(error).__name__}: {error}"
            counts["valid" if not why else "wrong"] += 1
            if why:
                findings.append({"schema": name, "text": text.decode("utf-8", "replace")[:400], "why": why})
        if sys.stderr.isatty() or counts["schemas"] % 100 == 0:
            sys.stderr.write(f"\r{counts['schemas']} schemas, {counts['valid']} valid, {counts['wrong']} wrong\n")
    print(json.dumps({**counts, "findings": findings[:40]}))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
