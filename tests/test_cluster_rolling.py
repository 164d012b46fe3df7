"""Restarts of all members of a cluster, one after another, while clients ask; and front ends that start when workers run already."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from replicated_postgres import free_port
from serving import Server, serving, wait_until
from small_tables import star_lines, write_lines
from test_cluster import execute
from test_cluster_front_ends import CUT, SECONDS, Rows, check_all, pieces_run, shared_workers

STARS = 30_000
VISITS = 8_000
SCHEMAS = (f"rolling_{number}" for number in count())
STATEMENTS = [
    "SELECT s.id % 7 AS d, COUNT(*), SUM(v.flux) FROM Star s JOIN Visit v ON s.id = v.id GROUP BY d ORDER BY d",
    "SELECT COUNT(*), SUM(version), AVG(ra), MIN(`dec`), STDDEV(ra * `dec`) FROM Star",
    "SELECT id, ra FROM Star ORDER BY ra DESC, id LIMIT 50",
    "SELECT s.* FROM Star s WHERE id = 12345",
    "SELECT COUNT(*) FROM Star a, Star b WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 0.2 AND a.id < b.id",
]


@pytest.fixture(scope="module")
def loaded(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars and visits, with the catalog in SQLite."""
    directory = tmp_path_factory.mktemp("shared")
    data = directory / "data"
    stars = write_lines(directory / "stars.csv", star_lines(STARS, 1))
    meridian.load(data, "sky", "Star", stars, kind="director", key="id", ra="ra", dec="dec", **CUT)
    visits = [f"{number},{number * 7919 % STARS},{number % 977 / 8}" for number in range(VISITS)]
    meridian.load(data, "sky", "Visit", write_lines(directory / "visits.csv", visits, "visit,id,flux"), kind="child", key="id", director="Star")
    return data


@pytest.fixture(scope="module")
def expected(meridian: Meridian, loaded: Path) -> dict[str, Rows]:
    """What a server without workers answers."""
    with serving(meridian, loaded) as server:
        return {statement: execute(server, statement) for statement in STATEMENTS}


@pytest.fixture
def data(meridian: Meridian, loaded: Path, postgres: str, tmp_path: Path) -> Path:
    """The same in a data directory of the test's own whose catalog is in PostgreSQL."""
    data = Path(shutil.copytree(loaded, tmp_path / "data"))
    meridian.must("catalog", "copy", "--data", data, "--to", postgres, "--schema", next(SCHEMAS))
    return data


@dataclass
class Restart:
    """When a front end was told to end, and when it was there again."""

    front_end: int
    began: float
    ended: float = field(default=float("inf"))


class Clients:
    """Clients that ask all the time, each at a front end of its own, and at the other one while that restarts."""

    def __init__(self, servers: list[Server], expected: dict[str, Rows], number: int = 4) -> None:
        self.addresses = [server.port for server in servers]
        self.expected = expected
        self.restarts: list[Restart] = []
        self.wrong: list[str] = []
        self.answered: Counter[tuple[int, str]] = Counter()
        self.turned_away = 0
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(at,)) for at in range(number)]
        for thread in self.threads:
            thread.start()

    def _run(self, number: int) -> None:
        chooses = random.Random(number)
        at = number % 2
        while not self.stop.is_set():
            statement = chooses.choice(STATEMENTS)
            began = time.monotonic()
            connected = None
            try:
                options = {"host": "127.0.0.1", "port": self.addresses[at], "user": "tester", "database": "sky"}
                with pymysql.connect(**options) as connection, connection.cursor() as cursor:  # type: ignore[call-overload]
                    connected = time.monotonic()
                    # A comment makes it a statement that was not met: it is planned and sent to workers.
                    cursor.execute(f"/* {chooses.random()} */ {statement}")
                    rows = list(cursor.fetchall())
            except (pymysql.err.Error, OSError) as error:
                self._note(at, statement, began, connected, error)
                at = 1 - at
                continue
            self.answered[at, statement] += 1
            if rows != self.expected[statement]:
                self.wrong.append(f"{statement}: {rows[:3]} instead of {self.expected[statement][:3]}")

    def _note(self, at: int, statement: str, began: float, connected: float | None, error: Exception) -> None:
        now = time.monotonic()
        restart = next((it for it in self.restarts if it.front_end == at and it.began <= now and it.ended >= began), None)
        # A front end that ends lets what it has begun finish: whoever was in before is answered.
        had_begun = restart is not None and connected is not None and connected < restart.began - 0.5
        if restart is None or had_begun:
            self.wrong.append(f"front end {at}: {statement}: {error}")
        else:
            self.turned_away += 1

    def end(self) -> None:
        """Ends the clients."""
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=90)
            assert not thread.is_alive(), "a statement hangs"


def test_all_members_restart_one_after_another_and_no_statement_fails(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows]
) -> None:
    with shared_workers(meridian, tmp_path / "fronts", data) as fronts:
        clients = Clients(fronts.servers, expected)
        try:
            for name, worker in list(fronts.workers.items()):
                port = worker.port
                assert worker.end(signal.SIGTERM) == 0
                fronts.start_worker(name, "--listen", f"127.0.0.1:{port}")
                wait_until(lambda name=name: fronts.workers[name].log.count("joined the cluster") == 2, SECONDS, "it has joined")  # type: ignore[misc]
                wait_until(lambda: all(set(fronts.states(at).values()) == {"live"} for at in (0, 1)), SECONDS, "all workers are live")
            for at in (0, 1):
                server = fronts.servers[at]
                restart = Restart(at, time.monotonic())
                clients.restarts.append(restart)
                assert server.stop(signal.SIGTERM) == 0
                fronts.restart(at, "--mysql", f"127.0.0.1:{server.port}", "--http", f"127.0.0.1:{server.http_port}")
                restart.ended = time.monotonic()
                wait_until(lambda at=at: set(fronts.states(at).values()) == {"live"}, SECONDS, "the workers report to it")  # type: ignore[misc]
                before = clients.answered.total()
                wait_until(lambda before=before: clients.answered.total() > before + 8, SECONDS, "clients are answered")  # type: ignore[misc]
        finally:
            clients.end()
        assert not clients.wrong, "\n".join(clients.wrong[:5])
        assert clients.turned_away > 0, "nobody asked a front end that had ended"
        assert all(any(clients.answered[at, statement] for at in (0, 1)) for statement in STATEMENTS)
        for at in (0, 1):
            check_all(fronts.servers[at], expected)
            fronts.wait_for_replicas(at)


def test_workers_learn_of_a_front_end_that_starts_later(meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows]) -> None:
    """A worker reported to the front ends that it was started with, and to no others."""
    with shared_workers(meridian, tmp_path / "fronts", data, "--lost-after", 20, number=1) as fronts:
        before = {name: set(files) for name, files in fronts.wait_until_settled(0).items()}
        processes = {name: worker.process.pid for name, worker in fronts.workers.items()}
        fronts.add()
        wait_until(lambda: fronts.states(1) == {"w0": "live", "w1": "live", "w2": "live"}, SECONDS, "the workers report to it")
        assert "there is another front end" in fronts.workers["w0"].log
        assert pieces_run(fronts, 1, STATEMENTS[0], expected[STATEMENTS[0]]) > 0
        # It leads when the only one that they were given is gone, and gives them files that are loaded then.
        fronts.kill(0)
        assert fronts.leader() == 1
        lines = [f"{number},{number % 360},{number % 80},1" for number in range(500)]
        more = write_lines(tmp_path / "more.csv", lines)
        meridian.load(data, "sky", "More", more, kind="director", key="id", ra="ra", dec="dec", **CUT)
        wait_until(lambda: execute(fronts.servers[1], "SELECT COUNT(*) FROM More") == [(500,)], SECONDS, "the table is seen")
        fronts.wait_for_replicas(1)
        check_all(fronts.servers[1], expected)
        fronts.restart(0)
        wait_until(lambda: fronts.states(0) == {"w0": "live", "w1": "live", "w2": "live"}, SECONDS, "they report to both")
        assert {name: worker.process.pid for name, worker in fronts.workers.items()} == processes
        held = {name: set(files) for name, files in fronts.files().items()}
        assert all(before[name] <= held[name] for name in before), "no file of before has moved"
        # One that listens at all addresses says which one is its own.
        port = free_port()
        fronts.add(f"0.0.0.0:{port}", "--cluster-advertise", f"127.0.0.1:{port}", "--insecure")
        wait_until(lambda: fronts.states(2) == {"w0": "live", "w1": "live", "w2": "live"}, SECONDS, "the workers report to it, too")
        assert f"127.0.0.1:{port}" in fronts.workers["w0"].log
