"""Cones over HTTP: whether the servers give the same objects, and how fast, at steady rates and with many connections.

`Cones` measures; what it writes into the record of a run is what `report_cones.py` reports.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import random
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .catalogue import Sky, TableFiles
from .comparison import difference
from .cone_servers import ConeServer, NoServer, PeerSetup, meridian_server, peer_server
from .memory import high_water

T = TypeVar("T")

# What `--queries` calls it.
CONES = "conehttp"
OURS, PEER = "meridian", "postgres"
ARCSECONDS = 3600.0
RADIUS = 60.0
# The target's rate, and one that every contender should be able to keep up with.
STEADY_RATES = (1000, 250)
# A steady rate's connections: enough that none is waited for while a server keeps up.
STEADY_CONNECTIONS = 64
MOST_CONNECTIONS = 128
CONNECTIONS = (1, 8, 32)
RADII = (1.0, 10.0, 600.0)
RADII_CONNECTIONS = 8
FILLING_CONNECTIONS = 8
TRIAL_CONNECTIONS = 32
PEER_SETUPS = tuple(PeerSetup(pool, plan) for plan in ("generic", "custom") for pool in (2, 4, 8))
# Of all columns: what SQL's `SELECT *` gives.
ALL_COLUMNS = "VERB=3"
# So far from the edges of the catalogue that no cone reaches over them, in degrees.
INSET = 0.2
MOST_DIFFERENCES_KEPT = 5


@dataclass(frozen=True)
class Amount:
    """How much is asked at a size. Seconds."""

    # Cones whose answers are compared.
    compared: int
    rounds: int
    # With which each server is asked before anything counts.
    filling: float
    warm_up: float
    measured: float
    # How much longer than that what waits at a steady rate may still be sent.
    drain: float
    # Of each point of the series, in each of `series_rounds`.
    series: float
    series_rounds: int
    # For each set-up of the peer that is tried.
    trial: float


AMOUNTS = {
    "tiny": Amount(30, 1, 0.3, 0.2, 0.5, 1.0, 0.2, 1, 0.2),
    "small": Amount(100, 1, 0.5, 0.2, 1.0, 1.0, 0.3, 1, 0.2),
    "standard": Amount(400, 5, 30.0, 2.0, 15.0, 10.0, 5.0, 2, 4.0),
    "large": Amount(400, 3, 60.0, 2.0, 15.0, 10.0, 5.0, 2, 4.0),
}


@dataclass(frozen=True)
class Load:
    """One way to ask: `rate` requests a second, or without one as fast as answers come."""

    name: str
    series: str
    connections: int
    rate: int | None = None
    radius: float = RADIUS


STEADY = [Load(f"steady{rate}", "steady", STEADY_CONNECTIONS, rate) for rate in STEADY_RATES]
FASTEST = Load(f"connections{MOST_CONNECTIONS}", "connections", MOST_CONNECTIONS)
SERIES = [
    *(Load(f"connections{count}", "connections", count) for count in CONNECTIONS),
    *(Load(f"radius{radius:g}", "radius", RADII_CONNECTIONS, None, radius) for radius in (*RADII, RADIUS)),
]


class Cones:
    """The measurement of one run. `record` is what the raw file gets."""

    def __init__(self, generator: Path, table: TableFiles, sky: Sky, seed: int, amount: Amount, threads: int) -> None:
        self.generator = generator
        self.types = column_types(table)
        self.seed = seed
        self.amount = amount
        self.threads = threads
        self.box = inner_box(sky)
        # Those that take part, by name.
        self.servers: dict[str, ConeServer] = {}
        self.record = empty_record()

    def measure(self, program: Path, data: Path, cluster: Mapping[str, str] | None) -> None:
        """Asks `meridian serve` on `data`, and beside it the peer on a cluster if one runs."""
        with ExitStack() as running:
            self.servers[OURS] = running.enter_context(meridian_server(program, data, self.threads))
            self.record["columns"] = header(self.servers[OURS])
            if cluster is not None:
                self._start_peer(cluster, data.parent / "q3c_server.log", running)
            self._compare()
            for name in list(self.servers):
                self._try(name, self._fill)
            self._take_turns([*STEADY, FASTEST], self.amount.rounds, self.amount.measured)
            self._take_turns(SERIES, self.amount.series_rounds, self.amount.series)
            self.record["peak_memory"] = high_water(self.servers[OURS].process.pid)

    def _start_peer(self, cluster: Mapping[str, str], log: Path, running: ExitStack) -> None:
        """Starts the peer with the set-up that does best; without it Meridian is asked alone, and the record says why."""

        def peer(setup: PeerSetup) -> AbstractContextManager[ConeServer]:
            return peer_server(self.generator, cluster, self.record["columns"], setup, self.threads, log)

        try:
            setup = self._best_setup(peer)
            self.servers[PEER] = running.enter_context(peer(setup))
            self.record["setup"] = str(setup)
        except NoServer as error:
            self.record["absent"][PEER] = str(error)

    def _best_setup(self, peer: Callable[[PeerSetup], AbstractContextManager[ConeServer]]) -> PeerSetup:
        """Tries the peer's set-ups for a moment each; gives the one that answers most."""
        with peer(PEER_SETUPS[0]) as server:
            # The first set-up would be the one for which PostgreSQL reads what it needs.
            self._fill(server)
        rates = {}
        for setup in PEER_SETUPS:
            with peer(setup) as server:
                trial = self._ask(server, Load("trial", "", TRIAL_CONNECTIONS), self.seed + 2, self.amount.trial)
            rates[setup] = trial["achieved_rate"]
            self.record["trials"].append({"setup": str(setup), "rate": trial["achieved_rate"]})
        return max(rates, key=lambda setup: rates[setup])

    def _fill(self, server: ConeServer) -> None:
        """Asks until a server has in memory what it keeps."""
        self._ask(server, Load("filling", "", FILLING_CONNECTIONS), self.seed + 1, self.amount.filling)

    def _try(self, name: str, asking: Callable[[ConeServer], T]) -> T | None:
        """Asks a contender. A peer that fails takes no further part; without Meridian there is nothing to measure."""
        try:
            return asking(self.servers[name])
        except NoServer as error:
            if name == OURS:
                raise
            self.record["absent"][name] = str(error)
            del self.servers[name]
            return None

    def _take_turns(self, loads: Sequence[Load], rounds: int, seconds: float) -> None:
        """Each load in rounds, each round begun by another contender; in a round all are asked for the same cones."""
        for number, load in enumerate(loads):
            print(f"{time.strftime('%H:%M:%S')} cones over HTTP: {load.name}", file=sys.stderr, flush=True)
            for at in range(rounds):
                seed = self.seed + 1000 * (number + 1) + at
                names = list(self.servers)
                for name in names[at % len(names) :] + names[: at % len(names)]:
                    run = {"load": load.name, "series": load.series, "contender": name, "round": at}
                    if figures := self._try(name, partial(self._ask, load=load, seed=seed, seconds=seconds)):
                        self.record["runs"].append({**run, **figures})
            self._check_counts(load)

    def _ask(self, server: ConeServer, load: Load, seed: int, seconds: float) -> dict[str, Any]:
        """One run of the generator: its figures, and the processor time that the server took for each answer."""
        before = server.processor_seconds()
        command = [str(self.generator), "cones", server.base, "--extra", ALL_COLUMNS, "--seed", str(seed)]
        command += ["--connections", str(load.connections), "--radius", str(load.radius)]
        command += ["--warm-up", str(self.amount.warm_up), "--seconds", str(seconds), "--count-rows-every", "20"]
        command += ["--ra", *map(str, self.box[:2]), "--dec", *map(str, self.box[2:])]
        command += ["--rate", str(load.rate), "--drain", str(self.amount.drain)] if load.rate else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoServer(done.stderr.strip().removeprefix("meridian-load-generator: "))
        figures: dict[str, Any] = json.loads(done.stdout)
        # Of all answers, those of the warm-up too.
        figures["server_ms"] = (server.processor_seconds() - before) * 1e3 / max(1, figures["all_answers"])
        return figures

    # Whether answers are right.

    def _compare(self) -> None:
        """Asks all for the same cones in CSV, and compares the objects."""
        rng = random.Random(self.seed)
        radii = (RADIUS, *RADII)
        for at in range(self.amount.compared):
            cone = random_cone(rng, self.box, radii[at % len(radii)])
            answers = {name: self._try(name, partial(self._rows, cone=cone)) for name in list(self.servers)}
            ours, theirs = answers[OURS], answers.get(PEER)
            if ours is None or theirs is None:
                continue
            self.record["compared"] += 1
            if found := difference(ours, theirs):
                self._note_difference(found, str(cone))

    def _rows(self, server: ConeServer, cone: Mapping[str, float]) -> pa.Table:
        return read_csv(fetch(server, cone), self.types)

    def _check_counts(self, load: Load) -> None:
        """At a steady rate all are asked for the same cones: then as many answers have as many rows."""
        counts: dict[int, dict[str, tuple[int, int]]] = {}
        for run in self.record["runs"]:
            if run["load"] == load.name and load.rate and not run["errors"] and not run["never_sent"]:
                counted = (run["counted_answers"], run["counted_rows"])
                counts.setdefault(run["round"], {})[run["contender"]] = counted
        for at, both in counts.items():
            if len(set(both.values())) > 1:
                rows = ", ".join(f"{name} {rows:,} rows in {answers:,} answers" for name, (answers, rows) in both.items())
                self._note_difference(rows, f"{load.name}, round {at + 1}")

    def _note_difference(self, found: str, where: str) -> None:
        if len(self.record["differences"]) < MOST_DIFFERENCES_KEPT:
            self.record["differences"].append({"found": found, "where": where})


def empty_record() -> dict[str, Any]:
    """What the record of a run has of cones before any were asked."""
    return {"columns": [], "compared": 0, "differences": [], "absent": {}, "trials": [], "setup": None, "peak_memory": 0, "runs": []}


def inner_box(sky: Sky) -> tuple[float, float, float, float]:
    """Where positions are drawn: least and greatest right ascension and declination, away from the catalogue's edges."""
    height, width = sky.dec_max - sky.dec_min, sky.ra_max - sky.ra_min
    dec_inset = min(INSET, height / 4)
    ra_inset = min(INSET / math.cos(math.radians(min(89.0, max(abs(sky.dec_min), abs(sky.dec_max))))), width / 4)
    return sky.ra_min + ra_inset, sky.ra_max - ra_inset, sky.dec_min + dec_inset, sky.dec_max - dec_inset


def random_cone(rng: random.Random, box: Sequence[float], radius: float) -> dict[str, float]:
    """A position of equal density on the sphere, and a radius in degrees, as the parameters of a request."""
    low, high = (math.sin(math.radians(dec)) for dec in box[2:])
    dec = math.degrees(math.asin(rng.uniform(low, high)))
    return {"RA": round(rng.uniform(*box[:2]), 7), "DEC": round(dec, 7), "SR": radius / ARCSECONDS}


def fetch(server: ConeServer, cone: Mapping[str, object]) -> bytes:
    """An answer in CSV."""
    address = urllib.parse.urlsplit(server.base)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    try:
        connection.request("GET", f"{address.path}?{urllib.parse.urlencode(cone)}&{ALL_COLUMNS}&RESPONSEFORMAT=csv")
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoServer(f"it gave no answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise NoServer(f"it answered with status {response.status}: {body[:300].decode(errors='replace').strip()}")
    return body


def header(server: ConeServer) -> list[str]:
    """The columns of a server's answers."""
    first = fetch(server, {"RA": 0, "DEC": 0, "SR": 1 / ARCSECONDS}).splitlines()
    if not first:
        raise NoServer("it gave CSV without a header")
    return first[0].decode().split(",")


def column_types(table: TableFiles) -> dict[str, pa.DataType]:
    """The types of the columns in the files, by their names in lower case."""
    return {field.name.lower(): field.type for field in pq.read_schema(table.files[0])}


def read_csv(body: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    """An answer's rows, each column of the type that it has in the files: so single precision is compared as such."""
    names = body.split(b"\n", 1)[0].decode().strip().split(",")
    chosen = {name: types[name.lower()] for name in names if name.lower() in types}
    options = pyarrow.csv.ConvertOptions(column_types=chosen, strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(body), convert_options=options)
