"""Token bitmasks: int32 words, bit `t & 31` of word `t >> 5` says whether token `t` is allowed (XGrammar's and vLLM's
layout).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bitmask = npt.NDArray[np.int32]


def bitmask_words(vocab_size: int) -> int:
    """Words of one row: `ceil(vocab_size / 32)`."""
    return (vocab_size + 31) // 32


def allocate_bitmask(batch: int, vocab_size: int) -> Bitmask:
    """An int32 array of shape `(batch, ceil(vocab_size / 32))` in which every token is allowed.

    >>> allocate_bitmask(2, 100).shape
    (2, 4)
    """
    return np.full((batch, bitmask_words(vocab_size)), -1, dtype=np.int32)


def tokens_of(bitmask: Bitmask, vocab_size: int | None = None) -> npt.NDArray[np.int64]:
    """The ids allowed by one row, ascending.

    `bitmask` has shape `(words,)` or `(1, words)`. Pass `vocab_size` to leave out the padding bits of the last word,
    which are set in an all-ones row.

    >>> row = np.array([5, 1], dtype=np.int32)
    >>> tokens_of(row).tolist()
    [0, 2, 32]
    """
    row = np.ascontiguousarray(bitmask, dtype=np.int32).reshape(-1)
    ids = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    return ids if vocab_size is None else ids[ids < vocab_size]


def is_allowed(bitmask: Bitmask, token: int, row: int = 0) -> bool:
    """Is `token` allowed by row `row`? `bitmask` has shape `(rows, words)` or `(words,)`.

    >>> is_allowed(np.array([[5, 1]], dtype=np.int32), 32)
    True
    """
    words = bitmask if bitmask.ndim == 1 else bitmask[row]
    return bool((int(words[token >> 5]) >> (token & 31)) & 1)
