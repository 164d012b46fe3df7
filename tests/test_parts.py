"""Tables of several parts: appended, merged, dropped, in any order, beside readers and killed loads, always with DuckDB's answers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pymysql.connections import Connection
from pymysql.cursors import SSCursor

import oracle
from comparison import difference
from complaints import assert_rejected
from meridian_cli import Meridian, Outcome, load_arguments, rows_of
from serving import serving, wait_until
from small_tables import CHILD, DIRECTOR, chunk_files, count_of, extract_version_0_1_0, star_lines, write_lines, write_stars

PHASES = ["begun", "read", "partitioned", "index-written", "chunks-written", "overlap-written", "before-publish"]
STEPS = int(os.environ.get("MERIDIAN_STEPS", "16"))
KEYS = 1500

COLUMNS = {
    "Star": {"id": pa.int64(), "ra": pa.float64(), "dec": pa.float64(), "version": pa.int64()},
    "Spot": {"spot": pa.int64(), "id": pa.int64(), "flux": pa.float64(), "ra": pa.float64(), "dec": pa.float64()},
    "Pairs": {"left_id": pa.int64(), "right_id": pa.int64(), "sep": pa.float64()},
    "Filter": {"f": pa.int64(), "name": pa.string()},
}
OPTIONS: dict[str, dict[str, object]] = {
    "Star": DIRECTOR,
    "Spot": {"ra": "ra", "dec": "dec", "own_key": "spot", **CHILD},
    "Pairs": {"kind": "match", "director": "Star,Star", "key": "left_id,right_id"},
    "Filter": {},
}
QUERIES = [
    "SELECT * FROM Star",
    "SELECT * FROM Spot",
    "SELECT * FROM Pairs",
    "SELECT * FROM Filter",
    "SELECT count(*), sum(t.version), min(s.flux) FROM Spot s JOIN Star t ON s.id = t.id",
    "SELECT t.id, count(s.spot), sum(s.flux) FROM Star t LEFT JOIN Spot s ON s.id = t.id GROUP BY t.id",
    "SELECT id, count(*), max(flux) FROM Spot GROUP BY id",
    "SELECT count(*) FROM Spot s WHERE NOT EXISTS (SELECT 1 FROM Star t WHERE t.id = s.id)",
    "SELECT count(*), sum(sep) FROM Pairs p JOIN Star a ON p.left_id = a.id JOIN Star b ON p.right_id = b.id",
    "SELECT p.left_id, count(*) FROM Pairs p LEFT JOIN Star a ON p.left_id = a.id WHERE a.id IS NULL GROUP BY p.left_id",
    "SELECT count(*) FROM Pairs p JOIN Spot s ON p.right_id = s.id",
    "SELECT left_id, count(*) FROM Pairs GROUP BY left_id",
    "SELECT id FROM Star WHERE scisql_s2PtInCircle(ra, dec, {ra}, {dec}, 25) = 1",
    "SELECT spot FROM Spot WHERE scisql_s2PtInBox(ra, dec, {ra}, -40, {east}, 40) = 1",
    "SELECT t.id, s.spot FROM Star t JOIN Spot s ON s.id = t.id WHERE scisql_s2PtInCircle(t.ra, t.dec, {ra}, {dec}, 30) = 1",
    "SELECT a.id, b.id FROM Star a JOIN Star b ON scisql_angSep(a.ra, a.dec, b.ra, b.dec) < 2.5 WHERE a.id < b.id",
    "SELECT * FROM Star WHERE id IN ({key}, {other}, 3)",
    "SELECT * FROM Spot WHERE id = {key}",
    "SELECT * FROM Star WHERE id = {other}",
    "SELECT s.*, t.version FROM Spot s LEFT JOIN Star t ON s.id = t.id WHERE s.id IN ({key}, {other})",
    "SELECT count(*) FROM Filter f, Spot s WHERE s.spot % 3 = f.f",
]


@dataclass
class History:
    """The tables as they should be: the rows of each part by its number."""

    rng: random.Random
    parts: dict[str, dict[int, list[tuple[object, ...]]]] = field(
        default_factory=lambda: {table: {} for table in COLUMNS}
    )
    next_row: int = 0

    def keys(self) -> set[object]:
        """The keys of the director."""
        return {row[0] for part in self.parts["Star"].values() for row in part}

    def rows(self, table: str, count: int) -> list[tuple[object, ...]]:
        """Rows for one more part, those that will be rejected among them."""
        rng = self.rng
        made: list[tuple[object, ...]] = []
        for _ in range(count):
            self.next_row += 1
            ra, dec = round(rng.uniform(0, 360), 6), round(rng.uniform(-88, 88), 6)
            key = rng.randrange(KEYS)
            if table == "Star":
                made.append((key, ra, dec, rng.randrange(5)))
            elif table == "Spot":
                known = None if rng.random() < 0.05 else key
                made.append((self.next_row, known, round(rng.random(), 6), ra, dec))
            elif table == "Pairs":
                # Of ends that are both known, only the same key twice is surely within the overlap.
                other = KEYS + rng.randrange(50) if rng.random() < 0.3 else key
                made.append((key, other, round(rng.random(), 6)))
            else:
                made.append((self.next_row % 5, f"f{self.next_row}"))
        return made

    def accepted(self, table: str, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        """The rows that a load keeps: of a director, those whose key is new."""
        if table != "Star":
            return rows
        known, kept = self.keys(), []
        for row in rows:
            if row[0] not in known:
                known.add(row[0])
                kept.append(row)
        return kept

    def oracle(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with the same rows."""
        connection = oracle.connect()
        for table, columns in COLUMNS.items():
            rows = [row for part in self.parts[table].values() for row in part]
            arrays = [pa.array([row[at] for row in rows], ty) for at, ty in enumerate(columns.values())]
            connection.register(f"{table}_rows", pa.table(arrays, names=list(columns)))
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM {table}_rows")
        return connection


def write_part(path: Path, table: str, rows: list[tuple[object, ...]]) -> Path:
    """A file with the rows of a part."""
    lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
    return write_lines(path, lines, header=",".join(COLUMNS[table]))


def part_numbers(meridian: Meridian, data: Path, table: str) -> list[int]:
    """The parts of a table, as they are listed."""
    listed = meridian.must("tables", "--data", data, "--parts", "--format", "json").text.splitlines()
    lines = [json.loads(line) for line in listed]
    return [line["part"] for line in lines if line["table"] == table and line["kind"] != "held"]


def listed_parts(meridian: Meridian, data: Path, table: str) -> dict[int, list[int]]:
    """The parts of a table, each with the loads whose rows it has."""
    listed = meridian.must("tables", "--data", data, "--parts", "--format", "json").text.splitlines()
    lines = [json.loads(line) for line in listed]
    return {line["part"]: line.get("merged_from", [line["part"]]) for line in lines if line["table"] == table and line["kind"] != "held"}


def compare(connection: Connection, history: History) -> None:
    """All queries, with constants of this step, beside DuckDB."""
    rng = history.rng
    values = {"ra": rng.randrange(300), "dec": rng.randrange(-60, 60)}
    values |= {"east": values["ra"] + 40, "key": rng.randrange(KEYS), "other": rng.randrange(KEYS)}
    peer = history.oracle()
    with connection.cursor() as cursor:
        for query in QUERIES:
            statement = query.format(**values)
            cursor.execute(statement)
            found = list(cursor.fetchall())
            expected = rows_of(peer.sql(statement).to_arrow_table())
            differs = difference(found, expected)
            assert differs is None, f"{statement}: {differs}\nparts: { {t: list(p) for t, p in history.parts.items()} }"
    peer.close()


def append(meridian: Meridian, data: Path, history: History, table: str, path: Path) -> None:
    """Appends a part, sometimes after one or two attempts that are killed."""
    rng = history.rng
    rows = history.rows(table, rng.choice([1, 5, 40, 200]))
    write_part(path, table, rows)
    arguments = load_arguments(data, "sky", table, path, append=True, max_errors=1000)
    before = part_numbers(meridian, data, table)
    while rng.random() < 0.3:
        phase = rng.choice(PHASES)
        killed = meridian.run(*arguments, env={"MERIDIAN_FAULT": f"{phase}:kill"})
        assert killed.status == -signal.SIGKILL
        assert part_numbers(meridian, data, table) == before
    kept = history.accepted(table, rows)
    outcome = meridian.run(*arguments)
    if not kept:
        assert_rejected(outcome, "key")
        return
    assert outcome.status == 0, outcome.complaint
    (number,) = set(part_numbers(meridian, data, table)) - set(before)
    assert f"Part {number} is appended" in outcome.text
    history.parts[table][number] = kept


def drop(meridian: Meridian, data: Path, history: History, table: str) -> None:
    """Drops a part of a table, which is rejected where others have its keys."""
    part = history.rng.choice(list(history.parts[table]))
    outcome = meridian.run("drop", "part", "--data", data, "--db", "sky", "--table", table, "--part", part)
    keys = {row[0] for row in history.parts[table][part]}
    children = {row[1] for rows in history.parts["Spot"].values() for row in rows}
    ends = {end for rows in history.parts["Pairs"].values() for row in rows for end in row[:2]}
    if len(history.parts[table]) == 1:
        assert_rejected(outcome, "the only one", "drop the table")
    elif table == "Star" and keys & (children | ends):
        assert_rejected(outcome, "cannot be dropped", "Spot" if keys & children else "Pairs")
    else:
        assert outcome.status == 0, outcome.complaint
        del history.parts[table][part]


def compact(meridian: Meridian, data: Path, history: History, table: str) -> None:
    """Merges parts of a table, or of all tables, sometimes after one or two attempts that are killed."""
    rng = history.rng
    only = ["--db", "sky", "--table", table] if rng.random() < 0.7 else []
    every = ["--all"] if rng.random() < 0.5 else []
    arguments = ["compact", "--data", data, "-q", "--memory", rng.choice(["1k", "100M"]), *only, *every]
    before = {name: listed_parts(meridian, data, name) for name in COLUMNS}
    while rng.random() < 0.4:
        killed = meridian.run(*arguments, env={"MERIDIAN_FAULT": f"{rng.choice(PHASES)}:kill"})
        assert killed.status in (-signal.SIGKILL, 0)
        assert killed.status != 0 or "Nothing to merge" in killed.text
        assert {name: listed_parts(meridian, data, name) for name in COLUMNS} == before
    meridian.must(*arguments)
    for name, known in history.parts.items():
        after = listed_parts(meridian, data, name)
        assert sorted(sum(after.values(), [])) == sorted(sum(before[name].values(), []))
        if every and (not only or name == table):
            assert len(after) == 1
        history.parts[name] = {
            part: [row for old, its in before[name].items() if set(its) <= set(origins) for row in known[old]]
            for part, origins in after.items()
        }


@pytest.mark.parametrize("seed", [int(os.environ.get("MERIDIAN_SEED", "20261124"))])
def test_a_history_of_appends_merges_and_drops(meridian: Meridian, tmp_path: Path, seed: int) -> None:
    data, history = tmp_path / "data", History(random.Random(seed))
    for table in ["Star", "Spot", "Pairs", "Filter"]:
        rows = history.accepted(table, history.rows(table, 300))
        meridian.load(data, "sky", table, write_part(tmp_path / f"{table}.csv", table, rows), **OPTIONS[table])
        (part,) = part_numbers(meridian, data, table)
        history.parts[table][part] = rows
    with serving(meridian, data) as server, server.connect(database="sky") as connection:
        compare(connection, history)
        for step in range(STEPS):
            table = history.rng.choice(["Star", "Star", "Spot", "Spot", "Pairs", "Filter"])
            chance = history.rng.random()
            if chance < 0.2:
                drop(meridian, data, history, table)
            elif chance < 0.45:
                compact(meridian, data, history, table)
            else:
                append(meridian, data, history, table, tmp_path / f"{step}.csv")
            compare(connection, history)
    meridian.must("check", "--data", data)
    meridian.must("repartition", "--data", data, "--db", "sky", "--stripes", 9, "--sub-stripes", 3, "-q")
    with serving(meridian, data) as server, server.connect(database="sky") as connection:
        compare(connection, history)
    meridian.must("check", "--data", data)


@pytest.fixture
def stars(meridian: Meridian, tmp_path: Path) -> Path:
    """A data directory with one director of 500 rows."""
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "stars.csv", 500), **DIRECTOR)
    return data


def test_a_key_that_the_table_has_is_rejected_row_by_row(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    more = write_lines(tmp_path / "more.csv", ["499,1,1,9", "500,2,2,9", "501,3,3,9", "501,4,4,9"])
    rejected = meridian.run(*load_arguments(stars, "sky", "Star", more, append=True))
    assert_rejected(rejected, "more.csv:2", "the table has the key 499 already")
    assert count_of(meridian, stars) == 500
    outcome = meridian.load(stars, "sky", "Star", more, append=True, max_errors=2)
    assert "rows rejected 2" in outcome.text and "rows loaded   2" in outcome.text
    assert meridian.rows(stars, "sky", "SELECT id, ra FROM Star WHERE version = 9 ORDER BY id") == [(500, 2.0), (501, 3.0)]


def test_a_key_keeps_its_home(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """A child came before its director's row: the row goes to where the child is, and is found by its own position."""
    spots = write_lines(tmp_path / "spots.csv", ["1,700,0.5,10,10", "2,3,0.5,20,20"], header="spot,id,flux,ra,dec")
    meridian.load(stars, "sky", "Spot", spots, ra="ra", dec="dec", **CHILD)
    outcome = meridian.load(stars, "sky", "Star", write_lines(tmp_path / "late.csv", ["700,200.5,-40.5,3"]), append=True)
    assert "kept homes    1 rows" in outcome.text
    chunks = [meridian.rows(stars, "sky", f"SELECT chunkId FROM {table} WHERE id = 700") for table in ("Star", "Spot")]
    assert chunks[0] == chunks[1]
    for region in ("scisql_s2PtInCircle(ra, dec, 200, -40, 1) = 1", "scisql_s2PtInBox(ra, dec, 200, -41, 201, -40) = 1"):
        assert (700,) in meridian.rows(stars, "sky", f"SELECT id FROM Star WHERE {region}")
    near = "SELECT b.id FROM Star a, Star b WHERE a.id = 700 AND scisql_angSep(a.ra, a.dec, b.ra, b.dec) < 0.01"
    assert meridian.rows(stars, "sky", near) == [(700,)]
    far = "SELECT a.id FROM Star a, Star b WHERE b.id = 700 AND scisql_angSep(a.ra, a.dec, b.ra, b.dec) < 0.01"
    assert meridian.rows(stars, "sky", far) == [(700,)]
    with serving(meridian, stars) as server:
        answer = subprocess.run(
            ["curl", "-s", server.url("/scs/sky/Star", RA=200.5, DEC=-40.5, SR=0.1, RESPONSEFORMAT="csv")],
            capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
    assert "\n700," in answer
    # How wide a pair is does not follow from where its ends are kept.
    beside = write_lines(tmp_path / "beside.csv", ["701,200.5,-40.501,3"])
    meridian.load(stars, "sky", "Star", beside, append=True)
    pairs = write_lines(tmp_path / "p.csv", ["700,701,0.001"], header="left_id,right_id,sep")
    meridian.load(stars, "sky", "Pairs", pairs, kind="match", director="Star,Star", key="left_id,right_id")
    ends = "SELECT a.ra, b.ra FROM Pairs p JOIN Star a ON p.left_id = a.id JOIN Star b ON p.right_id = b.id"
    assert meridian.rows(stars, "sky", ends) == [(200.5, 200.5)]
    joined = "SELECT s.spot, t.version FROM Spot s JOIN Star t ON s.id = t.id WHERE t.id = 700"
    assert meridian.rows(stars, "sky", joined) == [(1, 3)]
    meridian.must("check", "--data", stars)


def test_pairs_of_a_child_stay_right(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """Rows that are appended to a child may have own keys that others have, elsewhere: a pair of such a key is joined with all of them."""
    header = "spot,id,flux,ra,dec"
    spots = write_lines(tmp_path / "spots.csv", ["1,5,0.5,10,10", "2,6,0.25,10.1,10", "3,7,0.75,10.2,10", "4,8,0.75,12,10"], header=header)
    meridian.load(stars, "sky", "Spot", spots, ra="ra", dec="dec", **CHILD)
    links = write_lines(tmp_path / "links.csv", ["1,1,1", "2,3,2", "3,9,3", ",2,4"], header="one,other,link")
    pairs = {"kind": "match", "director": "Spot,Spot", "key": "one,other"}
    meridian.load(stars, "sky", "Link", links, **pairs)
    joined = "SELECT l.link, s.flux FROM Link l JOIN Spot s ON l.other = s.spot ORDER BY 1, 2"
    assert meridian.rows(stars, "sky", joined) == [(1, 0.5), (2, 0.75), (4, 0.25)]
    assert meridian.rows(stars, "sky", "SELECT count(*) FROM Link") == [(4,)]
    meridian.must("repartition", "--data", stars, "--db", "sky", "--stripes", "9")
    assert meridian.rows(stars, "sky", joined) == [(1, 0.5), (2, 0.75), (4, 0.25)]
    more = write_lines(tmp_path / "more.csv", ["3,90,1.5,200,-50", "9,91,2.5,201,-50"], header=header)
    outcome = meridian.load(stars, "sky", "Spot", more, append=True)
    assert "Link has pairs of rows of Spot, which has more rows now" in outcome.text
    assert meridian.rows(stars, "sky", joined) == [(1, 0.5), (2, 0.75), (2, 1.5), (3, 2.5), (4, 0.25)]
    wide = write_lines(tmp_path / "wide.csv", ["1,4,5"], header="one,other,link")
    outcome = meridian.run("load", "--data", stars, "--db", "sky", "--table", "Link", "--append", wide)
    assert_rejected(outcome, "its ends are 1.96", "the overlap of the database is 0.5")
    meridian.must("check", "--data", stars)


def test_pairs_with_an_unknown_end_stay_right(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """The pair lies by its known end; once the other is known too, a join on it no longer takes it for placed by that."""
    pairs = write_lines(tmp_path / "p.csv", ["5,800,0.1", "6,6,0.2", "7,800,0.3"], header="left_id,right_id,sep")
    meridian.load(stars, "sky", "Pairs", pairs, kind="match", director="Star,Star", key="left_id,right_id")
    late = write_lines(tmp_path / "late.csv", ["800,200,-40,3"])
    outcome = meridian.load(stars, "sky", "Star", late, append=True)
    assert "Pairs has pairs with keys that the director did not have" in outcome.text
    joined = "SELECT p.left_id, t.version FROM Pairs p JOIN Star t ON p.right_id = t.id ORDER BY 1"
    assert meridian.rows(stars, "sky", joined) == [(5, 3), (6, 1), (7, 3)]
    grouped = "SELECT right_id, count(*) FROM Pairs GROUP BY right_id ORDER BY 1"
    assert meridian.rows(stars, "sky", grouped) == [(6, 1), (800, 2)]
    assert meridian.rows(stars, "sky", "SELECT left_id FROM Pairs WHERE right_id = 800 ORDER BY 1") == [(5,), (7,)]
    meridian.load(stars, "sky", "Pairs", pairs, append=True, max_errors=2)
    assert meridian.rows(stars, "sky", "SELECT count(*) FROM Pairs p JOIN Star t ON p.left_id = t.id") == [(4,)]
    meridian.must("check", "--data", stars)


def test_pairs_are_settled_by_the_end_that_they_lack(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """Pairs whose left ends alone were unknown were said to have unknown right ones, too, and were not taken for placed by them any more."""
    refs = write_lines(tmp_path / "refs.csv", star_lines(500, 1)[:20])
    meridian.load(stars, "sky", "Ref", refs, key="id", ra="ra", dec="dec")
    links = write_lines(tmp_path / "links.csv", ["5,5,1", "900,6,2"], header="star,ref,link")
    meridian.load(stars, "sky", "Link", links, kind="match", director="Star,Ref", key="star,ref")
    note = "pairs with keys that the director did not have"

    def is_placed_by_refs() -> bool:
        plan = meridian.must("sql", "--data", stars, "--db", "sky", "EXPLAIN SELECT COUNT(*) FROM Link l JOIN Ref t ON l.ref = t.id")
        return "pairs by their right end" in plan.text

    assert is_placed_by_refs()
    more = write_lines(tmp_path / "more.csv", ["1000,20,20,1"])
    assert note not in meridian.load(stars, "sky", "Ref", more, append=True).text
    assert is_placed_by_refs()
    # Also after parts were merged.
    meridian.load(stars, "sky", "Link", write_lines(tmp_path / "other.csv", ["901,7,3"], header="star,ref,link"), append=True)
    meridian.must("compact", "--data", stars, "--db", "sky", "--table", "Link", "--all")
    more = write_lines(tmp_path / "more.csv", ["1001,21,20,1"])
    assert note not in meridian.load(stars, "sky", "Ref", more, append=True).text
    assert is_placed_by_refs()
    late = write_lines(tmp_path / "late.csv", ["900,200,-40,3", "901,201,-40,3"])
    outcome = meridian.load(stars, "sky", "Star", late, append=True)
    assert f"Link has {note}" in outcome.text
    assert is_placed_by_refs()
    joined = "SELECT l.link, s.version, r.id FROM Link l JOIN Star s ON l.star = s.id JOIN Ref r ON l.ref = r.id ORDER BY 1"
    assert meridian.rows(stars, "sky", joined) == [(1, 1, 5), (2, 3, 6), (3, 3, 7)]
    # An unknown right end is one.
    meridian.load(stars, "sky", "Link", write_lines(tmp_path / "last.csv", ["8,2000,4"], header="star,ref,link"), append=True)
    more = write_lines(tmp_path / "more.csv", ["2000,100,-40,7"])
    assert f"Link has {note}" in meridian.load(stars, "sky", "Ref", more, append=True).text
    assert not is_placed_by_refs()
    assert meridian.rows(stars, "sky", joined) == [(1, 1, 5), (2, 3, 6), (3, 3, 7), (4, 1, 2000)]
    meridian.must("check", "--data", stars)


def test_options_that_do_not_fit_the_table(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    more = write_lines(tmp_path / "more.csv", ["600,1,1,9"])

    def rejected(*words: str, path: Path = more, **options: object) -> None:
        assert_rejected(meridian.run(*load_arguments(stars, "sky", "Star", path, append=True, **options)), *words)
        assert count_of(meridian, stars) == 500

    rejected("--key", "it has id", key="ra")
    rejected("--kind", "director", kind="replicated")
    rejected("--director", "none", director="Other", key="id")
    rejected("--schema", "new table", schema=more)
    both = meridian.run(*load_arguments(stars, "sky", "Star", more, append=True, replace=True))
    assert both.status == 2 and "cannot be used with" in both.complaint
    rejected("dec", path=write_lines(tmp_path / "few.csv", ["601,1"], header="id,ra"))
    rejected("bad.csv:2", "version", path=write_lines(tmp_path / "bad.csv", ["602,1,1,nine"]))
    rejected("no rows", path=write_lines(tmp_path / "none.csv", []))
    absent = meridian.run(*load_arguments(stars, "sky", "Nova", more, append=True))
    assert_rejected(absent, "there is no table sky.Nova")
    swapped = write_lines(tmp_path / "swapped.csv", ["9,1.5,600,1"], header="version,dec,id,ra")
    meridian.load(stars, "sky", "Star", swapped, append=True, key="ID")
    assert meridian.rows(stars, "sky", "SELECT * FROM Star WHERE id = 600") == [(600, 1.0, 1.5, 9)]


def test_a_child_of_a_replaced_director_takes_no_more_rows(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    spots = write_lines(tmp_path / "spots.csv", ["1,7", "2,8"], header="spot,id")
    meridian.load(stars, "sky", "Spot", spots, **CHILD)
    meridian.load(stars, "sky", "Star", write_stars(tmp_path / "new.csv", 400), replace=True, **DIRECTOR)
    rejected = meridian.run(*load_arguments(stars, "sky", "Spot", spots, append=True))
    assert_rejected(rejected, "Star was loaded anew after Spot", "--replace")
    meridian.load(stars, "sky", "Spot", spots, replace=True, **CHILD)
    meridian.load(stars, "sky", "Spot", spots, append=True)
    assert count_of(meridian, stars, "Spot") == 4


def test_appends_to_one_table_queue_up(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    outcomes: list[int] = []

    def add(number: int) -> None:
        path = write_lines(tmp_path / f"{number}.csv", [f"{1000 + number},1,1,9", f"{2000 + number},2,2,9"])
        outcomes.append(meridian.run(*load_arguments(stars, "sky", "Star", path, append=True)).status)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [0] * 5
    assert count_of(meridian, stars) == 510 and len(part_numbers(meridian, stars, "Star")) == 6
    meridian.must("check", "--data", stars)


class StoppedLoad:
    """A load or compaction that is stopped when it has read its rows, until it is told to go on."""

    def __init__(self, meridian: Meridian, *arguments: object, phase: str = "read") -> None:
        self.process = meridian.start(*arguments, env={"MERIDIAN_FAULT": f"{phase}:stop"})
        self._wait()

    def _wait(self) -> None:
        state = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T", 60, "is stopped")

    def go_on_until_it_stops_again(self) -> None:
        """Lets it come to the same phase once more."""
        self.process.send_signal(signal.SIGCONT)
        # It takes longer than this to begin again: the locks are looked at every 0.1 s.
        time.sleep(0.1)
        self._wait()

    def go_on(self) -> Outcome:
        """Lets it end."""
        self.process.send_signal(signal.SIGCONT)
        stdout, stderr = self.process.communicate(timeout=60)
        return Outcome(self.process.returncode, stdout, stderr.decode())


def test_a_part_that_is_dropped_while_rows_are_placed_by_it(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """Nobody would know where the rows of its keys are: a look-up by key would find none of them."""
    meridian.load(stars, "sky", "Star", write_lines(tmp_path / "more.csv", ["600,1,1,9"]), append=True)
    _, part = part_numbers(meridian, stars, "Star")
    spots = write_lines(tmp_path / "spots.csv", ["1,600", "2,8"], header="spot,id")
    pairs = write_lines(tmp_path / "pairs.csv", ["600,600,0"], header="left_id,right_id,sep")
    child = StoppedLoad(meridian, *load_arguments(stars, "sky", "Spot", spots, **CHILD))
    match = StoppedLoad(meridian, *load_arguments(stars, "sky", "Pairs", pairs, **OPTIONS["Pairs"]))
    meridian.must("drop", "part", "--data", stars, "--db", "sky", "--table", "Star", "--part", part)
    for load in (child, match):
        assert_rejected(load.go_on(), "sky.Star", "changed meanwhile", "try again")
    meridian.load(stars, "sky", "Spot", spots, **CHILD)
    assert meridian.rows(stars, "sky", "SELECT spot FROM Spot WHERE id = 600") == [(1,)]
    meridian.must("check", "--data", stars)


def test_a_part_that_is_appended_while_rows_are_placed(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """Rows that were orphans when they were read go to the new rows of the director; pairs stay where they are, and it is known."""
    spots = write_lines(tmp_path / "spots.csv", ["1,600", "2,8"], header="spot,id")
    pairs = write_lines(tmp_path / "pairs.csv", ["5,600,0"], header="left_id,right_id,sep")
    child = StoppedLoad(meridian, *load_arguments(stars, "sky", "Spot", spots, **CHILD))
    match = StoppedLoad(meridian, *load_arguments(stars, "sky", "Pairs", pairs, **OPTIONS["Pairs"]))
    late = write_lines(tmp_path / "late.csv", ["600,200,-40,9"])
    meridian.load(stars, "sky", "Star", late, append=True)
    for load in (child, match):
        outcome = load.go_on()
        assert outcome.status == 0, outcome.complaint
    joined = "SELECT s.spot, t.version FROM Spot s JOIN Star t ON s.id = t.id ORDER BY 1"
    assert meridian.rows(stars, "sky", joined) == [(1, 9), (2, 1)]
    assert meridian.rows(stars, "sky", "SELECT t.version FROM Pairs p JOIN Star t ON p.right_id = t.id") == [(9,)]
    assert meridian.rows(stars, "sky", "SELECT left_id FROM Pairs WHERE right_id = 600") == [(5,)]
    meridian.must("check", "--data", stars)


# Merging parts.


def compact_star(data: Path, *more: object) -> list[object]:
    """The arguments of a compaction of one table into one part."""
    return ["compact", "--data", data, "--db", "sky", "--table", "Star", "--all", "-q", *more]


def add_star(meridian: Meridian, data: Path, tmp_path: Path, *keys: int) -> None:
    """Appends a part with these keys."""
    lines = [f"{key},{key % 360},{key % 80},9" for key in keys]
    meridian.load(data, "sky", "Star", write_lines(tmp_path / f"{keys[0]}.csv", lines), append=True)


def test_many_parts_are_told_of_and_merged_by_size(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    for number in range(24):
        path = write_lines(tmp_path / f"night{number}.csv", [f"{1000 + number},1,1,9"])
        outcome = meridian.load(stars, "sky", "Star", path, append=True)
        assert ("Star has 25 parts now" in outcome.text) == (number == 23)
    assert f"meridian compact --data {stars} --db sky --table Star" in outcome.text
    numbers = part_numbers(meridian, stars, "Star")
    expected = meridian.rows(stars, "sky", "SELECT * FROM Star ORDER BY id")
    planned = meridian.must("compact", "--data", stars, "--dry-run").text
    assert "sky.Star would have" in planned and part_numbers(meridian, stars, "Star") == numbers
    done = meridian.must("compact", "--data", stars).text
    assert "sky.Star has " in done and " instead of 25." in done
    (part,) = part_numbers(meridian, stars, "Star")[-1:]
    assert f"part {part}: " in done
    assert meridian.rows(stars, "sky", "SELECT * FROM Star ORDER BY id") == expected
    assert len(list(stars.glob("tables/sky.star/*"))) == len(part_numbers(meridian, stars, "Star")) < 4
    assert "Nothing to merge: 1 table" in meridian.must("compact", "--data", stars, "--db", "SKY").text
    listed = meridian.must("tables", "--data", stars, "--parts").text
    assert f"merged from parts {numbers[0]}-{numbers[-1]}: " in listed and "night0.csv" in listed
    origins = listed_parts(meridian, stars, "Star")[part]
    drop_merged = ("drop", "part", "--data", stars, "--db", "sky", "--table", "Star", "--part", origins[1])
    assert_rejected(meridian.run(*drop_merged), f"part {origins[1]} of table sky.Star", f"merged into part {part}")
    meridian.must("check", "--data", stars)


def test_a_server_merges_many_parts(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """Of a table with more parts than two dozen, by itself; it ends with the server, however that ends."""
    with serving(meridian, stars, "--compact-every", 0.5) as server, server.connect(database="sky") as connection, connection.cursor() as cursor:
        for number in range(24):
            add_star(meridian, stars, tmp_path, 1000 + number)
            assert number == 23 or "compacted" not in server.log
        wait_until(lambda: "compacted" in server.log, 30, "the parts are merged")
        assert len(part_numbers(meridian, stars, "Star")) < 4
        cursor.execute("SELECT COUNT(*), MAX(id) FROM Star WHERE id >= 1000")
        assert cursor.fetchall() == ((24, 1023),)
    meridian.must("check", "--data", stars)
    for wrong in (0, "often"):
        assert_rejected(meridian.run("serve", "--data", stars, "--compact-every", wrong), "compact-every", "above 0", "off is never")


def test_impossible_compactions(meridian: Meridian, stars: Path) -> None:
    def rejected(*arguments: object, words: str, status: int = 1) -> None:
        outcome = meridian.run("compact", *arguments)
        assert outcome.status == status and words in outcome.complaint, outcome.complaint

    rejected("--data", stars, "--db", "ski", words="there is no database ski")
    rejected("--data", stars, "--db", "sky", "--table", "Nova", words="there is no table sky.Nova")
    rejected("--data", stars / "nowhere", words="holds no Meridian data")
    rejected("--data", stars, "--table", "Star", words="--db", status=2)
    rejected("--data", stars, "--rate", "fast", words="or `none`", status=2)


@pytest.mark.parametrize("phase", [*PHASES, "manifest-written", "after-publish"])
def test_a_killed_compaction_leaves_one_list_or_the_other(
    meridian: Meridian, stars: Path, tmp_path: Path, phase: str
) -> None:
    add_star(meridian, stars, tmp_path, 1000, 1001)
    before = part_numbers(meridian, stars, "Star")
    killed = meridian.run(*compact_star(stars), env={"MERIDIAN_FAULT": f"{phase}:kill"})
    assert killed.status == -signal.SIGKILL
    after = part_numbers(meridian, stars, "Star")
    assert (after == before) == (phase != "after-publish") and count_of(meridian, stars) == 502
    add_star(meridian, stars, tmp_path, 1002)
    assert len(list(stars.glob("tables/sky.star/*"))) == len(part_numbers(meridian, stars, "Star"))
    meridian.must(*compact_star(stars))
    assert count_of(meridian, stars) == 503 and len(list(stars.glob("tables/sky.star/*"))) == 1
    meridian.must("check", "--data", stars)


def test_compactions_and_appends_take_turns(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    add_star(meridian, stars, tmp_path, 1000, 1001)
    _, part = part_numbers(meridian, stars, "Star")
    first = StoppedLoad(meridian, *compact_star(stars), phase="before-publish")
    drop_part = ("drop", "part", "--data", stars, "--db", "sky", "--table", "Star", "--part", part)
    assert_rejected(meridian.run(*drop_part), "sky.Star", "compacting Star")
    late = write_lines(tmp_path / "late.csv", ["1002,3,3,9"])
    waiting = meridian.start(*load_arguments(stars, "sky", "Star", late, append=True))
    second = meridian.start(*compact_star(stars))
    replaced = meridian.run(*load_arguments(stars, "sky", "Star", late, replace=True, **DIRECTOR))
    assert_rejected(replaced, "sky.Star", "compacting Star", "wait until")
    assert count_of(meridian, stars) == 502
    assert first.go_on().status == 0
    for process in (waiting, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert count_of(meridian, stars) == 503 and len(part_numbers(meridian, stars, "Star")) <= 2
    assert_rejected(meridian.run(*drop_part), f"part {part}", "merged into")
    meridian.must("check", "--data", stars)


def test_a_table_changes_while_its_parts_are_merged(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """An append is done at once; a merge whose parts are gone is begun again with those that are there."""
    add_star(meridian, stars, tmp_path, 1000, 1001)
    merging = StoppedLoad(meridian, *compact_star(stars))
    add_star(meridian, stars, tmp_path, 1002)
    first, second, third = part_numbers(meridian, stars, "Star")
    other = meridian.start(*compact_star(stars))
    assert count_of(meridian, stars) == 503
    outcome = merging.go_on()
    assert outcome.status == 0, outcome.complaint
    other.communicate(timeout=60)
    assert other.returncode == 0 and len(part_numbers(meridian, stars, "Star")) == 1
    assert count_of(meridian, stars) == 503
    # A part of those that are merged is dropped.
    add_star(meridian, stars, tmp_path, 1003)
    add_star(meridian, stars, tmp_path, 1004)
    merging = StoppedLoad(meridian, *compact_star(stars))
    dropped = part_numbers(meridian, stars, "Star")[1]
    meridian.must("drop", "part", "--data", stars, "--db", "sky", "--table", "Star", "--part", dropped)
    merging.go_on_until_it_stops_again()
    outcome = merging.go_on()
    assert outcome.status == 0, outcome.complaint
    assert len(part_numbers(meridian, stars, "Star")) == 1
    assert meridian.rows(stars, "sky", "SELECT id FROM Star WHERE id > 1000 ORDER BY id") == [(1001,), (1002,), (1004,)]
    assert len(list(stars.glob("tables/sky.star/*"))) == 1
    meridian.must("check", "--data", stars)


def test_a_table_is_replaced_or_dropped_while_its_parts_are_merged(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    add_star(meridian, stars, tmp_path, 1000, 1001)
    merging = StoppedLoad(meridian, *compact_star(stars))
    again = write_lines(tmp_path / "again.csv", ["7,1,1,9", "8,2,2,9"])
    meridian.load(stars, "sky", "Star", again, replace=True, **DIRECTOR)
    outcome = merging.go_on()
    assert outcome.status == 0 and count_of(meridian, stars) == 2, outcome.complaint
    add_star(meridian, stars, tmp_path, 1000)
    merging = StoppedLoad(meridian, *compact_star(stars))
    meridian.must("drop", "table", "--data", stars, "--db", "sky", "--table", "Star", "--yes")
    outcome = merging.go_on()
    assert outcome.status != 0 and "sky.Star" in outcome.complaint
    meridian.load(stars, "sky", "Star", again, **DIRECTOR)
    assert len(list(stars.glob("tables/sky.star/*"))) == 1 and count_of(meridian, stars) == 2
    meridian.must("check", "--data", stars)


def test_a_director_is_compacted_while_rows_are_placed_by_it(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """A load goes by the parts that it began with: merged, they have the same keys in the same places."""
    add_star(meridian, stars, tmp_path, 1000, 1001)
    spots = write_lines(tmp_path / "spots.csv", ["1,1000", "2,8", "3,1002"], header="spot,id")
    pairs = write_lines(tmp_path / "pairs.csv", ["1000,1000,0", "5,1002,0"], header="left_id,right_id,sep")
    child = StoppedLoad(meridian, *load_arguments(stars, "sky", "Spot", spots, **CHILD))
    match = StoppedLoad(meridian, *load_arguments(stars, "sky", "Pairs", pairs, **OPTIONS["Pairs"]))
    add_star(meridian, stars, tmp_path, 1002)
    meridian.must(*compact_star(stars))
    for load in (child, match):
        outcome = load.go_on()
        assert outcome.status == 0, outcome.complaint
    joined = "SELECT s.spot, t.version FROM Spot s JOIN Star t ON s.id = t.id ORDER BY 1"
    assert meridian.rows(stars, "sky", joined) == [(1, 9), (2, 1), (3, 9)]
    assert meridian.rows(stars, "sky", "SELECT spot FROM Spot WHERE id = 1002") == [(3,)]
    ends = "SELECT p.left_id FROM Pairs p JOIN Star t ON p.right_id = t.id ORDER BY 1"
    assert meridian.rows(stars, "sky", ends) == [(5,), (1000,)]
    # What has come since is among what was merged: the pair with its key lies by the other end.
    late = write_lines(tmp_path / "late_pairs.csv", ["5,1003,0", "1002,1002,0"], header="left_id,right_id,sep")
    again = StoppedLoad(meridian, *load_arguments(stars, "sky", "Again", late, **OPTIONS["Pairs"]))
    add_star(meridian, stars, tmp_path, 1003)
    meridian.must(*compact_star(stars))
    assert again.go_on().status == 0
    assert meridian.rows(stars, "sky", "SELECT left_id FROM Again WHERE right_id = 1003") == [(5,)]
    assert meridian.rows(stars, "sky", "SELECT p.left_id FROM Again p JOIN Star t ON p.right_id = t.id WHERE t.id = 1003") == [(5,)]
    meridian.must("check", "--data", stars)


def test_readers_finish_with_the_parts_that_they_began_with(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    keys = range(1000, 41000)
    lines = [f"{key},{key % 360},{key % 80},9" for key in keys]
    meridian.load(stars, "sky", "Star", write_lines(tmp_path / "many.csv", lines), append=True)
    with serving(meridian, stars) as server, server.connect(database="sky", cursorclass=SSCursor) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT a.id, b.id FROM Star a, Star b WHERE b.id < 20")
            first = cursor.fetchmany(10)
            outcome = meridian.must(*compact_star(stars))
            assert "still read" in outcome.text
            held = listed_held(meridian, stars)
            rest = cursor.fetchall()
            assert len(first) + len(rest) == 40500 * 20
            cursor.execute("SELECT count(*), sum(id) FROM Star")
            assert list(cursor.fetchall()) == [(40500, sum(keys) + sum(range(500)))]
        assert held["table"] == [["sky", "Star", "held", *held["table"][0][3:-1], "2"]]
        (size,) = {line["bytes"] for line in held["json"]}
        assert held["json"] == [{"database": "sky", "table": "Star", "kind": "held", "bytes": size, "parts": 2}] and size > 10_000
        assert held["csv"] == [f"sky,Star,held,,,{size},2,"]
        assert sum(line["bytes"] for line in held["parts"]) == size and len({line["part"] for line in held["parts"]}) == 2
        wait_until(lambda: len(list(stars.glob("tables/sky.star/*"))) == 1, 60, "the server removes the merged parts")
        assert "held" not in meridian.must("tables", "--data", stars).text


def listed_held(meridian: Meridian, data: Path) -> dict[str, list[Any]]:
    """What is listed of files that queries still read, in each format."""
    listed = {format: meridian.must("tables", "--data", data, "--format", format).text.splitlines() for format in ("table", "csv", "json")}
    parts = meridian.must("tables", "--data", data, "--parts", "--format", "json").text.splitlines()
    held: dict[str, list[Any]] = {"table": [line.split() for line in listed["table"] if " held " in line]}
    held["csv"] = [line for line in listed["csv"] if ",held," in line]
    for name, lines in (("json", listed["json"]), ("parts", parts)):
        held[name] = [line for line in map(json.loads, lines) if line["kind"] == "held"]
    return held


# Taking things away.


def test_parts_are_listed_and_explained(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    more = write_lines(tmp_path / "night 2.csv", ["600,1,1,9"])
    meridian.load(stars, "sky", "Star", more, append=True)
    table = meridian.must("tables", "--data", stars).text.splitlines()
    assert table[0].split() == ["database", "table", "kind", "rows", "chunks", "bytes", "parts", "loaded"]
    assert table[1].split()[:4] == ["sky", "Star", "director", "501"]
    parts = meridian.must("tables", "--data", stars, "--parts", "--format", "json").text.splitlines()
    first, second = (json.loads(line) for line in parts)
    assert (first["rows"], second["rows"]) == (500, 1) and first["from"].endswith("stars.csv")
    assert second["from"].endswith("night 2.csv") and first["part"] < second["part"]
    region = "scisql_s2PtInCircle(ra, dec, 200, -40, 1) = 1"
    explained = meridian.must("sql", "--data", stars, "--db", "sky", f"EXPLAIN SELECT count(dec) FROM Star WHERE {region}").text
    assert "1 of 2 parts of Star" in explained, explained


def test_a_dropped_table_is_gone_and_its_readers_finish(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    spots = write_lines(tmp_path / "spots.csv", ["1,7", "2,8"], header="spot,id")
    meridian.load(stars, "sky", "Spot", spots, **CHILD)
    drop_star = ("drop", "table", "--data", stars, "--db", "sky", "--table", "Star", "--yes")
    assert_rejected(meridian.run(*drop_star), "Spot has its keys", "drop it first")
    with serving(meridian, stars) as server, server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM Spot")
        outcome = meridian.must("drop", "table", "--data", stars, "--db", "sky", "--table", "spot")
        assert "sky.Spot is dropped: 2 rows" in outcome.text and "still read" in outcome.text
        assert len(chunk_files(stars)) > 0
        with pytest.raises(Exception, match="1146"):
            cursor.execute("SELECT count(*) FROM Spot")
        dropped = meridian.must(*drop_star)
        assert "sky.Star is dropped" in dropped.text
    again = meridian.run(*drop_star)
    assert_rejected(again, "there is no table sky.Star")
    meridian.load(stars, "sky", "Star", write_stars(tmp_path / "new.csv", 3), **DIRECTOR)
    assert count_of(meridian, stars) == 3 and len(list(stars.glob("tables/*/*"))) == 1
    dropped = meridian.must("drop", "database", "--data", stars, "--db", "SKY")
    assert "database SKY with 1 table is dropped" in dropped.text
    assert meridian.must("tables", "--data", stars).text.count("\n") == 1
    assert_rejected(meridian.run("drop", "database", "--data", stars, "--db", "sky"), "there is no database sky")
    assert not list(stars.glob("tables/*/*")), "the files are gone"


def test_a_server_lets_go_of_dropped_tables(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """Nobody asks for a dropped table again: its files would have stayed on the disk as long as the server runs."""
    meridian.load(stars, "sky", "Other", write_lines(tmp_path / "o.csv", ["1"], header="a"))
    with serving(meridian, stars) as server, server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(ra) FROM Star")
        assert "still read" in meridian.must("drop", "table", "--data", stars, "--db", "sky", "--table", "Star").text
        wait_until(lambda: not list(stars.glob("tables/sky.star/*")), 60, "the server removes its files")
        meridian.load(stars, "sky", "Other", tmp_path / "o.csv", append=True)
        cursor.execute("SELECT count(*) FROM Other")
        assert cursor.fetchall() == ((2,),)


# Directories of older programs.


def test_a_directory_of_version_0_1_0(meridian: Meridian, tmp_path: Path) -> None:
    """Opened in place, without a chunk file being written, and appended to."""
    data = extract_version_0_1_0(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in chunk_files(data)}
    assert meridian.rows(data, "sky", "SELECT count(*) FROM Object o JOIN Source s ON o.objectId = s.objectId") == [(3,)]
    assert meridian.rows(data, "sky", "SELECT name FROM Object WHERE objectId = 3") == [("c",)]
    assert meridian.rows(data, "sky", "SELECT count(*) FROM Pairs p JOIN Object o ON p.b = o.objectId") == [(1,)]
    meridian.must("check", "--data", data)
    more = write_lines(tmp_path / "more.csv", ["99,50.0,50.0,z", "5,1.0,1.0,e"], header="objectId,ra,decl,name")
    outcome = meridian.load(data, "sky", "Object", more, append=True)
    assert "kept homes    1 rows" in outcome.text and "Pairs has pairs" in outcome.text
    sources = write_lines(tmp_path / "s.csv", ["9,99,50.0,50.0", "10,5,1.0,1.0"], header="sourceId,objectId,ra,decl")
    meridian.load(data, "sky", "Source", sources, append=True)
    joined = "SELECT s.sourceId, o.name FROM Object o JOIN Source s ON o.objectId = s.objectId ORDER BY 1"
    assert meridian.rows(data, "sky", joined) == [(1, "a"), (2, "a"), (3, "c"), (4, "z"), (9, "z"), (10, "e")]
    assert meridian.rows(data, "sky", "SELECT o.name FROM Pairs p JOIN Object o ON p.b = o.objectId ORDER BY 1") == [("b",), ("z",)]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    meridian.must("check", "--data", data)
