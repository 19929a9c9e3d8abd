"""Gramary as an engine of the shared harness (maskbench.py, toolbench.py): plain uses of the public API.

    python ../shared/bench/maskbench.py --engine tests/benchmarks/engines.py:Gramary --data ... --tokenizer ...
    python ../shared/bench/toolbench.py --engine tests/benchmarks/engines.py:GramaryTools --tools-file ... --tokenizer
    ...

A constructor loads the tokenizer and builds the mask entries that depend on the tokenizer alone. The suites test the
specification of JSON Schema, in which an object's properties have no order: hence `property_order="any"`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from gramary.compiler import Compiler, Tokenizer


class Gramary:
    """Constrains a whole answer to one JSON Schema."""

    def __init__(self, tokenizer_dir: str, tok: Any, eos: int, mask: npt.NDArray[np.int32]) -> None:
        tokenizer = Tokenizer.from_file(tokenizer_dir)
        self.compiler = Compiler(tokenizer, vocab_size=tok.get_vocab_size(), stop_token_ids=[eos])
        self.compiler.prewarm()
        self.mask = mask
        self.address = mask.ctypes.data

    def compile(self, schema: str) -> None:
        self.grammar = self.compiler.compile_json_schema(schema, property_order="any")

    def reset(self) -> None:
        self.matcher = self.grammar.matcher()

    def fill(self) -> None:
        self.matcher.fill_bitmask(self.address)

    def accept(self, token: int) -> bool:
        return self.matcher.accept_token(token)


class GramaryTools(Gramary):
    """Free text in which the offered tools may be called."""

    def prepare(self, tools: list[dict[str, Any]]) -> str:
        return json.dumps(tools)

    def compile_tools(self, tools: str) -> None:
        # Real pools hold a tool that nothing can call (an array whose enum lists strings): it alone is left out.
        self.grammar = self.compiler.compile_tools(tools, begin="<function={name}>", end="</function>", on_error="drop")
