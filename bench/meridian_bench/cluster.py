"""A front end with workers beside a server alone, on the same rows: writes CLUSTER.md.

All processes are on one machine and share its processors, so that what is measured is what dispatch costs, not what more machines gain.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import catalogue as catalogues
from .catalogue import Sky
from .concurrent_queries import Server
from .contenders.base import Setup
from .machine import describe, memory_bytes
from .markdown import markdown_table, milliseconds
from .parts import EPOCHS, OBJECTS, QUERIES, ROUNDS, SCAN_QUERIES, SCANS, Query, arguments, loaded, measure

WORKERS = 3
REPLICAS = 2
SEED = 17
ALONE, CLUSTER = "a server alone", f"{WORKERS} workers"
PATIENCE = 300

# What is neither answered off an index nor of the whole sky.
REGION_QUERIES: dict[str, Query] = {
    "groups of sources within half a degree": lambda rng, sky: (
        "SELECT filterId, count(*) AS n, avg(psfFlux) AS f FROM Source WHERE qserv_areaspec_circle({1!r}, {2!r}, 0.5)"
        " GROUP BY filterId ORDER BY filterId".format(*rng.choice(sky.objects))
    ),
    "sources of objects within half a degree": lambda rng, sky: (
        "SELECT count(*) AS n FROM Object o JOIN Source s ON o.objectId = s.objectId"
        " WHERE qserv_areaspec_circle({1!r}, {2!r}, 0.5)".format(*rng.choice(sky.objects))
    ),
}


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def status_of(setup: Setup, address: str, secret: Path) -> dict[str, Any]:
    """The state of the cluster."""
    command = [str(setup.program), "cluster", "status", "--format", "json", "--cluster", address, "--cluster-secret", str(secret)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def are_ready(state: dict[str, Any]) -> bool:
    """Whether all workers are there, and every file has its replicas."""
    live = [worker for worker in state["workers"] if worker["state"] == "live"]
    return len(live) == WORKERS and state["files"] > 0 and state["missing_replicas"] == 0


@contextmanager
def workers_of(setup: Setup, work: Path, address: str, secret: Path) -> Iterator[None]:
    """Workers that hold their replicas."""
    processes = []
    member = ["--cluster-secret", str(secret)]
    try:
        for number in range(WORKERS):
            command = [str(setup.program), "worker", "--join", address, "--name", f"w{number}", "--data", str(work / f"w{number}")]
            command += [*member, "--threads", str(setup.threads), "--log", "error"]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        give_up = time.monotonic() + PATIENCE
        while not are_ready(state := status_of(setup, address, secret)):
            assert time.monotonic() < give_up, f"the workers do not get their files: {state}"
            time.sleep(1)
        yield
        pieces = [worker["pieces"] for worker in status_of(setup, address, secret)["workers"]]
        assert any(pieces), "no worker has run a piece: nothing was measured"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def report(options: argparse.Namespace, rows: dict[str, int], measured: dict[str, dict[str, float]], wrong: list[str]) -> str:
    """The whole page."""
    machine = describe(options.work)
    lines = ["# A cluster on one machine", "", "Written by `bench/cluster`; see [README.md](README.md).", ""]
    lines += [
        f"Size `{options.size}`, {time.strftime('%Y-%m-%d')}, {machine['processor']}, {machine['memory']}, {options.threads} threads a process."
        f" Object has {rows['Object']:,} rows, Source {rows['Source']:,}; a front end and {WORKERS} workers with {REPLICAS} replicas of each file,"
        " beside a server alone. All share the processors of one machine: the difference is what dispatch costs. Medians in"
        " milliseconds, warm, in turns; each query has constants that none before it had.",
        "",
        *wrong,
        *([""] if wrong else []),
    ]
    cells = [
        [title, milliseconds(found[ALONE]), milliseconds(found[CLUSTER]), f"{(found[CLUSTER] - found[ALONE]) * 1e3:+.2f}"]
        for title, found in measured.items()
    ]
    lines += markdown_table(["query", ALONE, CLUSTER, "difference"], cells)
    return "\n".join(lines).rstrip() + "\n"


def run(options: argparse.Namespace) -> int:
    """Measures and writes; the exit status is 1 if answers differ."""
    # What another size left is no catalogue of this one.
    work, program = options.work.resolve() / options.size, options.meridian.resolve()
    options.work = work
    work.mkdir(parents=True, exist_ok=True)
    catalogue = catalogues.prepare(work / "catalogue", program, OBJECTS[options.size], EPOCHS, 1, False)
    tables = [catalogue.tables["Object"], catalogue.tables["Source"]]
    setup = Setup(work / "one", catalogue.tables, options.threads, memory_bytes(), program)
    loaded(setup, tables, None)
    secret = work / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    address = f"127.0.0.1:{free_port()}"
    rng = random.Random(SEED)
    sky: Sky = catalogues.survey(catalogue, rng)
    joined = ("--cluster", address, "--cluster-secret", str(secret), "--replicas", str(REPLICAS))
    servers = {ALONE: Server(setup, "alone"), CLUSTER: Server(setup, "cluster", *joined)}
    try:
        with workers_of(setup, work, address, secret):
            rounds = ROUNDS[options.size]
            measured, wrong = measure(servers, QUERIES | REGION_QUERIES, rounds, rng, sky, ALONE)
            scans, differ = measure(servers, SCAN_QUERIES, SCANS[options.size], rng, sky, ALONE)
    finally:
        for server in servers.values():
            server.stop()
    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / "CLUSTER.md"
    rows = {table.name: table.rows for table in tables}
    page.write_text(report(options, rows, measured | scans, wrong + differ), encoding="utf-8")
    print(f"{page} is written", file=sys.stderr)
    return 1 if wrong or differ else 0


if __name__ == "__main__":
    sys.exit(run(arguments("cluster", "CLUSTER.md", "Measure a front end with workers beside a server alone.")))
