"""Meridian: `meridian load` for each table, then one `meridian serve`, asked as its users ask it: by MySQL's protocol."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..catalogue import TableFiles
from ..memory import high_water
from .base import LONGEST_SECONDS, Contender, Fetched, Refused
from .mysql_values import as_arrow

try:
    # On MariaDB's C library.
    import MySQLdb as mysql
except ImportError:
    # Where the harness makes do with the packages that there are.
    import pymysql as mysql

DATABASE = "bench"
START_SECONDS = 120
STOP_SECONDS = 60


class Meridian(Contender):
    """The program under test."""

    process: subprocess.Popen[bytes] | None = None
    connection: Any = None
    # Of `meridian load`, besides its defaults.
    load_options: Sequence[str] = ()

    def version(self) -> str:
        return self._run("--version").split()[-1]

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([str(self.setup.program), *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout

    def load(self, table: TableFiles) -> int | None:
        command = [str(self.setup.program), "load", "--data", str(self.home), "--db", DATABASE, "--table", table.name]
        command += ["--key", table.key, "--ra", table.ra, "--dec", table.dec]
        command += ["--director", table.director] if table.director else []
        command += self.load_options
        self.home.mkdir(parents=True, exist_ok=True)
        log = self.home.parent / f"meridian_load_{table.name}.log"
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen([*command, *table.files], stdout=output, stderr=output)
            _, status, usage = os.wait4(process.pid, 0)
        text = log.read_text(encoding="utf-8")
        if status != 0:
            raise Refused(text.strip().splitlines()[-1] if text.strip() else f"`meridian load` ended with {status}")
        if stripes := re.search(r"(\d+) stripes", text):
            (self.home.parent / "stripes.txt").write_text(stripes.group(1))
        return usage.ru_maxrss * 1024

    def bytes_on_disk(self) -> dict[str, int]:
        lines = self._run("tables", "--data", str(self.home), "--format", "json").splitlines()
        return {table["table"]: table["bytes"] for table in map(json.loads, lines)}

    def start(self) -> None:
        # A path below /tmp is short enough for a socket's name, which the work directory may not be.
        self.directory = Path(tempfile.mkdtemp(prefix="bench_meridian_"))
        socket = self.directory / "mysql.sock"
        command = [str(self.setup.program), "serve", "--data", str(self.home), "--threads", str(self.setup.threads)]
        # What is measured is the work, not that it was done before.
        command += ["--mysql", "off", "--http", "off", "--mysql-socket", str(socket), "--log", "error", "--result-cache", "off"]
        self.words = self.home.parent / "meridian_server.log"
        with self.words.open("wb") as words:
            self.process = subprocess.Popen(command, stdout=words, stderr=words)
        self.connection = self._connect(socket)
        self._do(f"SET max_execution_time = {LONGEST_SECONDS * 1000}")
        self.execute("SELECT 1 AS ready")

    def _connect(self, socket: Path) -> Any:
        assert self.process is not None
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                return mysql.connect(unix_socket=str(socket), user="bench", charset="utf8mb4", database=DATABASE)
            except mysql.OperationalError:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    said = self.words.read_text(errors="replace").strip()
                    self.stop()
                    raise Refused(said.splitlines()[-1].removeprefix("meridian: ") if said else "it did not start") from None
                time.sleep(0.01)

    def _do(self, text: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(text)

    def execute(self, text: str) -> object:
        if self.process is None:
            # It ended over the last query.
            self.start()
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(text)
                return Fetched(cursor.fetchall(), cursor.description or ())
        except mysql.Error as error:
            if self.process is not None and self.process.poll() is not None:
                self.stop()
            raise Refused(str(error)) from None

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, Fetched)
        return as_arrow(answer)

    def stop(self) -> None:
        if self.connection is not None:
            # The other side may have gone first.
            with contextlib.suppress(mysql.Error):
                self.connection.close()
            self.connection = None
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
            shutil.rmtree(self.directory, ignore_errors=True)

    def peak_memory(self) -> int:
        return high_water(self.process.pid) if self.process is not None else 0
