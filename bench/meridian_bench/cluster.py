"""A front end with workers beside a server alone, on the same rows: writes CLUSTER.md.

All processes are on one machine and share its processors, so that what is measured is what dispatch costs, not what more machines gain; and how much
of the work and memory of a query with very many groups the front end has left if workers merge them.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import catalogue as catalogues
from .catalogue import Sky
from .concurrent_queries import Server
from .contenders.base import Setup
from .machine import describe, memory_bytes
from .markdown import markdown_table, milliseconds
from .memory import high_water, processor_seconds
from .parts import EPOCHS, OBJECTS, QUERIES, ROUNDS, SCAN_QUERIES, SCANS, UNCOUNTED, Query, arguments, loaded, measure

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

# About as many groups as rows, whose rows are in any piece.
MANY_GROUPS = "as many groups as sources"
GROUP_QUERIES: dict[str, Query] = {
    MANY_GROUPS: lambda rng, sky: (
        "SELECT count(*) AS n FROM (SELECT psfFlux, count(*) AS c, sum(ra) AS r FROM Source GROUP BY psfFlux) g"
        f" WHERE r > {rng.uniform(0, 1e-9)!r}"
    ),
}
# Who merges the groups, and what `--shuffle-above` says then.
MERGERS = {"the front end": "off", "the workers": "0"}


@dataclass(frozen=True)
class Merging:
    """What a query with many groups takes. Processor seconds are those of a query on average, the memory is the most that the process has had."""

    alone_seconds: float
    seconds: float
    front_end_processor_seconds: float
    front_end_bytes: int


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


def wait_until_ready(setup: Setup, address: str, secret: Path) -> None:
    """Waits until the workers have joined and hold their replicas."""
    give_up = time.monotonic() + PATIENCE
    while not are_ready(state := status_of(setup, address, secret)):
        assert time.monotonic() < give_up, f"the workers do not get their files: {state}"
        time.sleep(1)


@contextmanager
def workers_of(setup: Setup, work: Path, address: str, secret: Path) -> Iterator[None]:
    """Workers of whichever front end listens there."""
    processes = []
    member = ["--cluster-secret", str(secret)]
    try:
        for number in range(WORKERS):
            command = [str(setup.program), "worker", "--join", address, "--name", f"w{number}", "--data", str(work / f"w{number}")]
            command += [*member, "--threads", str(setup.threads), "--log", "error"]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def report(
    options: argparse.Namespace, rows: dict[str, int], measured: dict[str, dict[str, float]], merged: dict[str, Merging], wrong: list[str]
) -> str:
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
    lines += [
        "",
        "## Who merges many groups",
        "",
        f"`{GROUP_QUERIES[MANY_GROUPS](random.Random(SEED), None)}`, merged by the front end (`--shuffle-above off`) and by the workers (`0`):"
        " medians in milliseconds, the front end's processor milliseconds for a query, and the most memory that the front end has had.",
        "",
    ]
    cells = [
        [who, milliseconds(it.alone_seconds), milliseconds(it.seconds), milliseconds(it.front_end_processor_seconds), f"{it.front_end_bytes / 2**20:.0f} MiB"]
        for who, it in merged.items()
    ]
    lines += markdown_table(["merged by", ALONE, CLUSTER, "processor of the front end", "its memory"], cells)
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
    alone = Server(setup, "alone")
    measured: dict[str, dict[str, float]] = {}
    merged: dict[str, Merging] = {}
    wrong: list[str] = []

    @contextmanager
    def front_end(above: str) -> Iterator[dict[str, Server]]:
        """The servers to compare, once the workers have joined."""
        joined = ("--cluster", address, "--cluster-secret", str(secret), "--replicas", str(REPLICAS), "--shuffle-above", above)
        server = Server(setup, "cluster", *joined)
        try:
            wait_until_ready(setup, address, secret)
            yield {ALONE: alone, CLUSTER: server}
            assert status_of(setup, address, secret)["remote_pieces"], "no worker has run a piece: nothing was measured"
        finally:
            server.stop()

    try:
        with workers_of(setup, work, address, secret):
            with front_end("20000000") as servers:
                for queries, rounds in ((QUERIES | REGION_QUERIES, ROUNDS), (SCAN_QUERIES, SCANS)):
                    found, differ = measure(servers, queries, rounds[options.size], rng, sky, ALONE)
                    measured |= found
                    wrong += differ
            for who, above in MERGERS.items():
                with front_end(above) as servers:
                    pid, rounds_of_groups = servers[CLUSTER].process.pid, SCANS[options.size]
                    before = processor_seconds(pid)
                    found, differ = measure(servers, GROUP_QUERIES, rounds_of_groups, rng, sky, ALONE)
                    took = (processor_seconds(pid) - before) / (rounds_of_groups + UNCOUNTED)
                    seconds = found[MANY_GROUPS]
                    merged[who] = Merging(seconds[ALONE], seconds[CLUSTER], took, high_water(pid))
                    wrong += differ
    finally:
        alone.stop()
    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / "CLUSTER.md"
    rows = {table.name: table.rows for table in tables}
    page.write_text(report(options, rows, measured, merged, wrong), encoding="utf-8")
    print(f"{page} is written", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run(arguments("cluster", "CLUSTER.md", "Measure a front end with workers beside a server alone.")))
