"""The detectors of a camera, what they find in each visit, and what a release says that they have found for a year."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
from lsst.dax.apdb import ApdbTables
from lsst.sphgeom import ConvexPolygon, LonLat, UnitVector3d

DETECTORS_OF_THE_CAMERA = 189
VARIABLE, FALSE = 53, 27
# Days between two visits of a field: 150 of them make a year.
CADENCE = 2.4
RECENT_VISITS = 5
FIRST_TIME = 61000.0
WIDTH = 0.22
PADDING = 52 / 3600
TYPES = {"double": "float64", "float": "float32", "int": "int32", "long": "int64", "short": "int16", "boolean": "bool"}
ARROW_TYPES = {"string": pa.string(), "char": pa.string(), "text": pa.string(), "unicode": pa.string(), "timestamp": pa.timestamp("us")}
TABLES = {"objects": ApdbTables.DiaObject, "sources": ApdbTables.DiaSource, "forced_sources": ApdbTables.DiaForcedSource}
WITHOUT = {"validityStartMjdTai", "validityEndMjdTai", "ssObjectId", "ssObjectReassocTimeMjdTai", "timeWithdrawnMjdTai"}

Places = dict[int, tuple[float, float, int]]


@dataclass
class Detector:
    """A detector's field of view, with the objects in it."""

    number: int
    rng: numpy.random.Generator
    definitions: dict[ApdbTables, Any]
    # By number: position, and the visit in which it was detected last. False ones are forgotten when nobody measures them any more.
    detected: Places = field(default_factory=dict)

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

    def variable(self, number: int) -> int:
        """The number of a variable object."""
        return self.number * 10**8 + number

    def detect(self, visit: int) -> None:
        """What is detected in a visit."""
        base = self.number * 10**8
        for number in range(VARIABLE):
            ra, dec, _ = self.detected.get(base + number, (*self.place(), 0))
            self.detected[base + number] = (ra, dec, visit)
        for number in range(FALSE):
            self.detected[base + 1000 * (visit + 1) + number] = (*self.place(), visit)
        self.detected = {key: place for key, place in self.detected.items() if place[2] > visit - RECENT_VISITS}

    def visit(self, visit: int, moment: float | None = None) -> tuple[float, dict[str, pandas.DataFrame]]:
        """What a visit finds: its time, and the rows."""
        return visit_of([self], visit, moment)


def visit_of(detectors: Sequence[Detector], visit: int, moment: float | None = None) -> tuple[float, dict[str, pandas.DataFrame]]:
    """What a visit finds with several detectors: its time, and the rows of all of them."""
    moment = FIRST_TIME + visit * CADENCE if moment is None else moment
    now: list[tuple[int, int, float, float]] = []
    recent: list[tuple[int, int, float, float]] = []
    for detector in detectors:
        detector.detect(visit)
        recent += [(key, detector.number, ra, dec) for key, (ra, dec, _) in detector.detected.items()]
        now += [(key, detector.number, ra, dec) for key, (ra, dec, last) in detector.detected.items() if last == visit]
    known = {"visit": visit + 1, "midpointMjdTai": moment, "timeProcessedMjdTai": moment}
    of_objects = {"nDiaSources": 1, "firstDiaSourceMjdTai": moment, "lastDiaSourceMjdTai": moment}
    rng, definitions = detectors[0].rng, detectors[0].definitions

    def rows(table: ApdbTables, found: list[tuple[int, int, float, float]], values: dict[str, Any]) -> pandas.DataFrame:
        keys, numbers, ra, dec = (numpy.array(column) for column in zip(*found, strict=True))
        given = {"diaObjectId": keys, "ra": ra, "dec": dec, "detector": numbers, **values}
        if table is ApdbTables.DiaSource:
            # By the order in which the detector has found them.
            within = numpy.arange(len(numbers)) - numpy.searchsorted(numbers, numbers)
            given["diaSourceId"] = numbers * 10**10 + visit * 1000 + within
        return frame(definitions[table], given, len(keys), rng)

    return moment, {
        "objects": rows(ApdbTables.DiaObject, now, of_objects),
        "sources": rows(ApdbTables.DiaSource, now, known),
        "forced_sources": rows(ApdbTables.DiaForcedSource, recent, known),
    }


def frame(definition: Any, given: dict[str, Any], count: int, rng: numpy.random.Generator) -> pandas.DataFrame:
    """Rows with a value in every column of numbers and flags."""
    columns: dict[str, Any] = {}
    for column in definition.columns:
        kind = TYPES.get(column.datatype.value)
        if column.name in given:
            values = given[column.name]
            columns[column.name] = values if kind is None else numpy.broadcast_to(values, count).astype(kind)
        elif column.name not in WITHOUT and kind is not None:
            random = rng.random(count)
            columns[column.name] = (random < 0.5 if kind == "bool" else random * 100).astype(kind)
        elif not column.nullable and column.name not in WITHOUT:
            columns[column.name] = numpy.full(count, "x")
    return pandas.DataFrame(columns)


def tables_of(frames: dict[str, pandas.DataFrame]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_pandas(rows, preserve_index=False) for name, rows in frames.items()}


def exposures_of(detectors: Sequence[Detector], visit: int, moment: float | None = None) -> tuple[float, list[dict[str, pa.Table]]]:
    """What a visit finds, detector by detector: made at once, so that making it is not what a benchmark measures."""
    moment, frames = visit_of(detectors, visit, moment)
    exposures: list[dict[str, pa.Table]] = [{} for _ in detectors]
    for name, table in tables_of(frames).items():
        first = 0
        for detector, exposure in zip(detectors, exposures, strict=True):
            count = len(detector.detected) if name == "forced_sources" else VARIABLE + FALSE
            exposure[name] = table.slice(first, count)
            first += count
        assert first == table.num_rows
    return moment, exposures


def write_release(directory: Path, detectors: Sequence[Detector], visits: int) -> dict[str, int]:
    """A release of what visits of detectors have found, as the pipelines would have stored it: the rows of each table."""
    definitions, rows = detectors[0].definitions, dict.fromkeys(TABLES, 0)
    schemas = {name: release_schema(definitions[table]) for name, table in TABLES.items()}
    for table in TABLES.values():
        (directory / table.name).mkdir(parents=True)
    # Files of some ten visits.
    for number, first in enumerate(range(0, visits, 10)):
        writers = {name: pq.ParquetWriter(directory / table.name / f"part-{number:05}.parquet", schemas[name]) for name, table in TABLES.items()}
        for visit in range(first, min(first + 10, visits)):
            moment, frames = visit_of(detectors, visit)
            objects = frames["objects"]
            objects["validityStartMjdTai"] = moment
            # A variable object gets another version in the next visit, at its very time: a sum of floats may be a little more.
            following = FIRST_TIME + (visit + 1) * CADENCE
            is_variable = objects["diaObjectId"] % 10**8 < VARIABLE
            ends = is_variable if visit + 1 < visits else numpy.zeros(len(objects), dtype=bool)
            objects["validityEndMjdTai"] = pandas.Series(numpy.where(ends, following, numpy.nan))
            for name, found in frames.items():
                writers[name].write_table(as_released(found, schemas[name]))
                rows[name] += len(found)
        for writer in writers.values():
            writer.close()
    return rows


def release_schema(definition: Any) -> pa.Schema:
    def field_of(column: Any) -> pa.Field:
        kind = TYPES.get(column.datatype.value)
        return pa.field(column.name, pa.from_numpy_dtype(kind) if kind else ARROW_TYPES[column.datatype.value])

    return pa.schema([field_of(column) for column in definition.columns])


def as_released(rows: pandas.DataFrame, schema: pa.Schema) -> pa.Table:
    """The rows in all columns of the schema; NaN is NULL."""
    columns = [
        pa.array(rows[column.name], column.type, from_pandas=True) if column.name in rows else pa.nulls(len(rows), column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
