#!/usr/bin/env python3
"""Single rows that many connections insert at the same time, each of which waits until its row is on the disk: Meridian beside MariaDB (InnoDB
that flushes each commit), on the same machine in turns. See README.md.

    bench/inserts/run.py --meridian target/release/meridian [--connections 20] [--seconds 10] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

MARIADB = "/usr/sbin/mariadbd"
TABLE = "(id BIGINT NOT NULL, ra DOUBLE NOT NULL, decl DOUBLE NOT NULL, note VARCHAR(20))"
Connect = Callable[[], pymysql.connections.Connection]


@contextmanager
def process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as log:
        started = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield started
        finally:
            started.terminate()
            started.wait(timeout=60)


def connected(connect: Connect) -> pymysql.connections.Connection:
    """A connection as soon as the server takes one."""
    give_up = time.monotonic() + 60
    while True:
        try:
            return connect()
        except pymysql.err.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


@contextmanager
def meridian(program: Path, directory: Path) -> Iterator[Connect]:
    data, socket = directory / "meridian", str(directory / "m.sock")
    data.mkdir()
    # The first user makes the directory one of users.
    subprocess.run([program, "load", "--data", data, "--db", "sky", "--table", "one", "--kind", "replicated", one_row(directory)], check=True, capture_output=True)
    subprocess.run([program, "user", "add", "ann", "--data", data, "--password-stdin"], input=b"secret", check=True, capture_output=True)
    with process([str(program), "serve", "--data", str(data), "--mysql", "off", "--http", "off", "--mysql-socket", socket]):

        def connect() -> pymysql.connections.Connection:
            return pymysql.connect(unix_socket=socket, user="ann", password="secret", database=None, autocommit=True)

        yield connect


def one_row(directory: Path) -> Path:
    file = directory / "one.csv"
    file.write_text("id\n1\n")
    return file


@contextmanager
def mariadb(directory: Path) -> Iterator[Connect]:
    home, socket = directory / "mariadb", str(directory / "s.sock")
    user = [f"--user={'root' if os.getuid() == 0 else os.environ.get('USER', 'mysql')}"]
    make = ["mariadb-install-db", "--no-defaults", f"--datadir={home}", "--skip-test-db", *user]
    subprocess.run([*make, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
    durable = ["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--skip-networking", f"--pid-file={directory / 'pid'}"]
    with process([MARIADB, "--no-defaults", f"--datadir={home}", f"--socket={socket}", *user, *durable]):

        def connect() -> pymysql.connections.Connection:
            return pymysql.connect(unix_socket=socket, user="root", autocommit=True)

        with connected(connect) as first:
            first.cursor().execute("CREATE DATABASE ann")
        yield connect


def insert(connect: Connect, connections: int, seconds: float, table: str) -> tuple[int, list[float]]:
    """How many rows were acknowledged, and after what time each."""
    latencies: list[list[float]] = [[] for _ in range(connections)]
    begin = threading.Barrier(connections)

    def run(number: int) -> None:
        with connect() as connection:
            cursor = connection.cursor()
            begin.wait()
            end = time.monotonic() + seconds
            while (begun := time.monotonic()) < end:
                key = number * 10_000_000 + len(latencies[number])
                cursor.execute(f"INSERT INTO {table} VALUES ({key}, {key % 360}.5, {key % 90}.25, 'row {key % 1000}')")
                latencies[number].append(time.monotonic() - begun)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(map(len, latencies)), sorted(latency for of_one in latencies for latency in of_one)


def measure(name: str, connect: Connect, round_number: int, options: argparse.Namespace) -> None:
    table = f"ann.t{round_number}"
    with connected(connect) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE {table} {TABLE}")
        rows, latencies = insert(connect, options.connections, options.seconds, table)
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        ((counted,),) = cursor.fetchall()
        assert counted == rows, f"{name}: {rows} rows were acknowledged, and {counted} are there"
    median, late = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    print(f"| {round_number} | {name} | {rows / options.seconds:,.0f} | {1000 * median:.1f} | {1000 * late:.1f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meridian", type=Path, required=True)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inserts_") as made:
        directory = Path(made)
        with meridian(options.meridian.resolve(), directory) as ours, mariadb(directory) as peer:
            print("| round | server | rows a second | p50, ms | p99, ms |\n|---|---|---|---|---|")
            for round_number in range(1, options.rounds + 1):
                measure("Meridian", ours, round_number, options)
                measure("MariaDB", peer, round_number, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
