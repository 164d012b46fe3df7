#!/usr/bin/env python3
"""What one user's point queries take while another user asks for several times what the machine can do: scans, clients that do not read, that do
not finish what they begin, that do nothing, bombs and wrong passwords. See README.md.

    bench/overload/run.py --meridian target/release/meridian [--scale 10] [--seconds 30] [--rate 100]
"""

from __future__ import annotations

import argparse
import base64
import http.client
import itertools
import multiprocessing
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pymysql
from load_kinds import BOMBS, LARGE, SCAN, beginnings, packed_rows
from pymysql.cursors import SSCursor

STARS = 5000
PASSWORD = "secret"
START_SECONDS = 60
# From the start of the load until it is measured: until then every kind of it has begun.
WARM_SECONDS = 8
# Connections of whom the latencies are measured.
PROBES = 4
# For so many point queries there is a cone over HTTP, and a new connection.
CONES_EVERY, CONNECTS_EVERY = 5, 25

FAILURES = (pymysql.err.MySQLError, OSError, ValueError, AttributeError, http.client.HTTPException)


@dataclass(frozen=True)
class Ports:
    mysql: int
    http: int

    def connect(self, user: str) -> pymysql.connections.Connection:
        # Loading the certificate authorities for each connection would take the client forty milliseconds.
        return pymysql.connect(host="127.0.0.1", port=self.mysql, user=user, password=PASSWORD, ssl_disabled=True)

    def request(self, user: str, method: str, path: str, body: bytes | None = None, password: str = PASSWORD) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=120)
        try:
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            connection.request(method, path, body, {"Authorization": f"Basic {login}"})
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


# --- the load: each kind in a process of its own, so that no client holds up another ---------------------------------------------------


def again_and_again(count: int, work: Callable[[], object]) -> None:
    """So many threads that do something, whatever comes of it, until the process is killed."""

    def run() -> None:
        while True:
            try:
                work()
            except FAILURES:
                time.sleep(0.05)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()


def scan(ports: Ports, scale: int) -> None:
    def work() -> None:
        with ports.connect("ann") as connection:
            connection.cursor().execute(SCAN)

    again_and_again(scale * (os.cpu_count() or 1), work)


def read_slowly(ports: Ports, scale: int) -> None:
    def work() -> None:
        with ports.connect("ann") as connection:
            cursor = connection.cursor(SSCursor)
            cursor.execute(LARGE)
            while cursor.fetchone():
                time.sleep(1)

    again_and_again(2 * scale, work)


def throw_bombs(ports: Ports, scale: int) -> None:
    def work() -> None:
        with ports.connect("ann") as connection:
            for bomb in BOMBS:
                with suppress(pymysql.err.MySQLError):
                    connection.cursor().execute(bomb)

    again_and_again(scale, work)


def upload_bombs(ports: Ports, scale: int) -> None:
    rows = packed_rows()
    again_and_again((scale + 4) // 5, lambda: ports.request("ann", "PUT", "/tables/ann.bomb", rows))


def guess_passwords(ports: Ports, scale: int) -> None:
    # Each time another name: too many wrong passwords of one are refused, and not verified.
    numbers = itertools.count()
    again_and_again(scale, lambda: ports.request(f"guess{next(numbers)}", "GET", "/me", password="wrong"))


def do_nothing(ports: Ports, scale: int) -> None:
    """Idle connections, and some that begin something: nothing at all, half a greeting, half a head, half a body."""
    idle = [ports.connect("ann") for _ in range(200 * scale)]
    begun = beginnings(ports.mysql, ports.http)
    for number in range(10 * scale):
        port, sent = begun[number % len(begun)]
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(sent)
        idle.append(connection)
    threading.Event().wait()


KINDS: dict[str, Callable[[Ports, int], None]] = {
    "scans": scan,
    "slow": read_slowly,
    "bombs": throw_bombs,
    "uploads": upload_bombs,
    "guesses": guess_passwords,
    "idle": do_nothing,
}


# --- what is measured --------------------------------------------------------------------------------------------------------------------


def probe(ports: Ports, rate: float, seconds: float, told: multiprocessing.SimpleQueue[dict[str, list[float]]]) -> None:
    """Asks at a steady rate, whenever the last answer came: a late one delays those that should have been asked meanwhile, and they count as late."""
    # What is measured is the server, not how long the client waits for a processor; only an administrator may say so.
    with suppress(PermissionError):
        os.nice(-10)
    latencies: dict[str, list[float]] = defaultdict(list)
    begin = time.monotonic() + 1

    def connect_anew(_turn: int) -> None:
        with ports.connect("bob") as other:
            other.cursor().execute("SELECT 1")

    def ask_cone(_turn: int) -> None:
        assert ports.request("bob", "GET", "/scs/sky/star?RA=10&DEC=10&SR=1") == 200

    def at_rate(kind: str, every: float, offset: float, work: Callable[[int], None]) -> None:
        for turn in range(int(seconds / every)):
            due = begin + offset + turn * every
            time.sleep(max(0.0, due - time.monotonic()))
            work(turn)
            latencies[kind].append(time.monotonic() - due)

    def ask_points(offset: int) -> None:
        with ports.connect("bob") as connection:
            cursor = connection.cursor()

            def execute(turn: int) -> None:
                key = (turn * PROBES + offset) * 7 % STARS
                cursor.execute(f"SELECT version FROM sky.star WHERE id = {key}")
                assert cursor.fetchall() == ((1,),)

            at_rate("point query", PROBES / rate, offset / rate, execute)

    # Each kind has threads of its own: a connection takes longer than the pause between two point queries.
    others = [("cone over HTTP", CONES_EVERY, ask_cone), ("connection", CONNECTS_EVERY, connect_anew)]
    threads = [threading.Thread(target=ask_points, args=(offset,)) for offset in range(PROBES)]
    for kind, every, work in others:
        threads.append(threading.Thread(target=at_rate, args=(kind, every / rate, 0.5 / rate, work)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put(dict(latencies))


def thread_times(pid: int) -> dict[str, tuple[int, int]]:
    """By the names of the server's threads: how long they have run, and waited for a processor (nanoseconds)."""
    times: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile.
        with suppress(OSError):
            name = (task / "comm").read_text().strip()
            ran, waited, _ = map(int, (task / "schedstat").read_text().split())
            times[name] = (times[name][0] + ran, times[name][1] + waited)
    return times


def resident_bytes(pid: int) -> int:
    resident, of_files = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def quantile(sorted_values: list[float], part: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(part * len(sorted_values)))]


# --- the server --------------------------------------------------------------------------------------------------------------------------


def load_stars(program: Path, directory: Path) -> Path:
    data, file = directory / "data", directory / "stars.csv"
    with file.open("w") as out:
        out.write("id,ra,decl,version\n")
        out.writelines(f"{n},{n * 7919 % 360_000 / 1000},{n * 104_729 % 179_000 / 1000 - 89.5},1\n" for n in range(STARS))
    loading = [program, "load", "--data", data, "--db", "sky", "--table", "star", "--key", "id", "--ra", "ra", "--dec", "decl", file]
    subprocess.run(loading, check=True, capture_output=True)
    for name in ("ann", "bob"):
        made = [program, "user", "add", name, "--data", data, "--password-stdin"]
        subprocess.run(made, input=PASSWORD.encode(), check=True, capture_output=True)
        subprocess.run([program, "user", "grant", name, "--read", "sky", "--data", data], check=True, capture_output=True)
    return data


@contextmanager
def serving(options: argparse.Namespace, directory: Path) -> Iterator[tuple[int, Ports]]:
    program = options.meridian.resolve()
    data, log = load_stars(program, directory), directory / "log"
    listening = ["--mysql", "127.0.0.1:0", "--http", "127.0.0.1:0", "--max-connections", str(500 + 400 * options.scale)]
    limits = ["--memory", str(options.memory << 20), "--max-blocking", "0", "--result-cache", "off"]
    with log.open("wb") as words:
        server = subprocess.Popen([program, "serve", "--data", data, *listening, *limits], stdout=words, stderr=words)
    try:
        give_up = time.monotonic() + START_SECONDS
        while len(found := re.findall(r"(?:connect to |http://)127\.0\.0\.1:(\d+)", log.read_text(errors="replace"))) < 2:
            if server.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"the server did not start: {log.read_text(errors='replace')}")
            time.sleep(0.02)
        yield server.pid, Ports(int(found[0]), int(found[1]))
    finally:
        server.terminate()
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()


def measure(pid: int, ports: Ports, kinds: list[str], options: argparse.Namespace) -> None:
    fork = multiprocessing.get_context("fork")
    with ExitStack() as stack:
        for kind in kinds:
            process = fork.Process(target=KINDS[kind], args=(ports, options.scale), daemon=True)
            process.start()
            stack.callback(process.kill)
        time.sleep(WARM_SECONDS if kinds else 0)
        told: multiprocessing.SimpleQueue[dict[str, list[float]]] = fork.SimpleQueue()
        probing = fork.Process(target=probe, args=(ports, options.rate, options.seconds, told))
        before = thread_times(pid)
        probing.start()
        latencies = told.get()
        probing.join()
        after = thread_times(pid)
        resident = resident_bytes(pid) >> 20
    load = "+".join(kinds) or "none"
    for what, values in latencies.items():
        values.sort()
        shown = " | ".join(f"{1000 * quantile(values, part):.2f}" for part in (0.5, 0.99, 1))
        print(f"| {load} | {what} | {len(values)} | {shown} | {resident} |", flush=True)
    if options.threads:
        for name, (ran, waited) in sorted(after.items()):
            ran, waited = ran - before.get(name, (0, 0))[0], waited - before.get(name, (0, 0))[1]
            print(f"    {name}: ran {ran / 1e9:.2f} s, waited for a processor {waited / 1e9:.2f} s", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meridian", type=Path, required=True)
    parser.add_argument("--scale", type=int, default=10, help="how many times as much comes as the machine can do")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=100, help="point queries a second")
    parser.add_argument("--memory", type=int, default=512, help="the server's --memory, in MiB")
    parser.add_argument("--each", action="store_true", help="each kind of load by itself, too")
    parser.add_argument("--threads", action="store_true", help="say how long the server's threads waited for a processor")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="overload_") as made, serving(options, Path(made)) as (pid, ports):
        print("| load | what | number | p50, ms | p99, ms | max, ms | MiB |\n|---|---|---|---|---|---|---|")
        measure(pid, ports, [], options)
        for kind in options.kinds if options.each else []:
            measure(pid, ports, [kind], options)
        measure(pid, ports, options.kinds, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
