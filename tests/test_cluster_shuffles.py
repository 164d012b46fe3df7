"""Shuffles: workers keep what their pieces give, and merge it bucket by bucket."""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from cluster_members import Cluster, Member, cluster_of
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, write_lines

STARS = 200_000
# Zeros of both signs, and no value at all, are groups as well.
SHIFTS = ("0.0", "-0.0", "", "1.5", "-1.5", "1e300")

GROUPS = "SELECT id DIV 3 AS g, COUNT(*), SUM(mag), MIN(name), MAX(mag) FROM Star GROUP BY g"
STATEMENTS = [
    GROUPS,
    "SELECT name, COUNT(*), AVG(mag) FROM Star GROUP BY name",
    "SELECT name, COUNT(*) AS n FROM Star GROUP BY name HAVING COUNT(*) > 190 ORDER BY n DESC, name LIMIT 7",
    "SELECT name, COUNT(*) AS n FROM Star GROUP BY name ORDER BY name",
    "SELECT id DIV 7 AS g, MAX(mag) AS m FROM Star GROUP BY g ORDER BY m DESC, g LIMIT 10 OFFSET 3",
    "SELECT COUNT(DISTINCT id DIV 2) FROM Star",
    "SELECT COUNT(*), SUM(n), MAX(n) FROM (SELECT id DIV 5 AS g, COUNT(*) AS n FROM Star GROUP BY g) t",
    "SELECT COUNT(*) FROM (SELECT name FROM Star GROUP BY name HAVING COUNT(*) > 100 LIMIT 37) t",
    "SELECT COUNT(*) FROM (SELECT DISTINCT id DIV 3 FROM Star LIMIT 1234) t",
    "SELECT COUNT(*), SUM(n > 0) FROM (SELECT name, COUNT(*) + 1 AS n FROM Star GROUP BY name) t WHERE n > 3 LIMIT 3",
    "SELECT DISTINCT name, shift FROM Star",
    "SELECT shift, COUNT(*) FROM Star GROUP BY shift",
    "SELECT shift, name, COUNT(*) FROM Star GROUP BY shift, name WITH ROLLUP",
    "SELECT n, COUNT(*) FROM (SELECT name, COUNT(*) AS n FROM Star GROUP BY name) t GROUP BY n",
    "SELECT 1.5, COUNT(*) FROM (SELECT name, MAX(mag) AS m FROM Star GROUP BY name) t GROUP BY m WITH ROLLUP",
    "SELECT COUNT(*), SUM(r) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY m ORDER BY name) AS r FROM (SELECT name, MAX(mag) AS m FROM Star GROUP BY name) g) t",
    "SELECT COUNT(*), SUM(r) FROM (SELECT RANK() OVER (ORDER BY m) AS r FROM (SELECT name, MAX(mag) AS m FROM Star GROUP BY name) g) t",
    "SELECT COUNT(*), SUM(r) FROM (SELECT RANK() OVER (PARTITION BY name ORDER BY m) AS r FROM (SELECT name, shift, MAX(mag) AS m FROM Star GROUP BY name, shift) g) t",
    "SELECT COUNT(*), SUM(r) FROM (SELECT RANK() OVER (PARTITION BY name ORDER BY mag) AS r FROM Star) t",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY name ORDER BY id) AS r FROM Star WHERE id < 3000 ORDER BY r, id LIMIT 20",
    "SELECT a.g, a.n, b.n FROM (SELECT id DIV 9 AS g, COUNT(*) AS n FROM Star GROUP BY g) a JOIN (SELECT id DIV 9 AS g, SUM(mag) AS n FROM Star GROUP BY g) b ON a.g = b.g",
    "SELECT COUNT(*), SUM(a.n), SUM(s.id) FROM (SELECT name, COUNT(*) AS n FROM Star GROUP BY name) a JOIN Star s ON a.name = s.name",
    "SELECT COUNT(*), SUM(a.n) FROM (SELECT name, shift, COUNT(*) AS n FROM Star GROUP BY name, shift) a LEFT JOIN (SELECT DISTINCT name, shift FROM Star WHERE id % 3 = 0) b ON a.shift = b.shift AND a.name = b.name",
    "SELECT n, COUNT(*) FROM (SELECT name AS n FROM Star GROUP BY name UNION ALL SELECT name FROM Star GROUP BY name) t GROUP BY n",
    "SELECT name, COUNT(*) FROM Star GROUP BY name HAVING COUNT(*) > (SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM Star GROUP BY name) t)",
    "SELECT name FROM Star GROUP BY name UNION SELECT CONCAT(name, 'x') FROM Star GROUP BY name",
    "SELECT name, GROUP_CONCAT(id ORDER BY id) FROM Star WHERE id < 20000 GROUP BY name",
    "SELECT id + 0 AS g FROM Star WHERE mag > 1e9 GROUP BY g",
]


def star_lines(stars: int) -> Iterator[str]:
    """Stars all over the sky, with columns by which they can be grouped."""
    yield "id,ra,dec,mag,name,shift"
    for number in range(stars):
        ra, dec = number * 137.50776 % 360, math.degrees(math.asin((number * 0.618034 % 1) * 2 - 1))
        yield f"{number},{ra:.6f},{dec:.6f},{14 + number % 1013 / 100},n{number * 7919 % 1009},{SHIFTS[number % len(SHIFTS)]}"


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with enough stars for dozens of pieces."""
    directory = tmp_path_factory.mktemp("archive")
    stars = write_lines(directory / "stars.csv", star_lines(STARS), header=None)
    meridian.load(directory / "data", "sky", "Star", stars, **DIRECTOR)
    return directory / "data"


@pytest.fixture
def other_data(data: Path, tmp_path: Path) -> Path:
    """The same for another cluster: there is one front end of a data directory."""
    return shutil.copytree(data, tmp_path / "data")


@pytest.fixture(scope="module")
def alone(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server without workers."""
    with serving(meridian, data) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three workers that merge whatever can be shuffled."""
    with cluster_of(meridian, tmp_path_factory.mktemp("cluster"), data, 3, 2, "--shuffle-above", 0, "--result-cache", "off") as cluster:
        yield cluster


def execute(server: Server, statement: str) -> list[tuple[object, ...]]:
    """The rows of a statement."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def rounded(rows: list[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    """The rows as a multiset, sums of floating-point numbers to some digits."""
    return Counter(tuple(float(f"{value:.10g}") if isinstance(value, float) else value for value in row) for row in rows)


def plan(server: Server, statement: str) -> str:
    """What EXPLAIN says."""
    return "\n".join(str(row[-1]) for row in execute(server, f"EXPLAIN {statement}"))


def kept_files(member: Member | Path) -> list[Path]:
    """The temporary files of a worker, or in a data directory."""
    directory = member if isinstance(member, Path) else member.directory
    return [path for path in directory.rglob("*") if "/tmp/" in str(path) and path.is_file() and path.name.startswith(".tmp")]


def nothing_is_kept(cluster: Cluster, seconds: float = 10) -> None:
    """Waits until no worker keeps rows, nor the front end."""
    places = [*cluster.workers.values(), cluster.data]
    wait_until(lambda: not any(kept_files(place) for place in places), seconds, "nothing is kept any more")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_answers_are_those_of_one_machine(cluster: Cluster, alone: Server, statement: str) -> None:
    expected, found = execute(alone, statement), execute(cluster.server, statement)
    assert rounded(found) == rounded(expected)
    if "ORDER BY name" in statement or "LIMIT 7" in statement or "LIMIT 10" in statement or "LIMIT 20" in statement:
        assert [tuple(map(str, row)) for row in found] == [tuple(map(str, row)) for row in expected]
    assert "ShuffleExec" in plan(cluster.server, statement)


# Rows may be cut off by each piece beforehand, by an operator of their own or within another one.
LIMITED = [
    "SELECT id FROM Star WHERE mag > 24",
    "SELECT id FROM Star",
    "SELECT 1 FROM Star WHERE id < 5000 AND mag > 15 ORDER BY 1",
    "SELECT a.id FROM Star a LEFT JOIN Star b ON a.id = b.id WHERE a.mag > 24 OR b.mag < 14.01",
    "SELECT name FROM Star GROUP BY name",
]


@pytest.mark.parametrize("limit", [f"{2**32 - 1}", f"{2**32}", f"{2**32 + 1}", f"{2**63 - 1}", f"{2**64 - 1}", f"{2**64 - 1} OFFSET 10", f"10 OFFSET {2**32}"])
def test_limits_beyond_32_bits(cluster: Cluster, alone: Server, limit: str) -> None:
    """Limits that encoded plans have no room for were others at workers: the first of these gave no row."""
    for query in LIMITED:
        statement = f"SELECT COUNT(*) FROM ({query} LIMIT {limit}) t"
        assert execute(cluster.server, statement) == execute(alone, statement), query
        if "OFFSET" not in limit:
            statement = f"{query} LIMIT {limit}"
            assert rounded(execute(cluster.server, statement)) == rounded(execute(alone, statement)), query
            assert "pieces sent to workers: w" in plan(cluster.server, statement)


@pytest.mark.parametrize("threads", [1, 4])
def test_front_ends_of_other_numbers_of_threads(meridian: Meridian, other_data: Path, tmp_path: Path, alone: Server, threads: int) -> None:
    """With one there are no partitions, and limits stand elsewhere in a plan: each bucket gave as many rows as all were to give."""
    with cluster_of(meridian, tmp_path / "cluster", other_data, 2, 1, "--shuffle-above", 0, "--result-cache", "off", "--threads", threads) as cluster:
        for statement in STATEMENTS:
            assert rounded(execute(cluster.server, statement)) == rounded(execute(alone, statement)), statement
        assert "pieces go to other replicas" not in cluster.server.log


def test_sums_are_the_same_each_time(cluster: Cluster) -> None:
    for statement in (GROUPS, "SELECT SUM(m), AVG(s) FROM (SELECT id DIV 4 AS g, MAX(mag) AS m, SUM(mag / 3) AS s FROM Star GROUP BY g) t"):
        first = sorted(map(str, execute(cluster.server, statement)))
        for run in range(4):
            assert sorted(map(str, execute(cluster.server, f"/* {run} */ {statement}"))) == first


def test_explain_analyze_says_what_was_kept_and_merged(cluster: Cluster) -> None:
    assert "merged by workers if the pieces give more than 0 rows, else by the front end" in plan(cluster.server, GROUPS)
    told = plan(cluster.server, f"ANALYZE {GROUPS}")
    line = next(line for line in told.splitlines() if "ShuffleExec" in line)
    assert "by=[" in line and "merged by workers if the pieces give more than 0 rows" in line
    assert "buckets_merged=12" in line, "two for each of three workers' two threads"
    assert all(f"pieces of worker w{number}: " in told for number in range(3))
    nothing_is_kept(cluster)


def test_submitted_queries_are_merged_by_the_front_end(cluster: Cluster, alone: Server) -> None:
    """They go on after a restart with what their pieces have given, which is kept there."""
    with cluster.server.connect(database="sky", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SUBMIT {GROUPS}")
        (number, *_), *_ = cursor.fetchall()

        def state() -> str:
            cursor.execute(f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {number}")
            return str(cursor.fetchall()[0][0])

        wait_until(lambda: state() == "COMPLETED", 60, "the query is completed")
        cursor.execute(f"SELECT * FROM qserv_result({number})")
        assert rounded(list(cursor.fetchall())) == rounded(execute(alone, GROUPS))
    nothing_is_kept(cluster)


def test_what_a_sample_gives_decides_who_merges(meridian: Meridian, tmp_path: Path) -> None:
    """What pieces give is not known before some have run."""
    stars = 1_000_000
    meridian.load(tmp_path / "data", "sky", "Star", write_lines(tmp_path / "stars.csv", star_lines(stars), header=None), **DIRECTOR)
    few, many = "SELECT id % 5 AS g, COUNT(*), SUM(id) FROM Star GROUP BY g", "SELECT id DIV 2 AS g, COUNT(*), SUM(id) FROM Star GROUP BY g"
    with serving(meridian, tmp_path / "data") as server:
        expected = [execute(server, statement) for statement in (few, many)]
    with cluster_of(meridian, tmp_path / "cluster", tmp_path / "data", 2, 1, "--shuffle-above", stars // 2) as cluster:
        for statement, rows in zip((few, many), expected, strict=True):
            assert rounded(execute(cluster.server, statement)) == rounded(rows)
        lines = [line for statement in (few, many) for line in plan(cluster.server, f"ANALYZE {statement}").splitlines() if "ShuffleExec" in line]
        assert len(lines) == 2
        assert "rows_kept=0" in lines[0] and "buckets_merged=0" in lines[0], lines[0]
        assert "rows_kept=1.00 M" in lines[1] and "buckets_merged=8" in lines[1], lines[1]
        # What reads few rows is not even asked for a sample.
        assert "ShuffleExec" not in plan(cluster.server, few.replace("Star", "Star WHERE qserv_areaspec_circle(10, 10, 2)"))


def test_shuffles_can_be_switched_off(meridian: Meridian, other_data: Path, tmp_path: Path, alone: Server) -> None:
    with cluster_of(meridian, tmp_path / "off", other_data, 1, 1, "--shuffle-above", "off") as cluster:
        assert "ShuffleExec" not in plan(cluster.server, GROUPS)
        assert rounded(execute(cluster.server, GROUPS)) == rounded(execute(alone, GROUPS))


def test_workers_are_lost_while_they_keep_rows(meridian: Meridian, other_data: Path, tmp_path: Path, alone: Server) -> None:
    """Killed, or stopped, at any time: no answer is wrong, and none is missing."""
    expected = rounded(execute(alone, GROUPS))
    with cluster_of(meridian, tmp_path / "lost", other_data, 3, 2, "--shuffle-above", 0, "--result-cache", "off") as cluster:
        began = time.monotonic()
        assert rounded(execute(cluster.server, GROUPS)) == expected
        usual = time.monotonic() - began
        outcomes: list[object] = []

        def ask(number: int) -> None:
            try:
                outcomes.append(rounded(execute(cluster.server, f"/* {number} */ {GROUPS}")) == expected)
            except pymysql.Error as error:
                outcomes.append(error)

        for number in range(12):
            name = f"w{number % 3}"
            client = threading.Thread(target=ask, args=(number,))
            client.start()
            # From before the first piece to after the last bucket.
            time.sleep(usual * number / 11)
            if number % 2:
                cluster.workers[name].end(signal.SIGKILL)
            else:
                os.kill(cluster.workers[name].process.pid, signal.SIGSTOP)
            client.join(timeout=120)
            assert len(outcomes) == number + 1, "it has ended"
            if number % 2:
                cluster.start_worker(name)
            else:
                os.kill(cluster.workers[name].process.pid, signal.SIGCONT)
            states = lambda: {worker["state"] for worker in cluster.status()["workers"]}  # noqa: E731
            wait_until(lambda: states() == {"live"}, 60, "all workers are back")
            cluster.wait_for_replicas()
        assert outcomes == [True] * 12
        nothing_is_kept(cluster)


def test_what_is_kept_goes_with_the_statement(cluster: Cluster) -> None:
    """With one that is killed, and with a client that hangs up."""
    slow = "SELECT id + 0 AS g, COUNT(*), SUM(SLEEP(0.00005)) FROM Star GROUP BY g"
    for way in ("kill", "hang up"):
        connection = cluster.server.connect(database="sky")
        cursor = connection.cursor()
        failures: list[Exception] = []

        def ask(cursor: pymysql.cursors.Cursor = cursor, failures: list[Exception] = failures) -> None:
            try:
                cursor.execute(slow)
            except (pymysql.Error, OSError, AttributeError) as error:
                failures.append(error)

        client = threading.Thread(target=ask)
        client.start()
        wait_until(lambda: any(kept_files(worker) for worker in cluster.workers.values()), 60, "rows are kept")
        if way == "kill":
            execute(cluster.server, f"KILL QUERY {connection.thread_id()}")
        else:
            connection._sock.shutdown(2)  # noqa: SLF001
        client.join(timeout=30)
        assert failures
        nothing_is_kept(cluster)
        connection.close()


def test_what_is_kept_goes_with_the_front_end(meridian: Meridian, other_data: Path, tmp_path: Path) -> None:
    with cluster_of(meridian, tmp_path / "cluster", other_data, 2, 1, "--shuffle-above", 0) as cluster:
        slow = "SELECT id + 0 AS g, COUNT(*), SUM(SLEEP(0.00005)) FROM Star GROUP BY g"
        client = threading.Thread(target=lambda: pytest.raises((pymysql.Error, OSError), execute, cluster.server, slow))
        client.start()
        wait_until(lambda: all(kept_files(worker) for worker in cluster.workers.values()), 60, "rows are kept")
        cluster.server.stop(signal.SIGKILL)
        client.join(timeout=30)
        workers = cluster.workers.values()
        wait_until(lambda: not any(kept_files(worker) for worker in workers), 20, "nothing is kept any more")


@pytest.mark.parametrize("tls", [False, True])
def test_workers_without_room_for_temporary_files_keep_nothing(meridian: Meridian, other_data: Path, tmp_path: Path, alone: Server, tls: bool) -> None:
    """Their pieces run elsewhere: here at the front end, from which the workers read them."""
    with cluster_of(meridian, tmp_path / "room", other_data, 1, 1, "--shuffle-above", 0, "--result-cache", "off", tls=tls) as cluster:
        cluster.start_worker("w1", "--temp-size", "100k")
        wait_until(lambda: len(cluster.status()["workers"]) == 2, 60, "the worker has joined")
        wait_until(lambda: all(worker["files"] for worker in cluster.status()["workers"]), 60, "it holds files")
        cluster.wait_for_replicas()
        assert rounded(execute(cluster.server, GROUPS)) == rounded(execute(alone, GROUPS))
        assert "rows cannot be kept in temporary files" in cluster.server.log
        assert "are lost" not in cluster.server.log, "all who merge could read what the front end keeps"
        nothing_is_kept(cluster)


def test_shuffles_over_tls(meridian: Meridian, other_data: Path, tmp_path: Path, alone: Server) -> None:
    with cluster_of(meridian, tmp_path / "tls", other_data, 3, 1, "--shuffle-above", 0, tls=True) as cluster:
        for statement in (GROUPS, STATEMENTS[2]):
            assert rounded(execute(cluster.server, statement)) == rounded(execute(alone, statement))
        told = plan(cluster.server, f"ANALYZE {GROUPS}")
        assert "buckets_merged=12" in told
