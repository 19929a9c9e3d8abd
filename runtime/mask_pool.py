"""`MaskPool`: masks kept on the device that holds the logits, each distinct one uploaded once.

Most steps of most requests meet a mask that was there before: "inside a string" is the same 16 KB for every request of
a tokenizer. A pool recognises a mask by its content, uploads it when it is new, and has the kernel pick rows by
number; a step then moves one row number per request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gramary.runtime.bitmask import Bitmask, bitmask_words
from gramary.runtime.logits import mask_rows_, rows_of

_INDEX_BYTES = 4


@dataclass
class PoolStats:
    """What a pool did. `bytes_moved` went to the device, `bytes_full` is what whole rows would have been."""

    rows: int = 0
    hits: int = 0
    uploads: int = 0
    evictions: int = 0
    bytes_moved: int = 0
    bytes_full: int = 0


class MaskPool:
    """Distinct masks of `vocab_size` tokens on `device`, the least recently used dropped beyond `budget_bytes`.

    `device=None` keeps them in numpy arrays, for numpy logits; anything else is a torch device. As many bytes again
    are kept on the host, where masks are recognised by content. Safe to use from many threads; steps that share a pool
    and a device must share a stream too, since a row may be overwritten once no later step names it.

    >>> pool = MaskPool(64, budget_bytes=1024)
    >>> masks = np.array([[5, 0], [-1, -1], [5, 0]], dtype=np.int32)
    >>> rows = pool.place(masks)
    >>> bool(rows[0] == rows[2]), pool.stats.uploads
    (True, 2)
    """

    def __init__(self, vocab_size: int, *, budget_bytes: int = 64 << 20, device: Any = None) -> None:
        self.vocab_size = vocab_size
        self.words = bitmask_words(vocab_size)
        self.capacity = budget_bytes // (self.words * 4)
        if self.capacity < 1:
            raise ValueError(f"a budget of {budget_bytes} bytes holds no mask of {self.words * 4} bytes")
        self.device = device
        self.stats = PoolStats()
        self._slots: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()
        self._torch: Any = None
        self._masks: Any
        if device is None:
            self._masks = np.zeros((self.capacity, self.words), dtype=np.int32)
        else:
            import torch  # type: ignore[import-not-found,unused-ignore]

            self._torch = torch
            self._masks = torch.zeros((self.capacity, self.words), dtype=torch.int32, device=device)

    def __len__(self) -> int:
        """Distinct masks held."""
        return len(self._slots)

    def place(self, bitmask: Bitmask | Any) -> npt.NDArray[np.int32]:
        """The pool's row for every row of `bitmask` (int32 on the host, `(rows, words)`), uploading those it has not.

        Rows stay valid until the next call. Raises `ValueError` for another width, or for more distinct masks than the
        budget holds.
        """
        masks = self._checked(bitmask)
        keys = [row.tobytes() for row in masks]
        out = np.empty(len(keys), dtype=np.int32)
        with self._lock:
            distinct = dict.fromkeys(keys)
            if len(distinct) > self.capacity:
                raise ValueError(
                    f"{len(distinct)} distinct masks in a step, the pool holds {self.capacity}: raise budget_bytes"
                )
            for key in distinct:  # those of this step first become the youngest, so that none of them is dropped
                if key in self._slots:
                    self._slots.move_to_end(key)
            fresh: dict[int, bytes] = {}
            for i, key in enumerate(keys):
                slot = self._slots.get(key)
                if slot is None:
                    slot = self._free_slot()
                    self._slots[key] = slot
                    fresh[slot] = key
                out[i] = slot
            self._upload(fresh)
            self._count(len(keys), len(fresh))
        return out

    def apply_(self, logits: Any, rows: npt.NDArray[np.int32], logit_rows: npt.NDArray[np.int32] | None = None) -> None:
        """Mask row `logit_rows[i]` of `logits` (row `i` if None) by the pool's row `rows[i]`, in place."""
        scores, masks = rows_of(logits, self._masks)
        count = len(scores)
        if logit_rows is None and len(rows) != count:
            raise ValueError(f"logits have {count} rows, {len(rows)} masks were given")
        if logit_rows is not None:
            if len(logit_rows) != len(rows):
                raise ValueError(f"{len(logit_rows)} rows of logits, {len(rows)} masks")
            if len(rows) and not 0 <= int(logit_rows.min()) <= int(logit_rows.max()) < count:
                raise IndexError(f"a row beyond the {count} rows of logits")
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.capacity:
            raise IndexError(f"a row beyond the pool's {self.capacity}")
        mask_rows_(scores, masks, self._index(logit_rows), self._index(rows))

    def step_(self, logits: Any, bitmask: Bitmask | Any, logit_rows: npt.NDArray[np.int32] | None = None) -> None:
        """`place`, then `apply_`."""
        self.apply_(logits, self.place(bitmask), logit_rows)

    def _checked(self, bitmask: Any) -> Bitmask:
        masks: Bitmask = bitmask if isinstance(bitmask, np.ndarray) else bitmask.numpy()
        if masks.dtype != np.int32:
            raise TypeError(f"the bitmask must be int32, not {masks.dtype}")
        if masks.ndim != 2 or masks.shape[1] != self.words:
            raise ValueError(f"the bitmask must have shape (rows, {self.words}), not {masks.shape}")
        return masks

    def _free_slot(self) -> int:
        if len(self._slots) < self.capacity:
            return len(self._slots)
        _, slot = self._slots.popitem(last=False)
        self.stats.evictions += 1
        return slot

    def _upload(self, fresh: dict[int, bytes]) -> None:
        if not fresh:
            return
        content = np.frombuffer(b"".join(fresh.values()), dtype=np.int32).reshape(len(fresh), self.words)
        slots = list(fresh)
        if self._torch is None:
            self._masks[slots] = content
            return
        # One copy for all: through pinned memory, whose allocator keeps it until the stream is past the copy.
        torch, pinned = self._torch, self._masks.device.type == "cuda"
        staged = torch.empty((len(slots), self.words), dtype=torch.int32, pin_memory=pinned)
        staged.numpy()[:] = content
        on_device = staged.to(self._masks.device, non_blocking=pinned)
        self._masks.index_copy_(0, torch.tensor(slots, dtype=torch.int64, device=self._masks.device), on_device)

    def _index(self, rows: npt.NDArray[np.int32] | None) -> Any:
        if rows is None or self._torch is None:
            return rows
        return self._torch.from_numpy(np.ascontiguousarray(rows)).to(self._masks.device, non_blocking=True)

    def _count(self, rows: int, uploads: int) -> None:
        row_bytes = self.words * 4
        stats = self.stats
        stats.rows += rows
        stats.hits += rows - uploads
        stats.uploads += uploads
        stats.bytes_moved += uploads * row_bytes + rows * _INDEX_BYTES
        stats.bytes_full += rows * row_bytes
