"""Traces: spans from a request to the actor that compiled, by OpenTelemetry's API.

Without its SDK, or before `configure`, every call here is close to free and does nothing. The context crosses processes
as W3C `traceparent` in gRPC metadata (`inject`, `extract`) and in a small dict for Ray calls; baggage is not passed on,
since it could carry anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gramary.cluster.version import package_version
from gramary.compiler.errors import GramaryError

if TYPE_CHECKING:
    from gramary.cluster.settings import Trace

LOOKUP = "gramary.lookup"
PLAN = "gramary.plan"
COMPILE_BATCH = "gramary.compile.batch"
STORE_COMMIT = "gramary.store.commit"
REQUEST = "gramary.request"

HEADERS = ("traceparent", "tracestate")
MOST_HEADER_BYTES = 512  # what the recommendation asks everyone to be able to pass on

Metadata = Iterable[tuple[str, "str | bytes"]]

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("gramary", package_version())


@contextmanager
def span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
    **attributes: str | int | float | bool,
) -> Iterator[Span]:
    """A span around a piece of work; `attributes` get the prefix `gramary.`. An exception is noted and passes on.

    An error of ours is noted by its class and message alone: its traceback would say nothing that they do not.
    """
    named: dict[str, Any] = {f"gramary.{key}": value for key, value in attributes.items()}
    with _tracer.start_as_current_span(
        name, parent, kind, named, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except BaseException as error:
            if current.is_recording():
                text = error.message if isinstance(error, GramaryError) else type(error).__name__
                current.set_attribute("error.type", type(error).__name__)
                current.set_status(Status(StatusCode.ERROR, text[:MOST_HEADER_BYTES]))
                if not isinstance(error, GramaryError):
                    current.record_exception(error)
            raise


def carrier() -> dict[str, str]:
    """The current context as a small dict of strings; empty where nothing is traced."""
    out: dict[str, str] = {}
    _propagator.inject(out)
    return out


def restore(carried: Mapping[str, str]) -> Context:
    """The context that `carrier` described elsewhere, to be a span's `parent`. Anything else gives an empty one."""
    usable = {
        key: value
        for key in HEADERS
        if isinstance(value := carried.get(key), str) and value.isascii() and len(value) <= MOST_HEADER_BYTES
    }
    return _propagator.extract(usable, Context())


def inject(metadata: Metadata = ()) -> list[tuple[str, str | bytes]]:
    """gRPC metadata with the current context added, in place of any that was there."""
    kept = [(key, value) for key, value in metadata if key not in HEADERS]
    return [*kept, *carrier().items()]


def extract(metadata: Metadata | None) -> Context:
    """The context that a caller's gRPC metadata names."""
    return restore({key: value for key, value in metadata or () if key in HEADERS and isinstance(value, str)})


@contextmanager
def attached(context: Context) -> Iterator[None]:
    """Make spans in here children of `context`."""
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def current_ids() -> tuple[str, str] | None:
    """Trace and span id in hexadecimal, for logs; `None` where nothing is traced."""
    context = trace.get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None


def configure(settings: Trace, *, node: str, role: str) -> Callable[[], None]:
    """Export spans as `settings` say; returns what flushes and stops it. Raises `ConfigError` without the extra."""
    if not settings.enabled:
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found, unused-ignore]
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        from gramary.cluster.config import ConfigError

        problem = {"field": "trace.enabled", "place": "", "reason": f"{error.name} is not installed"}
        raise ConfigError.of([{**problem, "remedy": "pip install 'gramary[otel]', or set it to false"}]) from None
    resource = Resource.create(
        {"service.name": f"gramary-{role}", "service.version": package_version(), "service.instance.id": node}
    )
    provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.endpoint)))
    trace.set_tracer_provider(provider)
    return provider.shutdown
