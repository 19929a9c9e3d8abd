"""The SGLang backend, on a stand-in of the modules that it needs with SGLang 0.5.23's interface.

In a process of its own: the stand-in stays in `sys.modules`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

STAND_IN = """
import logging, sys, types
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
import torch

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")

def module(name, **content):
    made = types.ModuleType(name)
    made.__path__ = []
    made.__dict__.update(content)
    sys.modules[name] = made
    return made

REGISTRY, CHOICES = {}, ["xgrammar", "none"]
GrammarRow = namedtuple("GrammarRow", "row grammar")

class BaseGrammarObject:
    def __init__(self):
        self._finished, self.grammar_stats, self.current_token = False, None, None
    @property
    def finished(self):
        return self._finished
    @finished.setter
    def finished(self, finished):
        self._finished = finished
    def maybe_init_reasoning(self, reasoning):
        pass
    def copy(self):
        return self

class InvalidGrammarObject(BaseGrammarObject):
    def __init__(self, error_message="Unknown grammar error"):
        super().__init__()
        self.error_message = error_message

class BaseGrammarBackend:
    def __init__(self):
        self.executor, self.cache = ThreadPoolExecutor(), {}
    def get_cached_or_future_value(self, key, require_reasoning):
        if value := self.cache.get(key):
            return value.copy(), True
        dispatch = getattr(self, "dispatch_" + key[0])
        return self.executor.submit(dispatch, key[1]), False
    def set_cache(self, key, value):
        self.cache[key] = value
    def reset(self):
        self.cache.clear()

for name in ("sglang", "sglang.srt", "sglang.srt.constrained", "sglang.srt.arg_groups", "sglang.srt.parser"):
    module(name)
module(
    "sglang.srt.constrained.base_grammar_backend",
    BaseGrammarBackend=BaseGrammarBackend, BaseGrammarObject=BaseGrammarObject,
    InvalidGrammarObject=InvalidGrammarObject, register_grammar_backend=REGISTRY.__setitem__,
)
module("sglang.srt.arg_groups.choices", GRAMMAR_BACKEND_CHOICES=CHOICES)

class ReasonerGrammarBackend(BaseGrammarBackend):
    def __init__(self, grammar_backend, reasoning_parser, tokenizer, enable_strict_thinking=False):
        super().__init__()
        self.grammar_backend, self.parser = grammar_backend, reasoning_parser
module("sglang.srt.constrained.reasoner_grammar_backend", ReasonerGrammarBackend=ReasonerGrammarBackend)
module("sglang.srt.parser.reasoning_parser", ReasoningParser=lambda **given: given)

import gramary.compiler.tokenizer as tokenizer_module
tokenizer_module.Tokenizer.from_transformers = classmethod(
    lambda cls, tokenizer, **more: cls.from_bytes(**more)
)
from gramary.runtime.sglang import register
register(); register()
assert CHOICES == ["xgrammar", "none", "gramary"]
backend = REGISTRY["gramary"](types.SimpleNamespace(reasoning_parser=None), object(), 300, {256, 33})

def compiled(kind, text):
    value, hit = backend.get_cached_or_future_value((kind, text), False)
    if not hit:
        value = value.result()
        backend.set_cache((kind, text), value.copy() if hasattr(value, "copy") else value)
    return value

def allowed(mask, row):
    return [t for t in range(300) if (int(mask[row, t >> 5]) >> (t & 31)) & 1]
"""


def run(program: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("pydantic_settings", reason="pydantic-settings is not installed")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GRAMARY_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STAND_IN + program], capture_output=True, text=True, env=environ
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_requests_as_the_scheduler_runs_them() -> None:
    run(
        r"""
# A batch: two grammars of one key (the second a copy), another key, a row without one.
batch = [compiled("regex", "ab|ac"), compiled("regex", "ab|ac"), None, compiled("json", '{"enum": [7]}')]
assert batch[0] is not batch[1]
batch[1].accept_token(97)
mask = batch[0].allocate_vocab_mask(vocab_size=300, batch_size=4, device="cpu")
batch[0].fill_vocab_mask_batched([GrammarRow(i, one) for i, one in enumerate(batch) if one], mask)
assert [allowed(mask, row) for row in (0, 1)] == [[97], [98, 99]] and (mask[2] == -1).all()
logits = torch.zeros(4, 320, dtype=torch.bfloat16)
batch[0].apply_vocab_mask(logits=logits, vocab_mask=batch[0].move_vocab_mask(mask, "cpu"))
assert torch.isfinite(logits).sum(1).tolist()[:3] == [1, 2, 320]
batch[1].accept_token(98)
batch[1].fill_vocab_mask(mask, 1)
assert allowed(mask, 1) == [33, 256]  # the model's stop tokens
batch[1].accept_token(33)
assert batch[1].is_terminated()
batch[1].rollback(2)
assert not batch[1].is_terminated()
batch[1].fill_vocab_mask(mask, 1)
assert allowed(mask, 1) == [98, 99]
try:
    batch[1].accept_token(97)
    raise SystemExit("a forbidden token was accepted")
except ValueError as error:
    assert "not allowed" in str(error)
# Any JSON value, and jumping forward.
assert compiled("json", "$$ANY$$").grammar.validate_tokens(list(b'[1, {"a": null}]')) == list(b'[1, {"a": null}]')
jump = compiled("json", '{"type": "object", "properties": {"ä": {"const": 1}}, "required": ["ä"],'
                        ' "additionalProperties": false}')
helper = jump.try_jump_forward(None)
assert helper[1].startswith("{") and jump.jump_forward_str_state(helper) == (helper[1], -1)
jump.jump_and_retokenize([], [123, 34], -1)
jump.jump_and_retokenize([123, 34], [123, 32, 34], -1)
# Filters of tokens, as for reasoning.
backend.set_token_filter(mask, [31, 5], 0, is_allowed=True, reset_vocab_mask=True)
assert allowed(mask, 0) == [5, 31]
backend.set_token_filter(mask, [31], 0, is_allowed=False, reset_vocab_mask=False)
assert allowed(mask, 0) == [5]
backend.reset()
assert not backend.cache
"""
    )


def test_broken_grammars_carry_their_reason() -> None:
    run(
        r"""
for i in range(20):
    assert compiled("regex", f"id{i}").grammar.is_ready()
    for kind, text, error in [("regex", f"({i}", "InvalidPattern"), ("json", '{"type": "objec"}', "InvalidSchema"),
                              ("json", "{", "InvalidSchema")]:
        broken = compiled(kind, text)
        assert isinstance(broken, InvalidGrammarObject) and error in broken.error_message, broken.error_message
"""
    )


def test_reasoning_models_get_sglangs_own_wrapper() -> None:
    run(
        r"""
wrapped = REGISTRY["gramary"](types.SimpleNamespace(reasoning_parser="qwen3"), object(), 300, None)
assert isinstance(wrapped, ReasonerGrammarBackend) and wrapped.parser["model_type"] == "qwen3"
assert wrapped.grammar_backend.is_support_token_filter
"""
    )
