"""Many scans at once, look-ups beside them, the papers' mix, small chunks and a long queue: writes CONCURRENT.md.

The scans count and average over all of Source, each with other constants. Meridian and DuckDB run the same statements in turns, and have
to find the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from . import catalogue as catalogues
from .concurrent_mix import MIX_SECONDS, STRIPES, WIDE, flight, flight_section, mix, mix_section, small_chunks
from .contenders.base import Setup
from .contenders.meridian import Meridian, mysql
from .machine import describe, memory_bytes
from .markdown import markdown_table, milliseconds

BENCH = Path(__file__).resolve().parent.parent
OBJECTS = {"tiny": 2_000, "small": 200_000, "standard": 4_000_000}
EPOCHS = 5
ROUNDS = {"tiny": 1, "small": 5, "standard": 3}
QUEUED = {"tiny": 100, "small": 10_000, "standard": 10_000}
SECONDS = {"tiny": 1.0, "small": 10.0, "standard": 20.0}
AT_ONCE = (1, 2, 5, 10, 30, 50)
BESIDE = (0, 10, 50)
# Look-ups that are due in a second, whether or not the ones before have ended.
LOOKUPS_PER_SECOND = 100
LOOKUP_CONNECTIONS = 16
# The columns that the scans read: two doubles, two floats.
COLUMNS = ("psfFlux", "psfFluxErr", "ra", "taiMidPoint")
BYTES_PER_ROW = 24
SEED = 11


def scans(number: int, rng: random.Random, bounds: dict[str, tuple[float, float]]) -> list[str]:
    """Statements over the same columns, each with constants of its own."""

    def within(column: str, low: float, high: float) -> float:
        least, most = bounds[column]
        return least + (most - least) * rng.uniform(low, high)

    return [
        f"SELECT count(*) AS n, avg(taiMidPoint) AS t FROM Source WHERE psfFlux > {within('psfFlux', 0.0, 0.3)!r}"
        f" AND psfFluxErr < {within('psfFluxErr', 0.5, 1.0)!r} AND ra < {within('ra', 0.3, 1.0)!r}"
        for _ in range(number)
    ]


class Server:
    """`meridian serve` on a socket."""

    def __init__(self, setup: Setup, name: str, *options: str) -> None:
        self.socket = Path(f"/tmp/bench_concurrent_{os.getpid()}_{name}.sock")
        command = [str(setup.program), "serve", "--data", str(setup.home), "--threads", str(setup.threads), *options]
        # What is measured is the work, not that it was done before.
        command += ["--mysql", "off", "--http", "off", "--mysql-socket", str(self.socket), "--log", "error", "--result-cache", "off"]
        self.process = subprocess.Popen(command)
        give_up = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                return
            except mysql.OperationalError:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    raise SystemExit("the server did not start") from None
                time.sleep(0.02)

    def connect(self) -> Any:
        """A connection."""
        return mysql.connect(unix_socket=str(self.socket), user="bench", database="bench", charset="utf8mb4")

    def at_once(self, statements: Sequence[str]) -> tuple[float, list[Any]]:
        """The seconds from the first statement to the last result, each by a connection of its own, and the results."""
        connections = [self.connect() for _ in statements]
        with ThreadPoolExecutor(len(statements)) as pool:
            begun = time.perf_counter()
            rows = list(pool.map(rows_of, connections, statements))
            seconds = time.perf_counter() - begun
        for connection in connections:
            connection.close()
        return seconds, rows

    def decoded(self, number: int) -> int:
        """Bytes of columns that the last so many scans have decoded together."""
        connection = self.connect()
        scans = "SELECT DECODED_BYTES FROM information_schema.QUERIES WHERE STATEMENT LIKE 'SELECT count(*) AS n%' ORDER BY ID DESC"
        found = rows_of(connection, f"{scans} LIMIT {number}")
        connection.close()
        assert len(found) == number, f"{len(found)} of {number} scans are listed"
        return sum(int(row[0]) for row in found)

    def resident(self) -> int:
        """Bytes of its resident set."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait()
        self.socket.unlink(missing_ok=True)


def rows_of(connection: Any, statement: str) -> list[list[Any]]:
    """The rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [list(row) for row in cursor.fetchall()]


class DuckDB:
    """The peer, in a process of its own."""

    def __init__(self, work: Path, threads: int, files: Sequence[str]) -> None:
        python = BENCH / ".venv/duckdb/bin/python"
        command = [str(python), "-m", "meridian_bench.concurrent_duckdb", str(work / "source.duckdb"), str(threads), *files]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=BENCH)
        self.version = self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def at_once(self, statements: Sequence[str]) -> tuple[float, list[Any]]:
        """As with Meridian."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(statements) + "\n")
        self.process.stdin.flush()
        seconds, rows = self._read()
        return float(seconds), rows

    def stop(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def alike(one: list[Any], other: list[Any]) -> bool:
    """Whether two results are the same, means to nine digits."""

    def equal(a: Any, b: Any) -> bool:
        return a == b or (a is not None and b is not None and abs(a - b) <= 1e-9 * abs(a))

    return all(equal(a, b) for one_row, other_row in zip(one, other, strict=True) for a, b in zip(one_row, other_row, strict=True))


@dataclass
class Lookups:
    """Latencies in seconds, from when each look-up was due."""

    latencies: list[float]

    def at(self, share: float) -> float:
        """A quantile."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def look_up(server: Server, objects: Sequence[int], seconds: float) -> Lookups:
    """Objects by their keys, due at even distances."""
    count = max(1, int(seconds * LOOKUPS_PER_SECOND))
    connections = [server.connect() for _ in range(LOOKUP_CONNECTIONS)]
    latencies: list[float] = []
    begun = time.perf_counter() + 0.1

    def client(number: int) -> None:
        for at in range(number, count, LOOKUP_CONNECTIONS):
            due = begun + at / LOOKUPS_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
            rows_of(connections[number], f"SELECT * FROM Object WHERE objectId = {objects[at % len(objects)]}")
            latencies.append(time.perf_counter() - due)

    with ThreadPoolExecutor(LOOKUP_CONNECTIONS) as pool:
        list(pool.map(client, range(LOOKUP_CONNECTIONS)))
    for connection in connections:
        connection.close()
    return Lookups(latencies)


@contextlib.contextmanager
def scanning(server: Server, statements: Sequence[str]) -> Iterator[list[int]]:
    """Each statement again and again, by a connection of its own; counts those that have ended."""
    stop, ended = threading.Event(), [0]

    def client(statement: str) -> None:
        connection = server.connect()
        while not stop.is_set():
            rows_of(connection, statement)
            ended[0] += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(statement,)) for statement in statements]
    for thread in threads:
        thread.start()
    try:
        yield ended
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def queue(server: Server, number: int, statement: str) -> dict[str, float]:
    """Submits many queries behind one that does not end; the seconds of submitting and listing, and the memory that they take."""
    connection = server.connect()
    # It takes little memory, and does not end.
    few = "(SELECT objectId FROM Object LIMIT 10000)"
    blocker = rows_of(connection, f"SUBMIT SELECT sum(a.objectId) FROM {few} a, {few} b, {few} c, {few} d")[0][0]
    # What it holds itself is not what the queue takes.
    time.sleep(3)
    before, times, listed, submitted = server.resident(), [], [], []
    for _ in range(number):
        begun = time.perf_counter()
        submitted.append(rows_of(connection, f"SUBMIT {statement}")[0][0])
        times.append(time.perf_counter() - begun)
    for _ in range(10):
        begun = time.perf_counter()
        listing = "SELECT ID, STATE, QUEUE_PLACE FROM information_schema.QUERIES WHERE STATE = 'QUEUED'"
        found = rows_of(connection, listing)
        listed.append(time.perf_counter() - begun)
        assert len(found) == number, f"{len(found)} of {number} queries are queued"
    grown = server.resident() - before
    for query in [*submitted, blocker]:
        rows_of(connection, f"CANCEL {query}")
    connection.close()
    times.sort()
    return {
        "submit p50": statistics.median(times),
        "submit p99": times[int(0.99 * len(times))],
        "list": statistics.median(listed),
        "bytes": float(grown),
    }


def measure_scans(
    contenders: dict[str, Any], rounds: int, rng: random.Random, bounds: dict[str, tuple[float, float]]
) -> tuple[dict[int, dict[str, float]], dict[int, dict[str, float]], list[str]]:
    """The median seconds of each number of scans by each contender, in turns, the bytes that Meridian's decode together, and where
    results differ. The first round does not count."""
    found: dict[int, dict[str, float]] = {}
    decoded: dict[int, dict[str, float]] = {}
    wrong: list[str] = []
    for number in AT_ONCE:
        print(f"{time.strftime('%H:%M:%S')} {number} scans", file=sys.stderr, flush=True)
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        read: dict[str, list[int]] = {name: [] for name, contender in contenders.items() if isinstance(contender, Server)}
        for turn in range(rounds + 1):
            statements = scans(number, rng, bounds)
            results = {}
            for name, contender in contenders.items():
                took, results[name] = contender.at_once(statements)
                seconds[name] += [took] if turn else []
                if isinstance(contender, Server) and turn:
                    read[name].append(contender.decoded(number))
            first, *others = results.items()
            for name, rows in others:
                wrong += [
                    f"- **{name} differs from {first[0]}**: `{text}`"
                    for text, one, other in zip(statements, first[1], rows, strict=True)
                    if not alike(one, other)
                ]
        found[number] = {name: statistics.median(times) for name, times in seconds.items()}
        decoded[number] = {name: statistics.median(values) for name, values in read.items()}
    return found, decoded, wrong


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="bench/concurrent", description="Measure many queries at once.")
    parser.add_argument("--size", choices=OBJECTS, default="small")
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="directory for the catalogue and the databases")
    parser.add_argument("--out", type=Path, default=BENCH, help="directory for CONCURRENT.md")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all")
    parser.add_argument("--stripes", type=int, help="stripes of the table of small chunks: 85 make 8,983 chunks; by default by the size")
    parser.add_argument("--without-peer", action="store_true", help="Meridian alone")
    return parser.parse_args()


def surveyed(files: Sequence[str], columns: Sequence[str] = COLUMNS) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each column that is scanned, for the constants."""
    found: dict[str, tuple[float, float]] = {}
    for column in columns:
        values = np.sort(pq.read_table(files[0], columns=[column]).column(0).drop_null().to_numpy())
        found[column] = (float(values[0]), float(values[int(0.99 * (len(values) - 1))]))
    return found


def measure_small_chunks(
    options: argparse.Namespace, program: Path
) -> tuple[tuple[dict[int, dict[str, float]], dict[str, int], int], list[str]]:
    """Scans of objects over the sky, cut finely and as the loader chooses, each by a server of its own; and where these differ."""
    work: Path = options.work
    objects, density = WIDE[options.size]
    table = catalogues.prepare(work / "wide_catalogue", program, objects, 0, 1, False, density).tables["Object"]
    servers: dict[str, Server] = {}
    chunks: dict[str, int] = {}
    try:
        for name, place, stripes in (("small chunks", "small_chunks", options.stripes or STRIPES[options.size]), ("usual chunks", "usual_chunks", None)):
            setup = Setup(work / place, {"Object": table}, options.threads, memory_bytes(), program)
            chunks[name] = small_chunks(setup, table, stripes)
            servers[name] = Server(setup, place)
        bounds = surveyed(table.files, ("gFlux_PS", "ra_PS"))
        found, wrong = flight(dict(servers), ROUNDS[options.size], bounds, SEED, alike)
    finally:
        for server in servers.values():
            server.stop()
    return (found, chunks, table.rows), wrong


def report(options: argparse.Namespace, rows: int, measured: dict[str, Any], wrong: list[str]) -> str:
    """The whole page."""
    machine = describe(options.work)
    lines = ["# Many queries at once", "", "Written by `make bench-concurrent`; see [README.md](README.md).", ""]
    lines += [
        f"Size `{options.size}`, {time.strftime('%Y-%m-%d')}, {machine['processor']}, {machine['memory']}, {options.threads} threads."
        f" Source has {rows:,} rows. Medians of {ROUNDS[options.size]} rounds after one that does not count, in turns; each scan has"
        " constants that no scan before it had.",
        "",
        *wrong,
        *([""] if wrong else []),
        "## Scans at once",
        "",
        f"`{scans(1, random.Random(SEED), measured['bounds'])[0]}` and its like, from the first statement to the last result, in"
        " milliseconds. *Small cache*: Meridian with room for a tenth of the columns' bytes.",
        "",
    ]
    names = list(next(iter(measured["scans"].values())))
    one = measured["scans"][1]
    cells = [
        [str(number), *(f"{milliseconds(found[name])} ({found[name] / one[name]:.1f} x)" for name in names)]
        for number, found in measured["scans"].items()
    ]
    lines += markdown_table(["scans", *names], cells)
    lines += ["Megabytes of columns that they decode together:", ""]
    names = list(measured["decoded"][1])
    cells = [[str(number), *(f"{found[name] / 1e6:,.0f}" for name in names)] for number, found in measured["decoded"].items()]
    lines += markdown_table(["scans", *names], cells)
    lines += ["## Look-ups beside scans", ""]
    lines += [
        f"`SELECT * FROM Object WHERE objectId = ?`, {LOOKUPS_PER_SECOND} a second whether or not those before have ended, in milliseconds"
        " from when each was due. As many connections as said scan again and again meanwhile.",
        "",
    ]
    cells = [
        [str(beside), *(milliseconds(found.at(share)) for share in (0.5, 0.99, 0.999)), f"{rate:.1f}"]
        for beside, (found, rate) in measured["lookups"].items()
    ]
    lines += markdown_table(["scans beside", "p50", "p99", "p99.9", "scans a second"], cells)
    lines += mix_section(measured["mix"])
    lines += flight_section(*measured["flight"])
    queued = measured["queue"]
    lines += ["## A long queue", "", f"{QUEUED[options.size]:,} queries that are submitted and wait.", ""]
    cells = [[milliseconds(queued[name]) for name in ("submit p50", "submit p99", "list")] + [f"{queued['bytes'] / 1e6:.0f}"]]
    lines += markdown_table(["submitting, p50, ms", "p99, ms", "listing all, ms", "resident memory more, MB"], cells)
    return "\n".join(lines).rstrip() + "\n"


def run(options: argparse.Namespace) -> int:
    """Measures and writes; the exit status is 1 if results differ."""
    # What another size left is no catalogue of this one.
    work, program = options.work.resolve() / options.size, options.meridian.resolve()
    options.work = work
    work.mkdir(parents=True, exist_ok=True)
    catalogue = catalogues.prepare(work / "catalogue", program, OBJECTS[options.size], EPOCHS, 1, False)
    source = catalogue.tables["Source"]
    setup = Setup(work / "meridian", catalogue.tables, options.threads, memory_bytes(), program)
    # Queries that a run before this one left would run now.
    shutil.rmtree(setup.home / "queries", ignore_errors=True)
    if not setup.home.exists():
        loader = Meridian(setup)
        for table in ("Object", "Source"):
            loader.load(catalogue.tables[table])
    rng = random.Random(SEED)
    bounds = surveyed(source.files)
    measured: dict[str, Any] = {"bounds": bounds}
    small_cache = f"{max(1, source.rows * BYTES_PER_ROW // 10 >> 20)}M"
    contenders: dict[str, Any] = {"Meridian": Server(setup, "full", "--queries-at-once", "1")}
    try:
        contenders["Meridian, small cache"] = Server(setup, "small", "--cache", small_cache)
        if not options.without_peer:
            contenders["DuckDB"] = DuckDB(work, options.threads, source.files)
        measured["scans"], measured["decoded"], wrong = measure_scans(contenders, ROUNDS[options.size], rng, bounds)
        server = contenders["Meridian"]
        objects = [object_id for object_id, _, _ in catalogues.survey(catalogue, rng).objects]
        measured["lookups"] = {}
        for beside in BESIDE:
            print(f"{time.strftime('%H:%M:%S')} look-ups beside {beside} scans", file=sys.stderr, flush=True)
            with scanning(server, scans(beside, rng, bounds)) as ended:
                begun = time.perf_counter()
                found = look_up(server, objects, SECONDS[options.size])
                rate = ended[0] / (time.perf_counter() - begun)
            measured["lookups"][beside] = (found, rate)
        print(f"{time.strftime('%H:%M:%S')} the papers' mix", file=sys.stderr, flush=True)
        measured["mix"] = mix(server, rows_of, objects, MIX_SECONDS[options.size], SEED)
        measured["flight"], differ = measure_small_chunks(options, program)
        wrong += differ
        print(f"{time.strftime('%H:%M:%S')} a long queue", file=sys.stderr, flush=True)
        measured["queue"] = queue(server, QUEUED[options.size], scans(1, rng, bounds)[0])
    finally:
        for contender in contenders.values():
            contender.stop()
    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / "CONCURRENT.md"
    page.write_text(report(options, source.rows, measured, wrong), encoding="utf-8")
    print(f"{page} is written", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run(arguments()))
