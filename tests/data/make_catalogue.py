"""Make `tools.jsonl.gz`, the bundled catalogue of real tools, from the wheel of the PyPI package `bfcl-eval`.

    pip download --no-deps bfcl-eval==2026.3.23
    python tests/data/make_catalogue.py bfcl_eval-2026.3.23-py3-none-any.whl

One JSON object a line: `{"name", "parameters", "call"}`. `parameters` is the tool's schema as JSON Schema, its
descriptions kept; `call` is one valid call of it, its keys in declared order, or null where the data has no usable
answer. The result depends on the wheel alone. See NOTICE for where the data comes from and under which licence.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

OUT = Path(__file__).with_name("tools.jsonl.gz")
MAX_BYTES = 390_000

# The data's type names, which are those of Python, Java and JavaScript, as JSON Schema's. None: any value.
TYPES: dict[str, str | None] = {
    "dict": "object",
    "HashMap": "object",
    "object": "object",
    "float": "number",
    "double": "number",
    "number": "number",
    "integer": "integer",
    "long": "integer",
    "string": "string",
    "String": "string",
    "char": "string",
    "boolean": "boolean",
    "Boolean": "boolean",
    "array": "array",
    "Array": "array",
    "ArrayList": "array",
    "tuple": "array",
    "any": None,
    "": None,
}
KEPT = ("description", "enum", "default", "format", "minimum", "maximum", "minItems", "maxItems")


class UnusableError(Exception):
    """The tool's schema has no sound reading as JSON Schema."""


def normalised(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` with JSON Schema's type names, and without keys that JSON Schema does not know."""
    kind = schema.get("type", "any")
    if kind not in TYPES:
        raise UnusableError(f"type {kind!r}")
    out: dict[str, Any] = {} if TYPES[kind] is None else {"type": TYPES[kind]}
    out |= {key: schema[key] for key in KEPT if key in schema}
    if isinstance(schema.get("items"), dict):
        out["items"] = normalised(schema["items"])
    if out.get("type") == "object" and isinstance(schema.get("properties"), dict):
        out["properties"] = {name: normalised(sub) for name, sub in schema["properties"].items()}
        required = schema.get("required")
        if isinstance(required, list) and required:
            out["required"] = list(dict.fromkeys(required))
    if "enum" in out and not any(jsonschema.Draft202012Validator(out).is_valid(value) for value in out["enum"]):
        raise UnusableError("an enum of which no value has the type")
    return out


def chosen(value: Any, schema: dict[str, Any]) -> Any:
    """One answer from the data's nested lists of acceptable values; they are nested wherever the schema has an
    object.
    """
    if schema.get("type") == "object" and isinstance(value, dict):
        return arguments(value, schema)
    if schema.get("type") == "array" and isinstance(value, list):
        return [chosen(item, schema.get("items", {})) for item in value]
    return value


def arguments(answer: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The call's arguments in declared order; the value "" in the data says that the argument may be left out."""
    properties = schema.get("properties", {})
    if not set(answer) <= set(properties):
        raise UnusableError("an argument that is not declared")
    out = {}
    for name, sub in properties.items():
        options = answer.get(name, [])
        options = [options] if not isinstance(options, list) else options
        options = [option for option in options if option != ""]
        if options:
            out[name] = chosen(options[0], sub)
    return out


def lines(wheel: zipfile.ZipFile, path: str) -> Iterator[dict[str, Any]]:
    for line in wheel.read(path).decode().splitlines():
        yield json.loads(line)


def tools(wheel: zipfile.ZipFile) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Every tool of the data with the answers given for its question; empty where there is none."""
    present = set(wheel.namelist())
    for path in sorted(present):
        if re.fullmatch(r"bfcl_eval/data/multi_turn_func_doc/\w+\.json", path):
            for tool in lines(wheel, path):
                yield tool, []
        if not re.fullmatch(r"bfcl_eval/data/BFCL_v4_\w+\.json", path) or "format_sensitivity" in path:
            continue
        answer_path = path.replace("/data/", "/data/possible_answer/")
        answers = {}
        if answer_path in present:
            answers = {entry["id"]: entry["ground_truth"] for entry in lines(wheel, answer_path)}
        for entry in lines(wheel, path):
            for tool in entry.get("function", []):
                yield tool, answers.get(entry["id"], [])


def catalogue(wheel: zipfile.ZipFile) -> list[dict[str, Any]]:
    """One entry a name: the first with a valid call, else the first. Those with a call come first."""
    best: dict[str, dict[str, Any]] = {}
    for tool, answers in tools(wheel):
        name = tool["name"]
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) or (name in best and best[name]["call"] is not None):
            continue
        try:
            parameters = normalised(tool["parameters"])
        except UnusableError:
            continue
        call = None
        for answer in answers:
            if isinstance(answer, dict) and isinstance(answer.get(name), dict):
                try:
                    candidate = arguments(answer[name], parameters)
                except UnusableError:
                    continue
                if jsonschema.Draft202012Validator(parameters).is_valid(candidate):
                    call = candidate
                    break
        if name not in best or call is not None:
            best[name] = {"name": name, "parameters": parameters, "call": call}
    return sorted(best.values(), key=lambda tool: (tool["call"] is None, tool["name"]))


def packed(entries: list[dict[str, Any]]) -> bytes:
    text = "".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n" for entry in entries)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def main() -> None:
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        entries = catalogue(wheel)
    while len(packed(entries)) > MAX_BYTES:
        entries = entries[: len(entries) - 10]
    OUT.write_bytes(packed(entries))
    calls = sum(entry["call"] is not None for entry in entries)
    print(f"{OUT.name}: {len(entries)} tools, {calls} with a call, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
