"""One suite for every executor: answers, order, limits, deaths, cancellation, deadlines."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from gramary.cluster.executor import Failed, InProcess, Lowered, ProcessPool, RayExecutor, WorkLimits
from gramary.cluster.executor.base import LowerTask
from gramary.cluster.executor.batch import Batch
from gramary.cluster.executor.dispatch import Dispatcher, WorkerLost
from gramary.cluster.executor.errors import UnknownTokenizer, decode_error, encode_error
from gramary.cluster.records import Kind
from gramary.compiler.errors import InvalidSchema, LimitExceeded, TokenizerError
from tests.cluster.fakes import digest, source, unit_bytes

BENCH = "tests.cluster.fakes:FakeBench"
VOCABULARY = b"some vocabulary"
TOKENIZER = blake3(VOCABULARY).digest()
LIMITS = WorkLimits(seconds=5.0, hard_seconds=20.0, hard_bytes=100 << 20)

MAKERS: dict[str, Callable[[], Dispatcher]] = {
    "threads": lambda: InProcess(2, bench=BENCH, limits=LIMITS),
    "processes": lambda: ProcessPool(2, bench=BENCH, limits=LIMITS),
    "ray": lambda: RayExecutor(2, bench=BENCH, limits=LIMITS),
}


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return str(request.param)


@pytest.fixture(params=["processes", "ray"])
def endable(request: pytest.FixtureRequest) -> str:
    """Those whose workers can be ended while they work."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return str(request.param)


def with_executor(kind: str, body: Callable[[Dispatcher], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        executor = MAKERS[kind]()
        try:
            return await asyncio.wait_for(body(executor), 120)
        finally:
            await executor.close()

    return asyncio.run(main())


def is_lowered(result: Lowered | Failed, *units: str) -> bool:
    return isinstance(result, Lowered) and result.units == [(digest(name), unit_bytes(name)) for name in units]


def test_answers_are_in_order(kind: str) -> None:
    async def body(executor: Dispatcher) -> None:
        results = await executor.lower([source(str(i), "shared") for i in range(300)])
        assert all(is_lowered(result, str(i), "shared") for i, result in enumerate(results))
        stats = executor.stats()
        assert (stats.lowered, stats.failed, stats.queued) == (300, 0, 0)
        assert stats.batches < 300, "tasks that cost little share a batch"
        assert await executor.lower([]) == []

    with_executor(kind, body)


def test_answers_are_told_as_they_come(kind: str) -> None:
    async def body(executor: Dispatcher) -> None:
        told: list[tuple[int, Lowered | Failed]] = []
        quick = asyncio.Event()

        def done(index: int, result: Lowered | Failed) -> None:
            told.append((index, result))
            if len(told) == 20:
                quick.set()

        sources = [source(str(i)) for i in range(20)] + [source("slow", sleep=1.0)]
        await executor.lower([source("warm")])
        lowering = asyncio.create_task(executor.lower(sources, done=done))
        if kind != "ray":  # an actor answers a batch as a whole
            await asyncio.wait_for(quick.wait(), 30)
            assert not lowering.done(), "nobody waits for the slowest"
        results = await lowering
        assert [result for _, result in sorted(told, key=lambda one: one[0])] == results

    with_executor(kind, body)


def needs_single_answers(kind: str) -> None:
    if kind == "ray":
        pytest.skip("Ray's actors answer a batch as a whole, so what is done by a moment depends on timing")


def test_calls_take_turns(kind: str) -> None:
    needs_single_answers(kind)

    async def body(executor: Dispatcher) -> None:
        await asyncio.gather(*(executor.lower([source(f"warm-{i}", sleep=0.01)]) for i in range(4)))
        many = asyncio.create_task(executor.lower([source(str(i), sleep=0.01) for i in range(200)]))
        await asyncio.sleep(0.1)
        (one,) = await executor.lower([source("one")])
        assert is_lowered(one, "one")
        assert executor.stats().lowered < 100, "it did not wait for those that came before"
        assert all(isinstance(result, Lowered) for result in await many)

    with_executor(kind, body)


def test_lowering_goes_before_entries(kind: str) -> None:
    needs_single_answers(kind)

    async def body(executor: Dispatcher) -> None:
        await executor.register_tokenizer(TOKENIZER, VOCABULARY)
        await asyncio.gather(*(executor.lower([source(f"warm-{i}")]) for i in range(2)))
        names = [f"slow-{i}" for i in range(60)]
        closure = {digest(name): unit_bytes(name) for name in names}
        building = [asyncio.create_task(executor.build(TOKENIZER, closure, [digest(name)])) for name in names]
        await asyncio.sleep(0.15)
        (result,) = await executor.lower([source("a")])
        assert is_lowered(result, "a")
        assert sum(not task.done() for task in building) > 20, "a batch of entries was cut short"
        assert all(len(records) == 2 for records in await asyncio.gather(*building)), "and done in the end"

    with_executor(kind, body)


def test_entries(kind: str, tmp_path: Path) -> None:
    async def body(executor: Dispatcher) -> None:
        closure = {digest(name): unit_bytes(name) for name in ("a", "b")}
        with pytest.raises(UnknownTokenizer):
            await executor.build(TOKENIZER, closure, [digest("a")])
        file = tmp_path / "vocabulary"
        file.write_bytes(VOCABULARY)
        await executor.register_tokenizer(TOKENIZER, file)
        records = await executor.build(TOKENIZER, closure, [digest("a")])
        assert [(r.key.kind, r.key.digest, r.key.tokenizer, r.key.slot) for r in records] == [
            (Kind.ENTRY, digest("a"), TOKENIZER, bytes([slot])) for slot in (1, 2)
        ]
        assert await executor.build(TOKENIZER, closure, []) == []
        liar = blake3(b"another").digest()
        await executor.register_tokenizer(liar, VOCABULARY)
        with pytest.raises(TokenizerError):
            await executor.build(liar, closure, [digest("a")])

    with_executor(kind, body)


def test_errors_are_typed_and_alone(kind: str) -> None:
    async def body(executor: Dispatcher) -> None:
        one, bad, panic, two = await executor.lower(
            [source("a"), source(**{"raise": "InvalidSchema"}), source(**{"raise": "Panic"}), source("b")]
        )
        assert is_lowered(one, "a")
        assert is_lowered(two, "b")
        assert isinstance(bad, Failed)
        assert isinstance(panic, Failed)
        assert not bad.retryable
        assert isinstance(decode_error(bad.error), InvalidSchema)
        assert panic.error["type"] == "KernelFault"

    with_executor(kind, body)


def test_deadline_reaches_the_worker(kind: str) -> None:
    async def body(executor: Dispatcher) -> None:
        (slow,) = await executor.lower([source("a", obedient=4.0)], deadline_s=0.3)
        assert isinstance(slow, Failed)
        assert slow.retryable
        assert slow.error["type"] == "DeadlineExceeded"
        (limit,) = await executor.lower([source("a", obedient=4.0)], limits=WorkLimits(seconds=0.1), deadline_s=90.0)
        assert isinstance(limit, Failed)
        assert not limit.retryable
        assert limit.error["type"] == "LimitExceeded"
        (none,) = await executor.lower([source("b")], deadline_s=0.0)
        assert isinstance(none, Failed)
        assert none.retryable

    with_executor(kind, body)


def test_cancellation_withdraws_work(kind: str) -> None:
    async def body(executor: Dispatcher) -> None:
        many = asyncio.create_task(executor.lower([source(str(i), sleep=0.05) for i in range(400)]))
        await asyncio.sleep(0.3)
        many.cancel()
        with pytest.raises(asyncio.CancelledError):
            await many
        (result,) = await executor.lower([source("after")], deadline_s=90.0)
        assert is_lowered(result, "after")
        stats = executor.stats()
        assert stats.cancelled > 300
        assert stats.lowered < 100

    with_executor(kind, body)


def test_close_answers_what_waits(kind: str) -> None:
    async def main() -> None:
        executor = MAKERS[kind]()
        waiting = asyncio.create_task(executor.lower([source(str(i), sleep=0.05) for i in range(50)]))
        await asyncio.sleep(0.2)
        await executor.close()
        results = await asyncio.wait_for(waiting, 10)
        assert any(isinstance(r, Failed) and r.retryable for r in results)
        (refused,) = await executor.lower([source("a")])
        assert isinstance(refused, Failed)
        assert refused.retryable
        await executor.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("bomb", "limit"), [({"sleep": 60}, "seconds"), ({"spin": 60}, "seconds"), ({"grow": 4 << 30}, "memory")]
)
def test_a_bomb_dies_alone(endable: str, bomb: dict[str, Any], limit: str) -> None:
    if endable == "ray" and "spin" in bomb:
        pytest.skip("an actor takes seconds to restart; the other two bombs are tried")

    async def body(executor: Dispatcher) -> None:
        sources = [source(str(i)) for i in range(20)]
        sources[10] = source("bomb", **bomb)
        limits = replace(LIMITS, hard_seconds=0.5 if limit == "seconds" else 50.0)
        results = await executor.lower(sources, limits=limits)
        failure = results.pop(10)
        assert isinstance(failure, Failed)
        assert not failure.retryable
        error = decode_error(failure.error)
        assert isinstance(error, LimitExceeded)
        assert error.limit == limit
        assert all(isinstance(result, Lowered) for result in results)
        assert executor.stats().workers_lost >= 1

    with_executor(endable, body)


@pytest.mark.parametrize("death", [{"exit": 7}, {"kill": int(signal.SIGKILL)}, {"kill": int(signal.SIGSEGV)}])
def test_who_ends_every_worker_is_given_up(endable: str, death: dict[str, Any]) -> None:
    if endable == "ray" and "exit" not in death:
        pytest.skip("an actor takes seconds to restart; one kind of death is tried")

    async def body(executor: Dispatcher) -> None:
        sources = [source(str(i)) for i in range(10)]
        sources[3] = source("killer", **death)
        results = await executor.lower(sources)
        failure = results.pop(3)
        assert isinstance(failure, Failed)
        assert not failure.retryable
        assert failure.error["type"] == "WorkerDied"
        assert all(isinstance(result, Lowered) for result in results)

    with_executor(endable, body)


def test_a_lost_worker_is_replaced_and_its_work_repeated(endable: str, tmp_path: Path) -> None:
    async def body(executor: Dispatcher) -> None:
        sources = [source(str(i), once=str(tmp_path / str(i))) for i in range(2)]
        results = await executor.lower(sources)
        assert [result for result in results if isinstance(result, Failed)] == []
        assert executor.stats().workers_lost >= 2

    with_executor(endable, body)


def test_the_end_of_a_lost_actor_leaves_the_next_one_alone(ray_cluster: Any) -> None:
    async def main() -> None:
        executor = RayExecutor(1, bench=BENCH, limits=LIMITS)
        try:
            first = await executor._start(0)
            batch = Batch((LowerTask(source("a", exit=7), LIMITS),), (60.0,))
            with pytest.raises(WorkerLost):
                await first.run(batch, lambda *_: None)
            await first.end()
            second = await executor._start(0)
            await first.end()
            told: list[tuple[int, Any]] = []
            await second.run(Batch((LowerTask(source("b"), LIMITS),), (60.0,)), lambda *answer: told.append(answer))
            assert [(index, is_lowered(result, "b")) for index, result in told] == [(0, True)]
        finally:
            await executor.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [LimitExceeded("m", pointer="/a", limit="depth", value=3.0), InvalidSchema("x")])
def test_errors_travel(error: Any) -> None:
    assert decode_error(encode_error(error)).as_dict() == error.as_dict()


def test_errors_from_outside_are_tamed() -> None:
    assert str(decode_error({})) == "the peer gave no message"
    odd = {"type": "LimitExceeded", "message": "m", "value": "[1]", "limit": "depth", "evil": "x"}
    assert decode_error(odd).as_dict()["value"] is None
