"""Shares of clusters: what they take along, what their plans cost, and what becomes of those that make no progress."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import astropy.table
import pymysql
import pytest
import pyvo

from cluster_members import Cluster, Member, cluster_of
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, star_lines, write_lines

# Enough for a dozen pieces, and for two.
STARS, FEW_STARS = 250_000, 30_000
NEIGHBOURS = "SELECT COUNT(*), MIN(scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`)) FROM Star a, Star b WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 0.3 AND a.id < b.id"
SUMS = "SELECT id % 10 AS d, COUNT(*), SUM(ra), AVG(`dec`) FROM Star GROUP BY d ORDER BY d"


def load(meridian: Meridian, directory: Path, stars: int) -> Path:
    """A data directory with so many stars."""
    path = write_lines(directory / "stars.csv", star_lines(stars, 1))
    meridian.load(directory / "data", "sky", "Star", path, **DIRECTOR)
    return directory / "data"


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with many stars."""
    return load(meridian, tmp_path_factory.mktemp("archive"), STARS)


@pytest.fixture(scope="module")
def small(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with few stars."""
    return load(meridian, tmp_path_factory.mktemp("archive"), FEW_STARS)


@pytest.fixture(scope="module")
def alone(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server without workers."""
    with serving(meridian, data) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A front end and three workers."""
    with cluster_of(meridian, tmp_path_factory.mktemp("cluster"), data) as cluster:
        yield cluster


def execute(server: Server, statement: str, *before: str) -> list[tuple[object, ...]]:
    """The rows of a statement, after others of the same session."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        for setting in before:
            cursor.execute(setting)
        cursor.execute(statement)
        return list(cursor.fetchall())


def gauges(server: Server, name: str) -> dict[str, float]:
    """A metric of each worker."""
    with urllib.request.urlopen(server.url("/metrics"), timeout=10) as response:
        lines = response.read().decode().splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith(f"{name}{{"))
    return {label.split('"')[1]: float(value) for label, value in found}


def settled(cluster: Cluster, name: str) -> dict[str, float]:
    """The same when all workers have reported what they have done."""
    # The first report may have been on its way.
    for _ in range(2):
        since = time.monotonic()

        def have_reported(since: float = since) -> bool:
            passed = time.monotonic() - since
            return all(worker["silent_seconds"] < passed for worker in cluster.status()["workers"])

        wait_until(have_reported, 60, "all workers have reported")
    return gauges(cluster.server, f"meridian_cluster_worker_{name}")


# Plans.


def test_a_plan_is_decoded_once_for_a_query_and_worker(cluster: Cluster, alone: Server) -> None:
    for number, statement in enumerate((NEIGHBOURS, SUMS)):
        expected = execute(alone, statement)
        plans, shares = settled(cluster, "plans_decoded"), settled(cluster, "shares")
        # A comment makes it a statement that was not met: it is planned and sent to workers.
        assert execute(cluster.server, f"/* {number} */ {statement}") == expected
        more_plans, more_shares = settled(cluster, "plans_decoded"), settled(cluster, "shares")
        assert {name: more_plans[name] - plans[name] for name in plans} == {"w0": 1, "w1": 1, "w2": 1}
        assert sum(more_shares.values()) - sum(shares.values()) >= 5, "several shares had that plan"


def test_statements_and_sessions_that_run_at_once_do_not_mix(cluster: Cluster, alone: Server) -> None:
    """Statements that differ by a constant, a setting or a variable alone, and some that fail, again and again."""
    lengths = "SELECT id % 10 AS d, LENGTH(GROUP_CONCAT(id ORDER BY id)) FROM Star WHERE id < 3000 GROUP BY d ORDER BY d"
    cases: list[tuple[str, tuple[str, ...]]] = [
        *((f"SELECT COUNT(*), SUM(ra + {number}) FROM Star", ()) for number in range(4)),
        *((lengths, (f"SET group_concat_max_len = {length}",)) for length in (10, 100, 1000)),
        *(("SELECT COUNT(*), AVG(ra) FROM Star WHERE ra > @least", (f"SET @least = {least}",)) for least in (10, 200)),
        *((f"SELECT COUNT(*) FROM Star WHERE ra > (SELECT AVG(ra) FROM Star WHERE id < {most})", ()) for most in (100, 1000)),
    ]
    failing = "SELECT SUM(9223372036854775807 + version) FROM Star"
    expected = [execute(alone, statement, *before) for statement, before in cases]
    wrong: list[str] = []

    def client(number: int) -> None:
        for turn in range(3):
            for at in range(len(cases)):
                statement, before = cases[(at + number) % len(cases)]
                rows = execute(cluster.server, f"/* {number} {turn} */ {statement}", *before)
                if rows != expected[(at + number) % len(cases)]:
                    wrong.append(f"{before} {statement}: {rows}")
            try:
                execute(cluster.server, f"/* {number} {turn} */ {failing}")
                wrong.append("the statement that fails has not failed")
            except pymysql.err.Error as error:
                if error.args[0] not in (1264, 1690):
                    wrong.append(str(error))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong, "\n".join(wrong[:5])


def test_plans_keep_no_parts_that_shall_go(meridian: Meridian, tmp_path: Path) -> None:
    """A plan that a worker keeps holds the directories of its parts."""
    data = load(meridian, tmp_path, 2000)
    with cluster_of(meridian, tmp_path / "cluster", data, 2, 1) as cluster:
        assert execute(cluster.server, "SELECT COUNT(*), SUM(ra) FROM Star")[0][0] == 2000
        meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Star")
        wait_until(lambda: not any(worker.files() for worker in cluster.workers.values()), 15, "the files are gone")


# What a share takes along.


def upload(server: Server, query: str, table: astropy.table.Table, *, is_job: bool = False) -> list[tuple[object, ...]]:
    """The rows of a query to TAP that reads a table which goes with it."""
    service = pyvo.dal.TAPService(server.url("/tap"))
    search = service.run_async if is_job else service.search
    return [tuple(row) for row in search(query, uploads={"mine": table}).to_table()]


@pytest.fixture(scope="module")
def mine(alone: Server) -> astropy.table.Table:
    """Places near some stars, with texts and missing values."""
    rows = execute(alone, "SELECT id, ra, `dec` FROM Star WHERE id % 7 = 0 ORDER BY id LIMIT 800")
    table = astropy.table.Table(rows=[(int(str(n)), float(str(ra)) + 1e-5, float(str(dec)) - 1e-5) for n, ra, dec in rows], names=("n", "ra", "dec"))
    table["name"] = [f"place {n}" for n in table["n"]]
    table["v"] = astropy.table.MaskedColumn([float(n) / 3 for n in table["n"]], mask=[n % 2 == 0 for n in table["n"]])
    return table


UPLOADS = [
    "SELECT id, n, name, v, separation FROM nearest(sky.Star, TAP_UPLOAD.mine, 3.0) ORDER BY id, n",
    "SELECT id, n, name, separation FROM crossmatch(sky.Star, TAP_UPLOAD.mine, 3.0) ORDER BY id, n",
    "SELECT COUNT(*) AS n, SUM(s.ra * u.v) AS total FROM sky.Star s JOIN TAP_UPLOAD.mine u ON s.id = u.n",
    "SELECT s.id, s.ra FROM sky.Star s WHERE s.id IN (SELECT n FROM TAP_UPLOAD.mine WHERE v > 100) ORDER BY s.id",
    "SELECT u.name, COUNT(*) AS n, AVG(s.ra) AS mean FROM sky.Star s JOIN TAP_UPLOAD.mine u ON s.id = u.n + 1 GROUP BY u.name ORDER BY u.name",
]


@pytest.mark.parametrize("query", UPLOADS)
def test_crossmatches_of_uploads_run_at_workers(cluster: Cluster, alone: Server, mine: astropy.table.Table, query: str) -> None:
    expected = upload(alone, query, mine)
    assert expected
    before = sum(settled(cluster, "pieces").values())
    assert str(upload(cluster.server, query, mine)) == str(expected)
    assert sum(settled(cluster, "pieces").values()) > before
    assert str(upload(cluster.server, query, mine, is_job=True)) == str(expected)
    # Another table under the same name.
    assert str(upload(cluster.server, query, mine[:100])) == str(upload(alone, query, mine[:100]))


def test_what_is_read_around_an_upload_is_the_same(cluster: Cluster, alone: Server, mine: astropy.table.Table) -> None:
    """Such a join is one piece, of the whole upload, which the front end runs."""
    query = (
        "SELECT s.id, u.n, u.name, u.v, DISTANCE(s.ra, s.dec, u.ra, u.dec) AS d FROM sky.Star s JOIN TAP_UPLOAD.mine u"
        " ON DISTANCE(s.ra, s.dec, u.ra, u.dec) < 0.001 ORDER BY s.id, u.n"
    )
    expected = upload(alone, query, mine)
    assert len(expected) >= len(mine) and str(upload(cluster.server, query, mine)) == str(expected)


def test_values_of_subqueries_go_along(cluster: Cluster, alone: Server) -> None:
    for statement in (
        "SELECT COUNT(*), SUM(ra), AVG(`dec`) FROM Star WHERE ra > (SELECT AVG(ra) FROM Star)",
        "SELECT id, ra - (SELECT MIN(ra) FROM Star) AS d FROM Star WHERE id % 100 = 7 ORDER BY id",
        "SELECT COUNT(*) FROM Star WHERE ra > (SELECT ra FROM Star WHERE id = -1)",
        "SELECT id % 3 AS d, COUNT(*), MAX(ra - (SELECT AVG(ra) FROM Star)) FROM Star WHERE `dec` < (SELECT MAX(`dec`) FROM Star) GROUP BY d ORDER BY d",
        "SELECT COUNT(*), MIN(CONCAT(id, (SELECT MAX(id) FROM Star))) FROM Star",
    ):
        rows = execute(cluster.server, f"/* once */ {statement}")
        assert rows == execute(alone, statement), statement
        analyzed = str(execute(cluster.server, f"EXPLAIN ANALYZE {statement}"))
        assert "pieces of worker" in analyzed
    # Both phases, that of the subquery and that of the statement.
    before = sum(settled(cluster, "plans_decoded").values())
    execute(cluster.server, "SELECT COUNT(*), SUM(ra) FROM Star WHERE ra > (SELECT AVG(ra * 1.25) - 0.5 FROM Star)")
    assert sum(settled(cluster, "plans_decoded").values()) - before == 6


# How fast replicas come.


def test_replicas_come_no_faster_than_they_may(meridian: Meridian, tmp_path: Path) -> None:
    # A data directory has one front end.
    cluster = Cluster(meridian, tmp_path / "cluster", load(meridian, tmp_path, STARS), 1)
    try:
        outcome = meridian.run("worker", "--join", cluster.address, "--data", tmp_path / "w", *cluster.credentials("w0"), "--repair-bandwidth", "10k")
        assert outcome.status != 0 and "1M or more" in outcome.complaint
        time.sleep(4)
        began = time.monotonic()
        cluster.start_worker("w0", "--repair-bandwidth", "1M")
        left: list[float] = []

        def is_there() -> bool:
            left.extend(worker["seconds_left"] for worker in cluster.status()["workers"] if worker["seconds_left"] is not None)
            return cluster.has_replicas()

        wait_until(is_there, 120, "the replicas are there")
        took = time.monotonic() - began
        size = sum(path.stat().st_size for path in cluster.workers["w0"].files())
        assert size > 1 << 20, "there is enough to measure"
        assert took > 0.8 * size / (1 << 20) - 0.3, (took, size)
        assert left and max(left) > 0
    finally:
        cluster.end()


def test_workers_fill_their_disks_as_far_as_they_may(meridian: Meridian, small: Path, tmp_path: Path) -> None:
    outcome = meridian.run("worker", "--join", "127.0.0.1:1", "--data", tmp_path / "w", "--cluster-secret", tmp_path, "--disk-limit", "0")
    assert outcome.status == 2 and "1..=100" in outcome.complaint, outcome
    disk = shutil.disk_usage(tmp_path)
    if disk.used * 50 < disk.total:
        pytest.skip("the disk is next to empty: no worker could be told that it is too full")
    cluster = Cluster(meridian, tmp_path / "cluster", small, 1)
    try:
        worker = cluster.start_worker("w0", "--disk-limit", "1")
        wait_until(lambda: len(cluster.status()["workers"]) == 1, 30, "it has joined")
        wait_until(lambda: any("have no place" in told for told in cluster.status()["warnings"]), 30, "it is told")
        status = cluster.status()
        (warning,) = (told for told in status["warnings"] if "have no place" in told)
        assert "w0: " in warning and "1 % allowed" in warning and "--disk-limit" in warning, warning
        assert status["workers"][0]["disk_limit"] == 1 and not worker.files()
        worker.end()
        cluster.start_worker("w0")
        cluster.wait_for_replicas()
        assert cluster.workers["w0"].files() and not cluster.status()["warnings"]
    finally:
        cluster.end()


# Pieces that hang.

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


@contextmanager
def hung_pieces(worker: Member) -> Iterator[None]:
    """A worker whose threads that run pieces stand still, while those that report and speak go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    tasks = Path(f"/proc/{worker.process.pid}/task")
    threads = [int(task.name) for task in tasks.iterdir() if (task / "comm").read_text().strip() == "meridian-piece"]
    assert threads
    held = []
    try:
        for thread in threads:
            if libc.ptrace(PTRACE_SEIZE, thread, None, None) != 0:
                pytest.skip("this machine lets nobody stop single threads (ptrace)")
            held.append(thread)
            libc.ptrace(PTRACE_INTERRUPT, thread, None, None)
            os.waitpid(thread, 0x4000_0000)
        yield
    finally:
        for thread in held:
            libc.ptrace(PTRACE_DETACH, thread, None, None)


@pytest.mark.parametrize("replicas", [1, 2])
def test_pieces_that_hang_run_elsewhere(meridian: Meridian, small: Path, tmp_path: Path, replicas: int) -> None:
    """A worker that reported and ran nothing was waited for without end where it was the only one with a file."""
    with cluster_of(meridian, tmp_path / "cluster", small, replicas, replicas, "--stalled-after", 3) as cluster:
        expected = execute(cluster.server, SUMS)
        with hung_pieces(cluster.workers["w0"]):
            began = time.monotonic()
            assert execute(cluster.server, f"/* hung */ {SUMS}") == expected
            assert time.monotonic() - began < 30
            assert {worker["state"] for worker in cluster.status()["workers"]} == {"live"}
        if replicas == 1:
            assert "make no progress" in cluster.server.log
            before = cluster.pieces()["w0"]
            assert execute(cluster.server, f"/* again */ {SUMS}") == expected
            wait_until(lambda: cluster.pieces()["w0"] > before, 10, "the worker runs pieces again")


def test_pieces_that_take_long_do_not_hang(meridian: Meridian, small: Path, tmp_path: Path) -> None:
    """Nor do those that wait for threads which others have."""
    pairs = "SELECT COUNT(*), SUM(b.id) FROM Star a, Star b WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 120"
    with cluster_of(meridian, tmp_path / "cluster", small, 1, 1, "--stalled-after", 3) as cluster:

        def all_at_once(one_of: int) -> list[object]:
            """Four queries of so many of the stars."""
            rows: list[object] = []
            clients = [
                threading.Thread(target=lambda number=number: rows.append(execute(cluster.server, f"/* {number} */ {pairs} AND a.id % {one_of} = {one_of - 1}")))
                for number in range(4)
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join(timeout=600)
            return rows

        # However fast the program is: a share of the stars that takes longer than pieces may say nothing.
        for one_of in (12, 3, 1):
            began = time.monotonic()
            rows = all_at_once(one_of)
            took = time.monotonic() - began
            assert len(rows) == 4 and len({str(found) for found in rows}) == 1
            if took > 6:
                break
        assert took > 6, "it is long enough to tell"
        assert "make no progress" not in cluster.server.log
        wait_until(lambda: sum(cluster.pieces().values()) >= 4, 10, "the worker has run the pieces")


def test_a_suspended_worker_is_waited_for_no_longer_than_a_silent_one(meridian: Meridian, small: Path, tmp_path: Path) -> None:
    with cluster_of(meridian, tmp_path / "cluster", small, 1, 1) as cluster:
        expected = execute(cluster.server, NEIGHBOURS)
        worker = cluster.workers["w0"]
        worker.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert execute(cluster.server, f"/* stopped */ {NEIGHBOURS}") == expected
            assert time.monotonic() - began < 30
        finally:
            worker.send_signal(signal.SIGCONT)
