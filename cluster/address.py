"""Addresses as users write them: `host:port`, `[v6]:port`, `unix:/path`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

MOST_UNIX_PATH = 107  # sun_path on Linux, less its end


@dataclass(frozen=True, slots=True)
class Address:
    """One place to listen on or connect to: a host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_unix(self) -> bool:
        return bool(self.path)

    @property
    def is_wildcard(self) -> bool:
        """Every address of the machine: good for listening, no good for connecting to."""
        ip = _ip(self.host)
        return ip is not None and ip.is_unspecified

    @property
    def is_local(self) -> bool:
        """Only processes of this machine can reach it."""
        ip = _ip(self.host)
        return self.is_unix or self.host == "localhost" or (ip is not None and ip.is_loopback)

    def __str__(self) -> str:
        if self.is_unix:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def parse_address(text: str) -> Address:
    """The address that `text` says; raises `ValueError` with what it should be.

    >>> parse_address("[::1]:7171")
    Address(host='::1', port=7171, path='')
    >>> parse_address("unix:/run/gramary/agent.sock").is_local
    True
    """
    if text.startswith("unix:"):
        path = "/" + text.removeprefix("unix:").lstrip("/")
        if not text.startswith("unix:/") or "\0" in path or not 1 < len(path.encode()) <= MOST_UNIX_PATH:
            raise ValueError(f"{text[:120]!r} is no unix:/path of at most {MOST_UNIX_PATH} bytes")
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    good_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 <= int(port) <= 65535
    good_host = bool(bare) and len(bare) <= 253 and (":" not in bare if not bracketed else _ip(bare) is not None)
    if not (colon and good_port and good_host) or any(c.isspace() or c == "/" for c in bare):
        raise ValueError(f"{text[:120]!r} is not host:port, [v6]:port or unix:/path")
    return Address(host=bare, port=int(port))
