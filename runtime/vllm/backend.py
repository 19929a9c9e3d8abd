"""vLLM's interface of a backend, over `ServingBackend` (engine core process)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from vllm.v1.structured_output.backend_types import (  # type: ignore[import-not-found,unused-ignore]
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputOptions,
)

from gramary.compiler.compiler import Compiler
from gramary.compiler.tokenizer import Tokenizer
from gramary.runtime.serving import Kind, RequestGrammar, ServingBackend, WorkerOptions
from gramary.runtime.serving.events import Events
from gramary.runtime.serving.factory import open_source
from gramary.runtime.serving.metrics import WorkerCounts
from gramary.runtime.serving.source import JSON_OBJECT_SCHEMA

_events = Events("vllm.gramary")

_KINDS = {
    StructuredOutputOptions.JSON: Kind.JSON_SCHEMA,
    StructuredOutputOptions.JSON_OBJECT: Kind.JSON_SCHEMA,
    StructuredOutputOptions.REGEX: Kind.REGEX,
    StructuredOutputOptions.GRAMMAR: Kind.EBNF,
    StructuredOutputOptions.CHOICE: Kind.CHOICE,
    StructuredOutputOptions.STRUCTURAL_TAG: Kind.STRUCTURAL_TAG,
}

_scheduling = threading.local()


@contextmanager
def scheduling_of(manager: Any, request: Any) -> Iterator[None]:
    """Says, for this thread, whether the request may be scheduled before its grammar is there: only where vLLM
    compiles beside the engine anyway, and only with a prompt whose prefill takes longer than most compiles.
    """
    overlaps = bool(getattr(manager, "_use_async_grammar_compilation", True))
    _scheduling.prompt_tokens = int(getattr(request, "num_prompt_tokens", 0) or 0) if overlaps else 0
    try:
        yield
    finally:
        _scheduling.prompt_tokens = 0


class GramaryGrammar(RequestGrammar, StructuredOutputGrammar):  # type: ignore[misc,unused-ignore]
    """One request's grammar; `RequestGrammar` does it all."""


class GramaryBackend(StructuredOutputBackend):  # type: ignore[misc,unused-ignore]
    """The backend of one engine core."""

    def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int, options: WorkerOptions | None = None) -> None:
        start = perf_counter()
        self.vllm_config = vllm_config
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.options = _adjusted(options or WorkerOptions.load(), vllm_config)
        compiler = Compiler(
            Tokenizer.from_transformers(tokenizer, model_vocab_size=vocab_size),
            vocab_size=vocab_size,
            cache_bytes=self.options.cache_bytes,
        )
        speculative = getattr(vllm_config, "speculative_config", None)
        counts = WorkerCounts()
        self.serving = ServingBackend(
            open_source(compiler, self.options, counts),
            self.options,
            counts=counts,
            max_rollback_tokens=getattr(speculative, "num_speculative_tokens", 0) or 0,
        )
        self.serving.warm()
        _events.info(
            "backend_ready",
            engine=_engine_index(vllm_config),
            tokens=len(compiler.vocabulary),
            vocab_size=vocab_size,
            seconds=round(perf_counter() - start, 3),
        )

    def compile_grammar(
        self, request_type: StructuredOutputOptions, grammar_spec: str, stop_token_ids: Any = None
    ) -> GramaryGrammar:
        """The grammar, compiled or, where the request's prefill can hide it, being compiled."""
        prompt_tokens = getattr(_scheduling, "prompt_tokens", 0)
        wait = prompt_tokens < max(1, self.options.overlap_tokens)
        spec = JSON_OBJECT_SCHEMA if request_type is StructuredOutputOptions.JSON_OBJECT else grammar_spec
        return self.serving.begin(
            _KINDS[request_type], spec, stop_token_ids=stop_token_ids, wait=wait, make=GramaryGrammar
        )

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """int32, (rows, words), everything allowed."""
        return torch.full((max_num_seqs, (self.vocab_size + 31) // 32), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """The engine ends."""
        self.serving.close()


class BackendBuilder:
    """Builds the backend on a thread of its own from the moment on when the engine core's manager exists, so that the
    first request finds it.
    """

    def __init__(self, vllm_config: Any, tokenizer: Any, options: WorkerOptions) -> None:
        self._future: Future[GramaryBackend] = Future()
        arguments = (vllm_config, tokenizer, vllm_config.model_config.get_vocab_size(), options)
        threading.Thread(target=self._build, args=arguments, name="gramary-start", daemon=True).start()

    def _build(self, *arguments: Any) -> None:
        try:
            self._future.set_result(GramaryBackend(*arguments))
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> GramaryBackend:
        """The backend; waits for it. Raises what building it raised."""
        return self._future.result()


def _adjusted(options: WorkerOptions, vllm_config: Any) -> WorkerOptions:
    """With what vLLM's own configuration says, which comes first: `disable_any_whitespace`, and `additional_config`'s
    table "gramary", for single options.
    """
    from dataclasses import fields, replace

    changes: dict[str, Any] = {}
    if getattr(vllm_config.structured_outputs_config, "disable_any_whitespace", False):
        changes["whitespace"] = "compact"
    additional = getattr(vllm_config, "additional_config", None)
    own = additional.get("gramary", {}) if isinstance(additional, dict) else {}
    unknown = set(own) - {field.name for field in fields(WorkerOptions)}
    if unknown:
        raise ValueError(f"additional_config has no option gramary.{min(unknown)}")
    return replace(options, **(changes | own))


def _engine_index(vllm_config: Any) -> int:
    """`data_parallel_rank` is 0 on every rank of a dense model."""
    return int(getattr(vllm_config.parallel_config, "data_parallel_index", 0) or 0)
