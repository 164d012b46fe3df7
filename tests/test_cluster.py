"""Clusters: what a server with workers answers is what a server alone answers, whatever becomes of the workers meanwhile."""

from __future__ import annotations

import http.client
import os
import random
import re
import shutil
import signal
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pymysql
import pytest

from cluster_members import Cluster, Member, cluster_of, make_unreadable
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, star_lines, write_lines

STARS = 30_000
# Kinds of statements: partial aggregates, joins by key, by place and by pairs, sorts, windows, outer joins, subqueries, rows of all columns.
STATEMENTS = [
    "SELECT COUNT(*), SUM(version), AVG(ra), MIN(`dec`), STDDEV(ra * `dec`) FROM Star",
    "SELECT id % 10 AS d, COUNT(*), SUM(ra), AVG(`dec`) FROM Star GROUP BY d ORDER BY d",
    "SELECT s.id % 7 AS d, COUNT(*), SUM(v.flux) FROM Star s JOIN Visit v ON s.id = v.id GROUP BY d ORDER BY d",
    "SELECT COUNT(*), MIN(scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`)) FROM Star a, Star b"
    " WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 0.3 AND a.id < b.id",
    "SELECT id, ra, `dec` FROM Star WHERE qserv_areaspec_circle(120, 10, 12) ORDER BY ra, id",
    "SELECT id, ra FROM Star ORDER BY ra DESC, id LIMIT 50",
    "SELECT b.name, COUNT(*) FROM Star s LEFT JOIN Band b ON s.id % 9 = b.id GROUP BY b.name ORDER BY b.name",
    "SELECT COUNT(*) FROM Star WHERE ra > (SELECT AVG(ra) FROM Star)",
    "SELECT COUNT(*) FROM Star s WHERE EXISTS (SELECT 1 FROM Visit v WHERE v.id = s.id AND v.flux > 90)",
    "SELECT COUNT(*), SUM(n) FROM (SELECT id, COUNT(*) AS n FROM Visit GROUP BY id HAVING COUNT(*) > 3) t",
    "SELECT COUNT(DISTINCT chunkId) FROM Star",
    "SELECT COUNT(*), SUM(n), MAX(m) FROM (SELECT id DIV 2 AS g, COUNT(*) AS n, MAX(ra) AS m FROM Star GROUP BY g) t",
    "SELECT id, RANK() OVER (PARTITION BY version ORDER BY ra) AS r FROM Star WHERE id < 300 ORDER BY id",
    "SELECT s.* FROM Star s WHERE id IN (3, 77, 29999, 123456) ORDER BY id",
    "SELECT GROUP_CONCAT(name ORDER BY id) FROM Band",
]


def load(meridian: Meridian, directory: Path) -> Path:
    """Stars, visits of them and bands, each table of stars and visits in two parts."""
    data = directory / "data"
    lines = star_lines(STARS, 1)
    half = STARS // 2
    meridian.load(data, "sky", "Star", write_lines(directory / "stars.csv", lines[:half]), **DIRECTOR)
    more = write_lines(directory / "more.csv", lines[half:])
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Star", "--append", more)
    rng = np.random.default_rng(8)
    stars, flux = rng.integers(0, STARS, 2 * STARS), rng.uniform(0.0, 100.0, 2 * STARS)
    visits = [f"{number},{stars[number]},{flux[number]:.6f}" for number in range(2 * STARS)]
    path = write_lines(directory / "visits.csv", visits, "visit,id,flux")
    meridian.load(data, "sky", "Visit", path, kind="child", key="id", director="Star")
    bands = write_lines(directory / "bands.csv", [f"{number},band {number}" for number in range(5)], "id,name")
    meridian.load(data, "sky", "Band", bands, kind="replicated")
    return data


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory."""
    return load(meridian, tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def expected(meridian: Meridian, data: Path) -> dict[str, list[tuple[object, ...]]]:
    """What a server alone answers."""
    with serving(meridian, data) as server:
        return {statement: execute(server, statement) for statement in STATEMENTS}


@pytest.fixture
def cluster(meridian: Meridian, data: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A front end and three workers with two replicas of each file, which merge whatever can be shuffled."""
    with cluster_of(meridian, tmp_path / "cluster", data, 3, 2, "--shuffle-above", 0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def calm(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same with a data directory of its own, for tests that leave members and tables as they are."""
    directory = tmp_path_factory.mktemp("calm")
    copy = Path(shutil.copytree(data, directory / "data"))
    # Another one's name and settings.
    (copy / "cluster.json").unlink(missing_ok=True)
    with cluster_of(meridian, directory / "cluster", copy) as cluster:
        yield cluster


def execute(server: Server, statement: str, **options: object) -> list[tuple[object, ...]]:
    """The rows of a statement."""
    with server.connect(database="sky", **options) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def check_all(cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    """Every statement is answered as a server alone answers it: floating-point sums to the last bit."""
    for statement, rows in expected.items():
        assert execute(cluster.server, statement) == rows, statement


# What is answered.


def test_answers_are_those_of_a_server_alone(calm: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    for _ in range(3):
        check_all(calm, expected)
    pieces = calm.pieces()
    assert all(count > 0 for count in pieces.values()), pieces
    plan = execute(calm.server, f"EXPLAIN ANALYZE {STATEMENTS[1]}")
    assert "pieces of worker w" in str(plan)
    (summary,) = [text for name, text in execute(calm.server, f"EXPLAIN {STATEMENTS[1]}") if name == "summary"]
    assert re.search(r"^pieces sent to workers: w\d \d+, w\d \d+, w\d \d+$", str(summary), re.MULTILINE), summary
    (summary,) = [text for name, text in execute(calm.server, f"EXPLAIN {STATEMENTS[7]}") if name == "summary"]
    assert "pieces sent to workers: w" in str(summary), "the subquery's phase goes to workers"


def test_a_mistake_of_a_statement_is_told_as_by_a_server_alone(calm: Cluster, meridian: Meridian, data: Path) -> None:
    statement = "SELECT SUM(9223372036854775807 + version) FROM Star"
    told = []
    with serving(meridian, data) as alone:
        for server in (alone, calm.server):
            with pytest.raises(pymysql.err.Error) as raised:
                execute(server, statement)
            told.append(raised.value.args)
    assert told[0] == told[1]


def test_values_of_rows_are_warned_of_wherever_they_are_read(calm: Cluster, meridian: Meridian, data: Path) -> None:
    """What workers computed with was converted without a word."""

    def warnings(server: Server) -> list[tuple[object, ...]]:
        with server.connect(database="sky") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(CAST(CONCAT(id, 'x') AS SIGNED)) FROM Star WHERE id < 300")
            cursor.execute("SHOW WARNINGS")
            return sorted(cursor.fetchall())

    with serving(meridian, data) as alone:
        expected = warnings(alone)
    assert len(expected) > 100 and warnings(calm.server) == expected


def test_submitted_queries_run_at_workers(calm: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    before = sum(calm.pieces().values())
    with calm.server.connect(database="sky", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SUBMIT {STATEMENTS[2]}")
        (number, *_), *_ = cursor.fetchall()

        def is_done() -> bool:
            cursor.execute(f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {number}")
            return cursor.fetchall()[0][0] == "COMPLETED"

        wait_until(is_done, 60, "the query is completed")
        cursor.execute(f"SELECT * FROM qserv_result({number})")
        assert sorted(cursor.fetchall()) == sorted(expected[STATEMENTS[2]])
        cursor.execute(f"SELECT RUN_BY, PIECES, PIECES_DONE, HANDED_OUT, STARTED, COMMITTED FROM information_schema.QUERY_MILESTONES WHERE QUERY_ID = {number}")
        milestones = cursor.fetchall()
        cursor.execute(f"SELECT PIECES FROM information_schema.QUERIES WHERE ID = {number}")
        assert sum(done for _, _, done, *_ in milestones) == cursor.fetchall()[0][0]
        assert any(runner.startswith("w") for runner, *_ in milestones), milestones
        assert all(sent <= (started or sent) <= (committed or started or sent) for *_, sent, started, committed in milestones)
    wait_until(lambda: sum(calm.pieces().values()) > before, 10, "workers tell of the pieces")


def test_killing_a_query_ends_it_at_the_workers(calm: Cluster) -> None:
    # It takes minutes.
    statement = "SELECT COUNT(*) FROM Star a, Star b, Star c WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < scisql_angSep(a.ra, a.`dec`, c.ra, c.`dec`)"
    with calm.server.connect(database="sky") as connection:
        raised: list[BaseException] = []

        def run() -> None:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
            except pymysql.err.Error as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(2)
        execute(calm.server, f"KILL QUERY {connection.thread_id()}")
        thread.join(timeout=10)
        assert raised and raised[0].args[0] == 1317
    wait_until(lambda: all(is_idle(worker.process.pid) for worker in calm.workers.values()), 10, "workers are idle")


def is_idle(pid: int) -> bool:
    """Whether a process takes next to no processor time for a while."""

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(0.5)
    return ticks() - before < 10


# Workers that come and go.


def test_without_workers_the_front_end_answers(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, list[tuple[object, ...]]]
) -> None:
    cluster = Cluster(meridian, tmp_path / "cluster", data, 2)
    try:
        # At once: the front end has not looked at the archive by itself yet, and said that all of no files are there.
        assert cluster.command("check").status == 3
        check_all(cluster, expected)
        outcome = cluster.command("status")
        assert "there are no workers" in outcome.text and "replicas lack" in outcome.text
        assert cluster.command("check").status == 3
    finally:
        cluster.end()


# `make faults` has more of them, of another seed.
FAULTS = int(os.environ.get("MERIDIAN_FAULTS", "24"))
FAULT_SEED = int(os.environ.get("MERIDIAN_FAULT_SEED", "20261126"))


def test_faults_under_load_cost_no_answer(cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    """Workers are killed, suspended and ended, and their files damaged and made unreadable, while four clients ask."""
    seed = FAULT_SEED
    rng = random.Random(seed)
    stop = threading.Event()
    wrong: list[str] = []
    asked: Counter[str] = Counter()

    def client(number: int) -> None:
        chooses = random.Random(seed + number)
        while not stop.is_set():
            statement = chooses.choice(list(expected))
            try:
                # A comment makes it a statement that was not met: it is planned and sent to workers.
                rows = execute(cluster.server, f"/* {chooses.random()} */ {statement}")
            except pymysql.err.Error as error:
                wrong.append(f"{statement}: {error}")
                continue
            asked[statement] += 1
            if rows != expected[statement]:
                wrong.append(f"{statement}: {rows[:3]} instead of {expected[statement][:3]}")

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in clients:
        thread.start()
    try:
        for _ in range(FAULTS):
            name = rng.choice(sorted(cluster.workers))
            fault = rng.choice(["kill", "suspend", "end", "damage", "hide"])
            disturb(cluster, name, fault, rng)
            time.sleep(rng.uniform(0.1, 0.8))
    finally:
        stop.set()
        for thread in clients:
            thread.join(timeout=90)
    assert not wrong, "\n".join([f"MERIDIAN_FAULT_SEED={seed} MERIDIAN_FAULTS={FAULTS}", *wrong[:5]])
    assert sum(asked.values()) > 20
    wait_until(lambda: all(worker["state"] == "live" for worker in cluster.status()["workers"]), 30, "all are live")
    cluster.wait_for_replicas()
    check_all(cluster, expected)


def disturb(cluster: Cluster, name: str, fault: str, rng: random.Random) -> None:
    """Does something to a worker, which then runs again."""
    worker = cluster.workers[name]
    files = [path for path in worker.files() if not path.is_symlink()]
    if fault == "suspend":
        worker.send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.2, 6.0))
        worker.send_signal(signal.SIGCONT)
    elif fault == "damage":
        if files:
            path = rng.choice(files)
            content = bytearray(path.read_bytes())
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            # Under the same name, as if the disk had changed it; what is open still reads what it was.
            with path.open("r+b") as file:
                file.write(content)
    elif fault == "hide":
        if files:
            make_unreadable(rng.choice(files))
    else:
        worker.end(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        time.sleep(rng.uniform(0.0, 1.0))
        cluster.start_worker(name)


def test_a_lost_worker_is_replaced_and_comes_back(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, list[tuple[object, ...]]]
) -> None:
    with cluster_of(meridian, tmp_path / "cluster", data, 3, 2, "--lost-after", 6) as cluster:
        before = {name: len(worker.files()) for name, worker in cluster.workers.items()}
        cluster.workers["w1"].end(signal.SIGKILL)

        def states() -> dict[str, str]:
            return {worker["name"]: worker["state"] for worker in cluster.status()["workers"]}

        wait_until(lambda: states() == {"w0": "live", "w1": "lost", "w2": "live"}, 20, "the loss is noticed")
        cluster.wait_for_replicas()
        check_all(cluster, expected)
        cluster.start_worker("w1")
        wait_until(lambda: {name: len(worker.files()) for name, worker in cluster.workers.items()} == before, 60, "as before")
        check_all(cluster, expected)


def test_a_worker_that_is_drained_can_be_ended(cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    assert cluster.command("drain", "nobody").status == 1
    outcome = cluster.command("remove", "w0")
    assert outcome.status == 1 and "drain it" in outcome.complaint
    assert cluster.command("drain", "w0").status == 0

    def state() -> str:
        (found,) = [worker["state"] for worker in cluster.status()["workers"] if worker["name"] == "w0"]
        return str(found)

    wait_until(lambda: state() == "drained", 60, "the worker is drained")
    assert cluster.has_replicas()
    # The front end remembers.
    cluster.restart_front_end(signal.SIGKILL)
    wait_until(lambda: len(cluster.status()["workers"]) == 3, 30, "the workers have come back")
    wait_until(lambda: state() == "drained", 30, "it is drained still")
    cluster.workers["w0"].end()
    wait_until(lambda: state() == "silent", 30, "it is silent")
    check_all(cluster, expected)
    assert cluster.command("remove", "w0").status == 0
    assert [worker["name"] for worker in cluster.status()["workers"]] == ["w1", "w2"]
    cluster.start_worker("w0")
    wait_until(lambda: len(cluster.status()["workers"]) == 3, 30, "it has joined again")
    wait_until(lambda: len(cluster.workers["w0"].files()) > 1 and cluster.has_replicas(), 60, "it has its share again")


def test_a_restarted_front_end_moves_no_files(cluster: Cluster, expected: dict[str, list[tuple[object, ...]]]) -> None:
    def files() -> dict[str, list[Path]]:
        return {name: worker.files() for name, worker in cluster.workers.items()}

    before = files()
    for number in (signal.SIGTERM, signal.SIGKILL):
        cluster.restart_front_end(number)
        check_all(cluster, expected)
        wait_until(lambda: len(cluster.status()["workers"]) == 3, 30, "the workers have come back")
        cluster.wait_for_replicas()
        time.sleep(3)
        assert files() == before


# Tables that come and go.


def test_appended_parts_replaced_and_dropped_tables_reach_the_workers(meridian: Meridian, tmp_path: Path) -> None:
    data = load(meridian, tmp_path)
    with cluster_of(meridian, tmp_path / "cluster", data) as cluster:
        count = "SELECT COUNT(*), SUM(version) FROM Star"
        assert execute(cluster.server, count) == [(STARS, STARS)]
        new = [f"{STARS + number},{number % 360},{number % 80},5" for number in range(1000)]
        more = write_lines(tmp_path / "new.csv", new)
        meridian.must("load", "--data", data, "--db", "sky", "--table", "Star", "--append", more)
        # At once, whether or not the workers have it.
        assert execute(cluster.server, f"{count} WHERE version > 0") == [(STARS + 1000, STARS + 5000)]
        wait_until(cluster.has_replicas, 60, "the part has its replicas")
        assert execute(cluster.server, f"{count} WHERE version >= 0") == [(STARS + 1000, STARS + 5000)]
        held = sum(len(worker.files()) for worker in cluster.workers.values())
        meridian.must("compact", "--data", data, "--all")
        assert execute(cluster.server, f"{count} WHERE version >= 1") == [(STARS + 1000, STARS + 5000)]
        wait_until(lambda: sum(len(worker.files()) for worker in cluster.workers.values()) < held, 60, "old parts are gone")
        meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Visit")
        visits = lambda: [path for worker in cluster.workers.values() for path in worker.files() if "visit" in str(path)]  # noqa: E731
        wait_until(lambda: not visits(), 60, "the files of the dropped table are gone")
        assert execute(cluster.server, count) == [(STARS + 1000, STARS + 5000)]


def test_a_number_that_stands_for_another_part_is_noticed(meridian: Meridian, tmp_path: Path) -> None:
    """A data directory that is restored from a backup gives numbers of parts anew, and workers have files of the old ones."""
    directories = []
    for version in (1, 2):
        directory = tmp_path / str(version)
        directory.mkdir()
        stars = write_lines(directory / "stars.csv", star_lines(STARS, version))
        meridian.load(directory / "data", "sky", "Star", stars, **DIRECTOR)
        directories.append(directory / "data")
    total = "SELECT SUM(version) FROM Star WHERE ra >= 0"
    with cluster_of(meridian, tmp_path / "cluster", directories[0]) as cluster:
        assert execute(cluster.server, total) == [(STARS,)]
        shutil.copy(directories[0] / "cluster.json", directories[1] / "cluster.json")
        cluster.data = directories[1]
        cluster.restart_front_end(signal.SIGTERM)
        for _ in range(50):
            assert execute(cluster.server, f"/* {random.random()} */ {total}") == [(2 * STARS,)]
            time.sleep(0.1)
        cluster.wait_for_replicas()
        before = sum(cluster.pieces().values())
        assert execute(cluster.server, f"/* again */ {total}") == [(2 * STARS,)]
        wait_until(lambda: sum(cluster.pieces().values()) > before, 10, "workers run the pieces")


# Whoever is no member.


def refused(port: int, path: str, authorization: str | None) -> int:
    """The status of a request at a member's port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {} if authorization is None else {"Authorization": authorization}
    connection.request("POST" if path == "/shares" else "GET", path, body=b"" if path == "/shares" else None, headers=headers)
    return connection.getresponse().status


def test_nobody_is_let_in_without_the_secret(calm: Cluster) -> None:
    front_end = int(calm.address.rsplit(":", 1)[1])
    secret = calm.secret.read_text().strip()
    ports = [(front_end, "/status"), (front_end, "/parts/1/manifest"), (calm.workers["w0"].port, "/shares")]
    for port, path in [*ports, (calm.workers["w1"].port, "/parts/1/files/0"), (front_end, "/nothing")]:
        for wrong in (None, "Bearer", "Bearer x", f"Bearer {secret}0", f"bearer {secret}", f"Basic {secret}"):
            assert refused(port, path, wrong) == 401, (path, wrong)
    assert refused(front_end, "/status", f"Bearer {secret}") == 200
    assert refused(calm.workers["w0"].port, "/shares", f"Bearer {secret}") == 400


def test_damaged_shares_and_reports_are_refused(calm: Cluster) -> None:
    headers = {"Authorization": f"Bearer {calm.secret.read_text().strip()}"}
    rng = random.Random(3)
    bodies = [b"", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00{}", *(rng.randbytes(rng.randrange(200)) for _ in range(200))]
    for port, path in ((calm.workers["w0"].port, "/shares"), (int(calm.address.rsplit(":", 1)[1]), "/members/x")):
        for body in bodies:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("POST", path, body=body, headers=headers)
            response = connection.getresponse()
            assert response.status in (400, 409) and response.read(), (path, body)
    assert [worker["name"] for worker in calm.status()["workers"]] == ["w0", "w1", "w2"]


def said(meridian: Meridian, *words: object) -> str:
    """The complaint of a call that fails."""
    outcome = meridian.run(*words)
    assert outcome.status != 0
    return outcome.complaint


def test_what_cannot_be_a_cluster_is_told(meridian: Meridian, data: Path, tmp_path: Path, calm: Cluster) -> None:
    serve = ("serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "off")
    assert "--cluster-secret" in said(meridian, *serve, "--cluster", "127.0.0.1:0")
    secret = tmp_path / "secret"
    secret.write_text("short")
    secret.chmod(0o600)
    assert "16 or more" in said(meridian, *serve, "--cluster", "127.0.0.1:0", "--cluster-secret", secret)
    secret.write_text("a" * 32)
    secret.chmod(0o644)
    assert "chmod 600" in said(meridian, *serve, "--cluster", "127.0.0.1:0", "--cluster-secret", secret)
    secret.chmod(0o600)
    assert "--insecure" in said(meridian, *serve, "--cluster", "0.0.0.0:0", "--cluster-secret", secret)
    worker = ("worker", "--join", calm.address, "--cluster-secret")
    assert "no address of a front end" in said(meridian, "worker", "--join", "nonsense", "--data", tmp_path / "w", "--cluster-secret", secret)
    assert "another worker uses it" in said(meridian, *worker, secret, "--data", calm.workers["w0"].directory)
    assert "401" in said(meridian, "cluster", "status", "--cluster", calm.address, "--cluster-secret", secret)
    assert "cannot be reached" in said(meridian, "cluster", "status", "--cluster", "127.0.0.1:1", "--cluster-secret", secret)


def test_a_worker_removes_nothing_of_a_data_directory_that_it_is_given(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, list[tuple[object, ...]]]
) -> None:
    """MERIDIAN_DATA names the archive for most commands: a worker that took it for its own would have removed what it is not assigned."""
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    (copy / "cluster.json").unlink(missing_ok=True)
    before = sorted((path, path.stat().st_size) for path in copy.glob("tables/**/*.mrd"))
    cluster = Cluster(meridian, tmp_path / "cluster", copy, 1)
    try:
        joined = ("--join", cluster.address, "--cluster-secret", cluster.secret, "--memory", "512M", "--cache", "64M")
        cluster.workers["w0"] = Member(meridian, "w0", copy, *joined)
        cluster.workers["w1"] = Member(meridian, "w1", tmp_path / "w1", *joined)
        wait_until(lambda: len(cluster.status()["workers"]) == 2, 30, "the workers have joined")
        cluster.wait_for_replicas()
        assert cluster.command("drain", "w0").status == 0
        wait_until(lambda: cluster.status()["workers"][0]["state"] == "drained", 60, "the worker is drained")
        assert sorted((path, path.stat().st_size) for path in copy.glob("tables/**/*.mrd")) == before
        check_all(cluster, expected)
    finally:
        cluster.end()


def test_a_directory_of_another_archive_is_refused(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    worker = cluster.workers["w2"]
    worker.end()
    named = worker.directory / "replicas" / "cluster.json"
    named.write_text('{"archive": "0123"}')
    stranger = cluster.start_worker("w2")
    wait_until(lambda: "give it another directory" in stranger.log, 30, "it is told why")
    shutil.rmtree(worker.directory)
    stranger.end()
    cluster.start_worker("w2")
    cluster.wait_for_replicas()


def test_metrics_tell_of_workers_and_replicas(cluster: Cluster) -> None:
    def gauges() -> dict[str, float]:
        with urllib.request.urlopen(cluster.server.url("/metrics"), timeout=10) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("meridian_cluster_"))
        return {name: float(value) for name, value in pairs}

    found = gauges()
    assert found['meridian_cluster_workers{state="live"}'] == 3
    assert found["meridian_cluster_missing_replicas"] == found["meridian_cluster_files_without_replica"] == 0
    cluster.workers["w1"].end()
    wait_until(lambda: gauges()['meridian_cluster_workers{state="silent"}'] == 1, 20, "the silent worker is counted")


def test_the_demonstration_is_a_cluster_that_ends_with_ctrl_c(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    assert "make demo" in said(meridian, "cluster", "demo", "--data", tmp_path / "nothing", "--work", tmp_path)
    process = meridian.start("cluster", "demo", "--data", data, "--work", tmp_path / "work")
    assert process.stdout is not None
    lines: list[str] = []
    while not any("Ctrl-C ends all" in line for line in lines):
        line = process.stdout.readline().decode()
        assert line, lines
        lines.append(line)
    text = "".join(lines)
    port = int(re.search(r"mysql -h 127\.0\.0\.1 -P (\d+)", text).group(1))  # type: ignore[union-attr]
    pid = int(re.search(r"kill -9 (\d+)", text).group(1))  # type: ignore[union-attr]
    with pymysql.connect(host="127.0.0.1", port=port, user="tester", database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(ra) FROM Star")
        assert cursor.fetchall() == ((STARS,),)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10, "the workers are gone")


def test_members_of_a_demonstration_that_is_killed_end(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Ctrl-C ended them, and kill -9 of the demonstration left four processes behind."""
    process = meridian.start("cluster", "demo", "--data", data, "--work", tmp_path / "work")
    assert process.stdout is not None
    while b"Ctrl-C ends all" not in process.stdout.readline():
        assert process.poll() is None
    children = [int(number) for number in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(children) == 4
    process.kill()
    process.wait(timeout=30)
    wait_until(lambda: not any(is_running(pid) for pid in children), 40, "front end and workers are gone")


def is_running(pid: int) -> bool:
    """Whether there is such a process, which nobody has to wait for any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_status_is_a_table_for_people(calm: Cluster) -> None:
    text = calm.command("status").text
    assert re.search(r"^worker +address +state +silent +threads +files +to get +time left +disk +free +pieces$", text, re.MULTILINE)
    assert len(re.findall(r"^w\d +127\.0\.0\.1:\d+ +live ", text, re.MULTILINE)) == 3
    assert "has its 2 replicas" in text
