"""Tables of many parts beside the same rows in one part, and after a compaction: writes PARTS.md.

Every part has objects from all over the sky, with their sources: what appends of a growing survey look like, and the worst case for
scans, since every chunk has rows of every part.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from . import catalogue as catalogues
from .catalogue import Sky, TableFiles
from .concurrent_queries import Server, alike, rows_of
from .contenders.base import Setup
from .contenders.meridian import DATABASE, Meridian
from .machine import describe, memory_bytes
from .markdown import markdown_table, milliseconds

BENCH = Path(__file__).resolve().parent.parent
OBJECTS = {"tiny": 2_000, "small": 200_000, "standard": 4_000_000, "large": 20_000_000}
ROUNDS = {"tiny": 3, "small": 200, "standard": 100, "large": 100}
SCANS = {"tiny": 2, "small": 30, "standard": 20, "large": 12}
EPOCHS = 5
# Rounds before those that count.
UNCOUNTED = 3
PARTS = 30
SEED = 13
ONE, MANY, COMPACTED = "one part", f"{PARTS} parts", "compacted"

Query = Callable[[random.Random, Sky], str]

QUERIES: dict[str, Query] = {
    "LV1, an object by its key": lambda rng, sky: f"SELECT * FROM Object WHERE objectId = {rng.choice(sky.objects)[0]}",
    "LV2, its sources": lambda rng, sky: f"SELECT taiMidPoint, psfFlux FROM Source WHERE objectId = {rng.choice(sky.objects)[0]}",
    "a cone of an arcminute": lambda rng, sky: (
        "SELECT objectId, ra_PS, decl_PS FROM Object WHERE qserv_areaspec_circle({1!r}, {2!r}, 0.0167)".format(*rng.choice(sky.objects))
    ),
}
SCAN_QUERIES: dict[str, Query] = {
    "HV1, how many sources": lambda rng, sky: f"SELECT count(*) AS n FROM Source WHERE psfFlux > {rng.uniform(0, 1e-30)!r}",
    "a mean over sources": lambda rng, sky: f"SELECT avg(taiMidPoint) AS t FROM Source WHERE ra < {rng.uniform(sky.ra_min, sky.ra_max)!r}",
    "groups of sources": lambda rng, sky: (
        f"SELECT filterId, count(*) AS n, avg(psfFlux) AS f FROM Source WHERE decl < {rng.uniform(sky.dec_min, sky.dec_max)!r}"
        " GROUP BY filterId ORDER BY filterId"
    ),
    "objects joined with their sources": lambda rng, sky: (
        "SELECT count(*) AS n FROM Object o JOIN Source s ON o.objectId = s.objectId"
        f" WHERE s.ra - o.ra_PS > {rng.uniform(0, 1e-6)!r}"
    ),
}


def split(table: TableFiles, directory: Path) -> list[str]:
    """The files of a table, a file a part: which part a row is in is decided by its object."""
    paths = [directory / table.name / f"{number:02}.parquet" for number in range(PARTS)]
    done = directory / table.name / "complete"
    if done.exists():
        return [str(path) for path in paths]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    rows = pq.read_table(table.files)
    part_of_row = rows[table.key].to_numpy() % PARTS
    for part, path in enumerate(paths):
        pq.write_table(rows.filter(pa.array(part_of_row == part)), path)
    done.touch()
    return [str(path) for path in paths]


def loaded(setup: Setup, tables: Sequence[TableFiles], parts: dict[str, list[str]] | None) -> float | None:
    """Loads the tables whole, or a part after the other; the seconds that it took, `None` if it was loaded before."""
    if setup.home.exists():
        return None
    loader = Meridian(setup)
    begun = time.perf_counter()
    for table in tables:
        if parts is None:
            loader.load(table)
            continue
        first, *others = parts[table.name]
        loader.load(replace(table, files=[first]))
        for file in others:
            command = [str(setup.program), "load", "--data", str(setup.home), "--db", DATABASE, "--table", table.name, "--append", file]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def part_counts(setup: Setup) -> dict[str, int]:
    """How many parts each table has."""
    command = [str(setup.program), "tables", "--parts", "--data", str(setup.home), "--format", "json"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, int] = {}
    for line in listed.stdout.splitlines():
        row = json.loads(line)
        if row["kind"] == "held":
            continue
        found[row["table"]] = found.get(row["table"], 0) + 1
    return found


def measure(
    servers: dict[str, Server], queries: dict[str, Query], rounds: int, rng: random.Random, sky: Sky, base: str = ONE
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """The median seconds of each query by each server, in turns, and where answers differ. The first rounds do not count."""
    found: dict[str, dict[str, float]] = {}
    wrong: list[str] = []
    connections = {name: server.connect() for name, server in servers.items()}
    for title, query in queries.items():
        print(f"{time.strftime('%H:%M:%S')} {title}", file=sys.stderr, flush=True)
        seconds: dict[str, list[float]] = {name: [] for name in servers}
        for turn in range(rounds + UNCOUNTED):
            text, answers = query(rng, sky), {}
            # Whoever goes first finds the processor's caches as the others left them.
            for name in rng.sample(list(connections), len(connections)):
                begun = time.perf_counter()
                answers[name] = sorted(rows_of(connections[name], text))
                seconds[name] += [time.perf_counter() - begun] if turn >= UNCOUNTED else []
            wrong += [f"- **{name} differs from {base}**: `{text}`" for name in servers if not same(answers[base], answers[name])]
        found[title] = {name: statistics.median(times) for name, times in seconds.items()}
    return found, wrong


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether two results are the same, means to nine digits: parts are added up in another order."""
    if len(one) != len(other):
        return False
    numbers = all(isinstance(value, (int, float, type(None))) for row in one for value in row)
    return alike(one, other) if numbers else one == other


def arguments(name: str, page: str, description: str) -> argparse.Namespace:
    """Reads the command line of a benchmark of these sizes, which writes a page."""
    parser = argparse.ArgumentParser(prog=f"bench/{name}", description=description)
    parser.add_argument("--size", choices=OBJECTS, default="small")
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="directory for the catalogue and the databases")
    parser.add_argument("--out", type=Path, default=BENCH, help=f"directory for {page}")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process; default: all")
    parser.add_argument("--without-compaction", action="store_true", help="leave the compacted tables out, where there are any")
    return parser.parse_args()


def report(options: argparse.Namespace, rows: dict[str, int], measured: dict[str, dict[str, float]], notes: list[str], wrong: list[str]) -> str:
    """The whole page."""
    machine = describe(options.work)
    lines = ["# Tables of many parts", "", "Written by `make bench-parts`; see [README.md](README.md).", ""]
    lines += [
        f"Size `{options.size}`, {time.strftime('%Y-%m-%d')}, {machine['processor']}, {machine['memory']}, {options.threads} threads."
        f" Object has {rows['Object']:,} rows, Source {rows['Source']:,}; each of the {PARTS} parts has a {PARTS}th of the objects, from all over the"
        " sky, and their sources. Medians in milliseconds, warm, in turns; each query has constants that none before it had.",
        "",
        *wrong,
        *([""] if wrong else []),
    ]
    others = [MANY] if options.without_compaction else [MANY, COMPACTED]
    cells = [
        [title, milliseconds(found[ONE]), *(f"{milliseconds(found[name])} ({found[name] / found[ONE]:.2f} x)" for name in others)]
        for title, found in measured.items()
    ]
    lines += markdown_table(["query", ONE, *others], cells)
    return "\n".join([*lines, *notes]).rstrip() + "\n"


def run(options: argparse.Namespace) -> int:
    """Measures and writes; the exit status is 1 if answers differ."""
    # What another size left is no catalogue of this one.
    work, program = options.work.resolve() / options.size, options.meridian.resolve()
    options.work = work
    work.mkdir(parents=True, exist_ok=True)
    catalogue = catalogues.prepare(work / "catalogue", program, OBJECTS[options.size], EPOCHS, 1, False)
    tables = [catalogue.tables["Object"], catalogue.tables["Source"]]
    parts = {table.name: split(table, work / "parts") for table in tables}
    directories = {ONE: "one", MANY: "many"} | ({} if options.without_compaction else {COMPACTED: "compacted"})
    setups = {name: Setup(work / directory, catalogue.tables, options.threads, memory_bytes(), program) for name, directory in directories.items()}
    notes = []
    whole = loaded(setups[ONE], tables, None)
    appended = loaded(setups[MANY], tables, parts)
    if whole and appended:
        notes.append(f"Loading both tables whole took {whole:.1f} s, {2 * PARTS} loads of a part each {appended:.1f} s.")
    if COMPACTED in setups and loaded(setups[COMPACTED], tables, parts):
        begun = time.perf_counter()
        subprocess.run([str(program), "compact", "--data", str(setups[COMPACTED].home)], check=True, stdout=subprocess.DEVNULL)
        notes.append(f"The compaction took {time.perf_counter() - begun:.1f} s by one thread.")
    counts = {name: part_counts(setup) for name, setup in setups.items()}
    assert counts[MANY] == {"Object": PARTS, "Source": PARTS}, counts
    servers: dict[str, Server] = {}
    rng = random.Random(SEED)
    sky = catalogues.survey(catalogue, rng)
    try:
        for number, (name, setup) in enumerate(setups.items()):
            servers[name] = Server(setup, str(number))
        measured, wrong = measure(servers, QUERIES, ROUNDS[options.size], rng, sky)
        scans, differ = measure(servers, SCAN_QUERIES, SCANS[options.size], rng, sky)
    finally:
        for server in servers.values():
            server.stop()
    if COMPACTED in counts:
        notes.append(f"Parts after the compaction: {', '.join(f'{table} {number}' for table, number in counts[COMPACTED].items())}.")
    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / "PARTS.md"
    rows = {table.name: table.rows for table in tables}
    page.write_text(report(options, rows, measured | scans, notes, wrong + differ), encoding="utf-8")
    print(f"{page} is written", file=sys.stderr)
    return 1 if wrong or differ else 0


if __name__ == "__main__":
    sys.exit(run(arguments("parts", "PARTS.md", "Measure tables of many parts beside the same rows in one.")))
