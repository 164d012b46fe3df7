"""Positions that `stilts tapquery` uploads and matches within an arcsecond, beside `stilts tmatch2` and LSDB on the same files; and loads of
FITS beside Parquet: writes UPLOADS.md."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from . import catalogue as catalogues
from .catalogue import TableFiles
from .contenders.base import Setup
from .contenders.meridian import DATABASE, Meridian
from .contenders.stilts import Stilts, write_fits
from .install import NotInstalled, install
from .machine import describe, memory_bytes
from .markdown import markdown_table
from .match_tables import first_positions
from .worker import Trouble, Worker

BENCH = Path(__file__).resolve().parent.parent
OBJECTS = {"tiny": 2_000, "small": 200_000, "standard": 20_000_000}
POSITIONS = {"tiny": 500, "small": 50_000, "standard": 1_000_000}
ROUNDS = {"tiny": 1, "small": 3, "standard": 3}
SEED = 26
SCATTER_ARCSECONDS = 0.3
RADIUS_ARCSECONDS = 1.0
START_SECONDS = 120

LSDB = "LSDB"


@dataclass(frozen=True)
class Found:
    """What a way of matching came to: its seconds, and the pairs, a number and a key in a row, in order."""

    seconds: float
    pairs: np.ndarray


class Server:
    """`meridian serve` with an HTTP port of its own choice."""

    def __init__(self, setup: Setup) -> None:
        command = [str(setup.program), "serve", "--data", str(setup.home), "--threads", str(setup.threads), "--mysql", "off", "--http", "127.0.0.1:0"]
        log = setup.home.parent / "uploads_server.log"
        with log.open("wb") as words:
            self.process = subprocess.Popen([*command, "--result-cache", "off"], stdout=words, stderr=words)
        give_up = time.monotonic() + START_SECONDS
        while (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace"))) is None:
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"the server did not start: {log.read_text(errors='replace')}")
            time.sleep(0.02)
        self.url = f"{found.group()}/tap"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def make_positions(objects: TableFiles, count: int, directory: Path) -> TableFiles:
    """A list of positions, each about a third of an arcsecond beside an object, as Parquet and as FITS."""
    ra, dec = first_positions(objects, count)
    rng = np.random.default_rng(SEED)
    east, north = rng.normal(0.0, SCATTER_ARCSECONDS / 3600.0, (2, len(ra)))
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "positions.parquet"
    columns = {"number": np.arange(len(ra)), "ra": ra + east / np.cos(np.radians(dec)), "decl": dec + north}
    pq.write_table(pa.table(columns), file)
    made = replace(objects, name="Positions", files=[str(file)], columns=list(columns), key="number", ra="ra", dec="decl", rows=len(ra))
    write_fits(made, str(directory / "positions.fits"))
    return made


def query(objects: TableFiles) -> str:
    """Each position with all objects around it."""
    distance = f"DISTANCE(u.ra, u.decl, o.{objects.ra}, o.{objects.dec})"
    return (
        f"SELECT u.number, o.{objects.key} FROM TAP_UPLOAD.t1 AS u JOIN {DATABASE}.{objects.name} AS o ON {distance} < {RADIUS_ARCSECONDS / 3600!r}"
    )


def by_tapquery(server: Server, objects: TableFiles, lists: Path) -> Found:
    """As TOPCAT's users upload: STILTS sends a VOTable."""
    command = ["stilts", "tapquery", f"tapurl={server.url}", "sync=true", "nupload=1", f"upload1={lists}/positions.fits", "ufmt1=fits", "upname1=t1"]
    return timed(lambda: run([*command, f"adql={query(objects)}", "out=-", "ofmt=csv"]))


def by_parquet(server: Server, objects: TableFiles, lists: Path) -> Found:
    """The same request without STILTS: the list as Parquet in a form."""

    def post() -> bytes:
        mark = uuid.uuid4().hex
        fields = {"LANG": "ADQL", "FORMAT": "csv", "UPLOAD": "t1,param:rows", "QUERY": query(objects)}
        parts = [f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()]
        head = f'--{mark}\r\nContent-Disposition: form-data; name="rows"; filename="rows.parquet"\r\nContent-Type: application/octet-stream\r\n\r\n'
        body = b"".join([*parts, head.encode(), (lists / "positions.parquet").read_bytes(), f"\r\n--{mark}--\r\n".encode()])
        request = urllib.request.Request(f"{server.url}/sync", data=body, headers={"Content-Type": f"multipart/form-data; boundary={mark}"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            rows: bytes = answer.read()
        return rows

    return timed(post)


def by_tmatch2(objects: TableFiles, lists: Path) -> Found:
    """STILTS alone, on files."""
    command = ["stilts", "tmatch2", "matcher=sky", f"params={RADIUS_ARCSECONDS!r}", "find=all", "join=1and2", "progress=none"]
    command += [f"in1={lists}/positions.fits", "ifmt1=fits", "values1=ra decl"]
    command += [f"in2={lists}/{objects.name}.fits", "ifmt2=fits", f"values2={objects.ra} {objects.dec}"]
    return timed(lambda: run([*command, f"ocmd=keepcols 'number {objects.key}'", "out=-", "ofmt=csv"]))


def by_lsdb(worker: Worker, lists: Path) -> Found:
    """LSDB in a process that runs already, on a HATS catalogue of the objects."""
    query = {"method": "match_list", "file": f"{lists}/positions.parquet", "radius": RADIUS_ARCSECONDS / 3600}
    reply = worker.execute([json.dumps(query)])[0]
    if reply.answer is None:
        raise SystemExit(f"LSDB failed: {reply.complaint}")
    return Found(reply.seconds, in_order(reply.answer))


def run(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} {command[1]} failed: {done.stderr.decode(errors='replace')}")
    return done.stdout


def timed(execute: Callable[[], bytes]) -> Found:
    """Has pairs given as CSV, a header first. Reading it is not timed."""
    begun = time.perf_counter()
    answer = execute()
    seconds = time.perf_counter() - begun
    return Found(seconds, in_order(pyarrow.csv.read_csv(pa.BufferReader(answer))))


def in_order(rows: pa.Table) -> np.ndarray:
    """Pairs of which each is there as often as in the rows, so that two answers are the same if these are equal."""
    number, key = (column.to_numpy().astype(np.int64) for column in rows.columns)
    order = np.lexsort((key, number))
    return np.stack([number[order], key[order]], axis=1)


def differing(first: np.ndarray, second: np.ndarray) -> int:
    """How many pairs one of two answers has, or has more often."""
    if np.array_equal(first, second):
        return 0
    one, other = (Counter(map(tuple, pairs.tolist())) for pairs in (first, second))
    return (one - other).total() + (other - one).total()


def measure_matches(ways: dict[str, Callable[[], Found]], rounds: int) -> tuple[dict[str, float], int, list[str]]:
    """Median seconds of each way, in turns; how many pairs there are; and where the ways differ. The first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    wrong: dict[str, str] = {}
    count = 0
    for turn in range(rounds + 1):
        found: dict[str, np.ndarray] = {}
        for name, way in ways.items():
            print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
            answer = way()
            found[name] = answer.pairs
            seconds[name] += [answer.seconds] if turn > 0 else []
        first, *others = found
        count = len(found[first])
        for name in others:
            if pairs := differing(found[first], found[name]):
                wrong[name] = f"- **{name} has other pairs than {first}**: {pairs:,}"
    return {name: statistics.median(times) for name, times in seconds.items()}, count, list(wrong.values())


def start_lsdb(options: argparse.Namespace, objects: TableFiles) -> tuple[Worker | None, str]:
    """LSDB with the objects as a HATS catalogue, and a sentence about it; without LSDB the sentence says why."""
    worker = None
    setup = Setup(options.work / "lsdb", {objects.name: objects}, options.threads, memory_bytes(), options.meridian.resolve())
    try:
        python = options.lsdb or install("lsdb")
        print(f"{time.strftime('%H:%M:%S')} importing the objects into HATS", file=sys.stderr, flush=True)
        worker = Worker("lsdb", setup, python)
        shutil.rmtree(setup.home, ignore_errors=True)
        load = worker.load(objects)[0]
        worker.call("start")
    except (NotInstalled, Trouble, OSError) as error:
        if worker is not None:
            worker.close()
        return None, f"LSDB is left out: {error}."
    return worker, f"LSDB {worker.version}, in a process that runs already, on a HATS catalogue whose import took {load:.1f} s."


def measure_loads(setup: Setup, objects: TableFiles, files: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Median seconds of loading the same rows from each format, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in files}
    for _ in range(rounds):
        for name, paths in files.items():
            print(f"{time.strftime('%H:%M:%S')} loading {name}", file=sys.stderr, flush=True)
            home = setup.home.parent / "loaded"
            shutil.rmtree(home, ignore_errors=True)
            loader = Meridian(Setup(home, setup.tables, setup.threads, setup.memory, setup.program))
            begun = time.perf_counter()
            loader.load(replace(objects, files=paths))
            seconds[name].append(time.perf_counter() - begun)
            shutil.rmtree(home)
    return {name: statistics.median(times) for name, times in seconds.items()}


def report(options: argparse.Namespace, objects: int, positions: int, matches: tuple[dict[str, float], int, list[str]], loads: dict[str, float], peers: str) -> str:
    """The whole page."""
    machine = describe(options.work)
    seconds, pairs, wrong = matches
    lines = ["# Uploaded positions, and loads of FITS", "", "Written by `make bench-uploads`; see [README.md](README.md).", ""]
    lines += [
        f"Size `{options.size}`, {time.strftime('%Y-%m-%d')}, {machine['processor']}, {machine['memory']}, {options.threads} threads. {positions:,} positions"
        f" are matched with {objects:,} objects within {RADIUS_ARCSECONDS:g} arcsecond: {pairs:,} pairs. Medians, in turns. {peers}",
        "",
        *wrong,
        *([""] if wrong else []),
    ]
    lines += markdown_table(["match", "seconds"], [[name, f"{time:.2f}"] for name, time in seconds.items()])
    parquet = loads["Parquet"]
    cells = [[name, f"{time:.2f}", f"{objects / time:,.0f}", f"{parquet / time:.2f} x"] for name, time in loads.items()]
    lines += markdown_table(["load of the objects", "seconds", "rows a second", "speed beside Parquet"], cells)
    return "\n".join(lines).rstrip() + "\n"


def main(options: argparse.Namespace) -> int:
    """Measures and writes; the exit status is 1 if answers differ."""
    work, program = options.work.resolve() / options.size, options.meridian.resolve()
    options.work = work
    work.mkdir(parents=True, exist_ok=True)
    catalogue = catalogues.prepare(work / "catalogue", program, OBJECTS[options.size], 0, 1, True)
    objects = catalogue.tables["Object"]
    setup = Setup(work / "data", catalogue.tables, options.threads, memory_bytes(), program)
    positions = make_positions(objects, POSITIONS[options.size], work / "lists")
    fits = work / "lists" / f"{objects.name}.fits"
    write_fits(objects, str(fits))
    rounds = ROUNDS[options.size]
    loads = measure_loads(setup, objects, {"Parquet": list(objects.files), "FITS": [str(fits)]}, rounds)
    shutil.rmtree(setup.home, ignore_errors=True)
    Meridian(setup).load(objects)
    lsdb, told = start_lsdb(options, objects)
    server = Server(setup)
    lists = work / "lists"
    ways: dict[str, Callable[[], Found]] = {
        "`stilts tmatch2`": lambda: by_tmatch2(objects, lists),
        "`stilts tapquery nupload=1`": lambda: by_tapquery(server, objects, lists),
        "Parquet in a form": lambda: by_parquet(server, objects, lists),
    }
    if lsdb is not None:
        ways[LSDB] = lambda: by_lsdb(lsdb, lists)
    try:
        matches = measure_matches(ways, rounds)
    finally:
        server.stop()
        if lsdb is not None:
            lsdb.close()
    peers = f"STILTS {Stilts(setup).version()}, with its start. {told}"
    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / "UPLOADS.md"
    page.write_text(report(options, objects.rows, positions.rows, matches, loads, peers), encoding="utf-8")
    print(f"{page} is written", file=sys.stderr)
    return 1 if matches[2] else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/uploads", description="Measure matches of uploaded positions, and loads of FITS beside Parquet.")
    parser.add_argument("--size", choices=OBJECTS, default="small")
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="directory for the catalogue and the databases")
    parser.add_argument("--out", type=Path, default=BENCH, help="directory for UPLOADS.md")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process; default: all")
    parser.add_argument("--lsdb", metavar="PYTHON", help="an interpreter that has LSDB; default: LSDB is installed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(arguments()))
