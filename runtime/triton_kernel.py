"""The Triton kernel behind `apply_token_bitmask_` on a GPU.

One program per row and block of tokens. It loads the block's mask words, spreads each over 32 lanes, and stores minus
infinity where a bit is 0; logits are never read, so that the traffic is the mask plus what is forbidden.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

_BLOCK_WORDS = 128
"""Words that one program handles: 4,096 tokens, enough to fill a wave of stores, few enough for small vocabularies."""


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _mask_kernel(  # type: ignore[no-untyped-def,unused-ignore]
    scores,
    words,
    score_rows,
    word_rows,
    width,
    word_count,
    score_stride,
    word_stride,
    has_score_rows: tl.constexpr,
    has_word_rows: tl.constexpr,
    block_words: tl.constexpr,
):
    program = tl.program_id(0)
    score_row = program.to(tl.int64)
    word_row = program.to(tl.int64)
    if has_score_rows:
        score_row = tl.load(score_rows + program).to(tl.int64)
    if has_word_rows:
        word_row = tl.load(word_rows + program).to(tl.int64)
    word = tl.program_id(1) * block_words + tl.arange(0, block_words)
    # Words beyond the mask are zero: padding logits are forbidden.
    bits = tl.load(words + word_row * word_stride + word, mask=word < word_count, other=0)
    lane = tl.arange(0, 32)
    token = word[:, None] * 32 + lane[None, :]
    forbidden = ((bits[:, None] >> lane[None, :]) & 1) == 0
    tl.store(scores + score_row * score_stride + token, -float("inf"), mask=forbidden & (token < width))


def apply(scores: Any, words: Any, score_rows: Any, word_rows: Any) -> None:
    """Mask row `score_rows[i]` of `scores` by row `word_rows[i]` of `words` (lists, int32/int64 tensors, or None)."""
    if scores.stride(1) != 1 or words.stride(1) != 1:
        raise ValueError("logits and bitmask must have their last dimension contiguous")
    rows = _on(score_rows, scores.device)
    picked = _on(word_rows, scores.device)
    count = len(scores) if rows is None else len(rows)
    width = scores.shape[1]
    if count == 0 or width == 0:
        return
    _mask_kernel[(count, triton.cdiv(width, 32 * _BLOCK_WORDS))](
        scores,
        words,
        words if rows is None else rows,  # never read: any pointer will do
        words if picked is None else picked,
        width,
        words.shape[1],
        scores.stride(0),
        words.stride(0),
        has_score_rows=rows is not None,
        has_word_rows=picked is not None,
        block_words=_BLOCK_WORDS,
    )


def _on(rows: Any, device: Any) -> Any:
    if rows is None or isinstance(rows, torch.Tensor):
        return rows
    return torch.tensor(list(rows), dtype=torch.int32, device=device)
