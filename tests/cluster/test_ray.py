"""What only Ray has: actors that are killed or lose their node, that are shared, and that outlive their executor."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from gramary.cluster.executor import Failed, Lowered, RayExecutor, WorkLimits
from gramary.cluster.executor.actors import NAMESPACE, connect
from gramary.cluster.executor.errors import ExecutorError
from tests.cluster.fakes import source

BENCH = "tests.cluster.fakes:FakeBench"
LIMITS = WorkLimits(hard_seconds=60.0)


def pid_of(ray: Any, name: str) -> int:
    life: str = ray.get(ray.get_actor(name, namespace=NAMESPACE).ping.remote())
    return int(life.partition("-")[0])


def test_an_actor_killed_at_work_is_replaced(ray_cluster: Any) -> None:
    import ray

    async def main() -> None:
        executor = RayExecutor(2, bench=BENCH, limits=LIMITS, name="killed")
        await executor.lower([source("first", sleep=0.05)])  # what a task takes is known: batches are small
        pid = pid_of(ray, "killed-0")
        work = asyncio.create_task(executor.lower([source(str(i), sleep=0.05) for i in range(40)], deadline_s=120))
        await asyncio.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        results = await work
        assert all(isinstance(result, Lowered) for result in results)
        assert executor.stats().workers_lost >= 1
        await executor.close()

    asyncio.run(main())


def test_a_removed_node_does_not_take_work_with_it(ray_cluster: Any) -> None:
    async def main() -> None:
        node = ray_cluster.add_node(node_ip_address="127.0.0.12", num_cpus=1, object_store_memory=100 << 20)
        executor = RayExecutor(3, bench=BENCH, limits=LIMITS)
        await executor.lower([source(f"warm-{i}", sleep=0.05) for i in range(12)], deadline_s=120)
        work = asyncio.create_task(executor.lower([source(str(i), sleep=0.05) for i in range(60)], deadline_s=120))
        await asyncio.sleep(0.3)
        await asyncio.get_running_loop().run_in_executor(None, ray_cluster.remove_node, node, False)
        results = await work
        assert all(isinstance(result, Lowered) for result in results)
        await executor.close()

    asyncio.run(main())


def test_detached_actors_are_shared_and_outlive_their_executor(ray_cluster: Any) -> None:
    import ray

    async def main() -> None:
        one, two = (RayExecutor(1, bench=BENCH, limits=LIMITS, name="shared", detached=True) for _ in range(2))
        results = await asyncio.gather(
            *(e.lower([source(f"{i}", sleep=0.01) for i in range(20)], deadline_s=120) for e in (one, two))
        )
        assert all(isinstance(result, Lowered) for part in results for result in part)
        pid = pid_of(ray, "shared-0")
        await one.close()
        await two.close()
        three = RayExecutor(1, bench=BENCH, limits=LIMITS, name="shared", detached=True)
        (result,) = await three.lower([source("again")], deadline_s=120)
        assert isinstance(result, Lowered)
        assert pid_of(ray, "shared-0") == pid
        await three.close()
        ray.kill(ray.get_actor("shared-0", namespace=NAMESPACE))

    asyncio.run(main())


def test_no_room_is_a_typed_error(ray_cluster: Any) -> None:
    async def main() -> None:
        executor = RayExecutor(1, bench=BENCH, limits=LIMITS, options={"resources": {"nowhere": 1}})
        (result,) = await executor.lower([source("a")], deadline_s=1.0)
        assert isinstance(result, Failed)
        assert result.retryable
        assert result.error["type"] == "DeadlineExceeded"
        executor.request_workers(2)
        await executor.close()

    asyncio.run(main())


def test_a_dead_address_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ExecutorError, match="no Ray cluster listens"):
        connect("127.0.0.1:9")
