"""Asks both sides: DuckDB in this process, Meridian by its server, as a prepared statement, in ADQL by TAP, or from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import mysql.connector
import pymysql

from cluster_members import Cluster
from differential.databases import World, duckdb_of
from differential.dialects import ADQL, MYSQL, Dialect, for_duckdb, for_meridian
from differential.tap import BROKEN, Tap, TapError
from differential.tree import Query, Table, walk
from differential.writing import FILES, as_prepared
from meridian_cli import Meridian, rows_of
from serving import Server, wait_until
from testbed.sides import Asker, Complaint

LONGEST_SECONDS = 20
ORACLE_SECONDS = 8
# Without its optimizer DuckDB materializes what it does not count towards its memory.
PLAIN_SECONDS = 2
MOST_ROWS = 30_000
LOST = -1
Rows = list[tuple[object, ...]]


class OracleFails(Exception):
    """DuckDB has no answer: too large a number, or a mistake of its own."""


class TooLarge(OracleFails):
    """The answer has too many rows or takes too long: Meridian is not asked either."""


@dataclass(frozen=True)
class Rejection(Exception):
    """Meridian has no answer: MySQL's number of the error, or HTTP's status of one in ADQL (`LOST` if the connection or the process broke), and
    the sentence."""

    number: int
    sentence: str

    def __str__(self) -> str:
        return f"error {self.number}: {self.sentence}"


@contextmanager
def limited(seconds: float, stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` if the block takes longer."""
    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Oracle:
    """DuckDB with the rows of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.places = world.places()
        self.connection = duckdb_of(world)

    def execute(self, query: Query, takes_last: bool = False, seconds: float = ORACLE_SECONDS, dialect: Dialect = MYSQL) -> Rows:
        """The rows of a statement that Meridian is asked in a dialect. Of equally near rows those with the smallest places are found, or with the
        greatest."""
        text = for_duckdb(query, self.places, takes_last, dialect)
        try:
            with limited(seconds, self.connection.interrupt):
                rows = self.connection.execute(text).fetchmany(MOST_ROWS + 1)
        except (duckdb.FatalException, duckdb.InternalException) as error:
            # It answers nothing more.
            self.connection = duckdb_of(self.world)
            raise OracleFails(f"a mistake of DuckDB's: {error}") from None
        except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
            raise TooLarge(type(error).__name__) from None
        except duckdb.Error as error:
            raise OracleFails(f"{type(error).__name__}: {error}") from None
        if len(rows) > MOST_ROWS:
            raise TooLarge(f"more than {MOST_ROWS} rows")
        return rows

    def ask_plainly(self, query: Query, dialect: Dialect = MYSQL) -> Rows:
        """The rows of a statement by DuckDB's plan as it is first made: some of its optimizer's are wrong, as of EXISTS over outer joins."""
        self.connection.execute("PRAGMA disable_optimizer")
        try:
            return self.execute(query, seconds=PLAIN_SECONDS, dialect=dialect)
        finally:
            self.connection.execute("PRAGMA enable_optimizer")


class MeridianThere(Meridian):
    """The program, started in a directory, where it finds files."""

    def __init__(self, meridian: Meridian, directory: Path) -> None:
        super().__init__(meridian.binary)
        self.directory = directory

    def start(self, *arguments: object, **options: object):  # type: ignore[no-untyped-def]
        return super().start(*arguments, cwd=self.directory, **options)  # type: ignore[arg-type]


class CommandLine:
    """Statements that `meridian sql` is asked, one process after the other for as long as it lives."""

    def __init__(self, meridian: Meridian, directory: Path) -> None:
        self.asker = Asker(MeridianThere(meridian, directory), directory / "data", "sky")

    def execute(self, text: str) -> Rows:
        """The rows of a statement."""

        def stop() -> None:
            if self.asker.process is not None:
                self.asker.process.kill()

        try:
            with limited(LONGEST_SECONDS, stop):
                return rows_of(self.asker.execute(text))
        except Complaint as complaint:
            said = str(complaint)
            found = re.search(r"error (\d+) \(\w+\): (.*)", said)
            raise Rejection(int(found[1]), found[2]) if found else Rejection(LOST, said) from None

    def close(self) -> None:
        """Ends the process."""
        self.asker.close()


# The workers of each world's cluster; none by default: a server alone.
WORKERS = "MERIDIAN_DIFFERENTIAL_WORKERS"
# What of the files their front end keeps; all by default.
KEEP_FILES = "MERIDIAN_DIFFERENTIAL_KEEP_FILES"
# Whether each statement is asked twice: the second answer is that of the result cache, where it may be.
TWICE = "MERIDIAN_DIFFERENTIAL_TWICE"
# The memory of all statements together; the server's own choice by default.
MEMORY = "MERIDIAN_DIFFERENTIAL_MEMORY"
# Whether whoever asks reads the tables through barriers: some rows are released, which are all.
RELEASED = "MERIDIAN_DIFFERENTIAL_RELEASED"
READER, PASSWORD = "reader", "of rows that are released"


class ServedDatabase:
    """Statements that `meridian serve` is asked, alone or with the workers of a cluster."""

    def __init__(self, meridian: Meridian, directory: Path, threads: int) -> None:
        self.meridian, self.directory = meridian, directory
        self.times = 2 if os.environ.get(TWICE) else 1
        self.options: tuple[object, ...] = ("--threads", threads, "--log", "error", "--result-cache", 0 if self.times > 1 else "off")
        if memory := os.environ.get(MEMORY):
            self.options += ("--memory", memory, "--cache", memory)
        self.cluster: Cluster | None = None
        workers = int(os.environ.get(WORKERS, "0"))
        if workers:
            # Whatever can be shuffled is: the rest is covered without workers.
            kept = ("--keep-files", os.environ.get(KEEP_FILES, "all"), "--shuffle-above", 0)
            self.cluster = Cluster(meridian, directory / "cluster", directory / "data", min(2, workers), *self.options, *kept)
            for number in range(workers):
                self.cluster.start_worker(f"w{number}", "--log", "error", threads=threads)
            self.cluster.wait_for_replicas()
            if kept[1] == "0":
                wait_until(lambda: self.cluster.status()["front_end_bytes"] == 0, 60, "the front end has given its files up")
        self.login = {"user": READER, "password": PASSWORD} if os.environ.get(RELEASED) else {}
        if self.login:
            release_all(meridian, directory / "data")
        self.server = self._start()
        self.connection: pymysql.connections.Connection | None = None
        self.prepared: mysql.connector.MySQLConnection | None = None
        self.tap: Tap | None = None
        self.command_line = CommandLine(meridian, directory)

    def _start(self) -> Server:
        if self.cluster is not None:
            if self.cluster.server.process.poll() is not None:
                self.cluster.restart_front_end(signal.SIGTERM)
            return self.cluster.server
        return Server(self.meridian, self.directory / "data", *self.options)

    def _revive(self) -> None:
        """Starts the server again where it has died."""
        if self.server.process.poll() is not None:
            self.server, self.connection, self.prepared, self.tap = self._start(), None, None, None

    def execute(self, query: Query, mark: str = "", dialect: Dialect = MYSQL) -> Rows:
        """The rows of a statement; `mark` makes it one that the server has not met."""
        text = f"/* {mark} */ {for_meridian(query, dialect)}" if mark else for_meridian(query, dialect)
        if dialect == ADQL:
            return self.ask_adql(text)
        return self.command_line.execute(text) if names_files(query) else self.ask_text(text)

    def ask_text(self, text: str) -> Rows:
        """The rows of a text that names no files."""
        self._revive()
        try:
            if self.connection is None:
                self.connection = self.server.connect(database="sky", read_timeout=LONGEST_SECONDS, **self.login)
            with self.connection.cursor() as cursor:
                for _ in range(self.times):
                    cursor.execute(text)
                    rows = list(cursor.fetchall())
                return rows
        except pymysql.err.MySQLError as error:
            raise self._rejection(error) from None

    def _rejection(self, error: Exception) -> Rejection:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else LOST
        if number in (0, 2006, 2013, 2014, 2027, LOST) or isinstance(error, pymysql.err.InterfaceError):
            with suppress(Exception):
                if self.connection is not None:
                    self.connection.close()
            self.connection, number = None, LOST
        return Rejection(number, str(error.args[-1]) if error.args else repr(error))

    def ask_adql(self, text: str) -> Rows:
        """The rows of a text in ADQL, by TAP."""
        self._revive()
        if self.tap is None:
            self.tap = Tap(self.server.http_port, LONGEST_SECONDS, **self.login)
        try:
            for _ in range(self.times):
                rows = self.tap.execute(text)
            return rows
        except TapError as error:
            raise Rejection(LOST if error.status == BROKEN else error.status, error.sentence) from None

    def ask_prepared(self, query: Query) -> Rows:
        """The rows of a statement that is prepared, its constants sent as parameters."""
        text, parameters = as_prepared(query)
        self._revive()
        if self.prepared is None:
            where = {"host": "127.0.0.1", "port": self.server.port, "user": "tester", "database": "sky", "read_timeout": LONGEST_SECONDS, **self.login}
            self.prepared = mysql.connector.connect(use_pure=True, **where)  # type: ignore[arg-type,assignment]
        try:
            cursor = self.prepared.cursor(prepared=True)  # type: ignore[union-attr]
            try:
                for _ in range(self.times):
                    cursor.execute(text, tuple(parameters))  # type: ignore[arg-type]
                    rows = [tuple(row) for row in cursor.fetchall()]
                return rows  # type: ignore[return-value]
            finally:
                cursor.close()
        except mysql.connector.errors.ReadTimeoutError:
            # The connector waits for more rows after an error that follows rows of a prepared statement.
            self.prepared = None
            raise TooLarge("the connector waited for the end of a result") from None
        except mysql.connector.Error as error:
            number = error.errno or LOST
            if number in (2006, 2013, 2055, LOST):
                self.prepared, number = None, LOST
            raise Rejection(number, str(error.msg)) from None

    def close(self) -> None:
        """Ends the server, whatever state it is in."""
        self.command_line.close()
        if self.tap is not None:
            self.tap.close()
        for connection in (self.connection, self.prepared):
            with suppress(Exception):
                if connection is not None:
                    connection.close()
        if self.cluster is not None:
            self.cluster.end()
        elif self.server.process.poll() is None:
            self.server.stop()

    @property
    def panics(self) -> str:
        """What the server, or a member of the cluster, has logged of panics."""
        if self.cluster is not None:
            return self.cluster.panics
        return "\n".join(line for line in self.server.logged if "panicked" in line or "the server panic" in line)


def release_all(meridian: Meridian, data: Path) -> None:
    """Makes a user who may read everything, each table by the rows of a condition that all rows meet."""
    if meridian.run("user", "add", READER, "--data", data, "--password-stdin", stdin=PASSWORD + "\n").status != 0:
        return  # The server was started before.
    for line in meridian.must("tables", "--data", data, "--format", "json").text.splitlines():
        table = json.loads(line)
        if table["kind"] == "view":
            continue
        name = f"{table['database']}.{table['table']}"
        columns = meridian.must("sql", "--data", data, "--format", "csv", f"SELECT * FROM {name} LIMIT 0").text.strip().split(",")
        condition = f"`{columns[0]}` IS NULL OR `{columns[-1]}` IS NULL OR `{columns[0]}` = `{columns[0]}`"
        meridian.must("release", "--data", data, "--db", table["database"], "--table", table["table"], "--condition", condition)
        meridian.must("user", "grant", READER, "--data", data, "--read", table["database"])


def names_files(query: Query) -> bool:
    """Whether a statement reads files, which a server does not."""
    return any(isinstance(node, Table) and node.database == FILES for _, node in walk(query))
