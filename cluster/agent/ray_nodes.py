"""Node agents as Ray actors: one on every node of a Ray cluster.

Each is a named, detached actor, pinned to its node and restarted there for ever: the process that takes over opens the
same store and goes on. Who is a member follows from Ray's own list of nodes, so a node that joins the Ray cluster is
one of ours as soon as `deploy` has been called again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from gramary.cluster.agent.running import Agent
from gramary.cluster.client.background import Background
from gramary.cluster.log import get_logger
from gramary.cluster.placement import Member
from gramary.cluster.settings import Settings

CPUS = 0.1
"""What an agent asks of its node. Not 0: Ray places actors that ask for nothing wherever it likes."""
START_S = 120.0
HINT_EVERY_S = 10.0
_log = get_logger("gramary.agent")


class RayMembers:
    """The nodes of the Ray cluster as members, each listening on `port`."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def members(self) -> Sequence[Member]:
        """Those that live now."""
        return [Member(address, address) for address in await asyncio.to_thread(self._addresses)]

    def _addresses(self) -> list[str]:
        import ray

        return [f"{node['NodeManagerAddress']}:{self._port}" for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


class AgentActor:
    """Runs an agent inside an actor. Its constructor runs again when Ray restarts it."""

    def __init__(self, settings: dict[str, Any], address: str, port: int) -> None:
        store = dict(settings.get("store", {}))
        if "path" in store:
            store["path"] = str(store["path"]).replace("{host}", address.replace(":", "-"))
        node = {**settings.get("node", {}), "listen": [f"{address}:{port}"], "advertise": f"{address}:{port}"}
        self._settings = Settings(
            **{**settings, "store": store, "node": {**node, "name": f"ray-{address}".replace(":", "-")}}
        )
        self._agent = Agent(self._settings, members=RayMembers(port))
        # On a loop of its own: nobody calls an actor that Ray has restarted, and it must serve all the same.
        self._background = Background("gramary-agent")
        self._started = self._background.start(self._agent.start())

    async def start(self) -> str:
        """Wait until it serves; returns the address that it listens on."""
        await asyncio.wrap_future(self._started)
        return self._agent.address

    async def process(self) -> int:
        """The process that it runs in."""
        return os.getpid()

    async def stop(self) -> None:
        """Drain it; the actor may be killed afterwards."""
        await self.start()
        await asyncio.wrap_future(self._background.start(self._agent.close()))


def _name(namespace: str, node_id: str) -> str:
    return f"{namespace}-agent-{node_id[:16]}"


def deploy(settings: Settings, *, port: int = 7171) -> list[str]:
    """Have an agent on every node that lives now; returns their addresses. Those that are there are left alone.

    `settings`: of every agent, but for addresses and name; the store's path is one on each node, and `{host}` in it
    stands for the node's address. This process must be connected to Ray (`gramary.cluster.executor.actors.connect`).
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    given = settings.model_dump(exclude_unset=True)  # secrets stay secrets: they are pickled, not printed
    namespace = settings.executor.ray_namespace
    remote: Any = ray.remote(AgentActor)
    actors = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if not node["Alive"]:
            continue
        actors.append(
            remote.options(
                name=_name(namespace, node["NodeID"]),
                namespace=namespace,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_task_retries=1,
                num_cpus=CPUS,
                max_concurrency=1000,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote(given, node["NodeManagerAddress"], port)
        )
    addresses: list[str] = ray.get([actor.start.remote() for actor in actors], timeout=START_S)
    _log.info("agents_deployed", number=len(addresses))
    return addresses


def withdraw(settings: Settings) -> int:
    """Drain and end every agent that `deploy` started; returns how many there were."""
    import ray

    namespace, ended = settings.executor.ray_namespace, 0
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        try:
            actor = ray.get_actor(_name(namespace, node["NodeID"]), namespace=namespace)
        except ValueError:
            continue
        try:
            ray.get(actor.stop.remote(), timeout=settings.deadlines.drain_s + 15.0)
        except ray.exceptions.RayError as error:
            _log.warning("agent_not_drained", node=node["NodeManagerAddress"], error=str(error))
        ray.kill(actor)
        ended += 1
    return ended


async def hint_autoscaler(agent: Agent, *, workers_per_cpu: float = 1.0) -> None:
    """Tell Ray's autoscaler, for ever, how many CPUs the work that waits could use: it adds nodes, and takes them away
    when nothing waits any more. Without an autoscaler this says nothing to anybody.
    """
    from ray.autoscaler.sdk import request_resources

    told = -1
    while True:
        stats = agent.executor.stats()
        wanted = 0 if stats.queued == 0 else agent.executor.workers + stats.queued
        wanted = min(wanted, 4 * agent.executor.workers)
        if wanted != told:
            await asyncio.to_thread(request_resources, num_cpus=int(wanted / workers_per_cpu))
            told = wanted
        await asyncio.sleep(HINT_EVERY_S)
