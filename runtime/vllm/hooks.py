"""Where the backend is hooked into vLLM, and the check that this vLLM is one that it fits.

There is no registry for backends from outside, so five places are adjusted:

| place | process | what for |
|---|---|---|
| `StructuredOutputsConfig.backend` | all | the name is allowed |
| `SamplingParams._validate_structured_outputs` | API server | a request is judged: HTTP 400 |
| `StructuredOutputManager.__init__` | engine core | the backend is built at start, behind the model's loading |
| `StructuredOutputManager.grammar_init` | engine core | it is the manager's backend |
| `StructuredOutputManager._create_grammar` | engine core | may the request be scheduled before its grammar is there? |

Each is wrapped, calls what it wraps for every other backend, and is checked by its signature first.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, Literal, get_args

from gramary.runtime.serving.events import Events
from gramary.runtime.serving.options import WorkerOptions

_events = Events("vllm.gramary")  # below "vllm", so that vLLM's own configuration of logging shows it

NAME = "gramary"
TRIED = ("0.32", "0.33")
"""Versions of vLLM whose hooks were tried or read; others are judged by their signatures."""

_lock = threading.Lock()
_installed: list[bool] = []


def signature_problems() -> list[str]:
    """What about this vLLM's hooks is not as this module needs it; empty if it fits."""
    problems = []

    def check(owner: Any, name: str, parameters: list[str]) -> None:
        method = getattr(owner, name, None)
        where = f"{getattr(owner, '__name__', owner)}.{name}"
        if method is None:
            problems.append(f"{where} does not exist")
            return
        known = inspect.signature(inspect.unwrap(method)).parameters
        found = list(known)
        more = [known[name] for name in found[len(parameters) :]]
        needed = [
            one
            for one in more
            if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        ]
        if found[: len(parameters)] != parameters or needed:
            problems.append(f"{where} takes ({', '.join(found)}), and ({', '.join(parameters)}) is expected")

    try:
        from vllm.config import StructuredOutputsConfig  # type: ignore[import-not-found,unused-ignore]
        from vllm.exceptions import VLLMValidationError  # type: ignore[import-not-found,unused-ignore]
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams  # type: ignore[import-not-found,unused-ignore]
        from vllm.v1.structured_output import StructuredOutputManager  # type: ignore[import-not-found,unused-ignore]
        from vllm.v1.structured_output.backend_types import (  # type: ignore[import-not-found,unused-ignore]
            StructuredOutputBackend,
            StructuredOutputGrammar,
            StructuredOutputOptions,
        )
    except ImportError as error:
        return [str(error)]
    if not issubclass(VLLMValidationError, Exception):
        problems.append("VLLMValidationError is no exception")
    if "backend" not in getattr(StructuredOutputsConfig, "__dataclass_fields__", {}):
        problems.append("StructuredOutputsConfig has no field backend")
    check(
        SamplingParams,
        "_validate_structured_outputs",
        ["self", "model_config", "structured_outputs_config", "tokenizer"],
    )
    check(StructuredOutputManager, "__init__", ["self", "vllm_config"])
    check(StructuredOutputManager, "grammar_init", ["self", "request"])
    check(StructuredOutputManager, "_create_grammar", ["self", "request"])
    check(StructuredOutputBackend, "compile_grammar", ["self", "request_type", "grammar_spec"])
    check(StructuredOutputBackend, "allocate_token_bitmask", ["self", "max_num_seqs"])
    check(StructuredOutputGrammar, "accept_tokens", ["self", "request_id", "tokens"])
    check(StructuredOutputGrammar, "validate_tokens", ["self", "tokens"])
    check(StructuredOutputGrammar, "rollback", ["self", "num_tokens"])
    check(StructuredOutputGrammar, "fill_bitmask", ["self", "bitmask", "batch_index"])
    missing = {"JSON", "JSON_OBJECT", "REGEX", "GRAMMAR", "CHOICE", "STRUCTURAL_TAG"} - set(
        StructuredOutputOptions.__members__
    )
    problems += [f"StructuredOutputOptions.{name} does not exist" for name in sorted(missing)]
    unknown = set(StructuredOutputGrammar.__abstractmethods__) - {
        *("accept_tokens", "validate_tokens", "rollback", "fill_bitmask", "is_terminated", "reset")
    }
    problems += [f"StructuredOutputGrammar wants {name}, which is not known here" for name in sorted(unknown)]
    fields = getattr(StructuredOutputsParams, "__dataclass_fields__", {})
    wanted = ("json", "regex", "choice", "grammar", "json_object", "structural_tag", "_backend")
    problems += [f"StructuredOutputsParams has no field {name}" for name in wanted if name not in fields]
    return problems


def install(options: WorkerOptions | None = None) -> bool:
    """Hook the backend into this process's vLLM; False, with an error in the log, if it does not fit.

    `options` default to what is configured for the process.
    """
    with _lock:
        if _installed:
            return _installed[0]
        try:
            _installed.append(_install(options))
        except Exception as error:  # a plugin must not keep vLLM from starting
            _events.error("plugin_failed", error=f"{type(error).__name__}: {error}")
            _installed.append(False)
        return _installed[0]


def _install(options: WorkerOptions | None) -> bool:
    version = _version()
    problems = signature_problems()
    if problems:
        _events.error(
            "plugin_does_not_fit",
            vllm=version,
            tried=", ".join(TRIED),
            problems="; ".join(problems),
            remedy="use a version of vLLM that was tried, or another structured-output backend",
        )
        return False
    if not version.startswith(TRIED):
        _events.warning("plugin_not_tried", vllm=version, tried=", ".join(TRIED), signatures="fit")
    options = options or WorkerOptions.load()
    _allow_name()
    _wrap_validation(options)
    _wrap_manager(options)
    if options.take_over:
        _take_over(options)
    _events.info("plugin_ready", vllm=version, take_over=options.take_over)
    return True


def _version() -> str:
    import vllm  # type: ignore[import-not-found,unused-ignore]

    return str(getattr(vllm, "__version__", "unknown"))


def _allow_name() -> None:
    """`StructuredOutputsConfig.backend` is a Literal: annotation, dataclass field and pydantic field are widened."""
    from pydantic.dataclasses import rebuild_dataclass
    from vllm.config import StructuredOutputsConfig  # type: ignore[import-not-found,unused-ignore]

    known = get_args(StructuredOutputsConfig.__annotations__["backend"])
    if NAME in known:
        return
    literal: Any = Literal
    names = (*known, NAME)
    widened = literal[names]
    StructuredOutputsConfig.__annotations__["backend"] = widened
    StructuredOutputsConfig.__dataclass_fields__["backend"].type = widened
    pydantic_field = getattr(StructuredOutputsConfig, "__pydantic_fields__", {}).get("backend")
    if pydantic_field is not None:
        pydantic_field.annotation = widened
    rebuild_dataclass(StructuredOutputsConfig, force=True)


def _wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


def _wrap_validation(options: WorkerOptions) -> None:
    from vllm.sampling_params import SamplingParams  # type: ignore[import-not-found,unused-ignore]

    from gramary.runtime.vllm.requests import RequestJudge

    judge = RequestJudge(options)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def validate(self: Any, model_config: Any, structured_outputs_config: Any, tokenizer: Any) -> None:
            config = structured_outputs_config
            if config is None or self.structured_outputs is None or config.backend != NAME:
                original(self, model_config, structured_outputs_config, tokenizer)
            else:
                judge.validate(self, model_config, tokenizer)

        return validate

    _wrap(SamplingParams, "_validate_structured_outputs", make)


def _wrap_manager(options: WorkerOptions) -> None:
    from vllm.v1.structured_output import StructuredOutputManager  # type: ignore[import-not-found,unused-ignore]

    from gramary.runtime.vllm.backend import BackendBuilder, scheduling_of

    def make_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, vllm_config: Any) -> None:
            original(self, vllm_config)
            if vllm_config.structured_outputs_config.backend == NAME and getattr(self, "tokenizer", None) is not None:
                self._gramary = BackendBuilder(vllm_config, self.tokenizer, options)

        return init

    def make_grammar_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def grammar_init(self: Any, request: Any) -> None:
            builder = getattr(self, "_gramary", None)
            if self.backend is None and builder is not None and request.structured_output_request is not None:
                self.backend = builder.result()
                if hasattr(self, "backend_name"):
                    self.backend_name = NAME
            original(self, request)

        return grammar_init

    def make_create(original: Callable[..., Any]) -> Callable[..., Any]:
        def create_grammar(self: Any, request: Any) -> Any:
            with scheduling_of(self, request):
                return original(self, request)

        return create_grammar

    _wrap(StructuredOutputManager, "__init__", make_init)
    _wrap(StructuredOutputManager, "grammar_init", make_grammar_init)
    _wrap(StructuredOutputManager, "_create_grammar", make_create)


def _take_over(options: WorkerOptions) -> None:
    """Answer to the name "xgrammar" (and to "auto", which tries it first), for fleets whose flags cannot be changed."""
    import vllm.v1.structured_output as package  # type: ignore[import-not-found,unused-ignore]
    import vllm.v1.structured_output.backend_xgrammar as stock  # type: ignore[import-not-found,unused-ignore]

    from gramary.runtime.vllm.backend import GramaryBackend
    from gramary.runtime.vllm.requests import RequestJudge

    judge = RequestJudge(options)

    def backend(vllm_config: Any, tokenizer: Any, vocab_size: int) -> GramaryBackend:
        return GramaryBackend(vllm_config, tokenizer=tokenizer, vocab_size=vocab_size)

    def validate(sampling_params: Any) -> None:
        if sampling_params.structured_outputs is not None:
            judge.check(sampling_params, None)

    package.XgrammarBackend = backend
    stock.validate_xgrammar_grammar = validate
