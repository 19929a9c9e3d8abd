"""What the tests of the wire share: servers for the length of a test, what is asked of them, and certificates."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gramary.cluster.peer import SourceItem
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.node import Node
from gramary.cluster.wire.security import Tls
from gramary.cluster.wire.server import WireServer
from tests.cluster.memory_node import MemoryNode, digest

SOURCE = SourceItem(digest("s"), "regex", "", b"s")
"""A source that a memory node compiles to a unit."""


@asynccontextmanager
async def served(node: Node, *addresses: str, grace_s: float = 0.05, **options: Any) -> AsyncIterator[WireServer]:
    """A server, stopped at the end."""
    server = WireServer(node, *(addresses or ("127.0.0.1:0",)), **options)
    await server.start()
    try:
        yield server
    finally:
        await server.drain(grace_s)


def run(test: Callable[[], Coroutine[Any, Any, None]], seconds: float = 60) -> None:
    """Run a coroutine function; a hang is a failure."""
    asyncio.run(asyncio.wait_for(test(), seconds))


def both(test: Callable[[MemoryNode, GrpcPeer], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run a test with a node and a peer that asks it."""

    async def whole() -> None:
        node = MemoryNode()
        async with served(node, **options) as server, GrpcPeer(server.address) as peer:
            await test(node, peer)

    run(whole)


async def collect(items: AsyncIterable[Any], into: list[Any] | None = None) -> list[Any]:
    """All items; those that came before an error are in `into`."""
    into = [] if into is None else into
    async for item in items:
        into.append(item)
    return into


class Authority:
    """A certificate authority, and the files that it makes."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._cert = self._sign(name, self._key, authority=True)
        self.path = self._write(f"{name}.pem", self._cert)

    def issue(self, name: str) -> Tls:
        """A certificate for a name, for both ends of connections on this machine."""
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        return Tls(
            cert=self._write(f"{self.name}-{name}.pem", self._sign(name, key, authority=False)),
            key=self._write_key(f"{self.name}-{name}.key", key),
            ca=self.path,
        )

    def _sign(self, name: str, key: Any, *, authority: bool) -> Any:
        import ipaddress

        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self.name)])
        now = datetime.datetime.now(datetime.timezone.utc)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, cert: Any) -> Path:
        from cryptography.hazmat.primitives.serialization import Encoding

        path = self.folder / name
        path.write_bytes(cert.public_bytes(Encoding.PEM))
        return path

    def _write_key(self, name: str, key: Any) -> Path:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        path = self.folder / name
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        path.chmod(0o600)
        return path
