"""Users insert, update, delete, make and drop tables while others compact them, and the server is killed: what was acknowledged is there
once, and nothing else is.

MERIDIAN_KILLS says how often, MERIDIAN_SEED chooses other statements.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pymysql

from meridian_cli import Meridian
from serving import Server, serving
from small_tables import load_stars_and_bands
from test_users import PASSWORD, must

SEED = int(os.environ.get("MERIDIAN_SEED", "20261126"))
KILLS = int(os.environ.get("MERIDIAN_KILLS", "3"))
USERS = int(os.environ.get("MERIDIAN_USERS", "4"))
STARS = 200
LAYOUTS = ["", " PARTITION BY CHILD OF sky.Star (id)", " PARTITION BY DIRECTOR (id, ra, decl)"]

# The rows of a table by their keys; None where there is no table.
State = dict[int, tuple[float, float, int]] | None


@dataclass
class Model:
    """A user's tables as the acknowledged statements have left them, and the one that was not answered."""

    name: str
    rng: random.Random
    tables: dict[str, State] = field(default_factory=lambda: {"a": None, "b": None, "c": None})
    # The table that a statement was about which had no answer, and the table as it would be.
    open: tuple[str, State] | None = None
    done: int = 0
    next_key: int = 0
    # Errors that no end of a server explains.
    wrong: list[Exception] = field(default_factory=list)

    def statement(self) -> tuple[str, str, State]:
        """A statement, its table, and the table as it is then."""
        table = self.rng.choice(list(self.tables))
        state = self.tables[table]
        if state is None:
            layout = LAYOUTS[list(self.tables).index(table)]
            return f"CREATE TABLE {table} (id BIGINT NOT NULL, ra DOUBLE NOT NULL, decl DOUBLE NOT NULL, n INT){layout}", table, {}
        kind = self.rng.randrange(10)
        if kind < 6 or not state:
            rows = [self.row() for _ in range(self.rng.choice([1, 1, 1, 40]))]
            values = ", ".join(f"({key}, {ra}, {decl}, {n})" for key, (ra, decl, n) in rows)
            return f"INSERT INTO {table} VALUES {values}", table, {**state, **dict(rows)}
        least = self.rng.choice(list(state))
        if kind == 6:
            return f"UPDATE {table} SET n = n + 1, decl = -decl WHERE id >= {least}", table, {key: (ra, -decl, n + 1) if key >= least else (ra, decl, n) for key, (ra, decl, n) in state.items()}
        if kind == 7:
            return f"DELETE FROM {table} WHERE id < {least}", table, {key: row for key, row in state.items() if key >= least}
        if kind == 8:
            return f"TRUNCATE TABLE {table}", table, {}
        return f"DROP TABLE {table}", table, None

    def row(self) -> tuple[int, tuple[float, float, int]]:
        self.next_key += 1
        return self.next_key, (self.rng.randrange(3600) / 10, self.rng.randrange(-890, 890) / 10, self.rng.randrange(100))

    def work(self, server: Server) -> None:
        """Statements until the server is gone."""
        try:
            with server.connect(user=self.name, password=PASSWORD, database=self.name) as connection:
                while True:
                    text, table, after = self.statement()
                    self.open = (table, after)
                    connection.cursor().execute(text)
                    self.tables[table] = after
                    self.open = None
                    self.done += 1
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError, ConnectionError) as error:
            # Lost: 2003, 2006, 2013, or whoever stops has ended the statement.
            if isinstance(error, pymysql.err.MySQLError) and error.args[0] not in (0, 2003, 2006, 2013, 1053, 1317):
                self.wrong.append(error)

    def settle(self, server: Server) -> None:
        """Compares the tables with what there is; what had no answer is done or not, as a whole."""
        assert not self.wrong, self.wrong
        with server.connect(user=self.name, password=PASSWORD) as connection:
            for table, expected in self.tables.items():
                found = read(connection, self.name, table)
                if found != expected and self.open is not None and self.open[0] == table:
                    assert found == self.open[1], f"{self.name}.{table} is neither as before {self.open} nor as after it"
                    self.tables[table] = found
                assert found == self.tables[table], f"{self.name}.{table}"
        self.open = None


def read(connection: pymysql.connections.Connection, database: str, table: str) -> State:
    cursor = connection.cursor()
    try:
        cursor.execute(f"SELECT id, ra, decl, n FROM {database}.{table}")
    except pymysql.err.MySQLError as error:
        assert error.args[0] in (1146, 1142, 1049), error
        return None
    rows = cursor.fetchall()
    found = {key: (ra, decl, n) for key, ra, decl, n in rows}
    assert len(found) == len(rows), f"{database}.{table} has rows twice"
    return found


def compact(meridian: Meridian, data: Path, ended: threading.Event) -> None:
    while not ended.wait(0.3):
        outcome = meridian.run("compact", "--data", data)
        assert outcome.status in (0, 1), outcome.complaint


def test_what_is_acknowledged_is_there_once(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, STARS)
    models = [Model(f"user{n}", random.Random(SEED + n)) for n in range(USERS)]
    for model in models:
        must(meridian, data, "add", model.name, password=PASSWORD)
        must(meridian, data, "grant", model.name, "--read", "sky")
    rng = random.Random(SEED)
    for _ in range(KILLS):
        with serving(meridian, data) as server:
            for model in models:
                model.settle(server)
            ended = threading.Event()
            workers = [threading.Thread(target=model.work, args=(server,)) for model in models]
            workers.append(threading.Thread(target=compact, args=(meridian, data, ended)))
            killer = threading.Timer(rng.uniform(1.0, 4.0), os.kill, (server.process.pid, signal.SIGKILL))
            for thread in [*workers, killer]:
                thread.start()
            for thread in workers[:-1]:
                thread.join()
            ended.set()
            workers[-1].join()
            killer.join()
    with serving(meridian, data) as server:
        for model in models:
            model.settle(server)
        add_up(meridian, data, models, server)
    assert sum(model.done for model in models) >= KILLS
    meridian.must("check", "--data", data)


def add_up(meridian: Meridian, data: Path, models: list[Model], server: Server) -> None:
    """What a user is told to store is what the user's tables have."""
    listed = [json.loads(line) for line in meridian.must("tables", "--data", data, "--format", "json").text.splitlines()]
    for model in models:
        stored = sum(line["bytes"] for line in listed if line["database"] == model.name)
        with server.connect(user=model.name, password=PASSWORD) as connection:
            cursor = connection.cursor()
            cursor.execute("SHOW LIMITS")
            headings = [column[0].lower() for column in cursor.description]
            (limit,) = [dict(zip(headings, row)) for row in cursor.fetchall() if "stored" in str(row[0]).lower()]
        assert str(stored) in {str(value) for value in limit.values()}, (stored, limit)
        rows = sum(len(state) for state in model.tables.values() if state is not None)
        assert sum(line["rows"] for line in listed if line["database"] == model.name) == rows
