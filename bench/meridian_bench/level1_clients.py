"""A visit of the whole camera through the field's class (`lsst.dax.apdb.Apdb`), by processes that have some of the detectors each, as pipelines have."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType

import adapter
import astropy.time
import numpy
import pandas
from lsst.dax.apdb import Apdb, ApdbConfig
from lsst.dax.apdb.apdbSchema import ApdbSchema
from sqlalchemy.exc import OperationalError

from .level1_camera import Detector
from .markdown import markdown_table

SCHEMA = "resource://lsst.sdm.schemas/apdb.yaml"
CLIENTS = 2
VISITS = 3
# How often a store is tried again.
PATIENCE = 20


def observers(first: int, numbers: Sequence[int]) -> list[Detector]:
    """Detectors of the camera by their numbers in it; the first has that number among all fields."""
    definitions = ApdbSchema(SCHEMA, "").tableSchemas
    return [Detector(first + number, numpy.random.default_rng(number), definitions) for number in numbers]


def read_through_the_class(apdb: Apdb, detector: Detector, when: astropy.time.Time) -> int:
    """What a pipeline reads before a visit: the number of rows."""
    region = detector.region()
    objects = apdb.getDiaObjects(region)
    ids = [int(number) for number in objects["diaObjectId"]]
    sources = apdb.getDiaSources(region, ids, when)
    forced = apdb.getDiaForcedSources(region, ids, when)
    assert sources is not None and forced is not None
    return len(objects) + len(sources) + len(forced)


def store_through_the_class(apdb: Apdb, when: astropy.time.Time, frames: dict[str, pandas.DataFrame]) -> int:
    """Stores what a detector has found: how often the peer had to be asked again, since two of its clients at once may find SQLite locked."""
    refused = 0
    while True:
        try:
            apdb.store(when, **frames)
        except OperationalError as error:
            if "database is locked" not in str(error) or refused == PATIENCE:
                raise
            refused += 1
        else:
            return refused


class Clients(AbstractContextManager["Clients"]):
    """Processes that observe, each with its part of the detectors, and read from and store into several systems."""

    def __init__(self, systems: dict[str, ApdbConfig], first: int, detectors: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        for mine in range(CLIENTS):
            ours, theirs = context.Pipe()
            numbers = range(mine, detectors, CLIENTS)
            context.Process(target=observe, args=(systems, first, numbers, theirs), daemon=True).start()
            theirs.close()
            self.pipes.append(ours)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe in self.pipes:
            pipe.close()

    def all(self, what: str, argument: int | str) -> tuple[float, int]:
        """Has all of them do something: the seconds until the last one has, and how many rows that were, or stores that were tried again."""
        begun = time.perf_counter()
        for pipe in self.pipes:
            pipe.send((what, argument))
        try:
            count = sum(pipe.recv() for pipe in self.pipes)
        except (EOFError, ConnectionError):
            raise SystemExit(f"a client has failed: {what} {argument}") from None
        return time.perf_counter() - begun, count


def observe(systems: dict[str, ApdbConfig], first: int, numbers: Sequence[int], asked: Connection) -> None:
    """One of the processes: does what it is told until nobody tells it more."""
    adapter.install()
    apdbs = {name: Apdb.from_config(config) for name, config in systems.items()}
    detectors = observers(first, numbers)
    found: list[tuple[float, dict[str, pandas.DataFrame]]] = []
    while True:
        try:
            what, argument = asked.recv()
        except EOFError:
            return
        if what == "observe":
            found = [detector.visit(argument) for detector in detectors]
            asked.send(sum(len(rows) for _, frames in found for rows in frames.values()))
            continue
        count = 0
        for detector, (moment, frames) in zip(detectors, found, strict=True):
            when = astropy.time.Time(moment, format="mjd", scale="tai")
            if what == "read":
                count += read_through_the_class(apdbs[argument], detector, when)
            else:
                count += store_through_the_class(apdbs[argument], when, frames)
        asked.send(count)


@dataclass
class CameraByClass:
    """Seconds of all detectors' reads and stores in each visit, by the system."""

    detectors: int
    stored_rows: int = 0
    read: dict[str, list[float]] = field(default_factory=dict)
    store: dict[str, list[float]] = field(default_factory=dict)


def measure_camera_by_class(systems: dict[str, ApdbConfig], first: int, detectors: int) -> CameraByClass:
    """Visits of all detectors, by each system in turns."""
    measured = CameraByClass(detectors)
    with Clients(systems, first, detectors) as clients:
        for visit in range(VISITS):
            _, measured.stored_rows = clients.all("observe", visit)
            read_rows = set()
            for name in sorted(systems, reverse=visit % 2 == 1):
                read, rows = clients.all("read", name)
                store, refused = clients.all("store", name)
                read_rows.add(rows)
                measured.read.setdefault(name, []).append(read)
                measured.store.setdefault(name, []).append(store)
                print(f"the camera's visit {visit}, {name}: read {read:.2f} s, store {store:.2f} s, {refused} tried again", flush=True)
            if len(read_rows) != 1:
                raise SystemExit(f"they read different numbers of rows in visit {visit}: {read_rows}")
    return measured


def report_camera_by_class(cameras: dict[str, CameraByClass]) -> list[str]:
    rows = []
    for store, it in cameras.items():
        stores = {name: statistics.median(taken) for name, taken in it.store.items()}
        # There is nothing to read before the first visit.
        reads = {name: taken[-1] for name, taken in it.read.items()}
        for what, seconds in (("store", stores), ("read", reads)):
            ours, theirs = seconds["meridian"], seconds["peer"]
            rows.append([store, what, f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f} x"])
    some = next(iter(cameras.values()))
    return [
        f"Visits of all {some.detectors} detectors ({some.stored_rows:,} rows) through `lsst.dax.apdb.Apdb`, by {CLIENTS} processes at once that share"
        f" the detectors; seconds until the last one is done, the median of {VISITS} visits' stores and the last"
        " visit's reads:",
        "",
        *markdown_table(["store", "what", "Meridian", "lsst.dax.apdb", "ratio"], rows),
    ]
