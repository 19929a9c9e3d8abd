"""The hooks into vLLM, on a stand-in of its modules with vLLM 0.32's signatures (tests/vllm has the real engine).

Each test runs in a process of its own, since hooks stay where they are put.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("pydantic", reason="pydantic is not installed")

STAND_IN = """
import enum, logging, sys, types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal
import pydantic

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")

def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made

class VLLMValidationError(Exception):
    pass

@pydantic.dataclasses.dataclass
class StructuredOutputsConfig:
    backend: Literal["auto", "xgrammar"] = "auto"
    disable_any_whitespace: bool = False

@dataclass
class StructuredOutputsParams:
    json: Any = None
    regex: Any = None
    choice: Any = None
    grammar: Any = None
    json_object: Any = None
    structural_tag: Any = None
    _backend: Any = None
    def __post_init__(self):
        pass

class SamplingParams:
    def __init__(self, structured_outputs=None, min_tokens=0):
        self.structured_outputs, self.min_tokens = structured_outputs, min_tokens
    def _validate_structured_outputs(self, model_config, structured_outputs_config, tokenizer):
        self.stock = True

StructuredOutputOptions = enum.Enum(
    "StructuredOutputOptions", "JSON JSON_OBJECT REGEX GRAMMAR CHOICE STRUCTURAL_TAG"
)

class StructuredOutputGrammar(ABC):
    @abstractmethod
    def accept_tokens(self, request_id, tokens): ...
    @abstractmethod
    def validate_tokens(self, tokens): ...
    @abstractmethod
    def rollback(self, num_tokens): ...
    @abstractmethod
    def fill_bitmask(self, bitmask, batch_index): ...
    @abstractmethod
    def is_terminated(self): ...
    @abstractmethod
    def reset(self): ...

class StructuredOutputBackend(ABC):
    @abstractmethod
    def compile_grammar(self, request_type, grammar_spec, stop_token_ids=None): ...
    @abstractmethod
    def allocate_token_bitmask(self, max_num_seqs): ...
    @abstractmethod
    def destroy(self): ...

class Stock:
    def __init__(self, vllm_config, tokenizer, vocab_size):
        pass
    def compile_grammar(self, request_type, grammar_spec, stop_token_ids=None):
        return "stock"

class StructuredOutputManager:
    def __init__(self, vllm_config):
        self.backend, self.vllm_config, self.tokenizer = None, vllm_config, vllm_config.tokenizer
        self._use_async_grammar_compilation = True
    def grammar_init(self, request):
        if request.structured_output_request is None:
            return
        if self.backend is None:
            self.backend = sys.modules["vllm.v1.structured_output"].XgrammarBackend(
                self.vllm_config, tokenizer=self.tokenizer, vocab_size=self.vllm_config.model_config.get_vocab_size()
            )
        request.structured_output_request.grammar = self._create_grammar(request)
    def _create_grammar(self, request):
        kind, spec = request.structured_output_request.key
        return self.backend.compile_grammar(kind, spec, stop_token_ids={256})

def validate_xgrammar_grammar(sampling_params):
    raise AssertionError("stock validation")

module("vllm", __version__="0.32.0")
module("vllm.config", StructuredOutputsConfig=StructuredOutputsConfig)
module("vllm.exceptions", VLLMValidationError=VLLMValidationError)
module("vllm.sampling_params", SamplingParams=SamplingParams, StructuredOutputsParams=StructuredOutputsParams)
module("vllm.v1")
package = module("vllm.v1.structured_output", StructuredOutputManager=StructuredOutputManager, XgrammarBackend=Stock)
stock = module("vllm.v1.structured_output.backend_xgrammar", validate_xgrammar_grammar=validate_xgrammar_grammar)
sys.modules["vllm.v1"].structured_output, package.backend_xgrammar = package, stock
sys.modules["vllm"].v1 = sys.modules["vllm.v1"]
module(
    "vllm.v1.structured_output.backend_types",
    StructuredOutputBackend=StructuredOutputBackend,
    StructuredOutputGrammar=StructuredOutputGrammar,
    StructuredOutputOptions=StructuredOutputOptions,
)
if "torch" not in sys.modules:
    try:
        import torch
    except ImportError:
        import numpy as np
        full = lambda shape, value, dtype: np.full(shape, value, dtype)
        module("torch", int32=np.int32, Tensor=np.ndarray, full=full)

import gramary.cluster.config
import gramary.compiler.tokenizer as tokenizer_module
tokenizer_module.Tokenizer.from_transformers = classmethod(
    lambda cls, tokenizer, model_vocab_size=None: cls.from_bytes(model_vocab_size=model_vocab_size)
)

def config(backend, **more):
    return types.SimpleNamespace(
        tokenizer=object(),
        model_config=types.SimpleNamespace(get_vocab_size=lambda: 300, is_diffusion=False),
        structured_outputs_config=StructuredOutputsConfig(backend=backend),
        parallel_config=types.SimpleNamespace(data_parallel_index=0),
        speculative_config=None,
        additional_config=more,
    )

def request(kind, spec, prompt=5):
    inner = types.SimpleNamespace(key=(StructuredOutputOptions[kind], spec), grammar=None)
    return types.SimpleNamespace(structured_output_request=inner, num_prompt_tokens=prompt)

from gramary.runtime.vllm import register
from gramary.runtime.vllm.hooks import signature_problems
"""


SERVER = """
import json, os, sys, tempfile
for line in sys.stdin:
    program, environ = json.loads(line)
    out = tempfile.TemporaryFile("w+")
    child = os.fork()
    if child == 0:
        os.dup2(out.fileno(), 1), os.dup2(out.fileno(), 2)
        os.environ.update(environ)
        try:
            exec(program, globals())
        except BaseException:
            import traceback
            traceback.print_exc()
            sys.stdout.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    out.seek(0)
    print(json.dumps([status, out.read()]), flush=True)
"""
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a program with the stand-in of vLLM, in a fork of a process that has it loaded; its output."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GRAMARY_")}
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", STAND_IN + SERVER],
        env=environ,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def ask(program: str, **more: str) -> str:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([program, more]) + "\n")
        server.stdin.flush()
        status, out = json.loads(server.stdout.readline())
        assert status == 0, out
        return str(out)

    yield ask
    server.stdin.close()
    server.wait(30)
    server.stdout.close()


def test_the_backend_serves_requests_under_its_name(run: Run) -> None:
    run(
        """
register(); register()
assert signature_problems() == []
params = SamplingParams(StructuredOutputsParams(regex="ab"))
params._validate_structured_outputs(None, StructuredOutputsConfig(backend="gramary"), object())
assert params.structured_outputs._backend == "gramary" and not hasattr(params, "stock")
manager = StructuredOutputManager(config("gramary"))
one = request("REGEX", "ab")
manager.grammar_init(one)
grammar = one.structured_output_request.grammar
rows = manager.backend.allocate_token_bitmask(2)
assert tuple(rows.shape) == (2, 10)
grammar.fill_bitmask(rows, 0)
assert grammar.accept_tokens("r", [97, 98, 256]) and grammar.is_terminated()
assert isinstance(grammar, StructuredOutputGrammar) and isinstance(manager.backend, StructuredOutputBackend)
two = request("JSON_OBJECT", "")
manager.grammar_init(two)
assert two.structured_output_request.grammar.validate_tokens([ord("{"), ord("[")]) == [ord("{")]
manager.backend.destroy()
"""
    )


def test_other_backends_are_left_alone(run: Run) -> None:
    run(
        """
register()
params = SamplingParams(StructuredOutputsParams(regex="ab"))
params._validate_structured_outputs(None, StructuredOutputsConfig(backend="xgrammar"), object())
assert params.stock
manager = StructuredOutputManager(config("xgrammar"))
one = request("REGEX", "ab")
manager.grammar_init(one)
assert one.structured_output_request.grammar == "stock"
"""
    )


@pytest.mark.parametrize("backend", ["xgrammar", "auto"])
def test_taking_over_xgrammar(run: Run, backend: str) -> None:
    run(
        f"""
register()
params = SamplingParams(StructuredOutputsParams(regex="ab"))
stock.validate_xgrammar_grammar(params)
try:
    stock.validate_xgrammar_grammar(SamplingParams(StructuredOutputsParams(regex="(")))
    raise SystemExit("a broken pattern passed")
except VLLMValidationError as error:
    assert "InvalidPattern" in str(error)
manager = StructuredOutputManager(config("{backend}"))
one = request("REGEX", "ab")
manager.grammar_init(one)
assert one.structured_output_request.grammar.accept_tokens("r", [97, 98])
""",
        GRAMARY_WORKER_TAKE_OVER="true",
    )


def test_requests_that_are_refused(run: Run) -> None:
    run(
        """
register()
cases = [
    (dict(json={"type": "objec"}), "InvalidSchema"), (dict(json="{"), "InvalidSchema"),
    (dict(regex="(a"), "InvalidPattern"),
    (dict(json=""), "is empty"), (dict(grammar="  "), "is empty"), (dict(json_object=False), "asks for nothing"),
    (dict(choice=[]), "choices"), (dict(choice=[1]), "choices"), (dict(json={"a": {1, 2}}), "TypeError"),
    (dict(json={"type": "integer", "minimum": 3, "maximum": 2}), "UnsatisfiableSchema"),
]
for given, expected in cases:
    params = SamplingParams(StructuredOutputsParams(**given))
    try:
        params._validate_structured_outputs(None, StructuredOutputsConfig(backend="gramary"), object())
    except VLLMValidationError as error:
        assert expected in str(error), (given, error)
    else:
        raise SystemExit(f"{given} passed")
for broken in (dict(tokenizer=None), dict(tokenizer=object(), backend="guidance")):
    params = SamplingParams(StructuredOutputsParams(regex="a", _backend=broken.get("backend")))
    try:
        params._validate_structured_outputs(None, StructuredOutputsConfig(backend="gramary"), broken["tokenizer"])
    except VLLMValidationError:
        continue
    raise SystemExit(f"{broken} passed")
"""
    )


def test_long_prompts_are_scheduled_before_their_grammar(run: Run) -> None:
    """And short ones are not; nor any where the engine compiles on its own thread, for determinism."""
    run(
        """
import threading
register()
manager = StructuredOutputManager(config("gramary"))
manager.grammar_init(request("REGEX", "x"))
gate = threading.Event()
source = manager.backend.serving.source
compile_ = source.compile
source.compile = lambda *args, **more: (gate.wait(20), compile_(*args, **more))[1]
long = request("REGEX", "ab", prompt=5000)
manager.grammar_init(long)
assert not long.structured_output_request.grammar.is_ready()
threading.Timer(0.1, gate.set).start()
short = request("REGEX", "abc", prompt=100)
manager.grammar_init(short)
assert gate.is_set() and short.structured_output_request.grammar.is_ready()
gate.clear()
threading.Timer(0.1, gate.set).start()
manager._use_async_grammar_compilation = False
other = request("REGEX", "abcd", prompt=5000)
manager.grammar_init(other)
assert gate.is_set() and other.structured_output_request.grammar.is_ready()
"""
    )


def test_options_in_vllms_own_configuration(run: Run) -> None:
    run(
        """
register()
whole = config("gramary", gramary={"overlap_tokens": 3, "prefetch_entries": 0})
whole.structured_outputs_config.disable_any_whitespace = True
manager = StructuredOutputManager(whole)
manager.grammar_init(request("REGEX", "x"))
options = manager.backend.options
assert (options.overlap_tokens, options.prefetch_entries, options.whitespace) == (3, 0, "compact")
wrong = StructuredOutputManager(config("gramary", gramary={"overlap": 3}))
try:
    wrong.grammar_init(request("REGEX", "x"))
except ValueError as error:
    assert "gramary.overlap" in str(error)
else:
    raise SystemExit("a misspelt option passed")
"""
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("StructuredOutputManager.grammar_init = lambda self, request, mode: None", "grammar_init takes"),
        ("del StructuredOutputManager._create_grammar", "_create_grammar does not exist"),
        ("del sys.modules['vllm.exceptions']; sys.modules['vllm'].__path__ = []", "vllm.exceptions"),
        ("StructuredOutputGrammar.__abstractmethods__ |= {'jump'}", "wants jump"),
        ("StructuredOutputBackend.compile_grammar = lambda self, key: None", "compile_grammar takes"),
        ("del StructuredOutputsParams.__dataclass_fields__['structural_tag']", "no field structural_tag"),
    ],
)
def test_a_vllm_that_does_not_fit_is_told_and_left_alone(run: Run, change: str, expected: str) -> None:
    out = run(
        f"""
{change}
before = StructuredOutputManager.__init__, SamplingParams._validate_structured_outputs
register()
assert (StructuredOutputManager.__init__, SamplingParams._validate_structured_outputs) == before
try:
    StructuredOutputsConfig(backend="gramary")
except Exception:
    print("refused")
"""
    )
    assert "plugin_does_not_fit" in out
    assert expected in out
    assert "ERROR" in out
    assert out.endswith("refused\n")


def test_a_version_that_was_not_tried_is_told(run: Run) -> None:
    out = run("sys.modules['vllm'].__version__ = '0.40.1'\nregister()")
    assert "WARNING" in out
    assert "0.40.1" in out


def test_wrong_settings_keep_the_name_from_being_allowed(run: Run) -> None:
    out = run("register()", GRAMARY_WORKER_TAKE_OVR="true")
    assert "plugin_failed" in out
    assert "take_ovr" in out
