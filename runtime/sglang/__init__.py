"""The SGLang grammar backend `gramary`.

    python -m sglang.launch_server --model MODEL --grammar-backend gramary

SGLang loads `register` in each of its processes, through the entry point `sglang.srt.plugins`; docs/sglang.md is the
manual. Nothing of SGLang is imported before that.
"""

from __future__ import annotations

from typing import Any

from gramary.runtime.serving.events import Events

NAME = "gramary"
"""What the backend is called on SGLang's command line."""

_events = Events("sglang.gramary")


def register() -> None:
    """Make the backend known to the SGLang of this process. May be called any number of times; never raises."""
    try:
        from sglang.srt.constrained.base_grammar_backend import (  # type: ignore[import-not-found,unused-ignore]
            register_grammar_backend,
        )

        register_grammar_backend(NAME, create_backend)
        _allow_name()
    except Exception as error:  # a plugin must not keep SGLang from starting
        _events.error("plugin_failed", error=f"{type(error).__name__}: {error}")


def create_backend(server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Any = None) -> Any:
    """What SGLang's registry calls: the backend, behind SGLang's own wrapper for reasoning models where one is asked
    for.
    """
    from gramary.runtime.sglang.backend import GramaryGrammarBackend, with_reasoning

    backend = GramaryGrammarBackend(server_args, tokenizer, vocab_size, eos_token_ids)
    return with_reasoning(backend, server_args, tokenizer)


def _allow_name() -> None:
    """The command line's list of backends has moved between versions."""
    for module in ("sglang.srt.arg_groups.choices", "sglang.srt.server_args"):
        try:
            choices = getattr(__import__(module, fromlist=["x"]), "GRAMMAR_BACKEND_CHOICES", None)
        except ImportError:
            continue
        if isinstance(choices, list) and NAME not in choices:
            choices.append(NAME)
