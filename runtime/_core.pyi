"""The kernel's binding: `gramary.runtime._core`. Everything here releases the GIL while it works.

Errors are `gramary.compiler.errors.*` (raised by name from the binding).
"""

from collections.abc import Sequence
from typing import Any

FORMAT_VERSION: int

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
    def save(self, path: str) -> None: ...
    def __len__(self) -> int: ...
    @property
    def fingerprint(self) -> bytes: ...
    def token_bytes(self, token: int) -> bytes: ...
    def token_kind(self, token: int) -> str: ...
    """One of "text", "added", "special", "unused"."""
    def special_tokens(self) -> dict[str, int]: ...
    """Text of every added token, special or not -> id."""

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
        schema: str | bytes | dict[str, Any] | bool,
        *,
        property_order: str = "declared",
        whitespace: str = "flexible",
        lenient: bool = False,
        limits: Limits | None = None,
    ) -> CompiledGrammar: ...
    def compile_regex(self, pattern: str, *, limits: Limits | None = None) -> CompiledGrammar: ...
    def compile_ir(self, ir: str, *, limits: Limits | None = None) -> CompiledGrammar:
        """`ir`: the JSON form of `ir::Grammar` (serde)."""
    def compile_tools(
        self,
        tools: str | bytes | Sequence[dict[str, Any]],
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
    ) -> CompiledGrammar:
        """Tools are `{"name": ..., "parameters": schema}`, or OpenAI style `{"type": "function", "function": {...}}`.

        `trigger` defaults to what precedes `{name}` in `begin`. `on_error`: "raise" | "drop" | "any_json".
        """
    def compile_tags(
        self,
        tags: Sequence[tuple[str, Any, str]],
        triggers: Sequence[str],
        **options: Any,
    ) -> CompiledGrammar:
        """General TagDispatch: `(begin, JSON schema, end)` tags, several triggers; options as `compile_tools`."""
    def prewarm(self) -> int:
        """Build the mask entries of the shared units (strings, numbers, any JSON, free text); returns how many."""
    def save_entries(self, path: str) -> int: ...
    def load_entries(self, path: str) -> int: ...
    def stats(self) -> dict[str, int]: ...
    def clear(self) -> None: ...

class CompiledGrammar:
    """Units bound together for one source, with the parse table that all of its matchers share."""

    def matcher(self, *, stop_token_ids: Sequence[int] | None = ..., max_rollback_tokens: int = ...) -> Matcher: ...
    def prefetch(self, k: int) -> int:
        """Start building the `k` most expensive missing entries on background threads; returns how many were queued."""
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
        (words,), or the address of one as an int (row stride = ceil(vocab_size / 32) words). False: the mask is
        all ones."""
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
