"""A pipeline that stores into a database of the field's own software (`lsst.dax.apdb`, in SQL), driven by lines of JSON.

    pipeline.py URL SCHEMA SEED [NAMESPACE]

Each line of its input is a list of a method's name and its arguments; each gets a line of output with what came of it.
"""

from __future__ import annotations

import datetime
import json
import random
import sys
from typing import Any

import astropy.time
import numpy
import pandas
from lsst.dax.apdb import DiaForcedSourceId, DiaObjectId, DiaSourceId
from lsst.dax.apdb.sql import ApdbSql

RA, DEC, HALF_WIDTH = 0.0, 10.0, 1.0


class Pipeline:
    """What pipelines do, at random, with times of the past."""

    def __init__(self, url: str, schema: str, seed: int, namespace: str | None) -> None:
        # Whoever reads a SQLite file has it wait, on a busy machine for long.
        config = ApdbSql.init_database(
            url, schema_file=schema, ss_schema_file="", enable_replica=True, namespace=namespace, connection_timeout=600
        )
        self.apdb = ApdbSql(config)
        self.apdb._current_time = self.now  # type: ignore[method-assign]
        self.random = random.Random(seed)
        self.time = 60000.0
        self.visit = 0
        # Numbers of objects with an open version, of closed ones, of sources, and keys of forced sources, with their places.
        self.open: dict[int, DiaObjectId] = {}
        self.closed: dict[int, DiaObjectId] = {}
        self.sources: dict[int, tuple[DiaSourceId, int | None]] = {}
        self.forced: dict[tuple[int, int, int], DiaForcedSourceId] = {}

    def now(self) -> astropy.time.Time:
        return astropy.time.Time(self.time, format="mjd", scale="tai")

    def pass_time(self, days: float) -> None:
        """Whether the next store is in the same replica chunk is left to chance."""
        self.time = round(self.time + days, 6)

    def place(self) -> dict[str, float]:
        ra = self.random.uniform(RA - HALF_WIDTH, RA + HALF_WIDTH) % 360.0
        return {"ra": ra, "dec": DEC + self.random.uniform(-HALF_WIDTH, HALF_WIDTH)}

    def some(self, among: Any, most: int) -> list[Any]:
        return self.random.sample(sorted(among), min(len(among), self.random.randrange(1, most + 1)))

    def change(self, steps: int) -> None:
        """Stores and changes."""
        kinds = [self.store] * 5 + [self.close, self.withdraw, self.withdraw_forced, self.to_solar_system] + [self.to_objects] * 2
        for _ in range(steps):
            self.pass_time(self.random.choice([0.001, 0.001, 0.002, 0.5]))
            self.random.choice(kinds)()

    def store(self, late: float = 0.0) -> None:
        """Stores a visit of a detector."""
        self.visit += 1
        detector, midpoint = self.random.randrange(189), self.time - late - 1e-4
        known = self.some(self.open, 5) + [number for number in self.some(self.closed, 1) if self.random.random() < 0.3]
        fresh = [self.visit * 1000 + number for number in range(self.random.randrange(6))]
        objects = []
        for number in known + fresh:
            place = self.place()
            parallax = self.random.choice([None, self.random.randrange(100) / 4])
            count = self.random.randrange(1, 9)
            objects.append({"diaObjectId": number, **place, "parallax": parallax, "firstDiaSourceMjdTai": self.time, "nDiaSources": count})
            self.closed.pop(number, None)
            self.open[number] = DiaObjectId(diaObjectId=number, **place)
        sources = []
        for at in range(self.random.randrange(8)):
            number, place = self.visit * 1000 + at, self.place()
            owner = self.random.choice([None, *known, *fresh, *fresh])
            sources.append(
                {
                    "diaSourceId": number,
                    "visit": self.visit,
                    "detector": detector,
                    "diaObjectId": owner,
                    "ssObjectId": None,
                    "parentDiaSourceId": None,
                    "midpointMjdTai": midpoint,
                    **place,
                    "centroid_flag": self.random.choice([None, True, False]),
                    "timeProcessedMjdTai": self.time,
                    "band": self.random.choice([None, "r", "ö\u2603"]),
                    "seen": datetime.datetime(2026, 11, 27, 1, 2, 3, self.random.randrange(10**6), tzinfo=datetime.UTC),
                    "stamp": self.random.choice([None, b"\x00\xff", b""]),
                }
            )
            self.sources[number] = (DiaSourceId(diaSourceId=number, midpointMjdTai=midpoint, **place), owner)
        forced = []
        for number in self.some({*known, *fresh}, 4) if known or fresh else []:
            place = self.place()
            row = {"diaObjectId": number, "visit": self.visit, "detector": detector, **place, "midpointMjdTai": midpoint}
            forced.append({**row, "flags": self.random.choice([None, 2**62 + 1]), "timeProcessedMjdTai": self.time})
            self.forced[number, self.visit, detector] = DiaForcedSourceId(**row)
        time = astropy.time.Time(self.time - late, format="mjd", scale="tai")
        self.apdb.store(time, frame(objects, OBJECTS), frame(sources, SOURCES), frame(forced, FORCED))

    def store_late(self, days: float) -> None:
        """Stores a visit of an earlier time than those before."""
        self.store(days)

    def close(self) -> None:
        if self.open:
            chosen = self.some(self.open, 3)
            self.apdb.setValidityEnd([self.open[number] for number in chosen], self.now())
            for number in chosen:
                self.closed[number] = self.open.pop(number)

    def withdraw(self) -> None:
        if self.sources:
            self.apdb.withdrawDiaSources([self.sources[number][0] for number in self.some(self.sources, 3)])

    def withdraw_forced(self) -> None:
        if self.forced:
            self.apdb.withdrawDiaForcedSources([self.forced[key] for key in self.some(self.forced, 3)])

    def to_solar_system(self) -> None:
        if self.sources:
            chosen = self.some(self.sources, 3)
            self.apdb.reassignDiaSources({number: self.random.randrange(1, 5) for number in chosen})
            for number in chosen:
                self.sources[number] = (self.sources[number][0], None)

    def to_objects(self) -> None:
        # The software counts sources of objects that have an open version.
        mine = [number for number, (_, owner) in self.sources.items() if owner in self.open]
        if mine and self.open:
            chosen = {number: self.random.choice(sorted(self.open)) for number in self.some(mine, 3)}
            self.apdb.reassignDiaSourcesToDiaObjects({self.sources[number][0]: owner for number, owner in chosen.items()})
            for number, owner in chosen.items():
                self.sources[number] = (self.sources[number][0], owner)

    def read(self, query: str) -> list[list[Any]]:
        """The rows of a query, as values that JSON has."""
        with self.apdb._engine.connect() as connection:
            return [[value_of(value) for value in row] for row in connection.exec_driver_sql(query)]

    def delete_chunks(self, keep: int) -> list[int]:
        """Forgets replica chunks but the last ones; gives their numbers."""
        replica = self.apdb.get_replica()
        chunks = sorted(chunk.id for chunk in replica.getReplicaChunks() or [])
        gone = chunks[: len(chunks) - keep]
        replica.deleteReplicaChunks(gone)
        return gone


OBJECTS = {"diaObjectId": "int64", "ra": "float64", "dec": "float64", "parallax": "float64", "firstDiaSourceMjdTai": "float64", "nDiaSources": "int64"}
SOURCES = {
    "diaSourceId": "int64",
    "visit": "int64",
    "detector": "int64",
    "diaObjectId": "Int64",
    "ssObjectId": "Int64",
    "parentDiaSourceId": "Int64",
    "midpointMjdTai": "float64",
    "ra": "float64",
    "dec": "float64",
    "centroid_flag": "boolean",
    "timeProcessedMjdTai": "float64",
    "band": "object",
    "seen": "datetime64[us, UTC]",
    "stamp": "object",
}
FORCED = {
    "diaObjectId": "int64",
    "visit": "int64",
    "detector": "int64",
    "ra": "float64",
    "dec": "float64",
    "midpointMjdTai": "float64",
    "flags": "Int64",
    "timeProcessedMjdTai": "float64",
}


def value_of(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return {"hex": bytes(value).hex()} if isinstance(value, bytes | memoryview) else value


def frame(rows: list[dict[str, Any]], types: dict[str, str]) -> pandas.DataFrame:
    """Rows as pipelines have them."""
    columns = {}
    for name, kind in types.items():
        values = [row[name] for row in rows]
        if kind == "float64":
            values = [numpy.nan if value is None else value for value in values]
        columns[name] = pandas.Series(values, dtype=kind)
    return pandas.DataFrame(columns)


def main() -> None:
    url, schema, seed, *namespace = sys.argv[1:]
    pipeline = Pipeline(url, schema, int(seed), namespace[0] if namespace else None)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(pipeline, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
