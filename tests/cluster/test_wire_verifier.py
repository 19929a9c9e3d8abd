"""What is believed of what others send, and who is caught."""

from collections.abc import Sequence
from dataclasses import replace

from gramary.cluster.instrument import follow_verifier
from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.mac import Mac
from gramary.cluster.wire.verifier import Checks, Verifier
from tests.cluster.memory_node import digest, entry, manifest, manifest_units, unit

MAC = Mac([b"k" * 32])


def false_units(units: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, str]]:
    return [(name, "its content has another digest") for name, data in units if data.startswith(b"false")]


def fingerprint(payload: bytes) -> bytes:
    if not payload:
        raise ValueError("empty")
    return digest(payload.decode())


def verifier(sample: float = 0.0, **options: object) -> Verifier:
    checks = Checks(
        mac=MAC,
        verify_units=false_units,
        manifest_units=manifest_units,
        fingerprint=fingerprint,
        rebuild=lambda record: record.payload != b"lie" if record.payload != b"unknown" else None,
        sample=sample,
        versions=frozenset({unit("a").key.version}),
    )
    return Verifier(checks, WireLimits(unit_bytes=1000), **options)  # type: ignore[arg-type]


def test_what_is_good() -> None:
    check = verifier()
    tokenizer = Record(Key(Kind.TOKENIZER, digest("t")), b"t")
    good = [unit("a"), MAC.seal(entry("a", 1, b"x")), MAC.seal(manifest("m", ["a"])), tokenizer]
    assert check.check(good, origin="peer") == (good, [])
    assert check.counters == {"accepted": 4}
    assert check.mac_required
    assert not Verifier().mac_required


def test_what_is_refused() -> None:
    check = verifier()
    other = Mac([b"x" * 32]).seal(entry("a", 1, b"x"))
    broken = MAC.seal(Record(manifest("m", []).key, b"123"))
    records = {
        "size": unit("a", b"x" * 1001),
        "version": replace(unit("a"), key=replace(unit("a").key, version=999)),
        "digest": unit("b", b"false"),
        "mac": other,
        "manifest": broken,
        "tokenizer": Record(Key(Kind.TOKENIZER, digest("t")), b"u"),
    }
    good, refusals = check.check([*records.values(), entry("a", 2, b""), unit("c")], origin="peer")
    assert good == [unit("c")]
    assert [refusal.key for refusal in refusals] == [
        *(record.key for record in records.values()),
        entry("a", 2, b"").key,
    ]
    assert check.counters == {**dict.fromkeys(records, 1), "unsigned": 1, "accepted": 1}
    assert not check.quarantined("peer")
    assert check.check([Record(Key(Kind.TOKENIZER, digest("t")), b"")], origin="peer")[1][0].reason.endswith("empty")


def test_a_liar_is_quarantined() -> None:
    now = [0.0]
    check = verifier(sample=1.0, clock=lambda: now[0])
    lie = MAC.seal(entry("a", 1, b"lie"))
    good, refusals = check.check([lie], origin="liar")
    assert good == []
    assert refusals[0].reason == "building it again gives something else"
    assert check.quarantined("liar")
    assert not check.quarantined("other")
    assert check.check([unit("a")], origin="liar")[0] == []
    assert check.check([unit("a"), MAC.seal(entry("a", 1, b"unknown"))], origin="other")[1] == []
    assert check.counters == {"sampled": 2, "false": 1, "quarantines": 1, "quarantined": 1, "accepted": 2}
    now[0] = 3601.0
    assert check.check([unit("a")], origin="liar")[0] == [unit("a")]
    check.quarantine("liar")
    check.release("liar")
    assert not check.quarantined("liar")


def test_samples_are_a_share() -> None:
    chances = iter([0.009, 0.011] * 50)
    check = verifier(sample=0.01, chance=lambda: next(chances))
    check.check([MAC.seal(entry("a", slot, b"x")) for slot in range(100)], origin="peer")
    assert check.counters["sampled"] == 50


def test_wrong_units_again_and_again() -> None:
    check = verifier()
    for _ in range(2):
        check.check([unit("b", b"false")], origin="peer")
    assert not check.quarantined("peer")
    check.check([unit("b", b"false")], origin="peer")
    assert check.quarantined("peer")


def test_many_origins_take_bounded_room() -> None:
    check = verifier()
    for number in range(5000):
        check.quarantine(f"peer {number}")
    assert not check.quarantined("peer 0")
    assert check.quarantined("peer 4999")
    assert check.counters["quarantines"] == 5000


def test_the_kernel_checks_units() -> None:
    from gramary.cluster.kernel import Lowering, Manifest, Source, verify_units

    lowered, units = Lowering().lower(
        Source("json_schema", '{"type": "object", "properties": {"a": {"type": "string"}}}')
    )
    check = Verifier(Checks(verify_units=verify_units, manifest_units=lambda data: Manifest.parse(data).units))
    records = [Record(Key(Kind.UNIT, name), data) for name, data in units]
    source = Record(Key(Kind.MANIFEST, digest("source")), lowered)
    assert check.check([*records, source], origin="peer") == ([*records, source], [])
    swapped = [replace(records[0], payload=records[1].payload), *records[1:]]
    assert [refusal.key for refusal in check.check(swapped, origin="first")[1]] == [records[0].key]
    broken = [replace(records[0], payload=records[0].payload[:-1]), replace(source, payload=lowered[:-1])]
    assert check.check(broken, origin="second")[0] == []


def test_what_nobody_vouches_for_is_no_corruption() -> None:
    """A worker without the cluster's key offers what it built: it is refused, and no alarm is raised."""
    check = verifier()
    metrics = NodeMetrics()
    follow_verifier(metrics, check)
    assert check.check([entry("a", 1, b"x")], origin="worker")[1][0].reason.startswith("it has no MAC")
    assert metrics.corruption.value("peer") == 0
    check.check([Mac([b"x" * 32]).seal(entry("a", 1, b"x"))], origin="worker")
    assert metrics.corruption.value("peer") == 1
