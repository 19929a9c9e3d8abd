"""`Compiler`: sources in, compiled grammars out, everything compiled before remembered by structure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gramary.compiler.sources import registry_text, schema_of, tools_of
from gramary.compiler.tokenizer import Tokenizer
from gramary.runtime._core import CompiledGrammar, Limits, Vocabulary
from gramary.runtime._core import Compiler as _Compiler

if TYPE_CHECKING:
    from gramary.compiler.structural_tag import StructuralTag

PropertyOrder = Literal["declared", "any"]
OnError = Literal["raise", "drop", "any_json"]
Whitespace = Literal["flexible", "compact"]
Draft = Literal["4", "6", "7", "2019-09", "2020-12"]

#: Bytes of whitespace in a row that matchers allow outside of strings: a newline and an indent of 4 to depth 16.
MAX_WHITESPACE = 65
#: Digits in a row that matchers allow outside of strings.
MAX_DIGITS = 128

_DEFAULT_CACHE_BYTES = 1 << 30


class Compiler:
    """Compiles sources for one tokenizer, and keeps what it built: units and mask entries, shared by every later
    source.

    `tokenizer` is a `Tokenizer` or a bare `Vocabulary`. `vocab_size` is the width of the model's logits where that is
    more than the tokenizer has (padding is never allowed); `stop_token_ids` end a text; both default to what the
    tokenizer says. `cache_bytes` bounds the memory kept for units and entries. A compiler may be used from many
    threads.

    >>> compiler = Compiler(Tokenizer.from_bytes())
    >>> grammar = compiler.compile_json_schema({"type": "array", "items": {"type": "integer"}})
    >>> matcher = grammar.matcher()
    >>> matcher.accept_bytes(b"[1, 2"), matcher.accept_bytes(b"x"), matcher.accept_bytes(b"]"), matcher.is_complete()
    (True, False, True, True)
    """

    def __init__(
        self,
        tokenizer: Tokenizer | Vocabulary,
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
        cache_bytes: int = _DEFAULT_CACHE_BYTES,
    ) -> None:
        if isinstance(tokenizer, Vocabulary):
            vocabulary, known_stops = tokenizer, tuple[int, ...]()
            size = len(vocabulary) if vocab_size is None else vocab_size
        else:
            vocabulary, known_stops = tokenizer.vocabulary, tuple(tokenizer.stop_token_ids)
            size = tokenizer.model_vocab_size if vocab_size is None else vocab_size
        self.vocabulary = vocabulary
        self.vocab_size = size
        self.stop_token_ids = known_stops if stop_token_ids is None else tuple(stop_token_ids)
        self._core = _Compiler(
            vocabulary, vocab_size=size, stop_token_ids=list(self.stop_token_ids), cache_bytes=cache_bytes
        )

    def compile_json_schema(
        self,
        schema: str | bytes | bool | Mapping[str, Any] | type | Any,
        *,
        property_order: PropertyOrder = "declared",
        whitespace: Whitespace = "flexible",
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        max_whitespace: int | None = MAX_WHITESPACE,
        max_digits: int | None = MAX_DIGITS,
        ensure_ascii: bool = False,
        draft: Draft | None = None,
        registry: Mapping[str, Any] | None = None,
        lenient: bool = False,
        limits: Limits | None = None,
    ) -> CompiledGrammar:
        """The JSON texts that `schema` allows.

        `schema`: JSON text, a dict, a bool, or what Pydantic can describe (a model or a `TypeAdapter`; a dataclass, a
        `TypedDict` or another annotation where Pydantic is installed); `gramary.compiler.sources` has OpenAPI. `draft`
        overrides `$schema`. `registry` has the other documents that references may lead to: a mapping of URIs to
        schemas, or a `referencing.Registry`; nothing is ever fetched.

        `property_order`: objects spell their properties in the order of `properties`, or in any. `whitespace`:
        "flexible" takes what `json.dumps` writes, with or without indent, at most `max_whitespace` bytes in a row;
        "compact" takes none. `indent` and `separators` ask for exactly what `json.dumps` writes with them.
        `max_digits` bounds the digits in a row. `ensure_ascii`: nothing but ASCII, other characters as escapes.
        `docs/json-schema.md` has the details.

        `lenient=True` turns what cannot be enforced into `CompiledGrammar.warnings`.

        Raises `InvalidSchema`, `UnsupportedSchema`, `UnsatisfiableSchema` or `LimitExceeded`.

        >>> from gramary.compiler import UnsatisfiableSchema
        >>> try:
        ...     Compiler(Tokenizer.from_bytes()).compile_json_schema({"type": "integer", "minimum": 3, "maximum": 2})
        ... except UnsatisfiableSchema as error:
        ...     print("nothing can match")
        nothing can match
        """
        return self._core.compile_json_schema(
            schema_of(schema),
            property_order=property_order,
            whitespace=whitespace,
            indent=indent,
            separators=separators,
            max_whitespace=max_whitespace,
            max_digits=max_digits,
            ensure_ascii=ensure_ascii,
            draft=draft,
            registry=None if registry is None else registry_text(registry),
            lenient=lenient,
            limits=limits,
        )

    def compile_regex(self, pattern: str, *, limits: Limits | None = None) -> CompiledGrammar:
        """The texts that `pattern` matches as a whole. Raises `InvalidPattern`, `UnsupportedSchema` or `LimitExceeded`.

        >>> matcher = Compiler(Tokenizer.from_bytes()).compile_regex("[a-f]{2,4}").matcher()
        >>> matcher.accept_bytes(b"abc"), matcher.is_complete(), matcher.accept_bytes(b"de")
        (True, True, False)
        """
        return self._core.compile_regex(pattern, limits=limits)

    def compile_ebnf(self, grammar: str, *, root: str = "root", limits: Limits | None = None) -> CompiledGrammar:
        """The texts of an EBNF grammar (the superset of GBNF in `docs/ebnf.md`), from its rule `root` on.

        Raises `InvalidGrammar` with line and column, `UnsupportedSchema`, `UnsatisfiableSchema` or `LimitExceeded`.

        >>> grammar = Compiler(Tokenizer.from_bytes()).compile_ebnf('root ::= "a" root "b" | ""')
        >>> matcher = grammar.matcher()
        >>> matcher.accept_bytes(b"aab"), matcher.is_complete(), matcher.accept_bytes(b"b"), matcher.is_complete()
        (True, False, True, True)
        """
        return self._core.compile_ebnf(grammar, root=root, limits=limits)

    def compile_choice(self, choices: Sequence[str], *, limits: Limits | None = None) -> CompiledGrammar:
        """One of `choices`, exactly. Raises `InvalidGrammar` if there is none.

        >>> matcher = Compiler(Tokenizer.from_bytes()).compile_choice(["yes", "no", "not sure"]).matcher()
        >>> matcher.accept_bytes(b"no"), matcher.is_complete(), matcher.accept_bytes(b"t s"), matcher.is_complete()
        (True, True, True, False)
        """
        if isinstance(choices, str):
            raise TypeError("choices is a list of strings, not one string")
        unique = list(dict.fromkeys(choices))
        return self._core.compile_choice(json.dumps(unique, ensure_ascii=False), limits=limits)

    def compile_structural_tag(
        self,
        tag: str | bytes | Mapping[str, Any] | StructuralTag,
        *,
        forbid_spelled_markers: bool = True,
        property_order: PropertyOrder = "declared",
        whitespace: Whitespace = "flexible",
        lenient: bool = False,
        limits: Limits | None = None,
    ) -> CompiledGrammar:
        """Free text with constrained parts, described in the language that serving engines share
        (`docs/structural-tags.md`).

        `tag`: JSON text, a dict, or a model of `gramary.compiler.structural_tag`. Schemas inside are sources of their
        own: one that was compiled before, in whatever tag, costs a look-up by its text. `forbid_spelled_markers`
        keeps free text from spelling out special tokens that the tag uses. The other options hold for every schema.

        Raises `InvalidGrammar` with a pointer into the tag, `UnsupportedSchema`, `UnsatisfiableSchema` or
        `LimitExceeded`.

        >>> compiler = Compiler(Tokenizer.from_bytes())
        >>> call = {"type": "tag", "begin": "<f>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</f>"}
        >>> tag = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f"], "tags": [call]}}
        >>> matcher = compiler.compile_structural_tag(tag).matcher()
        >>> matcher.accept_bytes("See <f>12</f> and"), matcher.accept_bytes(" <f>x")
        (True, False)
        """
        dumped = getattr(tag, "model_dump_json", None)
        source: Any = dumped(by_alias=True, exclude_none=True) if dumped is not None else tag
        return self._core.compile_structural_tag(
            source,
            forbid_spelled_markers=forbid_spelled_markers,
            property_order=property_order,
            whitespace=whitespace,
            lenient=lenient,
            limits=limits,
        )

    def compile_ir(self, ir: str, *, limits: Limits | None = None) -> CompiledGrammar:
        """A grammar in the JSON form of the kernel's intermediate representation (`docs/api.md`)."""
        return self._core.compile_ir(ir, limits=limits)

    def compile_tools(
        self,
        tools: str | bytes | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        begin: str = "<function={name}>",
        end: str = "</function>",
        trigger: str | None = None,
        stops: Sequence[str] = (),
        min_calls: int = 0,
        max_calls: int | None = None,
        stop_after_last: bool = False,
        on_error: OnError = "raise",
        property_order: PropertyOrder = "declared",
        whitespace: Whitespace = "flexible",
        lenient: bool = False,
        limits: Limits | None = None,
        **layout: Any,
    ) -> CompiledGrammar:
        """Free text in which `tools` may be called, each call's arguments held to its tool's schema.

        `tools`: JSON text of a list, or a list, of `{"name": ..., "parameters": schema}` or OpenAI's
        `{"type": "function", "function": {...}}`, or MCP's `inputSchema`, or MCP's whole answer to `tools/list`
        (`gramary.compiler.sources` has OpenAPI operations). A call is `begin` with the tool's name in it, the
        arguments, `end`.
        Text is free until `trigger` (what precedes `{name}` in `begin`) has been written. At least `min_calls` and at
        most `max_calls` calls are made; `stop_after_last` ends the text with the last of them; a text of `stops` ends
        it anywhere between calls. `docs/tools.md` has the rules where triggers overlap. `layout` takes the options of
        `compile_json_schema` from `indent` to `registry`, for the arguments of every call.

        One bad tool among many: `on_error="raise"` raises `ToolError` with its index, name and pointer; "drop" leaves
        it out and "any_json" lets it take any JSON object, and both list it in `CompiledGrammar.dropped_tools`. Two
        tools of one name are always an error.

        >>> compiler = Compiler(Tokenizer.from_bytes())
        >>> grammar = compiler.compile_tools([{"name": "now", "parameters": {"type": "object", "properties": {}}}])
        >>> matcher = grammar.matcher()
        >>> matcher.accept_bytes("Sure. <function=now>{}</function> Done"), matcher.accept_bytes("<function=never>")
        (True, False)
        """
        return self._core.compile_tools(
            tools_of(tools),
            begin=begin,
            end=end,
            trigger=trigger,
            stops=stops,
            min_calls=min_calls,
            max_calls=max_calls,
            stop_after_last=stop_after_last,
            on_error=on_error,
            property_order=property_order,
            whitespace=whitespace,
            lenient=lenient,
            limits=limits,
            **_layout(layout),
        )

    def compile_tags(
        self, tags: Sequence[tuple[str, Any, str]], triggers: Sequence[str], **options: Any
    ) -> CompiledGrammar:
        """Free text with tags: `(begin, JSON schema, end)`, each begin starting with one of `triggers`.

        `options` are those of `compile_tools` from `stops` on.
        """
        return self._core.compile_tags(tags, triggers, **_layout(options))

    @property
    def core(self) -> _Compiler:
        """The kernel's compiler, for those that exchange units and mask entries between processes."""
        return self._core

    def prewarm(self) -> int:
        """Build the mask entries that every source shares (strings, numbers, any JSON, free text) and return how
        many.
        """
        return self._core.prewarm()

    def save_entries(self, path: str | Path) -> int:
        """Keep the mask entries built so far in a file; returns how many. They belong to this vocabulary alone."""
        return self._core.save_entries(str(path))

    def load_entries(self, path: str | Path) -> int:
        """Take the mask entries of a file that `save_entries` wrote for the same vocabulary; returns how many."""
        return self._core.load_entries(str(path))

    def stats(self) -> dict[str, int]:
        """Counts and bytes of the cache: units, entries, hits, misses and what they take."""
        return self._core.stats()

    def clear(self) -> None:
        """Forget every unit and entry. Grammars already compiled keep theirs."""
        self._core.clear()


def _layout(options: dict[str, Any]) -> dict[str, Any]:
    """The options with a registry as text."""
    if options.get("registry") is None:
        return options
    return {**options, "registry": registry_text(options["registry"])}
