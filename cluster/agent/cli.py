"""`gramary serve`, `agent`, `warm`, `top`, and `cluster up|status|down`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gramary.compiler import GramaryError, LimitExceeded

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_LIMIT = 3

cluster_app = typer.Typer(help="A small cluster on this machine, to try things out.", no_args_is_help=True)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file; see docs/configuration.md.")
]
ListenOption = Annotated[
    list[str] | None, typer.Option("--listen", metavar="ADDRESS", help="host:port or unix:/path; may be repeated.")
]
StoreOption = Annotated[Path | None, typer.Option("--store", "-s", metavar="DIR", help="Folder of the store.")]
PeerOption = Annotated[
    list[str] | None, typer.Option("--peer", metavar="ADDRESS", help="Another node; may be repeated.")
]
AddressOption = Annotated[
    list[str] | None, typer.Option("--address", "-a", metavar="ADDRESS", help="A node; may be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MetricsOption = Annotated[
    str | None, typer.Option("--metrics", metavar="ADDRESS", help='host:port of /metrics; "" for none.')
]


def _fail(error: GramaryError) -> typer.Exit:
    """The error on standard error, and the exit code that belongs to it."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]{type(error).__name__}[/]: {escape(error.message)}")
    return typer.Exit(EXIT_LIMIT if isinstance(error, LimitExceeded) else EXIT_BAD_INPUT)


def _options(
    listen: Sequence[str] | None = None,
    store: Path | None = None,
    peers: Sequence[str] | None = None,
    metrics: str | None = None,
    name: str | None = None,
) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {"node": {}, "store": {}, "peers": {}, "metrics": {}}
    if listen:
        given["node"]["listen"] = list(listen)
    if name:
        given["node"]["name"] = name
    if store is not None:
        given["store"]["path"] = str(store)
    if peers:
        given["peers"]["nodes"] = list(peers)
    if metrics is not None:
        given["metrics"]["listen"] = metrics
    return {section: fields for section, fields in given.items() if fields}


def _serve(role: Any, config: Path | None, options: dict[str, dict[str, Any]]) -> None:
    from gramary.cluster.agent.running import Agent, run
    from gramary.cluster.config import load

    def ready(agent: Agent) -> None:
        addresses = ", ".join(server.address for server in agent.servers)
        sys.stderr.write(f"gramary: serving on {addresses}; store {agent.settings.store.path}; stop with Ctrl-C\n")
        sys.stderr.flush()

    try:
        run(load(config, role=role, options=options), role=role, ready=ready)
    except GramaryError as error:
        raise _fail(error) from None


def serve(
    config: ConfigOption = None,
    listen: ListenOption = None,
    store: StoreOption = None,
    peer: PeerOption = None,
    metrics: MetricsOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of this node in logs and metrics.")] = None,
) -> None:
    """Run one node on this machine: store, compiler and gRPC service in one process, without Ray.

    By default it listens on 127.0.0.1:7171 and keeps its store in the user's cache directory.
    """
    _serve("serve", config, _options(listen, store, peer, metrics, name))


def agent(
    config: ConfigOption = None,
    listen: ListenOption = None,
    store: StoreOption = None,
    peer: PeerOption = None,
    metrics: MetricsOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of this node in logs and metrics.")] = None,
) -> None:
    """Run this node's agent: one a node, with its peers and, if configured, Ray."""
    _serve("agent", config, _options(listen, store, peer, metrics, name))


def top(
    address: AddressOption = None,
    config: ConfigOption = None,
    once: Annotated[bool, typer.Option("--once", help="One look, then end: 1 if a node did not answer.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Watch the nodes of a cluster: hit rates by tier, compiles, bytes by tokenizer, slowest units."""
    from gramary.cluster.agent.asking import ask_nodes
    from gramary.cluster.config import load
    from gramary.cluster.top import run

    try:
        settings = load(config, role="client")
        code = run(ask_nodes(settings, address or []), once=once, as_json=as_json, interval_s=interval)
    except GramaryError as error:
        raise _fail(error) from None
    raise typer.Exit(code)


def warm(
    tools: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Tools: a JSON list, or one tool or schema a line (.jsonl, .jsonl.gz)."),
    ],
    tokenizer: Annotated[
        list[str], typer.Option("--tokenizer", "-t", metavar="PATH", help="Build mask entries for it; may be repeated.")
    ],
    address: AddressOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    property_order: Annotated[str, typer.Option("--property-order", help="declared or any.")] = "declared",
    whitespace: Annotated[str, typer.Option("--whitespace", help="flexible or compact.")] = "flexible",
    lenient: Annotated[bool, typer.Option("--lenient", help="Warn about what cannot be enforced.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a catalogue of tools ahead of time: over the cluster at --address, or into the store of this machine.

    What is there already costs a look-up, so an interrupted run goes on where it was. The exit code is 1 if a tool
    could not be compiled.
    """
    from gramary.cluster.agent.warming import Report, read_sources, warm_catalogue
    from gramary.cluster.config import load

    console = Console(stderr=True)
    try:
        settings = load(config, role="client" if address else "serve", options=_options(store=store))
        options = {"property_order": property_order, "whitespace": whitespace, "lenient": lenient}
        sources = read_sources(tools, options)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, disable=as_json or not console.is_terminal) as progress:
            bar = progress.add_task("compiling", total=len(sources) * max(1, len(tokenizer)))
            report: Report = asyncio.run(
                warm_catalogue(settings, sources, tokenizer, address or [], lambda n: progress.advance(bar, n))
            )
    except GramaryError as error:
        raise _fail(error) from None
    except (OSError, ValueError) as error:
        raise _fail(GramaryError(str(error))) from None
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    else:
        report.show(Console())
    raise typer.Exit(EXIT_FAILED if report.failed else 0)


DirOption = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="Where the nodes keep stores, logs and keys.")
]


def _folder(given: Path | None) -> Path:
    from gramary.cluster.settings import cache_directory

    return given or cache_directory() / "gramary" / "cluster"


@cluster_app.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=64, help="How many.")] = 3,
    port: Annotated[int, typer.Option("--port", help="Port of the first; the others follow.")] = 7171,
    folder: DirOption = None,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="An agent on every node of this Ray cluster instead.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start nodes on this machine that form a cluster, with fresh keys; they go on when this command has ended.

    With --ray: one agent on every node of a Ray cluster, as --config says; repeat it when nodes have joined.
    """
    from gramary.cluster.agent.local_cluster import LocalCluster

    try:
        if ray is not None:
            _ray_up(ray, config, port, as_json)
            return
        local = LocalCluster(_folder(folder))
        started = local.up(nodes, port)
    except GramaryError as error:
        raise _fail(error) from None
    if as_json:
        sys.stdout.write(json.dumps({"nodes": started, "config": str(local.client_config)}) + "\n")
        return
    console = Console(soft_wrap=True, highlight=False)
    for node in started:
        console.print(f"{node['name']}  {node['address']}  process {node['pid']}")
    console.print(f"clients: GRAMARY_CONFIG={local.client_config}")


def _ray_up(address: str, config: Path | None, port: int, as_json: bool) -> None:
    from gramary.cluster.agent.ray_nodes import deploy
    from gramary.cluster.config import load
    from gramary.cluster.executor.actors import connect

    settings = load(config, role="agent")
    connect(address)
    addresses = deploy(settings, port=port)
    if as_json:
        sys.stdout.write(json.dumps({"nodes": [{"address": one} for one in addresses]}) + "\n")
    else:
        Console(highlight=False).print("\n".join(addresses))


@cluster_app.command()
def status(folder: DirOption = None, as_json: JsonOption = False) -> None:
    """The nodes that `up` started; 1 if one does not answer."""
    from gramary.cluster.agent.asking import ask_nodes
    from gramary.cluster.agent.local_cluster import LocalCluster
    from gramary.cluster.config import load
    from gramary.cluster.top import run

    try:
        local = LocalCluster(_folder(folder))
        settings = load(local.client_config, role="client")
        code = run(ask_nodes(settings, [node["address"] for node in local.nodes()]), once=True, as_json=as_json)
    except GramaryError as error:
        raise _fail(error) from None
    raise typer.Exit(code)


@cluster_app.command()
def down(
    folder: DirOption = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove stores, logs and keys as well.")] = False,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="The agents of this Ray cluster instead.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Stop the nodes that `up` started, and wait until they have."""
    from gramary.cluster.agent.local_cluster import LocalCluster

    try:
        if ray is not None:
            from gramary.cluster.agent.ray_nodes import withdraw
            from gramary.cluster.config import load
            from gramary.cluster.executor.actors import connect

            settings = load(config, role="client")
            connect(ray)
            Console(highlight=False).print(f"{withdraw(settings)} agents stopped")
            return
        stopped = LocalCluster(_folder(folder)).down(wipe=wipe)
    except GramaryError as error:
        raise _fail(error) from None
    Console(highlight=False).print(f"{stopped} nodes stopped")


def mount(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    from gramary.cluster.store.cli import app as store_app

    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for command in (serve, agent, warm, top):
        app.command()(command)
    app.add_typer(cluster_app, name="cluster")
    app.add_typer(store_app, name="store")
