"""Many connections insert single rows and a few together while the server is killed: an acknowledged statement is there once, one that had no
answer is there as a whole or not at all, and nothing else is. Readers see statements as a whole all the time.

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
# What a connection is told when the server is gone or ends.
GONE = (0, 1053, 1317, 2003, 2006, 2013)
# Of these boundaries the last alone is behind the transaction that makes rows visible.
PHASES = ["begun", "chunks-written", "manifest-written", "before-publish", "after-publish"]


@dataclass
class Inserter:
    """A connection's statements: each has a number, and one row or three."""

    number: int
    acknowledged: list[int] = field(default_factory=list)
    # The statement that was sent last, if it had no answer.
    open: int | None = None
    next: int = 0
    wrong: list[Exception] = field(default_factory=list)

    def rows(self, statement: int) -> int:
        return 3 if statement % 7 == 3 else 1

    def work(self, server: Server) -> None:
        """Statements until the server is gone."""
        try:
            with connected(server) as connection:
                cursor = connection.cursor()
                while True:
                    self.open = statement = self.next
                    self.next += 1
                    row = f"({self.number}, {statement}, {statement % 360}.5, 'row {statement}')"
                    rows = self.rows(statement)
                    assert cursor.execute(f"INSERT INTO t VALUES {', '.join([row] * rows)}") == rows
                    self.acknowledged.append(statement)
                    self.open = None
                    if statement % 5 == 0:
                        # The connection sees its own rows at once.
                        cursor.execute(f"SELECT COUNT(*) FROM t WHERE who = {self.number} AND n = {statement}")
                        assert cursor.fetchall() == ((rows,),)
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError, ConnectionError) as error:
            if isinstance(error, pymysql.err.MySQLError) and error.args[0] not in GONE:
                self.wrong.append(error)
        except Exception as error:  # noqa: BLE001
            self.wrong.append(error)

    def settle(self, found: Counter[int]) -> None:
        """Compares what is there of its statements with what it was told."""
        assert not self.wrong, self.wrong
        expected = Counter({statement: self.rows(statement) for statement in self.acknowledged})
        if self.open is not None and found[self.open] > 0:
            self.acknowledged.append(self.open)
            expected[self.open] = self.rows(self.open)
        self.open = None
        assert found == expected, f"connection {self.number}: {found - expected} too many, {expected - found} too few"


def connected(server: Server) -> pymysql.connections.Connection:
    return server.connect(user="ann", password=PASSWORD, database="ann")


def read(server: Server) -> dict[int, Counter[int]]:
    """How many rows of each statement there are, by connections."""
    with connected(server) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT who, n, ra, note FROM t")
        found: dict[int, Counter[int]] = {number: Counter() for number in range(CONNECTIONS)}
        for who, n, ra, note in cursor.fetchall():
            assert (ra, note) == (n % 360 + 0.5, f"row {n}")
            found[who][n] += 1
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


def parts_of(meridian: Meridian, data: Path) -> int:
    listed = map(json.loads, meridian.must("tables", "--data", data, "--format", "json").text.splitlines())
    (found,) = [line["parts"] for line in listed if line["table"] == "t" and line["kind"] != "held"]
    assert isinstance(found, int)
    return found


def made(meridian: Meridian, tmp_path: Path) -> Path:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    must(meridian, data, "add", "ann", password=PASSWORD)
    with serving(meridian, data) as server, connected(server) as connection:
        connection.cursor().execute("CREATE TABLE t (who INT NOT NULL, n INT NOT NULL, ra DOUBLE NOT NULL, note VARCHAR(20))")
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
        # What was killed is removed by the next statement, and the rows are in few parts.
        with connected(server) as connection:
            connection.cursor().execute("INSERT INTO t VALUES (0, -1, 359.5, 'row -1')")
    assert parts_of(meridian, data) <= 25 + KILLS
    meridian.must("check", "--data", data)


class Faulty(Meridian):
    """The program, which is killed at a boundary of the next load."""

    def __init__(self, binary: Path, phase: str) -> None:
        super().__init__(binary)
        self.phase = phase

    def start(self, *arguments: object, env: dict[str, str] | None = None, **options: object) -> object:  # type: ignore[override]
        return super().start(*arguments, env={**(env or {}), "MERIDIAN_FAULT": f"{self.phase}:kill"}, **options)


@pytest.mark.parametrize("phase", PHASES)
def test_it_is_killed_at_a_boundary(meridian: Meridian, tmp_path: Path, phase: str) -> None:
    data = made(meridian, tmp_path)
    with serving(meridian, data) as server, connected(server) as connection:
        for n in range(3):
            connection.cursor().execute(f"INSERT INTO t VALUES (1, {n}, {n}.5, 'row {n}')")
    with serving(Faulty(meridian.binary, phase), data) as server, connected(server) as connection:
        with pytest.raises(pymysql.err.OperationalError):
            connection.cursor().execute("INSERT INTO t VALUES (2, 7, 7.5, 'row 7'), (2, 8, 8.5, 'row 8')")
        assert server.wait() == -signal.SIGKILL
    with serving(meridian, data) as server:
        found = read(server)
        assert found[1] == Counter({0: 1, 1: 1, 2: 1})
        assert found[2] == (Counter({7: 1, 8: 1}) if phase == "after-publish" else Counter())
        with connected(server) as connection:
            connection.cursor().execute("INSERT INTO t VALUES (3, 9, 9.5, 'row 9')")
        assert read(server)[3] == Counter({9: 1})
    meridian.must("check", "--data", data)
    # The statement after the kill has removed what was left; what the server itself has replaced goes with the next load.
    (directory,) = (data / "tables").glob("ann.t")
    assert parts_of(meridian, data) <= len(list(directory.iterdir())) <= 5
