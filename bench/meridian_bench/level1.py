"""A nightly alert database beside lsst.dax.apdb's SQL back end: writes LEVEL1.md.

Both are driven through the same class (`lsst.dax.apdb.Apdb`) with the same data frames, in turns; Meridian also by its own client. A few
detectors are observed again and again, in the columns of the field's present schema, with the numbers of rows that the field's load has for
each of its 189: 53 variable objects, and 27 false detections of which each makes an object of its own. Forced sources are measured of all
objects that were detected in the last five visits.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import adapter
import astropy.time
import numpy
import pandas
import pyarrow as pa
from lsst.dax.apdb import Apdb, ApdbTables
from lsst.dax.apdb.sql import ApdbSql
from lsst.sphgeom import ConvexPolygon, LonLat, UnitVector3d
from meridian_apdb import DAYS_OF_HISTORY, AlertDatabase
from private_postgres import private_postgres

from .machine import describe
from .markdown import markdown_table

BENCH = Path(__file__).resolve().parent.parent
SCHEMA = "resource://lsst.sdm.schemas/apdb.yaml"
DETECTORS_OF_THE_CAMERA = 189
VARIABLE, FALSE = 53, 27
# Days between two visits of a field: 150 of them make a year.
CADENCE = 2.4
RECENT_VISITS = 5
FIRST_TIME = 61000.0
WIDTH = 0.22
PADDING = 52 / 3600
EARLY = 5
TYPES = {"double": "float64", "float": "float32", "int": "int32", "long": "int64", "short": "int16", "boolean": "bool"}


@dataclass
class Detector:
    """A detector's field of view, with the objects in it."""

    number: int
    rng: numpy.random.Generator
    definitions: dict[ApdbTables, Any]
    # By number: position, and the visit in which it was detected last.
    detected: dict[int, tuple[float, float, int]] = field(default_factory=dict)

    @property
    def corner(self) -> tuple[float, float]:
        # Apart, so that nobody reads rows of a neighbour: the peer returns some beyond the region.
        return 150.0 + (self.number % 15) * 2 * WIDTH, -30.0 + (self.number // 15 % 100) * 2 * WIDTH

    def region(self) -> ConvexPolygon:
        ra, dec = self.corner
        corners = [
            (ra - PADDING, dec - PADDING),
            (ra + WIDTH + PADDING, dec - PADDING),
            (ra + WIDTH + PADDING, dec + WIDTH + PADDING),
            (ra - PADDING, dec + WIDTH + PADDING),
        ]
        return ConvexPolygon([UnitVector3d(LonLat.fromDegrees(*corner)) for corner in corners])

    def place(self) -> tuple[float, float]:
        ra, dec = self.corner
        return ra + self.rng.uniform(0, WIDTH), dec + self.rng.uniform(0, WIDTH)

    def visit(self, visit: int) -> tuple[float, dict[str, pandas.DataFrame]]:
        """What a visit finds: its time, and the rows."""
        base = self.number * 10**8
        for number in range(VARIABLE):
            ra, dec, _ = self.detected.get(base + number, (*self.place(), 0))
            self.detected[base + number] = (ra, dec, visit)
        for number in range(FALSE):
            self.detected[base + 1000 * (visit + 1) + number] = (*self.place(), visit)
        moment = FIRST_TIME + visit * CADENCE
        now = {key: place for key, place in self.detected.items() if place[2] == visit}
        recent = {key: place for key, place in self.detected.items() if place[2] > visit - RECENT_VISITS}
        known = {"visit": visit + 1, "detector": self.number, "midpointMjdTai": moment, "timeProcessedMjdTai": moment}
        return moment, {
            "objects": self.frame(ApdbTables.DiaObject, now, {"nDiaSources": 1, "firstDiaSourceMjdTai": moment, "lastDiaSourceMjdTai": moment}),
            "sources": self.frame(ApdbTables.DiaSource, now, known, first_source=base * 100 + visit * 1000),
            "forced_sources": self.frame(ApdbTables.DiaForcedSource, recent, known),
        }

    def frame(
        self, table: ApdbTables, places: dict[int, tuple[float, float, int]], known: dict[str, Any], first_source: int = 0
    ) -> pandas.DataFrame:
        """Rows with a value in every column of numbers and flags."""
        count = len(places)
        given = {
            "diaObjectId": numpy.fromiter(places, dtype="int64"),
            "ra": numpy.array([place[0] for place in places.values()]),
            "dec": numpy.array([place[1] for place in places.values()]),
            "diaSourceId": numpy.arange(first_source, first_source + count, dtype="int64"),
            **known,
        }
        without = {"validityStartMjdTai", "validityEndMjdTai", "ssObjectId", "ssObjectReassocTimeMjdTai", "timeWithdrawnMjdTai"}
        columns: dict[str, Any] = {}
        for column in self.definitions[table].columns:
            kind = TYPES.get(column.datatype.value)
            if column.name in given:
                values = given[column.name]
                columns[column.name] = values if kind is None else numpy.broadcast_to(values, count).astype(kind)
            elif column.name not in without and kind is not None:
                random = self.rng.random(count)
                columns[column.name] = (random < 0.5 if kind == "bool" else random * 100).astype(kind)
            elif not column.nullable and column.name not in without:
                columns[column.name] = numpy.full(count, "x")
        return pandas.DataFrame(columns)


@dataclass
class Times:
    """Seconds of each visit of a detector, and the rows that were read."""

    store: dict[int, list[float]] = field(default_factory=dict)
    read: dict[int, list[float]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)

    def median(self, which: str, visits: range) -> float:
        return statistics.median(seconds for visit in visits for seconds in getattr(self, which)[visit])


def through_the_class(apdb: Apdb, detector: Detector, visit: int, found: tuple[float, Any], times: Times) -> None:
    """Reads what a pipeline reads before a visit, and stores what it found."""
    moment, frames = found
    region, when = detector.region(), astropy.time.Time(moment, format="mjd", scale="tai")
    begun = time.perf_counter()
    objects = apdb.getDiaObjects(region)
    ids = [int(number) for number in objects["diaObjectId"]]
    sources = apdb.getDiaSources(region, ids, when)
    forced = apdb.getDiaForcedSources(region, ids, when)
    read = time.perf_counter()
    apdb.store(when, **frames)
    times.store.setdefault(visit, []).append(time.perf_counter() - read)
    times.read.setdefault(visit, []).append(read - begun)
    assert sources is not None and forced is not None
    times.rows[visit] = times.rows.get(visit, 0) + len(objects) + len(sources) + len(forced)


@contextmanager
def server(program: Path, data: Path) -> Iterator[str]:
    """A server of Meridian's; gives its address."""
    command = [program, "serve", "--data", data, "--mysql", "off", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if match := re.search(r"HTTP clients connect to (http://[\d.]+:\d+)", line):
                yield match.group(1)
                break
        else:
            raise SystemExit("the server does not start")
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(60)


def create(program: Path, data: Path, name: str, postgres: str | None, *options: str) -> None:
    schema = files("lsst.sdm.schemas").joinpath("apdb.yaml")
    command = [program, "alerts", "create", name, "--data", data, "--schema", str(schema), *options]
    subprocess.run([*command, *(["--postgres", postgres] if postgres else [])], check=True, stdout=subprocess.DEVNULL)


def measure_history(apdbs: dict[str, Apdb], detectors: int, visits: int) -> dict[str, Times]:
    """Visits of some detectors, by each system in turns."""
    definitions = {table: next(iter(apdbs.values())).tableDef(table) for table in ApdbTables}
    observed = [Detector(number, numpy.random.default_rng(number), definitions) for number in range(detectors)]
    times = {name: Times() for name in apdbs}
    for visit in range(visits):
        for detector in observed:
            found = detector.visit(visit)
            for name, apdb in sorted(apdbs.items(), key=lambda item: (visit + len(item[0])) % 2):
                through_the_class(apdb, detector, visit, found, times[name])
        told = ", ".join(f"{name} {sum(t.store[visit]) * 1e3 / detectors:.0f}/{sum(t.read[visit]) * 1e3 / detectors:.0f}" for name, t in times.items())
        if visit % 10 == 0:
            print(f"visit {visit}: ms of store/read: {told}", flush=True)
        assert len({t.rows[visit] for t in times.values()}) == 1, f"they read different numbers of rows in visit {visit}"
    return times


def measure_camera(database: AlertDatabase, clients: int) -> dict[str, float]:
    """A visit of all detectors by our own client, from several threads, of fields that two visits have seen: seconds."""
    apdb_schema = adapter.ApdbSchema(SCHEMA, "")
    observed = [Detector(1000 + number, numpy.random.default_rng(number), apdb_schema.tableSchemas) for number in range(DETECTORS_OF_THE_CAMERA)]
    taken: dict[str, float] = {}

    def of_all(what: Callable[[int], None]) -> float:
        def client(mine: int) -> None:
            for number in range(mine, DETECTORS_OF_THE_CAMERA, clients):
                what(number)

        begun = time.perf_counter()
        threads = [threading.Thread(target=client, args=(mine,)) for mine in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun

    for visit in range(3):
        found = [detector.visit(visit) for detector in observed]
        tables = [(moment, {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}) for moment, frames in found]

        def read(number: int, found: list[Any] = found) -> None:
            since = found[number][0] - DAYS_OF_HISTORY
            objects = database.latest_objects(adapter.region_text(observed[number].region()))["diaObjectId"]
            database.sources(objects=objects, since=since)
            database.forced_sources(objects=objects, since=since)

        def store(number: int, tables: list[Any] = tables) -> None:
            database.store(tables[number][0], **tables[number][1])

        taken["read"] = of_all(read)
        taken["store"] = of_all(store)
        taken["rows"] = float(sum(table.num_rows for _, rows in tables for table in rows.values()))
    return taken


@dataclass
class Archived:
    """Reads of a history in the store, and of the same one in the archive."""

    visits: int
    rows: int
    # Seconds of a detector's reads: after few visits, and at the end before and after the store was emptied.
    early: float
    early_rows: int
    stored: float
    archived: float


def tables_of(frames: dict[str, pandas.DataFrame]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}


def read_of(database: AlertDatabase, detector: Detector, moment: float) -> int:
    """What a pipeline reads before a visit: the number of rows."""
    since = moment - DAYS_OF_HISTORY
    objects = database.latest_objects(adapter.region_text(detector.region()))
    ids = objects["diaObjectId"]
    rows = objects.num_rows + database.sources(objects=ids, since=since).num_rows
    return rows + database.forced_sources(objects=ids, since=since).num_rows


def measure_archive(database: AlertDatabase, detectors: int, visits: int) -> Archived:
    """A history that is read from the store, and then, published and removed there, from the archive."""
    definitions = adapter.ApdbSchema(SCHEMA, "").tableSchemas
    observed = [Detector(2000 + number, numpy.random.default_rng(number), definitions) for number in range(detectors)]

    def reads(visit: int) -> tuple[float, int]:
        taken, rows = [], 0
        for _ in range(5):
            for detector in observed:
                begun = time.perf_counter()
                rows = read_of(database, detector, FIRST_TIME + visit * CADENCE)
                taken.append(time.perf_counter() - begun)
        return statistics.median(taken), rows

    early = (0.0, 0)
    for visit in range(visits):
        for detector in observed:
            moment, frames = detector.visit(visit)
            database.store(moment, **tables_of(frames))
        if visit == EARLY - 1:
            early = reads(visit)
    database.publish()
    stored = reads(visits - 1)
    database.set_metadata("config:keep_nights", "0", replace=True)
    database.publish()
    archived = reads(visits - 1)
    assert stored[1] == archived[1], "the archive has other rows"
    return Archived(visits, stored[1], *early, stored[0], archived[0])


@dataclass
class Cadence:
    """Seconds of reads and stores of a visit of all detectors, and of users' queries."""

    visits: int
    seconds: float
    read: list[float] = field(default_factory=list)
    store: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    missed: int = 0


def measure_cadence(database: AlertDatabase, visits: int, seconds: float, users: int = 20) -> Cadence:
    """Visits of the whole camera, one every so many seconds, while users ask for cones and light curves."""
    definitions = adapter.ApdbSchema(SCHEMA, "").tableSchemas
    observed = [Detector(3000 + number, numpy.random.default_rng(number), definitions) for number in range(DETECTORS_OF_THE_CAMERA)]
    measured, ended = Cadence(visits, seconds), threading.Event()
    for number, detector in enumerate(observed):
        moment, frames = detector.visit(0)
        database.store(moment, **tables_of(frames))
        if number % 20 == 0:
            print(f"detector {number} of the first visit", flush=True)
    database.publish()

    def user(number: int) -> None:
        rng = numpy.random.default_rng(number)
        while not ended.is_set():
            detector = observed[rng.integers(len(observed))]
            ra, dec = detector.place()
            key = detector.number * 10**8 + int(rng.integers(VARIABLE))
            query = rng.choice(
                [
                    f"SELECT * FROM DiaObjectLast WHERE scisql_s2PtInCircle(ra, `dec`, {ra}, {dec}, 0.02) = 1",
                    f"SELECT midpointMjdTai, psfFlux FROM DiaSource WHERE diaObjectId = {key} ORDER BY midpointMjdTai",
                ]
            )
            body = json.dumps({"statement": str(query), "database": database.name}).encode()
            begun = time.perf_counter()
            with urllib.request.urlopen(f"{database.url}/sql?format=csv", body, timeout=600) as response:
                response.read()
            measured.asked.append(time.perf_counter() - begun)
            time.sleep(1.0)

    def client(found: list[Any], mine: int, taken: list[tuple[float, float]]) -> None:
        for number in range(mine, len(observed), 2):
            moment, tables = found[number]
            begun = time.perf_counter()
            read_of(database, observed[number], moment)
            read = time.perf_counter()
            database.store(moment, **tables)
            taken.append((read - begun, time.perf_counter() - read))

    asking = [threading.Thread(target=user, args=(number,)) for number in range(users)]
    for thread in asking:
        thread.start()
    due = time.monotonic()
    for visit in range(1, visits + 1):
        found = [(moment, tables_of(frames)) for moment, frames in (detector.visit(visit) for detector in observed)]
        time.sleep(max(0.0, due - time.monotonic()))
        begun, taken = time.monotonic(), []
        clients = [threading.Thread(target=client, args=(found, mine, taken)) for mine in range(2)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        measured.read += [read for read, _ in taken]
        measured.store += [store for _, store in taken]
        measured.missed += time.monotonic() - begun > seconds
        due = max(due + seconds, begun)
        print(f"visit {visit}: {time.monotonic() - begun:.1f} s", flush=True)
    ended.set()
    for thread in asking:
        thread.join()
    return measured


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def report_archived(archives: dict[str, Archived]) -> list[str]:
    rows = []
    for store, it in archives.items():
        early, stored, archived = it.early / it.early_rows, it.stored / it.rows, it.archived / it.rows
        rows.append([store, f"{it.rows:,}", f"{stored * 1e6:.2f}", f"{archived * 1e6:.2f}", f"{archived / stored:.2f} x", f"{archived / early:.2f} x"])
    visits = next(iter(archives.values())).visits
    return [
        f"Reads of a detector with {visits} visits of history in the store, and of the same history when the archive alone has it:",
        "",
        *markdown_table(["store", "rows", "µs a row, store", "µs a row, archive", "archive / store", f"archive / store with {EARLY} visits"], rows),
        "",
    ]


def report_cadence(cadences: dict[str, Cadence]) -> list[str]:
    rows = [
        [store, str(it.visits), *(f"{quantile(values, 0.99):.3f}" for values in (it.read, it.store, it.asked)), str(it.missed)]
        for store, it in cadences.items()
    ]
    seconds = next(iter(cadences.values())).seconds
    return [
        f"All detectors every {seconds:g} s, by two clients, beside 20 users who ask for cones and light curves; seconds, of 99 in 100:",
        "",
        *markdown_table(["store", "visits", "a detector's read", "a detector's store", "a user's query", "visits that took longer"], rows),
        "",
    ]


def report(results: dict[str, tuple[dict[str, Times], dict[str, float]]], detectors: int, visits: int) -> str:
    lines = ["# The nightly alert database", "", "Written by `make bench-level1`; see [README.md](README.md).", ""]
    machine = describe(BENCH)
    lines.append(
        f"{date.today()}, {machine['processor']}, {machine['memory']}. {detectors} detectors, {visits} visits {CADENCE} days apart, each of {VARIABLE + FALSE} sources and as"
        " many versions of objects, in the columns of the field's schema (lsst-sdm-schemas). Both systems are driven through"
        " `lsst.dax.apdb.Apdb` by one client with the same data frames, in turns; medians in milliseconds for one detector."
    )
    late = range(visits - EARLY, visits)
    rows = []
    for store, (times, _) in results.items():
        for what, which, when in (
            ("a store", "store", late),
            (f"a read, {EARLY} visits of history", "read", range(EARLY, 2 * EARLY)),
            (f"a read, {visits - EARLY} visits of history", "read", late),
        ):
            ours, theirs = (times[name].median(which, when) * 1e3 for name in ("meridian", "peer"))
            rows.append([store, what, f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.1f} x"])
    lines += ["", *markdown_table(["store", "what", "Meridian", "lsst.dax.apdb", "ratio"], rows)]
    for store, (times, _) in results.items():
        ours = times["meridian"]
        cost = {
            when: ours.median("read", visits_of) / statistics.mean(ours.rows[visit] / detectors for visit in visits_of)
            for when, visits_of in (("early", range(EARLY, 2 * EARLY)), ("late", late))
        }
        lines.append(
            f"With {store}, a row that Meridian returned took {cost['early'] * 1e6:.2f} µs with {EARLY} visits of history and"
            f" {cost['late'] * 1e6:.2f} µs with {visits - EARLY} ({cost['late'] / cost['early']:.2f} x)."
        )
    rows = []
    for store, (_, camera) in results.items():
        rows.append([store, f"{camera['rows']:,.0f}", f"{camera['store']:.2f}", f"{camera['read']:.2f}"])
    lines += [
        "",
        f"A visit of all {DETECTORS_OF_THE_CAMERA} detectors by Meridian's own client, two at a time, of fields with two visits of history:",
        "",
        *markdown_table(["store", "rows stored", "store, s", "read, s"], rows),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/level1", description=__doc__)
    parser.add_argument("--meridian", type=Path, default=BENCH.parent / "target" / "release" / "meridian", help="the program, a release build")
    parser.add_argument("--visits", type=int, default=155, help="visits of each detector")
    parser.add_argument("--detectors", type=int, default=3, help="detectors that are observed")
    parser.add_argument("--archived-visits", type=int, default=152, help="visits of a history in the archive, a year by default; 0 for none")
    parser.add_argument("--cadence-visits", type=int, default=0, help="visits of the whole camera beside users, 100 are an hour; none by default")
    parser.add_argument("--cadence", type=float, default=39.0, help="seconds between these visits")
    parser.add_argument("--stores", nargs="+", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    parser.add_argument("--output", type=Path, default=BENCH / "LEVEL1.md", help="the report")
    arguments = parser.parse_args()
    adapter.install()
    results, archives, cadences = {}, {}, {}
    for store in arguments.stores:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="level1_")))
            ours = theirs = None
            theirs_url = f"sqlite:///{directory}/peer.db"
            if store == "postgres":
                ours = stack.enter_context(private_postgres("-c", "shared_buffers=512MB"))
                theirs = stack.enter_context(private_postgres("-c", "shared_buffers=512MB"))
                theirs_url = theirs.replace("postgres://", "postgresql+psycopg2://")
            for name in ("history", "camera"):
                create(arguments.meridian, directory, name, ours)
            for name in ("archived", "cadence"):
                create(arguments.meridian, directory, name, ours, "--replica", "--keep-nights", "100000")
            url = stack.enter_context(server(arguments.meridian, directory))
            config = adapter.MeridianApdbConfig(url=url, database="history", schema_file=SCHEMA, ss_schema_file="")
            peer = ApdbSql.init_database(theirs_url, schema_file=SCHEMA, ss_schema_file="", dia_object_index="last_object_table")
            apdbs = {"meridian": Apdb.from_config(config), "peer": Apdb.from_config(peer)}
            history = measure_history(apdbs, arguments.detectors, arguments.visits)
            results[store] = (history, measure_camera(AlertDatabase(url, "camera"), clients=2))
            if arguments.archived_visits:
                archives[store] = measure_archive(AlertDatabase(url, "archived"), arguments.detectors, arguments.archived_visits)
            if arguments.cadence_visits:
                cadences[store] = measure_cadence(AlertDatabase(url, "cadence"), arguments.cadence_visits, arguments.cadence)
    lines = [report(results, arguments.detectors, arguments.visits)]
    lines += report_archived(archives) if archives else []
    lines += report_cadence(cadences) if cadences else []
    text = "\n".join(lines).rstrip("\n") + "\n"
    arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
