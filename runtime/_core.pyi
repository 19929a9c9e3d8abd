"""The kernel's binding: `gramary.runtime._core`. What takes longer than a millisecond releases the GIL while it works.

Errors are `gramary.compiler.errors.*` (raised by name from the binding).
"""

from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

FORMAT_VERSION: int
DURATION_BOUNDS_NS: tuple[int, ...]
"""Upper bounds of the buckets of `Durations`; one more has what lies beyond the last."""

class Vocabulary:
    """A tokenizer prepared for masking: id -> bytes and kind, plus the trie. Immutable, shareable between threads."""

    @staticmethod
    def from_tokens(
        tokens: Sequence[bytes | None], special: Sequence[int] = ..., added: Sequence[int] = ...
    ) -> Vocabulary: ...
    @staticmethod
    def from_huggingface(tokenizer_json: bytes) -> Vocabulary: ...
    @staticmethod
    def from_tiktoken(ranks: bytes, special_tokens: dict[str, int]) -> Vocabulary: ...
    @staticmethod
    def from_tekken(tekken_json: bytes) -> Vocabulary: ...
    @staticmethod
    def open(path: str) -> Vocabulary: ...
    @staticmethod
    def from_bytes(data: bytes) -> Vocabulary:
        """From what `to_bytes` gave, by whomever: prepared again from its tokens (tenths of a second) and compared.

        Raises `TokenizerError` if it is not what its tokens make.
        """
    def to_bytes(self) -> bytes: ...
    def save(self, path: str) -> None: ...
    def __len__(self) -> int: ...
    @property
    def fingerprint(self) -> bytes: ...
    def token_bytes(self, token: int) -> bytes: ...
    def token_kind(self, token: int) -> str: ...
    """One of "text", "added", "special", "unused"."""
    def special_tokens(self) -> dict[str, int]: ...
    """Text of every added token, special or not -> id."""

class Source:
    """One text to compile and what it is compiled with. Tokenizers play no part: units do not depend on them.

    `kind`: "json_schema", "regex", "ebnf", "choice" or "ir". The options count for JSON Schema, `root` for EBNF. Equal
    content, equal `key`.
    """

    def __init__(
        self,
        kind: str,
        text: str | bytes,
        *,
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        root: str = "root",
        **layout: Any,
    ) -> None:
        """`layout`: `indent`, `separators`, `draft` and `registry` of `Compiler.compile_json_schema`."""
    @staticmethod
    def from_parts(kind: str, options: str, text: bytes) -> Source:
        """From what `kind`, `options` and `text` gave elsewhere; raises `ValueError` if the options are none."""
    @property
    def key(self) -> bytes:
        """32 bytes: BLAKE3 over format version, kind, options and text."""
    @property
    def kind(self) -> str: ...
    @property
    def options(self) -> str:
        """Canonical JSON."""
    @property
    def text(self) -> bytes: ...

class Manifest:
    """What a source was compiled to: names of units, no units. Checked when parsed: `ValueError` for anything else."""

    @staticmethod
    def parse(data: bytes) -> Manifest: ...
    def to_bytes(self) -> bytes: ...
    @property
    def root(self) -> bytes: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def units(self) -> list[bytes]:
        """Digests of every unit that the source needs, the root included, each after those that it refers to."""
    @property
    def names(self) -> list[str]:
        """What the units are called in this source, for people, in the order of `units`; or empty."""
    @property
    def warnings(self) -> list[dict[str, str]]: ...

class Lowering:
    """Compiles sources to units without a tokenizer, and remembers what it has lowered (within `cache_bytes`)."""

    def __init__(self, *, cache_bytes: int = ...) -> None: ...
    def lower(self, source: Source, *, limits: Limits | None = None) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """The source's manifest and, in its order, every unit as (digest, bytes). Raises `CompileError`s."""

def verify_units(units: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, str]]:
    """Derive every unit's digest again from its content; returns those that are not what they claim, and why.

    Each is checked by itself. Any bytes may be given: nothing is installed, nothing raises.
    """

def inspect_unit(data: bytes) -> dict[str, Any]:
    """`states`, `edges`, `callees` (digests), `holes` of a unit's bytes; `ValueError` if they are no unit."""

class Limits:
    def __init__(
        self,
        *,
        source_bytes: int = ...,
        depth: int = ...,
        fsm_states: int = ...,
        items_per_set: int = ...,
        memory: int = ...,
        seconds: float = ...,
    ) -> None: ...

class Compiler:
    """One vocabulary and the units and mask entries known for it (the in-memory cross-grammar cache)."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        vocab_size: int | None = ...,
        stop_token_ids: Sequence[int] = ...,
        cache_bytes: int = ...,
    ) -> None: ...
    def compile_json_schema(
        self,
        schema: Any,
        *,
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        limits: Limits | None = None,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        max_whitespace: int | None = 65,
        max_digits: int | None = 128,
        ensure_ascii: bool = False,
        draft: str | None = None,
        registry: str | None = None,
    ) -> CompiledGrammar:
        """`schema`: JSON text or what `json.dumps` takes. `registry`: one JSON object, schemas by their URIs.

        `max_whitespace`, `max_digits` and `ensure_ascii` are the matchers' own: no part of a source's identity.
        """
    def compile_regex(self, pattern: str, *, limits: Limits | None = None) -> CompiledGrammar: ...
    def compile_ebnf(self, grammar: str, *, root: str = "root", limits: Limits | None = None) -> CompiledGrammar: ...
    def compile_choice(self, choices: str, *, limits: Limits | None = None) -> CompiledGrammar:
        """`choices`: JSON text of a list of strings."""
    def compile_structural_tag(
        self,
        tag: str | bytes | dict[str, Any],
        *,
        forbid_spelled_markers: bool = True,
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        limits: Limits | None = None,
    ) -> CompiledGrammar: ...
    def structural_tag_if_known(
        self,
        tag: str | bytes | dict[str, Any],
        *,
        forbid_spelled_markers: bool = True,
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        limits: Limits | None = None,
    ) -> tuple[CompiledGrammar | None, int, list[Source]]:
        """The grammar of a tag all of whose sources are in memory, or None; how many distinct sources it has; and those
        of them that are not in memory, in order of first use. One reading of the text, where naming the sources first
        would take two."""
    def compile_ir(self, ir: str, *, limits: Limits | None = None) -> CompiledGrammar:
        """`ir`: the JSON form of `ir::Grammar` (serde)."""
    def compile_tools(
        self,
        tools: Any,
        *,
        begin: str = "<function={name}>",
        end: str = "</function>",
        trigger: str | None = None,
        stops: Sequence[str] = (),
        min_calls: int = 0,
        max_calls: int | None = None,
        stop_after_last: bool = False,
        on_error: str = "raise",
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        limits: Limits | None = None,
        **layout: Any,
    ) -> CompiledGrammar:
        """Tools are `{"name": ..., "parameters": schema}`, or OpenAI style `{"type": "function", "function": {...}}`.

        `trigger` defaults to what precedes `{name}` in `begin`. `on_error`: "raise" | "drop" | "any_json". `layout`:
        the options of `compile_json_schema` from `indent` on.
        """
    def compile_tags(
        self,
        tags: Sequence[tuple[str, Any, str]],
        triggers: Sequence[str],
        **options: Any,
    ) -> CompiledGrammar:
        """General TagDispatch: `(begin, JSON schema, end)` tags, several triggers; options as `compile_tools`."""
    def sources_of_tools(
        self,
        tools: str | bytes | Sequence[dict[str, Any]],
        *,
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        **layout: Any,
    ) -> list[Source]:
        """The distinct sources that `compile_tools` compiles for these tools, in order of first use."""
    def tools_text(self, tools: str | bytes | Sequence[dict[str, Any]]) -> bytes:
        """A list of tools as JSON text, for those who pass it on more than once."""
    def missing_of_tools(
        self,
        tools: str | bytes | Sequence[dict[str, Any]],
        *,
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        **layout: Any,
    ) -> tuple[int, list[Source]]:
        """How many sources these tools have, and those of them that are not in memory."""
    def missing_sources(self, sources: Sequence[Source]) -> list[Source]:
        """Those that are not in memory: compiling them would be work."""
    def missing_units(self, manifests: Sequence[bytes]) -> list[bytes]:
        """Digests of the units that these manifests need and memory has not, callees first."""
    def install(
        self, sources: Sequence[tuple[Source, bytes]], units: Sequence[tuple[bytes, bytes]], *, trusted: bool = False
    ) -> None:
        """Take over compiled sources: (source, manifest) pairs and the units that `missing_units` named.

        All or nothing; `ValueError` names what does not fit. `trusted`: the units' digests were checked before (the
        node's own store), so they are not derived again; their structure is checked in any case.
        """
    def install_ahead(
        self, manifests: Sequence[tuple[bytes, bytes]], units: Sequence[tuple[bytes, bytes]], *, trusted: bool = False
    ) -> None:
        """The same for sources whose texts have not been seen yet: (source key, manifest) pairs.

        They are at hand when their text comes. When memory is short they go first.
        """
    def export(self, source: Source) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
        """Manifest and units of a source that is in memory, as `Lowering.lower` gives them."""
    def build_entries(
        self,
        closure: Sequence[tuple[bytes, bytes]],
        wanted: Sequence[bytes],
        *,
        min_cost_us: float = 0.0,
        limits: Limits | None = None,
    ) -> list[tuple[bytes, bytes, bytes, int]]:
        """Build the mask entries of the units `wanted`; returns those that took at least `min_cost_us`, in the form of
        `take_entries`.

        `closure`: (digest, bytes) of these units and of all that they refer to, as far as memory has it not; they are
        forgotten afterwards. States whose register class depends on the document are left out.
        """
    def record_entries(self, most: int) -> None:
        """From now on keep the names of up to `most` entries built, for `take_entries`; 0 (the default) keeps none."""
    def take_entries(self) -> list[tuple[bytes, bytes, bytes, int]]:
        """Entries built since the last call: (unit digest, slot, bytes, nanoseconds it took).

        Equal entries have equal bytes.
        """
    def export_entries(self, units: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes, int]]:
        """Every entry in memory of these units, in the same form."""
    def offer_entries(self, entries: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        """Give entries as (unit digest, slot, bytes) to be decoded when they are needed; returns how many were taken.

        Those that turn out to be damaged are dropped, counted (`stats()["entries_refused"]`) and built instead.
        """
    def verify_entry(
        self, unit: bytes, slot: bytes, data: bytes, *, closure: Sequence[tuple[bytes, bytes]] = ()
    ) -> bool | None:
        """Build the entry again and compare what it allows; `None` if the unit is neither in memory nor given.

        `closure`: (digest, bytes) of the unit and of all that it refers to, as far as memory has it not.
        """
    def prewarm(self) -> int:
        """Build the mask entries of the shared units (strings, numbers, any JSON, free text); returns how many."""
    def save_entries(self, path: str) -> int: ...
    def load_entries(self, path: str) -> int: ...
    def stats(self) -> dict[str, int]: ...
    def clear(self) -> None: ...

class CompiledGrammar:
    """Units bound together for one source, with the parse table that all of its matchers share."""

    def matcher(self, *, stop_token_ids: Sequence[int] | None = ..., max_rollback_tokens: int = ...) -> Matcher: ...
    def prefetch(self, k: int) -> None:
        """Start building the `k` most expensive missing entries on background threads, and return at once."""
    @property
    def warnings(self) -> list[dict[str, str]]: ...
    @property
    def dropped_tools(self) -> list[dict[str, Any]]: ...
    @property
    def digest(self) -> bytes: ...
    def units(self) -> list[dict[str, Any]]:
        """name, digest (hex), states, edges, entries, entry_bytes, build_us, shared (bool) of every unit."""
    def stats(self) -> dict[str, int]:
        """units, sets, items, entries, entry_hits, masks, bytes, flushes ..."""
    def flush(self) -> None:
        """Start a new generation of the parse table now (tests; it happens by itself at the byte budget)."""

class Matcher:
    """The parse state of one request. Thread-safe; calls on one matcher run one after the other."""

    def __init__(
        self, grammar: CompiledGrammar, *, stop_token_ids: Sequence[int] | None = ..., max_rollback_tokens: int = ...
    ) -> None: ...
    def fill_bitmask(self, bitmask: Any, row: int = 0) -> bool:
        """Write the mask of the next token. `bitmask`: int32 array (numpy, torch CPU) of shape (rows, words) or
        (words,), or the address of one as an int (row stride = ceil(vocab_size / 32) words). False: no token is
        allowed, because the vocabulary cannot spell what the grammar asks for."""
    def accept_token(self, token: int) -> bool: ...
    def accept_tokens(self, tokens: Sequence[int]) -> int:
        """How many were accepted (stops at the first that is not; those before it stay accepted)."""
    def accept_bytes(self, data: bytes | str) -> bool:
        """All or nothing."""
    def validate_tokens(self, tokens: Sequence[int]) -> int:
        """Length of the longest acceptable prefix; does not advance."""
    def rollback(self, n: int = 1) -> None: ...
    def fork(self) -> Matcher: ...
    def reset(self) -> None: ...
    def is_complete(self) -> bool:
        """A stop token would be accepted now."""
    def is_terminated(self) -> bool:
        """A stop token was accepted."""
    def jump_forward(self) -> bytes: ...
    def jump_forward_tokens(self) -> list[int]: ...
    def tag_events(self) -> list[tuple[str, int, int]]:
        """Since the last call: ("open" | "close", tag index, byte offset)."""
    def num_tokens(self) -> int: ...

def fill_bitmasks(matchers: Sequence[Matcher], bitmask: Any, rows: Sequence[int] | None = None) -> None: ...

class Durations:
    """A histogram of nanoseconds. Exact, whoever adds at the same time."""

    def __init__(self) -> None: ...
    def add(self, nanoseconds: int) -> None: ...
    def snapshot(self) -> dict[str, Any]:
        """`count`, `sum` in seconds and counts by bucket, in `buckets`."""

class RequestState:
    """What a serving engine calls for one request at every token.

    `gramary.runtime.serving.RequestGrammar` has the rest, and the hooks that are called when there is no matcher yet or
    none any more: `_arrive`, `_fail`, `_refused` and `_open`.
    """

    def __new__(cls, fill: Durations, accept: Durations, validate: Durations, rollback: Durations) -> Self: ...
    def fill_bitmask(self, bitmask: Any, row: int) -> None:
        """Write the next token's mask to `row` of `bitmask`, an int32 array or CPU tensor of shape (rows, words)."""
    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        """Advance by `tokens`. False: one of them is not allowed (or the grammar failed), and the request must end.

        What comes after a stop token is ignored.
        """
    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix of `tokens` that would be accepted, up to and including a stop token."""
    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens."""
    def is_terminated(self) -> bool:
        """Was a stop token accepted?"""
    def reset(self) -> None:
        """Back to the start."""
    @property
    def matcher(self) -> Matcher | None:
        """The kernel's matcher, once it is there."""
    def _start(self, matcher: Matcher) -> None:
        """The matcher is there."""
    def _end(self) -> None:
        """The request failed: `matcher` is None from now on."""

def specification_digest(kind: str, text: str) -> bytes:
    """What a specification is known by in this process."""
