"""The cluster as a program or an inference worker uses it: grammars from wherever they are cheapest.

    from gramary.cluster.client import Client

    with Client(tokenizer, address="unix:/run/gramary/agent.sock", store="/var/lib/gramary") as client:
        grammar = client.compile_tools(tools)

Each source goes down a ladder until somebody has it: this process's memory, the node's store, the node's agent (which
asks its peers, and has the cluster compile what nobody has), and at last the compiler in this process. `AsyncClient`
is the same for asyncio.
"""

from gramary.cluster.client.client import AsyncClient, Client
from gramary.cluster.client.ladder import ClientStats
from gramary.cluster.client.worker import WorkerSource, open_worker_source

__all__ = ["AsyncClient", "Client", "ClientStats", "WorkerSource", "open_worker_source"]
