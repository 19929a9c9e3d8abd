"""`Admission`: judges a request's grammar before the request is admitted, in the API server.

The API server's loop waits for it, so it is given `admission_ms`; what cannot be judged in that time passes, and is
judged by the engine's own limits. Everything else that the engine would refuse is refused here, with a message for
the client. Tokenizers play no part, except for structural tags, which name tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from gramary.compiler.compiler import Compiler
from gramary.compiler.errors import CompileError, LimitExceeded, UnsatisfiableSchema
from gramary.compiler.tokenizer import Tokenizer
from gramary.runtime.serving.events import Events
from gramary.runtime.serving.metrics import WorkerCounts
from gramary.runtime.serving.options import WorkerOptions
from gramary.runtime.serving.source import Kind, choices_of, compile_here

_events = Events(__name__)
_CACHE_BYTES = 64 << 20
_MOST_CHARACTERS = 256 << 10
"""Longer texts are left to the engine: reading them alone would hold up the API server."""


class Admission:
    """Refuses requests whose grammar is broken, cannot be enforced, is beyond the limits, or can match nothing.

    `tokenizer`: called once, when the first structural tag comes, for the model's own.
    """

    def __init__(
        self,
        options: WorkerOptions | None = None,
        *,
        tokenizer: Callable[[], Tokenizer] | None = None,
        counts: WorkerCounts | None = None,
    ) -> None:
        self.options = options or WorkerOptions()
        self.counts = counts or WorkerCounts()
        self._tokenizer = tokenizer
        self._plain = Compiler(Tokenizer.from_bytes(), cache_bytes=_CACHE_BYTES)
        self._with_tokens: Compiler | None = None
        self._warned = False

    def check(self, kind: Kind, spec: str, *, min_tokens: int = 0) -> None:
        """Raises a `CompileError` that says what is wrong with the request.

        `min_tokens`: how many tokens the request insists on; more than a choice's longest alternative has bytes is
        refused, since a text would have to go on after its end.
        """
        start = perf_counter_ns()
        try:
            self._check(kind, spec, min_tokens)
        except CompileError as error:
            self.counts.count("requests_refused", type(error).__name__)
            _events.info("request_refused", kind=kind.value, error=type(error).__name__, reason=str(error))
            raise
        finally:
            self.counts.compiled("admission", perf_counter_ns() - start)

    def _check(self, kind: Kind, spec: str, min_tokens: int) -> None:
        if min_tokens > 0:
            self._check_length(kind, spec, min_tokens)
        seconds = self.options.admission_ms / 1e3
        if seconds <= 0 or len(spec) > _MOST_CHARACTERS:
            self.counts.count("admission_passed_unjudged")
            return
        try:
            compile_here(self._compiler(kind), kind, spec, self.options.compile_options(seconds=seconds))
        except LimitExceeded as error:
            if error.limit != "seconds":
                raise
            self.counts.count("admission_passed_unjudged")

    def _compiler(self, kind: Kind) -> Compiler:
        if kind is not Kind.STRUCTURAL_TAG or self._tokenizer is None:
            return self._plain
        if self._with_tokens is None:
            self._with_tokens = Compiler(self._tokenizer(), cache_bytes=_CACHE_BYTES)
        return self._with_tokens

    def _check_length(self, kind: Kind, spec: str, min_tokens: int) -> None:
        if kind is Kind.CHOICE:
            longest = max(len(choice.encode("utf-8", "surrogatepass")) for choice in choices_of(spec))
            if longest < min_tokens:
                raise UnsatisfiableSchema(
                    f"min_tokens is {min_tokens}, and the longest choice has {longest} bytes: lower min_tokens",
                    reason="min_tokens is longer than any choice",
                )
        elif not self._warned:
            self._warned = True
            _events.warning(
                "min_tokens_with_grammar",
                min_tokens=min_tokens,
                consequence="a request whose text is complete before min_tokens ends with an error",
            )
