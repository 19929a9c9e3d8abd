"""Calls to one peer: deadlines, credentials, and what their failures mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from gramary.cluster import trace
from gramary.cluster.wire.channel import Connection
from gramary.cluster.wire.codec import compressors
from gramary.cluster.wire.errors import RETRYABLE, CallFailed, CorruptAnswer, CorruptData, from_dict, read_status
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.security import ClientSecurity
from gramary.cluster.wire.timing import Watchdog

Code = grpc.StatusCode
OK = Code.OK.value[0]
FULL = Code.RESOURCE_EXHAUSTED.value[0]
"""An item's status: it is there, but the message had no room for it."""

T = TypeVar("T")
U = TypeVar("U")


class Calls:
    """A node at `target` ("HOST:PORT", "unix:PATH", or any gRPC name), and how it is called.

    Nothing is opened before the first call. Every loop and every forked process has its own connection. `timeout_s`:
    deadline of calls that do not have one of their own; of a stream, the longest silence. `attempts`: tries of
    idempotent calls while the peer is unavailable.
    """

    def __init__(
        self,
        target: str,
        *,
        name: str | None = None,
        security: ClientSecurity | None = None,
        limits: WireLimits | None = None,
        timeout_s: float = 10.0,
        attempts: int = 3,
        compress: bool = True,
    ) -> None:
        self._name = name or target
        self._target = target
        self._security = security or ClientSecurity()
        self._connection = Connection(target, self._security, attempts)
        self._limits = limits or WireLimits()
        self._timeout_s = timeout_s
        self._accept = compressors() if compress else compressors()[:1]

    @property
    def name(self) -> str:
        """What rendezvous hashing hashes."""
        return self._name

    @property
    def target(self) -> str:
        """Where it is."""
        return self._target

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r}, name={self._name!r})"

    async def close(self) -> None:
        """Close the connection; a later call opens it again."""
        await self._connection.close()

    def _metadata(self) -> list[tuple[str, str | bytes]]:
        return trace.inject(self._security.metadata())

    async def _call(self, make: Any, method: str, request: Any, *, timeout_s: float | None = None) -> Any:
        """One call with one response."""
        stub = self._connection.stub(make)
        timeout = self._timeout_s if timeout_s is None else timeout_s
        closings = self._connection.closings
        try:
            return await _answered(getattr(stub, method)(request, timeout=timeout, metadata=self._metadata()))
        except grpc.aio.AioRpcError as error:
            failed = self._failed(error)
            raise failed from failed.error
        except (grpc.aio.UsageError, asyncio.CancelledError):
            if closings == self._connection.closings:
                raise
            raise self._closed() from None

    def _closed(self) -> CallFailed:
        return CallFailed(self.name, "the connection was closed on this side", code="UNAVAILABLE", retryable=True)

    async def _stream(
        self, method: Any, request: Any, *, silence_s: float | None = -1.0, timeout_s: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """The responses of a call with many; cancelled when the caller loses interest."""
        silence_s = self._timeout_s if silence_s is not None and silence_s < 0 else silence_s
        call = method(request, timeout=timeout_s, metadata=self._metadata())
        watchdog = None if silence_s is None else Watchdog(silence_s, call.cancel)
        closings = self._connection.closings
        try:
            while True:
                response = await call.read()
                if watchdog is not None:
                    watchdog.feed()
                if response is grpc.aio.EOF:
                    code = await call.code()
                    if code is Code.OK:
                        return
                    failed = self._failed(await _error_of(call))
                    raise failed from failed.error
                yield response
        except (grpc.aio.UsageError, asyncio.CancelledError):
            if closings != self._connection.closings:
                raise self._closed() from None
            if watchdog is None or not watchdog.bitten:
                raise
            raise CallFailed(
                self.name, f"nothing came for {silence_s:g} s", code="DEADLINE_EXCEEDED", retryable=True
            ) from None
        except grpc.aio.AioRpcError as error:
            failed = self._failed(error)
            raise failed from failed.error
        finally:
            if watchdog is not None:
                watchdog.stop()
            call.cancel()

    def _failed(self, error: grpc.aio.AioRpcError) -> CallFailed:
        """What a failed call is to the caller."""
        code = error.code()
        told: dict[str, str] = {}
        retry_after_s: float | None = None
        try:
            status = rpc_status.from_call(error)  # type: ignore[arg-type]
        except (ValueError, DecodeError):  # no status, or one that contradicts the code
            status = None
        if status is not None:
            _, told, retry_after_s = read_status(status)
        typed = from_dict(told) if told else None
        details = (error.details() or "no details")[:2048]
        retryable = code in RETRYABLE and not (code is Code.RESOURCE_EXHAUSTED and retry_after_s is None)
        return CallFailed(
            self.name,
            f"{code.name}: {details}",
            code=code.name,
            retryable=retryable,
            retry_after_s=retry_after_s,
            error=typed,
        )

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """What is wrong with an answer is the peer's fault."""
        try:
            yield
        except CorruptData as error:
            raise CorruptAnswer(self.name, error.message) from error


async def _answered(call: Awaitable[Any]) -> Any:
    return await call


async def _error_of(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        await call.code(), await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
    )


def slices(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Runs of at most so many items."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def paired(asked: Sequence[T], results: Sequence[U]) -> Iterator[tuple[T, U]]:
    """Items and their results; raises `CorruptData` unless every item has one."""
    if len(asked) != len(results):
        raise CorruptData(f"{len(results)} results for {len(asked)} items")
    return zip(asked, results, strict=True)
