"""An engine that calls a structured-output backend in the order in which vLLM does, without a model.

The order: requests are admitted; their grammars compiled on a pool; a request is scheduled when its grammar object is
there; its prompt is prefilled in chunks; with the last chunk, and at every step from then on, rows are filled (per
draft one row, fill + accept, then a bonus row, then rollback), tokens sampled under the rows, drafts accepted as far
as they agree, the new tokens given to `accept_tokens`, and the next drafts to `validate_tokens`. A request whose
`accept_tokens` says no ends with "error", and its step's tokens are not delivered.

A sampler sees what a model's sampler would: allowed tokens after `min_tokens` has masked stop tokens; from an empty row
it picks token 0, as an argmax over nothing but minus infinity does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from gramary.compiler import Compiler, Tokenizer
from gramary.runtime import allocate_bitmask
from gramary.runtime.serving import Kind, LocalSource, RequestGrammar, ServingBackend, WorkerOptions

Sampler = Callable[[np.ndarray, list[int]], int]
"""Allowed tokens as booleans, and the tokens so far, to a token."""
Drafter = Callable[[list[int]], list[int]]
"""The tokens so far to drafts."""


@dataclass
class Request:
    """One request, and what became of it."""

    kind: Kind
    spec: str
    sampler: Sampler
    prompt_tokens: int = 10
    stop_token_ids: set[int] = field(default_factory=set)
    max_tokens: int = 200
    min_tokens: int = 0
    drafter: Drafter | None = None
    reasoning_end: int | None = None
    """The token after which the constraint starts; None: it holds from the start."""
    implicit_end: int | None = None
    """A token of the content that ends the reasoning by itself: it is part of the constrained text."""

    output: list[int] = field(default_factory=list)
    finish: str | None = None
    error: str = ""
    grammar: RequestGrammar | None = None
    rows: list[set[int]] = field(default_factory=list)
    """What the first row of each step allowed, -1 for an open row."""
    steps: int = 0
    _compiling: Future[RequestGrammar] | None = None
    _prefilled: int = 0
    _drafts: list[int] = field(default_factory=list)

    def text(self, tokenizer: Tokenizer, start: int = 0) -> str:
        """What it wrote, without stop tokens."""
        data = b"".join(
            tokenizer.token_bytes(token) for token in self.output[start:] if tokenizer.token_kind(token) == "text"
        )
        return data.decode("utf-8", "replace")

    def content_start(self, tokens: list[int], offset: int) -> int:
        """Index in `tokens` (which follow `offset` tokens of output) of the first that the grammar sees."""
        if self.reasoning_end is None:
            return 0
        before = self.output[:offset]
        if self.reasoning_end in before or (self.implicit_end is not None and self.implicit_end in before):
            return 0
        for i, token in enumerate(tokens):
            if token == self.reasoning_end:
                return i + 1
            if token == self.implicit_end:
                return i
        return len(tokens) + 1


class Engine:
    """Steps requests; `step()` once for each forward pass."""

    def __init__(
        self, tokenizer: Tokenizer | None = None, options: WorkerOptions | None = None, *, prefill_chunk: int = 512
    ) -> None:
        self.tokenizer = tokenizer or Tokenizer.from_bytes()
        self.options = options or WorkerOptions(threads=2, overlap_tokens=1 << 30)
        self.compiler = Compiler(self.tokenizer)
        self.backend = ServingBackend(LocalSource(self.compiler), self.options, max_rollback_tokens=16)
        self.prefill_chunk = prefill_chunk
        self.requests: list[Request] = []
        self._pool = ThreadPoolExecutor(2)
        self._bitmask = allocate_bitmask(256, self.compiler.vocab_size)

    def add(self, request: Request) -> Request:
        """A request arrives."""
        stops = request.stop_token_ids or set(self.compiler.stop_token_ids)
        request.stop_token_ids = stops
        request._compiling = self._pool.submit(
            self.backend.begin,
            request.kind,
            request.spec,
            make=RequestGrammar,
            stop_token_ids=stops,
            wait=request.prompt_tokens < self.options.overlap_tokens,
        )
        self.requests.append(request)
        return request

    def run(self, requests: Iterable[Request] = (), most_steps: int = 5000) -> None:
        """Step until every request has ended."""
        for request in requests:
            self.add(request)
        for _ in range(most_steps):
            if all(request.finish for request in self.requests):
                return
            self.step()
        raise AssertionError("the engine does not come to an end")

    def close(self) -> None:
        self._pool.shutdown()
        self.backend.close()

    def step(self) -> None:
        """One forward pass over everything that is scheduled."""
        decoding = [request for request in self.requests if not request.finish and self._is_decoding(request)]
        first_rows, row = [], 0
        for request in decoding:
            first_rows.append(row)
            row = self._fill(request, row)
        for request, row in zip(decoding, first_rows, strict=True):
            self._sample(request, row)

    def _is_decoding(self, request: Request) -> bool:
        if request.grammar is None:
            assert request._compiling is not None
            if not request._compiling.done():
                wait([request._compiling], 0.001)  # what a pass over the others takes
                return False
            error = request._compiling.exception()
            if error is not None:
                request.finish, request.error = "error", str(error)
                return False
            request.grammar = request._compiling.result()
        if request._prefilled < request.prompt_tokens:
            request._prefilled += self.prefill_chunk
            return request._prefilled >= request.prompt_tokens
        return True

    def _fill(self, request: Request, row: int) -> int:
        grammar = request.grammar
        assert grammar is not None
        start = request.content_start(request._drafts, len(request.output))
        advanced = 0
        for i, token in enumerate(request._drafts):
            self._fill_row(grammar, row, constrained=i >= start)
            row += 1
            if i >= start:
                assert not grammar.is_terminated(), "drafts run past the end"
                assert grammar.accept_tokens("sim", [token]), "a validated draft is refused"
                advanced += 1
        self._fill_row(grammar, row, constrained=start <= len(request._drafts))
        if advanced:
            grammar.rollback(advanced)
        return row + 1

    def _fill_row(self, grammar: RequestGrammar, row: int, *, constrained: bool) -> None:
        if constrained and not grammar.is_terminated():
            grammar.fill_bitmask(self._bitmask, row)
        else:
            self._bitmask[row] = -1

    def _sample(self, request: Request, row: int) -> None:
        request.steps += 1
        request.rows.append(self._allowed(row))
        new: list[int] = []
        for i in range(len(request._drafts) + 1):
            history = request.output + new
            allowed = np.unpackbits(self._bitmask[row + i].view(np.uint8), bitorder="little")[: self._width()] > 0
            if len(history) < request.min_tokens:
                allowed[sorted(request.stop_token_ids)] = False
            token = request.sampler(allowed, history) if allowed.any() else 0
            assert allowed[token] or not allowed.any()
            new.append(token)
            if i < len(request._drafts) and token != request._drafts[i]:
                break
        new, finish = self._stopped(request, new)
        start = request.content_start(new, len(request.output))
        request.output += new
        if start <= len(new):
            assert request.grammar is not None
            if not request.grammar.accept_tokens("sim", new[start:]):
                del request.output[len(request.output) - len(new) :]
                request.finish, request.error = "error", request.grammar.reason
                return
        request.finish = finish
        request._drafts = [] if finish else self._drafts(request)

    def _stopped(self, request: Request, new: list[int]) -> tuple[list[int], str | None]:
        """`new` up to where the request ends, and how it does."""
        for i, token in enumerate(new):
            length = len(request.output) + i + 1
            if token in request.stop_token_ids and length > request.min_tokens:
                return new[: i + 1], "stop"
            if length >= request.max_tokens:
                return new[: i + 1], "length"
        return new, None

    def _drafts(self, request: Request) -> list[int]:
        if request.drafter is None:
            return []
        drafts = request.drafter(list(request.output))
        start = request.content_start(drafts, len(request.output))
        if start >= len(drafts):
            return drafts
        assert request.grammar is not None
        return drafts[:start] + request.grammar.validate_tokens(drafts[start:])

    def _allowed(self, row: int) -> set[int]:
        if (self._bitmask[row] == -1).all():
            return {-1}
        bits = np.unpackbits(self._bitmask[row].view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())

    def _width(self) -> int:
        return self.compiler.vocab_size


def first(allowed: np.ndarray, history: list[int]) -> int:
    """Always the allowed token with the lowest id."""
    return int(np.flatnonzero(allowed)[0])


def random_sampler(seed: int, end: Iterable[int] = (), chance: float = 0.5) -> Sampler:
    """Any allowed token; one of `end` with the given chance, where it is allowed. The same history, the same token."""

    def sample(allowed: np.ndarray, history: list[int]) -> int:
        random = np.random.default_rng([seed, len(history), *(history[-3:])])
        stops = [token for token in end if allowed[token]]
        if stops and random.random() < chance:
            return int(random.choice(stops))
        return int(random.choice(np.flatnonzero(allowed)))

    return sample


def spelling(text: str | bytes, end: int = 256) -> Sampler:
    """Writes `text` in single bytes as long as it is allowed, then `end`; from where it is not, the first allowed."""
    wanted = [*(text.encode() if isinstance(text, str) else text), end]

    def sample(allowed: np.ndarray, history: list[int]) -> int:
        if len(history) < len(wanted) and allowed[wanted[len(history)]]:
            return wanted[len(history)]
        return first(allowed, history)

    return sample


def preferring(order: Iterable[int], end: int = 256) -> Sampler:
    """The first of `order` that is allowed, else the end, else the first allowed token."""
    ranked = list(order)

    def sample(allowed: np.ndarray, history: list[int]) -> int:
        for token in (*ranked, end):
            if allowed[token]:
                return token
        return first(allowed, history)

    return sample
