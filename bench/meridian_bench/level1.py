"""A nightly alert database beside lsst.dax.apdb's SQL back end: writes LEVEL1.md.

Both are driven through the same class (`lsst.dax.apdb.Apdb`) with the same data frames, in turns; Meridian also by its own client. A few
detectors are observed again and again, in the columns of the field's present schema, with the numbers of rows that the field's load has for
each of its 189: 53 variable objects, and 27 false detections of which each makes an object of its own. Forced sources are measured of all
objects that were detected in the last five visits.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import adapter
import astropy.time
import pyarrow as pa
from lsst.dax.apdb import Apdb, ApdbConfig
from lsst.dax.apdb.sql import ApdbSql
from meridian_apdb import DAYS_OF_HISTORY, AlertDatabase
from private_postgres import private_postgres

from .level1_camera import (
    CADENCE,
    DETECTORS_OF_THE_CAMERA,
    FALSE,
    FIRST_TIME,
    VARIABLE,
    WIDTH,
    Detector,
    exposures_of,
    tables_of,
    visit_of,
    write_release,
)
from .level1_clients import SCHEMA, CameraByClass, measure_camera_by_class, observers, read_through_the_class, report_camera_by_class
from .level1_merge import Merge, measure_merge, report_merge
from .level1_users import Users
from .machine import describe
from .markdown import markdown_table
from .served import served

BENCH = Path(__file__).resolve().parent.parent
EARLY = 5


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
    when = astropy.time.Time(moment, format="mjd", scale="tai")
    begun = time.perf_counter()
    rows = read_through_the_class(apdb, detector, when)
    read = time.perf_counter()
    apdb.store(when, **frames)
    times.store.setdefault(visit, []).append(time.perf_counter() - read)
    times.read.setdefault(visit, []).append(read - begun)
    times.rows[visit] = times.rows.get(visit, 0) + rows


def create(program: Path, data: Path, name: str, postgres: str | None, *options: str) -> None:
    schema = files("lsst.sdm.schemas").joinpath("apdb.yaml")
    command = [program, "alerts", "create", name, "--data", data, "--schema", str(schema), *options]
    subprocess.run([*command, *(["--postgres", postgres] if postgres else [])], check=True, stdout=subprocess.DEVNULL)


def measure_history(apdbs: dict[str, Apdb], detectors: int, visits: int) -> dict[str, Times]:
    """Visits of some detectors, by each system in turns."""
    observed = observers(0, range(detectors))
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


def measure_camera(database: AlertDatabase, observed: list[Detector], clients: int) -> dict[str, float]:
    """A visit of all detectors by our own client, from several threads, of fields that two visits have seen: seconds."""
    taken: dict[str, float] = {}

    def of_all(what: Callable[[int], None]) -> float:
        def client(mine: int) -> None:
            for number in range(mine, len(observed), clients):
                what(number)

        begun = time.perf_counter()
        threads = [threading.Thread(target=client, args=(mine,)) for mine in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun

    for visit in range(3):
        moment, exposures = exposures_of(observed, visit)

        def read(number: int, moment: float = moment) -> None:
            read_of(database, observed[number], moment)

        def store(number: int, moment: float = moment, exposures: list[dict[str, pa.Table]] = exposures) -> None:
            database.store(moment, **exposures[number])

        taken["read"] = of_all(read)
        taken["store"] = of_all(store)
        taken["detectors"] = len(observed)
        taken["rows"] = float(sum(table.num_rows for exposure in exposures for table in exposure.values()))
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


def read_of(database: AlertDatabase, detector: Detector, moment: float) -> int:
    """What a pipeline reads before a visit: the number of rows."""
    since = moment - DAYS_OF_HISTORY
    objects = database.latest_objects(adapter.region_text(detector.region()))
    ids = objects["diaObjectId"]
    rows = objects.num_rows + database.sources(objects=ids, since=since).num_rows
    return rows + database.forced_sources(objects=ids, since=since).num_rows


def measure_archive(database: AlertDatabase, detectors: int, visits: int) -> Archived:
    """A history that is read from the store, and then, published and removed there, from the archive."""
    observed = observers(2000, range(detectors))

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
    taken: list[float] = field(default_factory=list)
    missed: int = 0
    # Rows in the archive before; rows and seconds of detectors' reads before anybody else does anything.
    archived: int = 0
    quiet_rows: int = 0
    quiet: list[float] = field(default_factory=list)


def reseed(program: Path, data: Path, name: str, detectors: list[Detector], visits: int) -> int:
    """Gives an alert database a history of so many visits in the archive, by a release: the rows of that."""
    with tempfile.TemporaryDirectory(prefix="release_", dir=data) as place:
        begun = time.perf_counter()
        rows = write_release(Path(place) / "release", detectors, visits)
        print(f"a release of {sum(rows.values()):,} rows is written, {time.perf_counter() - begun:.0f} s", flush=True)
        cut = FIRST_TIME + (visits - 0.5) * CADENCE
        command = [program, "alerts", "reseed", name, "--data", data, "--release", Path(place) / "release", "--cut", repr(cut)]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        print(f"the database is reseeded with it, {time.perf_counter() - begun:.0f} s", flush=True)
    return sum(rows.values())


def measure_cadence(
    database: AlertDatabase, observed: list[Detector], first: int, archived: int, visits: int, seconds: float, users: int = 20
) -> Cadence:
    """Visits of all detectors, one every so many seconds in a night after a history, while users ask for cones and light curves."""
    measured = Cadence(visits, seconds, archived=archived)
    night = FIRST_TIME + first * CADENCE
    moment, frames = visit_of(observed, first, night)
    database.store(moment, **tables_of(frames))
    database.publish()
    for detector in observed[:10] * 3:
        begun = time.perf_counter()
        measured.quiet_rows += read_of(database, detector, moment)
        measured.quiet.append(time.perf_counter() - begun)
    fields = [(detector.corner, WIDTH, range(detector.variable(0), detector.variable(VARIABLE))) for detector in observed]
    def client(moment: float, exposures: list[dict[str, pa.Table]], mine: int, taken: list[tuple[float, float]]) -> None:
        for number in range(mine, len(observed), 2):
            begun = time.perf_counter()
            read_of(database, observed[number], moment)
            read = time.perf_counter()
            database.store(moment, **exposures[number])
            taken.append((read - begun, time.perf_counter() - read))

    asking = Users(database.url, database.name, fields, users)
    due = time.monotonic()
    for visit in range(1, visits + 1):
        moment, exposures = exposures_of(observed, first + visit, night + visit * seconds / 86400)
        time.sleep(max(0.0, due - time.monotonic()))
        begun, taken = time.monotonic(), []
        clients = [threading.Thread(target=client, args=(moment, exposures, mine, taken)) for mine in range(2)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        asking.check()
        if len(taken) != len(observed):
            raise SystemExit(f"visit {visit}: {len(taken)} of {len(observed)} detectors were read and stored")
        measured.read += [read for read, _ in taken]
        measured.store += [store for _, store in taken]
        measured.taken.append(time.monotonic() - begun)
        measured.missed += measured.taken[-1] > seconds
        due = max(due + seconds, begun)
        usual = [f"{statistics.median(column) * 1e3:.0f} ms" for column in zip(*taken, strict=True)]
        print(f"visit {visit}: {measured.taken[-1]:.1f} s; read, store: {', '.join(usual)}", flush=True)
    measured.asked = asking.end()
    return measured


@dataclass
class Measured:
    """What was measured, by the store."""

    history: dict[str, dict[str, Times]] = field(default_factory=dict)
    camera: dict[str, dict[str, float]] = field(default_factory=dict)
    camera_by_class: dict[str, CameraByClass] = field(default_factory=dict)
    archived: dict[str, Archived] = field(default_factory=dict)
    cadence: dict[str, Cadence] = field(default_factory=dict)
    merge: dict[str, Merge] = field(default_factory=dict)


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
    ]


def report_cadence(cadences: dict[str, Cadence]) -> list[str]:
    rows = [
        [
            store,
            f"{it.archived:,}",
            str(it.visits),
            f"{it.quiet_rows / len(it.quiet):,.0f}",
            f"{sum(it.quiet) / it.quiet_rows * 1e6:.2f}",
            *(f"{quantile(values, 0.99):.3f}" for values in (it.read, it.store, it.asked)),
            f"{max(it.taken):.1f}",
            str(it.missed),
        ]
        for store, it in cadences.items()
    ]
    seconds = next(iter(cadences.values())).seconds
    headings = ["store", "rows in the archive before", "visits", "rows of a read", "µs a row, alone", "a detector's read", "a detector's store"]
    headings += ["a user's query", "the longest visit", "visits that took longer"]
    return [
        f"All detectors every {seconds:g} s, by two clients, beside 20 users who ask for cones and light curves; seconds, of 99 in 100:",
        "",
        *markdown_table(headings, rows),
    ]


def report_history(histories: dict[str, dict[str, Times]], detectors: int, visits: int) -> list[str]:
    late = range(visits - EARLY, visits)
    rows, costs = [], []
    for store, times in histories.items():
        for what, which, when in (
            ("a store", "store", late),
            (f"a read, {EARLY} visits of history", "read", range(EARLY, 2 * EARLY)),
            (f"a read, {visits - EARLY} visits of history", "read", late),
        ):
            ours, theirs = (times[name].median(which, when) * 1e3 for name in ("meridian", "peer"))
            rows.append([store, what, f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.1f} x"])
        meridian = times["meridian"]
        cost = {
            when: meridian.median("read", visits_of) / statistics.mean(meridian.rows[visit] / detectors for visit in visits_of)
            for when, visits_of in (("early", range(EARLY, 2 * EARLY)), ("late", late))
        }
        costs.append(
            f"With {store}, a row that Meridian returned took {cost['early'] * 1e6:.2f} µs with {EARLY} visits of history and"
            f" {cost['late'] * 1e6:.2f} µs with {visits - EARLY} ({cost['late'] / cost['early']:.2f} x)."
        )
    return [
        f"{detectors} detectors, {visits} visits {CADENCE} days apart. Both systems are driven through `lsst.dax.apdb.Apdb` by one client with the same"
        " data frames, in turns; medians in milliseconds for one detector.",
        "",
        *markdown_table(["store", "what", "Meridian", "lsst.dax.apdb", "ratio"], rows),
        *costs,
        "",
    ]


def report_camera(cameras: dict[str, dict[str, float]]) -> list[str]:
    detectors = next(iter(cameras.values()))["detectors"]
    rows = [[store, f"{it['rows']:,.0f}", f"{it['store']:.2f}", f"{it['read']:.2f}"] for store, it in cameras.items()]
    return [
        f"A visit of all {detectors:.0f} detectors by Meridian's own client, two at a time, of fields with two visits of history:",
        "",
        *markdown_table(["store", "rows stored", "store, s", "read, s"], rows),
    ]


def report(measured: Measured, arguments: argparse.Namespace) -> str:
    machine = describe(BENCH)
    lines = [
        "# The nightly alert database",
        "",
        "Written by `make bench-level1`; see [README.md](README.md).",
        "",
        f"{date.today()}, {machine['processor']}, {machine['memory']}. Each visit of a detector has {VARIABLE + FALSE} sources and as many versions of"
        " objects, in the columns of the field's schema (lsst-sdm-schemas).",
        "",
    ]
    lines += report_history(measured.history, arguments.detectors, arguments.visits) if measured.history else []
    lines += report_camera_by_class(measured.camera_by_class) if measured.camera_by_class else []
    lines += report_camera(measured.camera) if measured.camera else []
    lines += report_archived(measured.archived) if measured.archived else []
    lines += report_cadence(measured.cadence) if measured.cadence else []
    lines += report_merge(measured.merge) if measured.merge else []
    return "\n".join(lines).rstrip("\n") + "\n"


PARTS = ("history", "camera", "archived", "cadence", "merge")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/level1", description=__doc__)
    parser.add_argument("--meridian", type=Path, default=BENCH.parent / "target" / "release" / "meridian", help="the program, a release build")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these alone; by default what the other options give visits or rows")
    parser.add_argument("--visits", type=int, default=155, help="visits of each detector")
    parser.add_argument("--detectors", type=int, default=3, help="detectors that are observed")
    parser.add_argument("--archived-visits", type=int, default=152, help="visits of a history in the archive, a year by default; 0 for none")
    parser.add_argument("--cadence-visits", type=int, default=0, help="visits of the whole camera beside users, 100 are an hour; none by default")
    parser.add_argument("--cadence", type=float, default=39.0, help="seconds between these visits")
    parser.add_argument("--release-visits", type=int, default=0, help="visits that a release has put into the archive before them: 150 are a year")
    parser.add_argument("--camera-detectors", type=int, default=DETECTORS_OF_THE_CAMERA, help="detectors of the whole camera")
    parser.add_argument("--merged-rows", type=int, default=0, help="rows that are merged beside stores; none by default")
    parser.add_argument("--idle-stores", type=int, default=189, help="stores without a merge, with which those beside it are compared")
    parser.add_argument("--stores", nargs="+", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    parser.add_argument("--output", type=Path, default=BENCH / "LEVEL1.md", help="the report")
    arguments = parser.parse_args()
    if arguments.only is None:
        given = {"archived": arguments.archived_visits, "cadence": arguments.cadence_visits, "merge": arguments.merged_rows}
        arguments.only = [part for part in PARTS if given.get(part, 1)]
    return arguments


def measure(arguments: argparse.Namespace, store: str, stack: ExitStack, measured: Measured) -> None:
    """Measures with one store."""
    program, only = arguments.meridian, arguments.only
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="level1_")))
    ours = stack.enter_context(private_postgres("-c", "shared_buffers=512MB")) if store == "postgres" else None
    for name in ("history", "clients", "camera"):
        create(program, directory, name, ours)
    for name in ("archived", "cadence", "merge"):
        create(program, directory, name, ours, "--replica", "--keep-nights", "100000")
    if "history" in only or "camera" in only:
        with served(program, directory) as server:

            def both(database: str) -> dict[str, ApdbConfig]:
                """An alert database of ours and an empty one of the peer's."""
                theirs = f"sqlite:///{directory}/peer_{database}.db"
                if store == "postgres":
                    theirs = stack.enter_context(private_postgres("-c", "shared_buffers=512MB")).replace("postgres://", "postgresql+psycopg2://")
                ours = adapter.MeridianApdbConfig(url=server.address, database=database, schema_file=SCHEMA, ss_schema_file="")
                return {"meridian": ours, "peer": ApdbSql.init_database(theirs, schema_file=SCHEMA, ss_schema_file="", dia_object_index="last_object_table")}

            if "history" in only:
                apdbs = {name: Apdb.from_config(config) for name, config in both("history").items()}
                measured.history[store] = measure_history(apdbs, arguments.detectors, arguments.visits)
            if "camera" in only:
                measured.camera_by_class[store] = measure_camera_by_class(both("clients"), 1000, arguments.camera_detectors)
                measured.camera[store] = measure_camera(AlertDatabase(server.address, "camera"), observers(1000, range(arguments.camera_detectors)), clients=2)
    if "archived" in only:
        with served(program, directory) as server:
            database = AlertDatabase(server.address, "archived")
            measured.archived[store] = measure_archive(database, arguments.detectors, arguments.archived_visits)
    if "cadence" in only:
        observed, first, rows = observers(3000, range(arguments.camera_detectors)), arguments.release_visits, 0
        if first:
            rows = reseed(program, directory, "cadence", observed, first)
        with served(program, directory) as server:
            database = AlertDatabase(server.address, "cadence")
            measured.cadence[store] = measure_cadence(database, observed, first, rows, arguments.cadence_visits, arguments.cadence)
    if "merge" in only:
        # Nobody else merges.
        with served(program, directory, "--compact-every", "off") as server:
            database, observed = AlertDatabase(server.address, "merge"), observers(5000, range(arguments.camera_detectors))
            pace = arguments.cadence / arguments.camera_detectors
            measured.merge[store] = measure_merge(program, directory, database, observed, arguments.merged_rows, arguments.idle_stores, pace)


def main() -> None:
    arguments, measured = options(), Measured()
    adapter.install()
    for store in arguments.stores:
        with ExitStack() as stack:
            measure(arguments, store, stack, measured)
    text = report(measured, arguments)
    arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
