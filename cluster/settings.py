"""What can be configured: one class a section, one `Settings` for all. `gramary.cluster.config` loads them.

Importing this costs some 0.4 s (pydantic): import it where it is needed, not at the top of what workers import.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ByteSize, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gramary.cluster.address import parse_address

PREFIX = "GRAMARY_"
MIB, GIB = 1 << 20, 1 << 30


def cache_directory() -> Path:
    """Where a user's caches live: `XDG_CACHE_HOME` if it is an absolute path, as its specification demands."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def _address(text: str) -> str:
    return str(parse_address(text))


def _node_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._")[:63] or "node"


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{path}: {error}") from None


AddressText = Annotated[str, AfterValidator(_address)]
Ratio = Annotated[float, Field(ge=0, le=1)]
PathText = Annotated[Path, AfterValidator(_expand)]
Size = Annotated[ByteSize, Field(ge=0)]


class Section(BaseModel):
    """One table. Unknown fields are refused, so that a misspelt one is found."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Node(Section):
    """This process as others see it."""

    name: str = Field(
        default_factory=_node_name,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$",
        description="name of this node in logs, metrics and `origin`; default: the host's name",
    )
    listen: list[AddressText] = Field(
        default=["127.0.0.1:7171"],
        min_length=1,
        max_length=8,
        description="addresses to serve gRPC on: `host:port`, `[v6]:port` or `unix:/path`; beyond loopback only with "
        "TLS and either client certificates or tokens",
    )
    advertise: AddressText | None = Field(
        default=None,
        description="`host:port` under which peers reach this node; default: the first TCP address of `listen`",
    )
    tokenizers: list[str] = Field(
        default=[],
        max_length=64,
        description="files or folders of tokenizers to prepare at start; others are registered by clients",
    )


class Store(Section):
    """The node's store."""

    path: PathText = Field(
        default_factory=lambda: cache_directory() / "gramary" / "store",
        description="folder of the store, on a local file system (never NFS); default: `gramary/store` in the user's "
        "cache directory",
    )
    budget_bytes: Size = Field(
        default=ByteSize(4 * GIB), ge=16 * MIB, description="what the values may take before eviction starts"
    )
    min_free_bytes: Size = Field(
        default=ByteSize(512 * MIB), description="what stays free on the disk: below it nothing is stored"
    )
    high_ratio: Ratio = Field(default=0.9, gt=0, description="share of the budget at which eviction starts")
    low_ratio: Ratio = Field(default=0.75, gt=0, description="share of the budget at which eviction stops")
    sync_interval_s: float = Field(
        default=5.0, gt=0, le=3600, description="seconds between two syncs of the store to disk"
    )
    access: Literal["auto", "live", "sealed"] = Field(
        default="auto",
        description="how clients and workers read it: `live` (same PID namespace as the agent, writable mount), "
        "`sealed` (read-only generations, any container), `auto` (live if the mount is writable, else sealed)",
    )
    seal_interval_s: float = Field(
        default=0.0,
        ge=0,
        le=86400,
        description="seconds between two sealed generations, made by the agent; 0: none are made",
    )

    @model_validator(mode="after")
    def _watermarks(self) -> Store:
        if self.low_ratio >= self.high_ratio:
            raise ValueError(f"low_ratio ({self.low_ratio}) must be below high_ratio ({self.high_ratio})")
        return self


class Peers(Section):
    """Who else is in the cluster. The sources add up; this node's own address is left out."""

    nodes: list[AddressText] = Field(default=[], max_length=4096, description="fixed addresses `host:port`")
    dns: AddressText | None = Field(
        default=None,
        description="`name:port` of which every address is a node (a headless Service); looked up again and again",
    )
    file: PathText | None = Field(default=None, description="file with one address a line, read again when it changes")
    refresh_s: float = Field(
        default=10.0, ge=0.1, le=3600, description="seconds between two look-ups of `dns` and `file`"
    )
    replicas: int = Field(default=2, ge=1, le=8, description="nodes that keep each value: its owner and those after it")


class Executor(Section):
    """Where units are compiled."""

    kind: Literal["auto", "inline", "process", "ray"] = Field(
        default="auto",
        description="`inline` (this process), `process` (a pool), `ray`, or `auto`: ray if `ray_address` is set, "
        "else a pool",
    )
    workers: int = Field(
        default_factory=lambda: len(os.sched_getaffinity(0)),
        ge=1,
        le=4096,
        description="processes or actors that compile; default: the CPUs that this process may use",
    )
    ray_address: str | None = Field(
        default=None, description="address of the Ray cluster: `host:port`, `ray://host:port` or `auto`"
    )
    ray_namespace: str = Field(
        default="gramary", pattern=r"^[A-Za-z0-9._-]{1,63}$", description="Ray namespace of the named actors"
    )

    @property
    def resolved_kind(self) -> Literal["inline", "process", "ray"]:
        """`kind`, with `auto` decided."""
        if self.kind == "auto":
            return "ray" if self.ray_address else "process"
        return self.kind

    @model_validator(mode="after")
    def _ray(self) -> Executor:
        if self.kind == "ray" and not self.ray_address:
            raise ValueError("kind is ray and there is no ray_address; set it to host:port of the head, or to auto")
        return self


class CompileLimits(Section):
    """Bounds of one compilation; see docs/errors.md."""

    source_bytes: Size = Field(default=ByteSize(16 * MIB), ge=1, description="bytes of a source's text")
    depth: int = Field(default=2000, ge=1, le=100_000, description="nesting of JSON values, of groups in a pattern")
    fsm_states: int = Field(default=1_000_000, ge=1, le=1 << 30, description="states of all automata built on the way")
    items_per_set: int = Field(default=1000, ge=1, le=1 << 20, description="Earley items at one position")
    memory_bytes: Size = Field(default=ByteSize(256 * MIB), ge=MIB, description="parse tables of one compiled grammar")
    seconds: float = Field(default=10.0, gt=0, le=3600, description="wall-clock time of one compilation")
    hard_seconds: float = Field(
        default=15.0, gt=0, le=3600, description="after which a compile worker that did not stop by itself is ended"
    )
    hard_bytes: Size = Field(
        default=ByteSize(2 * GIB), ge=64 * MIB, description="by which one compilation may grow its worker"
    )

    @model_validator(mode="after")
    def _order(self) -> CompileLimits:
        if self.hard_seconds <= self.seconds:
            raise ValueError(f"hard_seconds ({self.hard_seconds}) must be above seconds ({self.seconds})")
        return self

    def as_limits(self) -> Any:
        """The kernel's `Limits`."""
        from gramary.compiler import Limits

        return Limits(
            source_bytes=int(self.source_bytes),
            depth=self.depth,
            fsm_states=self.fsm_states,
            items_per_set=self.items_per_set,
            memory=int(self.memory_bytes),
            seconds=self.seconds,
        )


class Deadlines(Section):
    """How long anything may take."""

    compile_s: float = Field(default=30.0, gt=0, le=3600, description="a compile request, from start to answer")
    peer_s: float = Field(
        default=5.0,
        gt=0,
        le=600,
        description="a call from node to node (claims, values, puts): a peer that takes longer counts as failed",
    )
    connect_s: float = Field(default=2.0, gt=0, le=60, description="setting up a connection")
    lease_s: float = Field(
        default=10.0, ge=1, le=600, description="a lease on a unit; an owner that dies is taken over after it"
    )
    fill_wait_ms: float = Field(
        default=200.0, ge=0, le=10_000, description="a worker's first mask waits at most this long for its grammar"
    )
    drain_s: float = Field(default=30.0, ge=0, le=600, description="what requests in flight are given on SIGTERM")


class Server(Section):
    """What strangers can make this node hold. Message sizes are part of the protocol: at most 1 MiB each."""

    connections: int = Field(default=4096, ge=1, le=1 << 20, description="connections open at once")
    calls: int = Field(default=4096, ge=1, le=1 << 20, description="calls of any kind open at once")
    reads: int = Field(default=256, ge=1, le=65536, description="calls that read worked on at once")
    writes: int = Field(default=8, ge=1, le=65536, description="calls that store worked on at once")
    compiles: int = Field(default=64, ge=1, le=65536, description="compile calls worked on at once")
    watches: int = Field(default=256, ge=1, le=65536, description="subscriptions open at once")
    queue: int = Field(
        default=512, ge=0, le=65536, description="calls of one kind that wait; further ones are refused with RetryInfo"
    )


class Tls(Section):
    """Encryption and who is who. All files are PEM and are read again when they change."""

    cert_file: PathText | None = Field(default=None, description="certificate chain of this process")
    key_file: PathText | None = Field(default=None, description="its private key")
    ca_file: PathText | None = Field(default=None, description="authorities whose certificates are believed")
    require_client_cert: bool = Field(
        default=True, description="a server refuses clients without a certificate of `ca_file`"
    )
    server_name: str | None = Field(
        default=None, description="name that a server's certificate must have, where it is not its address"
    )

    @model_validator(mode="after")
    def _pairs(self) -> Tls:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file go together; set both or neither")
        return self

    @property
    def enabled(self) -> bool:
        """Whether anything here is set."""
        return bool(self.cert_file or self.ca_file)


class Auth(Section):
    """Bearer tokens. The first is sent, every one is accepted: put the new one first, later drop the old."""

    tokens: list[SecretStr] = Field(
        default=[], max_length=16, description="tokens of at least 16 characters; better in `token_files`"
    )
    token_files: list[PathText] = Field(
        default=[],
        max_length=16,
        description="files with one token each, read again when they change; they may do everything, also publish",
    )
    client_token_files: list[PathText] = Field(
        default=[], max_length=16, description="the same for programs that may read and compile, not publish"
    )
    plaintext: bool = Field(
        default=False,
        description="tokens may cross a network without TLS: only where something else encrypts it (a service mesh)",
    )


class Trust(Section):
    """Whose mask entries are believed."""

    publishers: Literal["agents", "workers", "nobody"] = Field(
        default="agents",
        description="who may publish mask entries: agents for what they built, also workers through their agent, "
        "or nobody",
    )
    mac_keys: list[SecretStr] = Field(
        default=[], max_length=16, description="keys as 64 hexadecimal digits; better in `mac_key_files`"
    )
    mac_key_files: list[PathText] = Field(
        default=[],
        max_length=16,
        description="files with one key each, read again when they change; the first key signs, every one verifies",
    )
    reverify_ratio: Ratio = Field(
        default=0.01, description="share of a peer's entries that are built again and compared"
    )


class Client(Section):
    """How a program or a worker reaches the cluster."""

    address: AddressText | None = Field(
        default=None,
        description="the node's agent or a service: `unix:/path` or `host:port`; unset: store and local compiling only",
    )
    cache_bytes: Size = Field(
        default=ByteSize(512 * MIB), ge=MIB, description="units and mask entries kept in this process's memory"
    )
    others: list[AddressText] = Field(
        default=[],
        max_length=64,
        description="nodes to ask as well when the first is away, or silent for half of `wait_s`",
    )
    wait_s: float = Field(
        default=1.0, ge=0, le=600, description="how long a request waits for the cluster before it is compiled here"
    )
    publish: bool = Field(
        default=True, description="offer the agent what was built here, if it takes that (`trust.publishers`)"
    )


class Worker(Section):
    """The inference engine's side."""

    prefetch_entries: int = Field(
        default=32, ge=0, le=4096, description="mask entries built in the background when a request arrives"
    )
    take_over: bool = Field(default=False, description="answer to requests for the xgrammar backend too")
    metrics_listen: str = Field(
        default="",
        description="address of this worker's own `/metrics`; taken ports are passed over, up to 15; empty: none",
    )
    grammars: int = Field(
        default=256, ge=0, le=65536, description="compiled grammars kept for requests that ask for the same again"
    )
    threads: int = Field(default=4, ge=1, le=64, description="threads that compile, or wait for the cluster to do it")
    overlap_tokens: int = Field(
        default=1024,
        ge=0,
        le=1 << 30,
        description="requests with prompts of at least so many tokens are prefilled while their grammar is compiled; "
        "shorter ones wait for it first",
    )
    admission_ms: float = Field(
        default=10.0,
        ge=0,
        le=1000,
        description="what judging a request's grammar may take in the API server; the engine judges what takes longer",
    )
    whitespace: Literal["flexible", "compact"] = Field(default="flexible", description="whitespace allowed in JSON")
    property_order: Literal["declared", "any"] = Field(
        default="declared", description="order of an object's properties in JSON"
    )
    lenient: bool = Field(
        default=False, description="turn what cannot be enforced in a schema into a warning, instead of an error"
    )


class Metrics(Section):
    """Prometheus, of a node."""

    listen: str = Field(
        default="127.0.0.1:9171",
        description="address of `/metrics`, `/livez` and `/readyz`; empty: none. Plain HTTP: keep it inside",
    )

    @model_validator(mode="after")
    def _tcp(self) -> Metrics:
        if self.listen and parse_address(self.listen).is_unix:
            raise ValueError("listen must be host:port; Prometheus does not scrape Unix sockets")
        return self


class Log(Section):
    """Structured logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is written")
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto`: console on a terminal, else JSON lines"
    )


class Trace(Section):
    """OpenTelemetry. Needs the extra `otel`; the exporter also reads the standard `OTEL_*` variables."""

    enabled: bool = Field(default=False, description="export spans by OTLP")
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="the collector's gRPC endpoint; default: `OTEL_EXPORTER_OTLP_ENDPOINT`",
    )
    sample_ratio: Ratio = Field(
        default=0.05, description="share of the requests without a traced caller that are traced"
    )


class Settings(BaseSettings):
    """Everything. Made by `config.load`; made directly it has what it is given, whatever the environment is."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix=PREFIX, case_sensitive=False)

    node: Node = Field(default_factory=Node)
    store: Store = Field(default_factory=Store)
    peers: Peers = Field(default_factory=Peers)
    executor: Executor = Field(default_factory=Executor)
    limits: CompileLimits = Field(default_factory=CompileLimits)
    deadlines: Deadlines = Field(default_factory=Deadlines)
    server: Server = Field(default_factory=Server)
    tls: Tls = Field(default_factory=Tls)
    auth: Auth = Field(default_factory=Auth)
    trust: Trust = Field(default_factory=Trust)
    client: Client = Field(default_factory=Client)
    worker: Worker = Field(default_factory=Worker)
    metrics: Metrics = Field(default_factory=Metrics)
    log: Log = Field(default_factory=Log)
    trace: Trace = Field(default_factory=Trace)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the constructor is given: `load` merges the other sources itself, to know which set what."""
        return (init_settings,)

    def advertised(self) -> str:
        """The address under which peers reach this node."""
        if self.node.advertise:
            return self.node.advertise
        return next((text for text in self.node.listen if not parse_address(text).is_unix), self.node.listen[0])

    def listens_beyond_loopback(self) -> bool:
        """Whether strangers could reach an address of `node.listen`."""
        return not all(parse_address(text).is_local for text in self.node.listen)
