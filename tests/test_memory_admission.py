"""Queries that wait for memory: the list tells their places, light ones pass them, and whatever ends them takes them out of the queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from resident import MIB, watched
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, load_stars_and_bands, write_lines

STARS = 120_000
MEMORY, CACHE = 192, 64
LISTED = (
    "SELECT ID, STATE, WAITS_FOR, QUEUE_PLACE FROM information_schema.QUERIES"
    " WHERE STATE IN ('QUEUED', 'EXECUTING') AND USER = '{user}' AND STATEMENT NOT LIKE '%QUERIES%' ORDER BY QUEUE_PLACE"
)
# Some seconds long, and with a join, beyond which there may be many rows.
SORT = (
    "SELECT COUNT(*), SUM(r) FROM (SELECT a.id, ROW_NUMBER() OVER (ORDER BY a.ra * {n}, a.`dec`) AS r FROM Star a LEFT JOIN Band b ON a.id = b.id"
    " WHERE SLEEP(CASE WHEN a.id % 1000 = 0 THEN 0.03 ELSE 0 END) = 0) x WHERE x.r > 5"
)


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky, and a small table."""
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("admission"), STARS)


@pytest.fixture
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server with little memory."""
    with serving(meridian, data, "--memory", f"{MEMORY}M", "--cache", f"{CACHE}M", "--threads", 2) as server:
        yield server


def execute(server: Server, statement: str, user: str = "ann", *before: str) -> list[tuple[object, ...]]:
    """The rows of a statement by a connection of its own."""
    with server.connect(database="sky", user=user) as connection, connection.cursor() as cursor:
        for setting in before:
            cursor.execute(setting)
        cursor.execute(statement)
        return list(cursor.fetchall())


class Asked(threading.Thread):
    """A statement that is asked beside others; its rows or its error afterwards."""

    def __init__(self, server: Server, statement: str, user: str, *before: str) -> None:
        super().__init__(daemon=True)
        self.rows: list[tuple[object, ...]] | None = None
        self.error: tuple[int, str] | None = None
        self.number: int | None = None
        self.server, self.statement, self.user, self.before = server, statement, user, before
        self.start()

    def run(self) -> None:
        try:
            with self.server.connect(database="sky", user=self.user) as connection, connection.cursor() as cursor:
                self.number = connection.thread_id()
                for setting in self.before:
                    cursor.execute(setting)
                cursor.execute(self.statement)
                self.rows = list(cursor.fetchall())
        except pymysql.MySQLError as error:
            self.error = (int(error.args[0]), str(error.args[1]))


@pytest.fixture
def blocked(server: Server) -> Iterator[list[Asked]]:
    """So many slow sorts that others have to wait."""
    running = [Asked(server, SORT.format(n=n), "slow") for n in range(1, 9)]
    listing = LISTED.format(user="slow")
    wait_until(lambda: any(row[1] == "QUEUED" for row in execute(server, listing, "watcher")), 30, "some wait")
    yield running
    for number, *_ in execute(server, listing, "watcher"):
        try:
            execute(server, f"CANCEL {number}", "slow")
        except pymysql.MySQLError:
            pass
    for one in running:
        one.join()


def test_light_statements_do_not_wait(server: Server, blocked: list[Asked]) -> None:
    """Counts, look-ups, small joins and lists are answered beside those that wait."""
    for statement in (
        "SELECT COUNT(*) FROM Band",
        "SELECT * FROM Star WHERE id = 17",
        "SELECT a.name FROM Band a JOIN Band b ON a.id = b.id ORDER BY a.name",
        "SELECT COUNT(*), SUM(ra) FROM Star WHERE `dec` > 10",
        "SELECT * FROM information_schema.TABLES ORDER BY TABLE_NAME",
    ):
        asked = Asked(server, statement, "light")
        asked.join(30)
        assert asked.rows, (statement, asked.error)
    assert any(one.is_alive() for one in blocked)


def test_a_query_that_waits_is_ended(server: Server, blocked: list[Asked]) -> None:
    """By its time limit, whose message says why, by KILL, by CANCEL, and by hanging up; submitted ones as well."""
    late = Asked(server, SORT.format(n=99), "late", "SET max_execution_time = 500")
    late.join(20)
    assert late.error is not None
    assert late.error[0] == 3024 and "max_execution_time" in late.error[1] and "waited for memory" in late.error[1], late.error

    def waiting(user: str) -> list[tuple[object, ...]]:
        return [row for row in execute(server, LISTED.format(user=user), "watcher") if row[1:3] == ("QUEUED", "MEMORY")]

    for how in ("KILL QUERY", "CANCEL"):
        asked = Asked(server, SORT.format(n=98), "ended")
        wait_until(lambda: len(waiting("ended")) == 1, 20, "it waits")
        [(number, _, _, place)] = waiting("ended")
        assert isinstance(place, int) and place >= 1
        execute(server, f"{how} {asked.number if how == 'KILL QUERY' else number}", "ended")
        asked.join(20)
        assert asked.error is not None and asked.error[0] == 1317
        wait_until(lambda: not waiting("ended"), 20, "it has left the queue")
    with server.connect(database="sky", user="gone") as connection:
        connection._execute_command(pymysql.constants.COMMAND.COM_QUERY, SORT.format(n=97))  # type: ignore[attr-defined]
        wait_until(lambda: len(waiting("gone")) == 1, 20, "it waits")
    wait_until(lambda: not waiting("gone"), 20, "it has left the queue")
    [(submitted, _)] = execute(server, f"SUBMIT {SORT.format(n=96)}", "async")
    wait_until(lambda: len(waiting("async")) == 1, 20, "it waits")
    execute(server, f"CANCEL {submitted}", "async")
    assert execute(server, f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {submitted}", "async") == [("ABORTED",)]


def test_a_connection_waits_no_longer_than_it_may(meridian: Meridian, data: Path) -> None:
    """The message says how long, at which place, and what to do."""
    with serving(meridian, data, "--memory", f"{MEMORY}M", "--cache", f"{CACHE}M", "--threads", 2, "--max-blocking", 4) as server:
        running = [Asked(server, SORT.format(n=n), "slow") for n in range(1, 9)]
        for one in running:
            one.join()
        errors = [one.error for one in running if one.error is not None]
        assert errors and len(errors) < len(running)
        assert all(number == 1041 and "waited for memory for 4 s" in text and "SUBMIT" in text for number, text in errors), errors


# Beyond the budget: 32 MiB that the process allows itself for thirty connections with their plans and blocks on their way, and what the allocator
# keeps at hand for each thread that reads spilled runs. It does not grow with the budget. 61 MiB were seen on a busy machine.
ALLOWANCE = 80 * MIB
STARS_OF_MANY = 80_000
LAST = f"the name of star {STARS_OF_MANY - 1:012}"
# What gathers more than its share of 48 MiB, and its rows, by arithmetic. Sorts and groups spill. Sides of joins and distinct values cannot: if others have
# their memory, they are computed once more, alone.
HEAVY: dict[str, list[tuple[object, ...]]] = {
    "SELECT COUNT(*), MAX(name), SUM(r) FROM (SELECT name, ROW_NUMBER() OVER (ORDER BY name, ra * {n}) AS r FROM Star) x WHERE r > 5": [
        (STARS_OF_MANY - 5, LAST, STARS_OF_MANY * (STARS_OF_MANY + 1) // 2 - 15)
    ],
    "SELECT id FROM Star ORDER BY name DESC, ra * {n} LIMIT 2 OFFSET 50000": [(STARS_OF_MANY - 50_001,), (STARS_OF_MANY - 50_002,)],
    "SELECT COUNT(*), SUM(c), MAX(m) FROM (SELECT (id + {n}) % 70000 AS g, COUNT(ra) AS c, MAX(name) AS m FROM Star GROUP BY g) x": [
        (70_000, STARS_OF_MANY, LAST)
    ],
    "SELECT COUNT(*) FROM (SELECT DISTINCT name, id + {n} FROM Star) x": [(STARS_OF_MANY,)],
    "SELECT COUNT(DISTINCT name), COUNT(DISTINCT id + {n}) FROM Star": [(STARS_OF_MANY, STARS_OF_MANY)],
    "SELECT COUNT(*) FROM (SELECT name FROM Star UNION SELECT CONCAT(name, {n}) FROM Star) x": [(2 * STARS_OF_MANY,)],
    "SELECT COUNT(*), SUM(b.id) FROM Star a JOIN Star b ON a.name = b.name WHERE a.id < b.id + {n}": [
        (STARS_OF_MANY, STARS_OF_MANY * (STARS_OF_MANY - 1) // 2)
    ],
}


def test_many_at_once_have_their_rows_and_stay_within_the_budget(meridian: Meridian, tmp_path: Path) -> None:
    """Thirty heavy statements at once, of which some failed for want of memory that the others had: none fails, and the process holds no more than
    it may."""
    stars = STARS_OF_MANY
    lines = (f"{n},{n % 360 + n / stars},{n % 170 - 85},the name of star {n:012}" for n in range(stars))
    meridian.load(tmp_path / "data", "sky", "Star", write_lines(tmp_path / "stars.csv", lines, "id,ra,dec,name"), **DIRECTOR)
    budget = (48 + 16) * MIB
    heavy = list(HEAVY)
    with serving(meridian, tmp_path / "data", "--memory", "48M", "--cache", "16M", "--threads", 2) as server:
        before = server.resident_bytes()
        with watched(server, "SELECT COUNT(*) FROM information_schema.SCHEMATA") as seen:
            running = [Asked(server, heavy[n % len(heavy)].format(n=n // len(heavy) + 1), f"u{n % 7}") for n in range(30)]
            for one in running:
                one.join()
        for n, one in enumerate(running):
            assert (one.error, one.rows) == (None, HEAVY[heavy[n % len(heavy)]]), one.statement
        held = seen.most_resident - before
        assert held <= budget * 1.1 + ALLOWANCE, f"{held / MIB:.0f} MiB more than before"


def test_many_first_rows_are_sorted_on_the_disk(meridian: Meridian, tmp_path: Path) -> None:
    """A sort kept the first rows of a limit in memory however many there were: the first statement wanted more than all memory."""
    stars = 40_000
    lines = (f"{n},{n % 360 + n / stars},{n % 170 - 85},the name of star {n:012}" for n in range(stars))
    meridian.load(tmp_path / "data", "sky", "Star", write_lines(tmp_path / "stars.csv", lines, "id,ra,dec,name"), **DIRECTOR)
    ten = " UNION ALL ".join(f"SELECT {n} AS k" for n in range(10))
    tenfold = f"SELECT id, k, CONCAT(name, k) AS x FROM Star CROSS JOIN ({ten}) ten ORDER BY x"
    most, below = 10 * stars, sum(range(stars - 1000))
    with serving(meridian, tmp_path / "data", "--memory", "48M", "--cache", "16M", "--threads", 2) as server, server.connect(database="sky") as connection:
        for limit, expected in [
            (f"LIMIT {most - 10_000}", (most - 10_000, 10 * below, 0)),
            (f"LIMIT {most - 10_000} OFFSET 5000", (most - 10_000, 10 * sum(range(500, stars - 500)), 500)),
            ("LIMIT 18446744073709551615", (most, 10 * sum(range(stars)), 0)),
        ]:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT COUNT(*), SUM(id), MIN(id) FROM ({tenfold} {limit}) t")
                assert tuple(cursor.fetchall()) == (expected,), limit
            with connection.cursor() as cursor:
                cursor.execute(f"{tenfold} {limit}")
                rows = cursor.fetchall()
            first = 5000 if "OFFSET" in limit else 0
            assert [(row[0], row[1]) for row in rows] == [(n // 10, n % 10) for n in range(first, first + expected[0])], limit
