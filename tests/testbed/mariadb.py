"""A MariaDB server of the run's own: data directory, socket and settings are nobody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pymysql

from synthetic import TableData
from table_files import dump_field, texts_of
from testbed.scisql import STORED_FUNCTIONS

SERVER = "/usr/sbin/mariadbd"
START_SECONDS = 120
STOP_SECONDS = 60
LONGEST_STATEMENT_SECONDS = 60

SETTINGS: dict[str, str | int] = {
    # Text compares byte by byte in Meridian.
    "character-set-server": "utf8mb4",
    "collation-server": "utf8mb4_nopad_bin",
    # Quotients of exact numbers have four more digits by default: too few to compare with doubles.
    "div-precision-increment": 30,
    "default-storage-engine": "Aria",
    "aria-pagecache-buffer-size": "64M",
    "innodb-buffer-pool-size": "16M",
    "default-time-zone": "+00:00",
    # As MySQL rounds times that have more digits than are kept; MariaDB cuts them off.
    "sql-mode": "TIME_ROUND_FRACTIONAL",
    # Temporary tables of a statement are made in memory while they fit.
    "tmp-table-size": "64M",
    "max-heap-table-size": "64M",
    "group-concat-max-len": 1_000_000,
    "max-statement-time": LONGEST_STATEMENT_SECONDS,
    # Names of tables are without regard to case, as everything is in Meridian.
    "lower-case-table-names": 1,
    "local-infile": 1,
}


@dataclass(frozen=True)
class HeadedColumn:
    """A column of an answer: its heading, and its type as the client protocol numbers it."""

    name: str
    type_code: int
    binary: bool


@dataclass(frozen=True)
class QueryResult:
    """The columns and rows that MariaDB gave."""

    columns: list[HeadedColumn]
    rows: list[tuple[object, ...]]


class Rejected(Exception):
    """MariaDB did not answer: its error number and its sentence."""

    def __init__(self, number: int, sentence: str) -> None:
        super().__init__(f"{number}: {sentence}")
        self.number = number
        self.sentence = sentence


class MariaDB:
    """A server that is started with the object and ends with `stop`."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "mariadb"
        # A socket's path has about a hundred characters: a test's directory may be longer.
        self.socket_directory = Path(tempfile.mkdtemp(prefix="testbed_"))
        self.files = directory
        self.server = self._start()
        self.connection = self._connect()

    def _start(self) -> subprocess.Popen[bytes]:
        user = [f"--user={'root' if os.getuid() == 0 else os.environ.get('USER', 'mysql')}"]
        # A server that starts removes all temporary tables in its directory of temporary files, others' as well.
        own = [*user, f"--tmpdir={self.socket_directory}"]
        make = ["mariadb-install-db", "--no-defaults", f"--datadir={self.home}", "--skip-test-db", *own]
        make.append("--auth-root-authentication-method=normal")
        made = subprocess.run(make, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed:\n{made.stdout}{made.stderr}")
        command = [SERVER, "--no-defaults", f"--datadir={self.home}", f"--socket={self._socket}", *own]
        command += ["--skip-networking", f"--pid-file={self.socket_directory}/pid"]
        command += [f"--{name}={value}" for name, value in SETTINGS.items()]
        with (self.files / "mariadb.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def _socket(self) -> Path:
        return self.socket_directory / "s"

    def _connect(self) -> pymysql.connections.Connection:
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                return pymysql.connect(
                    unix_socket=str(self._socket), user="root", charset="utf8mb4", collation=SETTINGS["collation-server"],
                    local_infile=True, autocommit=True,
                )
            except pymysql.OperationalError:
                if self.server.poll() is not None or time.monotonic() > give_up:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends the server."""
        self.connection.close()
        self.server.terminate()
        self.server.wait(timeout=STOP_SECONDS)
        shutil.rmtree(self.socket_directory, ignore_errors=True)

    def make_database(self, database: str, tables: list[TableData], indexes: dict[str, list[str]]) -> None:
        """Makes a database of these tables, with the scisql functions and an index on each of the columns named."""
        self.do(f"CREATE DATABASE `{database}`")
        self.do(f"USE `{database}`")
        for function in STORED_FUNCTIONS:
            self.do(function)
        for table in tables:
            self._load(table, indexes.get(table.name, []))

    def _load(self, table: TableData, indexed: list[str]) -> None:
        columns = [f"`{name}` {without_default(declared)}" for name, declared in table.types.items()]
        columns += [f"INDEX (`{name}`)" for name in indexed]
        self.do(f"CREATE TABLE `{table.name}` ({', '.join(columns)})")
        path = self.files / f"{table.name}.mariadb.tsv"
        write_rows(path, table)
        names, setters = [], []
        for at, (name, field) in enumerate(zip(table.types, table.rows.schema)):
            convert = conversion(field.type, table.types[name])
            names.append(f"@v{at}" if convert else f"`{name}`")
            if convert:
                setters.append(f"`{name}` = {convert.format(f'@v{at}')}")
        setting = f" SET {', '.join(setters)}" if setters else ""
        self.do(
            f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE `{table.name}` CHARACTER SET utf8mb4 ({', '.join(names)}){setting}"
        )
        path.unlink()
        [(loaded,)] = self.execute(f"SELECT count(*) FROM `{table.name}`").rows
        if loaded != table.rows.num_rows:
            raise RuntimeError(f"MariaDB took {loaded} rows of {table.name}, not {table.rows.num_rows}")

    def do(self, statement: str) -> None:
        """Runs a statement that gives no rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def execute(self, statement: str) -> QueryResult:
        """The answer to a query."""
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except pymysql.MySQLError as error:
                number, *sentence = error.args
                raise Rejected(number, str(sentence[0] if sentence else error)) from None
            fields = cursor._result.fields  # type: ignore[union-attr]
            columns = [HeadedColumn(f.name, f.type_code, f.charsetnr == BINARY_CHARSET) for f in fields]
            return QueryResult(columns, list(cursor.fetchall()))


BINARY_CHARSET = 63


def without_default(declared: str) -> str:
    """A declared type without its DEFAULT, which a plain copy does not need and a strict server may reject."""
    words = declared.split()
    upper = [word.upper() for word in words]
    if "DEFAULT" not in upper:
        return declared
    at = upper.index("DEFAULT")
    # TIMESTAMP columns are NOT NULL unless they say otherwise.
    null = " NULL" if upper[0] == "TIMESTAMP" and "NOT" not in upper[:at] else ""
    return " ".join(words[:at]) + null


def conversion(arrow: pa.DataType, declared: str) -> str | None:
    """How a field of the file becomes the column's value, where that is not the field itself."""
    if pa.types.is_binary(arrow):
        return "UNHEX({})"
    if declared.lower().startswith("bit"):
        return "CAST({} AS UNSIGNED)"
    return None


def write_rows(path: Path, table: TableData) -> None:
    """Writes the rows as LOAD DATA reads them; bytes are in hexadecimal."""
    columns = []
    for field in table.rows.schema:
        values = table.rows[field.name]
        if pa.types.is_binary(field.type):
            columns.append([None if value is None else value.hex() for value in values.to_pylist()])
        elif pa.types.is_boolean(field.type):
            columns.append([None if value is None else str(int(value)) for value in values.to_pylist()])
        else:
            columns.append(texts_of(values))
    with path.open("w", encoding="utf-8", newline="") as file:
        for row in zip(*columns):
            file.write("\t".join(dump_field(value) for value in row) + "\n")
