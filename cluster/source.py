"""What the command line reads: sources of every kind, instances, tokenizers, from files or standard input."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from gramary.compiler import Compiler, Limits, Tokenizer
from gramary.compiler.compiler import OnError, PropertyOrder, Whitespace
from gramary.runtime import CompiledGrammar


class Kind(str, Enum):
    """What a source is written in."""

    SCHEMA = "schema"
    REGEX = "regex"
    TOOLS = "tools"
    IR = "ir"


class InputError(Exception):
    """A file that cannot be read, or is not what the command needs. The message says which, and what would do."""


@dataclass(frozen=True)
class Source:
    """A source as text; tools are always a JSON list by now."""

    name: str
    kind: Kind
    text: str


@dataclass(frozen=True)
class Options:
    """How sources are compiled, from the command line's options."""

    property_order: PropertyOrder = "declared"
    whitespace: Whitespace = "flexible"
    lenient: bool = False
    on_error: OnError = "raise"
    limits: Limits | None = None


@dataclass(frozen=True)
class Case:
    """A schema and texts with the verdict they should get."""

    name: str
    schema: str
    instances: list[tuple[str, bool]]


def read_bytes(path: str) -> bytes:
    """The content of a file, unpacked if its name ends in .gz; "-" is standard input."""
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        data = Path(path).read_bytes()
        return gzip.decompress(data) if path.endswith(".gz") else data
    except (OSError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path} cannot be read: {reason}") from error


def read_text(path: str) -> str:
    """Like `read_bytes`, for UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start} starts no character") from error


def read_source(path: str, kind: Kind | None) -> Source:
    """A source of the given kind, or of the kind that its name and shape show."""
    text = read_text(path)
    if kind is None:
        kind = _kind_of(path, text)
    if kind is Kind.TOOLS and _has_lines(path):
        text = "[" + ",".join(line for line in text.splitlines() if line.strip()) + "]"
    if kind is Kind.REGEX:
        text = text.removesuffix("\n")
    return Source(path, kind, text)


def _suffix(path: str) -> str:
    return Path(path.removesuffix(".gz")).suffix.lower()


def _has_lines(path: str) -> bool:
    return _suffix(path) in (".jsonl", ".ndjson")


def _kind_of(path: str, text: str) -> Kind:
    if _has_lines(path):
        return Kind.TOOLS
    if _suffix(path) in (".re", ".regex"):
        return Kind.REGEX
    if path == "-" or _suffix(path) == ".json":
        return Kind.TOOLS if text.lstrip().startswith("[") else Kind.SCHEMA
    raise InputError(f"{path}: its name does not say what it is; add --kind schema, regex, tools or ir")


def compile_source(compiler: Compiler, source: Source, options: Options) -> CompiledGrammar:
    """Compile a source of any kind."""
    if source.kind is Kind.REGEX:
        return compiler.compile_regex(source.text, limits=options.limits)
    if source.kind is Kind.IR:
        return compiler.compile_ir(source.text, limits=options.limits)
    common: dict[str, Any] = {
        "property_order": options.property_order,
        "whitespace": options.whitespace,
        "lenient": options.lenient,
        "limits": options.limits,
    }
    if source.kind is Kind.TOOLS:
        return compiler.compile_tools(source.text, on_error=options.on_error, **common)
    return compiler.compile_json_schema(source.text, **common)


def load_tokenizer(path: str | None) -> Tokenizer:
    """The tokenizer at `path`; without one, the 256 bytes and an end token, which serve where only the text matters."""
    if path is None:
        return Tokenizer.from_bytes()
    if not Path(path).exists():
        raise InputError(f"{path}: no such tokenizer; name a tokenizer.json, tekken or tiktoken file, or its folder")
    return Tokenizer.from_file(path)


def read_cases(path: str, instances: list[str]) -> Iterator[Case]:
    """Schemas with their instances.

    A `.jsonl` file has one case a line: `{"schema", "tests": [{"data" or "text", "valid"}]}` or a tool
    `{"name", "parameters", "call"}`. Any other file is one schema, and `instances` are files with texts that match it.
    """
    if not _has_lines(path):
        yield Case(path, read_text(path), [(read_text(instance), True) for instance in instances])
        return
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield _case(path, number, json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{path}:{number} is not a case: a JSON object with schema and tests, or with name, parameters and call"
            ) from error


def _case(path: str, number: int, entry: dict[str, Any]) -> Case:
    if "schema" in entry:
        tests = [
            (test["text"] if "text" in test else json.dumps(test["data"], ensure_ascii=False), bool(test["valid"]))
            for test in entry.get("tests", [])
        ]
        return Case(str(entry.get("id", f"{path}:{number}")), json.dumps(entry["schema"]), tests)
    call = entry.get("call")
    texts = [] if call is None else [(json.dumps(call, ensure_ascii=False), True)]
    return Case(entry["name"], json.dumps(entry["parameters"]), texts)
