"""`GrammarLogitsProcessor`: constrained generation with `transformers`.

    processor = GrammarLogitsProcessor(grammar)
    model.generate(**inputs, logits_processor=[processor])

Neither torch nor transformers is imported here; whatever calls the processor has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gramary.compiler.errors import MatcherError
from gramary.runtime._core import CompiledGrammar, Matcher, fill_bitmasks
from gramary.runtime.bitmask import allocate_bitmask, bitmask_words
from gramary.runtime.logits import apply_token_bitmask_

_NO_TOKEN = float("-inf")


@dataclass(frozen=True)
class _Row:
    """One sequence under way: what it generated and where its grammar stands. No matcher: a token was refused."""

    grammar: int
    tokens: tuple[int, ...]
    matcher: Matcher | None


class GrammarLogitsProcessor:
    """Allows, at every position of every sequence, exactly the tokens that the sequence's grammar allows.

    `grammars`: one for all sequences, or one for each prompt; a prompt's beams and its `num_return_sequences` samples
    share its grammar. `stop_token_ids`: those of the grammar's compiler unless given; a text may end, with any of
    them, only where its grammar is complete. `prefetch`: this many of a grammar's dearest masks are built on
    background threads when generation begins. `vocab_size`: the compiler's, where that is more than the logits have.

    Sequences are followed by what they hold, not by their place in the batch, so beams may be reordered, dropped and
    copied between steps. A sequence to which a forbidden token was appended gets no token at all from then on (beam
    search fills up with such beams where few tokens are allowed, and drops them); where that befalls every sequence of
    a prompt, something else overrode the masks, and `MatcherError` is raised.

    One processor serves any number of `generate` calls, one after the other. A call is told from its predecessor by
    its input; `reset()` says it outright, which is needed only to go on, under a new text of the grammar, from where a
    call stopped without having come to an end.
    """

    def __init__(
        self,
        grammars: CompiledGrammar | Sequence[CompiledGrammar],
        *,
        stop_token_ids: Sequence[int] | None = None,
        prefetch: int = 0,
        vocab_size: int | None = None,
    ) -> None:
        self.grammars = [grammars] if isinstance(grammars, CompiledGrammar) else list(grammars)
        if not self.grammars:
            raise ValueError("no grammar was given")
        self.stop_token_ids = None if stop_token_ids is None else list(stop_token_ids)
        self.prefetch = prefetch
        self.vocab_size = vocab_size
        self._prompts: list[tuple[int, ...]] = []
        self._rows: list[_Row] = []
        self._bitmask = allocate_bitmask(0, 0)

    def reset(self) -> None:
        """Forget the sequences under way: the next call begins new ones."""
        self._prompts, self._rows = [], []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """`input_ids`: int tensor (sequences, length); `scores`: float tensor (sequences, width). A new tensor of
        scores.
        """
        sequences: list[list[int]] = input_ids.tolist()
        rows = self._following(sequences) or self._first(sequences)
        self._rows = rows
        scores = scores.clone()
        self._mask(rows, scores)
        return scores

    def _first(self, sequences: list[list[int]]) -> list[_Row]:
        """The rows of a `generate` call that begins with these prompts."""
        if len(sequences) % len(self.grammars):
            raise ValueError(
                f"{len(self.grammars)} grammars for {len(sequences)} sequences: one, or one for each prompt"
            )
        self._prompts = [tuple(sequence) for sequence in sequences]
        if self.prefetch:
            for grammar in self.grammars:
                grammar.prefetch(self.prefetch)
        each = len(sequences) // len(self.grammars)
        return [
            _Row(i // each, (), self.grammars[i // each].matcher(stop_token_ids=self.stop_token_ids))
            for i in range(len(sequences))
        ]

    def _following(self, sequences: list[list[int]]) -> list[_Row] | None:
        """The rows that these sequences are, each one token longer than it was; None if they are no such thing."""
        if not self._rows or len(sequences) != len(self._rows) or all(map(_has_ended, self._rows)):
            return None
        start, length = len(self._prompts[0]), len(sequences[0])
        if length != start + len(self._rows[0].tokens) + 1:
            return None
        known = {(row.grammar, row.tokens): row for row in self._rows}
        each = len(sequences) // len(self.grammars)
        parents = []
        for i, sequence in enumerate(sequences):
            parent = known.get((i // each, tuple(sequence[start:-1])))
            if parent is None or tuple(sequence[:start]) != self._prompts[i]:
                return None
            parents.append(parent)
        heirs: dict[int, int] = {}
        for parent in parents:
            heirs[id(parent)] = heirs.get(id(parent), 0) + 1
        rows = []
        for sequence, parent in zip(sequences, parents, strict=True):
            heirs[id(parent)] -= 1
            rows.append(_advanced(parent, sequence[-1], last=heirs[id(parent)] == 0))
        self._check(rows)
        return rows

    def _check(self, rows: list[_Row]) -> None:
        """Raise if some prompt has no sequence left."""
        alive = dict.fromkeys(self._groups(), False)
        for group, row in zip(self._groups(), rows, strict=True):
            alive[group] |= row.matcher is not None
        for group, row in zip(self._groups(), rows, strict=True):
            if not alive[group]:
                raise MatcherError(
                    f"token {row.tokens[-1]} was appended to a sequence whose grammar forbids it there; another logits "
                    "processor, or a forced token, overrides the mask: put GrammarLogitsProcessor last"
                )

    def _groups(self) -> list[tuple[int, tuple[int, ...]]]:
        """Which prompt each row belongs to."""
        each = len(self._prompts) // len(self.grammars)
        return [(i // each, prompt) for i, prompt in enumerate(self._prompts)]

    def _mask(self, rows: list[_Row], scores: Any) -> None:
        running = [i for i, row in enumerate(rows) if row.matcher is not None and not row.matcher.is_terminated()]
        for i, row in enumerate(rows):
            if row.matcher is None:
                scores[i] = _NO_TOKEN
        if not running:
            return
        matchers = [matcher for i in running if (matcher := rows[i].matcher) is not None]
        width = max(scores.shape[1], self.vocab_size or 0)
        if self._bitmask.shape[0] < len(rows) or self._bitmask.shape[1] != bitmask_words(width):
            self._bitmask = allocate_bitmask(len(rows), width)
        fill_bitmasks(matchers, self._bitmask, running)
        import torch  # type: ignore[import-not-found,unused-ignore]

        masks = torch.from_numpy(self._bitmask[: len(rows)]).to(scores.device)
        apply_token_bitmask_(scores, masks, running)


def _has_ended(row: _Row) -> bool:
    return row.matcher is None or row.matcher.is_terminated()


def _advanced(parent: _Row, token: int, *, last: bool) -> _Row:
    """`parent` with one more token. The last of its heirs takes its matcher, the others a copy."""
    tokens = (*parent.tokens, token)
    if parent.matcher is None or parent.matcher.is_terminated():
        return _Row(parent.grammar, tokens, parent.matcher)  # padding after the end, or beyond help
    matcher = parent.matcher if last else parent.matcher.fork()
    return _Row(parent.grammar, tokens, matcher if matcher.accept_token(token) else None)
