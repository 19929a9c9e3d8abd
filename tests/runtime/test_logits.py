"""`apply_token_bitmask_` and `MaskPool` against the layout's definition, for every library, dtype and way."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramary.runtime import MaskPool, apply_token_bitmask_
from gramary.runtime.logits import mask_rows_

DTYPES = ["float16", "bfloat16", "float32"]


def expected(logits: np.ndarray, bitmask: np.ndarray, indices: list[int] | None) -> np.ndarray:
    """Token by token: bit `t & 31` of word `t >> 5`."""
    out = logits.copy()
    for row in range(len(logits)) if indices is None else indices:
        for token in range(logits.shape[1]):
            words = [int(word) for word in bitmask[row]]
            if token >> 5 >= len(words) or not (words[token >> 5] >> (token & 31)) & 1:
                out[row, token] = -np.inf
    return out


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[int] | None]:
    """Logits, a bitmask narrower or wider than they are, and some rows."""
    rows, width, words = draw(st.integers(1, 4)), draw(st.integers(1, 150)), draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = random.integers(-9, 9, (rows, width)).astype(np.float32)
    bitmask = random.integers(-(2**31), 2**31, (rows, words)).astype(np.int32)
    indices = draw(st.none() | st.lists(st.integers(0, rows - 1), unique=True))
    return logits, bitmask, indices


def torch_or_skip() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@settings(deadline=None)
@given(problem=problems())
def test_numpy(dtype: str, problem: tuple[np.ndarray, np.ndarray, list[int] | None]) -> None:
    logits, bitmask, indices = problem
    scores = logits.astype(dtype)
    apply_token_bitmask_(scores, bitmask, indices)
    np.testing.assert_array_equal(scores, expected(logits, bitmask, indices))


@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None)  # the first case imports torch
@given(problem=problems())
def test_torch_on_the_cpu(dtype: str, problem: tuple[np.ndarray, np.ndarray, list[int] | None]) -> None:
    torch = torch_or_skip()
    logits, bitmask, indices = problem
    scores = torch.from_numpy(logits).to(getattr(torch, dtype))
    before = scores.data_ptr()
    apply_token_bitmask_(scores, torch.from_numpy(bitmask), indices)
    assert scores.data_ptr() == before
    np.testing.assert_array_equal(scores.float().numpy(), expected(logits, bitmask, indices))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("indices", [None, [2, 0]])
@pytest.mark.parametrize(("width", "words"), [(100, 3), (100, 4), (64, 4)])
def test_torch_compile_is_one_graph(dtype: str, indices: list[int] | None, width: int, words: int) -> None:
    torch = torch_or_skip()
    random = np.random.default_rng(7)
    logits = random.integers(-9, 9, (3, width)).astype(np.float32)
    bitmask = random.integers(-(2**31), 2**31, (3, words)).astype(np.int32)

    def step(scores: Any, mask: Any) -> Any:
        doubled = scores * 2
        apply_token_bitmask_(doubled, mask, indices)
        return doubled

    torch._dynamo.reset()  # or the cases above count as recompilations of this one
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    out = compiled(torch.from_numpy(logits).to(getattr(torch, dtype)), torch.from_numpy(bitmask))
    np.testing.assert_array_equal(out.float().numpy(), expected(logits * 2, bitmask, indices))


@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda(dtype: str) -> None:
    torch = torch_or_skip()
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    random = np.random.default_rng(1)
    for rows, width, words, indices in [(3, 131_077, 4096, None), (5, 32_000, 1001, [4, 1]), (1, 1, 1, None)]:
        logits = random.integers(-9, 9, (rows, width)).astype(np.float32)
        bitmask = random.integers(-(2**31), 2**31, (rows, words)).astype(np.int32)
        scores = torch.from_numpy(logits).to(getattr(torch, dtype)).cuda()
        apply_token_bitmask_(scores, torch.from_numpy(bitmask).cuda(), indices)
        reference = logits.copy()
        apply_token_bitmask_(reference, bitmask, indices)
        np.testing.assert_array_equal(scores.float().cpu().numpy(), reference)


_INTERPRETED = """
import numpy as np, torch
from gramary.runtime import apply_token_bitmask_
from gramary.runtime import triton_kernel
random = np.random.default_rng(3)
for dtype in (torch.float16, torch.float32):
    for rows, width, words in [(3, 200, 6), (2, 4200, 140), (1, 1, 1), (4, 64, 3)]:
        for picked in (None, [rows - 1], [rows - 1, 0][:rows]):
            logits = random.integers(-9, 9, (rows, width)).astype(np.float32)
            bitmask = random.integers(-(2**31), 2**31, (rows, words)).astype(np.int32)
            scores = torch.from_numpy(logits).to(dtype)
            triton_kernel.apply(scores, torch.from_numpy(bitmask), picked, picked)
            apply_token_bitmask_(logits, bitmask, picked)
            assert (scores.float().numpy() == logits).all(), (dtype, rows, width, words, picked)
# Any row of the mask for any row of the logits: what a pool asks for.
logits, bitmask = np.zeros((2, 64), np.float32), np.array([[1, 0], [2, 0], [4, 0]], np.int32)
scores = torch.from_numpy(logits)
triton_kernel.apply(scores, torch.from_numpy(bitmask), None, torch.tensor([2, 0], dtype=torch.int32))
assert torch.isfinite(scores).nonzero().tolist() == [[0, 2], [1, 0]]
print("right")
"""


def test_triton_kernel_interpreted() -> None:
    """The very kernel that runs on a GPU, step by step on the CPU."""
    torch_or_skip()
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", _INTERPRETED], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "right", done.stderr


def test_torch_is_not_imported_for_numpy() -> None:
    program = (
        "import sys, numpy as np, gramary.runtime as r\n"
        "r.apply_token_bitmask_(np.zeros((1, 4), np.float32), np.zeros((1, 1), np.int32))\n"
        "r.MaskPool(64).step_(np.zeros((1, 64), np.float32), np.zeros((1, 2), np.int32))\n"
        "print(sorted({'torch', 'triton', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_wrong_arguments() -> None:
    logits, bitmask = np.zeros((2, 64), np.float32), np.zeros((2, 2), np.int32)
    with pytest.raises(TypeError, match="numpy array or a torch tensor"):
        apply_token_bitmask_([[0.0]], bitmask)
    with pytest.raises(TypeError, match="bitmask must be one"):
        apply_token_bitmask_(logits, [[0]])
    with pytest.raises(TypeError, match="not int64"):
        apply_token_bitmask_(logits.astype(np.int64), bitmask)
    with pytest.raises(TypeError, match="must be int32"):
        apply_token_bitmask_(logits, bitmask.astype(np.int64))
    with pytest.raises(ValueError, match="one or two dimensions"):
        apply_token_bitmask_(logits[None], bitmask)
    with pytest.raises(ValueError, match="2 rows, the bitmask has 1"):
        apply_token_bitmask_(logits, bitmask[:1])
    for row in (2, -1):
        with pytest.raises(IndexError, match=f"row {row} of 2"):
            apply_token_bitmask_(logits, bitmask, [row])
    assert not np.isinf(logits).any()


def test_wrong_devices() -> None:
    torch = torch_or_skip()
    with pytest.raises(ValueError, match="meta"):
        apply_token_bitmask_(torch.zeros(1, 32), torch.zeros(1, 1, dtype=torch.int32, device="meta"))
    with pytest.raises(TypeError, match="numpy array, so"):
        apply_token_bitmask_(np.zeros((1, 32), np.float32), torch.zeros(1, 1, dtype=torch.int32))


def test_one_row_without_a_batch_dimension() -> None:
    logits = np.zeros(40, np.float32)
    apply_token_bitmask_(logits, np.array([1, 2], np.int32))
    assert np.flatnonzero(np.isfinite(logits)).tolist() == [0, 33]


# The pool


def devices() -> list[Any]:
    return [None, "cpu", "cuda"]


def _logits(device: Any, rows: int, width: int) -> Any:
    if device is None:
        return np.zeros((rows, width), np.float32)
    torch = torch_or_skip()
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return torch.zeros(rows, width, device=device)


def _array(logits: Any) -> np.ndarray:
    return logits if isinstance(logits, np.ndarray) else logits.cpu().numpy()


@pytest.mark.parametrize("device", devices())
def test_pool_masks_like_whole_rows(device: Any) -> None:
    """Random steps over a few masks through a pool that is too small for all of them."""
    random = np.random.default_rng(11)
    masks = random.integers(-(2**31), 2**31, (12, 3)).astype(np.int32)
    pool_device = None if _logits(device, 1, 96) is None else device
    pool = MaskPool(90, budget_bytes=6 * 12, device=pool_device)
    assert pool.capacity == 6
    for _ in range(200):
        batch = masks[random.integers(0, 12, random.integers(1, 7))]
        rows = random.permutation(8)[: len(batch)].astype(np.int32)
        logits, reference = _logits(device, 8, 96), np.zeros((8, 96), np.float32)
        pool.step_(logits, batch, rows)
        mask_rows_(reference, batch, rows, np.arange(len(batch)))
        np.testing.assert_array_equal(_array(logits), reference)
    stats = pool.stats
    assert len(pool) == 6
    assert stats.evictions == stats.uploads - 6
    assert stats.hits + stats.uploads == stats.rows
    assert stats.bytes_moved == stats.uploads * 12 + stats.rows * 4 < stats.bytes_full


def test_pool_uploads_each_mask_once_and_forgets_the_oldest() -> None:
    pool = MaskPool(32, budget_bytes=3 * 4)
    rows = [np.array([[i]], np.int32) for i in range(5)]
    for i in (0, 1, 2, 0, 1, 2, 0):
        pool.place(rows[i])
    assert (pool.stats.uploads, pool.stats.evictions) == (3, 0)
    pool.place(rows[3])  # drops 1, the least recently used
    pool.place(rows[0])
    pool.place(rows[2])
    assert (pool.stats.uploads, pool.stats.evictions) == (4, 1)
    pool.place(rows[1])
    assert (pool.stats.uploads, pool.stats.evictions) == (5, 2)


def test_pool_never_drops_what_the_step_needs() -> None:
    pool = MaskPool(32, budget_bytes=3 * 4)
    pool.place(np.array([[1], [2], [3]], np.int32))
    rows = pool.place(np.array([[4], [1], [5]], np.int32))
    assert len(set(rows.tolist())) == 3
    logits = np.zeros((3, 32), np.float32)
    pool.apply_(logits, rows)
    assert [np.flatnonzero(np.isfinite(line)).tolist() for line in logits] == [[2], [0], [0, 2]]


def test_pool_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="holds no mask"):
        MaskPool(64, budget_bytes=7)
    pool = MaskPool(64, budget_bytes=16)
    with pytest.raises(ValueError, match="raise budget_bytes"):
        pool.place(np.array([[1, 0], [2, 0], [3, 0]], np.int32))
    with pytest.raises(ValueError, match="shape"):
        pool.place(np.zeros((1, 3), np.int32))
    with pytest.raises(TypeError, match="int32"):
        pool.place(np.zeros((1, 2), np.int64))
    rows = pool.place(np.zeros((2, 2), np.int32))
    logits = np.zeros((3, 64), np.float32)
    with pytest.raises(ValueError, match="3 rows, 2 masks"):
        pool.apply_(logits, rows)
    with pytest.raises(IndexError, match="beyond the 3 rows"):
        pool.apply_(logits, rows, np.array([0, 3], np.int32))
    with pytest.raises(IndexError, match="beyond the pool"):
        pool.apply_(logits, np.array([0, 1, 2], np.int32))


def test_benchmark_runs() -> None:
    script = Path(__file__).parents[1] / "benchmarks/mask_pool.py"
    done = subprocess.run(
        [sys.executable, str(script), "--requests", "12", "--batch", "4", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["wrong_rows"] == 0
    assert 0 < figures["bytes_moved_per_step"] < figures["bytes_full_per_step"]
