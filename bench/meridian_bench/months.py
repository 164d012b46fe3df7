"""A month of a nightly alert database, as merges by size leave it and sorted: writes MONTHS.md.

What is counted are the bytes that a server reads which has read nothing before: they depend on the files, not on the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import urllib.request
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path

import numpy
import pyarrow as pa
from meridian_apdb import AlertDatabase

from .markdown import markdown_table
from .served import served

BENCH = Path(__file__).resolve().parent.parent
SCHEMA = BENCH.parent / "tests" / "level1" / "schema.yaml"
# Fields of a square degree, in rows of four, and the objects of each.
FIELDS, OBJECTS = 12, 500
# Publications of a night, and the fields that each has.
EDITIONS, FIELDS_OF_EDITION = 4, 2
MEASUREMENTS = 40
# Parts from which on a server merges.
MANY = 25
FIRST_NIGHT = 61314.1
TABLE = "DiaSourceStored"
# What is merged, this program merges.
OPTIONS = ("--compact-every", "off", "--result-cache", "off")


@dataclass(frozen=True)
class Reads:
    """What a statement has read, on average, and of how many parts the table of sources was."""

    parts: float
    kilobytes: float


class Sky:
    """Objects, of which each visit of their field has a version, a source and a forced source."""

    def __init__(self) -> None:
        self.random = numpy.random.default_rng(7)
        fields = numpy.repeat(numpy.arange(FIELDS), OBJECTS)
        self.ra = 150 + fields % 4 + self.random.uniform(0, 1, fields.size)
        self.dec = fields // 4 + self.random.uniform(0, 1, fields.size)
        self.sources, self.visits = count(1), count(1)

    def measured(self) -> dict[str, pa.Array]:
        return {f"f{at:02}": pa.array(self.random.normal(100, 10, OBJECTS).astype("f4")) for at in range(MEASUREMENTS)}

    def visit(self, database: AlertDatabase, field: int, time: float) -> None:
        at = numpy.arange(field * OBJECTS, (field + 1) * OBJECTS)
        ra, dec = (where[at] + self.random.normal(0, 1e-5, OBJECTS) for where in (self.ra, self.dec))
        objects = {"diaObjectId": pa.array(at + 1, pa.int64()), "ra": ra, "dec": dec}
        visit = {"visit": pa.array([next(self.visits)] * OBJECTS, pa.int64()), "detector": pa.array([field] * OBJECTS, pa.int16())}
        times = {"midpointMjdTai": [time] * OBJECTS, "timeProcessedMjdTai": [time] * OBJECTS}
        forced = {**objects, **visit, **times}
        numbers = pa.array([next(self.sources) for _ in at], pa.int64())
        database.store(
            time,
            objects=pa.table({**objects, "nDiaSources": pa.array([1] * OBJECTS, pa.int32()), **self.measured()}),
            sources=pa.table({"diaSourceId": numbers, **forced, **self.measured()}),
            forced_sources=pa.table(forced),
        )

    def statements(self, number: int) -> dict[str, list[str]]:
        chosen = numpy.random.default_rng(9).choice(self.ra.size, number, replace=False)
        within = [f"scisql_s2PtInCircle(ra, `dec`, {float(self.ra[at])!r}, {float(self.dec[at])!r}, 0.0167) = 1" for at in chosen]
        return {
            "a light curve, three columns": [f"SELECT midpointMjdTai, f00, f01 FROM DiaSource WHERE diaObjectId = {at + 1} ORDER BY 1" for at in chosen],
            "a light curve, all columns": [f"SELECT * FROM DiaSource WHERE diaObjectId = {at + 1} ORDER BY midpointMjdTai" for at in chosen],
            "a cone of sources, one arcminute": [f"SELECT diaSourceId, diaObjectId, f00 FROM DiaSource WHERE {cone} ORDER BY 1" for cone in within],
        }


def schema_of(directory: Path) -> Path:
    """The schema of the tests, with measurements."""
    lines, table = [], ""
    for line in SCHEMA.read_text().splitlines():
        lines.append(line)
        table = line.split(":")[1].strip() if line.startswith("- name:") else table
        if line.strip() == "columns:" and table in ("DiaObject", "DiaSource"):
            lines += [f"  - {{name: f{at:02}, datatype: float, nullable: true}}" for at in range(MEASUREMENTS)]
    path = directory / "schema.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def answer(address: str, statement: str) -> bytes:
    body = json.dumps({"statement": statement, "database": "prompt"}).encode()
    with urllib.request.urlopen(f"{address}/sql?format=csv", body, timeout=120) as response:
        return bytes(response.read())


def read_so_far(process: int) -> float:
    """Kilobytes that a process has read, of files or of what the system keeps of them."""
    lines = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    return int(lines["rchar"]) / 1e3


def measure(program: Path, data: Path, sky: Sky, number: int) -> tuple[dict[str, Reads], list[bytes]]:
    """What statements read, and their answers. Each is the first one of a server, which has planned it."""
    listed = subprocess.run([program, "tables", "--data", data, "--parts", "--format", "json"], check=True, capture_output=True, text=True).stdout
    tables = [json.loads(line) for line in listed.splitlines()]
    parts = sum(line["table"] == TABLE and "loaded" in line for line in tables)
    found, answers = {}, []
    for name, statements in sky.statements(number).items():
        read = []
        for statement in statements:
            with served(program, data, *OPTIONS) as server:
                answer(server.address, f"EXPLAIN {statement}")
                before = read_so_far(server.process)
                answers.append(answer(server.address, statement))
                read.append(read_so_far(server.process) - before)
        found[name] = Reads(parts, statistics.mean(read))
    return found, answers


def mean_of(states: list[dict[str, Reads]]) -> dict[str, Reads]:
    def of(name: str) -> Reads:
        found = [state[name] for state in states]
        return Reads(*(statistics.mean(getattr(it, what) for it in found) for what in ("parts", "kilobytes")))

    return {name: of(name) for name in states[0]}


def run(options: argparse.Namespace) -> tuple[list[dict[str, Reads]], dict[str, Reads]]:
    """What is read on the last nights, and when all parts are one."""
    program, data = options.meridian.resolve(), options.work / "data"
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    create = [program, "alerts", "create", "prompt", "--data", data, "--schema", schema_of(options.work), "--replica"]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
    compact = [program, "compact", "--data", data, "--rate", "none", "--quiet"]
    sky, states, answers = Sky(), [], []
    for night in range(options.nights):
        with served(program, data, *OPTIONS) as server:
            database = AlertDatabase(server.address, "prompt")
            fields = sky.random.permutation(FIELDS)
            for edition in range(EDITIONS):
                for place in range(FIELDS_OF_EDITION):
                    field = int(fields[edition * FIELDS_OF_EDITION + place])
                    sky.visit(database, field, FIRST_NIGHT + night + 0.05 * edition + 0.01 * place)
                database.publish()
        subprocess.run([*compact, "--min-parts", str(MANY)], check=True, stdout=subprocess.DEVNULL)
        if night >= options.nights - options.states:
            state, answers = measure(program, data, sky, options.statements)
            states.append(state)
            print(f"night {night + 1}: {state}", flush=True)
    subprocess.run([*compact, "--all"], check=True, stdout=subprocess.DEVNULL)
    after, same = measure(program, data, sky, options.statements)
    assert same == answers, "an answer has changed"
    return states, after


def page(options: argparse.Namespace, states: list[dict[str, Reads]], after: dict[str, Reads]) -> list[str]:
    def parts(state: dict[str, Reads]) -> float:
        return next(iter(state.values())).parts

    most, mean = max(states, key=parts), mean_of(states)
    headings = ["read, kB", f"{parts(most):.0f} parts", f"{parts(mean):.1f} parts, the mean", "sorted"]

    def row(name: str) -> list[str]:
        sorted_ = after[name].kilobytes
        told = (f"{state[name].kilobytes:,.0f} ({state[name].kilobytes / sorted_:.1f} x)" for state in (most, mean))
        return [name, *told, f"{sorted_:,.0f}"]

    return [
        "# A month of a nightly alert database, sorted",
        "",
        "Written by `make bench-months`; see [README.md](README.md).",
        "",
        f"{date.today()}. {options.nights} nights of {EDITIONS} publications, {EDITIONS * FIELDS_OF_EDITION * OBJECTS:,} sources of {FIELDS * OBJECTS:,} objects a night. "
        f"Parts are merged by their sizes at the end of each night. Reads are counted on the last {len(states)} nights: on the one with the most parts of the table of sources, and "
        "on average; and when all parts are one, as the sort of a month makes it. Each is of a server that has read nothing before.",
        "",
        *markdown_table(headings, [row(name) for name in after]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="a directory for the data, which is emptied")
    parser.add_argument("--out", type=Path, default=BENCH, help="where MONTHS.md is written")
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--states", type=int, default=8, help="the last nights on which reads are counted")
    parser.add_argument("--statements", type=int, default=4, help="statements of each kind")
    options = parser.parse_args()
    states, after = run(options)
    (options.out / "MONTHS.md").write_text("\n".join(page(options, states, after)))


if __name__ == "__main__":
    main()
