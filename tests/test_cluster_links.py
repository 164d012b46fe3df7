"""Clusters on hosts of their own, whose links are cut: nobody is told, connections do not end, and answers come all the same."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from cluster_members import Cluster, Member
from meridian_cli import Meridian
from network_hosts import Network, network
from serving import START_SECONDS, serving, wait_until
from test_cluster import STATEMENTS, check_all, execute, load

WORKERS = 3
# `MERIDIAN_CUTS` are more of them, of another seed.
CUTS = int(os.environ.get("MERIDIAN_CUTS", "8"))
SEED = int(os.environ.get("MERIDIAN_FAULT_SEED", "20261128"))
# Seconds that a cut may add to a statement. On a busy machine everything takes longer.
ADDED = 5.0
BUSY = 3.0


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return load(meridian, tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def expected(meridian: Meridian, data: Path) -> dict[str, list[tuple[object, ...]]]:
    """What a server alone answers."""
    with serving(meridian, data) as server:
        return {statement: execute(server, statement) for statement in STATEMENTS}


class SpreadCluster(Cluster):
    """A cluster each of whose workers has a host of its own; the front end is on this machine."""

    def __init__(self, meridian: Meridian, directory: Path, data: Path, net: Network, *options: object) -> None:
        self.network = net
        super().__init__(meridian, directory, data, 2, *options, tls=True, address=f"{net.address}:0")

    def start_worker(self, name: str, *options: object) -> Member:
        host = self.network.hosts[int(name[1:])]
        program = host.program(self.meridian, self.directory)
        return super().start_worker(name, "--listen", f"{host.address}:0", *options, meridian=program)


@pytest.fixture
def spread(meridian: Meridian, data: Path, tmp_path: Path) -> Iterator[SpreadCluster]:
    """A front end and three workers on hosts of their own, with two replicas of each file."""
    copy = Path(shutil.copytree(data, tmp_path / "data"))
    with network(WORKERS) as net:
        cluster = SpreadCluster(meridian, tmp_path / "cluster", copy, net, "--lost-after", 120)
        try:
            for number in range(WORKERS):
                cluster.start_worker(f"w{number}")
            wait_until(lambda: len(cluster.status()["workers"]) == WORKERS, START_SECONDS, "the workers have joined")
            cluster.wait_for_replicas()
            yield cluster
        finally:
            cluster.end()
        assert not cluster.panics, cluster.panics


def test_cut_links_cost_no_answer(spread: SpreadCluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    """One link at a time is cut, for as long as a switch takes to come back or longer, while clients ask."""
    rng = random.Random(SEED)
    stop = threading.Event()
    wrong: list[str] = []
    seconds: list[float] = []

    def client(number: int) -> None:
        chooses = random.Random(SEED + number)
        while not stop.is_set():
            statement = chooses.choice(list(expected))
            begun = time.monotonic()
            try:
                rows = execute(spread.server, f"/* {chooses.random()} */ {statement}")
            except pymysql.err.Error as error:
                wrong.append(f"{statement}: {error}")
                continue
            seconds.append(time.monotonic() - begun)
            if rows != expected[statement]:
                wrong.append(f"{statement}: {rows[:3]} instead of {expected[statement][:3]}")

    clients = [threading.Thread(target=client, args=(number,)) for number in range(2)]
    for thread in clients:
        thread.start()
    try:
        time.sleep(3)
        usual = max(seconds)
        for _ in range(CUTS):
            host = rng.choice(spread.network.hosts)
            host.cut()
            time.sleep(rng.uniform(0.3, 8.0))
            host.mend()
            time.sleep(rng.uniform(0.2, 3.0))
    finally:
        stop.set()
        for thread in clients:
            thread.join(timeout=90)
    assert not wrong, "\n".join([f"MERIDIAN_FAULT_SEED={SEED} MERIDIAN_CUTS={CUTS}", *wrong[:5]])
    assert len(seconds) > 20
    print(f"{CUTS} cuts: {len(seconds)} statements, {usual:.2f} s at most before the first, {max(seconds):.2f} s at most")
    assert max(seconds) < usual * BUSY + ADDED, (usual, max(seconds))
    wait_until(lambda: all(worker["state"] == "live" for worker in spread.status()["workers"]), 60, "all are live")
    check_all(spread, expected)


def test_workers_that_nobody_reaches_are_replaced(spread: SpreadCluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    """A link that stays cut is a worker that is lost: its files get their replicas elsewhere. When it is mended, all is as it was."""
    before = {name: len(worker.files()) for name, worker in spread.workers.items()}
    spread.options = ("--lost-after", 6)
    spread.restart_front_end(signal.SIGKILL)
    wait_until(lambda: len(spread.status()["workers"]) == WORKERS, START_SECONDS, "the workers have joined")
    spread.network.hosts[1].cut()

    def states() -> dict[str, str]:
        return {worker["name"]: worker["state"] for worker in spread.status()["workers"]}

    wait_until(lambda: states().get("w1") == "lost", 60, "the loss is noticed")
    spread.wait_for_replicas()
    check_all(spread, expected)
    spread.network.hosts[1].mend()
    wait_until(lambda: states().get("w1") == "live", 60, "the worker is back")
    wait_until(lambda: {name: len(worker.files()) for name, worker in spread.workers.items()} == before, 90, "the files are where they were")
    check_all(spread, expected)


def test_a_front_end_that_is_cut_off_answers_by_itself(spread: SpreadCluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    """It has all files: what workers were computing is computed here, and they are asked again when they are back."""
    for host in spread.network.hosts:
        host.cut()
    check_all(spread, expected)
    for host in spread.network.hosts:
        host.mend()
    wait_until(lambda: all(worker["state"] == "live" for worker in spread.status()["workers"]), 60, "all are live")
    before = sum(spread.pieces().values())
    check_all(spread, expected)
    wait_until(lambda: sum(spread.pieces().values()) > before, 30, "workers run pieces again")
