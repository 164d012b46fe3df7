"""Loads of the objects in a field of view, from tables cut coarsely and finely, of few columns and of many, at three densities, beside DuckDB; and
matches of new sources with them. After experiments of LSST's DMTN-048. Writes FIELDS.md."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .machine import describe
from .markdown import markdown_table
from .served import served

BENCH = Path(__file__).resolve().parent.parent
# Objects in a square degree. The densest standard field of view has three million.
DENSITIES = {"tiny": (20, 50, 100), "small": (3_000, 10_000, 31_000), "standard": (30_000, 100_000, 312_000)}
SOURCES = {"tiny": 50, "small": 1_000, "standard": 10_000}
ROUNDS = {"tiny": 1, "small": 5, "standard": 3}
# Degrees: a camera's field of view, and the square in which there are objects, at whose middle it looks, or a little beside.
FIELD_RADIUS, SQUARE, BESIDE = 1.75, 5.0, 0.5
CENTRE = (150.0, -30.0)
CUTS = {"coarse": ("--stripes", 60, "--sub-stripes", 12), "fine": ("--stripes", 360, "--sub-stripes", 2)}
STRIPES = 4
MEASUREMENTS = {"few": 2, "many": 60}
MATCH_ARCSECONDS, SCATTER_ARCSECONDS = 3.0, 0.3
ROWS_AT_A_TIME = 1_000_000
SEED = 48
DATABASE = "field"
NAMES = {"few": "a row of 5 columns", "many": "a row of 63 columns"}

Place = tuple[float, float]


@dataclass(frozen=True)
class Objects:
    """A table of objects, and where the systems have it."""

    density: int
    width: str
    rows: int
    directory: Path

    @property
    def files(self) -> Path:
        return self.directory / "files"

    def data(self, cut: str) -> Path:
        return self.directory / cut

    @property
    def duckdb(self) -> Path:
        return self.directory / "objects.duckdb"


def write_objects(directory: Path, density: int, width: str) -> Objects:
    """Objects of equal density in the square."""
    rng = np.random.default_rng(SEED)
    low, high = (math.sin(math.radians(CENTRE[1] + side * SQUARE / 2)) for side in (-1, 1))
    wide = SQUARE / math.cos(math.radians(CENTRE[1]))
    rows = int(density * math.degrees(high - low) * wide)
    objects = Objects(density, width, rows, directory)
    objects.files.mkdir(parents=True)
    for number, first in enumerate(range(0, rows, ROWS_AT_A_TIME)):
        count = min(ROWS_AT_A_TIME, rows - first)
        columns = {
            "objectId": np.arange(first, first + count, dtype=np.int64) * 7 + 1,
            "ra": CENTRE[0] + rng.uniform(-wide / 2, wide / 2, count),
            "dec": np.degrees(np.arcsin(rng.uniform(low, high, count))),
        }
        columns |= {f"m{at:02}": rng.normal(20, 2, count).astype(np.float32) for at in range(MEASUREMENTS[width])}
        pq.write_table(pa.table(columns), objects.files / f"part-{number:03}.parquet")
    return objects


def load(program: Path, objects: Objects, threads: int) -> None:
    """Loads the table into each system."""
    for cut, options in CUTS.items():
        command = [program, "load", "--data", objects.data(cut), "--db", DATABASE, "--table", "Object", "--kind", "director", "--key", "objectId"]
        command += ["--ra", "ra", "--dec", "dec", *options, "--quiet", *sorted(objects.files.iterdir())]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    with duckdb.connect(str(objects.duckdb), config={"threads": threads}) as connection:
        # Sorted, so that it skips row groups by their least and greatest declinations.
        connection.execute(f"CREATE TABLE Object AS SELECT * FROM '{objects.files}/*.parquet' ORDER BY dec")


def ask(address: str, condition: str, columns: str = "*") -> pa.Table:
    """Rows of the table, as Arrow."""
    body = json.dumps({"statement": f"SELECT {columns} FROM Object WHERE {condition}", "database": DATABASE}).encode()
    with urllib.request.urlopen(f"{address}/sql?format=arrow", body, timeout=600) as answer:
        return pa.ipc.open_stream(answer.read()).read_all()


def circle(place: Place) -> str:
    return f"scisql_s2PtInCircle(ra, `dec`, {place[0]!r}, {place[1]!r}, {FIELD_RADIUS}) = 1"


def at_once(address: str, place: Place, columns: str = "*") -> pa.Table:
    return ask(address, circle(place), columns)


def by_stripes(address: str, place: Place) -> pa.Table:
    """The field in stripes of declination, all asked for at the same time."""
    edges = [place[1] - FIELD_RADIUS + at * 2 * FIELD_RADIUS / STRIPES for at in range(STRIPES + 1)]
    # What lies on an edge is in the stripe above it.
    edges[0], edges[-1] = edges[0] - 1e-6, edges[-1] + 1e-6

    def stripe(at: int) -> pa.Table:
        return ask(address, f"{circle(place)} AND `dec` >= {edges[at]!r} AND `dec` < {edges[at + 1]!r}")

    with ThreadPoolExecutor(STRIPES) as threads:
        return pa.concat_tables(list(threads.map(stripe, range(STRIPES))))


def near(ra: str, dec: str, radius: float, of: tuple[str, str] = ("ra", "dec")) -> str:
    """DuckDB's condition that a position is within a radius of another: a box, and the haversine of the distance within it."""
    wide = f"degrees(asin({math.sin(math.radians(radius))!r} / cos(radians({dec}))))"
    other_ra, other_dec = of
    haversine = (
        f"pow(sin(radians({other_dec} - {dec}) / 2), 2) + cos(radians({other_dec})) * cos(radians({dec})) * pow(sin(radians({other_ra} - {ra}) / 2), 2)"
    )
    return (
        f"{other_dec} BETWEEN {dec} - {radius!r} AND {dec} + {radius!r} AND {other_ra} BETWEEN {ra} - {wide} AND {ra} + {wide}"
        f" AND {haversine} <= {math.sin(math.radians(radius) / 2) ** 2!r}"
    )


def field_of_duckdb(place: Place, columns: str = "*") -> str:
    return f"SELECT {columns} FROM Object WHERE {near(repr(place[0]), repr(place[1]), FIELD_RADIUS)}"


def by_duckdb(connection: duckdb.DuckDBPyConnection, place: Place, columns: str = "*") -> pa.Table:
    return connection.sql(field_of_duckdb(place, columns)).to_arrow_table()


def matched_by_duckdb(connection: duckdb.DuckDBPyConnection, objects: str, sources: pa.Table) -> np.ndarray:
    """Pairs of sources with the objects around them, by zones of declination as high as the radius: of a box alone it makes pairs of half the objects."""
    connection.register("sources", sources)
    zone = f"CAST(floor(dec / {MATCH_ARCSECONDS / 3600!r}) AS BIGINT)"
    condition = near("s.ra", "s.dec", MATCH_ARCSECONDS / 3600, ("o.ra", "o.dec"))
    pairs = connection.sql(
        f"SELECT s.number, o.objectId FROM (SELECT *, unnest([{zone} - 1, {zone}, {zone} + 1]) AS zone FROM sources) s"
        f" JOIN (SELECT *, {zone} AS zone FROM ({objects})) o ON s.zone = o.zone AND {condition}"
    ).to_arrow_table()
    connection.unregister("sources")
    return in_order(*(column.to_numpy() for column in pairs.columns))


def matched_in_memory(connection: duckdb.DuckDBPyConnection, objects: pa.Table, sources: pa.Table) -> np.ndarray:
    connection.register("objects_of_field", objects)
    pairs = matched_by_duckdb(connection, "SELECT * FROM objects_of_field", sources)
    connection.unregister("objects_of_field")
    return pairs


def in_order(numbers: np.ndarray, keys: np.ndarray) -> np.ndarray:
    order = np.lexsort((keys, numbers))
    return np.stack([numbers[order], keys[order]], axis=1)


def by_upload(address: str, sources: pa.Table) -> np.ndarray:
    """The same pairs, found by the server for sources that come as a Parquet file in a form."""
    written = pa.BufferOutputStream()
    pq.write_table(sources, written)
    distance = f"DISTANCE(s.ra, s.dec, o.ra, o.dec) < {MATCH_ARCSECONDS / 3600!r}"
    query = f"SELECT s.number, o.objectId FROM TAP_UPLOAD.sources AS s JOIN {DATABASE}.Object AS o ON {distance}"
    mark = uuid.uuid4().hex
    fields = {"LANG": "ADQL", "FORMAT": "csv", "UPLOAD": "sources,param:rows", "QUERY": query}
    parts = [f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()]
    parts += [f'--{mark}\r\nContent-Disposition: form-data; name="rows"; filename="rows.parquet"\r\n\r\n'.encode(), written.getvalue().to_pybytes()]
    body = b"".join([*parts, f"\r\n--{mark}--\r\n".encode()])
    request = urllib.request.Request(f"{address}/tap/sync", data=body, headers={"Content-Type": f"multipart/form-data; boundary={mark}"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        rows = pyarrow.csv.read_csv(pa.BufferReader(answer.read()))
    return in_order(*(column.to_numpy().astype(np.int64) for column in rows.columns))


def new_sources(objects: pa.Table, count: int) -> pa.Table:
    """Sources of which each is near an object."""
    rng = np.random.default_rng(SEED + 1)
    chosen = objects.take(rng.choice(objects.num_rows, min(count, objects.num_rows), replace=False))
    ra, dec = (chosen[name].to_numpy() for name in ("ra", "dec"))
    east, north = rng.normal(0, SCATTER_ARCSECONDS / 3600, (2, len(ra)))
    return pa.table({"number": np.arange(len(ra)), "ra": ra + east / np.cos(np.radians(dec)), "dec": dec + north})


def places(rounds: int) -> Iterator[Place]:
    """Where the camera looks."""
    rng = np.random.default_rng(SEED + 2)
    for _ in range(rounds):
        east, north = rng.uniform(-BESIDE, BESIDE, 2)
        yield CENTRE[0] + float(east), CENTRE[1] + float(north)


def timed(way: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    begun = time.perf_counter()
    rows = way()
    return time.perf_counter() - begun, rows


def measure_loads(objects: Objects, program: Path, threads: int, rounds: int) -> tuple[dict[str, float], int]:
    """Median seconds of each way, in turns, and the objects of a field. The first round does not count."""
    seconds: dict[str, list[float]] = {}
    counts: list[int] = []
    options = ("--threads", str(threads), "--result-cache", "off")
    with (
        served(program, objects.data("coarse"), *options) as coarse,
        served(program, objects.data("fine"), *options) as fine,
        duckdb.connect(str(objects.duckdb), read_only=True, config={"threads": threads}) as connection,
    ):
        ways: dict[str, Callable[[Place], pa.Table]] = {}
        for cut, server in (("coarse", coarse), ("fine", fine)):
            ways[f"{cut} chunks"] = lambda place, address=server.address: at_once(address, place)  # type: ignore[misc]
            ways[f"{cut} chunks, {STRIPES} stripes"] = lambda place, address=server.address: by_stripes(address, place)  # type: ignore[misc]
        ways["DuckDB"] = lambda place: by_duckdb(connection, place)
        for turn, place in enumerate(places(rounds + 1)):
            keys: dict[str, np.ndarray] = {}
            for name, way in ways.items():
                taken, rows = timed(lambda way=way, place=place: way(place))  # type: ignore[misc]
                keys[name] = np.sort(rows["objectId"].to_numpy())
                if turn > 0:
                    seconds.setdefault(name, []).append(taken)
            first = keys["DuckDB"]
            counts.append(len(first))
            if wrong := [name for name, found in keys.items() if not np.array_equal(found, first)]:
                raise SystemExit(f"of {objects.rows:,} objects {', '.join(wrong)} found others than DuckDB")
    return {name: statistics.median(times) for name, times in seconds.items()}, round(statistics.mean(counts))


def measure_matches(objects: Objects, program: Path, threads: int, rounds: int, count: int) -> tuple[dict[str, float], int]:
    """Median seconds of matching new sources with the objects of a field, in turns, and the pairs."""
    seconds: dict[str, list[float]] = {}
    pairs = 0
    with (
        served(program, objects.data("fine"), "--threads", str(threads), "--result-cache", "off") as server,
        duckdb.connect(str(objects.duckdb), read_only=True, config={"threads": threads}) as connection,
    ):
        columns = "objectId, ra, dec"
        for turn, place in enumerate(places(rounds + 1)):
            sources = new_sources(by_duckdb(connection, place, columns), count)
            ways: dict[str, Callable[[], np.ndarray]] = {
                "sources sent to Meridian": lambda sources=sources: by_upload(server.address, sources),  # type: ignore[misc]
                "objects read from Meridian, matched in memory by DuckDB": lambda place=place, sources=sources: matched_in_memory(  # type: ignore[misc]
                    connection, at_once(server.address, place, "objectId, ra, `dec`"), sources
                ),
                "DuckDB": lambda place=place, sources=sources: matched_by_duckdb(connection, field_of_duckdb(place, columns), sources),  # type: ignore[misc]
            }
            found: dict[str, np.ndarray] = {}
            for name, way in ways.items():
                begun = time.perf_counter()
                found[name] = way()
                if turn > 0:
                    seconds.setdefault(name, []).append(time.perf_counter() - begun)
            # An object outside the field may be near a source at its edge: the server has that, too.
            known = by_duckdb(connection, place, "objectId")["objectId"].to_numpy()
            answers = [answer[np.isin(answer[:, 1], known)] for answer in found.values()]
            if any(not np.array_equal(answer, answers[0]) for answer in answers):
                raise SystemExit("the ways of matching found different pairs")
            pairs = len(answers[0])
    return {name: statistics.median(times) for name, times in seconds.items()}, pairs


def report(options: argparse.Namespace, loads: list[tuple[Objects, int, dict[str, float]]], matches: tuple[dict[str, float], int], matched: int) -> str:
    """The whole page."""
    machine = describe(options.work)
    lines = ["# The objects in a field of view", "", "Written by `make bench-fields`; see [README.md](README.md).", ""]
    lines += [
        f"Size `{options.size}`, {time.strftime('%Y-%m-%d')}, {machine['processor']}, {machine['memory']}, {options.threads} threads. Fields of {FIELD_RADIUS:g} degrees around places"
        " that differ, as Arrow in the client's memory; files are warm. Medians in seconds, in turns.",
        "",
    ]
    ways = list(loads[0][2])
    for width, name in NAMES.items():
        rows = [[f"{count:,}", *(f"{seconds[way]:.3f}" for way in ways)] for objects, count, seconds in loads if objects.width == width]
        lines += [f"With {name}:", "", *markdown_table(["objects of a field", *ways], rows)]
    seconds, pairs = matches
    lines += [f"{SOURCES[options.size]:,} new sources are matched within {MATCH_ARCSECONDS:g} arcseconds with {matched:,} objects: {pairs:,} pairs.", ""]
    lines += markdown_table(["way", "seconds"], [[name, f"{taken:.3f}"] for name, taken in seconds.items()])
    return "\n".join(lines).rstrip() + "\n"


def main(options: argparse.Namespace) -> None:
    """Measures and writes. Answers that differ end it."""
    program = options.meridian.resolve()
    options.work = options.work.resolve() / options.size
    rounds = ROUNDS[options.size]
    loads, matches, matched = [], None, 0
    for width in MEASUREMENTS:
        for density in DENSITIES[options.size]:
            print(f"{time.strftime('%H:%M:%S')} {density:,} objects in a square degree, {NAMES[width]}", file=sys.stderr, flush=True)
            shutil.rmtree(options.work, ignore_errors=True)
            objects = write_objects(options.work, density, width)
            load(program, objects, options.threads)
            seconds, count = measure_loads(objects, program, options.threads, rounds)
            loads.append((objects, count, seconds))
            if width == "few" and density == DENSITIES[options.size][-1]:
                matches, matched = measure_matches(objects, program, options.threads, rounds, SOURCES[options.size]), count
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    assert matches is not None
    page = options.out / "FIELDS.md"
    page.write_text(report(options, loads, matches, matched), encoding="utf-8")
    print(f"{page} is written", file=sys.stderr)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/fields", description=__doc__)
    parser.add_argument("--size", choices=DENSITIES, default="small")
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="a directory for files and databases, which is emptied")
    parser.add_argument("--out", type=Path, default=BENCH, help="where FIELDS.md is written")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process; default: all")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
