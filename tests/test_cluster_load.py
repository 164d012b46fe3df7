"""Loads by the workers of a cluster: what they make is what one machine makes of the same files, or nothing at all."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import astropy.table
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster_members import Cluster
from meridian_cli import Meridian, Outcome, load_arguments
from object_store import object_store
from serving import wait_until
from small_tables import CUT, DIRECTOR, load_stars_and_bands, star_lines, write_lines
from test_cluster_front_ends import FrontEnds

STARS = 6000
CHILD = {"kind": "child", "key": "id", "own_key": "visit", "director": "Star", "ra": "ra", "dec": "dec"}


@contextmanager
def loading_cluster(
    meridian: Meridian, directory: Path, workers: int = 3, arguments: tuple[object, ...] = (), **options: object
) -> Iterator[Cluster]:
    """A cluster of an archive with a small database, whose workers load files below `directory`/in."""
    (directory / "in").mkdir(exist_ok=True)
    data = load_stars_and_bands(meridian, directory, 300)
    cluster = Cluster(meridian, directory / "cluster", data, 2, *arguments, **options)  # type: ignore[arg-type]
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


def reasons(report: str) -> list[str]:
    """How many rows were rejected for which reasons."""
    return re.findall(r"^ +([\d,]+ because: .*)$", report, re.MULTILINE)


class WithEnvironment(Meridian):
    """The program in another environment."""

    def __init__(self, meridian: Meridian, **environment: str) -> None:
        super().__init__(meridian.binary)
        self.environment = environment

    def start(self, *arguments: object, env: dict[str, str] | None = None, **options: object) -> subprocess.Popen[bytes]:
        """Starts a call and does not wait for it."""
        return super().start(*arguments, env={**self.environment, **(env or {})}, **options)


def leftovers(cluster: Cluster) -> list[Path]:
    """What workers keep of loads, and the parts that no table shows."""
    shown = parts(cluster, "new")
    kept = [path for worker in cluster.workers.values() for path in worker.directory.glob("replicas/loads/*")]
    return kept + [path for path in cluster.data.glob("tables/new.*/*") if path.is_dir() and int(path.name) not in shown]


def parts(cluster: Cluster, db: str) -> list[int]:
    """The parts of the tables of a database."""
    return shown_parts(cluster.data, db)


def shown_parts(data: Path, db: str) -> list[int]:
    """The parts of the tables of a database in a data directory."""
    with sqlite3.connect(f"file:{data}/meridian.sqlite?mode=ro", uri=True) as connection:
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


def pairs_of(left: str, right: str) -> dict[str, object]:
    """How pairs of two tables are loaded."""
    return {"kind": "match", "key": "left_id,right_id", "director": f"{left},{right}"}


def galaxy_lines(count: int, stars: list[str]) -> list[str]:
    """Lines of another director: each of its rows is up to 0.7° from a star, where the overlap is 0.5°."""
    rng = np.random.default_rng(21)
    lines = []
    for number, line in enumerate(stars[:count]):
        _, ra, dec, _ = line.split(",")
        north = min(float(dec) + rng.uniform(0.0, 0.7), 89.9)
        lines.append(f"{50_000 + number},{float(ra):.9f},{north:.9f},{number % 5}")
    return lines


def pair_lines(count: int, seed: int, left: tuple[int, int], right: tuple[int, int]) -> list[str]:
    """Lines of pairs whose keys begin with these and are so many: of the same number, any two, with unknown keys, and without any."""
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        at = int(rng.integers(0, min(left[1], right[1])))
        one, other = str(left[0] + at), str(right[0] + at)
        match number % 20:
            case 0:
                other = str(right[0] + int(rng.integers(0, right[1])))
            case 1:
                one = str(10**9 + at)
            case 2:
                other = str(10**9 + at % 7)
            case 3:
                one, other = str(10**9 + at), str(-at - 1)
            case 4:
                one = ""
            case 5:
                one, other = "", ""
        lines.append(f"{one},{other},{seed}.{number}")
    return lines


PAIRS = "left_id,right_id,weight"


def lines_of(path: Path) -> list[str]:
    """The lines of a text file behind its header."""
    return path.read_text().splitlines()[1:]


def stored_rows(data: Path, db: str, table: str) -> Counter[int]:
    """How many rows of a table each chunk has, in all of its parts."""
    counted: Counter[int] = Counter()
    shown = shown_parts(data, db)
    for path in data.glob(f"tables/{db.lower()}.{table.lower()}/*/manifest.json"):
        for chunk in [] if int(path.parent.name) not in shown else json.loads(path.read_text())["manifest"]["chunks"]:
            counted[chunk["chunk"]] += chunk["rows"]
    return counted


def examples(report: str) -> list[str]:
    """The rejected rows that a report names, with file and line."""
    return re.findall(r"^ +(\S+\.csv:\d+: .*)$", report, re.MULTILINE)


def star_files(directory: Path, count: int = 5) -> list[Path]:
    """Stars in several files of different sizes."""
    lines = star_lines(STARS, 1)
    cuts = [0, *sorted(np.random.default_rng(3).choice(np.arange(1, STARS), count - 1, replace=False)), STARS]
    return [write_lines(directory / f"stars{n}.csv", lines[cuts[n] : cuts[n + 1]]) for n in range(count)]


# What is loaded.


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_tables_are_those_of_a_load_on_one_machine(meridian: Meridian, tmp_path: Path, workers: int) -> None:
    with loading_cluster(meridian, tmp_path, workers) as cluster:
        check_tables_are_those_of_one_machine(cluster, tmp_path, workers)


def check_tables_are_those_of_one_machine(cluster: Cluster, tmp_path: Path, workers: int) -> None:
    """A director, a child and a replicated table in several files."""
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
    # Each share is a part, and all have replicas soon.
    assert len(parts(cluster, "new")) == 2 * workers + min(workers, len(bands))
    if workers > 1:
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
    assert len(reasons(told)) == 2 and reasons(told) == reasons(on_one)
    assert rows(cluster, "SELECT * FROM Star") == rows(cluster, "SELECT * FROM Star", alone)
    more = [write_lines(inputs / f"more{n}.csv", [f"{k},{k % 360},{k % 90},{n}" for k in range(n * 300, 3000, 3)]) for n in range(3)]
    told = loaded(cluster, "new", "Star", *more, append=True, max_errors=5000)
    on_one = cluster.meridian.load(alone, "new", "Star", *more, append=True, max_errors=5000).text
    for what in ("rows read", "rows loaded", "rows rejected"):
        assert number(told, what) == number(on_one, what), told + on_one
    assert len(reasons(told)) == 2 and reasons(told) == reasons(on_one)
    assert rows(cluster, "SELECT * FROM Star") == rows(cluster, "SELECT * FROM Star", alone)
    # A whole share can be rejected.
    again = shutil.copy(files[0], inputs / "again.csv")
    told = loaded(cluster, "new", "Twice", files[0], again, max_errors=5000, **DIRECTOR)
    assert number(told, "rows loaded") == len({line.split(",")[0] for line in files[0].read_text().splitlines()[1:]}) - 1
    cluster.meridian.must("check", "--data", cluster.data)
    assert leftovers(cluster) == []


def test_keys_that_are_texts(cluster: Cluster, tmp_path: Path) -> None:
    """Names that come in several files, orphans with names, and a name in the place of a number."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"
    rng = np.random.default_rng(5)

    def named(seed: int) -> list[str]:
        lines = [line.split(",") for line in star_lines(600, 1, seed=seed)]
        return [",".join([f"J{rng.integers(0, 1500):05d}{'+-'[n % 2]}", *line[1:]]) for n, line in enumerate(lines)]

    header = "name,ra,dec,version"
    stars = [write_lines(inputs / f"stars{n}.csv", named(n), header) for n in range(3)]
    epochs = [write_lines(inputs / f"epochs{n}.csv", [f"{line.split(',')[0]},{k}" for k, line in enumerate(named(n + 9))], "name,epoch") for n in range(3)]
    options = {**DIRECTOR, "key": "name"}
    once = [write_lines(inputs / f"once{n}.csv", [f"same{n // 2},{n},{n},1", f"other{n},{n},{n},1"], header) for n in range(3)]
    refused = load(cluster, "new", "Star", *once, **options)
    assert refused.status != 0 and "its name occurs before" in refused.complaint, refused.complaint
    for table, files, how in (
        ("Star", stars, {**options, "max_errors": 2000}),
        ("Epoch", epochs, {"kind": "child", "key": "name", "director": "Star"}),
        ("Star", [write_lines(inputs / f"more{n}.csv", named(n + 20), header) for n in range(3)], {"append": True, "max_errors": 2000}),
    ):
        told = loaded(cluster, "new", table, *files, **how)
        on_one = cluster.meridian.load(alone, "new", table, *files, **how).text
        for what in ("rows read", "rows loaded", "rows rejected"):
            assert number(told, what) == number(on_one, what), told + on_one
        assert reasons(told) == reasons(on_one)
    for statement in (
        "SELECT * FROM Star",
        "SELECT * FROM Epoch",
        "SELECT s.name, s.ra, e.epoch FROM Star s JOIN Epoch e ON s.name = e.name",
        "SELECT e.name, e.epoch FROM Epoch e LEFT JOIN Star s ON s.name = e.name WHERE s.name IS NULL",
        f"SELECT * FROM Star WHERE name = '{stars[2].read_text().splitlines()[1].split(',')[0]}'",
    ):
        assert rows(cluster, statement) == rows(cluster, statement, alone) != Counter(), statement
    numbers = write_lines(inputs / "numbers.csv", star_lines(50, 1))
    loaded(cluster, "new", "Plain", numbers, **DIRECTOR)
    refused = load(cluster, "new", "Of", *epochs, kind="child", key="name", director="Plain")
    assert refused.status != 0 and "--key name is a text, and the key of Plain is id, an integer" in refused.complaint, refused.complaint
    cluster.meridian.must("check", "--data", cluster.data)
    assert leftovers(cluster) == []


def check_as_on_one_machine(cluster: Cluster, alone: Path, table: str, files: list[Path], options: dict[str, object]) -> str:
    """Loads a table by workers and on one machine. The reports tell the same, the rows are the same, and so is what each chunk has. Gives the report."""
    told = loaded(cluster, "new", table, *files, **options)
    on_one = cluster.meridian.load(alone, "new", table, *files, **options).text
    whats = ["rows read", "rows loaded", "rows rejected", *(["unknown keys"] if "unknown keys" in on_one else [])]
    for what in whats:
        assert re.findall(rf"^  {what} .*$", told, re.MULTILINE) == re.findall(rf"^  {what} .*$", on_one, re.MULTILINE), told + on_one
    assert reasons(told) == reasons(on_one) and examples(told) == examples(on_one), told + on_one
    assert rows(cluster, f"SELECT * FROM {table}") == rows(cluster, f"SELECT * FROM {table}", alone)
    assert stored_rows(cluster.data, "new", table) == stored_rows(alone, "new", table)
    return told


def load_ends(cluster: Cluster, alone: Path, inputs: Path) -> None:
    """Two directors and a child with positions and keys of its own, both by workers and on one machine."""
    stars = star_lines(STARS, 1)
    galaxies = galaxy_lines(STARS, stars)
    star_paths = [write_lines(inputs / f"stars{n}.csv", stars[n::3]) for n in range(3)]
    galaxy_paths = [write_lines(inputs / f"galaxies{n}.csv", galaxies[n::2]) for n in range(2)]
    # In the order of their own keys: the smallest of them decides where the orphans of one key are.
    near = [near_visit(number, line) for number, line in enumerate(stars[:VISIT_KEYS[1]])]
    visits = [write_lines(inputs / f"visits{n}.csv", near[n * 700 : (n + 1) * 700], VISITS) for n in range(3)]
    for table, files, options in (("Star", star_paths, DIRECTOR), ("Galaxy", galaxy_paths, DIRECTOR), ("Visit", visits, CHILD)):
        check_as_on_one_machine(cluster, alone, table, files, options)


VISIT_KEYS = (1_000_000, 2100)


def near_visit(number: int, star: str) -> str:
    """A line of a child, near the star; some have keys that the director lacks."""
    key, ra, dec, _ = star.split(",")
    key = str(STARS + number % 40) if number % 13 == 0 else key
    return f"{VISIT_KEYS[0] + number},{key},{ra},{max(float(dec) - 0.05, -89.9):.9f},{number % 17}.5"


def test_match_tables_are_those_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    """Pairs of two directors, of one with itself, and of children by their own keys: with ends that nobody has, and wider than the overlap."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"
    load_ends(cluster, alone, inputs)
    stars, galaxies = (0, STARS), (50_000, STARS)
    for table, ends, left, right in (
        ("StarGalaxy", ("Star", "Galaxy"), stars, galaxies),
        ("StarStar", ("Star", "Star"), stars, stars),
        ("VisitVisit", ("Visit", "Visit"), VISIT_KEYS, VISIT_KEYS),
        ("GalaxyVisit", ("Galaxy", "Visit"), galaxies, VISIT_KEYS),
    ):
        files = [write_lines(inputs / f"{table}{n}.csv", pair_lines(1500, n, left, right), PAIRS) for n in range(4)]
        options = {**pairs_of(*ends), "max_errors": 6000}
        told = check_as_on_one_machine(cluster, alone, table, files, options)
        assert number(told, "rows rejected") > 20 and "wider than the overlap" in told, told
        # Rows are in the chunks of both ends, where these are two.
        assert table in ("StarStar", "VisitVisit") or sum(stored_rows(cluster.data, "new", table).values()) > number(told, "rows loaded")
        more = [write_lines(inputs / f"{table}more{n}.csv", pair_lines(300, n + 50, left, right), PAIRS) for n in range(3)]
        check_as_on_one_machine(cluster, alone, table, more, {"append": True, "max_errors": 900})
        left_key, right_key = ("visit" if end == "Visit" else "id" for end in ends)
        joined = f"""SELECT a.{left_key} AS one, b.{right_key} AS other, p.weight FROM {ends[0]} a JOIN {table} p ON p.left_id = a.{left_key}
            JOIN {ends[1]} b ON p.right_id = b.{right_key}"""
        assert rows(cluster, joined) == rows(cluster, joined, alone) != Counter()
        # A join that does not run by chunks finds the same.
        lefts, rights = f"SELECT {left_key} + 0 FROM {ends[0]}", f"SELECT {right_key} + 0 FROM {ends[1]}"
        by_values = f"SELECT COUNT(*) FROM {table} WHERE left_id + 0 IN ({lefts}) AND right_id + 0 IN ({rights})"
        assert rows(cluster, f"SELECT COUNT(*) FROM ({joined}) j") == rows(cluster, by_values)
    # Rows with one own key in several places.
    again = [line.replace(f",{number},", f",{(number * 7) % STARS},", 1) for number, line in enumerate(lines_of(inputs / "visits0.csv"))]
    files = [inputs / "visits0.csv", write_lines(inputs / "again.csv", again, VISITS)]
    check_as_on_one_machine(cluster, alone, "Twice", files, CHILD)
    files = [write_lines(inputs / f"twice{n}.csv", pair_lines(400, n, stars, (VISIT_KEYS[0], 700)), PAIRS) for n in range(3)]
    check_as_on_one_machine(cluster, alone, "StarTwice", files, {**pairs_of("Star", "Twice"), "max_errors": 1200})
    cluster.wait_for_replicas()
    with cluster.server.connect(database="new") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), SUM(s.id), SUM(g.id) FROM Star s JOIN StarGalaxy p ON p.left_id = s.id JOIN Galaxy g ON p.right_id = g.id")
        (found,) = (tuple(map(int, row)) for row in cursor.fetchall())
    join = "SELECT COUNT(*), SUM(s.id), SUM(g.id) FROM Star s JOIN StarGalaxy p ON p.left_id = s.id JOIN Galaxy g ON p.right_id = g.id"
    assert Counter([found]) == rows(cluster, join, alone)
    cluster.meridian.must("check", "--data", cluster.data)
    # Too many that are too wide.
    files = [inputs / f"StarGalaxy{n}.csv" for n in range(4)]
    outcome = load(cluster, "new", "StarGalaxy", *files, replace=True, max_errors=3, **pairs_of("Star", "Galaxy"))
    assert outcome.status != 0 and "wider than the overlap" in outcome.complaint and "--max-errors" in outcome.complaint, outcome.complaint
    assert leftovers(cluster) == []


def test_pairs_with_keys_that_are_texts(cluster: Cluster, tmp_path: Path) -> None:
    inputs, alone = tmp_path / "in", tmp_path / "alone"
    lines = star_lines(1500, 1)
    named = [f"J{line}" for line in lines]
    others = [f"K{line}" for line in galaxy_lines(1500, lines)]
    header = "name,ra,dec,version"
    options = {**DIRECTOR, "key": "name"}
    for table, of in (("Star", named), ("Galaxy", others)):
        files = [write_lines(inputs / f"{table}{n}.csv", of[n::2], header) for n in range(2)]
        check_as_on_one_machine(cluster, alone, table, files, options)
    lines = [line.split(",") for line in pair_lines(1200, 3, (0, 1500), (50_000, 1500))]
    pairs = [",".join(["J" + one if one else "", "K" + other if other else "", weight]) for one, other, weight in lines]
    files = [write_lines(inputs / f"pairs{n}.csv", pairs[n::3], "star,galaxy,weight") for n in range(3)]
    of_texts = {"kind": "match", "key": "star,galaxy", "director": "Star,Galaxy", "max_errors": 1200}
    check_as_on_one_machine(cluster, alone, "Pairs", files, of_texts)
    join = "SELECT s.name, g.name, p.weight FROM Star s JOIN Pairs p ON p.star = s.name JOIN Galaxy g ON p.galaxy = g.name"
    assert rows(cluster, join) == rows(cluster, join, alone) != Counter()
    numbers = write_lines(inputs / "numbers.csv", star_lines(50, 1))
    loaded(cluster, "new", "Plain", numbers, **DIRECTOR)
    refused = load(cluster, "new", "Wrong", *files, **{**of_texts, "director": "Star,Plain"})
    assert refused.status != 0 and "--key galaxy is a text, and the key of Plain is id, an integer" in refused.complaint, refused.complaint
    cluster.meridian.must("check", "--data", cluster.data)
    assert leftovers(cluster) == []


def test_pairs_of_rows_whose_files_are_at_workers_alone(meridian: Meridian, tmp_path: Path) -> None:
    """The own keys of a child are read by the front end, and positions by workers, each from where the files are. Some files are damaged."""
    with loading_cluster(meridian, tmp_path, 3, ("--keep-files", "0")) as cluster:
        inputs, alone = tmp_path / "in", tmp_path / "alone"
        load_ends(cluster, alone, inputs)
        away = lambda: cluster.status()["away_files"]  # noqa: E731
        gone = lambda: not list(cluster.data.glob("tables/new.*/*/chunk_[0-9]*.mrd"))  # noqa: E731
        wait_until(lambda: away() > 0 and gone(), 60, "the files are at workers alone")
        replicas = {name: list(worker.directory.glob("replicas/tables/new.galaxy/*/chunk_*.mrd")) for name, worker in cluster.workers.items()}
        name = max(replicas, key=lambda name: len(replicas[name]))
        for path in replicas[name]:
            content = bytearray(path.read_bytes())
            for place in range(100, len(content), 4096):
                content[place] ^= 0x55
            changed = path.with_suffix(".changed")
            changed.write_bytes(content)
            changed.rename(path)
        galaxies = (50_000, STARS)
        files = [write_lines(inputs / f"pairs{n}.csv", pair_lines(800, n, galaxies, VISIT_KEYS), PAIRS) for n in range(3)]
        check_as_on_one_machine(cluster, alone, "Pairs", files, {**pairs_of("Galaxy", "Visit"), "max_errors": 2400})
        cluster.meridian.must("check", "--data", cluster.data)
        assert "a replica is damaged" in cluster.workers[name].log
        assert leftovers(cluster) == []


def test_pairs_when_members_die(cluster: Cluster, tmp_path: Path) -> None:
    """Another worker takes the share of one that dies at any step; a front end leaves the old pairs or the new ones."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"
    load_ends(cluster, alone, inputs)
    pairs = [write_lines(inputs / f"pairs{n}.csv", pair_lines(600, n, (0, STARS), (50_000, STARS)), PAIRS) for n in range(3)]
    options: dict[str, object] = {**pairs_of("Star", "Galaxy"), "max_errors": 1800}
    told = check_as_on_one_machine(cluster, alone, "Pairs", pairs, options)
    before = rows(cluster, "SELECT * FROM Pairs")
    healthy = cluster.meridian
    for step in ("begun", "read", "chunks-written"):
        cluster.workers["w2"].end(signal.SIGKILL)
        cluster.meridian = WithEnvironment(healthy, MERIDIAN_FAULT=f"{step}:kill")
        worker = cluster.start_worker("w2", "--load-from", inputs)
        cluster.meridian = healthy
        wait_for_worker(cluster, "w2")
        again = loaded(cluster, "new", "Pairs", *pairs, replace=True, **options)
        assert examples(again) == examples(told) and reasons(again) == reasons(told)
        assert worker.process.wait(timeout=10) == -signal.SIGKILL, step
        assert rows(cluster, "SELECT * FROM Pairs") == before
    cluster.start_worker("w2", "--load-from", inputs)
    other = [write_lines(inputs / f"other{n}.csv", pair_lines(300, n + 70, (0, STARS), (50_000, STARS)), PAIRS) for n in range(3)]
    for step, stays in (("begun", True), ("before-publish", True), ("after-publish", False)):
        cluster.meridian = WithEnvironment(healthy, MERIDIAN_FAULT=f"{step}:kill")
        cluster.restart_front_end(signal.SIGTERM)
        cluster.meridian = healthy
        wait_until(lambda: [it["state"] for it in cluster.status()["workers"]] == ["live"] * 3, 30, "the workers are back")
        outcome = load(cluster, "new", "Pairs", *other, replace=True, **options)
        assert outcome.status != 0 and "look at the table before you load again" in outcome.complaint, outcome.complaint
        assert cluster.server.process.wait(timeout=10) == -signal.SIGKILL, step
        cluster.restart_front_end(signal.SIGKILL)
        wait_until(lambda: [it["state"] for it in cluster.status()["workers"]] == ["live"] * 3, 30, "the workers are back")
        assert (rows(cluster, "SELECT * FROM Pairs") == before) == stays, step
    cluster.meridian.must("check", "--data", cluster.data)
    # What a load has left goes with the next one.
    check_as_on_one_machine(cluster, alone, "Pairs", other, {"replace": True, **options})
    wait_until(lambda: leftovers(cluster) == [], 90, "nothing is left")


def test_generated_keys_are_those_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    """Unique over all shares, and the same whoever has written these: in appends, too."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"

    def nameless(name: str, count: int, files: int, header: str | None = "ra,dec,version") -> list[Path]:
        lines = [line.split(",", 1)[1] for line in star_lines(count, 1, seed=count)]
        lines[7] = "12.5,91,7"
        return [write_lines(inputs / f"{name}{n}.csv", lines[n::files], header) for n in range(files)]

    made: dict[str, object] = {"generate_key": True, "ra": "ra", "dec": "dec", "max_errors": 1, **CUT}
    told = check_as_on_one_machine(cluster, alone, "Star", nameless("keyless", 4000, 5), made)
    assert "the column id has generated keys" in told and number(told, "rows loaded") == 3999
    check_as_on_one_machine(cluster, alone, "Star", nameless("more", 900, 4), {"append": True, "generate_key": True, "max_errors": 1})
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(4898, 4898)])
    # By a name of its own, with declared columns, and in files without headers.
    schema = tmp_path / "positions.json"
    columns = [{"name": "ra", "type": "DOUBLE"}, {"name": "dec", "type": "DOUBLE"}, {"name": "version", "type": "INT"}]
    schema.write_text(json.dumps({"columns": columns}))
    named: dict[str, object] = {**made, "key": "number", "schema": schema}
    check_as_on_one_machine(cluster, alone, "Named", nameless("named", 600, 3), named)
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT number) FROM Named") == Counter([(599, 599)])
    bare: dict[str, object] = {**made, "ra": "column1", "dec": "column2", "no_header": True}
    check_as_on_one_machine(cluster, alone, "Bare", nameless("bare", 600, 3, None), bare)
    # A key that the files have.
    stars = star_files(inputs, 2)
    for options in ({**made, "key": "version"}, {**made, "key": "id"}):
        here = cluster.meridian.run(*load_arguments(alone, "new", "Wrong", *stars, **options))
        outcome = load(cluster, "new", "Wrong", *stars, **options)
        told, told_here = (re.sub(r"worker w\d: ", "", text).splitlines()[-1] for text in (outcome.complaint, here.complaint))
        assert outcome.status == here.status != 0 and told == told_here
    # A share that another worker writes has the same keys.
    before = rows(cluster, "SELECT * FROM Star")
    healthy = cluster.meridian
    cluster.workers["w1"].end(signal.SIGKILL)
    cluster.meridian = WithEnvironment(healthy, MERIDIAN_FAULT="chunks-written:kill")
    worker = cluster.start_worker("w1", "--load-from", inputs)
    cluster.meridian = healthy
    wait_for_worker(cluster, "w1")
    loaded(cluster, "new", "Star", *(inputs / f"keyless{n}.csv" for n in range(5)), replace=True, **made)
    assert worker.process.wait(timeout=10) == -signal.SIGKILL
    # What it has left goes when it starts again.
    cluster.start_worker("w1", "--load-from", inputs)
    wait_for_worker(cluster, "w1")
    loaded(cluster, "new", "Star", *(inputs / f"more{n}.csv" for n in range(4)), append=True, generate_key=True, max_errors=1)
    assert rows(cluster, "SELECT * FROM Star") == before
    cluster.meridian.must("check", "--data", cluster.data)
    wait_until(lambda: leftovers(cluster) == [], 30, "nothing is left")


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
    empty = [write_lines(inputs / f"empty{n}.csv", []) for n in range(2)]
    options = {"schema": write_schema(tmp_path), **DIRECTOR}
    assert "there are no rows" in load(cluster, "new", "Nothing", *empty, **options).complaint
    loaded(cluster, "new", "Nothing", *empty, allow_empty=True, schema=write_schema(tmp_path), **DIRECTOR)
    assert rows(cluster, "SELECT COUNT(*) FROM Nothing") == Counter([(0,)])


def test_all_formats_are_loaded_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    """With the types, units and descriptions that the files say; a HATS catalogue with its position."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"
    rng = np.random.default_rng(9)
    for n in range(3):
        table = astropy.table.Table(
            {
                "id": np.arange(n * 200, n * 200 + 200),
                "ra": rng.uniform(0, 360, 200),
                "dec": rng.uniform(-80, 80, 200),
                "mag": rng.normal(20, 2, 200).astype(np.float32),
                "name": [f"star {k % 7}" for k in range(200)],
            }
        )
        table["ra"].unit = table["dec"].unit = "deg"
        table["mag"].unit, table["mag"].description = "mag", "Brightness."
        table.write(inputs / f"stars{n}.fits")
        table.write(inputs / f"stars{n}.vot", format="votable")
        table.write(inputs / f"stars{n}.ecsv")
        arrow = pa.table({name: np.asarray(table[name]).tolist() if name == "name" else np.asarray(table[name]) for name in table.colnames})
        with pa.ipc.new_file(inputs / f"stars{n}.arrow", arrow.schema) as writer:
            writer.write_table(arrow)
        (inputs / f"stars{n}.csv.gz").write_bytes(gzip.compress((inputs / f"stars{n}.ecsv").read_bytes()))
    for ending in ("fits", "vot", "ecsv", "arrow", "csv.gz"):
        name = "T" + ending.replace(".", "")
        told = loaded(cluster, "new", name, inputs / f"stars*.{ending}", **DIRECTOR)
        assert number(told, "rows loaded") == 600
        cluster.meridian.load(alone, "new", name, inputs / f"stars*.{ending}", **DIRECTOR)
    catalogue = inputs / "catalogue"
    of_table = ("--data", alone, "--db", "new", "--table", "Tfits")
    cluster.meridian.must("export", *of_table, "--format", "hats", "--output", catalogue, "--rows-per-pixel", 50)
    loaded(cluster, "new", "Hats", catalogue, key="id", **CUT)
    cluster.meridian.load(alone, "new", "Hats", catalogue, key="id", **CUT)
    for (name,) in cluster.meridian.rows(alone, "new", "SELECT table_name FROM information_schema.tables WHERE table_schema = 'new'"):
        assert rows(cluster, f"SELECT * FROM {name}") == rows(cluster, f"SELECT * FROM {name}", alone), name
    said = "SELECT table_name, column_name, datatype, unit, ucd, description FROM TAP_SCHEMA.columns WHERE table_name LIKE 'new.%'"
    assert rows(cluster, said) == rows(cluster, said, alone)
    assert leftovers(cluster) == []


def test_files_come_from_a_store(meridian: Meridian, tmp_path: Path) -> None:
    """Workers read them with the credentials of their own environment, which the client need not have."""
    with object_store(Path(__file__).parent / "certificates") as store:
        files = star_files(tmp_path, 3)
        for path in files:
            store.put(f"dr1/{path.name}", path)
            store.put(f"dr2/{path.stem}.parquet", write_parquet(path))
        (tmp_path / "in").mkdir()
        with loading_cluster(WithEnvironment(meridian, **store.environment()), tmp_path, 2) as cluster:
            cluster.meridian = meridian
            loaded(cluster, "new", "Text", f"s3://{store.BUCKET}/dr1/*.csv", **DIRECTOR)
            loaded(cluster, "new", "Star", f"s3://{store.BUCKET}/dr2/*.parquet", **DIRECTOR)
            with duckdb.connect() as connection:
                expected = Counter(connection.execute(f"SELECT * FROM read_csv('{tmp_path}/stars?.csv')").fetchall())
            assert sum(expected.values()) == STARS
            assert rows(cluster, "SELECT * FROM Star") == rows(cluster, "SELECT * FROM Text") == expected
            outcome = load(cluster, "new", "None", f"s3://{store.BUCKET}/dr3/*.csv", **DIRECTOR)
            assert outcome.status != 0 and re.search(r"worker w\d: .*dr3", outcome.complaint), outcome.complaint
            assert leftovers(cluster) == []


def write_parquet(path: Path) -> Path:
    """The rows of a CSV file in Parquet, beside it."""
    target = path.with_suffix(".parquet")
    duckdb.sql(f"COPY (SELECT * FROM read_csv('{path}')) TO '{target}'")
    return target


def test_any_front_end_has_workers_load(meridian: Meridian, tmp_path: Path, postgres: str) -> None:
    """With the catalog in PostgreSQL: what one front end has loaded is seen at the other, also when the one that loads is killed before."""
    (tmp_path / "in").mkdir()
    data = load_stars_and_bands(meridian, tmp_path, 300)
    meridian.must("catalog", "copy", "--data", data, "--to", postgres, "--schema", "cluster_loads")
    files = star_files(tmp_path / "in", 4)
    duplicates = [*files, write_lines(tmp_path / "in" / "again.csv", star_lines(STARS, 2)[:700])]
    cluster = FrontEnds(meridian, tmp_path / "cluster", data, 2)

    def words(at: int, *files: Path, **options: object) -> list[object]:
        words = load_arguments(Path("x"), "new", "Star", **DIRECTOR, **options)
        place = words.index("--data")
        return [*words[:place], "--cluster", cluster.addresses[at], "--cluster-secret", cluster.secret, *words[place + 2 :], *files]

    def counted(at: int) -> tuple[object, ...]:
        with cluster.servers[at].connect(database="new") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*), COUNT(DISTINCT id), SUM(version) FROM Star")
            return tuple(map(int, cursor.fetchall()[0]))

    try:
        for name in ("w0", "w1"):
            cluster.start_worker(name, "--load-from", tmp_path / "in")
        for at in (0, 1):
            wait_until(lambda: cluster.states(at) == {"w0": "live", "w1": "live"}, 30, "the workers have joined")
        assert number(meridian.must(*words(1, *duplicates, max_errors=700)).text, "rows rejected") == 700
        wait_until(lambda: counted(0) == (STARS, STARS, STARS), 10, "the other front end sees the table")
        assert counted(1) == (STARS, STARS, STARS)
        slow = slow_files(tmp_path / "in")
        process = meridian.start(*words(1, *slow, replace=True))
        wait_until(lambda: any(cluster.directory.glob("w0/replicas/loads/*/archive/tables/new.*")), 60, "the worker is at it")
        cluster.kill(1)
        assert process.wait(timeout=60) != 0
        assert counted(0) == (STARS, STARS, STARS)
        meridian.must(*words(0, *slow, replace=True))
        assert counted(0) == (240_000, 240_000, 240_000)
        meridian.must("check", "--data", data)
    finally:
        cluster.end()
    assert not cluster.panics, cluster.panics


def write_schema(directory: Path) -> Path:
    """The columns of stars."""
    types = {"id": "BIGINT", "ra": "DOUBLE", "dec": "DOUBLE", "version": "INT"}
    path = directory / "stars.json"
    path.write_text(json.dumps({"columns": [{"name": name, "type": type_} for name, type_ in types.items()]}))
    return path


# What is refused.


def test_what_is_wrong_with_files_is_told_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    """Of text files without a declaration the first line is a header, in whichever share they are."""
    inputs, alone = tmp_path / "in", tmp_path / "alone"

    def write(name: str, header: str, *lines: str) -> Path:
        return write_lines(inputs / name, lines, header)

    stars = [write(f"stars{n}.csv", "id,ra,dec,name", *(f"{n * 9 + k},{k}.5,{k},star" for k in range(9))) for n in range(3)]
    others = [write(f"words{n}.csv", "name,kind", "a,b", "c,d") for n in range(2)]
    renamed = write("renamed.csv", "label,sort", "e,f", "g,h")
    narrow = write("narrow.csv", "id,ra,dec", "901,1.5,2", "902,2.5,3")
    single = write("single.csv", "name", "e", "f")
    broken = write("broken.csv", "id,ra,dec,name", "801,1.5,2,star", "802,x,3,star")
    unnamed = tmp_path / "unnamed.json"
    unnamed.write_text("{")
    for table, files, options in (
        ("Words", [*others, renamed], {"kind": "replicated"}),
        ("Star", [*stars, broken], DIRECTOR),
        ("Star", stars, {**DIRECTOR, "schema": unnamed}),
        ("Star", stars, {**DIRECTOR, "schema": write_schema(tmp_path)}),
        ("Star", stars, {**DIRECTOR, "key": "none"}),
        ("Star", stars, {**DIRECTOR, "text": "none"}),
    ):
        here = cluster.meridian.run(*load_arguments(alone, "new", table, *files, **options))
        outcome = load(cluster, "new", table, *files, **options)
        assert here.status != 0 and outcome.status == here.status
        # Which of several files is named is a matter of time.
        told, told_here = (re.sub(r"worker w\d: |stars\d", "", text).splitlines()[-1] for text in (outcome.complaint, here.complaint))
        assert told == told_here
    # Files may lack columns.
    for table, files, options in (("Star", [*stars, narrow], DIRECTOR), ("Words", [*others, single], {"kind": "replicated"})):
        cluster.meridian.load(alone, "new", table, *files, **options)
        loaded(cluster, "new", table, *files, **options)
        assert rows(cluster, f"SELECT * FROM {table}") == rows(cluster, f"SELECT * FROM {table}", alone)
    assert leftovers(cluster) == []


def test_what_workers_do_not_load_is_told(cluster: Cluster, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    stars = star_files(inputs, 2)
    outcome = load(cluster, "new", "Star", *stars, **DIRECTOR, dry_run=True)
    assert outcome.status != 0 and "--dry-run" in outcome.complaint and "--data DIR" in outcome.complaint, outcome.complaint
    outcome = load(cluster, "new", "Star", *stars, generate_key=True)
    assert outcome.status != 0 and "--generate-key is for directors" in outcome.complaint, outcome.complaint
    assert "standard input" in load(cluster, "new", "Star", "-", **DIRECTOR).complaint
    assert "there is no director" in load(cluster, "new", "Visit", *stars, **CHILD).complaint
    assert "there is no director" in load(cluster, "new", "Pairs", *stars, **pairs_of("Star", "Star")).complaint
    outcome = load(cluster, "new", "Star", stars[0], inputs / "none.csv", **DIRECTOR)
    assert outcome.status != 0 and re.search(r"worker w\d: .*none\.csv", outcome.complaint), outcome.complaint
    elsewhere = write_lines(tmp_path / "elsewhere.csv", star_lines(10, 1))
    for path in (elsewhere, inputs / ".." / "elsewhere.csv"):
        outcome = load(cluster, "new", "Star", path, **DIRECTOR)
        assert outcome.status != 0 and "--load-from" in outcome.complaint, outcome.complaint
    (inputs / "link.csv").symlink_to(elsewhere)
    assert "--load-from" in load(cluster, "new", "Star", inputs / "link.csv", **DIRECTOR).complaint
    arguments = words(cluster, "new", "Star", *stars, **DIRECTOR)
    outcome = cluster.meridian.run(*arguments, "--data", tmp_path / "other")
    assert outcome.status != 0 and "leave --data out" in outcome.complaint, outcome.complaint
    # One that the environment names for other commands is not asked for.
    assert number(cluster.meridian.run(*arguments, env={"MERIDIAN_DATA": str(tmp_path / "other")}).text, "rows loaded") == STARS
    cluster.meridian.must("drop", "table", "--data", cluster.data, "--db", "new", "--table", "Star", "--yes")
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


def wait_for_worker(cluster: Cluster, name: str) -> None:
    """Waits until the front end knows a worker where it is now."""
    address = f"127.0.0.1:{cluster.workers[name].port}"

    def is_known() -> bool:
        return any(it["address"] == address and it["state"] == "live" for it in cluster.status()["workers"])

    wait_until(is_known, 30, "the worker has joined")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_ends_costs_its_share_alone(cluster: Cluster, tmp_path: Path, number: int) -> None:
    files = slow_files(tmp_path / "in")
    process = cluster.meridian.start(*words(cluster, "new", "Star", *files, **DIRECTOR))
    wait_until(lambda: has_tasks(cluster, "w1"), 60, "the worker is at it")
    cluster.workers["w1"].end(number)
    assert process.wait(timeout=120) == 0, process.stderr.read()  # type: ignore[union-attr]
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(240_000, 240_000)])
    cluster.start_worker("w1", "--load-from", tmp_path / "in")
    assert cluster.workers["w1"].port > 0
    assert leftovers(cluster) == []


def test_a_worker_that_dies_at_any_step_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    files = star_files(tmp_path / "in", 3)
    healthy = cluster.meridian
    steps = ("begun", "read", "partitioned", "index-written", "chunks-written", "overlap-written", "manifest-written")
    for version, step in enumerate(steps):
        cluster.workers["w2"].end(signal.SIGKILL)
        cluster.meridian = WithEnvironment(healthy, MERIDIAN_FAULT=f"{step}:kill")
        worker = cluster.start_worker("w2", "--load-from", tmp_path / "in")
        cluster.meridian = healthy
        wait_for_worker(cluster, "w2")
        options = {"replace": True, **DIRECTOR} if version else DIRECTOR
        told = loaded(cluster, "new", "Star", *files, **options)
        assert number(told, "rows loaded") == STARS
        assert worker.process.wait(timeout=10) == -signal.SIGKILL, step
        assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id), SUM(version) FROM Star") == Counter([(STARS, STARS, STARS)])
    # What fails at a worker and is no fault of the worker's ends the load.
    cluster.meridian = WithEnvironment(healthy, MERIDIAN_FAULT="chunks-written:error")
    cluster.start_worker("w2", "--load-from", tmp_path / "in")
    cluster.meridian = healthy
    wait_for_worker(cluster, "w2")
    outcome = load(cluster, "new", "Star", *files, replace=True, **DIRECTOR)
    assert outcome.status != 0 and "worker w2: " in outcome.complaint
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(STARS, STARS)])
    wait_until(lambda: leftovers(cluster) == [], 30, "nothing is left")


def test_a_worker_that_hangs_is_given_up(cluster: Cluster, tmp_path: Path) -> None:
    files = star_files(tmp_path / "in", 3)
    cluster.workers["w1"].send_signal(signal.SIGSTOP)
    # It is taken for live for some seconds more.
    told = loaded(cluster, "new", "Star", *files, **DIRECTOR)
    assert number(told, "rows loaded") == STARS
    cluster.workers["w1"].send_signal(signal.SIGCONT)
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(STARS, STARS)])


def test_a_worker_whose_disk_is_full_is_replaced(tiny_disk: Path, cluster: Cluster, tmp_path: Path) -> None:
    files = slow_files(tmp_path / "in", 4)
    (tiny_disk / "filler").write_bytes(bytes(1_600_000))
    (cluster.directory / "w3").symlink_to(tiny_disk)
    cluster.start_worker("w3", "--load-from", tmp_path / "in")
    wait_for_worker(cluster, "w3")
    told = loaded(cluster, "new", "Star", *files, **DIRECTOR)
    assert number(told, "rows loaded") == 240_000
    assert rows(cluster, "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star") == Counter([(240_000, 240_000)])
    log = cluster.server.log
    assert re.search("another worker takes the share of a load.*worker w3: the disk is full", log), log
    # With none but it nothing is loaded, and it says why.
    for name in ("w0", "w1", "w2"):
        cluster.workers.pop(name).end(signal.SIGKILL)
    states = lambda: {it["name"]: it["state"] for it in cluster.status()["workers"]}
    wait_until(lambda: [name for name, state in states().items() if state == "live"] == ["w3"], 60, "the others are silent")
    outcome = load(cluster, "new", "Star", *files, replace=True, **DIRECTOR)
    assert outcome.status != 0 and "worker w3: the disk is full" in outcome.complaint, outcome.complaint


def test_without_workers_nothing_is_loaded(meridian: Meridian, tmp_path: Path) -> None:
    with loading_cluster(meridian, tmp_path, 1) as cluster:
        files = star_files(tmp_path / "in", 2)
        cluster.workers["w0"].end(signal.SIGKILL)
        outcome = load(cluster, "new", "Star", *files, **DIRECTOR)
        assert outcome.status != 0 and "w0" in outcome.complaint, outcome.complaint
        wait_until(lambda: cluster.status()["workers"][0]["state"] != "live", 30, "the worker is silent")
        outcome = load(cluster, "new", "Star", *files, **DIRECTOR)
        assert outcome.status != 0 and "no worker is there" in outcome.complaint, outcome.complaint
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


def test_a_second_interrupt_ends_the_waiting_for_a_front_end_that_hangs(cluster: Cluster, tmp_path: Path) -> None:
    files = slow_files(tmp_path / "in")
    process = cluster.meridian.start(*words(cluster, "new", "Star", *files, **DIRECTOR))
    wait_until(lambda: has_tasks(cluster, "w0", "w1", "w2"), 60, "the workers are at it")
    cluster.server.process.send_signal(signal.SIGSTOP)
    try:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
        assert b"look at the table before you load again" in process.stderr.read()  # type: ignore[union-attr]
    finally:
        cluster.server.process.send_signal(signal.SIGCONT)
    # Nobody asks for the load any more.
    wait_until(lambda: leftovers(cluster) == [], 120, "nothing is left")


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


def test_a_front_end_that_dies_at_any_step_leaves_the_old_or_the_new_rows(cluster: Cluster, tmp_path: Path) -> None:
    versions = [
        [write_lines(tmp_path / "in" / f"v{version}f{n}.csv", star_lines(900, version)[n::3]) for n in range(3)] for version in (1, 2)
    ]
    loaded(cluster, "new", "Star", *versions[0], **DIRECTOR)
    healthy = cluster.meridian
    for step, expected in (("begun", 1), ("manifest-written", 1), ("before-publish", 1), ("after-publish", 2)):
        cluster.meridian = WithEnvironment(healthy, MERIDIAN_FAULT=f"{step}:kill")
        cluster.restart_front_end(signal.SIGTERM)
        cluster.meridian = healthy
        wait_until(lambda: [it["state"] for it in cluster.status()["workers"]] == ["live"] * 3, 30, "the workers are back")
        outcome = load(cluster, "new", "Star", *versions[1], replace=True, **DIRECTOR)
        assert outcome.status != 0 and "look at the table before you load again" in outcome.complaint, outcome.complaint
        assert cluster.server.process.wait(timeout=10) == -signal.SIGKILL, step
        cluster.restart_front_end(signal.SIGKILL)
        wait_until(lambda: [it["state"] for it in cluster.status()["workers"]] == ["live"] * 3, 30, "the workers are back")
        assert rows(cluster, "SELECT version, COUNT(*), COUNT(DISTINCT id) FROM Star GROUP BY version") == Counter([(expected, 900, 900)])
        cluster.meridian.must("check", "--data", cluster.data)
    loaded(cluster, "new", "Star", *versions[0], replace=True, **DIRECTOR)
    assert rows(cluster, "SELECT version, COUNT(*) FROM Star GROUP BY version") == Counter([(1, 900)])
    # Workers remove what they have of loads of which nobody asks any more.
    wait_until(lambda: leftovers(cluster) == [], 90, "nothing is left")


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
