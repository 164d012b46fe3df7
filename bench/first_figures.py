#!/usr/bin/env python3
"""Loads the benchmark catalogue into Meridian and into DuckDB and asks both the same questions.

    bench/first_figures.py --catalogue DIR --work DIR --meridian target/release/meridian > docs/first-figures.md

DIR/Object/*.parquet and DIR/Source/*.parquet are what make_benchmark_catalogue.py writes. Each question is asked
several times with other constants each time, the two taking turns; times are of the query alone, in a process that is
warm. The answers are compared. The report goes to standard output, what is going on to standard error.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import os
import platform
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

# Right ascensions and declinations that the catalogue covers throughout.
PATCH = (0.1, 20.0, -9.9, 9.9)
MAG = "scisql_fluxToAbMag"
MACROS = """
CREATE MACRO scisql_fluxToAbMag(f) AS CASE WHEN f > 0 THEN -2.5 * log10(f::DOUBLE) - 48.6 END;
CREATE MACRO scisql_angSep(ra1, dec1, ra2, dec2) AS degrees(2 * asin(least(1, sqrt(
    sin(radians(dec2 - dec1) / 2) ** 2
    + cos(radians(dec1)) * cos(radians(dec2)) * sin(radians(ra2 - ra1) / 2) ** 2))));
"""


@dataclass
class Question:
    """One question: its name and, for a round's random numbers, its text in either SQL."""

    name: str
    meridian: str
    duckdb: str
    rounds: int = 7
    times: dict[str, list[float]] = field(default_factory=lambda: {"Meridian": [], "DuckDB": []})


CONE_BOX = (
    "decl_PS BETWEEN {dec} - 0.0167 AND {dec} + 0.0167"
    " AND ra_PS BETWEEN {ra} - 0.0167 / cos(radians({dec})) AND {ra} + 0.0167 / cos(radians({dec}))"
)


def both(name: str, text: str, rounds: int = 7) -> Question:
    return Question(name, text, text, rounds)


QUESTIONS = [
    both("LV1: all columns of one object", "SELECT * FROM Object WHERE objectId = {key}"),
    both(
        "LV2: light curve of one object",
        f"SELECT taiMidPoint, {MAG}(psfFlux) AS mag, ra, decl FROM Source WHERE objectId = {{key}}",
    ),
    both(
        "LV3: count in 1 square degree with colour cuts",
        "SELECT count(*) AS n FROM Object WHERE ra_PS BETWEEN {ra} AND {ra} + 1 AND decl_PS BETWEEN {dec} AND {dec} + 1"
        f" AND {MAG}(zFlux_PS) BETWEEN 21 AND 21.5 AND {MAG}(gFlux_PS) - {MAG}(rFlux_PS) BETWEEN 0.3 AND 0.4",
    ),
    Question(
        "cone of 60 arcsec, all columns",
        "SELECT * FROM Object WHERE scisql_s2PtInCircle(ra_PS, decl_PS, {ra}, {dec}, 0.016666666666666666) = 1",
        f"SELECT * FROM Object WHERE {CONE_BOX} AND scisql_angSep(ra_PS, decl_PS, {{ra}}, {{dec}}) <= 0.016666666666666666",
    ),
    both("HV1: count of all objects", "SELECT count(*) AS n FROM Object"),
    both(
        "HV2: colour cut over all objects, 9 columns out",
        "SELECT objectId, ra_PS, decl_PS, uFlux_PS, gFlux_PS, rFlux_PS, iFlux_PS, zFlux_PS, yFlux_PS FROM Object"
        f" WHERE {MAG}(iFlux_PS) - {MAG}(zFlux_PS) > {{cut}}",
    ),
    both(
        "HV2b: count by magnitude",
        f"SELECT count(*) AS n FROM Object WHERE {MAG}(zFlux_PS) BETWEEN {{mag}} AND {{mag}} + 1",
    ),
    both("sum of a flux by flags", "SELECT flags, count(*) AS n FROM Object WHERE gFlux_PS > {flux} GROUP BY flags"),
    both(
        "SHV2: Object joined with Source in 30 square degrees",
        "SELECT count(*) AS n, avg(s.psfFlux) AS flux FROM Object o JOIN Source s ON o.objectId = s.objectId"
        " WHERE o.ra_PS BETWEEN {ra5} AND {ra5} + 6 AND o.decl_PS BETWEEN {dec5} AND {dec5} + 5",
        rounds=5,
    ),
    both(
        "sources of each object, the ten with most",
        "SELECT objectId, count(*) AS n, avg(psfFlux) AS flux FROM Source WHERE psfFlux > {flux}"
        " GROUP BY objectId ORDER BY n DESC, objectId LIMIT 10",
        rounds=3,
    ),
]


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_load(command: list[str]) -> tuple[float, float]:
    """Seconds and peak gigabytes of memory of a loading program."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    return time.monotonic() - start, usage.ru_maxrss / 2**20


def load_meridian(program: Path, catalogue: Path, data: Path) -> list[tuple[str, float, float, int]]:
    shutil.rmtree(data, ignore_errors=True)
    tables = {
        "Object": ["--key", "objectId", "--ra", "ra_PS", "--dec", "decl_PS"],
        "Source": ["--director", "Object", "--key", "objectId", "--ra", "ra", "--dec", "decl"],
    }
    figures = []
    for table, options in tables.items():
        files = sorted(str(f) for f in (catalogue / table).glob("*.parquet"))
        log(f"loading {table} into Meridian")
        command = [str(program), "load", "--data", str(data), "--db", "bench", "--table", table, *options, *files]
        seconds, memory = run_load(command)
        size = sum(f.stat().st_size for f in data.rglob("*") if f.is_file()) - sum(f[3] for f in figures)
        figures.append((table, seconds, memory, size))
    return figures


LOAD_DUCKDB = """
import duckdb, sys
database, catalogue, table, order = sys.argv[1:]
connection = duckdb.connect(database, config={"threads": 2})
connection.execute("SET preserve_insertion_order = false")
connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{catalogue}/{table}/*.parquet' ORDER BY {order}")
connection.execute("CHECKPOINT")
"""


def load_duckdb(catalogue: Path, database: Path) -> list[tuple[str, float, float, int]]:
    database.unlink(missing_ok=True)
    figures = []
    # Sorted as its own manual recommends for range queries: by position in fine bands, light curves together.
    orders = {"Object": "floor(decl_PS * 4), floor(ra_PS * 4), objectId", "Source": "objectId, taiMidPoint"}
    for table, order in orders.items():
        log(f"loading {table} into DuckDB")
        command = [sys.executable, "-c", LOAD_DUCKDB, str(database), str(catalogue), table, order]
        seconds, memory = run_load(command)
        figures.append((table, seconds, memory, database.stat().st_size - sum(f[3] for f in figures)))
    return figures


def constants(rng: random.Random, bounds: tuple[float, float, float, float], keys: list[int]) -> dict[str, object]:
    ra_min, ra_max, dec_min, dec_max = bounds
    return {
        "key": rng.choice(keys),
        "ra": round(rng.uniform(ra_min + 0.1, ra_max - 1.1), 6),
        "dec": round(rng.uniform(dec_min + 0.1, dec_max - 1.1), 6),
        "ra5": round(rng.uniform(ra_min, ra_max - 6), 6),
        "dec5": round(rng.uniform(dec_min, dec_max - 5), 6),
        "cut": round(rng.uniform(1.95, 2.05), 4),
        "mag": round(rng.uniform(24.8, 25.0), 4),
        "flux": rng.uniform(0.9, 1.1) * 1e-30,
    }


def ask_meridian(program: Path, data: Path, texts: list[str]) -> tuple[list[float], list[list[list[str]]]]:
    """Asks all texts in one process; gives the seconds and the rows of each."""
    command = [str(program), "sql", "--data", str(data), "--db", "bench", "--format", "csv"]
    marker = "SELECT 'next answer' AS marker"
    done = subprocess.run(command, input=f";{marker};".join(texts), text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"Meridian: {done.stderr}")
    times = [seconds(t) for t in re.findall(r"rows? in (.*)", done.stderr)][::2]
    answers = done.stdout.split("marker\nnext answer\n")
    return times, [list(csv.reader(io.StringIO(answer)))[1:] for answer in answers]


def seconds(text: str) -> float:
    number, unit = text.split()[:2]
    return float(number) * {"ms": 1e-3, "s": 1.0}[unit]


def ask_duckdb(connection: duckdb.DuckDBPyConnection, text: str) -> tuple[float, list[tuple]]:
    start = time.perf_counter()
    rows = connection.execute(text).fetchall()
    return time.perf_counter() - start, rows


def same(ours: list[list[str]], theirs: list[tuple]) -> bool:
    """Whether the rows are the same, in whatever order, floats but for the digits of single precision."""

    def number(value: object) -> float | str:
        if value is None or value == "":
            return -math.inf
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return str(value)

    def ordered(rows: list) -> list[list[float | str]]:
        return sorted([number(value) for value in row] for row in rows)

    def close(a: float | str, b: float | str) -> bool:
        if isinstance(a, str) or isinstance(b, str):
            return a == b
        return a == b or math.isclose(a, b, rel_tol=1e-6)

    pairs = list(zip(ordered(ours), ordered(theirs), strict=False))
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(map(close, a, b)) for a, b in pairs
    )


def compare(program: Path, data: Path, database: Path, seed: int) -> list[str]:
    connection = duckdb.connect(str(database), read_only=True, config={"threads": 2})
    for macro in MACROS.strip().split(";\n"):
        connection.execute(macro.replace("CREATE MACRO", "CREATE TEMP MACRO"))
    keys = [row[0] for row in connection.execute("SELECT objectId FROM Object USING SAMPLE 200").fetchall()]
    rng = random.Random(seed)
    lines = []
    for question in QUESTIONS:
        rounds = [constants(rng, PATCH, keys) for _ in range(question.rounds)]
        # One round more, first, is for warming up and is not counted.
        texts = [question.meridian.format(**numbers) for numbers in [*rounds[:1], *rounds]]
        times, answers = ask_meridian(program, data, texts)
        question.times["Meridian"] = times[1:]
        for numbers, ours in zip([*rounds[:1], *rounds], answers, strict=True):
            took, theirs = ask_duckdb(connection, question.duckdb.format(**numbers))
            question.times["DuckDB"].append(took)
            if not same(ours, theirs):
                raise SystemExit(f"{question.name}: the answers differ for {numbers}: {len(ours)} and {len(theirs)} rows")
        question.times["DuckDB"] = question.times["DuckDB"][1:]
        lines.append(line(question, len(answers[-1])))
        log(lines[-1])
    return lines


def line(question: Question, rows: int) -> str:
    ours, theirs = question.times["Meridian"], question.times["DuckDB"]

    def figures(times: list[float]) -> str:
        return f"{statistics.median(times) * 1e3:,.1f} ({min(times) * 1e3:,.1f})"

    ratio = statistics.median(theirs) / statistics.median(ours)
    return f"| {question.name} | {rows:,} | {figures(ours)} | {figures(theirs)} | {ratio:.2f} |"


def machine() -> str:
    model = next((li.split(":")[1].strip() for li in open("/proc/cpuinfo") if li.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--catalogue", type=Path, required=True, help="what make_benchmark_catalogue.py wrote")
    parser.add_argument("--work", type=Path, required=True, help="directory for both databases")
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="use the databases of an earlier run")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    data, database = options.work / "meridian", options.work / "duckdb.db"
    loads: list[str] = []
    if not options.keep:
        contenders = [
            ("Meridian", load_meridian(options.meridian, options.catalogue, data)),
            ("DuckDB", load_duckdb(options.catalogue, database)),
        ]
        for name, figures in contenders:
            loads += [f"| {name} | {t} | {s:,.0f} | {m:.1f} | {b / 1e9:.2f} |" for t, s, m, b in figures]
    lines = compare(options.meridian, data, database, options.seed)
    print(f"Machine: {machine()}. DuckDB {duckdb.__version__}.\n")
    if loads:
        print("| | table | load, s | peak memory, GiB | on disk, GB |\n|---|---|---|---|---|")
        print("\n".join(loads) + "\n")
    print("| question | rows | Meridian, ms: median (least) | DuckDB, ms: median (least) | DuckDB / Meridian |")
    print("|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
