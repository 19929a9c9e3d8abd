"""The kernel as the cluster sees it: sources, manifests, units and mask entries as bytes.

Everything here is a thin, typed name for what `gramary.runtime._core` does; see there for shapes and errors.
"""

from __future__ import annotations

from gramary.runtime._core import (
    FORMAT_VERSION,
    Limits,
    Lowering,
    Manifest,
    Source,
    Vocabulary,
    inspect_unit,
    verify_units,
)

__all__ = [
    "FORMAT_VERSION",
    "Limits",
    "Lowering",
    "Manifest",
    "Source",
    "Vocabulary",
    "inspect_unit",
    "verify_units",
]
