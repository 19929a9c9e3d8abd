"""Who gets in, who may do what, and where a server listens without asking."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gramary.cluster.peer import SourceItem
from gramary.cluster.records import Kind
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed, InsecureAddress, InvalidSecurity, NotPermitted, Unauthenticated
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.mac import Mac
from gramary.cluster.wire.security import ClientSecurity, Role, ServerSecurity, Tls, Token
from gramary.cluster.wire.server import CannotListen, WireServer
from tests.cluster.memory_node import MemoryNode, digest, entry, manifest, unit
from tests.cluster.wire_tools import Authority, run, served

NEW, OLD, READER = "new-secret-0123456789", "old-secret-0123456789", "reader-secret-0123456789"
TOKENS = [
    Token("new", NEW),
    Token("old", OLD),
    Token("reader", READER, frozenset({Role.READ})),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    pytest.importorskip("cryptography", reason="certificates are made with cryptography")
    return Authority(tmp_path_factory.mktemp("authority"))


async def refused(peer: GrpcPeer) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await peer.capabilities()
    return caught.value


def test_tokens() -> None:
    async def check() -> None:
        node = MemoryNode()
        node.add(unit("a"))
        async with served(node, security=ServerSecurity(tokens=TOKENS)) as server:
            for wrong in (None, "wrong-secret-0123456789", NEW + "x", NEW[:-1]):
                async with GrpcPeer(server.address, security=ClientSecurity(token=wrong)) as peer:
                    failed = await refused(peer)
                    assert failed.code == "UNAUTHENTICATED"
                    assert isinstance(failed.error, Unauthenticated)
                    assert not failed.retryable
                    assert NEW not in str(failed)
            for good in (NEW, OLD):
                async with GrpcPeer(server.address, security=ClientSecurity(token=good)) as peer:
                    assert (await peer.capabilities()).roles == {"read", "compile", "publish", "lease"}
            source = SourceItem(digest("s"), "regex", "", b"s")
            async with GrpcPeer(server.address, security=ClientSecurity(token=READER)) as peer:
                assert (await peer.capabilities()).roles == {"read"}
                assert await peer.read([unit("a").key]) == [unit("a")]
                for call in (
                    peer.put([unit("b")]),
                    peer.compile([source], deadline_s=5),
                    peer.claim([digest("a")], holder="me", lease_s=1),
                    peer.register_tokenizer(digest("t"), b"t"),
                ):
                    with pytest.raises(CallFailed, match="PERMISSION_DENIED") as caught:
                        await call
                    assert isinstance(caught.value.error, NotPermitted)
                    assert caught.value.error.role in ("publish", "compile", "lease")
            assert node.puts == []
            assert node.jobs == []
            async with grpc.aio.insecure_channel(server.address) as channel:  # health is open to probes
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        async with (
            served(node, security=ServerSecurity(tokens=TOKENS, health_is_open=False)) as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED

    run(check)


def test_tokens_are_rotated_without_a_restart() -> None:
    async def check() -> None:
        valid = [Token("a", OLD)]
        sent = [OLD]
        security = ServerSecurity(tokens=lambda: list(valid))
        async with (
            served(MemoryNode(), security=security) as server,
            GrpcPeer(server.address, security=ClientSecurity(token=lambda: sent[0])) as peer,
        ):
            await peer.stats()
            valid[:] = [Token("b", NEW), Token("a", OLD)]
            await peer.stats()
            sent[0] = NEW
            await peer.stats()
            del valid[1]
            await peer.stats()
            sent[0] = OLD
            with pytest.raises(CallFailed, match="UNAUTHENTICATED"):
                await peer.stats()

    run(check)


def test_strangers_are_refused_before_their_message_is_read() -> None:
    async def check() -> None:
        async def nothing() -> AsyncIterator[bytes]:
            await asyncio.sleep(60)
            yield b""

        security, limits = ServerSecurity(tokens=TOKENS), WireLimits(idle_message_s=0.1)
        async with (
            served(MemoryNode(), security=security, limits=limits) as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            lookup = channel.stream_unary("/gramary.v1.CacheService/Lookup")
            for token, code in ((None, "UNAUTHENTICATED"), (NEW, "DEADLINE_EXCEEDED")):
                with pytest.raises(grpc.aio.AioRpcError, match=code):
                    await lookup(nothing(), metadata=ClientSecurity(token=token).metadata())
            with pytest.raises(grpc.aio.AioRpcError, match="without a message"):
                await lookup(iter([]), metadata=ClientSecurity(token=NEW).metadata())

    run(check)


def test_unix_sockets_have_the_local_roles(tmp_path: Path) -> None:
    async def check() -> None:
        security = ServerSecurity(tokens=TOKENS, local_roles=frozenset({Role.READ}))
        address = f"unix:{tmp_path}/agent.sock"
        async with served(MemoryNode(), address, "127.0.0.1:0", security=security) as server:
            assert server.addresses[0] == address
            async with GrpcPeer(address) as peer:
                assert (await peer.capabilities()).roles == {"read"}
            async with GrpcPeer(address, security=ClientSecurity(token=NEW)) as peer:
                assert "publish" in (await peer.capabilities()).roles
            async with GrpcPeer(address, security=ClientSecurity(token="wrong-secret-0123456789")) as peer:
                assert (await refused(peer)).code == "UNAUTHENTICATED"
            async with GrpcPeer(server.addresses[1]) as peer:
                assert (await refused(peer)).code == "UNAUTHENTICATED"

    run(check)


def test_certificates(authority: Authority, tmp_path: Path) -> None:
    async def check() -> None:
        rogue = Authority(tmp_path / "rogue", "rogue")
        roles = {"node": frozenset(Role), "*": frozenset({Role.READ})}
        security = ServerSecurity(tls=authority.issue("server"), certificate_roles=roles)
        async with served(MemoryNode(), security=security) as server:
            async with GrpcPeer(server.address, security=ClientSecurity(tls=authority.issue("node"))) as peer:
                assert (await peer.capabilities()).roles == {"read", "compile", "publish", "lease"}
                await peer.put([unit("a")])
            async with GrpcPeer(server.address, security=ClientSecurity(tls=authority.issue("other"))) as peer:
                assert (await peer.capabilities()).roles == {"read"}
            stolen = rogue.issue("node")
            for tls in (
                Tls(ca=authority.path),  # shows none
                Tls(stolen.cert, stolen.key, authority.path),  # signed by somebody else
                stolen,  # does not believe the server
            ):
                async with GrpcPeer(server.address, security=ClientSecurity(tls=tls), attempts=1) as peer:
                    assert (await refused(peer)).code == "UNAVAILABLE"
            async with GrpcPeer(server.address, attempts=1) as peer:  # not even TLS
                assert (await refused(peer)).code == "UNAVAILABLE"
            name = ClientSecurity(tls=authority.issue("node"), server_name="somebody.else")
            async with GrpcPeer(server.address, security=name, attempts=1) as peer:
                assert (await refused(peer)).code == "UNAVAILABLE"

    run(check)


def test_certificate_and_token(authority: Authority) -> None:
    async def check() -> None:
        security = ServerSecurity(tls=authority.issue("server"), tokens=TOKENS)
        async with served(MemoryNode(), security=security) as server:
            tls = authority.issue("node")
            async with GrpcPeer(server.address, security=ClientSecurity(tls=tls)) as peer:
                assert (await refused(peer)).code == "UNAUTHENTICATED"
            async with GrpcPeer(server.address, security=ClientSecurity(tls=tls, token=READER)) as peer:
                assert (await peer.capabilities()).roles == {"read"}
            bare = ClientSecurity(tls=Tls(ca=authority.path), token=NEW)
            async with GrpcPeer(server.address, security=bare, attempts=1) as peer:
                assert (await refused(peer)).code == "UNAVAILABLE"
        optional = ServerSecurity(tls=authority.issue("server"), tokens=TOKENS, require_certificate=False)
        async with (
            served(MemoryNode(), security=optional) as server,
            GrpcPeer(server.address, security=bare) as peer,
        ):
            assert "publish" in (await peer.capabilities()).roles

    run(check)


def test_certificates_are_renewed_without_a_restart(authority: Authority, tmp_path: Path) -> None:
    async def check() -> None:
        first, second = authority.issue("first"), Authority(tmp_path / "second", "another").issue("second")
        for source in (first.cert, first.key, first.ca):
            assert source is not None
            shutil.copy(source, tmp_path)
        assert first.cert is not None
        assert first.key is not None
        assert first.ca is not None
        live = Tls(tmp_path / first.cert.name, tmp_path / first.key.name, tmp_path / first.ca.name)
        async with served(MemoryNode(), security=ServerSecurity(tls=live)) as server:
            async with GrpcPeer(server.address, security=ClientSecurity(tls=first)) as peer:
                await peer.stats()
            assert live.key is not None
            live.key.write_text("half a re")  # while it is being written, the old one counts
            async with GrpcPeer(server.address, security=ClientSecurity(tls=first)) as peer:
                await peer.stats()
            for source, target in ((second.cert, live.cert), (second.key, live.key), (second.ca, live.ca)):
                assert source is not None
                assert target is not None
                shutil.copy(source, target)
            async with GrpcPeer(server.address, security=ClientSecurity(tls=second)) as peer:
                await peer.stats()
            async with GrpcPeer(server.address, security=ClientSecurity(tls=first), attempts=1) as peer:
                assert (await refused(peer)).code == "UNAVAILABLE"

    run(check)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.1.2.3:7171", "node.example:7171"])
def test_networks_need_security(address: str) -> None:
    with pytest.raises(InsecureAddress, match="nothing says who may use it") as caught:
        WireServer(MemoryNode(), address)
    assert caught.value.address == address
    assert "127.0.0.1" in caught.value.remedy
    with pytest.raises(InsecureAddress, match="in the clear"):
        WireServer(MemoryNode(), "127.0.0.1:0", address, security=ServerSecurity(tokens=TOKENS))
    with pytest.raises(InsecureAddress, match="in the clear"):
        GrpcPeer(address, security=ClientSecurity(token=NEW))
    WireServer(MemoryNode(), address, security=ServerSecurity(tokens=TOKENS, plaintext_tokens=True))
    GrpcPeer(address)
    GrpcPeer(address, security=ClientSecurity(token=NEW, plaintext_token=True))


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:1", "localhost:7171", "unix:/tmp/x", "127.8.8.8:1"])
def test_this_machine_needs_none(address: str) -> None:
    WireServer(MemoryNode(), address)
    GrpcPeer(address, security=ClientSecurity(token=NEW))


def test_security_that_cannot_be_used(tmp_path: Path) -> None:
    for make in (
        lambda: Token("short", "secret"),
        lambda: Token("space", " " + NEW),
        lambda: Token("line", NEW + "\n" + NEW),
        lambda: ServerSecurity(tokens=[Token("a", NEW), Token("b", NEW)]),
        lambda: Tls(cert=tmp_path / "cert"),
        lambda: ServerSecurity(tls=Tls(ca=tmp_path / "ca")),
        lambda: ServerSecurity(tls=Tls(tmp_path / "none", tmp_path / "none")).credentials(),
        lambda: ClientSecurity(tls=Tls(tmp_path / "none", tmp_path / "none")).credentials(),
        lambda: Mac([]),
        lambda: Mac([b"short"]),
        lambda: Mac([b"k" * 32, b"k" * 32]),
        lambda: Mac.from_file(tmp_path / "none"),
    ):
        with pytest.raises(InvalidSecurity):
            make()
    assert NEW not in repr(TOKENS)
    assert NEW not in repr(ClientSecurity(token=NEW))


def test_an_address_in_use() -> None:
    async def check() -> None:
        async with served(MemoryNode()) as server:
            with pytest.raises(CannotListen, match="in use"):
                await WireServer(MemoryNode(), server.address).start()

    run(check)


def test_mac(tmp_path: Path) -> None:
    old, new = Mac.new_key(), Mac.new_key()
    record = entry("a", 1, b"payload")
    sealed = Mac([old]).seal(record)
    assert len(sealed.mac) == 32
    assert Mac([new, old]).check(sealed)  # while keys are rotated, both count
    assert not Mac([new]).check(sealed)
    assert not Mac([old]).check(record)
    assert not Mac([old]).check(
        entry("a", 2, b"payload").__class__(entry("a", 2, b"payload").key, b"payload", 0, sealed.mac)
    )
    assert not Mac([old]).check(type(record)(record.key, b"payloae", 0, sealed.mac))
    # Where key ends and payload begins is part of what is signed.
    name = record.key.encode()
    assert Mac([old]).sign(name, b"ab") != Mac([old]).sign(name + b"a", b"b")
    assert Mac([old]).seal(unit("a")) == unit("a")
    assert Mac([old]).check(unit("a"))
    assert Mac([old]).seal(manifest("m", ["a"])).key.kind is Kind.MANIFEST
    path = tmp_path / "keys"
    path.write_text(f"{new.hex()}\n{old.hex()}\n")
    assert Mac.from_file(path).sign(name, b"") == Mac([new]).sign(name, b"")
    path.write_text("not hexadecimal")
    with pytest.raises(InvalidSecurity, match="hexadecimal"):
        Mac.from_file(path)
    keys = [old]
    rotating = Mac(lambda: keys)
    keys.insert(0, new)
    assert rotating.sign(name, b"") == Mac([new]).sign(name, b"")
    assert old.hex() not in repr(rotating)


def test_comparing_tokens_takes_no_shortcut() -> None:
    # Not timed: every token is compared, whichever matches, by digests of equal length.
    security = ServerSecurity(tokens=TOKENS)
    assert security.authenticate(f"bearer {NEW}", []).name == "new"
    assert security.authenticate(f"BEARER   {OLD} ", []).name == "old"
    for header in (NEW, f"Basic {NEW}", "Bearer", "Bearer ", "", "Bearer \udcff" + NEW, None):
        with pytest.raises(Unauthenticated):
            security.authenticate(header, [])


def test_settings_become_security(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_settings")
    from gramary.cluster.credentials import Credentials
    from gramary.cluster.settings import Settings
    from gramary.cluster.wire.configured import client_security, cluster_mac, server_security, wire_limits

    node, client, key = (tmp_path / name for name in ("node", "client", "key"))
    node.write_text(NEW)
    client.write_text(READER)
    key.write_text("ab" * 32)
    given: dict[str, Any] = {
        "auth": {"token_files": [str(node)], "tokens": [OLD], "client_token_files": [str(client)]},
        "trust": {"mac_key_files": [str(key)], "publishers": "workers"},
        "server": {"queue": 7},
    }
    settings = Settings(**given)
    credentials = Credentials(settings, refresh_s=0.0)
    security = server_security(settings, credentials)
    assert security.authenticate(f"Bearer {NEW}", []).roles == frozenset(Role)
    assert security.authenticate(f"Bearer {READER}", []).roles == {Role.READ, Role.COMPILE}
    assert security.authenticate(None, [], unix=True).roles == {Role.READ, Role.COMPILE, Role.PUBLISH}
    assert client_security(settings, credentials).metadata() == (("authorization", f"Bearer {NEW}"),)
    time.sleep(0.01)
    node.write_text("rotated-secret-0123456789")
    assert client_security(settings, credentials).metadata() == (("authorization", "Bearer rotated-secret-0123456789"),)
    assert security.authenticate(f"Bearer {OLD}", []).name == "node"
    with pytest.raises(Unauthenticated):
        security.authenticate(f"Bearer {NEW}", [])
    mac = cluster_mac(credentials)
    assert mac is not None
    assert mac.sign(b"", b"") == Mac([b"\xab" * 32]).sign(b"", b"")
    assert wire_limits(settings).queue == 7
    nobody = Settings(**{**given, "trust": {"publishers": "nobody"}})
    security = server_security(nobody, Credentials(nobody))
    assert security.authenticate(f"Bearer {OLD}", []).roles == frozenset(Role) - {Role.PUBLISH}
    assert cluster_mac(Credentials(nobody)) is None
