"""`ServingBackend`: futures, bounded waits, lanes, caches, and that nothing raises in an engine's thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gramary.compiler import Compiler, InvalidPattern, LimitExceeded, Tokenizer
from gramary.runtime import tokens_of
from gramary.runtime.serving import (
    Compiled,
    CompileOptions,
    Kind,
    LocalSource,
    Missing,
    RequestGrammar,
    ServingBackend,
)
from gramary.runtime.serving.factory import open_source
from gramary.runtime.serving.metrics import WorkerCounts
from gramary.runtime.serving.options import WorkerOptions

END = 256


class Gated(LocalSource):
    """A source whose compiles wait until `gate` opens, and that can be told to do something else first."""

    def __init__(self, compiler: Compiler, before: Callable[[str, CompileOptions], None] = lambda *_: None) -> None:
        super().__init__(compiler)
        self.gate = threading.Event()
        self.before = before
        self.asked: list[str] = []

    def compile(
        self, kind: Kind, spec: str, options: CompileOptions, *, deadline: float, missing: Missing | None = None
    ) -> Compiled:
        self.asked.append(spec)
        self.before(spec, options)
        self.gate.wait(30)
        return super().compile(kind, spec, options, deadline=deadline)


class Remembering(LocalSource):
    """A source that has at hand what it compiled."""

    def __init__(self, compiler: Compiler) -> None:
        super().__init__(compiler)
        self.compiled: dict[str, Compiled] = {}
        self.threads: list[str] = []
        self.lacking: Missing | None = None
        self.told: list[Missing | None] = []

    def at_hand(self, kind: Kind, spec: str, options: CompileOptions) -> Compiled | Missing | None:
        self.threads.append(threading.current_thread().name)
        return self.compiled.get(spec, self.lacking)

    def compile(
        self, kind: Kind, spec: str, options: CompileOptions, *, deadline: float, missing: Missing | None = None
    ) -> Compiled:
        self.told.append(missing)
        found = super().compile(kind, spec, options, deadline=deadline)
        return self.compiled.setdefault(spec, Compiled(found.grammar, "process"))


@pytest.fixture
def compiler() -> Compiler:
    return Compiler(Tokenizer.from_bytes())


def bitmask() -> np.ndarray:
    return np.full((4, 9), 7, np.int32)


def test_a_mask_waits_for_its_grammar(compiler: Compiler) -> None:
    source = Gated(compiler)
    backend = ServingBackend(source, WorkerOptions(fill_wait_ms=20_000))
    grammar = backend.begin(Kind.REGEX, "ab", make=RequestGrammar, wait=False)
    assert not grammar.is_ready()
    assert not grammar.is_terminated()
    threading.Timer(0.05, source.gate.set).start()
    rows = bitmask()
    grammar.fill_bitmask(rows, 1)
    assert tokens_of(rows[1]).tolist() == [ord("a")]
    assert (rows[[0, 2, 3]] == 7).all()
    assert backend.counts.value("fill_waits", "ready") == 1
    assert grammar.accept_tokens("r", list(b"ab"))
    backend.close()


def test_a_mask_that_waited_long_enough_is_open_and_its_token_refused(compiler: Compiler) -> None:
    """For good: also when the grammar comes later, and the token would have been allowed."""
    source = Gated(compiler)
    backend = ServingBackend(source, WorkerOptions(fill_wait_ms=5))
    grammar = backend.begin(Kind.REGEX, "ab", make=RequestGrammar, wait=False)
    rows = bitmask()
    grammar.fill_bitmask(rows, 0)
    assert (rows[0] == -1).all()
    source.gate.set()
    other = backend.begin(Kind.REGEX, "ab", make=RequestGrammar)
    grammar.fill_bitmask(rows, 1)
    assert (rows[1] == -1).all()
    assert grammar.validate_tokens([ord("a")]) == []
    assert not grammar.accept_tokens("r", [ord("a")])
    assert "still being compiled" in grammar.reason
    assert backend.counts.value("fill_waits", "expired") == 1
    assert backend.counts.value("requests_failed", "deadline") == 1
    assert other.accept_tokens("r", [ord("a")])
    backend.close()


def test_an_error_behind_a_scheduled_request_ends_it_at_its_first_token(compiler: Compiler) -> None:
    backend = ServingBackend(LocalSource(compiler))
    grammar = backend.begin(Kind.REGEX, "(", make=RequestGrammar, wait=False)
    rows = bitmask()
    grammar.fill_bitmask(rows, 0)
    assert (rows[0] == -1).all()
    assert not grammar.accept_tokens("r", [ord("a")])
    assert "did not compile" in grammar.reason
    assert backend.counts.value("requests_failed", "invalid") == 1
    with pytest.raises(InvalidPattern):
        backend.begin(Kind.REGEX, "(", make=RequestGrammar)
    backend.close()


def test_requests_for_the_same_share_one_compile_and_one_grammar(compiler: Compiler) -> None:
    source = Gated(compiler)
    backend = ServingBackend(source)
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(backend.begin, Kind.REGEX, "a{3}", make=RequestGrammar) for _ in range(12)]
        while not source.asked:
            time.sleep(0.001)
        source.gate.set()
        assert all(one.result().accept_tokens("r", list(b"aaa")) for one in waiting)
    assert source.asked == ["a{3}"]
    before = backend.counts.snapshot()["compiles"].get("process", {"count": 0})["count"]
    backend.begin(Kind.REGEX, "a{3}", make=RequestGrammar)
    assert source.asked == ["a{3}"]
    assert backend.counts.snapshot()["compiles"]["process"]["count"] == before + 1
    backend.begin(Kind.REGEX, "a{4}", make=RequestGrammar)
    assert source.asked == ["a{3}", "a{4}"]
    backend.close()


def test_known_grammars_are_bounded(compiler: Compiler) -> None:
    source = Gated(compiler)
    source.gate.set()
    backend = ServingBackend(source, WorkerOptions(grammars=3))
    for i in (0, 1, 2, 0, 3, 0, 1):
        backend.begin(Kind.REGEX, f"a{{{i + 1}}}", make=RequestGrammar)
    assert source.asked == [f"a{{{i + 1}}}" for i in (0, 1, 2, 3, 1)]
    backend.close()


def test_a_slow_compile_goes_behind_and_delays_nobody(compiler: Compiler) -> None:
    """It is tried briefly, then again with all its time, while others pass."""
    tried: dict[str, list[str]] = {}
    release = threading.Event()

    def before(spec: str, options: CompileOptions) -> None:
        if spec.startswith("slow"):
            tried.setdefault(spec, []).append(str(options.limits))
            if len(tried[spec]) == 1:
                raise LimitExceeded("too slow", limit="seconds", value=0.1)
            release.wait(30)

    source = Gated(compiler, before)
    source.gate.set()
    backend = ServingBackend(source, WorkerOptions(threads=2, compile_s=20, quick_s=0.25))
    slow = [backend.begin(Kind.REGEX, f"slow{i}", make=RequestGrammar, wait=False) for i in range(8)]
    for i in range(20):
        assert backend.begin(Kind.REGEX, f"quick{i}", make=RequestGrammar).is_ready()
    assert not any(one.is_ready() for one in slow)
    release.set()
    rows = bitmask()
    slow[0].fill_bitmask(rows, 0)
    assert tokens_of(rows[0]).tolist() == [ord("s")]
    assert "seconds=0.25" in tried["slow0"][0]
    assert "seconds=0.25" not in tried["slow0"][1]
    assert backend.counts.value("slow_compiles") == 8
    backend.close()


def test_a_limit_is_the_requests_own(compiler: Compiler) -> None:
    backend = ServingBackend(LocalSource(compiler), WorkerOptions(limits={"fsm_states": 50}, compile_s=5))
    with pytest.raises(LimitExceeded):
        backend.begin(Kind.REGEX, "(a|b)*a(a|b){12}", make=RequestGrammar)
    assert backend.counts.value("requests_failed", "limit") == 1
    assert backend.begin(Kind.REGEX, "ab", make=RequestGrammar).accept_tokens("r", list(b"ab"))
    backend.close()


def test_a_compile_that_never_comes_ends_at_its_deadline(compiler: Compiler) -> None:
    source = Gated(compiler)
    backend = ServingBackend(source, WorkerOptions(compile_s=0.01, quick_s=0.01))
    with pytest.raises(LimitExceeded, match=r"not compiled within 0\.01 s"):
        backend.begin(Kind.REGEX, "ab", make=RequestGrammar)
    source.gate.set()
    backend.close()


@pytest.mark.parametrize("wait", [True, False])
def test_a_source_with_a_defect_hurts_one_request(compiler: Compiler, wait: bool) -> None:
    def before(spec: str, options: CompileOptions) -> None:
        if spec == "bad":
            raise KeyError("a defect")

    source = Gated(compiler, before)
    source.gate.set()
    backend = ServingBackend(source)
    if wait:
        with pytest.raises(KeyError):
            backend.begin(Kind.REGEX, "bad", make=RequestGrammar)
    else:
        grammar = backend.begin(Kind.REGEX, "bad", make=RequestGrammar, wait=False)
        grammar.fill_bitmask(bitmask(), 0)
        assert not grammar.accept_tokens("r", [1])
        assert "a defect" in grammar.reason
    assert backend.begin(Kind.REGEX, "good", make=RequestGrammar).is_ready()
    backend.close()


def test_a_warm_start_that_fails_is_no_reason_not_to_start(compiler: Compiler) -> None:
    class Cold(LocalSource):
        def warm(self) -> int:
            raise OSError("the store is gone")

    backend = ServingBackend(Cold(compiler))
    assert backend.warm().result(30) == 0
    assert backend.begin(Kind.REGEX, "a", make=RequestGrammar).is_ready()
    backend.close()


def test_a_warm_start_takes_the_entries_of_a_file(compiler: Compiler, tmp_path: Path) -> None:
    compiler.prewarm()
    compiler.save_entries(tmp_path / "entries")
    fresh = Compiler(Tokenizer.from_bytes())
    backend = ServingBackend(LocalSource(fresh, entries_path=tmp_path / "entries"))
    assert backend.warm().result(30) > 0
    backend.close()


@pytest.mark.parametrize("state", ["ready", "compiling", "failed"])
def test_nothing_raises_whatever_the_engine_does(compiler: Compiler, state: str) -> None:
    """Random calls in any order, with tokens that no vocabulary has and rollbacks beyond what there is."""
    draw = random.Random(3)
    tokens = [-1, 0, *b"ab{}", END, 300, 2**31, -(2**40), 2**70]
    for round_ in range(60):
        source = Gated(compiler)
        if state != "compiling":
            source.gate.set()
        backend = ServingBackend(source, WorkerOptions(fill_wait_ms=0))
        spec = "(" if state == "failed" else "[ab]*"
        grammar = backend.begin(
            Kind.REGEX, spec, make=RequestGrammar, wait=state == "ready", stop_token_ids={END, 10**9, -1}
        )
        rows = bitmask()
        for _ in range(40):
            call = draw.randrange(6)
            some = [draw.choice(tokens) for _ in range(draw.randrange(4))]
            if call == 0:
                grammar.fill_bitmask(rows, draw.randrange(4))
                assert rows.any(axis=1).all()
            elif call == 1:
                assert grammar.accept_tokens("r", some) in (True, False)
            elif call == 2:
                assert grammar.validate_tokens(some) == some[: len(grammar.validate_tokens(some))]
            elif call == 3:
                grammar.rollback(draw.choice([0, 1, 2, 1000]))
            elif call == 4:
                assert grammar.is_terminated() in (True, False)
            elif round_ % 2:
                grammar.reset()
        source.gate.set()
        backend.close()


def test_rows_of_whatever_array_are_written_and_no_others(compiler: Compiler) -> None:
    grammar = ServingBackend(LocalSource(compiler)).begin(Kind.REGEX, "ab", make=RequestGrammar)
    wide = np.full((4, 18), 7, np.int32)
    for rows in (bitmask(), wide[:, :9], wide[::2, 9:], bitmask()[:, ::-1].copy()[:, ::-1].copy(), wide[:, 3:14]):
        rows[:] = 7
        for row in (1, 0):  # the second time it is the array known from before
            grammar.fill_bitmask(rows, row)
            assert tokens_of(rows[row]).tolist() == [ord("a")]
        assert (rows[2:] == 7).all()
    short = bitmask()
    grammar.fill_bitmask(short, 3)
    with pytest.raises(IndexError):  # an engine's mistake; the bytes behind the array are nobody's
        grammar.fill_bitmask(short, 4)
    assert "row 4" in grammar.reason


def test_torch_bitmasks(compiler: Compiler) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    backend = ServingBackend(LocalSource(compiler))
    grammar = backend.begin(Kind.REGEX, "ab", make=RequestGrammar)
    for _ in range(2):  # two buffers, one after the other
        rows = torch.full((3, 9), -1, dtype=torch.int32)
        grammar.fill_bitmask(rows, 2)
        assert tokens_of(rows[2].numpy()).tolist() == [ord("a")]
        assert (rows[:2] == -1).all()
    backend.close()


def test_every_call_is_counted_once_whatever_comes_of_it(compiler: Compiler) -> None:
    backend = ServingBackend(LocalSource(compiler))
    good = backend.begin(Kind.REGEX, "ab", make=RequestGrammar)
    bad = backend.begin(Kind.REGEX, "(", make=RequestGrammar, wait=False)
    for grammar in (good, bad):
        grammar.fill_bitmask(bitmask(), 0)
        grammar.validate_tokens([ord("a")])
        grammar.accept_tokens("r", [ord("a")])
        grammar.rollback(1)
    backend.begin(Kind.REGEX, "ab", make=RequestGrammar).fill_bitmask(bitmask(), 0)
    calls = backend.counts.snapshot()["calls"]
    assert {call: one["count"] for call, one in calls.items()} == {"fill": 3, "accept": 2, "validate": 2, "rollback": 2}
    assert all(0 < one["sum"] < 10 and sum(one["buckets"]) == one["count"] for one in calls.values())
    backend.close()


def test_a_matcher_is_lent_until_the_request_fails(compiler: Compiler) -> None:
    """It is the request's own, not a copy: engines that fill many rows at once read it."""
    backend = ServingBackend(LocalSource(compiler))
    grammar = backend.begin(Kind.REGEX, "ab", make=RequestGrammar)
    matcher = grammar.matcher
    assert matcher is not None
    assert grammar.accept_tokens("r", [ord("a")])
    assert matcher.accept_tokens([ord("a"), ord("b")]) == 0
    assert matcher.accept_token(ord("b"))
    assert not grammar.accept_tokens("r", [ord("b")])
    assert "the text is complete" in grammar.reason
    assert grammar.matcher is None
    backend.close()


def test_reset_begins_anew(compiler: Compiler) -> None:
    backend = ServingBackend(LocalSource(compiler))
    grammar = backend.begin(Kind.REGEX, "ab", make=RequestGrammar)
    assert grammar.accept_tokens("r", [ord("a"), ord("b"), END])
    grammar.reset()
    assert not grammar.is_terminated()
    assert grammar.validate_tokens([ord("a")]) == [ord("a")]
    backend.close()


def test_a_cluster_that_cannot_be_opened_leaves_local_compiling(
    compiler: Compiler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gramary.runtime.serving.factory.CLUSTER_SOURCE", "gramary.no_such_module:open")
    source = open_source(compiler, WorkerOptions(address="127.0.0.1:1"), WorkerCounts())
    assert isinstance(source, LocalSource)
    assert [record.event for record in caplog.records] == ["cluster_client_failed"]  # type: ignore[attr-defined]
    assert isinstance(open_source(compiler, WorkerOptions(), WorkerCounts()), LocalSource)


def test_options_come_from_the_environment() -> None:
    pytest.importorskip("pydantic_settings", reason="pydantic-settings is not installed")
    options = WorkerOptions.load(
        {
            "GRAMARY_CLIENT_ADDRESS": "unix:/run/agent.sock",
            "GRAMARY_STORE_PATH": "/var/lib/gramary",
            "GRAMARY_WORKER_OVERLAP_TOKENS": "7",
            "GRAMARY_WORKER_WHITESPACE": "compact",
            "GRAMARY_DEADLINES_FILL_WAIT_MS": "3.5",
            "GRAMARY_LIMITS_SECONDS": "2",
        }
    )
    assert options.address == "unix:/run/agent.sock"
    assert options.store_path == Path("/var/lib/gramary")
    assert (options.overlap_tokens, options.whitespace, options.fill_wait_ms) == (7, "compact", 3.5)
    assert "seconds=2," in str(options.compile_options(seconds=5).limits).replace(")", ",")
    plain = WorkerOptions.load({})
    assert (plain.address, plain.store_path, plain.take_over) == (None, None, False)


def test_what_is_at_hand_is_put_together_where_it_was_asked_for(compiler: Compiler) -> None:
    source = Remembering(compiler)
    backend = ServingBackend(source, WorkerOptions(grammars=0))  # the source is asked each time
    for wait in (True, True, False):
        grammar = backend.begin(Kind.REGEX, "ab", make=RequestGrammar, wait=wait)
        rows = bitmask()
        grammar.fill_bitmask(rows, 0)
        assert tokens_of(rows[0]).tolist() == [ord("a")]
    me = threading.current_thread().name
    assert source.threads == [me, me]  # who does not wait has no time for look-ups either
    source.lacking = Missing(3, ())
    backend.begin(Kind.REGEX, "cd", make=RequestGrammar)
    assert source.told == [None, None, source.lacking]  # what was found out is not found out again
    assert backend.counts.snapshot()["compiles"]["process"]["count"] == 4
    backend.close()
