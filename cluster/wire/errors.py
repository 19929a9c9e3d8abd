"""Errors of the wire, and every typed error as a google.rpc.Status and back.

What a server raises (a `WireError`, or whatever typed error the node raises) becomes a status with a
`google.rpc.ErrorInfo`: the class as reason, the attributes as metadata. A client raises `CallFailed`, a `PeerError`,
whose `error` is that typed error again. What became of one source of several (`Outcome`) travels the same way.

    GramaryError
      InsecureAddress       a server would be open to a network without being told who may use it
      InvalidSecurity       keys, certificates or tokens that cannot be used
      WireError             a server refused a call
        InvalidRequest      a field is not what the protocol says: `field`
        Unauthenticated     no token or certificate, or a wrong one
        NotPermitted        the caller lacks the role: `role`
        Overloaded          too much at once: come back after `retry_after_s`
        Draining            the node is shutting down: ask another
        CorruptData         a payload is not what its hash, size or compressor says
        TimeUp              the call's deadline passed
      PeerError             (gramary.cluster.peer)
        CallFailed          a call to a peer failed: `code`, `retry_after_s`, `error`
        CorruptAnswer       what a peer sent is not what the protocol says, or fails its hash
        Rejected            a peer did not store some records: `keys`
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import grpc
from google.protobuf import duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from gramary.cluster.peer import Outcome, PeerError
from gramary.cluster.wire.limits import SHORT_TEXT
from gramary.compiler import errors as compiler_errors
from gramary.compiler.errors import GramaryError

DOMAIN = "gramary"
MOST_ATTRIBUTES = 16

Code = grpc.StatusCode
_NUMBER: dict[grpc.StatusCode, int] = {code: code.value[0] for code in Code}
_CODE = {number: code for code, number in _NUMBER.items()}

RETRYABLE = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.RESOURCE_EXHAUSTED})


class InsecureAddress(GramaryError):
    """Refused to bind: `address` can be reached from a network, and nothing says who may use it."""

    _attributes: ClassVar[tuple[str, ...]] = ("address", "remedy")
    address: str = ""
    remedy: str = ""


class InvalidSecurity(GramaryError):
    """A key, certificate, token or role in the configuration cannot be used."""

    _attributes: ClassVar[tuple[str, ...]] = ("path",)
    path: str | None = None


class WireError(GramaryError):
    """A server refused a call. `code`: the gRPC status it is refused with."""

    code: ClassVar[grpc.StatusCode] = Code.FAILED_PRECONDITION
    retry_after_s: float | None = None


class InvalidRequest(WireError):
    """A request is not what the protocol says. `field`: the place, as a path of field names."""

    code = Code.INVALID_ARGUMENT
    _attributes: ClassVar[tuple[str, ...]] = ("field",)
    field: str = ""


class Unauthenticated(WireError):
    """The caller did not prove who it is."""

    code = Code.UNAUTHENTICATED


class NotPermitted(WireError):
    """The caller may not do this. `role`: what it lacks."""

    code = Code.PERMISSION_DENIED
    _attributes: ClassVar[tuple[str, ...]] = ("role",)
    role: str = ""


class Overloaded(WireError):
    """Too much at once. Come back after `retry_after_s` seconds."""

    code = Code.RESOURCE_EXHAUSTED
    _attributes: ClassVar[tuple[str, ...]] = ("retry_after_s",)
    retry_after_s: float | None = None


class Draining(WireError):
    """The node is shutting down. Ask another, or this one after `retry_after_s` seconds."""

    code = Code.UNAVAILABLE
    _attributes: ClassVar[tuple[str, ...]] = ("retry_after_s",)
    retry_after_s: float | None = 1.0


class CorruptData(WireError):
    """A payload is not what its hash, size or compressor says. `key`: of the record, hexadecimal, where it is known."""

    code = Code.INVALID_ARGUMENT
    _attributes: ClassVar[tuple[str, ...]] = ("key", "reason")
    key: str = ""
    reason: str = ""


class TimeUp(WireError):
    """The call's deadline passed, or the client was silent for too long."""

    code = Code.DEADLINE_EXCEEDED


class CallFailed(PeerError):
    """A call failed. `code`: the gRPC status, by name. `error`: the typed error that the peer told, if it told one."""

    def __init__(
        self,
        peer: str,
        reason: str,
        *,
        code: str = "UNKNOWN",
        retryable: bool = False,
        retry_after_s: float | None = None,
        error: GramaryError | None = None,
    ) -> None:
        super().__init__(peer, reason, retryable=retryable)
        self.code = code
        self.retry_after_s = retry_after_s
        self.error = error


class CorruptAnswer(PeerError):
    """What a peer sent is not what the protocol says, or a payload fails its hash. It was dropped."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason, retryable=True)


class Rejected(PeerError):
    """A peer did not store some of the records. `keys`: (encoded key, why), of the first thousand."""

    def __init__(self, peer: str, keys: Sequence[tuple[bytes, str]], total: int) -> None:
        why = f", the first because {keys[0][1]}" if keys else ""
        super().__init__(peer, f"did not store {total} of the records{why}", retryable=False)
        self.keys = list(keys)
        self.total = total


_CODES_BY_NAME = {
    "DeadlineExceeded": Code.DEADLINE_EXCEEDED,
    "Cancelled": Code.CANCELLED,
    "UnknownTokenizer": Code.FAILED_PRECONDITION,
    "WorkerDied": Code.ABORTED,
    "StoreFull": Code.RESOURCE_EXHAUSTED,
    "DiskFull": Code.RESOURCE_EXHAUSTED,
    "StoreClosed": Code.UNAVAILABLE,
}
_known: dict[str, type[GramaryError]] = {}


def know(*classes: type[GramaryError]) -> None:
    """Let these errors keep their class when a peer tells them. All of them take (message, **attributes)."""
    for cls in classes:
        _known[cls.__name__] = cls


know(
    *(c for c in vars(compiler_errors).values() if isinstance(c, type) and issubclass(c, GramaryError)),
    *(WireError, InvalidRequest, Unauthenticated, NotPermitted, Overloaded, Draining, CorruptData, TimeUp),
)


def code_of(error: GramaryError) -> grpc.StatusCode:
    """The status code that tells best what kind of trouble an error is."""
    if isinstance(error, WireError):
        return error.code
    if type(error).__name__ in _CODES_BY_NAME:
        return _CODES_BY_NAME[type(error).__name__]
    if isinstance(error, compiler_errors.CompileError | compiler_errors.TokenizerError):
        return Code.INVALID_ARGUMENT
    return Code.UNAVAILABLE if getattr(error, "retryable", False) else Code.FAILED_PRECONDITION


def to_dict(error: GramaryError) -> dict[str, str]:
    """An error as text: `type`, `message` and its attributes, others as JSON. Shortened for trailers."""
    out = {"type": type(error).__name__, "message": error.message[:SHORT_TEXT]}
    for name, value in list(error.as_dict().items())[: MOST_ATTRIBUTES + 2]:
        if name not in out and value is not None:
            out[name] = (value if isinstance(value, str) else json.dumps(value, default=str))[:SHORT_TEXT]
    return out


def from_dict(data: dict[str, str]) -> GramaryError:
    """The inverse of `to_dict`. Data from outside: what is not known, or not of the attribute's type, is left out.

    >>> from_dict({"type": "NotPermitted", "message": "no", "role": "publish"}).role
    'publish'
    """
    cls = _known.get(data.get("type", ""), GramaryError)
    attributes: dict[str, Any] = {}
    for name in cls._attributes:
        if name not in data or name == "cause":
            continue
        if isinstance(getattr(cls, name, None), str):
            attributes[name] = data[name]
            continue
        try:
            value = json.loads(data[name])
        except (ValueError, RecursionError):
            value = data[name]
        if value is None or isinstance(value, str | bool | int | float):
            attributes[name] = value
    return cls(data.get("message", "no message"), **attributes)


def make_status(
    code: grpc.StatusCode, message: str, *, error: dict[str, str] | None = None, retry_after_s: float | None = None
) -> Any:
    """A google.rpc.Status with the details that belong to it."""
    status = status_pb2.Status(code=_NUMBER[code], message=message[:SHORT_TEXT])
    if error is not None:
        metadata = {
            name[:64]: value[:SHORT_TEXT]
            for name, value in list(error.items())[: MOST_ATTRIBUTES + 2]
            if name not in ("type", "message")
        }
        info = error_details_pb2.ErrorInfo(reason=error.get("type", "")[:64], domain=DOMAIN, metadata=metadata)
        status.details.add().Pack(info)
        if "field" in metadata and code is Code.INVALID_ARGUMENT:
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=metadata["field"], description=message[:SHORT_TEXT]
            )
            status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(retry_after_s * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def status_of(error: GramaryError) -> Any:
    """The google.rpc.Status that tells an error."""
    return make_status(
        code_of(error), error.message, error=to_dict(error), retry_after_s=getattr(error, "retry_after_s", None)
    )


def read_status(status: Any) -> tuple[grpc.StatusCode, dict[str, str], float | None]:
    """Code, error as text (empty if the status tells none) and advised delay. Any status is taken, however odd."""
    code = _CODE.get(status.code, Code.UNKNOWN)
    error: dict[str, str] = {}
    retry_after_s: float | None = None
    for detail in status.details[:8]:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        try:
            if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == DOMAIN:
                error = {name: info.metadata[name] for name in list(info.metadata)[:MOST_ATTRIBUTES]}
                error |= {"type": info.reason, "message": status.message}
            elif detail.Is(retry.DESCRIPTOR) and detail.Unpack(retry):
                retry_after_s = max(0.0, min(3600.0, retry.retry_delay.ToNanoseconds() / 1e9))
        except DecodeError:
            continue
    return code, error, retry_after_s


OK = status_pb2.Status()


def outcome_status(outcome: Outcome) -> Any:
    """The status of one source."""
    if outcome.manifest is not None:
        return OK
    error = dict(outcome.error)
    code = Code.ABORTED if outcome.retryable else Code.INVALID_ARGUMENT
    if outcome.retryable and error.get("type") in _CODES_BY_NAME:
        code = _CODES_BY_NAME[error["type"]]
    return make_status(code, error.get("message", "it failed"), error=error)


def failed_outcome(key: bytes, status: Any) -> Outcome:
    """The outcome that a status tells."""
    code, error, _ = read_status(status)
    error = error or {"type": "WireError", "message": status.message or f"it failed with {code.name}"}
    return Outcome(key, error=error, retryable=code in RETRYABLE)
