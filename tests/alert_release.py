"""Releases of alert databases for tests: made up anew, and what a model has to have when one has taken its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from alert_model import Model

SCHEMAS = {
    "DiaObject": pa.schema(
        [
            ("diaObjectId", pa.int64()),
            ("validityStartMjdTai", pa.float64()),
            ("validityEndMjdTai", pa.float64()),
            ("ra", pa.float64()),
            ("dec", pa.float64()),
            ("parallax", pa.float32()),
            ("firstDiaSourceMjdTai", pa.float64()),
            ("nDiaSources", pa.int32()),
        ]
    ),
    "DiaSource": pa.schema(
        [
            ("diaSourceId", pa.int64()),
            ("visit", pa.int64()),
            ("detector", pa.int16()),
            ("diaObjectId", pa.int64()),
            ("ssObjectId", pa.int64()),
            ("parentDiaSourceId", pa.int64()),
            ("ssObjectReassocTimeMjdTai", pa.float64()),
            ("midpointMjdTai", pa.float64()),
            ("ra", pa.float64()),
            ("dec", pa.float64()),
            ("centroid_flag", pa.bool_()),
            ("timeProcessedMjdTai", pa.float64()),
            ("timeWithdrawnMjdTai", pa.float64()),
        ]
    ),
    "DiaForcedSource": pa.schema(
        [
            ("diaObjectId", pa.int64()),
            ("visit", pa.int64()),
            ("detector", pa.int16()),
            ("ra", pa.float64()),
            ("dec", pa.float64()),
            ("midpointMjdTai", pa.float64()),
            ("flags", pa.int64()),
            ("timeProcessedMjdTai", pa.float64()),
            ("timeWithdrawnMjdTai", pa.float64()),
        ]
    ),
}


@dataclass
class Release:
    """A release of what is from before a time."""

    cut: float
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {table: [] for table in SCHEMAS})

    def write(self, directory: Path, files: int = 2) -> Path:
        """Its files, each with a part of the rows of a table; ends are infinite in some, and columns of others come along."""
        for table, schema in SCHEMAS.items():
            (directory / table).mkdir(parents=True)
            for number in range(files):
                rows = [dict(row) for row in self.rows[table][number::files]]
                for row in rows:
                    if table == "DiaObject" and number == 1 and row["validityEndMjdTai"] is None:
                        row["validityEndMjdTai"] = float("inf")
                written = pa.Table.from_pylist(rows, schema)
                extra = pa.array([float(number)] * len(rows))
                pq.write_table(written.append_column("ofNobody", extra), directory / table / f"part-{number}.parquet")
        return directory


def release_of(model: Model, cut: float, first: int) -> Release:
    """A release with some of a model's objects and sources, as others, and new ones, whose numbers begin with `first`."""
    chance, release = model.random, Release(cut)
    begin = min([59000.0, *(start for _, start in model.versions)])
    known = sorted({object_id for object_id, start in model.versions if start < cut})
    chosen = chance.sample(known, len(known) // 2) + [first + number for number in range(12)]
    for object_id in chosen:
        times = sorted(round(chance.uniform(begin, cut - 0.001), 6) for _ in range(chance.randrange(1, 4)))
        for number, start in enumerate(dict.fromkeys(times)):
            later = [time for time in times if time > start]
            if later:
                end = chance.choice([later[0], round((start + later[0]) / 2, 7)])
            else:
                end = chance.choice([None, None, cut])
            ra, dec = model.position()
            first_time = chance.choice([None, start - 100.0])
            values = (object_id, start, end, ra, dec, None, first_time, number + 1)
            release.rows["DiaObject"].append(dict(zip(SCHEMAS["DiaObject"].names, values, strict=True)))
    visits = [(first + number, chance.randrange(189), round(chance.uniform(begin, cut - 0.001), 6)) for number in range(6)]
    old = [(row["visit"], row["detector"], row["midpointMjdTai"]) for row in model.sources.values() if row["midpointMjdTai"] < cut]
    visits += sorted(set(old))[:3]
    numbers = [first * 1000 + number for number in range(25)]
    numbers += [number for number, row in model.sources.items() if row["midpointMjdTai"] < cut][:6]
    for number in numbers:
        visit, detector, time = chance.choice(visits)
        ra, dec = model.position()
        owner = chance.choice([None, *chosen])
        planet = chance.choice([None, None, None, 3])
        withdrawn = chance.choice([None, None, cut])
        values = (number, visit, detector, owner, planet, None, cut if planet else None, time, ra, dec, True, time, withdrawn)
        release.rows["DiaSource"].append(dict(zip(SCHEMAS["DiaSource"].names, values, strict=True)))
    for visit, detector, time in visits:
        for object_id in chance.sample(chosen, min(len(chosen), 3)):
            ra, dec = model.position()
            values = (object_id, visit, detector, ra, dec, time, chance.choice([None, 2**62 + 3]), time, chance.choice([None, cut]))
            release.rows["DiaForcedSource"].append(dict(zip(SCHEMAS["DiaForcedSource"].names, values, strict=True)))
    return release


def take_place(model: Model, release: Release) -> None:
    """What a model has when a release has taken the place of what was before its cut."""
    kept = [row for row in model.objects if row["validityStartMjdTai"] >= release.cut]
    first_kept: dict[int, float] = {}
    for row in kept:
        object_id, start = row["diaObjectId"], row["validityStartMjdTai"]
        first_kept[object_id] = min(start, first_kept.get(object_id, start))
    model.objects = kept
    for given in release.rows["DiaObject"]:
        row = dict(given)
        if row["validityEndMjdTai"] is None:
            row["validityEndMjdTai"] = first_kept.get(row["diaObjectId"])
        model.objects.append(row)
    model.versions = [(row["diaObjectId"], row["validityStartMjdTai"]) for row in model.objects]
    model.latest = {row["diaObjectId"]: row for row in model.objects if row["validityEndMjdTai"] is None}
    ends: dict[int, float] = {}
    for row in model.objects:
        if row["diaObjectId"] not in model.latest:
            ends[row["diaObjectId"]] = max(row["validityEndMjdTai"], ends.get(row["diaObjectId"], 0.0))
    model.ended = ends
    model.sources = {number: row for number, row in model.sources.items() if row["midpointMjdTai"] >= release.cut}
    for row in release.rows["DiaSource"]:
        state = {"ss": row["ssObjectId"], "ss_time": row["ssObjectReassocTimeMjdTai"]}
        columns = {name: value for name, value in row.items() if not name.startswith("ssObject")}
        model.sources[row["diaSourceId"]] = columns | state
    model.forced = {key: row for key, row in model.forced.items() if row["midpointMjdTai"] >= release.cut}
    for row in release.rows["DiaForcedSource"]:
        model.forced[row["diaObjectId"], row["visit"], row["detector"]] = dict(row)
    for table in ("DiaSource", "DiaForcedSource"):
        model.visits |= {(row["visit"], row["detector"]) for row in release.rows[table]}
