"""The client as an inference engine's source of grammars (`gramary.runtime.serving.GrammarSource`)."""

from __future__ import annotations

import json
import time
from typing import Any

from gramary.cluster.client.client import Client
from gramary.cluster.kernel import Source
from gramary.compiler.compiler import Compiler
from gramary.compiler.errors import GramaryError
from gramary.runtime._core import CompiledGrammar
from gramary.runtime.serving.options import WorkerOptions
from gramary.runtime.serving.source import Compiled, CompileOptions, Kind, Missing, choices_of, compile_here


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

    def at_hand(self, kind: Kind, spec: str, options: CompileOptions) -> Compiled | Missing | None:
        """The grammar, if all of its sources are in memory; else those that are not."""
        try:
            grammar, missing = self._known(kind, spec, options)
            if missing.sources:
                return missing
            grammar = grammar or compile_here(self.compiler, kind, spec, options)
        except (GramaryError, ValueError):
            return None
        self.client.ladder.found(missing.number)
        return Compiled(grammar, "process")

    def compile(
        self, kind: Kind, spec: str, options: CompileOptions, *, deadline: float, missing: Missing | None = None
    ) -> Compiled:
        """The grammar of `spec`, and the dearest tier that was needed. Raises `CompileError`s."""
        grammar: CompiledGrammar | None = None
        if missing is None:
            try:
                grammar, missing = self._known(kind, spec, options)
            except (GramaryError, ValueError):
                missing = Missing(0, ())  # compiling says what is wrong with it
        tier = "process" if missing.number else "local"
        self.client.ladder.found(missing.number - len(missing.sources))
        if missing.sources:
            tier = self.client.ensure(missing.sources, within_s=max(0.0, deadline - time.monotonic()))
        return Compiled(grammar or compile_here(self.compiler, kind, spec, options), tier)

    def _known(self, kind: Kind, spec: str, options: CompileOptions) -> tuple[CompiledGrammar | None, Missing]:
        """The grammar, where finding out that everything is in memory makes it; and what is not, of the sources that
        can be shared.
        """
        how: dict[str, Any] = {
            "property_order": options.property_order,
            "whitespace": options.whitespace,
            "lenient": options.lenient,
        }
        core = self.compiler.core
        if kind is Kind.STRUCTURAL_TAG:
            grammar, number, missing = core.structural_tag_if_known(spec, **how, limits=options.limits)
            return grammar, Missing(number, missing)
        if kind is Kind.JSON_SCHEMA:
            source = Source("json_schema", spec, **how)
        elif kind is Kind.REGEX:
            source = Source("regex", spec)
        elif kind is Kind.EBNF:
            source = Source.from_parts("ebnf", '{"root":"root"}', spec.encode())
        else:
            source = Source("choice", json.dumps(list(dict.fromkeys(choices_of(spec))), ensure_ascii=False))
        return None, Missing(1, core.missing_sources([source]))

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
