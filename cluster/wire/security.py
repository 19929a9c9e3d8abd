"""Who may use a node, and how it proves that: TLS, tokens, roles, and where a server may listen without them.

A server that is reachable from a network needs a way to tell friends from strangers: client certificates (`Tls` with
`ca`), tokens, or both (then a caller needs both, and has the roles that both give). Without any, it binds to the
loopback interface or a Unix socket only, where every caller has `local_roles`. So has a caller over a Unix socket in
any case (the mode of its file says who may call); one that shows a token has that token's roles.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import grpc

from gramary.cluster.address import parse_address
from gramary.cluster.wire.errors import InsecureAddress, InvalidSecurity, NotPermitted, Unauthenticated

LEAST_SECRET = 16
BEARER = "bearer "


class Role(Enum):
    """What a caller may do."""

    READ = "read"
    """Look up, read and watch."""
    COMPILE = "compile"
    """Have sources compiled and tokenizers registered."""
    PUBLISH = "publish"
    """Store records: nodes, and workers of a node through its agent where that is wanted."""
    LEASE = "lease"
    """Take leases: nodes."""


ALL_ROLES = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call. `name`: of its token or certificate; "local" for neither."""

    name: str
    roles: frozenset[Role]
    host: str = ""
    """Where it calls from; without the port."""

    @property
    def origin(self) -> str:
        """Whom to blame for what it sends: nodes may share a token, and then differ in their addresses."""
        return f"{self.name}@{self.host}"


CALLER: ContextVar[Caller] = ContextVar("gramary_caller")


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token: several may be valid at once, so that they can be rotated. `secret` is never shown or logged."""

    name: str
    secret: str = field(repr=False)
    roles: frozenset[Role] = ALL_ROLES

    def __post_init__(self) -> None:
        if len(self.secret) < LEAST_SECRET or not self.secret.isascii() or not self.secret.isprintable():
            raise InvalidSecurity(
                f"the token {self.name!r} is no secret: use at least {LEAST_SECRET} printable ASCII characters"
            )
        if self.secret.strip() != self.secret:
            raise InvalidSecurity(f"the token {self.name!r} begins or ends with white space")


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: this side's certificate and key, and the authority that signs the other side's.

    A server with `ca` asks every client for a certificate. A client without `ca` uses the system's authorities, and one
    without `cert` shows none. Files are read again when they change, so that certificates can be renewed (servers; a
    client reads them whenever it connects).
    """

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InvalidSecurity("a certificate needs its key, and a key its certificate: give both or none")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSecurity(f"{path} cannot be read: {error.strerror}", path=str(path)) from None


@dataclass(frozen=True)
class ServerSecurity:
    """What a server demands of its callers."""

    tls: Tls | None = None
    tokens: Sequence[Token] | Callable[[], Sequence[Token]] = ()
    """The tokens, or what gives them at any moment: so they can be rotated without a restart."""
    require_certificate: bool = True
    """With `tls.ca`: turn clients without a certificate away, not only those with a wrong one."""
    certificate_roles: Mapping[str, frozenset[Role]] = field(default_factory=dict)
    """Common names of client certificates -> roles; "*" for all others. None given: every good certificate has all."""
    local_roles: frozenset[Role] = ALL_ROLES
    """Roles of callers over a Unix socket, and of callers of a server that demands neither token nor certificate."""
    health_is_open: bool = True
    """grpc.health.v1 answers without a token (not without a certificate): what Kubernetes' probes need."""
    plaintext_tokens: bool = False
    """Listen on a network with tokens but without TLS: where something else (a service mesh) encrypts."""

    def __post_init__(self) -> None:
        if self.tls is not None and self.tls.cert is None:
            raise InvalidSecurity("a server's TLS needs a certificate and its key")
        secrets = [token.secret for token in self._tokens()]
        if len(set(secrets)) != len(secrets):
            raise InvalidSecurity("two tokens have the same secret")

    def _tokens(self) -> Sequence[Token]:
        return self.tokens() if callable(self.tokens) else self.tokens

    @property
    def asks_certificate(self) -> bool:
        """Whether clients must show a certificate."""
        return self.tls is not None and self.tls.ca is not None and self.require_certificate

    def check_address(self, address: str) -> None:
        """Refuse to listen where strangers are, unless something keeps them out; raises `InsecureAddress`."""
        if is_local(address):
            return
        if not self._tokens() and not self.asks_certificate:
            remedy = "configure client certificates or tokens, or bind to 127.0.0.1 or unix:PATH"
            raise InsecureAddress(
                f"{address} can be reached from a network, and nothing says who may use it: {remedy}",
                address=address,
                remedy=remedy,
            )
        if self.tls is None and not self.plaintext_tokens:
            remedy = "configure TLS, or plaintext_tokens if something else encrypts the network"
            raise InsecureAddress(
                f"tokens would cross the network to {address} in the clear: {remedy}", address=address, remedy=remedy
            )

    def credentials(self) -> grpc.ServerCredentials | None:
        """gRPC's credentials; `None` for a plain port. Raises `InvalidSecurity` if a file cannot be used."""
        if self.tls is None:
            return None
        source = _Certificates(self.tls)
        initial = source.configuration()
        return grpc.dynamic_ssl_server_credentials(
            initial,
            source.renewed,  # type: ignore[arg-type]  # None is "as before", says gRPC
            require_client_authentication=self.asks_certificate,
        )

    def authenticate(self, authorization: str | None, common_names: Iterable[str], *, unix: bool = False) -> Caller:
        """Who a caller is, by its `authorization` header and its certificate. Takes equally long for every token.

        `unix`: it calls over a Unix socket.
        """
        tokens = self._tokens()
        if unix and (not authorization or not tokens):
            return Caller("local", self.local_roles)
        asks_certificate = self.asks_certificate and not unix
        roles, name = self.local_roles, "local"
        if asks_certificate:
            names = list(common_names)
            if not names:
                raise Unauthenticated("this node wants a client certificate with a common name")
            name = names[0]
            if self.certificate_roles:
                roles = self.certificate_roles.get(name, self.certificate_roles.get("*", frozenset()))
            else:
                roles = ALL_ROLES
        if tokens:
            token = _matching(tokens, authorization)
            if token is None:
                wrong = "a valid token" if authorization else "a token: send it as authorization: Bearer ..."
                raise Unauthenticated(f"this node wants {wrong}")
            roles = roles & token.roles if asks_certificate else token.roles
            name = f"{name}/{token.name}" if asks_certificate else token.name
        return Caller(name, roles)

    def permit(self, caller: Caller, role: Role) -> None:
        """Raises `NotPermitted` unless the caller has the role."""
        if role not in caller.roles:
            raise NotPermitted(f"{caller.name} lacks the role {role.value}", role=role.value)


def _matching(tokens: Sequence[Token], authorization: str | None) -> Token | None:
    given = authorization or ""
    given = given[len(BEARER) :].strip() if given[: len(BEARER)].lower() == BEARER else ""
    # Digests have equal lengths, so that comparing tells nothing about a secret's length either.
    digest = hashlib.sha256(given.encode("utf-8", "replace")).digest()
    found = None
    for token in tokens:
        if hmac.compare_digest(digest, hashlib.sha256(token.secret.encode()).digest()):
            found = token
    return found


class _Certificates:
    """A server's certificate, read again when one of its files changes."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._seen = self._stamp()

    def _paths(self) -> list[Path]:
        return [path for path in (self._tls.cert, self._tls.key, self._tls.ca) if path is not None]

    def _stamp(self) -> list[tuple[int, int, int]]:
        out = []
        for path in self._paths():
            try:
                stat = path.stat()
            except OSError as error:
                raise InvalidSecurity(f"{path} cannot be read: {error.strerror}", path=str(path)) from None
            out.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return out

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        assert self._tls.cert is not None
        assert self._tls.key is not None
        return grpc.ssl_server_certificate_configuration(
            [(_read(self._tls.key), _read(self._tls.cert))], None if self._tls.ca is None else _read(self._tls.ca)
        )

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC for every connection."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            configuration = self.configuration()
        except InvalidSecurity:  # half a renewal: keep what works
            return None
        self._seen = stamp
        return configuration


@dataclass(frozen=True)
class ClientSecurity:
    """How a client proves who it is."""

    tls: Tls | None = None
    token: str | Callable[[], str | None] | None = field(default=None, repr=False)
    """The bearer token, or what gives it at any moment."""
    server_name: str | None = None
    """The name that the server's certificate has, where it is not the host that is dialled."""
    plaintext_token: bool = False
    """Send the token to a network address without TLS."""

    def check_target(self, target: str) -> None:
        """Refuse to send a token in the clear; raises `InsecureAddress`."""
        if self.tls is None and not self.plaintext_token and not is_local(target) and self.metadata():
            remedy = "configure TLS, or plaintext_token if something else encrypts the network"
            raise InsecureAddress(
                f"the token would cross the network to {target} in the clear: {remedy}", address=target, remedy=remedy
            )

    def credentials(self) -> grpc.ChannelCredentials | None:
        """gRPC's credentials; `None` for a plain connection."""
        if self.tls is None:
            return None
        key, cert, ca = (None if path is None else _read(path) for path in (self.tls.key, self.tls.cert, self.tls.ca))
        return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        token = self.token() if callable(self.token) else self.token
        return () if token is None else (("authorization", f"Bearer {token}"),)


def is_local(address: str) -> bool:
    """Whether only this machine reaches an address: a Unix socket, or a loopback address with a port."""
    try:
        return parse_address(address).is_local
    except ValueError:  # a gRPC name of another form: not known to be local
        return False
