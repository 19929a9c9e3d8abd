"""The wire's parts as `gramary.cluster.settings` wants them. Importing this costs what settings cost."""

from __future__ import annotations

from dataclasses import replace

from gramary.cluster.credentials import Credentials
from gramary.cluster.settings import Settings
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.mac import Mac
from gramary.cluster.wire.security import ALL_ROLES, ClientSecurity, Role, ServerSecurity, Tls, Token

_CLIENT_ROLES = frozenset({Role.READ, Role.COMPILE})


def wire_limits(settings: Settings) -> WireLimits:
    """What a server takes."""
    server = settings.server
    return replace(
        WireLimits(),
        connections=server.connections,
        calls=server.calls,
        reads=server.reads,
        writes=server.writes,
        compiles=server.compiles,
        watches=server.watches,
        queue=server.queue,
    )


def server_security(settings: Settings, credentials: Credentials) -> ServerSecurity:
    """What a server demands of its callers. Tokens follow their files; publishing is as `trust.publishers` says."""
    publishers = settings.trust.publishers
    nodes = ALL_ROLES - {Role.PUBLISH} if publishers == "nobody" else ALL_ROLES
    local = _CLIENT_ROLES | {Role.PUBLISH} if publishers == "workers" else _CLIENT_ROLES

    def tokens() -> list[Token]:
        given = dict.fromkeys(reversed(credentials.tokens()), nodes)
        given |= {secret: _CLIENT_ROLES for secret in credentials.client_tokens() if secret not in given}
        return [
            Token("node" if Role.LEASE in roles else "client", secret.decode("ascii"), roles)
            for secret, roles in given.items()
        ]

    tls = settings.tls
    return ServerSecurity(
        tls=None if tls.cert_file is None else Tls(tls.cert_file, tls.key_file, tls.ca_file),
        tokens=tokens,
        require_certificate=tls.require_client_cert,
        certificate_roles={} if nodes == ALL_ROLES else {"*": nodes},
        local_roles=local,
        plaintext_tokens=settings.auth.plaintext,
    )


def client_security(settings: Settings, credentials: Credentials) -> ClientSecurity:
    """How this process proves itself: by its first token (a node's, or else a client's), and its certificate."""

    def token() -> str | None:
        first = next(iter((*credentials.tokens(), *credentials.client_tokens())), None)
        return None if first is None else first.decode("ascii")

    tls = settings.tls
    return ClientSecurity(
        tls=Tls(tls.cert_file, tls.key_file, tls.ca_file) if tls.enabled else None,
        token=token,
        server_name=tls.server_name,
        plaintext_token=settings.auth.plaintext,
    )


def cluster_mac(credentials: Credentials) -> Mac | None:
    """The cluster's MAC; `None` where no key is configured."""
    return Mac(credentials.mac_keys) if credentials.mac_keys() else None
