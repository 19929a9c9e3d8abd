"""A client's connection: opened when it is first used, again after a fork, and once for every event loop."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

import grpc

from gramary.cluster.peer import PeerError
from gramary.cluster.wire.limits import MESSAGE_BYTES
from gramary.cluster.wire.security import ClientSecurity

FORK_PATIENCE_S = 0.5
"""How long a fork waits for calls in flight to end; they are cancelled."""

IDEMPOTENT = {
    "CacheService": ("Lookup", "FindMissing", "BatchRead"),
    "PlacementService": ("Claim", "Release", "Complete", "Wait"),
    "NodeService": ("GetCapabilities", "Stats"),
}
"""Methods that the transport may repeat: reading twice, or claiming twice, changes nothing."""


def service_config(attempts: int) -> str:
    """gRPC's service config: up to `attempts` tries of idempotent calls that found the server unavailable.

    Time-outs are given with each call: those of a service config never reach the server.
    """
    names = [
        {"service": f"gramary.v1.{service}", "method": method}
        for service, methods in IDEMPOTENT.items()
        for method in methods
    ]
    policy = {
        "maxAttempts": attempts,
        "initialBackoff": "0.05s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if attempts > 1:
        config["methodConfig"] = [{"name": names, "retryPolicy": policy}]
    return json.dumps(config)


def channel_options(security: ClientSecurity, attempts: int) -> list[tuple[str, Any]]:
    """gRPC's settings. Pings every 30 seconds, which the servers allow."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.enable_retries", 1),
        ("grpc.service_config", service_config(attempts)),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if security.server_name is not None:
        options.append(("grpc.ssl_target_name_override", security.server_name))
    return options


class Connection:
    """The channel to one target. `get` is cheap."""

    def __init__(self, target: str, security: ClientSecurity, attempts: int) -> None:
        security.check_target(target)
        self._target = target
        self._security = security
        self._attempts = attempts
        self._channel: grpc.aio.Channel | None = None
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._generation = -1
        self.stubs: dict[Any, Any] = {}
        self.closings = 0
        """How often the channel was closed by this side: calls that were in flight then see a cancellation."""
        _connections.add(self)

    def get(self) -> grpc.aio.Channel:
        """The channel for this process and the running loop."""
        FORKS.check(self._target)
        loop = asyncio.get_running_loop()
        if (
            self._channel is not None
            and self._loop is not None
            and self._loop() is loop
            and self._generation == FORKS.generation
        ):
            return self._channel
        self.drop()
        credentials = self._security.credentials()
        options = channel_options(self._security, self._attempts)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(self._target, options)
        else:
            self._channel = grpc.aio.secure_channel(self._target, credentials, options)
        self._loop = weakref.ref(loop)
        self._generation = FORKS.generation
        return self._channel

    def stub(self, make: Any) -> Any:
        """A stub of the channel; kept with it."""
        channel = self.get()
        stub = self.stubs.get(make)
        if stub is None:
            stub = self.stubs[make] = make(channel)
        return stub

    def _taken(self) -> grpc.aio.Channel | None:
        channel, self._channel = self._channel, None
        self.stubs = {}
        self.closings += channel is not None
        return channel

    def drop(self) -> None:
        """Forget the channel without waiting; calls in flight fail."""
        channel = self._taken()
        if channel is not None:
            inner = getattr(channel, "_channel", None)
            if inner is not None:
                inner.close()

    def close_for_fork(self) -> bool:
        """Close the channel from whatever thread forks, on its own loop where that runs elsewhere; was it open?"""
        if self._channel is None:
            return False
        loop = None if self._loop is None else self._loop()
        try:
            forking = asyncio.get_running_loop()
        except RuntimeError:
            forking = None
        if loop is None or not loop.is_running() or loop is forking:
            self.drop()
            return True
        closing = asyncio.run_coroutine_threadsafe(self.close(), loop)
        with suppress(Exception):
            closing.result(FORK_PATIENCE_S)
        return True

    async def close(self) -> None:
        """Close the channel; a later call opens it again."""
        channel = self._taken()
        if channel is not None:
            await channel.close()


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _polls() -> bool:
    """Whether gRPC's thread for asyncio runs in this process: it does while any channel, server or call is alive."""
    return any("_poll_wrapper" in thread.name for thread in threading.enumerate())


class _Forks:
    """Keeps gRPC and fork apart.

    gRPC's asyncio client does not survive a fork: a child that uses gRPC while a channel of its parent is open hangs or
    crashes. So channels are closed before a fork, on both sides they are opened again when they are needed, and where
    that was not enough (a server, or a call in flight, in the parent) the child is refused with an error instead.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.serving = 0
        """Servers that run in this process."""
        self._busy = False
        self._unusable = False

    def before(self) -> None:
        self._busy = self.serving > 0
        if self._busy:
            return  # nothing would help the child: the parent's connections may stay
        self.generation += 1
        closed = [connection.close_for_fork() for connection in list(_connections)]
        until = time.monotonic() + FORK_PATIENCE_S
        while (busy := _polls()) and any(closed) and time.monotonic() < until:
            time.sleep(0.001)
        self._busy = busy

    def in_child(self) -> None:
        self._unusable = self._unusable or self._busy

    def check(self, target: str) -> None:
        if self._unusable:
            raise PeerError(
                target,
                "gRPC was in use when this process was forked, and does not work in it: start workers with spawn, "
                "or fork before the first call",
                retryable=False,
            )


FORKS = _Forks()
os.register_at_fork(before=FORKS.before, after_in_child=FORKS.in_child)
