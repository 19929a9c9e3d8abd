"""Checking an LMDB file that may be damaged or hostile, in another process, and without LMDB's own code."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from gramary.cluster.store.errors import StoreError

_SECONDS = 600
_MOST_TOLD = 20


def check_structure(data: Path) -> list[str]:
    """What is wrong with the file's structure (nothing: it can be mapped safely). Checksums are another matter.

    The file must not be written meanwhile. Raises `StoreError` where there is no verifier.
    """
    if find_spec("lmdb.verify") is None:
        raise StoreError("this lmdb package has no verifier: pip install 'lmdb>=3'", path=str(data))
    command = [sys.executable, "-m", "lmdb", "verify", "-s", str(data)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [f"verifying took more than {_SECONDS} s"]
    if done.returncode == 0:
        return []
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return told[:_MOST_TOLD] or [f"the verifier ended with code {done.returncode}"]
