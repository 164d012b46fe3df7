"""PostgreSQL 15 with q3c: a server of its own on a Unix socket, objects clustered by their place on the sky."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa

from ..catalogue import TableFiles
from ..memory import MemoryWatch, tree_memory
from ..text_rows import csv_blocks, csv_schema
from .base import LONGEST_SECONDS, Contender, Fetched, Setup, run_once

BINARIES = Path("/usr/lib/postgresql/15/bin")
USER, DATABASE = "bench", "postgres"
TYPES = {"int64": "bigint", "int32": "integer", "int8": "smallint", "double": "double precision", "float": "real"}
# Object identifiers of the types that answers have, from PostgreSQL's catalogue of types.
ARROW_TYPES = {20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 700: pa.float32(), 701: pa.float64()}


def server_settings(setup: Setup) -> dict[str, object]:
    """As its manual and the usual guides advise for a machine that analyses: a quarter to two fifths for its buffers."""
    megabytes = setup.memory // 2**20
    return {
        "listen_addresses": "",
        "shared_buffers": f"{setup.pool // 2**20}MB",
        "effective_cache_size": f"{megabytes // 2}MB",
        "work_mem": "256MB",
        "maintenance_work_mem": f"{min(1024, megabytes // 16)}MB",
        "max_parallel_workers_per_gather": setup.threads,
        "max_parallel_maintenance_workers": setup.threads,
        "max_wal_size": "4GB",
        "checkpoint_timeout": "30min",
        # A table that is filled in the transaction that creates it is then written once, not to the log as well.
        "wal_level": "minimal",
        "max_wal_senders": 0,
        "synchronous_commit": "off",
        "random_page_cost": 1.1,
    }


class PostgreSQL(Contender):
    """The row store that observatories use, with the extension that indexes the sky."""

    server: subprocess.Popen[bytes] | None = None
    connection: psycopg.Connection | None = None

    def version(self) -> str:
        done = subprocess.run([BINARIES / "postgres", "--version"], capture_output=True, text=True, check=True)
        return done.stdout.split()[2]

    def _as_server_user(self, *command: object) -> list[str]:
        """PostgreSQL refuses to run as root: then it runs as the user that its package made."""
        words = [str(word) for word in command]
        return ["runuser", "-u", "postgres", "--", *words] if os.getuid() == 0 else words

    def prepare(self) -> None:
        if not (self.home / "PG_VERSION").is_file():
            shutil.rmtree(self.home, ignore_errors=True)
            self.home.mkdir(parents=True)
            self._give(self.home)
            initdb = [BINARIES / "initdb", "-D", self.home, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"]
            run_once(self._as_server_user(*initdb))
        # A path below /tmp is short enough for a socket's name, which the work directory may not be.
        self.socket = Path(tempfile.mkdtemp(prefix="bench_postgres_"))
        self._give(self.socket)
        options = [f"-c{name}={value}" for name, value in self._settings().items()]
        command = self._as_server_user(BINARIES / "postgres", "-D", self.home, "-k", self.socket, *options)
        with (self.home.parent / "postgres.log").open("ab") as log:
            self.server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        self.connection = self._connect()
        self.connection.execute("CREATE EXTENSION IF NOT EXISTS q3c")

    def _settings(self) -> dict[str, object]:
        return server_settings(self.setup)

    def _give(self, directory: Path) -> None:
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(directory, owner.pw_uid, owner.pw_gid)
            directory.chmod(0o700)

    def _connect(self) -> psycopg.Connection:
        assert self.server is not None
        give_up = time.monotonic() + 120
        while True:
            try:
                return psycopg.connect(host=str(self.socket), user=USER, dbname=DATABASE, autocommit=True)
            except psycopg.OperationalError:
                if self.server.poll() is not None or time.monotonic() > give_up:
                    raise
                time.sleep(0.1)

    def load(self, table: TableFiles) -> int | None:
        assert self.connection is not None and self.server is not None
        watch = MemoryWatch(self.server.pid)
        watch.start()
        with self.connection.transaction():
            self._copy(table)
        if table.director is None:
            self._do(f"CREATE INDEX {table.name}_place ON {table.name} (q3c_ang2ipix({table.ra}, {table.dec}))")
            self._do(f"CLUSTER {table.name} USING {table.name}_place")
            self._do(f"ALTER TABLE {table.name} ADD PRIMARY KEY ({table.key})")
        else:
            self._do(f"CREATE INDEX ON {table.name} ({table.key})")
        self._do(f"VACUUM ANALYZE {table.name}")
        self._do("CHECKPOINT")
        return watch.finish()

    def _copy(self, table: TableFiles) -> None:
        """Streams the files into a new table, each sorted by key so that a light curve's rows lie together."""
        assert self.connection is not None
        schema = csv_schema(table, self.setup.stripes)
        columns = ", ".join(f"{field.name} {TYPES[str(field.type)]}" for field in schema)
        self._do(f"CREATE TABLE {table.name} ({columns})")
        with self.connection.cursor().copy(f"COPY {table.name} FROM STDIN (FORMAT csv)") as copy:
            for block in csv_blocks(table, self.setup.stripes):
                copy.write(block)

    def _do(self, text: str) -> None:
        assert self.connection is not None
        self.connection.execute(text)

    def bytes_on_disk(self) -> dict[str, int]:
        assert self.connection is not None
        sizes = {}
        for name in self.setup.tables:
            row = self.connection.execute("SELECT pg_total_relation_size(%s)", [name.lower()]).fetchone()
            sizes[name] = int(row[0]) if row else 0
        return sizes

    def start(self) -> None:
        self.prepare()
        self._do(f"SET statement_timeout = '{LONGEST_SECONDS}s'")
        self.execute("SELECT 1")

    def execute(self, text: str) -> object:
        assert self.connection is not None
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute(text)
            return Fetched(cursor.fetchall(), cursor.description or ())

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, Fetched)
        rows, description = answer.rows, answer.description
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(description)
        arrays = [
            pa.array(np.array(values, dtype=object), ARROW_TYPES.get(column.type_code), from_pandas=False)
            for values, column in zip(columns, description, strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=[column.name for column in description])

    def stop(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self.server is not None:
            stop = [BINARIES / "pg_ctl", "-D", self.home, "-m", "fast", "-w", "-t", "300", "stop"]
            subprocess.run(self._as_server_user(*stop), check=False, stdout=subprocess.DEVNULL, cwd="/")
            self.server.wait(timeout=60)
            self.server = None
            shutil.rmtree(self.socket, ignore_errors=True)

    def cluster(self) -> dict[str, str]:
        assert self.server is not None
        return {"socket": str(self.socket), "user": USER, "database": DATABASE, "pid": str(self.server.pid)}

    def peak_memory(self) -> int:
        """What server and connections have now: the kernel keeps no peak for several processes that share buffers."""
        return tree_memory(self.server.pid) if self.server is not None else 0
