"""What stands before every call of a server: who is it, may it, is there room, and is it a message at all.

gRPC hands the requests over as bytes (`request_deserializer` is taken away), so that bytes that are no message get a
status like any other mistake; responses may be bytes already. Errors become statuses here and nowhere else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status
from opentelemetry.trace import SpanKind

from gramary.cluster import trace
from gramary.cluster.wire.errors import (
    Draining,
    InvalidRequest,
    Overloaded,
    TimeUp,
    code_of,
    make_status,
    status_of,
)
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.security import CALLER, Caller, Role, ServerSecurity
from gramary.cluster.wire.timing import Watchdog
from gramary.compiler.errors import GramaryError

log = logging.getLogger(__name__)

Metadata = Iterable[tuple[str, str | bytes]]
HEALTH = "/grpc.health.v1.Health/"
Observer = Callable[[str, str, float], None]
"""Told of every call that ended: method ("CacheService/Lookup"), status code by name, seconds."""


class Gate:
    """Room for so many calls of one kind; some more wait, the rest is turned away."""

    def __init__(self, most: int, queue: int, retry_after_s: float) -> None:
        self.most = most
        self._places = asyncio.Semaphore(most)
        self._queue = queue
        self._retry_after_s = retry_after_s
        self.waiting = 0
        self.active = 0

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Hold a place; raises `Overloaded` if too many wait already."""
        if self._places.locked():
            if self.waiting >= self._queue:
                raise Overloaded(
                    f"{self.active} calls of this kind are served and {self.waiting} wait: come back in "
                    f"{self._retry_after_s} s",
                    retry_after_s=self._retry_after_s,
                )
            self.waiting += 1
            try:
                await self._places.acquire()
            finally:
                self.waiting -= 1
        else:
            await self._places.acquire()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
            self._places.release()


class Rule:
    """How the calls of one method are treated. `lasting`: open until one side ends it; a drain ends it at once."""

    def __init__(self, role: Role | None, gate: str | None, *, lasting: bool = False) -> None:
        self.role = role
        self.gate = gate
        self.lasting = lasting


def _rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}

    def add(service: str, methods: str, rule: Rule) -> None:
        rules.update({f"/gramary.v1.{service}/{method}": rule for method in methods.split()})

    add("CacheService", "Lookup FindMissing BatchRead", Rule(Role.READ, "read"))
    add("CacheService", "Read GetShards", Rule(Role.READ, "stream"))
    add("CacheService", "PutShards", Rule(Role.PUBLISH, "write"))
    add("CacheService", "Watch", Rule(Role.READ, "watch", lasting=True))
    add("CompileService", "Compile CompileStream", Rule(Role.COMPILE, "compile"))
    add("TokenizerService", "RegisterTokenizer", Rule(Role.COMPILE, "write"))
    add("PlacementService", "Claim Release Complete", Rule(Role.LEASE, "read"))
    add("PlacementService", "Wait", Rule(Role.LEASE, "wait"))
    add("NodeService", "GetCapabilities Stats", Rule(Role.READ, "read"))
    rules[HEALTH + "Check"] = rules[HEALTH + "List"] = Rule(None, None)
    rules[HEALTH + "Watch"] = Rule(None, "watch", lasting=True)
    return rules


RULES: Mapping[str, Rule] = _rules()
OTHER = Rule(Role.READ, "watch", lasting=True)
"""Reflection, and whatever else is served beside the protocol."""


class Guard(grpc.aio.ServerInterceptor):
    """The interceptor that all of that is in."""

    def __init__(self, security: ServerSecurity, limits: WireLimits, observe: Observer | None = None) -> None:
        self._security = security
        self._limits = limits
        self._observe = observe
        self.draining = False
        self._lasting: set[asyncio.Task[Any]] = set()
        self._running: set[asyncio.Task[Any]] = set()
        self.gates = {
            name: Gate(most, queue, limits.retry_after_s)
            for name, most, queue in (
                ("read", limits.reads, limits.queue),
                ("stream", limits.streams, limits.queue),
                ("write", limits.writes, limits.queue),
                ("compile", limits.compiles, limits.queue),
                ("wait", limits.waits, 0),
                ("watch", limits.watches, 0),
            )
        }

    @property
    def running(self) -> int:
        """Calls that are being served."""
        return len(self._running)

    def drain(self) -> None:
        """Refuse new calls from now on, and end those that would last."""
        self.draining = True
        for task in list(self._lasting):
            task.cancel()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the method's handler."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return handler  # UNIMPLEMENTED
        method = str(handler_call_details.method)
        metadata = handler_call_details.invocation_metadata or ()
        serializer = _serializer(handler.response_serializer)
        call = _Call(self, method, RULES.get(method, OTHER), metadata, handler.request_deserializer)
        # Handlers of streams, whatever the method is: gRPC would receive the message of a unary call before anybody is
        # asked who sends it, and whether there is room.
        many = bool(handler.request_streaming)
        if handler.response_streaming:
            behaviour = handler.stream_stream if many else handler.unary_stream
            return grpc.stream_stream_rpc_method_handler(call.streamed(behaviour, many=many), None, serializer)
        behaviour = handler.stream_unary if many else handler.unary_unary
        return grpc.stream_unary_rpc_method_handler(call.answered(behaviour, many=many), None, serializer)

    def caller(self, method: str, rule: Rule, authorization: str | None, context: Any) -> Caller:
        """Who makes a call, after it was seen to be allowed."""
        names = [
            value.decode("utf-8", "replace") for value in context.auth_context().get("x509_common_name", ()) if value
        ]
        if method.startswith(HEALTH) and self._security.health_is_open:
            return Caller(names[0] if names else "local", frozenset())
        peer = str(context.peer())
        unix = peer.startswith("unix:")
        host = "unix" if unix else peer.rpartition(":")[0]
        caller = replace(self._security.authenticate(authorization, names, unix=unix), host=host)
        if rule.role is not None:
            self._security.permit(caller, rule.role)
        return caller

    @asynccontextmanager
    async def admitted(self, method: str, rule: Rule, metadata: Metadata, context: Any) -> AsyncIterator[None]:
        """Everything that a call must pass before its handler runs; and what its end is counted as."""
        task = asyncio.current_task()
        assert task is not None
        started = time.perf_counter()
        outcome = "OK"
        self._running.add(task)
        try:
            CALLER.set(self.caller(method, rule, _authorization(metadata), context))
            if self.draining and not method.startswith(HEALTH):
                raise Draining("the node is shutting down", retry_after_s=1.0)
            if rule.gate is None:
                yield
            else:
                name = method.removeprefix("/")
                async with self.gates[rule.gate].entered():
                    if rule.lasting:
                        self._lasting.add(task)
                    with trace.span(name, kind=SpanKind.SERVER, parent=trace.extract(metadata)):
                        yield
        except GramaryError as error:
            outcome = code_of(error).name
            await context.abort_with_status(rpc_status.to_status(status_of(error)))
        except asyncio.CancelledError:
            if self.draining and rule.lasting:
                outcome = "UNAVAILABLE"
                going = Draining("the node is shutting down", retry_after_s=1.0)
                await context.abort_with_status(rpc_status.to_status(status_of(going)))
            outcome = "CANCELLED"
            raise
        except grpc.aio.AbortError:
            outcome = "ABORTED"
            raise
        except Exception:
            outcome = "INTERNAL"
            mark = secrets.token_hex(4)
            log.exception("%s failed (%s)", method, mark)
            status = make_status(grpc.StatusCode.INTERNAL, f"the node failed; its log tells more under {mark}")
            await context.abort_with_status(rpc_status.to_status(status))
        finally:
            self._running.discard(task)
            self._lasting.discard(task)
            if self._observe is not None:
                name = method.removeprefix("/").removeprefix("gramary.v1.")
                self._observe(name, outcome, time.perf_counter() - started)

    @property
    def longest_s(self) -> float:
        """How long a call may take."""
        return self._limits.longest_call_s

    async def paced(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A stream of requests whose sender does not fall silent."""
        task = asyncio.current_task()
        assert task is not None
        most_s = self._limits.idle_message_s
        iterator = requests.__aiter__()
        while True:
            watchdog = Watchdog(most_s, task.cancel)
            try:
                request = await iterator.__anext__()
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                if not watchdog.bitten:
                    raise
                raise TimeUp(f"nothing arrived for {most_s:g} s") from None
            finally:
                watchdog.stop()
            yield request


def _serializer(serialize: Callable[[Any], bytes] | None) -> Callable[[Any], bytes] | None:
    if serialize is None:
        return None
    return lambda message: message if isinstance(message, bytes) else serialize(message)


def _authorization(metadata: Metadata) -> str | None:
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str):
            return value
    return None


class _Call:
    """The wrapping of one call's handler."""

    def __init__(
        self,
        guard: Guard,
        method: str,
        rule: Rule,
        metadata: Metadata,
        parse: Callable[[bytes], Any] | None,
    ) -> None:
        self._guard = guard
        self._method = method
        self._rule = rule
        self._metadata = metadata
        self._parse_bytes = parse

    def _parse(self, data: bytes) -> Any:
        if self._parse_bytes is None:
            return data
        try:
            return self._parse_bytes(data)
        except (DecodeError, ValueError, RecursionError):
            raise InvalidRequest(f"the request of {self._method} is not its message", field="") from None

    async def _parsed(self, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        stream = requests if self._rule.lasting else self._guard.paced(requests)
        async for data in stream:
            yield self._parse(data)

    async def _request(self, requests: AsyncIterator[bytes], many: bool) -> Any:
        if many:
            return self._parsed(requests)
        async for data in self._guard.paced(requests):
            return self._parse(data)
        raise InvalidRequest(f"{self._method} came without a message", field="")

    @asynccontextmanager
    async def _bounded(self, context: Any) -> AsyncIterator[None]:
        """End a call that takes longer than calls may. At the deadline of the client's, gRPC itself cancels it."""
        longest = self._guard.longest_s
        left = context.time_remaining()
        task = asyncio.current_task()
        if self._rule.lasting or task is None or (left is not None and left <= longest):
            yield
            return
        watchdog = Watchdog(longest, task.cancel)
        try:
            yield
        except asyncio.CancelledError:
            if not watchdog.bitten:
                raise
            raise TimeUp(f"{self._method} took longer than {longest:g} s; give it a deadline") from None
        finally:
            watchdog.stop()

    def _admitted(self, context: Any) -> Any:
        return self._guard.admitted(self._method, self._rule, self._metadata, context)

    def answered(self, behaviour: Callable[..., Any], *, many: bool) -> Callable[[Any, Any], Awaitable[Any]]:
        """For methods with one response."""

        async def handle(requests: Any, context: Any) -> Any:
            async with self._admitted(context), self._bounded(context):
                return await behaviour(await self._request(requests, many), context)

        return handle

    def streamed(self, behaviour: Callable[..., Any], *, many: bool) -> Callable[[Any, Any], Any]:
        """For methods with a stream of responses.

        Always a coroutine that writes, even around a generator: gRPC does not close a generator of a cancelled call.
        """

        async def handle(requests: Any, context: Any) -> None:
            async with self._admitted(context), self._bounded(context):
                request = await self._request(requests, many)
                if not inspect.isasyncgenfunction(behaviour):
                    await behaviour(request, context)
                    return
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        await context.write(response)

        return handle
