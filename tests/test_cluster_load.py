"""Loads by the workers of a cluster: what they make is what one machine makes of the same files, or nothing at all."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster_members import Cluster
from meridian_cli import Meridian, Outcome, load_arguments
from serving import wait_until
from small_tables import DIRECTOR, load_stars_and_bands, star_lines, write_lines

STARS = 6000
CHILD = {"kind": "child", "key": "id", "own_key": "visit", "director": "Star", "ra": "ra", "dec": "dec"}


@contextmanager
def loading_cluster(meridian: Meridian, directory: Path, workers: int = 3, **options: object) -> Iterator[Cluster]:
    """A cluster of an archive with a small database, whose workers load files below `directory`/in."""
    (directory / "in").mkdir(exist_ok=True)
    data = load_stars_and_bands(meridian, directory, 300)
    cluster = Cluster(meridian, directory / "cluster", data, 2, **options)  # type: ignore[arg-type]
    try:
        for number in range(workers):
            cluster.start_worker(f"w{number}", "--load-from", directory / "in")
        wait_until(lambda: len(cluster.status()["workers"]) == workers, 30, "the workers have joined")
        yield cluster
    finally:
        cluster.end()
    assert not cluster.panics, cluster.panics


@pytest.fixture
def cluster(meridian: Meridian, tmp_path: Path) -> Iterator[Cluster]:
    """A front end and three workers."""
    with loading_cluster(meridian, tmp_path) as cluster:
        yield cluster


def words(cluster: Cluster, db: str, table: str, *files: object, **options: object) -> list[object]:
    """The arguments of a load by workers."""
    words = load_arguments(Path("x"), db, table, **options)
    at = words.index("--data")
    return [*words[:at], "--cluster", cluster.address, *cluster.credentials("operator"), *words[at + 2 :], *files]


def load(cluster: Cluster, db: str, table: str, *files: object, **options: object) -> Outcome:
    """A load by workers."""
    return cluster.meridian.run(*words(cluster, db, table, *files, **options))


def loaded(cluster: Cluster, db: str, table: str, *files: object, **options: object) -> str:
    """The report of a load by workers, which has to succeed."""
    outcome = load(cluster, db, table, *files, **options)
    assert outcome.status == 0, outcome.complaint
    return outcome.text


def rows(cluster: Cluster, statement: str, data: Path | None = None) -> Counter[tuple[object, ...]]:
    """The rows of a statement, as often as they come; of the cluster's archive, or of another."""
    return Counter(cluster.meridian.rows(data or cluster.data, "new", statement))


def number(report: str, what: str) -> int:
    """A number in a report."""
    match = re.search(rf"^  {what} +([\d,]+)", report, re.MULTILINE)
    assert match is not None, report
    return int(match.group(1).replace(",", ""))


def leftovers(cluster: Cluster) -> list[Path]:
    """What workers keep of loads, and the parts that no table shows."""
    shown = parts(cluster, "new")
    kept = [path for worker in cluster.workers.values() for path in worker.directory.glob("replicas/loads/*")]
    return kept + [path for path in cluster.data.glob("tables/new.*/*") if path.is_dir() and int(path.name) not in shown]


def parts(cluster: Cluster, db: str) -> list[int]:
    """The parts of the tables of a database."""
    with sqlite3.connect(f"file:{cluster.data}/meridian.sqlite?mode=ro", uri=True) as connection:
        found = connection.execute(
            "SELECT p.load_id FROM parts p JOIN tables t ON t.id = p.table_id JOIN databases d ON d.id = t.database_id WHERE d.name = ?",
            (db,),
        )
        return [part for (part,) in found]


def visit_lines(count: int, seed: int, stars: int = STARS + 500) -> list[str]:
    """Lines of a child: some have keys that the director lacks, and some none."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, stars, count)
    ra, dec = rng.uniform(0.0, 360.0, count), np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, count)))
    keys = ["" if n % 97 == 0 else str(ids[n]) for n in range(count)]
    return [f"{seed * 1_000_000 + n},{keys[n]},{ra[n]:.9f},{dec[n]:.9f},{n % 17}.5" for n in range(count)]


VISITS = "visit,id,ra,dec,flux"


def star_files(directory: Path, count: int = 5) -> list[Path]:
    """Stars in several files of different sizes."""
    lines = star_lines(STARS, 1)
    cuts = [0, *sorted(np.random.default_rng(3).choice(np.arange(1, STARS), count - 1, replace=False)), STARS]
    return [write_lines(directory / f"stars{n}.csv", lines[cuts[n] : cuts[n + 1]]) for n in range(count)]


# What is loaded.


def test_tables_are_those_of_a_load_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    stars = star_files(inputs)
    visits = [write_lines(inputs / f"visits{n}.csv", visit_lines(4000, n + 1), VISITS) for n in range(4)]
    bands = [write_lines(inputs / f"bands{n}.csv", [f"{n * 10 + k},band {k}" for k in range(5)], "id,name") for n in range(2)]
    alone = tmp_path / "alone"
    told = {}
    for table, files, options in (
        ("Star", stars, DIRECTOR),
        ("Visit", visits, CHILD),
        ("Band", bands, {"kind": "replicated"}),
    ):
        told[table] = loaded(cluster, "new", table, *files, **options)
        on_one = cluster.meridian.load(alone, "new", table, *files, **options).text
        for what in ("rows read", "rows loaded", "rows rejected", *(["orphans", "NULL keys"] if table == "Visit" else [])):
            assert number(told[table], what) == number(on_one, what), told[table] + on_one
        assert re.search(r"with ([\d,]+) keys", told[table]) is None or (
            re.findall(r"with ([\d,]+) keys", told[table]) == re.findall(r"with ([\d,]+) keys", on_one)
        )
    for statement in (
        "SELECT * FROM Star",
        "SELECT * FROM Visit",
        "SELECT * FROM Band",
        "SELECT s.id, v.visit, v.flux FROM Star s JOIN Visit v ON s.id = v.id",
        "SELECT v.visit FROM Visit v LEFT JOIN Star s ON s.id = v.id WHERE s.id IS NULL",
    ):
        assert rows(cluster, statement) == rows(cluster, statement, alone), statement
    assert 'overlap       0 rows' not in told["Star"]
    cluster.meridian.must("check", "--data", cluster.data)
    # Each star is in a chunk for one share's rows, and all have replicas soon.
    assert len(parts(cluster, "new")) == 3 + 3 + 2
    cluster.wait_for_replicas()
    with duckdb.connect() as connection:
        (expected,) = connection.execute(
            f"SELECT COUNT(*) FROM read_csv('{inputs}/visits*.csv') v JOIN read_csv('{inputs}/stars*.csv') s ON s.id = v.id"
        ).fetchall()
    with cluster.server.connect(database="new") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM Star s JOIN Visit v ON s.id = v.id")
        assert tuple(cursor.fetchall()[0]) == expected
    assert leftovers(cluster) == []
    # Merging the parts changes nothing.
    before = rows(cluster, "SELECT * FROM Visit")
    cluster.meridian.must("compact", "--data", cluster.data, "--db", "new", "--table", "Visit", "--all")
    assert rows(cluster, "SELECT * FROM Visit") == before


def test_rows_are_rejected_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    """Keys that come in several files, in the same file, and bad values: the first row in the order of the inputs stays."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"
    rng = np.random.default_rng(11)
    files = []
    for n in range(4):
        lines = star_lines(800, n, seed=n)
        ids = rng.integers(0, 2400, 800)
        lines = [f"{ids[k]},{line.split(',', 1)[1]}" for k, line in enumerate(lines)]
        lines[5 + n] = f"{9000 + n},12.5,{91 + n},7"
        files.append(write_lines(inputs / f"some{n}.csv", lines))
    refused = load(cluster, "new", "Star", *files, **DIRECTOR)
    assert refused.status != 0 and "--max-errors" in refused.complaint and str(files[0].parent) in refused.complaint
    # Only the keys that are in several shares are too many.
    distinct = [write_lines(inputs / f"once{n}.csv", star_lines(300, n, seed=n)) for n in range(3)]
    refused = load(cluster, "new", "Star", *distinct, **DIRECTOR)
    assert refused.status != 0 and "the key 0 occurs before" in refused.complaint, refused.complaint
    assert leftovers(cluster) == []
    told = loaded(cluster, "new", "Star", *files, max_errors=5000, **DIRECTOR)
    on_one = cluster.meridian.load(alone, "new", "Star", *files, max_errors=5000, **DIRECTOR).text
    for what in ("rows read", "rows loaded", "rows rejected"):
        assert number(told, what) == number(on_one, what), told + on_one
    assert rows(cluster, "SELECT * FROM Star") == rows(cluster, "SELECT * FROM Star", alone)
    more = [write_lines(inputs / f"more{n}.csv", [f"{k},{k % 360},{k % 90},{n}" for k in range(n * 400, 3000, 3)]) for n in range(3)]
    told = loaded(cluster, "new", "Star", *more, append=True, max_errors=5000)
    on_one = cluster.meridian.load(alone, "new", "Star", *more, append=True, max_errors=5000).text
    for what in ("rows read", "rows loaded", "rows rejected"):
        assert number(told, what) == number(on_one, what), told + on_one
    assert rows(cluster, "SELECT * FROM Star") == rows(cluster, "SELECT * FROM Star", alone)
    # A whole share can be rejected.
    told = loaded(cluster, "new", "Twice", files[0], files[0], max_errors=5000, **DIRECTOR)
    assert number(told, "rows loaded") == len({line.split(",")[0] for line in files[0].read_text().splitlines()[1:]}) - 1
    cluster.meridian.must("check", "--data", cluster.data)
    assert leftovers(cluster) == []


def test_orphans_are_together_and_directors_follow_them(cluster: Cluster, tmp_path: Path) -> None:
    """Orphans of one key come in all shares, and again later; then their director rows come, from elsewhere."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"
    stars = write_lines(inputs / "stars.csv", star_lines(500, 1))
    visits = [write_lines(inputs / f"visits{n}.csv", visit_lines(1500, n + 1, 900), VISITS) for n in range(3)]
    later = [write_lines(inputs / f"later{n}.csv", visit_lines(900, n + 7, 1200), VISITS) for n in range(3)]
    lines = star_lines(1200, 2, seed=6)[500:]
    more = [write_lines(inputs / f"more{n}.csv", lines[n::3]) for n in range(3)]
    for table, files, options in (
        ("Star", [stars], DIRECTOR),
        ("Visit", visits, CHILD),
        ("Visit", later, {"append": True}),
        ("Star", more, {"append": True}),
    ):
        told = loaded(cluster, "new", table, *files, **options)
        on_one = cluster.meridian.load(alone, "new", table, *files, **options).text
        assert number(told, "rows loaded") == number(on_one, "rows loaded")
        assert re.findall(r"with ([\d,]+) keys", told) == re.findall(r"with ([\d,]+) keys", on_one)
        cluster.meridian.must("check", "--data", cluster.data)
    join = "SELECT s.id, s.version, v.visit FROM Star s JOIN Visit v ON s.id = v.id"
    assert rows(cluster, join) == rows(cluster, join, alone)
    # The join by chunks finds as much as the one by values.
    (count,) = rows(cluster, "SELECT COUNT(*) FROM Star s, Visit v WHERE s.id = v.id")
    assert count == (sum(rows(cluster, join).values()),)


def test_formats_patterns_schemas_and_replacement(cluster: Cluster, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    rng = np.random.default_rng(4)
    for n in range(4):
        table = pa.table(
            {
                "id": np.arange(n * 500, n * 500 + 500),
                "ra": rng.uniform(0, 360, 500),
                "dec": rng.uniform(-80, 80, 500),
                "name": [f"star {k}" for k in range(500)],
            }
        )
        pq.write_table(table, inputs / f"stars{n}.parquet", row_group_size=100)
    told = loaded(cluster, "new", "Star", inputs / "stars*.parquet", **DIRECTOR)
    assert number(told, "rows loaded") == 2000
    with duckdb.connect() as connection:
        expected = Counter(connection.execute(f"SELECT * FROM read_parquet('{inputs}/stars*.parquet')").fetchall())
    assert rows(cluster, "SELECT * FROM Star") == expected
    # Columns as a schema says, in files without headers, with a delimiter and NULLs of its own.
    schema = {"columns": [{"name": "id", "type": "BIGINT"}, {"name": "ra", "type": "DOUBLE"}, {"name": "dec", "type": "DOUBLE"}]}
    schema["columns"].append({"name": "mag", "type": "FLOAT"})
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    files = [
        write_lines(inputs / f"bare{n}.txt", [f"{n * 50 + k}|{k}.25|{k}.5|{'nil' if k % 3 else k}" for k in range(50)], None)
        for n in range(3)
    ]
    refused = load(cluster, "new", "Star", *files, schema=tmp_path / "schema.json", **DIRECTOR)
    assert refused.status != 0 and "exists already" in refused.complaint
    options = {"schema": tmp_path / "schema.json", "delimiter": "|", "null": "nil", "no_header": True, "replace": True}
    loaded(cluster, "new", "Star", *files, **options, **DIRECTOR)
    assert rows(cluster, "SELECT COUNT(*), COUNT(mag), MIN(ra), MAX(id) FROM Star") == Counter([(150, 51, 0.25, 149)])
    assert leftovers(cluster) == []
    empty = write_lines(inputs / "empty.csv", [])
    assert "there are no rows" in load(cluster, "new", "Nothing", empty, empty, **DIRECTOR).complaint
    loaded(cluster, "new", "Nothing", empty, empty, allow_empty=True, schema=write_schema(tmp_path), **DIRECTOR)
    assert rows(cluster, "SELECT COUNT(*) FROM Nothing") == Counter([(0,)])


def write_schema(directory: Path) -> Path:
    """The columns of stars."""
    types = {"id": "BIGINT", "ra": "DOUBLE", "dec": "DOUBLE", "version": "INT"}
    path = directory / "stars.json"
    path.write_text(json.dumps({"columns": [{"name": name, "type": type_} for name, type_ in types.items()]}))
    return path


# What is refused.


def test_what_workers_do_not_load_is_told(cluster: Cluster, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    stars = star_files(inputs, 2)
    for options, said in (
        ({"generate_key": True, "ra": "ra", "dec": "dec"}, "generated keys"),
        ({"kind": "match", "key": "a,b", "director": "Star,Star"}, "a match table"),
        ({**DIRECTOR, "dry_run": True}, "--dry-run"),
    ):
        outcome = load(cluster, "new", "Star", *stars, **options)
        assert outcome.status != 0 and said in outcome.complaint and "--data DIR" in outcome.complaint, outcome.complaint
    assert "standard input" in load(cluster, "new", "Star", "-", **DIRECTOR).complaint
    assert "there is no director" in load(cluster, "new", "Visit", *stars, **CHILD).complaint
    outcome = load(cluster, "new", "Star", stars[0], inputs / "none.csv", **DIRECTOR)
    assert outcome.status != 0 and re.search(r"worker w\d: .*none\.csv", outcome.complaint), outcome.complaint
    elsewhere = write_lines(tmp_path / "elsewhere.csv", star_lines(10, 1))
    for path in (elsewhere, inputs / ".." / "elsewhere.csv"):
        outcome = load(cluster, "new", "Star", path, **DIRECTOR)
        assert outcome.status != 0 and "--load-from" in outcome.complaint, outcome.complaint
    (inputs / "link.csv").symlink_to(elsewhere)
    assert "--load-from" in load(cluster, "new", "Star", inputs / "link.csv", **DIRECTOR).complaint
    cluster.start_worker("w3")
    wait_until(lambda: len(cluster.status()["workers"]) == 4, 30, "the worker has joined")
    outcome = load(cluster, "new", "Star", *star_files(inputs, 4), **DIRECTOR)
    assert outcome.status != 0 and re.search(r"worker w3: .*--load-from DIR", outcome.complaint), outcome.complaint
    assert leftovers(cluster) == []


def test_operators_alone_have_workers_load(meridian: Meridian, tmp_path: Path) -> None:
    with loading_cluster(meridian, tmp_path, tls=True) as cluster:
        stars = star_files(tmp_path / "in", 3)
        arguments = words(cluster, "new", "Star", *stars, **DIRECTOR)
        operator = cluster.credentials("operator")[1]
        as_worker = [cluster.credentials("w0")[1] if word == operator else word for word in arguments]
        refused = meridian.run(*as_worker)
        assert refused.status != 0 and "operator" in refused.complaint, refused.complaint
        assert number(meridian.must(*arguments).text, "rows loaded") == STARS
        assert rows(cluster, "SELECT COUNT(*) FROM Star") == Counter([(STARS,)])


# What happens when somebody is killed.


def slow_files(directory: Path, count: int = 3) -> list[Path]:
    """Files that take some seconds to load."""
    lines = star_lines(240_000, 1)
    return [write_lines(directory / f"slow{n}.csv", lines[n::count]) for n in range(count)]


def has_tasks(cluster: Cluster, *names: str) -> bool:
    """Whether workers are at a load."""
    return all(any(cluster.workers[name].directory.glob("replicas/loads/*/archive/tables/new.*")) for name in names)


def test_a_worker_that_is_killed_costs_its_share_alone(cluster: Cluster, tmp_path: Path) -> None:
    files = slow_files(tmp_path / "in")
    process = cluster.meridian.start(*words(cluster, "new", "Star", *files, **DIRECTOR))
    wait_until(lambda: has_tasks(cluster, "w1"), 60, "the worker is at it")
    cluster.workers["w1"].end(signal.SIGKILL)
    assert process.wait(timeout=120) == 0
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(240_000, 240_000)])
    cluster.start_worker("w1", "--load-from", tmp_path / "in")
    assert cluster.workers["w1"].port > 0
    assert leftovers(cluster) == []


def test_a_client_that_is_killed_or_interrupted_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    files = slow_files(tmp_path / "in")
    arguments = words(cluster, "new", "Star", *files, **DIRECTOR)
    process = cluster.meridian.start(*arguments)
    wait_until(lambda: has_tasks(cluster, "w0", "w1", "w2"), 60, "the workers are at it")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) != 0
    assert b"cancelled" in process.stderr.read()  # type: ignore[union-attr]
    wait_until(lambda: leftovers(cluster) == [], 30, "nothing is left")
    # One that vanishes: the load of the same table that comes next waits for its end.
    process = cluster.meridian.start(*arguments)
    wait_until(lambda: has_tasks(cluster, "w0"), 60, "the workers are at it")
    process.kill()
    process.wait()
    small = star_files(tmp_path / "in", 3)
    outcome = load(cluster, "new", "Star", *small, **DIRECTOR)
    # The first may have been done already.
    assert outcome.status == 0 or "exists already" in outcome.complaint, outcome.complaint
    expected = STARS if outcome.status == 0 else 240_000
    assert rows(cluster, "SELECT COUNT(*) FROM Star") == Counter([(expected,)])
    wait_until(lambda: leftovers(cluster) == [], 30, "nothing is left")


def test_a_front_end_that_is_killed_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    files = slow_files(tmp_path / "in")
    arguments = words(cluster, "new", "Star", *files, **DIRECTOR)
    process = cluster.meridian.start(*arguments)
    wait_until(lambda: has_tasks(cluster, "w0", "w1", "w2"), 60, "the workers are at it")
    cluster.restart_front_end(signal.SIGKILL)
    assert process.wait(timeout=60) != 0
    wait_until(lambda: len(cluster.status()["workers"]) == 3, 30, "the workers are back")
    assert cluster.meridian.run("sql", "--data", cluster.data, "--db", "new", "SELECT COUNT(*) FROM Star").status != 0
    cluster.meridian.must(*arguments)
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(240_000, 240_000)])


def test_loads_into_one_table_queue(cluster: Cluster, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    lines = star_lines(3000, 1)
    first = write_lines(inputs / "first.csv", lines[:600])
    loaded(cluster, "new", "Star", first, **DIRECTOR)
    groups = [
        [write_lines(inputs / f"g{g}f{n}.csv", lines[600 + g * 600 + n : 1200 + g * 600 : 3]) for n in range(3)] for g in range(4)
    ]
    running = [cluster.meridian.start(*words(cluster, "new", "Star", *group, append=True)) for group in groups]
    for process in running:
        assert process.wait(timeout=120) == 0, process.stderr.read()  # type: ignore[union-attr]
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(3000, 3000)])
