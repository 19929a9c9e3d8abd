"""From settings to what the wire wants: who may call this node, how it proves itself, and the cluster's MAC.

All of it follows the files of the settings: a token, key or certificate that is rotated counts from the next call on.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import overload

from gramary.cluster.credentials import Credentials
from gramary.cluster.settings import Settings
from gramary.cluster.wire.mac import Mac, keyed_hash
from gramary.cluster.wire.security import ClientSecurity, Role, ServerSecurity, Tls, Token

CLIENT_ROLES = frozenset({Role.READ, Role.COMPILE})


class _Tokens(Sequence[Token]):
    """The tokens that are accepted now. A secret that is given twice counts once, with its larger roles."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._generation = -1
        self._tokens: list[Token] = []

    def _now(self) -> list[Token]:
        self._credentials.refresh()
        generation = self._credentials.generation
        if generation != self._generation:
            nodes = dict.fromkeys(one.decode() for one in self._credentials.tokens())
            programs = dict.fromkeys(one.decode() for one in self._credentials.client_tokens())
            self._tokens = [Token(f"node-{number}", secret) for number, secret in enumerate(nodes)]
            fresh = [secret for secret in programs if secret not in nodes]
            self._tokens += [Token(f"client-{number}", one, CLIENT_ROLES) for number, one in enumerate(fresh)]
            self._generation = generation
        return self._tokens

    @overload
    def __getitem__(self, index: int) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Token]: ...
    def __getitem__(self, index: int | slice) -> Token | Sequence[Token]:
        return self._now()[index]

    def __len__(self) -> int:
        return len(self._now())


class _Caller(ClientSecurity):
    """Sends the token that is first now."""

    def __init__(self, credentials: Credentials, tls: Tls | None, server_name: str | None, plaintext: bool) -> None:
        tokens = credentials.tokens()
        super().__init__(tls, tokens[0].decode() if tokens else None, server_name, plaintext)
        object.__setattr__(self, "_credentials", credentials)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        credentials: Credentials = self.__dict__["_credentials"]
        tokens = credentials.tokens()
        return (("authorization", f"Bearer {tokens[0].decode()}"),) if tokens else ()


class _Mac(Mac):
    """Signs with the key that is first now, and verifies with all."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(list(dict.fromkeys(credentials.mac_keys())))
        self._credentials = credentials

    def sign(self, key: bytes, payload: bytes) -> bytes:
        return keyed_hash(self._credentials.mac_keys()[0], key, payload)

    def verify(self, key: bytes, payload: bytes, mac: bytes) -> bool:
        return any(hmac.compare_digest(keyed_hash(one, key, payload), mac) for one in self._credentials.mac_keys())


def server_security(settings: Settings, credentials: Credentials) -> ServerSecurity:
    """What a server demands of its callers. Raises `InvalidSecurity`."""
    tls, certificate = settings.tls, None
    if tls.cert_file is not None:
        certificate = Tls(tls.cert_file, tls.key_file, tls.ca_file if tls.require_client_cert else None)
    return ServerSecurity(certificate, _Tokens(credentials), plaintext_tokens=settings.auth.plaintext)


def client_security(settings: Settings, credentials: Credentials) -> ClientSecurity:
    """How this process proves itself to a node. Raises `InvalidSecurity`."""
    tls = settings.tls
    certificate = Tls(tls.cert_file, tls.key_file, tls.ca_file) if tls.enabled else None
    return _Caller(credentials, certificate, tls.server_name, settings.auth.plaintext)


def cluster_mac(credentials: Credentials) -> Mac | None:
    """The cluster's MAC; `None` where no key is configured."""
    return _Mac(credentials) if credentials.mac_keys() else None
