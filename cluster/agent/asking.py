"""Asking nodes for their figures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gramary.cluster.credentials import Credentials
from gramary.cluster.peer import PeerError
from gramary.cluster.settings import Settings
from gramary.cluster.stats import NodeStats, SlowUnit, TokenizerFigures
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.configured import client_security
from gramary.compiler.errors import GramaryError


def ask_nodes(settings: Settings, addresses: Sequence[str]) -> Callable[[], Awaitable[Sequence[NodeStats]]]:
    """What `top.run` calls: the figures of these nodes, by default of the configured one and its peers."""
    known = [*addresses] or [
        *([settings.client.address] if settings.client.address else []),
        *settings.client.others,
        *settings.peers.nodes,
    ]
    if not known:
        known = [settings.advertised()]
    security = client_security(settings, Credentials(settings))
    peers = [GrpcPeer(address, security=security, timeout_s=5.0, attempts=1) for address in dict.fromkeys(known)]

    async def ask() -> Sequence[NodeStats]:
        return await asyncio.gather(*(_one(peer) for peer in peers))

    return ask


async def _one(peer: GrpcPeer) -> NodeStats:
    try:
        told = await peer.stats()
    except (PeerError, GramaryError) as error:
        return NodeStats(peer.name, error=error.message)
    return NodeStats(
        told.node or peer.name,
        told.uptime_s,
        dict(told.values),
        [TokenizerFigures(t.fingerprint, t.entries, t.size_bytes) for t in told.tokenizers],
        [SlowUnit(u.digest, u.name, u.cost_ns) for u in told.slowest],
    )
