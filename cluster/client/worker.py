"""The client as an inference engine's source of grammars (`gramary.runtime.serving.GrammarSource`)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from gramary.cluster.client.client import Client
from gramary.cluster.kernel import Source
from gramary.compiler.compiler import Compiler
from gramary.compiler.errors import GramaryError
from gramary.runtime._core import CompiledGrammar
from gramary.runtime.serving.options import WorkerOptions
from gramary.runtime.serving.source import Compiled, CompileOptions, Kind, choices_of, compile_here


class WorkerSource:
    """Compiles a request's specification, with everything in it that the cluster has from there.

    Used on an engine's own threads for compiling, never on those that fill masks.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def compiler(self) -> Compiler:
        """The compiler whose vocabulary the grammars are for."""
        return self.client.compiler

    def at_hand(self, kind: Kind, spec: str, options: CompileOptions) -> Compiled | None:
        """The grammar, if all of its sources are in memory."""
        try:
            grammar, number, missing = self._known(kind, spec, options)
            if missing:
                return None
            grammar = grammar or compile_here(self.compiler, kind, spec, options)
        except (GramaryError, ValueError):
            return None
        self.client.ladder.found(number)
        return Compiled(grammar, "process")

    def compile(self, kind: Kind, spec: str, options: CompileOptions, *, deadline: float) -> Compiled:
        """The grammar of `spec`, and the dearest tier that was needed. Raises `CompileError`s."""
        grammar: CompiledGrammar | None = None
        try:
            grammar, number, missing = self._known(kind, spec, options)
        except (GramaryError, ValueError):
            number, missing = 0, []  # compiling says what is wrong with it
        tier = "process" if number else "local"
        self.client.ladder.found(number - len(missing))
        if missing:
            tier = self.client.ensure(missing, within_s=max(0.0, deadline - time.monotonic()))
        return Compiled(grammar or compile_here(self.compiler, kind, spec, options), tier)

    def _known(
        self, kind: Kind, spec: str, options: CompileOptions
    ) -> tuple[CompiledGrammar | None, int, Sequence[Source]]:
        """The grammar, where finding out that everything is in memory makes it; how many sources a specification has,
        as far as they can be shared; and those that are not in memory.
        """
        how: dict[str, Any] = {
            "property_order": options.property_order,
            "whitespace": options.whitespace,
            "lenient": options.lenient,
        }
        core = self.compiler.core
        if kind is Kind.STRUCTURAL_TAG:
            return core.structural_tag_if_known(spec, **how, limits=options.limits)
        if kind is Kind.JSON_SCHEMA:
            source = Source("json_schema", spec, **how)
        elif kind is Kind.REGEX:
            source = Source("regex", spec)
        elif kind is Kind.EBNF:
            source = Source.from_parts("ebnf", '{"root":"root"}', spec.encode())
        else:
            source = Source("choice", json.dumps(list(dict.fromkeys(choices_of(spec))), ensure_ascii=False))
        return None, 1, core.missing_sources([source])

    def warm(self) -> int:
        """Yesterday's sources and their mask entries from the node's store, and what every source shares."""
        number = self.client.warm()
        self.client.follow()
        return number + self.compiler.prewarm()

    def close(self) -> None:
        """Publish what is left, and let go."""
        self.client.close()


def open_worker_source(compiler: Compiler, options: WorkerOptions, **more: Any) -> WorkerSource:
    """The cluster's client for a worker with these options; `more`: for `Client`. Raises `ConfigError`."""
    from gramary.cluster.config import load

    settings = load(role="worker")
    return WorkerSource(Client(compiler, address=options.address, store=options.store_path, settings=settings, **more))
