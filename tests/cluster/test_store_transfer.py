"""Export, import, verify, and the command line over them."""

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gramary.cluster.cli import app
from gramary.cluster.kernel import Lowering, Source, verify_units
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import InvalidExport, LiveStore, open_reader
from gramary.cluster.store.rebuild import Rebuilder
from gramary.cluster.store.strangers import manifest_units, stranger_check
from gramary.cluster.store.transfer import MAGIC, export_records, import_records, read_export
from gramary.cluster.store.verify import verify
from gramary.compiler import Tokenizer, Vocabulary
from gramary.runtime._core import Compiler
from tests.cluster.store_tools import BUDGET, digest, entry, manifest, unit

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yz"]}}, "required": ["a"]},
    {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}},
    {"type": "string", "pattern": "^[a-f]{3,9}$"},
]


def real_records() -> list[Record]:
    """What a small node would hold: a tokenizer, sources, their units and mask entries."""
    vocabulary = Vocabulary.from_bytes(Tokenizer.from_bytes().vocabulary.to_bytes())
    compiler = Compiler(vocabulary)
    records = [Record(Key(Kind.TOKENIZER, vocabulary.fingerprint), vocabulary.to_bytes())]
    for schema in SCHEMAS:
        source = Source("json_schema", json.dumps(schema))
        data, units = Lowering().lower(source)
        records.append(Record(Key(Kind.MANIFEST, source.key), data, mac=b"good"))
        records.extend(Record(Key(Kind.UNIT, name), content, origin="node") for name, content in units)
        for name, slot, content, cost in compiler.build_entries(units, [name for name, _ in units]):
            key = Key(Kind.ENTRY, name, vocabulary.fingerprint, slot)
            records.append(Record(key, content, cost, b"good", "node"))
    return records


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return real_records()


@pytest.fixture
def filled(tmp_path: Path, records: list[Record]) -> Path:
    with LiveStore(tmp_path / "store", BUDGET, children=manifest_units) as store:
        assert store.put(records).refused == []
        assert store.counters.stored > 10
    return tmp_path / "store"


def vouched(record: Record) -> bool:
    return record.mac == b"good"


def test_round_trip(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "export"
    told: list[int] = []
    with open_reader(filled) as source:
        count = export_records(source, file, source.keys(), told.append)
        with LiveStore(tmp_path / "other", BUDGET) as store:
            with file.open("rb") as opened:
                result = import_records(store, opened, "export", check=stranger_check(vouched), progress=told.append)
            assert (result.records, result.stored, result.known, result.refused) == (count, count, 0, [])
            assert list(store.keys()) == list(source.keys())
            for key in list(store.keys()):
                assert store.get(key).record() == source.get(key).record()  # type: ignore[union-attr]
    assert told[-1] == count


def test_what_nobody_vouches_for_is_refused(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "export"
    with open_reader(filled) as source:
        export_records(source, file, source.keys())
    with LiveStore(tmp_path / "other", BUDGET) as store, file.open("rb") as opened:
        result = import_records(store, opened, "export", check=stranger_check())
        assert {key.kind for key, _ in result.refused} == {Kind.ENTRY, Kind.MANIFEST}
        assert {key.kind for key in list(store.keys())} == {Kind.UNIT, Kind.TOKENIZER}


def test_lies_are_refused(records: list[Record]) -> None:
    check = stranger_check(lambda _: True)
    assert check(records) == {}
    honest = next(record for record in records if record.key.kind is Kind.UNIT)
    tokenizer = records[0]
    lies = [
        Record(unit("other").key, honest.payload),
        Record(unit("noise").key, b"noise"),
        Record(Key(Kind.TOKENIZER, digest("t")), tokenizer.payload),
        Record(Key(Kind.TOKENIZER, digest("u")), b"noise"),
        manifest("m", [digest("a")]),
        Record(Key(Kind.UNIT, honest.key.digest, version=honest.key.version + 1), honest.payload),
    ]
    assert check([*records, *lies]).keys() == {lie.key for lie in lies}


def exported(tmp_path: Path) -> bytes:
    with LiveStore(tmp_path / "small", BUDGET) as store:
        store.put([unit(1), entry(1, 1, 300), manifest("m", [digest(1)])])
        export_records(store, tmp_path / "file", store.keys())
    return (tmp_path / "file").read_bytes()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return exported(tmp_path_factory.mktemp("small"))


def read_all(data: bytes) -> list[Record]:
    return list(read_export(io.BytesIO(data), "file"))


def test_every_truncation_is_found(small: bytes) -> None:
    assert len(read_all(small)) == 3
    for end in range(len(small)):
        with pytest.raises(InvalidExport, match=r"ends early|does not begin") as error:
            read_all(small[:end])
        assert error.value.offset <= end
    with pytest.raises(InvalidExport, match="follows"):
        read_all(small + b"\0")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_changed_byte_is_found(small: bytes, data: st.DataObject) -> None:
    changed = bytearray(small)
    changed[data.draw(st.integers(0, len(small) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidExport):
        read_all(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_no_export(data: bytes) -> None:
    for start in (b"", MAGIC):
        with pytest.raises(InvalidExport):
            read_all(start + data)


def test_a_length_alone_allocates_nothing() -> None:
    frame = struct.pack("<HBBIQQ32s", 37, 0, 0, 0, 0, 1 << 30, bytes(32))
    with pytest.raises(InvalidExport, match="ends early"):
        read_all(MAGIC + frame + bytes(100))
    with pytest.raises(InvalidExport, match="out of bounds"):
        read_all(MAGIC + struct.pack("<HBBIQQ32s", 37, 0, 0, 0, 0, 1 << 60, bytes(32)))


def test_verify_finds_wrong_units_and_entries(filled: Path, records: list[Record]) -> None:
    entries = [record for record in records if record.key.kind is Kind.ENTRY]
    wrong = Record(entries[0].key, entries[-1].payload, 5, b"good", "liar")
    lie = Record(unit("x").key, b"no unit", origin="liar")
    with LiveStore(filled, BUDGET) as store:
        report = verify(store, units=verify_units, rebuild=Rebuilder(store))
        assert report.sound
        assert report.rebuilt == len({record.key for record in entries})
        assert report.not_rebuilt == 0
        store.remove([wrong.key])
        store.put([wrong, lie])
        report = verify(store, units=verify_units, rebuild=Rebuilder(store), remove=True)
        assert not report.sound
        assert report.wrong_entries == [wrong.key]
        assert [key for key, _ in report.wrong_units] == [lie.key]
        assert report.liars == {"liar": 2}
        assert report.removed == 2
        assert verify(store, units=verify_units, rebuild=Rebuilder(store)).sound


def test_verify_beside_a_writer_and_of_sealed_files(filled: Path) -> None:
    from gramary.cluster.store import seal

    with LiveStore(filled, BUDGET) as store:
        seal(store)
        with open_reader(filled, mode="sealed") as sealed:
            assert verify(sealed, units=verify_units).values == store.stats().values
    with open_reader(filled) as reader:
        report = verify(reader, units=verify_units)
        assert report.sound
        assert report.units > 3


def run(*arguments: object, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["store", *map(str, arguments), "--json"])
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_command_line(filled: Path, tmp_path: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAMARY_STORE_PATH", str(filled))
    values = len({record.key for record in records})
    found = run("stat")
    assert found["values"] == values
    assert sum(group["values"] for group in found["groups"]) == values
    assert len(run("ls", "--limit", 3)["values"]) == 3
    assert {one["kind"] for one in run("ls", "--kind", "unit")["values"]} == {"unit"}
    fingerprint = records[0].key.digest.hex()
    assert {one["tokenizer"] for one in run("ls", "--tokenizer", fingerprint)["values"]} == {fingerprint}
    assert run("verify", "--rebuild")["sound"] is True
    file = tmp_path / "file"
    assert run("export", file)["values"] == values
    assert run("import", file, "--trust")["known"] == values
    with LiveStore(tmp_path / "other", BUDGET) as store:
        error = run("import", file, "-s", store.path, code=2)["error"]
        assert error["type"] == "StoreLocked"
    result = run("import", file, "-s", tmp_path / "other", code=1)
    assert result["refused"] == {"nobody vouches for it": result["values"] - result["stored"]}
    (tmp_path / "broken").write_bytes(file.read_bytes()[:-1])
    assert run("import", tmp_path / "broken", "--trust", code=2)["error"]["type"] == "InvalidExport"
    assert run("gc", "--budget", 1)["values"] == 0
    assert run("stat", "-s", tmp_path / "nothing", code=2)["error"]["type"] == "StoreUnavailable"


@pytest.mark.parametrize("command", [["stat"], ["ls"], ["verify"], ["gc"]])
def test_tables(filled: Path, command: list[str]) -> None:
    result = CliRunner().invoke(app, ["store", *command, "-s", str(filled)])
    assert result.exit_code == 0, result.output
    assert "values" in result.output or "kind" in result.output


def test_the_command_line_removes_what_is_damaged(filled: Path, records: list[Record]) -> None:
    target = max(records, key=lambda record: len(record.payload))
    data = next(filled.glob("live-*/data.mdb"))
    content = bytearray(data.read_bytes())
    content[content.find(target.payload) + 9] ^= 1
    data.write_bytes(content)
    assert run("verify", "-s", filled, code=1)["damaged"] == [target.key.encode().hex()]
    assert run("verify", "-s", filled, "--fix", code=1)["removed"] == 1
    assert run("verify", "-s", filled)["sound"] is True
