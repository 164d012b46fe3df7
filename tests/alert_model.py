"""What an alert database has to give back, kept in dictionaries: an oracle for tests."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from meridian_apdb import AlertDatabase, Conflict, NotFound, box, circle

# A patch of the sky across right ascension 0.
DEC = 10.0
HALF_WIDTH = 1.0

OBJECT_COLUMNS = ["diaObjectId", "validityStartMjdTai", "ra", "dec", "firstDiaSourceMjdTai", "nDiaSources"]
SOURCE_COLUMNS = [
    "diaSourceId",
    "visit",
    "detector",
    "diaObjectId",
    "midpointMjdTai",
    "ra",
    "dec",
    "centroid_flag",
    "timeWithdrawnMjdTai",
]
FORCED_COLUMNS = ["diaObjectId", "visit", "detector", "midpointMjdTai", "ra", "dec", "flags", "timeWithdrawnMjdTai"]

PUBLISHED_COLUMNS = {
    "DiaObject": [*OBJECT_COLUMNS, "validityEndMjdTai"],
    "DiaObjectLast": OBJECT_COLUMNS,
    "DiaSource": [*SOURCE_COLUMNS, "ssObjectId", "ssObjectReassocTimeMjdTai"],
    "DiaForcedSource": FORCED_COLUMNS,
}


def rows_of(table: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    """The rows of some columns, in an order."""
    rows = zip(*(table[column].to_pylist() for column in columns), strict=True)
    return sorted(rows, key=repr)


def separation(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Degrees between two positions, by the haversine formula."""
    ra, dec = math.radians(first[0] - second[0]), math.radians(first[1] - second[1])
    cosines = math.cos(math.radians(first[1])) * math.cos(math.radians(second[1]))
    half = math.sin(dec / 2) ** 2 + cosines * math.sin(ra / 2) ** 2
    return math.degrees(2 * math.asin(min(1.0, math.sqrt(half))))


@dataclass
class Model:
    """An alert database and what it has to have."""

    database: AlertDatabase
    random: random.Random
    time: float = 60000.0
    visit: int = 0
    # By object: the open version, as a row of OBJECT_COLUMNS.
    latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    # By object: when its last version ended.
    ended: dict[int, float] = field(default_factory=dict)
    versions: list[tuple[int, float]] = field(default_factory=list)
    sources: dict[int, dict[str, Any]] = field(default_factory=dict)
    forced: dict[tuple[int, int, int], dict[str, Any]] = field(default_factory=dict)
    visits: set[tuple[int, int]] = field(default_factory=set)
    updates: int = 0
    # All versions, with their ends: those that are open are rows of `latest`.
    objects: list[dict[str, Any]] = field(default_factory=list)
    # By table: the columns that the schema has got since, each with values to choose from.
    added: dict[str, dict[str, list[Any]]] = field(default_factory=lambda: {table: {} for table in PUBLISHED_COLUMNS})

    def more(self, table: str) -> dict[str, Any]:
        return {name: self.random.choice(values) for name, values in self.added[table].items()}

    def columns(self, table: str, columns: list[str]) -> list[str]:
        return [*columns, *self.added[table]]

    def position(self) -> tuple[float, float]:
        return self.random.uniform(-HALF_WIDTH, HALF_WIDTH) % 360.0, DEC + self.random.uniform(-HALF_WIDTH, HALF_WIDTH)

    def moment(self) -> float:
        # A microday: what JSON carries exactly, whoever reads it.
        self.time = round(self.time + self.random.uniform(0.0005, 3.0), 6)
        return self.time

    # Storing.

    def store(self) -> None:
        """Stores a visit of a detector: new objects, new versions of some, sources and forced sources."""
        time, self.visit, detector = self.moment(), self.visit + 1, self.random.randrange(189)
        known = self.random.sample(sorted(self.latest), min(len(self.latest), self.random.randrange(6)))
        closed = [object_id for object_id, end in self.ended.items() if object_id not in self.latest and end <= time]
        known += self.random.sample(sorted(closed), min(len(closed), self.random.randrange(2)))
        fresh = [self.visit * 1000 + number for number in range(self.random.randrange(8))]
        objects = []
        for object_id in known + fresh:
            ra, dec = self.position()
            first = self.random.choice([None, float("nan"), self.random.uniform(50000, 60000)])
            values = (object_id, time, ra, dec, first, self.random.randrange(1, 9))
            objects.append(dict(zip(OBJECT_COLUMNS, values, strict=True)) | self.more("DiaObject"))
        sources = []
        for number in range(self.random.randrange(10)):
            ra, dec = self.position()
            owner = self.random.choice([None, *known, *fresh, *sorted(self.latest)[:5]])
            flag = self.random.choice([None, True, False])
            values = (self.visit * 1000 + number, self.visit, detector, owner, time, ra, dec, flag, None)
            sources.append(dict(zip(SOURCE_COLUMNS, values, strict=True)) | self.more("DiaSource"))
        forced = []
        for object_id in self.random.sample(sorted({*known, *fresh}), min(len({*known, *fresh}), 3)):
            ra, dec = self.position()
            values = (object_id, self.visit, detector, time, ra, dec, self.random.choice([None, 2**62 + 1]), None)
            forced.append(dict(zip(FORCED_COLUMNS, values, strict=True)) | self.more("DiaForcedSource"))
        given = {
            "objects": table_of(objects, {"validityStartMjdTai"}),
            "sources": table_of([row | {"timeProcessedMjdTai": time} for row in sources]),
            "forced_sources": table_of([row | {"timeProcessedMjdTai": time} for row in forced]),
        }
        assert self.database.store(time, **given)
        # The same again is stored once.
        assert not self.database.store(time, **given)
        for row in objects:
            if row["firstDiaSourceMjdTai"] is not None and math.isnan(row["firstDiaSourceMjdTai"]):
                row["firstDiaSourceMjdTai"] = None
            if row["diaObjectId"] in self.latest:
                self.end(row["diaObjectId"], time)
            row["validityEndMjdTai"] = None
            self.objects.append(row)
            self.latest[row["diaObjectId"]] = row
            self.versions.append((row["diaObjectId"], time))
        for row in sources:
            self.sources[row["diaSourceId"]] = row | {"ss": None, "ss_time": None}
            self.visits.add((self.visit, detector))
        for row in forced:
            self.forced[row["diaObjectId"], self.visit, detector] = row
            self.visits.add((self.visit, detector))

    def store_refused(self) -> None:
        """Stores what is refused: nothing of it may stay."""
        if not self.latest:
            return
        time = self.moment()
        object_id = self.random.choice(sorted(self.latest))
        ra, dec = self.position()
        row = {"diaObjectId": object_id, "ra": ra, "dec": dec, "nDiaSources": 1}
        fresh = row | {"diaObjectId": 10**9 + self.visit}
        start = self.latest[object_id]["validityStartMjdTai"]
        for bad_time, rows in ((start, [fresh, row]), (start - 1, [fresh, row]), (time, [row, row])):
            refused(Conflict, lambda: self.database.store(bad_time, objects=table_of(rows)))
        if self.sources:
            source = self.random.choice(sorted(self.sources))
            again = self.sources[source] | {"timeProcessedMjdTai": time, "midpointMjdTai": time}
            del again["ss"], again["ss_time"]
            refused(Conflict, lambda: self.database.store(time, objects=table_of([fresh]), sources=table_of([again])))

    # Changing.

    def end(self, object_id: int, time: float) -> None:
        self.latest[object_id]["validityEndMjdTai"] = time

    def close(self) -> None:
        time = self.moment()
        chosen = self.random.sample(sorted(self.latest), min(len(self.latest), self.random.randrange(4)))
        refused(NotFound, lambda: self.database.close_objects([*chosen, 5], validity_end=time, time=time, must_exist=True))
        asked = [*chosen, *chosen, *sorted(self.ended)[:2], 5]
        closes = [object_id for object_id in set(asked) if object_id in self.latest]
        assert self.database.close_objects(asked, validity_end=time, time=time) == len(closes)
        for object_id in closes:
            self.end(object_id, time)
            del self.latest[object_id]
            self.ended[object_id] = time
        self.updates += len(closes)

    def withdraw(self) -> None:
        time = self.moment()
        chosen = self.random.sample(sorted(self.sources), min(len(self.sources), 3))
        refused(NotFound, lambda: self.database.withdraw_sources([*chosen, 3], withdrawn=time, time=time))
        fresh = [source for source in chosen if self.sources[source]["timeWithdrawnMjdTai"] is None]
        assert self.database.withdraw_sources(chosen * 2, withdrawn=time, time=time) == len(fresh)
        for source in fresh:
            self.sources[source]["timeWithdrawnMjdTai"] = time
        keys = self.random.sample(sorted(self.forced), min(len(self.forced), 3))
        fresh_keys = [key for key in keys if self.forced[key]["timeWithdrawnMjdTai"] is None]
        assert self.database.withdraw_forced_sources(keys, withdrawn=time, time=time) == len(fresh_keys)
        for key in fresh_keys:
            self.forced[key]["timeWithdrawnMjdTai"] = time
        self.updates += len(fresh) + len(fresh_keys)

    def to_solar_system(self) -> None:
        time = self.moment()
        chosen = self.random.sample(sorted(self.sources), min(len(self.sources), 3))
        wanted = {source: self.random.randrange(1, 4) for source in chosen}
        refused(NotFound, lambda: self.database.reassign_to_solar_system(wanted | {3: 1}, time=time))
        changed = [source for source in chosen if self.sources[source]["ss"] != wanted[source]]
        assert self.database.reassign_to_solar_system(wanted, time=time) == len(changed)
        owners = set()
        for source in changed:
            self.sources[source] |= {"ss": wanted[source], "ss_time": time}
            owners.add(self.sources[source]["diaObjectId"])
        for owner in owners - {None}:
            left = [row for row in self.sources.values() if row["diaObjectId"] == owner and row["ss"] is None]
            if not left and owner in self.latest:
                self.end(owner, time)
                del self.latest[owner]
                self.ended[owner] = time
                self.updates += 1
        self.updates += len(changed)

    def to_objects(self) -> None:
        if not self.latest:
            return
        time = self.moment()
        chosen = self.random.sample(sorted(self.sources), min(len(self.sources), 3))
        wanted = {source: self.random.choice(sorted(self.latest)) for source in chosen}
        refused(NotFound, lambda: self.database.reassign_to_objects(wanted | {3: 1}, time=time))
        increment, decrement = self.random.random() < 0.7, self.random.random() < 0.7
        changes: dict[int, int] = {}
        moved = 0
        for source, target in wanted.items():
            row = self.sources[source]
            if row["diaObjectId"] == target and row["ss"] is None:
                continue
            moved += 1
            if increment:
                changes[target] = changes.get(target, 0) + 1
            if decrement and row["ss"] is None and row["diaObjectId"] is not None:
                changes[row["diaObjectId"]] = changes.get(row["diaObjectId"], 0) - 1
        done = self.database.reassign_to_objects(wanted, time=time, increment=increment, decrement=decrement)
        assert done == moved
        for source, target in wanted.items():
            self.sources[source] |= {"diaObjectId": target, "ss": None, "ss_time": None}
        for object_id, change in changes.items():
            if change != 0 and object_id in self.latest:
                row = self.latest[object_id]
                row["nDiaSources"] = max(0, row["nDiaSources"] + change)
                self.updates += 1
        self.updates += moved

    # What is published.

    def state(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of users' tables, in the columns of PUBLISHED_COLUMNS and those that were added."""
        sources = [row | {"ssObjectId": row["ss"], "ssObjectReassocTimeMjdTai": row["ss_time"]} for row in self.sources.values()]
        rows = {
            "DiaObject": self.objects,
            "DiaObjectLast": list(self.latest.values()),
            "DiaSource": sources,
            "DiaForcedSource": list(self.forced.values()),
        }
        return {table: expected(rows[table], self.columns(table, columns)) for table, columns in PUBLISHED_COLUMNS.items()}

    # Reading.

    def check(self) -> None:
        """Compares what is read, of a random region, of random objects and since a random time."""
        ra, dec = self.position()
        radius = self.random.choice([0.0, 0.05, 0.5, 3.0, 180.0])
        since = self.random.uniform(59999.0, self.time + 1)
        for region, holds in (
            (circle(ra, dec, radius), lambda row: separation((ra, dec), (row["ra"], row["dec"])) <= radius),
            (box(359.5, DEC - 0.5, 0.25, DEC + 0.5), lambda row: (row["ra"] >= 359.5 or row["ra"] <= 0.25) and abs(row["dec"] - DEC) <= 0.5),
        ):
            self.check_region(region, holds, since)
        asked = [*self.random.sample(sorted(self.latest), min(len(self.latest), 4)), 5, *list(self.ended)[:2]]
        latest_columns = self.columns("DiaObjectLast", OBJECT_COLUMNS)
        source_columns, forced_columns = self.columns("DiaSource", SOURCE_COLUMNS), self.columns("DiaForcedSource", FORCED_COLUMNS)
        found = self.database.sources(objects=asked * 2, since=since)
        live = [row for row in self.sources.values() if row["ss"] is None and row["midpointMjdTai"] >= since]
        assert rows_of(found, source_columns) == expected([row for row in live if row["diaObjectId"] in asked], source_columns)
        found = self.database.forced_sources(objects=asked, since=since)
        forced = [row for row in self.forced.values() if row["midpointMjdTai"] >= since]
        assert rows_of(found, forced_columns) == expected([row for row in forced if row["diaObjectId"] in asked], forced_columns)
        found = self.database.objects_since(since)
        recent = [row for row in self.latest.values() if row["validityStartMjdTai"] >= since]
        assert rows_of(found, latest_columns) == expected(recent, latest_columns)
        singles = [row for row in self.latest.values() if row["nDiaSources"] == 1]
        assert self.database.count_objects_of_one_source() == len(singles)
        for visit, detector in [*list(self.visits)[-2:], (self.visit + 1, 0)]:
            assert self.database.contains(visit, detector) == ((visit, detector) in self.visits)

    def check_region(self, region: str, holds: Any, since: float) -> None:
        latest_columns = self.columns("DiaObjectLast", OBJECT_COLUMNS)
        source_columns, forced_columns = self.columns("DiaSource", SOURCE_COLUMNS), self.columns("DiaForcedSource", FORCED_COLUMNS)
        found = self.database.latest_objects(region)
        assert rows_of(found, latest_columns) == expected([row for row in self.latest.values() if holds(row)], latest_columns)
        found = self.database.sources(region=region, since=since)
        live = [row for row in self.sources.values() if row["ss"] is None and row["midpointMjdTai"] >= since]
        assert rows_of(found, source_columns) == expected([row for row in live if holds(row)], source_columns)
        found = self.database.forced_sources(region=region, since=since)
        forced = [row for row in self.forced.values() if row["midpointMjdTai"] >= since]
        assert rows_of(found, forced_columns) == expected([row for row in forced if holds(row)], forced_columns)

    def check_chunks(self) -> None:
        """All that was stored and changed is in some replica chunk, once."""
        chunks = [chunk["id"] for chunk in self.database.replica_chunks() or []]
        assert all(chunk % 600 == 0 for chunk in chunks)
        versions = self.database.rows_of_chunks("DiaObject", chunks)
        assert rows_of(versions, ["diaObjectId", "validityStartMjdTai"]) == sorted(self.versions, key=repr)
        spans: dict[int, list[tuple[float, float]]] = {}
        for object_id, start, end in rows_of(versions, ["diaObjectId", "validityStartMjdTai", "validityEndMjdTai"]):
            spans.setdefault(object_id, []).append((start, math.inf if end is None else end))
        for object_id, intervals in spans.items():
            intervals.sort()
            assert all(first[1] <= second[0] for first, second in zip(intervals, intervals[1:], strict=False))
            assert (intervals[-1][1] == math.inf) == (object_id in self.latest)
        stored = self.database.rows_of_chunks("DiaSource", chunks)
        columns = [*SOURCE_COLUMNS, "ssObjectId"]
        all_sources = [row | {"ssObjectId": row["ss"]} for row in self.sources.values()]
        assert rows_of(stored, columns) == expected(all_sources, columns)
        assert self.database.rows_of_chunks("DiaForcedSource", chunks).num_rows == len(self.forced)
        updates = self.database.updates_of_chunks(chunks)
        assert len(updates) == self.updates
        order = [(update["update_time_ns"], update["update_order"]) for update in updates]
        assert order == sorted(set(order))


def expected(rows: list[dict[str, Any]], columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.get(column) for column in columns) for row in rows), key=repr)


def refused(error: type[Exception], call: Any) -> None:
    """Calls what has to fail."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def table_of(rows: list[dict[str, Any]], without: set[str] = frozenset()) -> pa.Table | None:  # type: ignore[assignment]
    """Rows as a table; columns that are NULL everywhere are left out."""
    if not rows:
        return None
    columns = {name: [row[name] for row in rows] for name in rows[0] if name not in without}
    return pa.table({name: values for name, values in columns.items() if any(value is not None for value in values)})
