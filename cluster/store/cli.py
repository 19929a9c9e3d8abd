"""`gramary store`: look at a node's store, check it, make room, carry it elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gramary.compiler.errors import GramaryError

if TYPE_CHECKING:
    from gramary.cluster.records import Key, Kind
    from gramary.cluster.store import LiveStore, Reads
    from gramary.cluster.store.strangers import Check
    from gramary.cluster.store.verify import Rebuild

EXIT_NOT_SOUND = 1
EXIT_BAD_INPUT = 2

app = typer.Typer(help="Look at a node's store, check it, make room, carry it elsewhere.", no_args_is_help=True)


class KindName(str, Enum):
    """Kinds of values, as options name them."""

    UNIT = "unit"
    ENTRY = "entry"
    MANIFEST = "manifest"
    TOKENIZER = "tokenizer"


StoreOption = Annotated[
    Path | None,
    typer.Option("--store", "-s", metavar="DIR", help="The store; by default the one that is configured."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
KindOption = Annotated[KindName | None, typer.Option("--kind", "-k", help="Only values of this kind.")]
TokenizerOption = Annotated[
    str | None, typer.Option("--tokenizer", metavar="HEX", help="Only mask entries of this tokenizer (fingerprint).")
]


@contextmanager
def _reported(as_json: bool) -> Iterator[None]:
    try:
        yield
    except (GramaryError, OSError, ValueError) as error:
        details = (
            error.as_dict()
            if isinstance(error, GramaryError)
            else {"type": type(error).__name__, "message": str(error)}
        )
        if as_json:
            _print_json({"error": details})
        else:
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            console.print(f"[bold red]{details['type']}[/]: {escape(details['message'])}")
        raise typer.Exit(EXIT_BAD_INPUT) from None


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def _print_facts(facts: dict[str, Any]) -> None:
    rows = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in facts.items()]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        Console(soft_wrap=True).print(f"[dim]{escape(name):<{width}}[/]  {escape(value)}", highlight=False)


@contextmanager
def _progress(title: str, total: int | None, as_json: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error where somebody watches."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield lambda _: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def _path(given: Path | None) -> Path:
    if given is not None:
        return given
    from gramary.cluster.config import load

    return load().store.path


def _reader(given: Path | None) -> Reads:
    from gramary.cluster.store import open_reader

    return open_reader(_path(given))


@contextmanager
def _writer(given: Path | None, budget_bytes: int | None = None) -> Iterator[LiveStore]:
    """The store for writing. Raises `StoreLocked` while an agent has it."""
    from gramary.cluster.config import load
    from gramary.cluster.store import LiveStore, StoreUnavailable
    from gramary.cluster.store.paths import CURRENT
    from gramary.cluster.store.strangers import manifest_units

    settings = load().store
    path = given if given is not None else settings.path
    if not (path / CURRENT).exists():
        raise StoreUnavailable(f"there is no store at {path}", path=str(path))
    with LiveStore(
        path,
        budget_bytes or settings.budget_bytes,
        children=manifest_units,
        high_ratio=settings.high_ratio,
        low_ratio=settings.low_ratio,
        min_free_bytes=settings.min_free_bytes,
    ) as store:
        yield store


def _kind(name: KindName | None) -> Kind | None:
    from gramary.cluster.records import Kind

    return None if name is None else Kind[name.name]


def _keys(store: Reads, kind: KindName | None, tokenizer: str | None) -> Iterator[Key]:
    fingerprint = bytes.fromhex(tokenizer) if tokenizer is not None else None
    return store.keys(_kind(kind if fingerprint is None else KindName.ENTRY), tokenizer=fingerprint)


@app.command()
def stat(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show how much of what is stored, by kind, format version and tokenizer."""
    with _reported(as_json), _reader(store) as reader:
        groups: dict[tuple[str, int, str], list[int]] = {}
        with _progress("Reading headers", None, as_json) as progress:
            for number, key in enumerate(reader.keys(), 1):
                header = reader.header(key)
                figures = groups.setdefault((key.kind.name.lower(), key.version, key.tokenizer.hex()), [0, 0, 0])
                figures[0] += 1
                if header is not None:
                    figures[1] += header.length
                    figures[2] += header.cost_ns
                if number % 1024 == 0:
                    progress(number)
        rows = [
            {"kind": kind, "version": version, "tokenizer": tokenizer, "values": n, "bytes": size, "cost_s": cost / 1e9}
            for (kind, version, tokenizer), (n, size, cost) in sorted(groups.items())
        ]
        facts = {
            "path": str(reader.path),
            "mode": reader.mode,
            "file_bytes": sum(one.file_bytes for one in reader.environments()),
            "live_bytes": sum(one.live_bytes() for one in reader.environments()),
            "values": sum(figures[0] for figures in groups.values()),
            "payload_bytes": sum(figures[1] for figures in groups.values()),
        }
        if as_json:
            _print_json({**facts, "groups": rows})
            return
        _print_facts(facts)
        table = Table("kind", "version", "tokenizer")
        for name in ("values", "bytes", "build s"):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(
                str(row["kind"]),
                str(row["version"]),
                str(row["tokenizer"])[:16],
                f"{row['values']:,}",
                f"{row['bytes']:,}",
                f"{row['cost_s']:,.3f}",
            )
        Console().print(table)


@app.command("ls")
def list_(
    store: StoreOption = None,
    kind: KindOption = None,
    tokenizer: TokenizerOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List values in the order of their keys."""
    with _reported(as_json), _reader(store) as reader:
        rows = []
        for key in islice(_keys(reader, kind, tokenizer), limit):
            header = reader.header(key)
            rows.append(
                {
                    "kind": key.kind.name.lower(),
                    "version": key.version,
                    "digest": key.digest.hex(),
                    "tokenizer": key.tokenizer.hex(),
                    "slot": key.slot.hex(),
                    "bytes": header.length if header is not None else None,
                    "cost_us": header.cost_ns / 1e3 if header is not None else None,
                    "origin": header.origin if header is not None else None,
                    "vouched": bool(header.mac) if header is not None else None,
                }
            )
        if as_json:
            _print_json({"path": str(reader.path), "values": rows})
            return
        table = Table("kind", "version", "digest", "tokenizer", "slot")
        for name in ("bytes", "build us"):
            table.add_column(name, justify="right")
        table.add_column("origin")
        for row in rows:
            sizes = ("damaged", "") if row["bytes"] is None else (f"{row['bytes']:,}", f"{row['cost_us']:,.1f}")
            names = [str(row["digest"])[:16], str(row["tokenizer"])[:16], str(row["slot"])]
            table.add_row(str(row["kind"]), str(row["version"]), *names, *sizes, escape(str(row["origin"] or "")))
        Console().print(table)


@app.command()
def verify(
    store: StoreOption = None,
    structure: Annotated[bool, typer.Option(help="Check the file's structure.")] = True,
    units: Annotated[bool, typer.Option(help="Derive the digests of units again.")] = True,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build mask entries again and compare.")] = False,
    sample: Annotated[float, typer.Option(min=0, max=1, help="Share of the mask entries to build again.")] = 1.0,
    fix: Annotated[bool, typer.Option("--fix", help="Remove what is wrong; no agent may have the store open.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the file, every checksum, and what values mean. The exit code is 1 where something is wrong."""
    from gramary.cluster.store.verify import verify as check

    with _reported(as_json), _writer(store) if fix else _reader(store) as opened:
        with _progress("Verifying", None, as_json) as progress:
            report = check(
                opened,
                structure=structure,
                units=_unit_check() if units else None,
                rebuild=_rebuilder(opened) if rebuild else None,
                sample=sample,
                remove=fix,
                progress=progress,
            )
        if as_json:
            _print_json(report.as_json())
        else:
            facts = report.as_json()
            _print_facts({name: len(value) if isinstance(value, list) else value for name, value in facts.items()})
            for problem in report.structure:
                Console(stderr=True, soft_wrap=True).print(f"[red]structure[/]: {escape(problem)}", highlight=False)
            for key, reason in report.wrong_units[:20]:
                text = f"[red]unit {key.digest.hex()}[/]: {escape(reason)}"
                Console(stderr=True, soft_wrap=True).print(text, highlight=False)
    if not report.sound:
        raise typer.Exit(EXIT_NOT_SOUND)


def _unit_check() -> Any:
    from gramary.cluster.kernel import verify_units

    return verify_units


def _rebuilder(store: Reads) -> Rebuild:
    from gramary.cluster.store.rebuild import Rebuilder

    return Rebuilder(store)


@app.command()
def gc(
    store: StoreOption = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, metavar="BYTES", help="Evict down to this, not to the configured.")
    ] = None,
    compact: Annotated[bool, typer.Option(help="Give what is free back to the disk.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Evict what is over the budget, and shrink the file.

    No agent may have the store open: one that has does this by itself.
    """
    with _reported(as_json), _writer(store) as opened:
        before = opened.stats()
        target = budget if budget is not None else int(opened.budget_bytes * opened.low_ratio)
        freed = opened.evict(before.live_bytes - target, grace_s=0) if before.live_bytes > target else 0
        shrunk = opened.compact() if compact else 0
        after = opened.stats()
        facts = {
            "evicted_values": after.evicted,
            "evicted_bytes": freed,
            "shrunk_bytes": shrunk,
            "values": after.values,
            "live_bytes": after.live_bytes,
            "file_bytes": after.file_bytes,
        }
        if as_json:
            _print_json(facts)
        else:
            _print_facts(facts)


@app.command("export")
def export_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to write.")],
    store: StoreOption = None,
    kind: KindOption = None,
    tokenizer: TokenizerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write values to one file."""
    from gramary.cluster.store.transfer import export_records

    with _reported(as_json), _reader(store) as reader:
        with _progress("Exporting", None, as_json) as progress:
            count = export_records(reader, file, _keys(reader, kind, tokenizer), progress)
        facts = {"file": str(file), "values": count, "bytes": file.stat().st_size}
        if as_json:
            _print_json(facts)
        else:
            _print_facts(facts)


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help='What export wrote; "-" is standard input.')],
    store: StoreOption = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Take mask entries and manifests that nobody vouches for: you do.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Store what a file holds. No agent may have the store open.

    Units and tokenizers prove what they are. Mask entries and manifests need the MAC of one of the keys that are
    configured (trust.mac_keys), or --trust. The exit code is 1 where something was refused.
    """
    from gramary.cluster.store.transfer import import_records

    with _reported(as_json), _writer(store) as opened:
        check = _stranger_check(trust)
        with _progress("Importing", None, as_json) as progress:
            if file == "-":
                result = import_records(opened, sys.stdin.buffer, "standard input", check=check, progress=progress)
            else:
                with open(file, "rb") as source:
                    result = import_records(opened, source, file, check=check, progress=progress)
        reasons: dict[str, int] = {}
        for _, reason in result.refused:
            reasons[reason] = reasons.get(reason, 0) + 1
        facts: dict[str, Any] = {"values": result.records, "stored": result.stored, "known": result.known}
        if as_json:
            _print_json({**facts, "refused": reasons})
        else:
            _print_facts({**facts, "refused": len(result.refused), **{f"  {name}": n for name, n in reasons.items()}})
    if result.refused:
        raise typer.Exit(EXIT_NOT_SOUND)


def _stranger_check(trust: bool) -> Check:
    from gramary.cluster.config import load
    from gramary.cluster.credentials import Credentials
    from gramary.cluster.store.strangers import stranger_check
    from gramary.cluster.wire.mac import Mac

    if trust:
        return stranger_check(lambda _: True)
    keys = Credentials(load()).mac_keys()
    return stranger_check(Mac(keys).check if keys else None)
