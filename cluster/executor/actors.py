"""The executor on Ray actors.

One actor a worker, named, restarted by Ray when its process or node dies. A batch is one call with one result, since a
call costs 1 ms; what a lost actor had finished of its batch is lost with it, and the batch is tried again task by task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gramary.cluster.executor.base import Result, WorkLimits
from gramary.cluster.executor.batch import KERNEL, Batch
from gramary.cluster.executor.dispatch import Dispatcher, Worker, WorkerLost
from gramary.cluster.executor.errors import ExecutorError
from gramary.cluster.executor.seat import Seat

START_S = 60.0
"""Seconds in which an actor must have been placed, started and have loaded the kernel."""
OVERDUE_S = 10.0
"""Seconds beyond its tasks' hard limits after which an actor that does not answer is ended."""
END_S = 1.0
"""Seconds in which an actor must have ended itself; after that Ray ends it."""
NAMESPACE = "gramary"


def connect(address: str | None = None, **options: Any) -> None:
    """Connect to Ray unless connected: to the cluster at `address`, or to a new local one.

    Token authentication and usage reports are off unless the environment says otherwise (`RAY_AUTH_MODE`,
    `RAY_USAGE_STATS_ENABLED`). Raises `ExecutorError` if nobody listens at `address`: Ray itself would try for minutes.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise ExecutorError("Ray is not installed: pip install 'gramary[ray]'", retryable=False) from None
    if ray.is_initialized():
        return
    if address is not None and ":" in address and "://" not in address:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        except (OSError, ValueError) as error:
            raise ExecutorError(f"no Ray cluster listens at {address}: {error}") from None
    given: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, **options}
    if address is None:
        given.setdefault("include_dashboard", False)
    ray.init(address=address, **given)


class RayExecutor(Dispatcher):
    """Runs tasks in `workers` actors of the Ray cluster that this process is connected to (`connect`).

    `name`: the actors are `name-0`, `name-1`, ... in the namespace "gramary"; executors of equal name share them.
    `detached`: they outlive this process and are taken over by the next executor of that name. `options`: further
    options of the actors (`num_cpus`, 1 unless given; `resources`, `label_selector`, `scheduling_strategy`).
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        limits: WorkLimits | None = None,
        bench: str = KERNEL,
        name: str | None = None,
        detached: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._actors: dict[int, Any] = {}
        self._lost_lives: dict[int, str] = {}
        self._detached = detached
        self._prefix = name or f"gramary-worker-{uuid.uuid4().hex[:8]}"
        self._options = {
            "namespace": NAMESPACE,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": 4,
            "num_cpus": 1,
            **({"lifetime": "detached"} if detached else {}),
            **(options or {}),
        }
        self._bench = bench
        self._shared: dict[bytes, Any] = {}
        super().__init__(self._start, workers, limits=limits, name="the Ray executor")

    async def _start(self, slot: int) -> Worker:
        import ray

        loop = asyncio.get_running_loop()
        end = loop.time() + START_S

        def make() -> Any:
            seat = ray.remote(Seat)
            return seat.options(name=f"{self._prefix}-{slot}", get_if_exists=True, **self._options).remote(self._bench)

        while True:
            try:
                if slot not in self._actors:
                    self._actors[slot] = await loop.run_in_executor(None, make)
                actor = self._actors[slot]
                life = await _wait(actor.ping.remote(), end - loop.time())
                if life != self._lost_lives.get(slot):
                    return _Actor(self, slot, actor, life)
            except ray.exceptions.ActorDiedError:
                self._actors.pop(slot, None)
            except (ray.exceptions.RayError, ValueError):
                pass  # it is being restarted, or its name is not free yet
            if loop.time() >= end:
                raise ExecutorError(f"the actor {self._prefix}-{slot} did not start within {START_S:.0f} s")
            await asyncio.sleep(0.1)

    def share(self, fingerprint: bytes, vocabulary: bytes | Path) -> Any:
        """A tokenizer as actors get it: by reference, put into Ray's object store once."""
        import ray

        if fingerprint not in self._shared:
            data = vocabulary if isinstance(vocabulary, bytes) else vocabulary.read_bytes()
            self._shared[fingerprint] = ray.put(data)
        return self._shared[fingerprint]

    def lost(self, slot: int, life: str) -> None:
        """This life of an actor is not to be used any more."""
        self._lost_lives[slot] = life

    def request_workers(self, count: int) -> None:
        """Tell Ray's autoscaler that `count` workers are wanted; without an autoscaler this does nothing."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[{"CPU": float(self._options["num_cpus"])}] * count)

    async def close(self) -> None:
        await super().close()
        actors, self._actors = self._actors, {}
        if not self._detached:
            import ray

            for actor in actors.values():
                with contextlib.suppress(Exception):
                    ray.kill(actor, no_restart=True)


class _Actor:
    """One life of an actor."""

    def __init__(self, executor: RayExecutor, slot: int, actor: Any, life: str) -> None:
        self._executor, self._slot, self._actor, self._life = executor, slot, actor, life
        self._batch = ""
        self._spoilt = False
        self._dead = False
        """Ray says so; the next life may have begun."""

    async def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        import ray

        loop = asyncio.get_running_loop()
        shared = await loop.run_in_executor(None, self._executor.share, fingerprint, vocabulary)
        try:
            error = await _wait(self._actor.learn.remote(fingerprint, shared), START_S)
        except ray.exceptions.RayError as lost:
            self._spoilt = True
            raise self._lost(lost) from None
        if error is not None:
            raise error

    async def run(self, batch: Batch, done: Callable[[int, Result], None]) -> None:
        import ray

        self._batch = uuid.uuid4().hex
        most_s = sum(task.limits.hard_seconds for task in batch.tasks) + OVERDUE_S
        self._spoilt = True
        try:
            answer = await _wait(self._actor.run.remote(self._batch, batch), most_s)
        except ray.exceptions.RayError as lost:
            raise self._lost(lost) from None
        if answer is None:  # busy for somebody else: back into the queue
            self._spoilt = False
            return
        results, over = answer
        for index, result in results:
            done(index, result)
        if over is not None:
            raise WorkerLost("the actor hit a hard limit", *over)
        self._spoilt = False

    def cancel(self) -> None:
        if self._batch:
            self._actor.cancel.remote(self._batch)

    async def end(self) -> None:
        import ray

        if not self._spoilt:
            return  # it is idle: `RayExecutor.close` ends it, or leaves it to the next executor
        self._executor.lost(self._slot, self._life)
        # `ray.kill` knows the actor and not its life: after a death it may come late and end the next one, whose work
        # would be blamed for it. So the life is ended by name, and Ray is asked only where it does not answer.
        try:
            await _wait(self._actor.end.remote(self._life), END_S)
        except ray.exceptions.RayActorError:
            pass  # it has ended, now or before
        except Exception:
            if not self._dead:
                with contextlib.suppress(Exception):
                    ray.kill(self._actor, no_restart=False)

    def _lost(self, error: Exception) -> WorkerLost:
        import ray

        self._dead = isinstance(error, ray.exceptions.RayActorError)
        return WorkerLost(_reason(error))


async def _wait(reference: Any, seconds: float) -> Any:
    """The value of an object reference; `GetTimeoutError` after `seconds`."""
    import ray

    future = asyncio.wrap_future(reference.future())
    try:
        done, _ = await asyncio.wait([future], timeout=max(0.0, seconds))
    finally:
        if not future.done():
            future.cancel()
    if not done:
        raise ray.exceptions.GetTimeoutError(f"no answer within {seconds:.1f} s")
    return future.result()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
