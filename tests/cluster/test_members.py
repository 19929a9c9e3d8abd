"""Owners, claims, members and their health, each by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from gramary.cluster.peer import ClaimState, PeerError
from gramary.cluster.placement import FileSource, Member, Membership, StaticSource
from gramary.cluster.placement.leases import ClaimTable
from gramary.cluster.placement.membership import Breaker, Circuit, Latency, MembershipError
from gramary.cluster.placement.rendezvous import Ring
from tests.cluster.simulated import simulate

DIGESTS = [blake3(bytes([i % 256, i // 256])).digest() for i in range(4000)]


def test_owners_are_spread_and_move_little() -> None:
    names = [f"n{i}" for i in range(20)]
    whole, less = Ring(names), Ring(names[:-1])
    load = Counter(whole.owners(digest)[0] for digest in DIGESTS)
    assert set(load) == set(names)
    assert max(load.values()) < 1.5 * len(DIGESTS) / 20
    for digest in DIGESTS:
        first, second = whole.owners(digest)
        assert first != second
        expected = second if first == names[-1] else first
        assert less.owners(digest)[0] == expected, "what a node owned goes to who came second; nothing else moves"


def test_owners_do_not_depend_on_order_or_process() -> None:
    assert Ring(["b", "a", "c"]).owners(DIGESTS[0], 3) == Ring(["c", "b", "a", "a"]).owners(DIGESTS[0], 3)
    assert Ring(["a", "b", "c"]).owners(bytes(32), 2) == ("a", "c")
    assert Ring(["a"]).owners(bytes(32), 2) == ("a",)
    assert Ring([]).owners(bytes(32), 2) == ()


def test_weights() -> None:
    ring = Ring(["a", "b", "c"], {"a": 2.0})
    load = Counter(ring.owners(digest, 1)[0] for digest in DIGESTS)
    assert 0.45 < load["a"] / len(DIGESTS) < 0.55
    with pytest.raises(ValueError, match="positive"):
        Ring(["a"], {"a": 0.0})


class Stored:
    def __init__(self) -> None:
        self.digests: set[bytes] = set()

    def __call__(self, digests: Sequence[bytes]) -> set[bytes]:
        return self.digests.intersection(digests)


A, B, C = DIGESTS[:3]


def states(claims: Sequence[Any]) -> list[str]:
    return [claim.state.name for claim in claims]


def test_a_claim_is_granted_once() -> None:
    async def main() -> None:
        stored = Stored()
        table = ClaimTable(stored)
        assert states(table.claim([A, B], "x", 1.0)) == ["GRANTED", "GRANTED"]
        (held,) = table.claim([A], "y", 1.0)
        assert (held.state, held.holder) == (ClaimState.HELD, "x")
        assert 0 < held.remaining_s <= 1.0
        assert states(table.claim([A], "x", 5.0)) == ["GRANTED"], "claiming again renews"
        await asyncio.sleep(3.0)
        assert states(table.claim([A, B], "y", 1.0)) == ["HELD", "GRANTED"], "B ran out"
        stored.digests.add(A)
        assert states(table.claim([A], "y", 1.0)) == ["DONE"]
        assert table.stats.expired == 1

    simulate(main())


def test_waiters_wake_on_complete_release_and_expiry() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        stored = Stored()
        table = ClaimTable(stored)
        table.claim([A, B, C], "x", 10.0)

        async def woken(digest: bytes, timeout_s: float = 60.0) -> tuple[str, float]:
            (claim,) = await table.wait([digest], timeout_s)
            return claim.state.name + claim.holder, round(loop.time(), 1)

        async def events() -> None:
            await asyncio.sleep(1)
            stored.digests.add(A)
            table.complete([A], "x")
            await asyncio.sleep(1)
            table.release([B], "y")  # not its holder: nothing happens
            await asyncio.sleep(1)
            table.release([B], "x")

        got = await asyncio.gather(woken(A), woken(B), woken(C), woken(C, 5.0), events())
        assert got[:4] == [("DONE", 1.0), ("HELD", 3.0), ("HELD", 10.0), ("HELDx", 5.0)]
        assert states(table.claim([B], "y", 1.0)) == ["GRANTED"]

    simulate(main())


def test_names_that_no_store_has_are_remembered_as_done() -> None:
    async def main() -> None:
        table = ClaimTable(Stored(), most_remembered=2)
        table.claim([A], "x", 1.0)
        table.complete([A], "y")
        assert states(table.claim([A], "z", 1.0)) == ["HELD"], "who holds no lease cannot end that of another"
        table.complete([A], "x")
        assert states(table.claim([A], "y", 1.0)) == ["DONE"]
        table.complete([B, C], "x")
        assert states(table.claim([A], "y", 1.0)) == ["GRANTED"], "bounded"
        table.forget([B])
        assert states(table.claim([B, C], "y", 1.0)) == ["GRANTED", "DONE"]

    simulate(main())


def test_a_full_table_refuses_for_a_moment() -> None:
    async def main() -> None:
        table = ClaimTable(Stored(), most_leases=10)
        table.claim(DIGESTS[:10], "x", 1.0)
        (claim,) = table.claim([DIGESTS[10]], "y", 1.0)
        assert (claim.state, claim.holder) == (ClaimState.HELD, "")
        await asyncio.sleep(2)
        assert states(table.claim([DIGESTS[10]], "y", 1.0)) == ["GRANTED"]
        assert len(table) == 1

    simulate(main())


def test_breaker() -> None:
    breaker = Breaker(failures=2, cool_down_s=1.0, most_cool_down_s=3.0)
    breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(1.0)
    assert breaker.state(1.0) is Circuit.CLOSED
    breaker.failed(1.0)
    assert breaker.state(1.5) is Circuit.OPEN
    assert not breaker.begin(1.5)
    assert breaker.state(2.0) is Circuit.HALF_OPEN
    assert breaker.begin(2.0)
    assert not breaker.begin(2.1), "one trial at a time"
    breaker.failed(2.2)
    assert not breaker.begin(4.1)
    assert breaker.begin(4.3), "twice as long"
    breaker.failed(4.3)
    assert breaker.begin(7.4), "at most three seconds"
    breaker.succeeded()
    assert breaker.state(7.4) is Circuit.CLOSED


def test_latency_settles_at_the_95th_percentile() -> None:
    latency = Latency(1.0)
    for i in range(20_000):
        latency.observe((i * 7919 % 100) / 1000)
    assert 0.085 < latency.p95_s < 0.105


def test_members_are_parsed() -> None:
    assert Member.parse("10.0.0.1:7070") == Member("10.0.0.1:7070", "10.0.0.1:7070")
    assert Member.parse(" a=[::1]:7070*0.5 ") == Member("a", "[::1]:7070", 0.5)
    for text in ("", "a=", "a b", "a*x", "a*-1", "a*nan"):
        with pytest.raises(MembershipError):
            Member.parse(text)


def test_a_list_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "members"
        file.write_text("me=h:1\nother=h:2  # a comment\n\n")
        gone = []

        async def disconnect(peer: Any) -> None:
            gone.append(peer.name)

        membership = Membership("me", FileSource(file), FakePeer, disconnect=disconnect)
        assert await membership.refresh()
        assert membership.ring.nodes == ("me", "other")
        assert not await membership.refresh()
        assert await membership.ask("other", FakePeer.hello, 1.0) == "hello from other"
        for text in ("", "not a member\n", None):
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
            assert not await membership.refresh()
            assert membership.ring.nodes == ("me", "other")
        assert membership.refresh_failures == 3
        file.write_text("third=h:3")
        assert await membership.refresh()
        assert membership.ring.nodes == ("me", "third"), "this node is always one"
        assert gone == ["other"]
        with pytest.raises(PeerError, match="no member"):
            await membership.ask("other", FakePeer.hello, 1.0)

    asyncio.run(main())


class FakePeer:
    answers = True

    def __init__(self, member: Member) -> None:
        self.name = member.name

    async def hello(self: Any) -> str:
        if not FakePeer.answers:
            await asyncio.sleep(100)
        return f"hello from {self.name}"


def test_who_does_not_answer_is_left_alone_and_tried_again() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        names = ["me", "a", "b", "c"]
        membership = Membership("me", StaticSource([Member(name, name) for name in names]), FakePeer)  # type: ignore[arg-type]
        await membership.refresh()
        digest = next(d for d in DIGESTS if membership.owners(d)[0] == "a")
        assert membership.reachable(digest)[0] == "a"
        FakePeer.answers = False
        for _ in range(3):
            with pytest.raises(PeerError):
                await membership.ask("a", FakePeer.hello, 0.5)
        assert loop.time() == pytest.approx(1.5)
        assert "a" not in membership.reachable(digest)
        assert len(membership.reachable(digest)) == 2
        assert membership.owners(digest)[0] == "a", "ownership does not follow health"
        with pytest.raises(PeerError, match="left alone"):
            await membership.ask("a", FakePeer.hello, 0.5)
        await asyncio.sleep(1.0)
        FakePeer.answers = True
        assert await membership.ask("a", FakePeer.hello, 0.5) == "hello from a"
        assert membership.circuits()["a"] is Circuit.CLOSED

    try:
        simulate(main())
    finally:
        FakePeer.answers = True
