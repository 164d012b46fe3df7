"""Statements that want all memory: each fails alone, or is answered from the disk; the process stays within its budgets and lives.

A recursion of CONCAT once took 3.8 GB of a server with 1 GB for statements and 1 GB for columns, GROUP_CONCAT of many numbers 3.3, a
sort 2.5: what operators do not reserve was counted nowhere. A bomb is a line of BOMBS: what is sent, and what may come of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, write_stars

STARS = 20_000
MOST_RESIDENT = 500 << 20
# Out of memory; a value that would be too long; the time that a bomb has.
OUT_OF_MEMORY, TOO_LONG, TIME_LIMIT = 1041, 1301, 3024
SECONDS = 3


def execute(server: Server, statement: str) -> None:
    """Asks for all rows, and drops each as it comes."""
    options = {"database": "sky", "read_timeout": 60, "cursorclass": pymysql.cursors.SSCursor}
    with server.connect(**options) as connected, connected.cursor() as cursor:
        cursor.execute(f"SET max_execution_time = {SECONDS * 1000}")
        cursor.execute(statement)
        for _ in cursor:
            pass


@dataclass(frozen=True)
class Bomb:
    """Something that is sent to a server, and the errors that it may come to; None is an answer."""

    name: str
    what: str
    comes_to: tuple[int | None, ...]
    send: Callable[[Server, str], None] = execute


def nested(function: str, times: int, innermost: str) -> str:
    """Calls of a function within each other."""
    return f"{function}(" * times + innermost + ")" * times


DOUBLING = "WITH RECURSIVE r AS (SELECT CAST('xxxxxxxx' AS CHAR) AS s, 1 AS n UNION ALL SELECT CONCAT(s, s), n + 1 FROM r WHERE n < 40) "

BOMBS = [
    Bomb("recursion that doubles a text", DOUBLING + "SELECT max(length(s)) FROM r", (TOO_LONG, OUT_OF_MEMORY)),
    Bomb("recursion that doubles a text and is sent", DOUBLING + "SELECT s FROM r", (TOO_LONG, OUT_OF_MEMORY)),
    Bomb(
        "recursion that doubles its rows",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT r.n + 1 FROM r, (SELECT 1 AS t UNION ALL SELECT 2) t WHERE r.n < 60) SELECT count(*) FROM r",
        (OUT_OF_MEMORY, TIME_LIMIT),
    ),
    Bomb("GROUP_CONCAT of everything", "SELECT length(GROUP_CONCAT(a.id, REPEAT('x', 1000))) FROM Star a, Star b", (TOO_LONG, TIME_LIMIT)),
    Bomb(
        "GROUP_CONCAT in order", "SELECT length(GROUP_CONCAT(a.id, b.dec ORDER BY b.dec)) FROM Star a, Star b", (TOO_LONG, OUT_OF_MEMORY, TIME_LIMIT)
    ),
    Bomb(
        "GROUP_CONCAT of what differs",
        "SELECT length(GROUP_CONCAT(DISTINCT a.id, b.id ORDER BY b.id)) FROM Star a, Star b",
        (TOO_LONG, OUT_OF_MEMORY, TIME_LIMIT),
    ),
    Bomb(
        "GROUP_CONCAT of each group", "SELECT a.id, length(GROUP_CONCAT(b.ra, b.dec)) FROM Star a, Star b GROUP BY a.id", (TOO_LONG, OUT_OF_MEMORY, TIME_LIMIT)
    ),
    Bomb("sort of wide rows", "SELECT a.id, REPEAT('x', 500) AS t FROM Star a, Star b ORDER BY a.ra * b.ra, t", (OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("groups", "SELECT count(*) FROM (SELECT a.id, b.id AS c, sum(a.ra) FROM Star a, Star b GROUP BY a.id, b.id) x", (None, OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("count of what differs", "SELECT count(DISTINCT CONCAT(a.ra, b.ra)) FROM Star a, Star b", (OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("build side of a join", "SELECT count(*) FROM (SELECT a.ra * b.ra AS k FROM Star a, Star b) a JOIN (SELECT a.dec * b.dec AS k FROM Star a, Star b) b ON a.k = b.k", (OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("window over everything", "SELECT max(n) FROM (SELECT rank() OVER (ORDER BY a.ra * b.ra) AS n FROM Star a, Star b) x", (None, OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("HEX of HEX of a long text", f"SELECT length({nested('HEX', 7, repr('x' * 300_000))})", (TOO_LONG, TIME_LIMIT)),
    Bomb("REPLACE of each letter", f"SELECT length({nested('HEX', 1, 'REPLACE(' + repr('x' * (1 << 20)) + ', ' + repr('x') + ', ' + repr('y' * 1000) + ')')})", (None, TOO_LONG, TIME_LIMIT)),
    Bomb("long texts of many rows", "SELECT sum(length(CONCAT(REPEAT('x', 60000), a.id))) FROM Star a, Star b", (None, OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("long texts of many columns", "SELECT " + ", ".join(f"REPEAT(a.id, {9000 + n})" for n in range(40)) + " FROM Star a", (None, OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("long texts as keys", "SELECT count(*) FROM (SELECT CONCAT(REPEAT('x', 5000), a.id, b.id) AS k FROM Star a, Star b GROUP BY k) x", (OUT_OF_MEMORY, TIME_LIMIT)),
    Bomb("UNION of what differs", "SELECT count(*) FROM (SELECT a.ra, b.ra AS r FROM Star a, Star b UNION SELECT a.dec, b.dec FROM Star a, Star b) x", (OUT_OF_MEMORY, TIME_LIMIT)),
]


class Watched:
    """Looks at a server's memory, and asks it for a row, until it is left."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.most = 0
        self.longest = 0.0
        self.over = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._look, self._ask)]

    def _look(self) -> None:
        while not self.over.wait(0.005):
            self.most = max(self.most, self.server.resident_bytes())

    def _ask(self) -> None:
        with self.server.connect(database="sky", read_timeout=30) as connected, connected.cursor() as cursor:
            while not self.over.wait(0.05):
                begun = time.monotonic()
                cursor.execute("SELECT ra FROM Star WHERE id = 17")
                assert len(cursor.fetchall()) == 1
                self.longest = max(self.longest, time.monotonic() - begun)

    def __enter__(self) -> Watched:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(timeout=60)


@pytest.fixture(scope="module")
def server(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with little memory."""
    directory = tmp_path_factory.mktemp("bombs")
    meridian.load(directory / "data", "sky", "Star", write_stars(directory / "stars.csv", STARS), **DIRECTOR)
    with serving(meridian, directory / "data", "--memory", "256M", "--cache", "128M", "--threads", "2") as running:
        yield running


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_a_bomb_takes_no_more_than_there_is(server: Server, bomb: Bomb) -> None:
    code, told = None, ""
    with Watched(server) as watched:
        try:
            bomb.send(server, bomb.what)
        except pymysql.MySQLError as error:
            code, told = error.args[0], str(error.args[1])
    assert server.process.poll() is None, f"the process has ended:\n{server.log}"
    assert code in bomb.comes_to, f"{code}: {told}"
    assert "DataFusion" not in told and "Internal error" not in told, told
    if code == OUT_OF_MEMORY:
        assert "--memory" in told or "MiB of" in told, told
    assert watched.most <= MOST_RESIDENT, f"it held {watched.most >> 20} MiB"
    assert watched.longest < 5, f"a look-up took {watched.longest:.1f} s beside it"


def test_all_bombs_at_once(server: Server) -> None:
    def send(bomb: Bomb) -> None:
        try:
            bomb.send(server, bomb.what)
        except pymysql.MySQLError as error:
            if error.args[0] not in bomb.comes_to:
                failures.append(f"{bomb.name}: {error}")

    failures: list[str] = []
    threads = [threading.Thread(target=send, args=(bomb,)) for bomb in BOMBS]
    with Watched(server) as watched:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
    assert server.process.poll() is None, f"the process has ended:\n{server.log}"
    assert watched.most <= MOST_RESIDENT, f"it held {watched.most >> 20} MiB"
    wait_until(server.is_idle, 60, "it computes no more")
