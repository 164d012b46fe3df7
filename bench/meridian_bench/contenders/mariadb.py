"""MariaDB (InnoDB): a server of its own on a Unix socket. Qserv's workers keep their chunks in this kind of server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import MySQLdb
import pyarrow as pa

from ..catalogue import TableFiles
from ..memory import high_water
from ..text_rows import csv_blocks, csv_schema
from .base import LONGEST_SECONDS, Contender, Fetched, Refused, run_once
from .mysql_values import as_arrow

SERVER = "/usr/sbin/mariadbd"
TYPES = {"int64": "BIGINT", "int32": "INT", "int8": "TINYINT", "double": "DOUBLE", "float": "FLOAT"}
# Light curves lie together: rows are kept in the order of the primary key.
PRIMARY_KEYS = {"Object": "objectId", "Source": "objectId, sourceId"}


class MariaDB(Contender):
    """The row store of the MySQL family. Places on the sky are found by zones of one arcminute of declination."""

    server: subprocess.Popen[bytes] | None = None
    connection: MySQLdb.connections.Connection | None = None

    def version(self) -> str:
        done = subprocess.run([SERVER, "--no-defaults", "--version"], capture_output=True, text=True, check=True)
        return done.stdout.split("Ver ")[1].split()[0]

    def prepare(self) -> None:
        user = [f"--user={'root' if os.getuid() == 0 else os.environ.get('USER', 'mysql')}"]
        if not (self.home / "mysql").is_dir():
            self.home.mkdir(parents=True, exist_ok=True)
            make = ["mariadb-install-db", "--no-defaults", f"--datadir={self.home}", "--skip-test-db", *user]
            make.append("--auth-root-authentication-method=normal")
            run_once(make)
        # A path below /tmp is short enough for a socket's name, which the work directory may not be.
        self.socket = Path(tempfile.mkdtemp(prefix="bench_mariadb_"))
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings().items()]
        command = [SERVER, "--no-defaults", f"--datadir={self.home}", f"--socket={self.socket}/s", *user, *options]
        with (self.home.parent / "mariadb.log").open("ab") as log:
            self.server = subprocess.Popen(command, stdout=log, stderr=log)
        self.connection = self._connect()
        self._do("CREATE DATABASE IF NOT EXISTS bench")
        self._do("USE bench")

    def _settings(self) -> dict[str, object]:
        """A large buffer pool; no guards against a crash of the machine, which a load could be repeated after."""
        return {
            "skip_networking": 1,
            "pid_file": self.socket / "pid",
            "tmpdir": self.home,
            "innodb_buffer_pool_size": f"{self.setup.pool // 2**20}M",
            "innodb_log_file_size": "1G",
            "innodb_flush_log_at_trx_commit": 0,
            "innodb_doublewrite": 0,
            # The page cache holds what the pool does not.
            "innodb_flush_method": "fsync",
            # Started anew it would read its pool back in: cold is to be cold.
            "innodb_buffer_pool_dump_at_shutdown": 0,
            "innodb_buffer_pool_load_at_startup": 0,
            "join_buffer_size": "64M",
            "sort_buffer_size": "64M",
            "tmp_table_size": "256M",
            "max_heap_table_size": "256M",
            "local_infile": 1,
        }

    def _connect(self) -> MySQLdb.connections.Connection:
        assert self.server is not None
        give_up = time.monotonic() + 120
        while True:
            try:
                return MySQLdb.connect(
                    unix_socket=f"{self.socket}/s", user="root", local_infile=True, autocommit=True, charset="utf8mb4"
                )
            except MySQLdb.OperationalError:
                if self.server.poll() is not None or time.monotonic() > give_up:
                    raise
                time.sleep(0.1)

    def load(self, table: TableFiles) -> int | None:
        assert self.server is not None
        schema = csv_schema(table, self.setup.stripes)
        keys = {"objectId", "sourceId"}
        columns = [f"{f.name} {TYPES[str(f.type)]}{' NOT NULL' if f.name in keys else ''}" for f in schema]
        columns.append(f"PRIMARY KEY ({PRIMARY_KEYS[table.name]})")
        loaded = list(schema.names)
        derived = ""
        if table.name == "Object":
            columns.append("zone SMALLINT NOT NULL")
            derived = f" SET zone = floor(@dec * 60), {table.dec} = @dec"
            loaded[loaded.index(table.dec)] = "@dec"
        self._do("SET unique_checks = 0, foreign_key_checks = 0, sql_log_bin = 0")
        self._do(f"CREATE TABLE {table.name} ({', '.join(columns)}) ENGINE = InnoDB")
        self._stream(table, loaded, derived)
        if table.name == "Object":
            self._do(f"ALTER TABLE Object ADD INDEX place (zone, {table.ra}, {table.dec})")
        self._do(f"ANALYZE TABLE {table.name}")
        return high_water(self.server.pid)

    def _stream(self, table: TableFiles, loaded: list[str], derived: str) -> None:
        """Feeds the rows through a named pipe, so that no dump is written."""
        pipe = self.socket / f"{table.name}.csv"
        os.mkfifo(pipe)

        def feed() -> None:
            with pipe.open("wb") as sink:
                for block in csv_blocks(table, self.setup.stripes):
                    # An empty field is a NULL here only as \N.
                    sink.write(_with_nulls(block))

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        self._do(
            f"LOAD DATA LOCAL INFILE '{pipe}' INTO TABLE {table.name} FIELDS TERMINATED BY ',' "
            f"({', '.join(loaded)}){derived}"
        )
        feeder.join()

    def _do(self, text: str) -> None:
        assert self.connection is not None
        with self.connection.cursor() as cursor:
            cursor.execute(text)

    def bytes_on_disk(self) -> dict[str, int]:
        files = {name: self.home / "bench" / f"{name}.ibd" for name in self.setup.tables}
        return {name: file.stat().st_blocks * 512 for name, file in files.items() if file.is_file()}

    def start(self) -> None:
        self.prepare()
        self._do(f"SET max_statement_time = {LONGEST_SECONDS}")
        self.execute("SELECT 1")

    def execute(self, text: str) -> object:
        assert self.connection is not None
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(text)
            except MySQLdb.Error as error:
                raise Refused(str(error)) from None
            return Fetched(cursor.fetchall(), cursor.description or ())

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, Fetched)
        return as_arrow(answer)

    def stop(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=300)
            self.server = None
            shutil.rmtree(self.socket, ignore_errors=True)

    def peak_memory(self) -> int:
        return high_water(self.server.pid) if self.server is not None else 0


def _with_nulls(block: bytes) -> bytes:
    """Writes \\N into every empty field."""
    while b",," in block:
        block = block.replace(b",,", b",\\N,")
    return block.replace(b",\n", b",\\N\n").replace(b"\n,", b"\n\\N,")
