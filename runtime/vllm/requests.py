"""A request as vLLM describes it: what it asks for, and whether it is admitted (API server)."""

from __future__ import annotations

import json
from typing import Any

from gramary.compiler.errors import GramaryError
from gramary.compiler.tokenizer import Tokenizer
from gramary.runtime.serving import Admission, Kind, WorkerOptions
from gramary.runtime.serving.events import Events
from gramary.runtime.serving.source import JSON_OBJECT_SCHEMA

NAME = "gramary"
_events = Events("vllm.gramary")


def specification(params: Any) -> tuple[Kind, str]:
    """What `StructuredOutputsParams` ask for, as text. Raises `ValueError` for none, or one that is empty."""
    if params.json is not None:
        text = params.json if isinstance(params.json, str) else json.dumps(params.json)
        kind = Kind.JSON_SCHEMA
    elif params.json_object:
        kind, text = Kind.JSON_SCHEMA, JSON_OBJECT_SCHEMA
    elif params.regex is not None:
        return Kind.REGEX, params.regex  # the empty pattern is one
    elif params.choice is not None:
        kind, text = Kind.CHOICE, params.choice if isinstance(params.choice, str) else json.dumps(params.choice)
    elif params.grammar is not None:
        kind, text = Kind.EBNF, params.grammar
    elif params.structural_tag is not None:
        kind, text = Kind.STRUCTURAL_TAG, params.structural_tag
    else:
        raise ValueError("structured_outputs asks for nothing; leave it out (json_object can only be true)")
    if not text.strip():
        raise ValueError(f"structured_outputs.{kind.value} is empty")
    return kind, text


class RequestJudge:
    """Admits requests, or raises `VLLMValidationError`, which becomes HTTP 400."""

    def __init__(self, options: WorkerOptions) -> None:
        self._model_tokenizer: Any = None
        self._admission = Admission(options, tokenizer=self._tokenizer)

    def validate(self, sampling_params: Any, model_config: Any, tokenizer: Any) -> None:
        """In place of vLLM's own `SamplingParams._validate_structured_outputs`."""
        from vllm.exceptions import VLLMValidationError  # type: ignore[import-not-found,unused-ignore]

        params = sampling_params.structured_outputs
        if getattr(model_config, "is_diffusion", False):
            raise VLLMValidationError("Structured outputs are not supported for diffusion language models.")
        if tokenizer is None:
            raise VLLMValidationError(
                "Structured outputs need a tokenizer: they cannot be used with skip_tokenizer_init."
            )
        if params._backend and params._backend != NAME:
            raise VLLMValidationError(
                f"The request names the structured output backend {params._backend!r}, and this server runs {NAME!r}: "
                "leave _backend out."
            )
        self.check(sampling_params, tokenizer)
        params._backend = NAME
        params.__post_init__()

    def check(self, sampling_params: Any, tokenizer: Any) -> None:
        """Judge what is asked for."""
        from vllm.exceptions import VLLMValidationError  # type: ignore[import-not-found,unused-ignore]

        if tokenizer is not None:
            self._model_tokenizer = tokenizer
        try:
            kind, spec = specification(sampling_params.structured_outputs)
            self._admission.check(kind, spec, min_tokens=sampling_params.min_tokens)
        except (GramaryError, ValueError, TypeError, RecursionError) as error:
            raise VLLMValidationError(f"{type(error).__name__}: {error}") from error
        except Exception as error:  # a defect of ours: the engine will judge the request, with its limits
            _events.error("request_not_judged", error=f"{type(error).__name__}: {error}")

    def _tokenizer(self) -> Tokenizer:
        if self._model_tokenizer is None:
            return Tokenizer.from_bytes()
        return Tokenizer.from_transformers(self._model_tokenizer)
