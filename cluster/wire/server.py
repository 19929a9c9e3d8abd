"""The gRPC server of a node.

server = WireServer(node, "unix:/run/gramary/agent.sock")
await server.start()
await server.serve_until_signal()      # drains on SIGTERM and SIGINT
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gramary.cluster.wire.cache_service import CacheService
from gramary.cluster.wire.channel import FORKS
from gramary.cluster.wire.guard import Guard, Observer
from gramary.cluster.wire.limits import MESSAGE_BYTES, WireLimits
from gramary.cluster.wire.node import Node
from gramary.cluster.wire.pb import (
    cache_pb2,
    cache_pb2_grpc,
    compile_pb2,
    compile_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    placement_pb2,
    placement_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
)
from gramary.cluster.wire.security import ServerSecurity
from gramary.cluster.wire.services import CompileService, NodeService, PlacementService, TokenizerService
from gramary.cluster.wire.verifier import Verifier
from gramary.compiler.errors import GramaryError

SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (compile_pb2, "CompileService"),
        (cache_pb2, "CacheService"),
        (tokenizer_pb2, "TokenizerService"),
        (placement_pb2, "PlacementService"),
        (node_pb2, "NodeService"),
    )
)
NOTICE_S = 0.3
"""Between telling balancers that the node goes away, and refusing calls."""


class CannotListen(GramaryError):
    """An address could not be bound: it is in use, or not this machine's."""


def server_options(limits: WireLimits) -> list[tuple[str, int]]:
    """gRPC's settings. Clients may ping every 10 seconds, calls or not."""
    return [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.max_concurrent_streams", limits.calls_per_connection),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", round(limits.handshake_s * 1e3)),
        ("grpc.http2.settings_timeout", round(limits.handshake_s * 1e3)),
        ("grpc.max_connection_idle_ms", round(limits.idle_connection_s * 1e3)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.so_reuseport", 0),
    ]


class WireServer:
    """Serves a node at addresses: "HOST:PORT" (port 0: any free one) or "unix:PATH". TLS is for the former only.

    `verifier` checks what PutShards brings; `observe` is told of every call; `threads` is how many threads hash, pack
    and talk to the disk. Raises `InsecureAddress` for an address that strangers reach, before anything listens.
    """

    def __init__(
        self,
        node: Node,
        *addresses: str,
        security: ServerSecurity | None = None,
        limits: WireLimits | None = None,
        verifier: Verifier | None = None,
        observe: Observer | None = None,
        threads: int = 4,
        socket_mode: int = 0o660,
    ) -> None:
        self._node = node
        self._given = addresses
        self._security = security or ServerSecurity()
        for address in addresses:
            self._security.check_address(address)
        self._limits = limits or WireLimits()
        self.verifier = verifier or Verifier(limits=self._limits)
        self._observe = observe
        self._thread_count = threads
        self._socket_mode = socket_mode
        self._server: grpc.aio.Server | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._health: Any = None
        self._draining: asyncio.Task[None] | None = None
        self.guard: Guard | None = None
        self.addresses: list[str] = list(addresses)
        """Where it listens, once started: with the real ports."""

    async def start(self) -> None:
        """Listen and serve. Raises `CannotListen`, `InvalidSecurity`."""
        limits = self._limits
        self.guard = Guard(self._security, limits, self._observe)
        self._threads = ThreadPoolExecutor(self._thread_count, thread_name_prefix="gramary-wire")
        self._server = server = grpc.aio.server(
            interceptors=[self.guard], options=server_options(limits), maximum_concurrent_rpcs=limits.calls
        )
        compile_pb2_grpc.add_CompileServiceServicer_to_server(CompileService(self._node, limits), server)
        cache = CacheService(self._node, self.verifier, limits, self._threads)
        cache_pb2_grpc.add_CacheServiceServicer_to_server(cache, server)
        tokenizers = TokenizerService(self._node, limits, self._threads)
        tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(tokenizers, server)
        placement_pb2_grpc.add_PlacementServiceServicer_to_server(PlacementService(self._node, limits), server)
        about = NodeService(self._node, limits, mac_required=self.verifier.mac_required)
        node_pb2_grpc.add_NodeServiceServicer_to_server(about, server)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        self.addresses = [self._bind(server, address) for address in self._given]
        FORKS.serving += 1
        await server.start()
        await self.set_serving(True)

    @property
    def address(self) -> str:
        """The first of `addresses`."""
        return self.addresses[0]

    def _bind(self, server: grpc.aio.Server, address: str) -> str:
        """Listen at an address; returns it with the real port."""
        path = Path(address.removeprefix("unix:")) if address.startswith("unix:") else None
        credentials = None
        if path is None:
            credentials = self._security.credentials()
        else:
            _remove_stale(path)
        before = os.umask(0o777 & ~self._socket_mode)  # the socket is never open to more than it should be
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        finally:
            os.umask(before)
        if port == 0:
            raise CannotListen(f"{address} cannot be bound: is it in use, or not an address of this machine?")
        return address if path is not None else f"{address.rpartition(':')[0]}:{port}"

    async def set_serving(self, serving: bool) -> None:
        """What grpc.health.v1 tells of every service."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *SERVICES):
            await self._health.set(name, status)

    async def drain(self, grace_s: float = 10.0) -> None:
        """Stop: tell balancers, refuse new calls, end watches, let the others finish within `grace_s`."""
        if self._server is None or self.guard is None or self._threads is None:
            return
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain(self._server, self.guard, self._threads, grace_s))
        await asyncio.shield(self._draining)

    async def _drain(self, server: grpc.aio.Server, guard: Guard, threads: ThreadPoolExecutor, grace_s: float) -> None:
        await self._health.enter_graceful_shutdown()
        await asyncio.sleep(min(NOTICE_S, grace_s))
        guard.drain()
        await server.stop(grace_s)
        FORKS.serving -= 1
        await asyncio.get_running_loop().run_in_executor(None, threads.shutdown)
        for address in self._given:
            if address.startswith("unix:"):
                _remove_stale(Path(address.removeprefix("unix:")))

    async def wait(self) -> None:
        """Until it is stopped."""
        assert self._server is not None
        await self._server.wait_for_termination()
        if self._draining is not None:
            await self._draining

    async def serve_until_signal(self, grace_s: float = 10.0) -> None:
        """Until SIGTERM or SIGINT; then drain."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            await stop.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            await self.drain(grace_s)


def _remove_stale(path: Path) -> None:
    """Take a socket away that nobody listens at any more; nothing that is not a socket is touched."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            os.unlink(path)
    except OSError:
        pass
