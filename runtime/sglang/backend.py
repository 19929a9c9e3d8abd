"""SGLang's interface of a grammar backend, over `ServingBackend` (scheduler process)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from sglang.srt.constrained.base_grammar_backend import (  # type: ignore[import-not-found,unused-ignore]
    BaseGrammarBackend,
    BaseGrammarObject,
    InvalidGrammarObject,
)

from gramary.compiler.compiler import Compiler
from gramary.compiler.errors import GramaryError
from gramary.compiler.tokenizer import Tokenizer
from gramary.runtime._core import fill_bitmasks
from gramary.runtime.logits import apply_token_bitmask_
from gramary.runtime.serving import Kind, RequestGrammar, ServingBackend, WorkerOptions
from gramary.runtime.serving.events import Events
from gramary.runtime.serving.factory import open_source
from gramary.runtime.serving.metrics import WorkerCounts

_events = Events("sglang.gramary")

_ANY_JSON = "$$ANY$$"
"""How SGLang spells "any JSON value" where a schema is expected."""


class GramaryGrammar(BaseGrammarObject):  # type: ignore[misc,unused-ignore]
    """One request's grammar."""

    def __init__(self, grammar: RequestGrammar, key: str) -> None:
        super().__init__()
        self.grammar = grammar
        self.key_string = key

    def accept_token(self, token: int) -> None:
        """Raises `ValueError` for a token that is not allowed: SGLang then ends the request."""
        self.current_token = token
        if not self.grammar.accept_tokens(self.key_string[:64], [token]):
            raise ValueError(self.grammar.reason)

    def rollback(self, k: int) -> None:
        self.grammar.rollback(k)

    def is_terminated(self) -> bool:
        return self.grammar.is_terminated()

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> torch.Tensor:
        """On the host, pinned where there is a GPU, so that moving it there overlaps."""
        pinned = torch.cuda.is_available()
        return torch.full((batch_size, (vocab_size + 31) // 32), -1, dtype=torch.int32, pin_memory=pinned)

    def fill_vocab_mask(self, vocab_mask: torch.Tensor, idx: int) -> None:
        self.grammar.fill_bitmask(vocab_mask, idx)

    @staticmethod
    def fill_vocab_mask_batched(entries: Any, vocab_mask: torch.Tensor) -> None:
        """All rows at once, on the kernel's threads."""
        grammars = [entry.grammar for entry in entries]
        matchers = [one.grammar.matcher for one in grammars if isinstance(one, GramaryGrammar)]
        if len(matchers) == len(grammars) > 1 and all(matcher is not None for matcher in matchers):
            try:
                fill_bitmasks([one for one in matchers if one], vocab_mask, [entry.row for entry in entries])
                return
            except GramaryError:
                pass  # one of them hit its limits: row by row it hurts no other
        for entry in entries:
            entry.grammar.fill_vocab_mask(vocab_mask, entry.row)

    @staticmethod
    def reset_vocab_mask(vocab_mask: torch.Tensor) -> None:
        vocab_mask.fill_(-1)

    @staticmethod
    def move_vocab_mask(vocab_mask: torch.Tensor, device: Any) -> torch.Tensor:
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
        apply_token_bitmask_(logits, vocab_mask)

    def copy(self) -> GramaryGrammar:
        """The same grammar at its start, for another request."""
        return GramaryGrammar(self.grammar.fresh(), self.key_string)

    def try_jump_forward(self, tokenizer: Any) -> tuple[list[int], str] | None:
        """The text that must come next, whatever the model says."""
        matcher = self.grammar.matcher
        text = _whole_characters(matcher.jump_forward()) if matcher is not None else ""
        return ([], text) if text else None

    def jump_forward_str_state(self, helper: tuple[list[int], str]) -> tuple[str, int]:
        return helper[1], -1

    def jump_and_retokenize(self, old_output_ids: list[int], new_output_ids: list[int], next_state: int) -> None:
        same = 0
        for old, new in zip(old_output_ids, new_output_ids, strict=False):
            if old != new:
                break
            same += 1
        if same < len(old_output_ids):
            self.grammar.rollback(len(old_output_ids) - same)
        if not self.grammar.accept_tokens(self.key_string[:64], new_output_ids[same:]):
            raise ValueError(self.grammar.reason)


class GramaryGrammarBackend(BaseGrammarBackend):  # type: ignore[misc,unused-ignore]
    """The backend of one scheduler."""

    def __init__(
        self,
        server_args: Any,
        tokenizer: Any,
        vocab_size: int,
        eos_token_ids: Any = None,
        options: WorkerOptions | None = None,
    ) -> None:
        super().__init__()
        options = options or WorkerOptions.load()
        stops = {eos_token_ids} if isinstance(eos_token_ids, int) else set(eos_token_ids or ())
        prepared = Tokenizer.from_transformers(
            tokenizer, model_vocab_size=vocab_size, stop_token_ids=sorted(stops) if stops else None
        )
        compiler = Compiler(prepared, vocab_size=vocab_size, cache_bytes=options.cache_bytes)
        counts = WorkerCounts()
        self.serving = ServingBackend(open_source(compiler, options, counts), options, counts=counts)
        self.serving.warm()
        _events.info("backend_ready", tokens=len(compiler.vocabulary), vocab_size=vocab_size)

    @property
    def is_support_token_filter(self) -> bool:
        return True

    @staticmethod
    def set_token_filter(
        vocab_mask: torch.Tensor,
        token_ids: Sequence[int],
        batch_idx: int,
        is_allowed: bool = True,
        reset_vocab_mask: bool = True,
    ) -> None:
        """Allow or forbid these tokens in one row; first forbid or allow all others, if `reset_vocab_mask`."""
        row = vocab_mask[batch_idx]
        if reset_vocab_mask:
            row.fill_(0 if is_allowed else -1)
        for token in token_ids:
            bit = 1 << (token & 31)
            signed = bit - (1 << 32) if bit >> 31 else bit
            if is_allowed:
                row[token >> 5] |= signed
            else:
                row[token >> 5] &= ~signed

    def dispatch_json(self, key_string: str) -> Any:
        return self._compiled(Kind.JSON_SCHEMA, "true" if key_string == _ANY_JSON else key_string)

    def dispatch_regex(self, key_string: str) -> Any:
        return self._compiled(Kind.REGEX, key_string)

    def dispatch_ebnf(self, key_string: str) -> Any:
        return self._compiled(Kind.EBNF, key_string)

    def dispatch_structural_tag(self, key_string: str) -> Any:
        return self._compiled(Kind.STRUCTURAL_TAG, key_string)

    def reset(self) -> None:
        """SGLang's own cache of whole grammars is emptied; units and mask entries stay."""
        super().reset()

    def _compiled(self, kind: Kind, spec: str) -> Any:
        """On SGLang's compile threads; what is wrong with the grammar ends its request with the reason."""
        try:
            return GramaryGrammar(self.serving.begin(kind, spec, make=RequestGrammar), spec)
        except (GramaryError, ValueError, TypeError) as error:
            _events.info("request_refused", kind=kind.value, reason=str(error))
            return InvalidGrammarObject(f"{type(error).__name__}: {error}")


def with_reasoning(backend: Any, server_args: Any, tokenizer: Any) -> Any:
    """SGLang's wrapper for reasoning models around `backend`, where `--reasoning-parser` is given: backends of the
    registry are not wrapped by SGLang itself.
    """
    parser_name = getattr(server_args, "reasoning_parser", None)
    if not parser_name:
        return backend
    from sglang.srt.constrained.reasoner_grammar_backend import (  # type: ignore[import-not-found,unused-ignore]
        ReasonerGrammarBackend,
    )
    from sglang.srt.parser.reasoning_parser import (  # type: ignore[import-not-found,unused-ignore]
        ReasoningParser,
    )

    parser = ReasoningParser(model_type=parser_name, stream_reasoning=False, tokenizer=tokenizer)
    strict = bool(getattr(server_args, "enable_strict_thinking", False))
    return ReasonerGrammarBackend(backend, parser, tokenizer, enable_strict_thinking=strict)


def _whole_characters(data: bytes) -> str:
    """`data` up to the last whole character."""
    for cut in range(min(4, len(data) + 1)):
        try:
            return data[: len(data) - cut].decode()
        except UnicodeDecodeError:
            continue
    return ""
