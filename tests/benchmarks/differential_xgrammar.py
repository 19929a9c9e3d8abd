"""Structural tags, parameters in every style, tags of models, EBNF: what XGrammar and we accept, and who is right.

    PYTHONPATH=... PYTHON_WITH_XGRAMMAR tests/benchmarks/differential_xgrammar.py
    options: [--tags 1000] [--schemas 100] [--models 4] [--grammars 300] [--seed 1]

XGrammar 0.2.9 must be importable; it lives in an environment of its own. Texts are derived from the format, mutated,
drawn at random, and walked along the masks of both sides. Where the two differ, the slow references of the tests decide
(`tests/structural_tags.py`, `tests/parameter_styles.py`, `tests/ebnf_grammars.py`), and the difference is counted by
cause. The tags that XGrammar builds for its models get schemas on which the two should agree: objects closed, lengths
free. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import permutations, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import xgrammar as xgr
from xgrammar import builtin_structural_tag

from gramary.compiler import CompileError, Compiler, Tokenizer
from tests import ebnf_grammars, parameter_styles
from tests.structural_tags import Generator, derive, matches, mutated, random_texts

LONGEST = 28
BYTES = [bytes([i]) for i in range(256)]


class Theirs:
    def __init__(self) -> None:
        info = xgr.TokenizerInfo([*BYTES, b"</s>"], vocab_type=xgr.VocabType.RAW, stop_token_ids=[256])
        self.compiler = xgr.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def accepts(self, compiled: Any, text: str) -> bool:
        matcher = xgr.GrammarMatcher(compiled)
        return matcher.accept_string(text) and matcher.is_completed()

    def walk(self, compiled: Any, rng: random.Random) -> str:
        matcher = xgr.GrammarMatcher(compiled)
        bitmask = xgr.allocate_token_bitmask(1, 257)
        text = b""
        for _ in range(LONGEST):
            matcher.fill_next_token_bitmask(bitmask)
            words = [int(w) & 0xFFFFFFFF for w in bitmask[0]]
            allowed = [t for t in range(257) if words[t // 32] >> (t % 32) & 1]
            token = _pick(allowed, 256, rng)
            if token is None or not matcher.accept_token(token):
                break
            text += bytes([token])
        return text.decode("utf-8", "ignore")


class Ours:
    def __init__(self) -> None:
        self.compiler = Compiler(Tokenizer.from_bytes())

    def accepts(self, grammar: Any, text: str) -> bool:
        matcher = grammar.matcher()
        return matcher.accept_bytes(text) and matcher.is_complete()

    def walk(self, grammar: Any, rng: random.Random) -> str:
        matcher, text = grammar.matcher(), b""
        for _ in range(LONGEST):
            allowed = [b for b in b'ab<>x1te!"\xc3\xa9-' if matcher.fork().accept_bytes(bytes([b]))]
            if matcher.is_complete():
                allowed.append(256)
            token = _pick(allowed, 256, rng)
            if token is None:
                break
            matcher.accept_bytes(bytes([token]))
            text += bytes([token])
        return text.decode("utf-8", "ignore")


def _pick(allowed: list[int], stop: int, rng: random.Random) -> int | None:
    """One of the allowed bytes, rather one that the generators know; `None` to end."""
    if stop in allowed and rng.random() < 0.3:
        return None
    known = [t for t in allowed if t < 256 and chr(t) in "ab<>x1"]
    choices = known if known and rng.random() < 0.9 else [t for t in allowed if t < 256]
    return rng.choice(choices) if choices else None


def survives(work: Callable[[], object]) -> bool:
    """Whether `work` comes back when it is done in a process of its own; errors are fine, crashes are not."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            signal.alarm(60)
            work()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def cause_of_tag(node: dict[str, Any], text: str, ours: bool, theirs: bool) -> str:
    kinds = set(_kinds(node))
    right = matches(node, text)
    if ours != right:
        return "OURS is wrong"
    if theirs and not right:
        if "dispatch" in kinds:
            return "theirs: text of a dispatch holds the end of the tag around it, or a trigger"
        return "theirs: free text holds an end of a tag around it, an end overlaps its text, or a trigger goes unseen"
    return "theirs: refuses a text that the tag allows (overlapping triggers, ends and excluded strings)"


def cause_of_style(style: str, schema: Any, text: str, ours: bool, theirs: bool) -> str:
    right = parameter_styles.matches(style, schema, text)
    if ours != right:
        return "OURS is wrong"
    without = parameter_styles.without
    if theirs:
        others = schema.get("additionalProperties")
        either = {n: {"anyOf": [s, others]} for n, s in schema["properties"].items()}
        if parameter_styles.matches(style, schema, text, loose=True):
            why = "a kind that is not the value's, or whitespace around a value"
        elif parameter_styles.matches(style, without(schema, "minLength", "maxLength"), text):
            why = "a length is not enforced"
        elif others and _out_of_order(style, {**schema, "properties": either, "required": []}, text):
            why = "a declared name is taken for an undeclared one"
        elif re.search(r'name="[^"]*[\x00-\x1f]', text):
            why = "a control character in a name"
        else:
            why = "other"
        return f"theirs, accepted: {why}"
    if re.search(r"(^|<[a-z]>)[ \n]+(\]<\]minimax\[>\[</|$)", text):
        why = "whitespace alone where nothing need be written"
    elif not parameter_styles.matches(style, _strict(schema), text):
        why = "members of an object that declares none (strict mode)"
    else:
        why = "an escape in a string of bounded length" if "\\" in text else "other"
    return f"theirs, refused: {why}"


def _out_of_order(style: str, schema: dict[str, Any], text: str) -> bool:
    names = permutations(schema["properties"])
    orders = ({**schema, "properties": {n: schema["properties"][n] for n in order}} for order in names)
    return any(parameter_styles.matches(style, s, text, loose=True) for s in orders)


def _strict(schema: Any) -> Any:
    """The same schema where objects without properties have no others."""
    if isinstance(schema, list):
        return [_strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if schema.get("properties") is not None else {}
    return {**more, **{k: _strict(v) for k, v in schema.items()}}


def model_tags(rng: random.Random) -> Iterable[tuple[str, dict[str, Any]]]:
    """What XGrammar builds for each model that it knows, with random tools, all choices and ways of reasoning."""
    parameters = [_closed(parameter_styles.schema(rng)) for _ in range(2)]
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": p}} for i, p in enumerate(parameters)]
    one = {"type": "function", "function": {"name": "f1"}}
    for model in builtin_structural_tag._structural_tag_registry:
        for choice, reasoning in product(["auto", "required", one], ["enabled", "disabled", "auto"]):
            tag = xgr.get_model_structural_tag(model, tools=tools, tool_choice=choice, reasoning=reasoning)
            yield model, json.loads(tag.model_dump_json())


def _closed(schema: Any) -> Any:
    """The same schema without lengths and without properties that it does not declare."""
    if isinstance(schema, list):
        return [_closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {k: _closed(v) for k, v in schema.items() if k not in ("minLength", "maxLength")}
    return {**made, "additionalProperties": False} if made.get("type") == "object" else made


def text_of_model(rng: random.Random, node: dict[str, Any]) -> str:
    """A text of such a tag."""

    def some(least: int, most: int, of: Callable[[], str], between: str = "") -> str:
        return between.join(of() for _ in range(rng.randint(least, most)))

    def tag() -> str:
        return text_of_model(rng, {"type": "tag", **rng.choice(node["tags"])})

    match node["type"]:
        case "const_string":
            return str(node["value"])
        case "regex":
            return "12"
        case "any_text":
            return rng.choice(["", "hi", "a <b", "x\n"])
        case "json_schema":
            value = parameter_styles.instance(rng, node["json_schema"])
            value = value if isinstance(value, parameter_styles.Pairs) else parameter_styles.Pairs()
            style = node["style"]
            return parameter_styles.to_json(value) if style == "json" else parameter_styles.write(style, value)
        case "sequence":
            return "".join(text_of_model(rng, e) for e in node["elements"])
        case "or":
            return text_of_model(rng, rng.choice(node["elements"]))
        case "optional" | "star" | "plus" as kind:
            least, most = {"optional": (0, 1), "star": (0, 2), "plus": (1, 2)}[kind]
            return some(least, most, lambda: text_of_model(rng, node["content"]))
        case "tag":
            end = node["end"] if isinstance(node["end"], str) else rng.choice(node["end"])
            return str(node["begin"]) + text_of_model(rng, node["content"]) + end
        case "tags_with_separator":
            return some(1, 1 if node["stop_after_first"] else 2, tag, node["separator"])
        case "triggered_tags":
            tags = some(int(node["at_least_one"]), 1 if node["stop_after_first"] else 2, tag)
            return tags if node["at_least_one"] else rng.choice(["", "hello "]) + tags
    raise ValueError(node["type"])


def _kinds(node: Any) -> Iterable[str]:
    if isinstance(node, dict):
        if "type" in node and isinstance(node["type"], str):
            yield node["type"]
        for value in node.values():
            yield from _kinds(value)
    elif isinstance(node, list):
        for value in node:
            yield from _kinds(value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tags", type=int, default=1000)
    parser.add_argument("--schemas", type=int, default=100, help="for each style of parameters")
    parser.add_argument("--models", type=int, default=4, help="sets of tools for each model")
    parser.add_argument("--grammars", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    theirs, ours = Theirs(), Ours()
    counts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    examples: dict[str, Any] = {}

    def compare(
        name: str, source: Any, texts: Iterable[str], mine: Any, other: Any, cause: Any, longest: int = LONGEST
    ) -> None:
        for text in sorted({t for t in texts if len(t) <= longest}):
            a, b = ours.accepts(mine, text), theirs.accepts(other, text)
            counts[f"{name}: texts"] += 1
            counts[f"{name}: accepted by both"] += a and b
            if a != b:
                why = cause(text, a, b)
                causes[f"{name}: {why}"] += 1
                examples.setdefault(f"{name}: {why}", {"source": source, "text": text, "ours": a, "theirs": b})

    rng = random.Random(options.seed)
    while counts["tags"] < options.tags:
        node = Generator(rng).format()
        tag = {"type": "structural_tag", "format": node}
        text = json.dumps(tag)
        if not survives(lambda t=text: theirs.accepts(theirs.compiler.compile_structural_tag(t), "a")):  # type: ignore[misc]
            counts["tags"] += 1
            counts["tags: they crash"] += 1
            examples.setdefault("tags: they crash", {"source": node})
            continue
        try:
            mine = ours.compiler.compile_structural_tag(tag)
        except CompileError as error:
            mine, reason = None, type(error).__name__
        try:
            other = theirs.compiler.compile_structural_tag(text)
        except RuntimeError as error:
            other = None
            refused = re.sub(r"^\[.*?\] \S+ ", "", str(error).strip().splitlines()[-1])
            refused = refused.split("error:")[-1].strip()[:90]
        counts["tags"] += 1
        if mine is None or other is None:
            key = (
                f"refused by both ({reason})"
                if mine is None and other is None
                else (f"refused by us: {reason}" if mine is None else f"refused by them: {refused}")
            )
            counts[f"tags {key}"] += 1
            continue
        texts = [derive(rng, node) for _ in range(10)]
        texts += [mutated(rng, t) for t in texts] + random_texts(rng, 8)
        texts += [ours.walk(mine, rng) for _ in range(6)] + [theirs.walk(other, rng) for _ in range(6)]
        compare("tags", node, texts, mine, other, lambda t, a, b, n=node: cause_of_tag(n, t, a, b))
    for style, i in [(s, i) for s in parameter_styles.STYLES for i in range(options.schemas)]:
        own = random.Random(f"{style} {options.seed} {i}")
        schema = parameter_styles.schema(own)
        tag = {
            "type": "structural_tag",
            "format": {"type": "json_schema", "json_schema": schema, "style": style},
        }
        counts["styles: schemas"] += 1
        try:
            mine = ours.compiler.compile_structural_tag(tag)
            other = theirs.compiler.compile_structural_tag(json.dumps(tag))
        except CompileError as error:
            counts[f"styles refused by us: {style}: {error.reason}"] += 1  # type: ignore[attr-defined]
            continue
        except RuntimeError as error:
            counts[f"styles refused by them: {style}: {str(error).strip().splitlines()[-1][-60:]}"] += 1
            continue
        written = [parameter_styles.instance(own, schema) for _ in range(10)]
        texts = [parameter_styles.write(style, v) for v in written if isinstance(v, parameter_styles.Pairs)]
        texts += [parameter_styles.mutated(own, t) for t in texts]
        compare(
            "styles",
            schema,
            texts,
            mine,
            other,
            lambda t, a, b, s=style, of=schema: cause_of_style(s, of, t, a, b),
            longest=1000,
        )
    for i in range(options.models):
        own = random.Random(f"models {options.seed} {i}")
        for model, tag in model_tags(own):
            counts["models: tags"] += 1
            mine = ours.compiler.compile_structural_tag(tag)
            other = theirs.compiler.compile_structural_tag(json.dumps(tag))
            texts = [text_of_model(own, tag["format"]) for _ in range(4)]
            texts += [parameter_styles.mutated(own, t) for t in texts]
            compare("models", tag, texts, mine, other, lambda t, a, b, m=model: f"{m}, ours {a}", longest=5000)
    while counts["grammars"] < options.grammars:
        grammar = ebnf_grammars.random_grammar(rng)
        source = grammar.text()
        counts["grammars"] += 1
        if not survives(lambda s=source: theirs.accepts(theirs.compiler.compile_grammar(s), "a")):  # type: ignore[misc]
            counts["grammars: they crash"] += 1
            examples.setdefault("grammars: they crash", {"source": source})
            continue
        try:
            mine = ours.compiler.compile_ebnf(source)
        except CompileError as error:
            mine, reason = None, type(error).__name__
        try:
            other = theirs.compiler.compile_grammar(source)
        except RuntimeError as error:
            other, refused = None, re.sub(r"^.*error at line \S+, column \S+ ", "", str(error).strip().splitlines()[-1])
        if mine is None or other is None:
            counts[f"grammars refused by us: {reason}" if mine is None else f"grammars refused by them: {refused}"] += 1
            continue
        texts = ebnf_grammars.texts_of(grammar, rng, 12)
        texts += [ours.walk(mine, rng) for _ in range(6)] + [theirs.walk(other, rng) for _ in range(6)]
        short = [t for t in texts if len(t) <= 14]
        compare(
            "grammars",
            source,
            short,
            mine,
            other,
            lambda t, a, b, g=grammar: "OURS is wrong" if g.accepts(t) != a else "theirs",
        )
    for key, n in sorted(counts.items()) + sorted(causes.items()):
        print(f"{n:8} {key}")
    for key, example in sorted(examples.items()):
        print(f"\n{key}\n  {json.dumps(example, ensure_ascii=False)}")
    print(json.dumps({"counts": counts, "disagreements": causes}))


if __name__ == "__main__":
    main()
