"""Where compiled grammars come from: the seam between an engine's backend and whatever compiles.

`LocalSource` compiles in this process. The cluster's client is another `GrammarSource`, which asks the node's store,
peers and the cluster before it does the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from gramary.compiler.compiler import Compiler, PropertyOrder, Whitespace
from gramary.compiler.errors import InvalidSchema
from gramary.runtime._core import CompiledGrammar, Limits, Source

JSON_OBJECT_SCHEMA = '{"type": "object"}'
"""What "any JSON object" is as a schema."""


class Kind(str, Enum):
    """What a specification is written in. Specifications are always text."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF = "ebnf"
    CHOICE = "choice"
    """A JSON list of strings."""
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True)
class CompileOptions:
    """How a specification is compiled. `limits=None`: the kernel's defaults."""

    property_order: PropertyOrder = "declared"
    whitespace: Whitespace = "flexible"
    lenient: bool = False
    limits: Limits | None = None


class Compiled(NamedTuple):
    """A grammar and the dearest tier that was needed for it: "process", "lmdb", "peer", "cluster" or "local"."""

    grammar: CompiledGrammar
    tier: str


class Missing(NamedTuple):
    """What a look into memory found: a specification has so many sources, and these are not there."""

    number: int
    sources: Sequence[Source]


class GrammarSource(Protocol):
    """Compiles specifications for one tokenizer. Used from many threads, never from an engine's own."""

    @property
    def compiler(self) -> Compiler:
        """The compiler whose vocabulary the grammars are for."""

    def at_hand(self, kind: Kind, spec: str, options: CompileOptions) -> Compiled | Missing | None:
        """The grammar of `spec` if putting it together is a matter of look-ups in memory, about a millisecond; else
        what is missing, if that is known. Never waits, and raises nothing: `compile` says what is wrong with `spec`.
        """

    def compile(
        self, kind: Kind, spec: str, options: CompileOptions, *, deadline: float, missing: Missing | None = None
    ) -> Compiled:
        """The grammar of `spec`. `deadline`: on `time.monotonic()`'s clock, when an answer is no use any more.
        `missing`: what `at_hand` told a moment ago, which need not be found out again.

        Raises `CompileError`s.
        """

    def warm(self) -> int:
        """Make ready, at start, what is likely to be asked for; returns how many entries or sources are at hand."""

    def close(self) -> None:
        """Let go of what is held."""


def compile_here(compiler: Compiler, kind: Kind, spec: str, options: CompileOptions) -> CompiledGrammar:
    """Compile with `compiler`, whatever the kind. Raises `CompileError`s."""
    limits = options.limits
    if kind is Kind.JSON_SCHEMA:
        return compiler.compile_json_schema(
            spec,
            property_order=options.property_order,
            whitespace=options.whitespace,
            lenient=options.lenient,
            limits=limits,
        )
    if kind is Kind.REGEX:
        return compiler.compile_regex(spec, limits=limits)
    if kind is Kind.EBNF:
        return compiler.compile_ebnf(spec, limits=limits)
    if kind is Kind.CHOICE:
        return compiler.compile_choice(choices_of(spec), limits=limits)
    return compiler.compile_structural_tag(
        spec,
        property_order=options.property_order,
        whitespace=options.whitespace,
        lenient=options.lenient,
        limits=limits,
    )


def choices_of(spec: str) -> list[str]:
    """The strings of a JSON list; raises `InvalidSchema` if it is none, or empty."""
    try:
        choices = json.loads(spec)
    except (ValueError, RecursionError):
        choices = None
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise InvalidSchema("choices must be a JSON list of at least one string")
    return choices


class LocalSource:
    """Compiles in this process; `entries_path`, a file of `Compiler.save_entries`, spares it mask entries at start."""

    def __init__(self, compiler: Compiler, *, entries_path: Path | None = None) -> None:
        self._compiler = compiler
        self._entries_path = entries_path

    @property
    def compiler(self) -> Compiler:
        return self._compiler

    def at_hand(self, kind: Kind, spec: str, options: CompileOptions) -> Compiled | Missing | None:
        return None

    def compile(
        self, kind: Kind, spec: str, options: CompileOptions, *, deadline: float, missing: Missing | None = None
    ) -> Compiled:
        return Compiled(compile_here(self._compiler, kind, spec, options), "local")

    def warm(self) -> int:
        loaded = 0
        if self._entries_path is not None and self._entries_path.exists():
            loaded = self._compiler.load_entries(self._entries_path)
        return loaded + self._compiler.prewarm()

    def close(self) -> None:
        pass
