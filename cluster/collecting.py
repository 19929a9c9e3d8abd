"""Python's collector in the processes that are ours: nodes and their workers."""

from __future__ import annotations

import gc

THRESHOLD = 20_000
"""Objects between two rounds over the youngest: a batch of a hundred tools makes some thousands."""


def settle() -> None:
    """Call it when a process has started: what is there now stays, and need not be gone through again and again.

    A full collection of a node took 15 to 25 ms, several a second under load, with every request waiting.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD, 10, 10)
