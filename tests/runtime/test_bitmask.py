"""Bitmask helpers against the definition of the layout."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gramary.runtime import allocate_bitmask, bitmask_words, is_allowed, tokens_of


def spelled(tokens: set[int], vocab_size: int) -> np.ndarray:
    """The layout, word by word: bit `t & 31` of word `t >> 5`."""
    words = [0] * bitmask_words(vocab_size)
    for token in tokens:
        words[token >> 5] |= 1 << (token & 31)
    return np.array(words, dtype=np.uint32).view(np.int32)


@st.composite
def masks(draw: st.DrawFn) -> tuple[set[int], int]:
    vocab_size = draw(st.integers(1, 200))
    return draw(st.sets(st.integers(0, vocab_size - 1))), vocab_size


@given(masks())
def test_tokens_of_reads_the_layout(mask: tuple[set[int], int]) -> None:
    tokens, vocab_size = mask
    row = spelled(tokens, vocab_size)
    assert tokens_of(row).tolist() == sorted(tokens)
    assert {token for token in range(vocab_size) if is_allowed(row, token)} == tokens


def test_a_new_bitmask_allows_everything() -> None:
    bitmask = allocate_bitmask(3, 33)
    assert bitmask.shape == (3, 2)
    assert bitmask.dtype == np.int32
    assert tokens_of(bitmask[1], 33).tolist() == list(range(33))
