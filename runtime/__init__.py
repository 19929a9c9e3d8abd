"""Running requests: compiled grammars, matchers and token bitmasks.

`CompiledGrammar` and `Matcher` are the kernel's own classes, so that a call costs no Python in between; `_core.pyi`
documents them. Masks are written to any int32 buffer that the caller owns:

    matcher = grammar.matcher()
    bitmask = allocate_bitmask(1, compiler.vocab_size)
    matcher.fill_bitmask(bitmask)          # which tokens may come next
    matcher.accept_token(token)            # the one that was sampled

All of it may be used from many threads; the work is done without the GIL.
"""

from gramary.runtime._core import CompiledGrammar, Matcher, fill_bitmasks
from gramary.runtime.bitmask import (
    Bitmask,
    allocate_bitmask,
    bitmask_words,
    is_allowed,
    tokens_of,
)
from gramary.runtime.huggingface import GrammarLogitsProcessor
from gramary.runtime.logits import apply_token_bitmask_
from gramary.runtime.mask_pool import MaskPool

__all__ = [
    "Bitmask",
    "CompiledGrammar",
    "GrammarLogitsProcessor",
    "MaskPool",
    "Matcher",
    "allocate_bitmask",
    "apply_token_bitmask_",
    "bitmask_words",
    "fill_bitmasks",
    "is_allowed",
    "tokens_of",
]
