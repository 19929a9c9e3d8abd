"""What a node's store costs: reading one value, streaming shards, putting, from one process and from several.

    python tests/benchmarks/store.py [--json] [--directory DIR] [--seconds S]

Every figure is taken through the public API: `get` includes encoding the key, finding the value, the check that its
checksum was verified, and a read-only view; the first and last byte of the view are read. "kept": the blob before is
still held, as when a shard is taken over; "dropped": every look-up begins and ends a transaction of its own. For
comparison: the same bytes out of a file, and unpickled. `quiet`: the median of the best thousand calls in a row, for
machines on which other things run; CPU times are given for the same reason. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import platform
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import LiveStore, open_reader, seal

SIZES = {"10 KB": 10_000, "64 KB": 65_000, "1 MB": 1 << 20}
TOKENIZER = bytes(32)
TOTAL_BYTES = 128 << 20


def key_of(number: int) -> Key:
    """16 entries a unit."""
    return Key(Kind.ENTRY, (number // 16).to_bytes(32, "big"), TOKENIZER, number.to_bytes(4, "big"))


def records_of(size: int) -> list[Record]:
    count = max(TOTAL_BYTES // size // 4, 64)
    dice = random.Random(size)
    return [Record(key_of(number), dice.randbytes(size), 1000, bytes(32), "node") for number in range(count)]


def percentiles(samples: list[int]) -> dict[str, float]:
    cuts = statistics.quantiles(samples, n=100)
    return {"p50_us": round(cuts[49] / 1e3, 2), "p99_us": round(cuts[98] / 1e3, 2)}


def timed(look_up: Callable[[Key], object], keys: list[Key], seconds: float) -> dict[str, float]:
    """Percentiles of single calls, the clock's own cost taken off."""
    now = time.perf_counter_ns
    empty = min(-(now() - now()) for _ in range(1000))
    samples: list[int] = []
    quiet = float("inf")
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        block: list[int] = []
        for key in keys[:1000]:
            start = now()
            held = look_up(key)
            block.append(now() - start - empty)
            del held
        quiet = min(quiet, statistics.median(block))
        samples.extend(block)
    return {**percentiles(samples), "quiet_p50_us": round(quiet / 1e3, 2)}


def kept(look_up: Callable[[Key], object]) -> Callable[[Key], object]:
    """The same, with the last result held until the next is there."""
    last: list[object] = [None]

    def keep(key: Key) -> None:
        last[0] = look_up(key)

    return keep


def measure_gets(path: Path, records: list[Record], seconds: float) -> dict[str, Any]:
    reader = open_reader(path)
    keys = [record.key for record in records]
    keys = (keys * (1 + 1000 // len(keys)))[:1000]
    random.Random(1).shuffle(keys)
    for key in keys:  # checksums are verified once
        reader.get(key)

    def view(key: Key) -> object:
        blob = reader.get(key)
        if blob is None:
            raise RuntimeError("a value is missing")
        seen = blob.view
        seen[0], seen[-1]
        return seen

    def shards(number: int) -> int:
        return sum(1 for blob in reader.shard(TOKENIZER, (number % (len(records) // 16)).to_bytes(32, "big")))

    def copy(key: Key) -> object:
        return bytes(reader.get(key) or b"")

    pickles = {record.key: pickle.dumps(record.payload) for record in records[:200]}
    folder = path.with_name("files")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for record in records[:200]:
        (folder / record.key.encode().hex()).write_bytes(record.payload)
    figures: dict[str, Any] = {
        "get_kept": timed(kept(view), keys, seconds),
        "get_dropped": timed(view, keys, seconds),
        "get_copy": timed(copy, keys, seconds / 2),
        "miss": timed(lambda key: reader.get(Key(Kind.UNIT, key.digest)), keys, seconds / 2),
        "file": timed(lambda key: (folder / key.encode().hex()).read_bytes(), list(pickles), seconds / 2),
        "unpickle": timed(lambda key: pickle.loads(pickles[key]), list(pickles), seconds / 2),
    }
    start, cpu, entries, number = time.perf_counter(), time.process_time(), 0, 0
    while time.perf_counter() - start < seconds / 2:
        entries += shards(number)
        number += 1
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    figures["shard_scan"] = {
        "shards_per_s": round(number / elapsed),
        "entries_per_s": round(entries / elapsed),
        "cpu_us_per_entry": round(cpu / entries * 1e6, 1),
    }
    sealed = open_reader(path, mode="sealed")
    for key in keys:
        sealed.get(key)
    figures["sealed_get"] = timed(kept(lambda key: sealed.get(key).view), keys, seconds / 2)  # type: ignore[union-attr]
    reader.close()
    sealed.close()
    return figures


def measure_puts(path: Path, records: list[Record]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, batch in (("one", 1), ("batch_64", 64)):
        shutil.rmtree(path, ignore_errors=True)
        with LiveStore(path, 8 << 30) as store:
            start, cpu = time.perf_counter(), time.process_time()
            for first in range(0, len(records), batch):
                store.put(records[first : first + batch])
            elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
            size = sum(len(record.payload) for record in records)
            figures[name] = {
                "per_s": round(len(records) / elapsed),
                "mb_per_s": round(size / elapsed / 1e6),
                "us_each": round(elapsed / len(records) * 1e6, 1),
                "cpu_us_each": round(cpu / len(records) * 1e6, 1),
            }
            start = time.perf_counter()
            store.sync()
            figures[name]["final_sync_ms"] = round((time.perf_counter() - start) * 1e3, 1)
            if batch > 1:
                start = time.perf_counter()
                seal(store)
                figures["seal_ms"] = round((time.perf_counter() - start) * 1e3, 1)
                start = time.perf_counter()
                store.compact()
                figures["compact_ms"] = round((time.perf_counter() - start) * 1e3, 1)
    return figures


def read_for(path: str, count: int, seconds: float, seed: int, results: Any) -> None:
    reader = open_reader(path)
    keys = [key_of(number) for number in range(count)]
    random.Random(seed).shuffle(keys)
    gets = 0
    for key in keys:
        reader.get(key)
    start = time.monotonic()
    ends = start + seconds
    while time.monotonic() < ends:
        for key in keys[:500]:
            blob = reader.get(key)
            if blob is None:
                raise RuntimeError("a value is missing")
            view = blob.view
            view[0], view[-1]
        gets += min(500, count)
    results.put(gets / (time.monotonic() - start))


def measure_processes(path: Path, count: int, seconds: float) -> dict[str, int]:
    context = multiprocessing.get_context("spawn")
    figures = {}
    for number in (1, 2, 4):
        results = context.Queue()
        processes = [
            context.Process(target=read_for, args=(str(path), count, seconds, seed, results)) for seed in range(number)
        ]
        for process in processes:
            process.start()
        figures[str(number)] = round(sum(results.get() for _ in processes))
        for process in processes:
            process.join()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    parser.add_argument("--directory", type=Path, help="where to put the store (default: a temporary directory)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    arguments = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="gramary-bench-", dir=arguments.directory))
    found: dict[str, Any] = {"cpus": os.cpu_count(), "python": platform.python_version(), "sizes": {}}
    try:
        for name, size in SIZES.items():
            records = records_of(size)
            path = place / "store"
            puts = measure_puts(path, records)
            gets = measure_gets(path, records, arguments.seconds)
            found["sizes"][name] = {"values": len(records), "put": puts, **gets}
            if name == "64 KB":
                found["gets_per_s_by_processes"] = measure_processes(path, len(records), arguments.seconds)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    found["load"] = [round(one, 1) for one in os.getloadavg()]
    if not arguments.json:
        show(found)
    print(json.dumps(found))


def show(found: dict[str, Any]) -> None:
    table = Table("p50 / p99 (quiet p50), us", *found["sizes"])
    for figure in ("get_kept", "get_dropped", "sealed_get", "get_copy", "miss", "file", "unpickle"):
        cells = [sizes[figure] for sizes in found["sizes"].values()]
        table.add_row(
            figure.replace("_", " "),
            *(f"{cell['p50_us']:,} / {cell['p99_us']:,} ({cell['quiet_p50_us']})" for cell in cells),
        )
    for figure in ("one", "batch_64"):
        cells = [sizes["put"][figure] for sizes in found["sizes"].values()]
        table.add_row(f"put {figure}", *(f"{cell['per_s']:,}/s, {cell['cpu_us_each']:,} us CPU" for cell in cells))
    scans = [sizes["shard_scan"] for sizes in found["sizes"].values()]
    table.add_row("shard scan", *(f"{cell['entries_per_s']:,}/s, {cell['cpu_us_per_entry']} us CPU" for cell in scans))
    Console().print(table)
    Console().print("gets/s of 64 KB by processes:", found["gets_per_s_by_processes"])


if __name__ == "__main__":
    main()
