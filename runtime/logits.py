"""Masks applied to logits: `apply_token_bitmask_` for numpy arrays and torch tensors, in place.

torch and Triton are imported when a tensor is handed over, never before. What runs:

| logits | way |
|---|---|
| numpy, torch on the CPU | the mask's bits unpacked by numpy, one masked fill |
| torch on CUDA (and ROCm) | one Triton kernel that writes forbidden logits only and reads none |
| torch elsewhere, or under `torch.compile` | shifts and a `where`, which the compiler fuses |
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def apply_token_bitmask_(logits: Any, bitmask: Any, indices: Sequence[int] | Any | None = None) -> None:
    """Set the logits of forbidden tokens to minus infinity, in place.

    `logits`: bf16, fp16, fp32 or fp64, shape `(rows, width)` or `(width,)`, a numpy array or a torch tensor on any
    device. `bitmask`: int32, shape `(rows, words)` or `(words,)`, of the same library and device. `indices`: the rows
    to mask, row `i` of the logits by row `i` of the bitmask; others stay as they are. None: every row.

    Logits beyond the bitmask's last word are forbidden, bits beyond the last logit are ignored: both are padding.

    Raises `TypeError` for a wrong kind of object or dtype, `ValueError` for shapes or devices that do not fit, and
    `IndexError` for an index that is no row.

    >>> logits = np.zeros((1, 4), dtype=np.float32)
    >>> apply_token_bitmask_(logits, np.array([[0b0101]], dtype=np.int32))
    >>> logits.tolist()
    [[0.0, -inf, 0.0, -inf]]
    """
    scores, words = rows_of(logits, bitmask)
    if len(scores) != len(words):
        raise ValueError(f"logits have {len(scores)} rows, the bitmask has {len(words)}")
    rows = None if indices is None else _row_list(indices, len(scores))
    mask_rows_(scores, words, rows, rows)


def mask_rows_(scores: Any, words: Any, score_rows: Any, word_rows: Any) -> None:
    """Mask row `score_rows[i]` of `scores` by row `word_rows[i]` of `words`.

    Both lists (of ints, or index tensors on the scores' device) are trusted; None stands for 0, 1, 2, ...
    """
    if isinstance(scores, np.ndarray):
        _apply_numpy(scores, words, score_rows, word_rows)
        return
    import torch  # type: ignore[import-not-found,unused-ignore]

    if torch.compiler.is_compiling() or scores.device.type not in ("cpu", "cuda"):
        _apply_torch(torch, scores, words, score_rows, word_rows)
    elif scores.device.type == "cpu":
        _apply_cpu_tensor(torch, scores, words, score_rows, word_rows)
    elif (kernel := _triton_kernel()) is not None:
        kernel.apply(scores, words, score_rows, word_rows)
    else:
        _apply_torch(torch, scores, words, score_rows, word_rows)


def rows_of(logits: Any, bitmask: Any) -> tuple[Any, Any]:
    """Both as two-dimensional views, checked except for the number of rows."""
    if isinstance(logits, np.ndarray):
        if not isinstance(bitmask, np.ndarray):
            raise TypeError(f"logits are a numpy array, so the bitmask must be one, not {_name(bitmask)}")
    elif is_tensor(logits):
        if not is_tensor(bitmask):
            raise TypeError(f"logits are a torch tensor, so the bitmask must be one, not {_name(bitmask)}")
        if logits.device != bitmask.device:
            raise ValueError(
                f"logits are on {logits.device}, the bitmask is on {bitmask.device}: move it there, or keep it there "
                "in a MaskPool"
            )
    else:
        raise TypeError(f"logits must be a numpy array or a torch tensor, not {_name(logits)}")
    if str(logits.dtype).removeprefix("torch.") not in _FLOATS:
        raise TypeError(f"logits must be {', '.join(_FLOATS)}, not {logits.dtype}")
    if str(bitmask.dtype).removeprefix("torch.") != "int32":
        raise TypeError(f"the bitmask must be int32, not {bitmask.dtype}")
    for name, array in (("logits", logits), ("the bitmask", bitmask)):
        if array.ndim not in (1, 2):
            raise ValueError(f"{name} must have one or two dimensions, not shape {tuple(array.shape)}")
    return (logits if logits.ndim == 2 else logits[None]), (bitmask if bitmask.ndim == 2 else bitmask[None])


def is_tensor(value: Any) -> bool:
    """Is it a torch tensor? Answered without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def allowed_of(words: npt.NDArray[np.int32], width: int) -> npt.NDArray[np.bool_]:
    """Bitmask rows as booleans of shape `(rows, width)`."""
    flat = np.ascontiguousarray(words)
    bits = np.unpackbits(flat.view(np.uint8), axis=1, bitorder="little", count=min(width, flat.shape[1] * 32))
    if bits.shape[1] < width:
        bits = np.pad(bits, ((0, 0), (0, width - bits.shape[1])))
    return bits.view(np.bool_)


def _row_list(indices: Any, rows: int) -> list[int]:
    listed = [int(row) for row in (indices.tolist() if hasattr(indices, "tolist") else indices)]
    for row in listed:
        if not 0 <= row < rows:
            raise IndexError(f"row {row} of {rows} rows")
    return listed


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _apply_numpy(scores: Any, words: Any, score_rows: Any, word_rows: Any) -> None:
    forbidden = ~allowed_of(words if word_rows is None else words[word_rows], scores.shape[1])
    if score_rows is None:
        scores[forbidden] = -np.inf
    else:
        for row, line in zip(score_rows, forbidden, strict=True):
            scores[row][line] = -np.inf


def _apply_cpu_tensor(torch: Any, scores: Any, words: Any, score_rows: Any, word_rows: Any) -> None:
    array = words.detach().numpy()
    allowed = allowed_of(array if word_rows is None else array[_listed(word_rows)], scores.shape[1])
    forbidden = torch.from_numpy(~allowed)
    with torch.no_grad():
        if score_rows is None:
            scores.masked_fill_(forbidden, float("-inf"))
        else:
            for row, line in zip(_listed(score_rows), forbidden, strict=True):
                scores[row].masked_fill_(line, float("-inf"))


def _listed(rows: Any) -> list[int]:
    return rows.tolist() if hasattr(rows, "tolist") else list(rows)


def _apply_torch(torch: Any, scores: Any, words: Any, score_rows: Any, word_rows: Any) -> None:
    """Tensor operations only, without a branch on data: one graph under `torch.compile`."""
    if word_rows is not None:
        words = words[torch.as_tensor(word_rows, dtype=torch.int64, device=words.device)]
    shifts = torch.arange(32, dtype=torch.int32, device=words.device)
    allowed = ((words.unsqueeze(-1) >> shifts) & 1).flatten(1).to(torch.bool)
    width = scores.shape[1]
    missing = width - allowed.shape[1]
    allowed = torch.nn.functional.pad(allowed, (0, missing)) if missing > 0 else allowed[:, :width]
    with torch.no_grad():
        if score_rows is None:
            scores.masked_fill_(~allowed, float("-inf"))
        else:
            rows = torch.as_tensor(score_rows, dtype=torch.int64, device=scores.device)
            scores[rows] = scores[rows].masked_fill(~allowed, float("-inf"))


_KERNEL: list[Any] = []


def _triton_kernel() -> Any | None:
    """The module with the kernel, or None where Triton is not installed."""
    if not _KERNEL:
        try:
            from gramary.runtime import triton_kernel

            _KERNEL.append(triton_kernel)
        except ImportError:
            _KERNEL.append(None)
    return _KERNEL[0]
