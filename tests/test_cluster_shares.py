"""Clusters: how fast replicas come, and what becomes of shares that make no progress."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster_members import Cluster, Member, cluster_of
from meridian_cli import Meridian
from serving import Server, wait_until
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


def ask(server: Server, statement: str, *before: str) -> list[tuple[object, ...]]:
    """The rows of a statement, after others of the same session."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        for setting in before:
            cursor.execute(setting)
        cursor.execute(statement)
        return list(cursor.fetchall())


# How fast replicas come.


def test_replicas_come_no_faster_than_they_may(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    cluster = Cluster(meridian, tmp_path / "cluster", data, 1)
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
        expected = ask(cluster.server, SUMS)
        with hung_pieces(cluster.workers["w0"]):
            began = time.monotonic()
            assert ask(cluster.server, f"/* hung */ {SUMS}") == expected
            assert time.monotonic() - began < 30
            assert {worker["state"] for worker in cluster.status()["workers"]} == {"live"}
        if replicas == 1:
            assert "make no progress" in cluster.server.log
            before = cluster.pieces()["w0"]
            assert ask(cluster.server, f"/* again */ {SUMS}") == expected
            wait_until(lambda: cluster.pieces()["w0"] > before, 10, "the worker runs pieces again")


def test_pieces_that_take_long_do_not_hang(meridian: Meridian, small: Path, tmp_path: Path) -> None:
    """Nor do those that wait for threads which others have."""
    long = "SELECT COUNT(*), SUM(b.id) FROM Star a, Star b WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 120 AND a.id % 12 = 3"
    with cluster_of(meridian, tmp_path / "cluster", small, 1, 1, "--stalled-after", 3) as cluster:
        rows: dict[int, object] = {}

        def client(number: int) -> None:
            rows[number] = ask(cluster.server, f"/* {number} */ {long}")

        threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=600)
        assert time.monotonic() - began > 6, "it is long enough to tell"
        assert len(rows) == 4 and len({str(found) for found in rows.values()}) == 1
        assert "make no progress" not in cluster.server.log
        wait_until(lambda: sum(cluster.pieces().values()) >= 4, 10, "the worker has run the pieces")


def test_a_suspended_worker_is_waited_for_no_longer_than_a_silent_one(meridian: Meridian, small: Path, tmp_path: Path) -> None:
    with cluster_of(meridian, tmp_path / "cluster", small, 1, 1) as cluster:
        expected = ask(cluster.server, NEIGHBOURS)
        worker = cluster.workers["w0"]
        worker.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert ask(cluster.server, f"/* stopped */ {NEIGHBOURS}") == expected
            assert time.monotonic() - began < 30
        finally:
            worker.send_signal(signal.SIGCONT)
