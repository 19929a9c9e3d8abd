"""Several nodes on one machine, each a process of its own, on loopback addresses."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gramary.compiler.errors import GramaryError

START_S = 60.0
STOP_S = 45.0


class LocalClusterError(GramaryError):
    """The nodes cannot be started or stopped."""


class LocalCluster:
    """The nodes whose state is in a folder: `nodes.json`, `client.toml`, and a folder for each node."""

    def __init__(self, folder: Path, *, more: str = "") -> None:
        """`more`: TOML that every node's configuration has at its end (tables that it does not have otherwise)."""
        self.folder = folder.absolute()
        self._more = more
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def client_config(self) -> Path:
        """A configuration with which clients reach the cluster."""
        return self.folder / "client.toml"

    def nodes(self) -> list[dict[str, Any]]:
        """Name, address and process of each; raises `LocalClusterError` if there are none."""
        try:
            nodes: list[dict[str, Any]] = json.loads((self.folder / "nodes.json").read_text())
        except FileNotFoundError:
            raise LocalClusterError(f"no cluster in {self.folder}: start one with gramary cluster up") from None
        except (OSError, ValueError) as error:
            raise LocalClusterError(f"{self.folder / 'nodes.json'} cannot be read: {error}") from None
        return nodes

    def up(self, number: int, port: int, *, begin: int | None = None) -> list[dict[str, Any]]:
        """Start nodes and wait until each answers. Raises `LocalClusterError`; nothing is left running then.

        `begin`: start only so many of them; `join` starts the others, which the first ones expect.
        """
        if (self.folder / "nodes.json").exists() and any(_alive(node["pid"]) for node in self.nodes()):
            raise LocalClusterError(f"a cluster runs in {self.folder} already: gramary cluster down, or another --dir")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        token, key = self.folder / "token", self.folder / "mac.key"
        for path in (token, key):
            path.touch(mode=0o600)
            if not path.stat().st_size:
                path.write_text(secrets.token_hex(32) + "\n")
        addresses = [f"127.0.0.1:{port + i}" for i in range(number)]
        self.client_config.write_text(
            f'[client]\naddress = "{addresses[0]}"\nothers = {json.dumps(addresses[1:])}\n\n'
            f'[auth]\ntoken_files = ["{token}"]\n\n[trust]\nmac_key_files = ["{key}"]\n'
        )
        (self.folder / "addresses.json").write_text(json.dumps(addresses))
        (self.folder / "nodes.json").write_text("[]")
        self._launch(addresses, range(number if begin is None else begin))
        return self.nodes()

    def join(self) -> dict[str, Any]:
        """Start the next of the nodes that `up` has left out."""
        addresses: list[str] = json.loads((self.folder / "addresses.json").read_text())
        place = len(self.nodes())
        if place >= len(addresses):
            raise LocalClusterError(f"all {place} nodes of {self.folder} have been started")
        self._launch(addresses, range(place, place + 1))
        return self.nodes()[place]

    def start(self, name: str) -> dict[str, Any]:
        """Start a node that has ended, with the store that it had. Raises `LocalClusterError`."""
        nodes = self.nodes()
        [place] = [place for place, node in enumerate(nodes) if node["name"] == name]
        addresses: list[str] = json.loads((self.folder / "addresses.json").read_text())
        process, nodes[place] = self._start(name, nodes[place]["address"], addresses)
        self._await(process, nodes[place])
        (self.folder / "nodes.json").write_text(json.dumps(nodes, indent=2))
        return nodes[place]

    def _launch(self, addresses: list[str], places: range) -> None:
        started = []
        try:
            for place in places:
                started.append(self._start(f"node-{place}", addresses[place], addresses))
            for process, node in started:
                self._await(process, node)
        except BaseException:
            for process, _ in started:
                process.kill()
                process.wait()
            if not self.nodes():
                (self.folder / "nodes.json").unlink()
            raise
        nodes = [*self.nodes(), *(node for _, node in started)]
        (self.folder / "nodes.json").write_text(json.dumps(nodes, indent=2))

    def _start(self, name: str, address: str, addresses: list[str]) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
        token, key = self.folder / "token", self.folder / "mac.key"
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        config = folder / "gramary.toml"
        config.write_text(
            f'[node]\nname = "{name}"\nlisten = ["{address}", "unix:{folder}/agent.sock"]\n\n'
            f'[store]\npath = "{folder}/store"\n\n[peers]\nnodes = {json.dumps(addresses)}\n\n'
            f'[auth]\ntoken_files = ["{token}"]\n\n[trust]\nmac_key_files = ["{key}"]\n\n'
            f'[metrics]\nlisten = ""\n\n[log]\nformat = "json"\n\n{self._more}'
        )
        log = folder / "log.jsonl"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "gramary.cluster.cli", "agent", "--config", str(config)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=folder,
            )  # fmt: skip
        self._processes.append(process)
        node = {"name": name, "address": address, "pid": process.pid, "store": f"{folder}/store", "log": str(log)}
        return process, node

    def _await(self, process: subprocess.Popen[bytes], node: dict[str, Any]) -> None:
        host, _, port = node["address"].rpartition(":")
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if process.poll() is not None:
                last = Path(node["log"]).read_text(errors="replace").strip().splitlines()[-5:]
                raise LocalClusterError(f"{node['name']} ended at once: {' '.join(last) or 'no output'}")
            try:
                with socket.create_connection((host, int(port)), 0.5):
                    return
            except OSError:
                time.sleep(0.1)
        raise LocalClusterError(f"{node['name']} does not listen after {START_S:g} s: see {node['log']}")

    def down(self, *, wipe: bool = False) -> int:
        """Stop the nodes; returns how many were running."""
        nodes = self.nodes()
        running = [node["pid"] for node in nodes if _alive(node["pid"])]
        for pid in running:
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + STOP_S
        while any(_alive(pid) for pid in running) and time.monotonic() < until:
            time.sleep(0.1)
        for pid in running:
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
        (self.folder / "nodes.json").unlink(missing_ok=True)
        if wipe:
            for name in ("token", "mac.key", "client.toml", "addresses.json"):
                (self.folder / name).unlink(missing_ok=True)
            for node in nodes:
                shutil.rmtree(self.folder / node["name"], ignore_errors=True)
        return len(running)


def _alive(pid: int) -> bool:
    """Whether it runs, and is one of ours: a process number may have gone to somebody else."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"gramary.cluster.cli" in command
