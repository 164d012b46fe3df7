#!/usr/bin/env python3
"""Single rows that many connections insert at the same time, each of which waits until its row is on the disk: Meridian beside MariaDB (InnoDB
that flushes each commit), on the same machine in turns. See README.md.

    bench/inserts/run.py --meridian target/release/meridian [--connections 20] [--seconds 10] [--rounds 3] [--layouts whole,director,child]
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymysql

MARIADB = "/usr/sbin/mariadbd"
COLUMNS = "id BIGINT NOT NULL, ra DOUBLE NOT NULL, decl DOUBLE NOT NULL, star BIGINT, note VARCHAR(20)"
STARS = 100_000
# How a table is spread, and what is nearest to that in MariaDB.
LAYOUTS = {
    "whole": (f"({COLUMNS}) PARTITION BY NONE", f"({COLUMNS})"),
    "director": (f"({COLUMNS}) PARTITION BY DIRECTOR (id, ra, decl)", f"({COLUMNS}, PRIMARY KEY (id))"),
    "child": (f"({COLUMNS}) PARTITION BY CHILD OF sky.star (star)", f"({COLUMNS}, KEY (star))"),
}
Connect = Callable[[], pymysql.connections.Connection]


@dataclass
class Peer:
    connect: Connect
    pid: int

    def processor_seconds(self) -> float:
        """What the server has computed so far, which does not depend on what else the machine does."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
def meridian(program: Path, directory: Path) -> Iterator[Peer]:
    data, socket = directory / "meridian", str(directory / "m.sock")
    data.mkdir()
    director = ["--key", "id", "--ra", "ra", "--dec", "decl"]
    subprocess.run([program, "load", "--data", data, "--db", "sky", "--table", "star", *director, stars(directory)], check=True, capture_output=True)
    # The first user makes the directory one of users.
    subprocess.run([program, "user", "add", "ann", "--data", data, "--password-stdin"], input=b"secret", check=True, capture_output=True)
    subprocess.run([program, "user", "grant", "ann", "--read", "sky", "--data", data], check=True, capture_output=True)
    with process([str(program), "serve", "--data", str(data), "--mysql", "off", "--http", "off", "--mysql-socket", socket]) as server:

        def connect() -> pymysql.connections.Connection:
            return pymysql.connect(unix_socket=socket, user="ann", password="secret", database=None, autocommit=True)

        yield Peer(connect, server.pid)


def stars(directory: Path) -> Path:
    file = directory / "stars.csv"
    with file.open("w") as out:
        out.write("id,ra,decl\n")
        out.writelines(f"{n},{n * 7919 % 360_000 / 1000},{n * 104_729 % 179_000 / 1000 - 89.5}\n" for n in range(STARS))
    return file


@contextmanager
def mariadb(directory: Path) -> Iterator[Peer]:
    home, socket = directory / "mariadb", str(directory / "s.sock")
    user = [f"--user={'root' if os.getuid() == 0 else os.environ.get('USER', 'mysql')}"]
    make = ["mariadb-install-db", "--no-defaults", f"--datadir={home}", "--skip-test-db", *user]
    subprocess.run([*make, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
    durable = ["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--skip-networking", f"--pid-file={directory / 'pid'}"]
    with process([MARIADB, "--no-defaults", f"--datadir={home}", f"--socket={socket}", *user, *durable]) as server:

        def connect() -> pymysql.connections.Connection:
            return pymysql.connect(unix_socket=socket, user="root", autocommit=True)

        with connected(connect) as first:
            first.cursor().execute("CREATE DATABASE ann")
        yield Peer(connect, server.pid)


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
                # Positions over the whole sky.
                place = key * 2_654_435_761
                cursor.execute(f"INSERT INTO {table} VALUES ({key}, {place % 360}.5, {place // 360 % 179 - 89}.25, {place % STARS}, 'row {key % 1000}')")
                latencies[number].append(time.monotonic() - begun)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(map(len, latencies)), sorted(latency for of_one in latencies for latency in of_one)


def measure(name: str, peer: Peer, round_number: int, layout: str, options: argparse.Namespace) -> None:
    table = f"ann.{layout}{round_number}"
    definition = LAYOUTS[layout][name == "MariaDB"]
    with connected(peer.connect) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE {table} {definition}")
        before = peer.processor_seconds()
        rows, latencies = insert(peer.connect, options.connections, options.seconds, table)
        computed = 1000 * (peer.processor_seconds() - before) / rows
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        ((counted,),) = cursor.fetchall()
        assert counted == rows, f"{name}: {rows} rows were acknowledged, and {counted} are there"
    median, late = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    print(f"| {round_number} | {layout} | {name} | {rows / options.seconds:,.0f} | {1000 * median:.1f} | {1000 * late:.1f} | {computed:.2f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meridian", type=Path, required=True)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layouts", type=lambda text: text.split(","), default=list(LAYOUTS))
    parser.add_argument("--alone", action="store_true", help="without MariaDB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inserts_") as made:
        directory = Path(made)
        with ExitStack() as servers:
            peers = {"Meridian": servers.enter_context(meridian(options.meridian.resolve(), directory))}
            if not options.alone:
                peers["MariaDB"] = servers.enter_context(mariadb(directory))
            print("| round | table | server | rows a second | p50, ms | p99, ms | processor time a row, ms |\n|---|---|---|---|---|---|---|")
            for round_number in range(1, options.rounds + 1):
                for layout in options.layouts:
                    for name, peer in peers.items():
                        measure(name, peer, round_number, layout, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
