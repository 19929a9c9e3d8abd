"""Ten thousand connections of strangers: what they cost a server, and whether friends are still served.

    python tests/benchmarks/strangers.py [--connections N] [--seconds S] [--json]

Strangers come as the server sees them: TCP connections that say nothing, that send garbage, that open HTTP/2 and stop,
and that call with a wrong token. The server runs in a process of its own; its resident memory and descriptors are read
from /proc while a friend with the right token asks for capabilities. The last line of `--json` is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from gramary.cluster.wire.client import GrpcPeer  # noqa: E402
from gramary.cluster.wire.errors import CallFailed  # noqa: E402
from gramary.cluster.wire.limits import WireLimits  # noqa: E402
from gramary.cluster.wire.security import ClientSecurity, ServerSecurity, Token  # noqa: E402
from gramary.cluster.wire.server import WireServer  # noqa: E402
from tests.cluster.memory_node import MemoryNode  # noqa: E402

SECRET = "strangers-do-not-know-this"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


async def serve(connections: int) -> None:
    """The server's process."""
    limits = WireLimits(connections=connections, handshake_s=5.0)
    server = WireServer(
        MemoryNode(), "127.0.0.1:0", security=ServerSecurity(tokens=[Token("friend", SECRET)]), limits=limits
    )
    await server.start()
    print(server.address, flush=True)
    await server.serve_until_signal(1)


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def stranger(host: str, port: int, kind: int, counts: Counter[str], stop: asyncio.Event) -> None:
    """One connection, open until the end or until the server closes it."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        counts["not connected"] += 1
        return
    counts["connected"] += 1
    try:
        match kind % 3:
            case 1:
                writer.write(random.Random(kind).randbytes(2000))
            case 2:
                writer.write(PREFACE)
        while data := await reader.read(1000):
            counts["bytes answered"] += len(data)
        counts["closed by the server"] += 1
    except OSError:
        counts["closed by the server"] += 1
    except asyncio.CancelledError:
        counts["still open at the end"] += 1
        raise
    finally:
        writer.close()


async def friend(address: str, seconds: float) -> dict[str, float]:
    """Asks again and again."""
    times, failed = [], 0
    async with GrpcPeer(address, security=ClientSecurity(token=SECRET), timeout_s=5) as peer:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            start = time.perf_counter()
            try:
                await peer.stats()
                times.append(time.perf_counter() - start)
            except CallFailed:
                failed += 1
            await asyncio.sleep(0.01)
    times.sort()
    half, most = (times[len(times) // 2], times[-1]) if times else (0.0, 0.0)
    return {"answered": len(times), "failed": failed, "p50_ms": round(half * 1e3, 2), "max_ms": round(most * 1e3, 1)}


async def attack(address: str, pid: int, connections: int, seconds: float) -> dict[str, Any]:
    """Everything at once."""
    host, _, port = address.rpartition(":")
    counts: Counter[str] = Counter()
    stop = asyncio.Event()
    async with GrpcPeer(address, security=ClientSecurity(token=SECRET)) as known:
        await known.stats()
        out: dict[str, Any] = {"memory_mb_before": round(memory_mb(pid), 1)}
        alone = await friend(address, 1.0)
        crowd = []
        for number in range(connections):
            crowd.append(asyncio.ensure_future(stranger(host, int(port), number, counts, stop)))
            if number % 200 == 199:
                await asyncio.sleep(0)
        peak, wrong = 0.0, 0
        asking = asyncio.ensure_future(friend(address, seconds))
        keeping = asyncio.ensure_future(known.stats())
        while not asking.done():
            peak = max(peak, memory_mb(pid))
            async with GrpcPeer(
                address, security=ClientSecurity(token="not-the-right-token"), timeout_s=1, attempts=1
            ) as impostor:
                try:
                    await impostor.stats()
                except CallFailed as error:
                    wrong += error.code in ("UNAUTHENTICATED", "UNAVAILABLE", "DEADLINE_EXCEEDED")
            await asyncio.sleep(0.05)
        await keeping
        out["descriptors_during"] = len(os.listdir(f"/proc/{pid}/fd"))
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        await asyncio.sleep(2)
        out |= {
            "memory_mb_peak": round(peak, 1),
            "memory_mb_after": round(memory_mb(pid), 1),
            "descriptors_after": len(os.listdir(f"/proc/{pid}/fd")),
            "connections": connections,
            "strangers": dict(counts),
            "impostors_refused": wrong,
            "friend_alone": alone,
            "friend_during": asking.result(),
            "friend_after": await friend(address, 1.0),
        }
    return out


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--limit", type=int, default=4096, help="connections that the server takes")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    if hard != resource.RLIM_INFINITY and hard < options.connections + 100:
        raise SystemExit(f"this process may open {hard} files: raise the limit, or ask for fewer connections")
    arguments = [sys.executable, __file__, "--serve", str(options.limit)]
    server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        out = asyncio.run(attack(address, server.pid, options.connections, options.seconds))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
        server.stdout.close()
    if options.json:
        print(json.dumps(out))
        return
    for name, value in out.items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
