"""Logs are lines of JSON whatever is in them; traces cross processes; both cost nothing when off."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gramary.cluster import log, trace
from gramary.cluster.config import ConfigError
from gramary.cluster.settings import Log, Trace
from gramary.compiler.errors import LimitExceeded

logger = log.get_logger("gramary.test")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    level, levels = root.level, {name: logging.getLogger(name).level for name in log._QUIET}
    handler = log.configure(Log(format="json"), node="n1", role="agent", stream=stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)
    for name, value in levels.items():
        logging.getLogger(name).setLevel(value)
    logging.captureWarnings(False)


def parsed(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_have_fields(lines: io.StringIO) -> None:
    with log.fields(request="r1", peer="outer"):
        logger.info("shard_received", peer="n2", bytes=3, digest=b"\xab\xcd")
    logger.debug("not_at_this_level")
    (line,) = parsed(lines)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "shard_received", "level": "info", "logger": "gramary.test", "node": "n1", "role": "agent",
        "request": "r1", "peer": "n2", "bytes": 3, "digest": "abcd",
    }  # fmt: skip


def test_what_is_hostile_stays_one_line_and_cannot_pass_for_another(lines: io.StringIO) -> None:
    bad = {f"f{i}": i for i in range(100)}
    logger.warning("odd", text='a\n{"event": "forged"}\u2028\x1b[31m', level="critical", node="n9", long="x" * 10_000)
    logger.warning("many", **bad)
    first, second = parsed(lines)
    assert (first["event"], first["level"], first["node"]) == ("odd", "warning", "n1")
    assert (first["field_level"], first["field_node"]) == ("critical", "n9")
    assert len(first["long"]) < 2100
    assert len(second) < 60


def test_other_libraries_and_errors_come_out_the_same_way(lines: io.StringIO) -> None:
    logging.getLogger("somebody.else").warning("%s of %d", "one", 2)
    logging.getLogger("grpc._server").info("chatter")
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        logger.exception("unforeseen", source="s")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    other, own, warning = parsed(lines)
    assert (other["event"], other["logger"]) == ("one of 2", "somebody.else")
    assert "ZeroDivisionError" in own["exception"]
    assert own["source"] == "s"
    assert "old" in warning["event"]


def test_a_second_configuration_replaces_the_first(lines: io.StringIO) -> None:
    second = io.StringIO()
    handler = log.configure(Log(format="console", level="error"), stream=second)
    logger.error("seen", a=1)
    logger.info("unseen")
    logging.getLogger().removeHandler(handler)
    assert lines.getvalue() == ""
    assert "seen" in second.getvalue()
    assert "unseen" not in second.getvalue()
    assert "\x1b" not in second.getvalue()


def test_without_configuration_it_is_plain_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        logger.info("event", a=1)
    (record,) = caplog.records
    assert record.message == "event"
    assert record.__dict__["fields"] == {"a": 1}
    assert record.funcName == "test_without_configuration_it_is_plain_logging"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_tracer", provider.get_tracer("gramary"))
    yield exporter
    provider.shutdown()


def test_without_an_sdk_nothing_happens() -> None:
    with trace.span(trace.LOOKUP, keys=3) as span:
        assert not span.is_recording()
        assert trace.current_ids() is None
        assert trace.carrier() == {}
        assert trace.inject([("a", "b")]) == [("a", "b")]


def test_spans_from_request_to_actor(exporter: InMemorySpanExporter, lines: io.StringIO) -> None:
    with trace.span(trace.REQUEST, kind=api.SpanKind.CLIENT):
        metadata = trace.inject([("authorization", "Bearer x"), ("traceparent", "stale")])
    assert [key for key, _ in metadata] == ["authorization", "traceparent"]
    with trace.attached(trace.extract(metadata)):
        with trace.span(trace.LOOKUP, keys=2), trace.span(trace.PLAN, units=5):
            carried = trace.carrier()
        logger.info("inside")
    with trace.span(trace.COMPILE_BATCH, parent=trace.restore(carried)), trace.span(trace.STORE_COMMIT):
        pass
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert len({span.context.trace_id for span in spans.values()}) == 1
    parents = {name: span.parent and span.parent.span_id for name, span in spans.items()}
    ids = {name: span.context.span_id for name, span in spans.items()}
    assert parents[trace.REQUEST] is None
    assert parents[trace.LOOKUP] == ids[trace.REQUEST]
    assert parents[trace.PLAN] == ids[trace.LOOKUP]
    assert parents[trace.COMPILE_BATCH] == ids[trace.PLAN]
    assert parents[trace.STORE_COMMIT] == ids[trace.COMPILE_BATCH]
    assert dict(spans[trace.PLAN].attributes or {}) == {"gramary.units": 5}
    (line,) = parsed(lines)
    assert line["trace_id"] == f"{spans[trace.REQUEST].context.trace_id:032x}"


def test_errors_mark_their_span(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(LimitExceeded), trace.span(trace.COMPILE_BATCH):
        raise LimitExceeded("too many states", limit="fsm_states", value=3)
    with pytest.raises(ValueError, match="odd"), trace.span(trace.PLAN):
        raise ValueError("odd")
    ours, other = exporter.get_finished_spans()
    assert (ours.status.status_code, ours.status.description) == (api.StatusCode.ERROR, "too many states")
    assert not ours.events
    assert other.events[0].name == "exception"


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        [("traceparent", "junk")],
        [("traceparent", b"\xff")],
        [("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-01")],
        [("traceparent", "x" * 10_000)],
        [("tracestate", "a=b"), ("baggage", "user=me")],
    ],
)
def test_strangers_contexts_are_ignored(metadata: Any, exporter: InMemorySpanExporter) -> None:
    with trace.attached(trace.extract(metadata)), trace.span(trace.LOOKUP):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_exporting_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    trace.configure(Trace(), node="n", role="agent")()
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"gramary\[otel\]"):
        trace.configure(Trace(enabled=True), node="n", role="agent")
