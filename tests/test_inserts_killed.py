"""Many connections insert single rows and a few together while the server is killed: an acknowledged statement is there once, one that had no
answer is there as a whole or not at all, and nothing else is. Readers see statements as a whole all the time. The rows go into a table that is kept
whole, a director, and a child of a director of the catalogue's.

MERIDIAN_KILLS says how often it is killed, MERIDIAN_SEED chooses other moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import load_stars_and_bands
from test_users import PASSWORD, must

SEED = int(os.environ.get("MERIDIAN_SEED", "20261127"))
KILLS = int(os.environ.get("MERIDIAN_KILLS", "3"))
CONNECTIONS = 20
STARS = 50
# The tables, and how they are spread. Of the child's keys the director has five in six.
TABLES = {"whole": "NONE", "director": "DIRECTOR (id, ra, decl)", "child": "CHILD OF sky.Star (star)"}
# What a connection is told when the server is gone or ends.
GONE = (0, 1053, 1317, 2003, 2006, 2013)
# Of these boundaries the last alone is behind the transaction that makes rows visible.
PHASES = ["begun", "index-written", "chunks-written", "overlap-written", "manifest-written", "before-publish", "after-publish"]


@dataclass
class Inserter:
    """A connection's statements: each has a number, and one row or three."""

    number: int
    acknowledged: list[int] = field(default_factory=list)
    # The statement that was sent last, if it had no answer.
    open: int | None = None
    next: int = 0
    wrong: list[Exception] = field(default_factory=list)

    @property
    def table(self) -> str:
        return list(TABLES)[self.number % len(TABLES)]

    def rows(self, statement: int) -> int:
        return 3 if statement % 7 == 3 else 1

    def values(self, statement: int) -> str:
        first = (self.number * 1_000_000 + statement) * 4
        return ", ".join(row_of(first + n, self.number, statement) for n in range(self.rows(statement)))

    def work(self, server: Server) -> None:
        """Statements until the server is gone."""
        try:
            with connected(server) as connection:
                cursor = connection.cursor()
                while True:
                    self.open = statement = self.next
                    self.next += 1
                    rows = self.rows(statement)
                    assert cursor.execute(f"INSERT INTO {self.table} VALUES {self.values(statement)}") == rows
                    self.acknowledged.append(statement)
                    self.open = None
                    if statement % 5 == 0:
                        # The connection sees its own rows at once.
                        cursor.execute(f"SELECT COUNT(*) FROM {self.table} WHERE who = {self.number} AND n = {statement}")
                        assert cursor.fetchall() == ((rows,),)
                    if statement % 9 == 0 and self.table == "director":
                        self.insert_again(cursor, statement)
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError, ConnectionError) as error:
            if isinstance(error, pymysql.err.MySQLError) and error.args[0] not in GONE:
                self.wrong.append(error)
        except Exception as error:  # noqa: BLE001
            self.wrong.append(error)

    def insert_again(self, cursor: pymysql.cursors.Cursor, statement: int) -> None:
        """A key that the director has is refused, beside those of others that are stored."""
        try:
            cursor.execute(f"INSERT INTO {self.table} VALUES {self.values(statement)}")
        except pymysql.err.IntegrityError as error:
            assert error.args[0] == 1062, error
        else:
            raise AssertionError(f"the keys of statement {statement} are there twice")

    def settle(self, found: Counter[int]) -> None:
        """Compares what is there of its statements with what it was told."""
        assert not self.wrong, self.wrong
        expected = Counter({statement: self.rows(statement) for statement in self.acknowledged})
        if self.open is not None and found[self.open] > 0:
            self.acknowledged.append(self.open)
            expected[self.open] = self.rows(self.open)
        self.open = None
        assert found == expected, f"connection {self.number}: {found - expected} too many, {expected - found} too few"


def row_of(key: int, who: int, n: int) -> str:
    """A row, all of whose values follow from the statement."""
    star = key // 4 % (STARS * 6 // 5)
    return f"({key}, {who}, {n}, {n % 360}.5, {(n + 40 * who) % 179 - 89}, {star}, 'row {n}')"


def connected(server: Server) -> pymysql.connections.Connection:
    return server.connect(user="ann", password=PASSWORD, database="ann")


def read(server: Server) -> dict[int, Counter[int]]:
    """How many rows of each statement there are, by connections."""
    found: dict[int, Counter[int]] = {number: Counter() for number in range(CONNECTIONS)}
    with connected(server) as connection:
        cursor = connection.cursor()
        for table in TABLES:
            cursor.execute(f"SELECT id, who, n, ra, decl, star, note FROM {table}")
            keys = set()
            for key, who, n, *others in cursor.fetchall():
                assert list(TABLES)[who % len(TABLES)] == table
                values = ", ".join(repr(value) if isinstance(value, str) else f"{value:g}" for value in others)
                assert row_of(key, who, n) == f"({key}, {who}, {n}, {values})"
                keys.add(key)
                found[who][n] += 1
            assert cursor.rowcount == len(keys), f"a row of {table} is there twice"
    return found


def watch(server: Server, inserters: list[Inserter], wrong: list[object]) -> None:
    """Reads until the server is gone: no statement is there in part, and none goes again."""
    seen: dict[int, Counter[int]] = {number: Counter() for number in range(CONNECTIONS)}
    try:
        while True:
            found = read(server)
            for inserter in inserters:
                now = found[inserter.number]
                wrong += [(inserter.number, n, rows) for n, rows in now.items() if rows != inserter.rows(n)]
                wrong += [(inserter.number, n, "gone") for n in seen[inserter.number] - now]
            seen = found
    except (pymysql.err.OperationalError, pymysql.err.InterfaceError, ConnectionError):
        pass
    except Exception as error:  # noqa: BLE001
        wrong.append(error)


def listed(meridian: Meridian, data: Path, table: str) -> dict[str, int]:
    """What is said of a table of ann's."""
    lines = map(json.loads, meridian.must("tables", "--data", data, "--format", "json").text.splitlines())
    (found,) = [line for line in lines if (line["database"], line["table"]) == ("ann", table) and line["kind"] != "held"]
    assert isinstance(found, dict)
    return found


def bytes_on_disk(data: Path, table: str) -> int:
    """Bytes of the files of a table of which nothing is left that was replaced."""
    files = (data / "tables" / f"ann.{table}").rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file() and file.name not in ("in_use.lock", "manifest.json"))


def joined(server: Server, found: dict[int, Counter[int]]) -> None:
    """The child's rows are joined with those of its director whose keys they have, wherever both are."""
    with connected(server) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT c.who, c.n, COUNT(*) FROM child c JOIN sky.Star s ON c.star = s.id GROUP BY c.who, c.n")
        joined = {(who, n): rows for who, n, rows in cursor.fetchall()}
    expected = {}
    for who, statements in found.items():
        for n, rows in statements.items():
            if list(TABLES)[who % len(TABLES)] == "child" and (who * 1_000_000 + n) % (STARS * 6 // 5) < STARS:
                expected[who, n] = rows
    assert joined == expected


def made(meridian: Meridian, tmp_path: Path) -> Path:
    data = load_stars_and_bands(meridian, tmp_path, STARS)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with serving(meridian, data) as server, connected(server) as connection:
        for table, layout in TABLES.items():
            columns = "id BIGINT NOT NULL, who INT NOT NULL, n INT NOT NULL, ra DOUBLE NOT NULL, decl DOUBLE NOT NULL, star BIGINT, note VARCHAR(20)"
            connection.cursor().execute(f"CREATE TABLE {table} ({columns}) PARTITION BY {layout}")
    return data


def test_acknowledged_rows_are_there_once_whenever_it_is_killed(meridian: Meridian, tmp_path: Path) -> None:
    data = made(meridian, tmp_path)
    inserters = [Inserter(number) for number in range(CONNECTIONS)]
    rng = random.Random(SEED)
    for _ in range(KILLS):
        with serving(meridian, data) as server:
            found = read(server)
            for inserter in inserters:
                inserter.settle(found[inserter.number])
            before = sum(len(inserter.acknowledged) for inserter in inserters)
            wrong: list[object] = []
            threads = [threading.Thread(target=inserter.work, args=(server,)) for inserter in inserters]
            threads.append(threading.Thread(target=watch, args=(server, inserters, wrong)))
            for thread in threads:
                thread.start()
            # It is killed amid a statement, however fast the machine is.
            wanted = before + rng.randrange(40, 400)
            wait_until(lambda: sum(len(it.acknowledged) for it in inserters) >= wanted or any(it.wrong for it in inserters), 120, f"{wanted} statements")
            os.kill(server.process.pid, signal.SIGKILL)
            for thread in threads:
                thread.join()
            assert not wrong, wrong
    with serving(meridian, data) as server:
        found = read(server)
        for inserter in inserters:
            inserter.settle(found[inserter.number])
        statements = sum(len(inserter.acknowledged) for inserter in inserters)
        assert statements >= 40 * KILLS
        print(f"{KILLS} kills, {statements} statements are there")
        joined(server, found)
        # What was killed is removed by the next statement, and the rows are in few parts.
        with connected(server) as connection:
            for who, table in enumerate(TABLES):
                connection.cursor().execute(f"INSERT INTO {table} VALUES {row_of(-1, who, 999)}")
    for table in TABLES:
        assert listed(meridian, data, table)["parts"] <= 25 + KILLS
    meridian.must("check", "--data", data)
    # The next compaction removes what the server itself has replaced; what the quota counts is what is on the disk then.
    meridian.must("compact", "--data", data, "--db", "ann", "--all")
    assert sum(listed(meridian, data, table)["bytes"] for table in TABLES) == sum(bytes_on_disk(data, table) for table in TABLES)
    with serving(meridian, data) as server:
        with connected(server) as connection:
            cursor = connection.cursor()
            cursor.execute("SHOW LIMITS")
            (used,) = [int(row[2]) for row in cursor.fetchall() if row[0] == "stored"]
        assert used == sum(listed(meridian, data, table)["bytes"] for table in TABLES)
        after = read(server)
        for who in range(len(TABLES)):
            assert after[who].pop(999) >= 1
            found[who].pop(999, None)
        assert after == found


class Faulty(Meridian):
    """The program, which is killed at a boundary of the next load."""

    def __init__(self, binary: Path, phase: str) -> None:
        super().__init__(binary)
        self.phase = phase

    def start(self, *arguments: object, env: dict[str, str] | None = None, **options: object) -> object:  # type: ignore[override]
        return super().start(*arguments, env={**(env or {}), "MERIDIAN_FAULT": f"{self.phase}:kill"}, **options)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("table", TABLES)
def test_it_is_killed_at_a_boundary(meridian: Meridian, tmp_path: Path, table: str, phase: str) -> None:
    if table == "child" and phase in ("chunks-written", "overlap-written"):
        pytest.skip("the same for a child as for the others")
    data = made(meridian, tmp_path)
    # Of the first table it is that the connections 0, 3, ... are.
    one, two, three = (list(TABLES).index(table) + len(TABLES) * n for n in range(3))

    def insert(server: Server, who: int, n: int, keys: list[int]) -> None:
        with connected(server) as connection:
            connection.cursor().execute(f"INSERT INTO {table} VALUES " + ", ".join(row_of(key, who, n) for key in keys))

    with serving(meridian, data) as server:
        for n in range(3):
            insert(server, one, n, [n])
    with serving(Faulty(meridian.binary, phase), data) as server:
        with pytest.raises(pymysql.err.OperationalError):
            insert(server, two, 7, [70, 71])
        assert server.wait() == -signal.SIGKILL
    with serving(meridian, data) as server:
        found = read(server)
        assert found[one] == Counter({0: 1, 1: 1, 2: 1})
        assert found[two] == (Counter({7: 2}) if phase == "after-publish" else Counter())
        # A key that was not stored can be stored now, and one that was cannot.
        if table == "director" and phase == "after-publish":
            with pytest.raises(pymysql.err.IntegrityError):
                insert(server, two, 7, [70, 71])
        elif phase != "after-publish":
            insert(server, two, 7, [70, 71])
        insert(server, three, 9, [90])
        found = read(server)
        assert (found[two], found[three]) == (Counter({7: 2}), Counter({9: 1}))
    meridian.must("check", "--data", data)
    # The statement after the kill has removed what was left; what the server itself has replaced goes with the next load.
    directory = data / "tables" / f"ann.{table}"
    assert listed(meridian, data, table)["parts"] <= len(list(directory.iterdir())) <= 6
