"""What a call costs: Lookup, FindMissing of 1000 keys, and shards streamed with and without zstd.

Beside each other in one run: bare gRPC (`raw_unary`: an empty message; `raw_stream`: of 256 KiB), and the wire.
CPU is that of both processes together, which a busy machine changes less than the time.

    python tests/benchmarks/wire.py [--seconds S] [--unix] [--tls] [--json]

The server runs in a process of its own, on this machine; the last line of `--json` is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import grpc  # noqa: E402

from gramary.cluster.records import Key, Kind  # noqa: E402
from gramary.cluster.wire.client import GrpcPeer  # noqa: E402
from gramary.cluster.wire.security import ClientSecurity, ServerSecurity, Tls, Token  # noqa: E402
from gramary.cluster.wire.server import WireServer  # noqa: E402
from tests.cluster.memory_node import TOKENIZER, MemoryNode, digest, entry, manifest, unit  # noqa: E402

SECRET = "benchmark-token-0123456789"
TOOLS, UNITS_PER_TOOL = 100, 20
SHARDS = 64
MASK_BYTES = 16384  # one bit a token of a vocabulary of 131,072


def mask(kind: str, number: int) -> bytes:
    """A mask entry as bytes: "random" ones do not compress, "mask" ones are what masks look like."""
    rng = random.Random(number)
    if kind == "random":
        return rng.randbytes(MASK_BYTES)
    out = bytearray(MASK_BYTES)
    for _ in range(rng.choice([20, 200, 1500])):
        out[rng.randrange(MASK_BYTES)] |= 1 << rng.randrange(8)
    return bytes(out)


class Raw(grpc.GenericRpcHandler):  # type: ignore[misc]
    """gRPC and nothing else."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Two methods."""

        async def unary(request: bytes, context: Any) -> bytes:
            return request

        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            block = random.Random(1).randbytes(256 << 10)
            for _ in range(512):
                yield block

        if str(handler_call_details.method).endswith("unary"):
            return grpc.unary_unary_rpc_method_handler(unary)
        return grpc.unary_stream_rpc_method_handler(stream)


async def serve(address: str, folder: str) -> None:
    """The server's process."""
    raw = grpc.aio.server()
    raw.add_generic_rpc_handlers((Raw(),))
    port = raw.add_insecure_port("127.0.0.1:0")
    await raw.start()
    node = MemoryNode()
    for tool in range(TOOLS):
        names = [f"{tool}-{part}" for part in range(UNITS_PER_TOOL)]
        node.add(*(unit(name) for name in names), manifest(f"tool {tool}", names))
    for kind in ("random", "mask"):
        for number in range(SHARDS * 32):
            node.add(entry(f"{kind} {number // 32}", number % 32, mask(kind, number)))
    for number in range(16):
        node.add(entry("large", number, random.Random(number).randbytes(4 << 20)))
    tls = Tls(Path(folder, "server.pem"), Path(folder, "server.key"), Path(folder, "ca.pem")) if folder else None
    security = ServerSecurity(tls=tls, tokens=[Token("bench", SECRET)] if tls else ())
    server = WireServer(node, address, security=security)
    await server.start()
    print(server.address, port, flush=True)
    await server.serve_until_signal(1)


class Cpu:
    """CPU seconds of this process and of the server's."""

    server = 0

    @classmethod
    def seconds(cls) -> float:
        """Used so far."""
        fields = Path(f"/proc/{cls.server}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def timed(call: Any, seconds: float) -> dict[str, float]:
    """Microseconds of one call after the other."""
    for _ in range(20):
        await call()
    times = []
    used = Cpu.seconds()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 50:
        start = time.perf_counter()
        await call()
        times.append(time.perf_counter() - start)
    times.sort()
    used = Cpu.seconds() - used
    return {
        "p50_us": round(times[len(times) // 2] * 1e6, 1),
        "p99_us": round(times[len(times) * 99 // 100] * 1e6, 1),
        "cpu_us": round(used / len(times) * 1e6, 1),
        "calls": len(times),
    }


async def streamed(peer: GrpcPeer, units: list[bytes], seconds: float) -> dict[str, float]:
    """Megabytes of payload in a second, and milliseconds for one unit's shard."""
    total, records, start, used = 0, 0, time.perf_counter(), Cpu.seconds()
    while time.perf_counter() - start < seconds:
        async for record in peer.shards(TOKENIZER, units):
            total += len(record.payload)
            records += 1
    elapsed = time.perf_counter() - start
    used = Cpu.seconds() - used
    return {
        "mb_per_s": round(total / elapsed / 1e6, 1),
        "mb_per_cpu_s": round(total / used / 1e6, 1),
        "records_per_s": round(records / elapsed),
    }


async def raw_stream(channel: grpc.aio.Channel, seconds: float) -> dict[str, float]:
    """The same of bare gRPC."""
    total, start, used = 0, time.perf_counter(), Cpu.seconds()
    while time.perf_counter() - start < seconds:
        async for block in channel.unary_stream("/raw/stream")(b""):
            total += len(block)
    return {
        "mb_per_s": round(total / (time.perf_counter() - start) / 1e6, 1),
        "mb_per_cpu_s": round(total / (Cpu.seconds() - used) / 1e6, 1),
    }


async def measure(address: str, raw_port: str, folder: str, seconds: float) -> dict[str, Any]:
    """Everything, against the server at `address`."""
    tls = Tls(Path(folder, "client.pem"), Path(folder, "client.key"), Path(folder, "ca.pem")) if folder else None
    security = ClientSecurity(tls=tls, token=SECRET if tls else None)
    out: dict[str, Any] = {}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{raw_port}") as channel:
        echo = channel.unary_unary("/raw/unary")

        async def ask() -> None:
            await echo(b"")

        out["raw_unary"] = await timed(ask, seconds)
        out["raw_stream"] = await raw_stream(channel, seconds)
    async with (
        GrpcPeer(address, security=security) as peer,
        GrpcPeer(address, security=security, compress=False) as plain,
    ):
        one, all_tools = [digest("tool 7")], [digest(f"tool {tool}") for tool in range(TOOLS)]
        keys = [Key(Kind.UNIT, digest(f"{tool}-{part}")) for tool in range(TOOLS) for part in range(10)]
        shard = [digest("random 3")]
        out["lookup_1"] = await timed(lambda: peer.lookup(one), seconds)
        out["lookup_100"] = await timed(lambda: peer.lookup(all_tools), seconds)
        out["find_missing_1000"] = await timed(lambda: peer.find_missing(keys), seconds)
        out["read_1"] = await timed(lambda: plain.read(keys[:1]), seconds)

        async def fetch() -> None:
            async for _ in plain.shards(TOKENIZER, shard):
                pass

        out["shard_of_32_masks"] = await timed(fetch, seconds)
        for kind in ("random", "mask"):
            units = [digest(f"{kind} {number}") for number in range(SHARDS)]
            out[f"stream_{kind}_plain"] = await streamed(plain, units, seconds)
            out[f"stream_{kind}_zstd"] = await streamed(peer, units, seconds)
        out["stream_4_mib_plain"] = await streamed(plain, [digest("large")], seconds)
    return out


def certificates(folder: str) -> None:
    """An authority, and what it signed for both ends."""
    from tests.cluster.wire_tools import Authority

    authority = Authority(Path(folder))
    for name in ("server", "client"):
        issued = authority.issue(name)
        assert issued.cert is not None
        assert issued.key is not None
        issued.cert.rename(Path(folder, f"{name}.pem"))
        issued.key.rename(Path(folder, f"{name}.key"))
    authority.path.rename(Path(folder, "ca.pem"))


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--unix", action="store_true", help="over a Unix socket")
    parser.add_argument("--tls", action="store_true", help="with certificates on both ends, and a token")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=2, metavar=("ADDRESS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(*options.serve))
        return
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/sock" if options.unix else "127.0.0.1:0"
        if options.tls:
            certificates(folder)
        arguments = [sys.executable, __file__, "--serve", address, folder if options.tls else ""]
        server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            where, raw_port = server.stdout.readline().split()
            Cpu.server = server.pid
            out = asyncio.run(measure(where, raw_port, folder if options.tls else "", options.seconds))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(20)
            server.stdout.close()
    out["cpus"] = len(os.sched_getaffinity(0))
    if options.json:
        print(json.dumps(out))
        return
    for name, figures in out.items():
        print(
            f"{name:22}", figures if isinstance(figures, int) else "  ".join(f"{k} {v:,}" for k, v in figures.items())
        )


if __name__ == "__main__":
    main()
