"""Peers in processes that fork: gRPC's asyncio client would hang or crash in the child."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import asyncio, os, signal, sys, threading

from gramary.cluster.peer import PeerError
from gramary.cluster.wire.client import GrpcPeer
from tests.cluster.memory_node import MemoryNode, unit
from tests.cluster.wire_tools import served

out, into = os.pipe()
server = os.fork()
if server == 0:
    async def serve():
        node = MemoryNode()
        node.add(unit("a"))
        async with served(node) as running:
            os.write(into, running.address.encode())
            await asyncio.sleep(60)
    asyncio.run(serve())
peer = GrpcPeer(os.read(out, 100).decode())

async def ask():
    assert await peer.read([unit("a").key]) == [unit("a")]

async def watch(seen):
    async for news in peer.watch():
        seen.set()

def child(expected):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            asyncio.run(ask())
            told = "answered"
        except PeerError as error:
            told = "refused" if "forked" in str(error) else str(error)
        os._exit(0 if told in expected else 1)
    assert os.waitpid(pid, 0)[1] == 0, expected

def here(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop)

try:
    child(["answered"])                      # before anything was asked
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    here(ask()).result(10)
    child(["answered"])                      # between calls, with a connection open
    here(ask()).result(10)
    seen = threading.Event()
    watching = here(watch(seen))
    seen.wait(10)
    child(["answered", "refused"])           # during a call
    try:
        watching.result(10)
    except PeerError as error:
        assert error.retryable and "closed" in str(error)
    here(ask()).result(10)                   # the parent goes on
    print("good", flush=True)
finally:
    os.kill(server, signal.SIGKILL)
os._exit(0)
"""


def test_forks() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.stdout == "good\n", done.stdout + done.stderr
