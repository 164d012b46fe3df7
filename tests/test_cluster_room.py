"""Clusters that add room: chunk files that workers alone have are read as those of the front end are, by it and by commands beside it."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pymysql
import pytest

from cluster_members import Cluster, cluster_of
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import star_lines, write_lines
from test_cluster import execute

# Chunks of more than a block each, so that they have files of their own, and a part of small ones that share a file.
STARS, MORE_STARS, VISITS = 120_000, 4_000, 120_000
DIRECTOR = {"kind": "director", "key": "id", "ra": "ra", "dec": "dec", "stripes": 3, "sub_stripes": 4, "overlap": 0.5}
# Pieces that run at workers, and statements that the front end answers itself.
STATEMENTS = [
    "SELECT COUNT(*), SUM(version), AVG(ra), MIN(`dec`), STDDEV(ra * `dec`) FROM Star",
    "SELECT s.id % 7 AS d, COUNT(*), SUM(v.flux) FROM Star s JOIN Visit v ON s.id = v.id GROUP BY d ORDER BY d",
    "SELECT COUNT(*), MIN(scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`)) FROM Star a, Star b"
    " WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 0.2 AND a.id < b.id AND qserv_areaspec_circle(120, 10, 15)",
    "SELECT id, ra FROM Star ORDER BY ra DESC, id LIMIT 50",
    "SELECT b.name, COUNT(*) FROM Star s LEFT JOIN Band b ON s.id % 9 = b.id GROUP BY b.name ORDER BY b.name",
    "SELECT id, ra, `dec` FROM Star WHERE id IN (77, 110001, 122000) ORDER BY id",
    "SELECT visit, flux FROM Visit WHERE id = 1234 ORDER BY visit",
    "SELECT id, version FROM Star WHERE qserv_areaspec_circle(200, -30, 1) ORDER BY id",
]
FULL_SCAN = STATEMENTS[0]


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose files are here: stars in two parts, visits of them, and bands."""
    directory = tmp_path_factory.mktemp("archive")
    data = directory / "data"
    lines = star_lines(STARS + MORE_STARS, 1)
    meridian.load(data, "sky", "Star", write_lines(directory / "stars.csv", lines[:STARS]), **DIRECTOR)
    append(meridian, data, "Star", write_lines(directory / "more.csv", lines[STARS:]))
    rng = np.random.default_rng(8)
    stars, flux = rng.integers(0, STARS, VISITS), rng.uniform(0.0, 100.0, VISITS)
    visits = [f"{number},{stars[number]},{flux[number]:.6f}" for number in range(VISITS)]
    path = write_lines(directory / "visits.csv", visits, "visit,id,flux")
    meridian.load(data, "sky", "Visit", path, kind="child", key="id", director="Star")
    bands = write_lines(directory / "bands.csv", [f"{number},band {number}" for number in range(5)], "id,name")
    meridian.load(data, "sky", "Band", bands, kind="replicated")
    return data


@pytest.fixture(scope="module")
def expected(meridian: Meridian, data: Path) -> dict[str, list[tuple[object, ...]]]:
    """What a server alone answers."""
    with serving(meridian, data) as server:
        return {statement: execute(server, statement) for statement in STATEMENTS}


@pytest.fixture
def cluster(meridian: Meridian, data: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A front end that has given all files up, and three workers with two replicas of each."""
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    options = ("--keep-files", 0, "--lost-after", 6)
    with cluster_of(meridian, tmp_path / "cluster", copy, 3, 2, *options) as cluster:
        wait_until_away(cluster)
        yield cluster


def append(meridian: Meridian, data: Path, table: str, path: Path) -> None:
    """Appends rows to a table."""
    meridian.must("load", "--data", data, "--db", "sky", "--table", table, "--append", path)


def local_files(data: Path) -> list[Path]:
    """The chunk files of partitioned tables that are in a data directory."""
    return [path for path in data.glob("tables/*/*/chunk_*.mrd") if "sky.band" not in str(path)]


def check_all(server: Server, expected: dict[str, list[tuple[object, ...]]]) -> None:
    """Every statement is answered as a server alone answers it: floating-point sums to the last bit."""
    for statement, rows in expected.items():
        assert execute(server, statement) == rows, statement


def wait_until_away(cluster: Cluster) -> None:
    """Waits until all files have their replicas and are at workers alone."""
    wait_until(lambda: cluster.has_replicas() and not local_files(cluster.data), 60, "the front end has given its files up")


def flip_bytes(path: Path) -> None:
    """Damages every block of a file."""
    content = bytearray(path.read_bytes())
    for place in range(100, len(content), 4096):
        content[place] ^= 0x55
    # Another file under the name: what is open stays as it was.
    changed = path.with_suffix(".changed")
    changed.write_bytes(content)
    changed.rename(path)


def test_answers_are_the_same_whatever_becomes_of_workers(cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    check_all(cluster.server, expected)
    status = cluster.status()
    assert status["front_end_bytes"] == 0 and status["away_files"] == status["files"] > 10
    # A file that small chunks share is wherever one of them is.
    assert 2 * status["bytes"] == 2 * status["away_bytes"] <= status["worker_bytes"] < 2.5 * status["bytes"]
    assert status["single_copy_files"] == status["lost_files"] == 0
    assert "are at workers alone, 0 of them at one worker only, 0 at none" in cluster.command("status").text
    cluster.restart_front_end(signal.SIGTERM)
    check_all(cluster.server, expected)
    stop = threading.Event()
    wrong: list[object] = []

    def keep_asking() -> None:
        while not stop.is_set():
            for statement, rows in expected.items():
                try:
                    found: object = execute(cluster.server, statement)
                except pymysql.err.Error as error:
                    found = error
                if found != rows:
                    wrong.append((statement, found))

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        cluster.workers["w0"].send_signal(signal.SIGSTOP)
        time.sleep(3)
        cluster.workers["w0"].send_signal(signal.SIGCONT)
        wait_until(lambda: cluster.status()["workers"][0]["state"] == "live", 30, "it is back")
        cluster.workers["w1"].end(signal.SIGKILL)
        wait_until(lambda: cluster.status()["missing_replicas"] > 0, 60, "it is lost")
        wait_until(lambda: cluster.status()["missing_replicas"] == 0, 120, "the others have its replicas")
    finally:
        stop.set()
        thread.join()
    assert not wrong, wrong[:3]
    check_all(cluster.server, expected)
    assert not local_files(cluster.data), "nothing came back for it"


def test_bytes_that_one_holder_has_flipped_come_from_the_other(cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    for path in cluster.workers["w0"].files():
        flip_bytes(path)
    # By ranges of the workers' files, through the server of the cluster and in it.
    with serving(cluster.meridian, cluster.data) as beside:
        check_all(beside, expected)
    check_all(cluster.server, expected)


def test_without_any_holder_the_chunk_is_named(cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    for name in ("w0", "w1"):
        cluster.workers[name].end(signal.SIGKILL)
    wait_until(lambda: cluster.status()["lost_files"] > 0, 60, "files are missed")
    with pytest.raises(pymysql.err.Error) as raised:
        execute(cluster.server, FULL_SCAN)
    told = str(raised.value)
    assert "at workers alone" in told and "chunk " in told and "meridian cluster status" in told, told
    outcome = cluster.command("check")
    assert outcome.status == 3 and "nowhere that can be reached, as chunk" in outcome.complaint
    refused = cluster.command("remove", "w0")
    assert refused.status != 0 and "last copies" in refused.complaint and "--force" in refused.complaint
    for name in ("w0", "w1"):
        cluster.start_worker(name)
    wait_until(lambda: cluster.status()["lost_files"] == 0, 60, "they are back")
    check_all(cluster.server, expected)


def test_the_last_holders_are_not_drained_before_the_front_end_has_the_files(
    cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]
) -> None:
    assert cluster.command("drain", "w2").status == 0
    wait_until(lambda: cluster.status()["workers"][2]["state"] == "drained", 120, "it is drained")
    assert not local_files(cluster.data)
    refused = cluster.command("drain", "w1")
    assert refused.status != 0 and "--keep-files all" in refused.complaint, refused.complaint
    cluster.options = ("--keep-files", "all")
    cluster.restart_front_end(signal.SIGTERM)
    wait_until(lambda: cluster.status()["away_files"] == 0 and cluster.status()["files"] > 0, 120, "the files have come back")
    assert not list(cluster.data.glob("tables/*/*/*.away"))
    for worker in cluster.workers.values():
        worker.end(signal.SIGKILL)
    check_all(cluster.server, expected)
    assert cluster.meridian.run("check", "--data", cluster.data).status == 0


def test_commands_beside_the_server_read_what_workers_have(cluster: Cluster, meridian: Meridian, tmp_path: Path) -> None:
    first, few = STARS + MORE_STARS, range(0, STARS, 77)
    append(meridian, cluster.data, "Star", write_lines(tmp_path / "new.csv", [f"{first + n},{n % 360},{n % 80},5" for n in range(500)]))
    visits = write_lines(tmp_path / "more.csv", [f"{10**6 + n},{n},1.5" for n in few], "visit,id,flux")
    append(meridian, cluster.data, "Visit", visits)
    pairs = write_lines(tmp_path / "pairs.csv", [f"{n},{n}" for n in few], "left_id,right_id")
    meridian.load(cluster.data, "sky", "Pair", pairs, kind="match", director="Star,Star", key="left_id,right_id")
    sums: dict[str, tuple[object, ...]] = {
        "SELECT COUNT(*), SUM(version), SUM(id) FROM Star": (first + 500, first + 2500, sum(range(first + 500))),
        "SELECT COUNT(*), COUNT(DISTINCT visit) FROM Visit": (VISITS + len(few), VISITS + len(few)),
        "SELECT COUNT(*), SUM(s.id) FROM Pair p JOIN Star s ON p.right_id = s.id": (len(few), sum(few)),
    }

    def check() -> None:
        for statement, row in sums.items():
            assert execute(cluster.server, statement) == [row], statement
            beside = meridian.must("sql", "--data", cluster.data, "--db", "sky", "--format", "csv", statement).text
            assert beside.splitlines()[1] == ",".join(map(str, row)), statement

    check()
    # All parts are at workers when they are merged, and their rows when the sky is cut anew.
    wait_until_away(cluster)
    meridian.must("compact", "--data", cluster.data, "--all")
    check()
    wait_until_away(cluster)
    meridian.must("repartition", "--data", cluster.data, "--db", "sky", "--stripes", 4, "--sub-stripes", 5)
    check()
    # What is here of a dropped table stays as long as the server reads it.
    wait_until_away(cluster)
    meridian.must("drop", "table", "--data", cluster.data, "--db", "sky", "--table", "Pair")
    wait_until_away(cluster)
    assert "Pair" not in str([path for worker in cluster.workers.values() for path in worker.files()])


def test_checks_and_backups_know_where_files_are(
    cluster: Cluster, meridian: Meridian, tmp_path: Path, expected: dict[str, list[tuple[object, ...]]]
) -> None:
    checked = meridian.must("check", "--data", cluster.data)
    assert "files are at workers" in checked.text and "meridian cluster check" in checked.text
    meridian.must("backup", "--data", cluster.data, tmp_path / "backups")
    assert not local_files(cluster.data), "nothing came back for it"
    meridian.must("restore", "--data", tmp_path / "restored", tmp_path / "backups")
    with serving(meridian, tmp_path / "restored") as restored:
        check_all(restored, expected)
    cluster.server.stop(signal.SIGKILL)
    # Nobody can read them now, and that they are not here is no damage.
    assert meridian.run("check", "--data", cluster.data).status == 0
    before = sorted(cluster.data.glob("tables/*/*/*.away"))
    for words in (("sql", "--db", "sky", FULL_SCAN), ("compact", "--all"), ("backup", tmp_path / "others")):
        command, *rest = words
        told = meridian.run(command, "--data", cluster.data, *rest)
        assert told.status != 0 and "is at workers of the cluster" in told.complaint, words
        assert "meridian serve --cluster" in told.complaint
    assert sorted(cluster.data.glob("tables/*/*/*.away")) == before
    # A file that is nowhere is told of as before.
    before[0].unlink()
    outcome = meridian.run("check", "--data", cluster.data)
    assert outcome.status != 0 and "is missing" in outcome.complaint


def test_a_disk_of_a_worker_that_fails_costs_its_own_replicas_alone(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, list[tuple[object, ...]]]
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    cluster = Cluster(meridian, tmp_path / "cluster", copy, 2, "--keep-files", 0)
    try:
        disks = [tmp_path / "disk0", tmp_path / "disk1", tmp_path / "disk2"]
        more = [word for disk in disks for word in ("--data", disk)]
        for name, options in (("w0", more), ("w1", []), ("w2", [])):
            cluster.start_worker(name, *options)
        wait_until(lambda: len(cluster.status()["workers"]) == 3, 60, "the workers have joined")
        wait_until_away(cluster)

        def on(disk: Path) -> list[Path]:
            return sorted(disk.glob("replicas/tables/*/*/chunk_*.mrd"))

        everywhere = [cluster.workers["w0"].directory, *disks]
        used = next(disk for disk in everywhere if on(disk))
        before = sum(len(on(disk)) for disk in everywhere)
        check_all(cluster.server, expected)
        if used == cluster.workers["w0"].directory:
            # Its home: it ends, and finds another one.
            used.rename(tmp_path / "gone")
            wait_until(lambda: cluster.workers["w0"].process.poll() is not None, 60, "it ends")
            assert cluster.workers["w0"].process.returncode != 0
            assert "set aside" in cluster.workers["w0"].log
            used.write_text("no directory")
            cluster.start_worker("w0", *more)
        else:
            used.rename(tmp_path / "gone")
        wait_until(lambda: "set aside" in cluster.command("status").text, 60, "it is told")
        check_all(cluster.server, expected)
        wait_until(lambda: cluster.has_replicas() and sum(len(on(disk)) for disk in everywhere) >= before, 120, "its replicas are there again")
        check_all(cluster.server, expected)
    finally:
        cluster.end()
    assert not cluster.panics, cluster.panics


def test_a_statement_reads_on_what_was_replaced_meanwhile(cluster: Cluster, meridian: Meridian, tmp_path: Path) -> None:
    """Workers gave the files of a replaced part up at once, and the front end, which then still read it, had them."""
    joined = "FROM Star s JOIN Visit v ON s.id = v.id"
    with cluster.server.connect(database="sky", cursorclass=pymysql.cursors.SSCursor) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT s.*, v.*, s.ra * v.flux {joined}")
        first = cursor.fetchmany(10)
        stars = write_lines(tmp_path / "stars.csv", star_lines(100, 9))
        meridian.load(cluster.data, "sky", "Star", stars, replace=True, **DIRECTOR)
        wait_until(cluster.has_replicas, 60, "the new files have replicas")
        time.sleep(3)
        rows = len(first) + sum(1 for _ in cursor)
    assert rows == VISITS
    assert execute(cluster.server, "SELECT COUNT(*) FROM Star") == [(100,)]
