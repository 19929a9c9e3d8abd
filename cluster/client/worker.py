"""The client as an inference engine's source of grammars (`gramary.runtime.serving.GrammarSource`)."""

from __future__ import annotations

import json
import time
from typing import Any

from gramary.cluster.client.client import Client
from gramary.cluster.kernel import Source
from gramary.compiler.compiler import Compiler
from gramary.compiler.errors import GramaryError
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

    def compile(self, kind: Kind, spec: str, options: CompileOptions, *, deadline: float) -> Compiled:
        """The grammar of `spec`, and the dearest tier that was needed. Raises `CompileError`s."""
        try:
            sources = self.sources(kind, spec, options)
        except (GramaryError, ValueError):
            sources = []  # compiling says what is wrong with it
        tier = "process"
        if sources:
            tier = self.client.ensure(sources, within_s=max(0.0, deadline - time.monotonic()))
        return Compiled(compile_here(self.compiler, kind, spec, options), tier if sources else "local")

    def sources(self, kind: Kind, spec: str, options: CompileOptions) -> list[Source]:
        """What a specification consists of, as far as it can be shared."""
        how: dict[str, Any] = {
            "property_order": options.property_order,
            "whitespace": options.whitespace,
            "lenient": options.lenient,
        }
        if kind is Kind.JSON_SCHEMA:
            return [Source("json_schema", spec, **how)]
        if kind is Kind.REGEX:
            return [Source("regex", spec)]
        if kind is Kind.EBNF:
            return [Source.from_parts("ebnf", '{"root":"root"}', spec.encode())]
        if kind is Kind.CHOICE:
            choices = list(dict.fromkeys(choices_of(spec)))
            return [Source("choice", json.dumps(choices, ensure_ascii=False))]
        sources_of = getattr(self.compiler.core, "sources_of_structural_tag", None)
        return [] if sources_of is None else list(sources_of(spec))

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
