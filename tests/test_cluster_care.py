"""What operators do for a cluster: replicas are verified, made anew, moved, and workers are added."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from cluster_members import Cluster, Member, cluster_of, make_unreadable
from meridian_cli import Meridian
from serving import wait_until
from small_tables import DIRECTOR, star_lines, write_lines

# Few chunks, each of so many rows that it has a file of its own.
STARS, STRIPES = 160_000, 3
SECONDS = 120


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with stars, visits of them, and bands."""
    directory = tmp_path_factory.mktemp("archive")
    stars = write_lines(directory / "stars.csv", star_lines(STARS, 5))
    meridian.load(directory / "data", "sky", "Star", stars, **{**DIRECTOR, "stripes": STRIPES})
    visits = write_lines(directory / "visits.csv", [f"{number},{number}" for number in range(STARS)], "visit,id")
    meridian.load(directory / "data", "sky", "Visit", visits, kind="child", key="id", director="Star")
    bands = write_lines(directory / "bands.csv", ["1,g", "2,r"], "id,name")
    meridian.load(directory / "data", "sky", "Band", bands, kind="replicated")
    return directory / "data"


@pytest.fixture
def cluster(meridian: Meridian, data: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A front end and three workers with two replicas of each file, none of which is lost before an operator says so."""
    # What another test had drained is remembered with the data.
    (data / "cluster.json").unlink(missing_ok=True)
    with cluster_of(meridian, tmp_path / "cluster", data, 3, 2, "--lost-after", 3600) as cluster:
        assert cluster.command("rebalance").status == 0
        yield cluster


def of_table(worker: Member, table: str) -> list[Path]:
    """A worker's replicas of a table."""
    return [path for path in worker.files() if re.search(rf"\b{table}\b", str(path), re.IGNORECASE)]


def replace(path: Path, content: bytes) -> None:
    """Another file under the name: what is open stays as it was."""
    changed = path.with_suffix(".changed")
    changed.write_bytes(content)
    changed.rename(path)


def flipped(path: Path) -> bytes:
    """The bytes of a file, each of whose blocks is damaged."""
    content = bytearray(path.read_bytes())
    for place in range(100, len(content), 4096):
        content[place] ^= 0x55
    return bytes(content)


def files(cluster: Cluster) -> dict[str, list[Path]]:
    """The replicas of all workers."""
    return {name: worker.files() for name, worker in cluster.workers.items()}


def contents(cluster: Cluster) -> dict[Path, bytes]:
    """The bytes of all replicas."""
    return {path: path.read_bytes() for paths in files(cluster).values() for path in paths}


def states(cluster: Cluster) -> dict[str, str]:
    """The states of the workers."""
    return {worker["name"]: worker["state"] for worker in cluster.status()["workers"]}


# Scrubbing.


def test_a_scrub_finds_damage_and_a_repair_makes_it_good(cluster: Cluster) -> None:
    before = contents(cluster)
    outcome = cluster.command("scrub")
    assert outcome.status == 0, outcome.complaint
    assert re.fullmatch(rf"{len(before)} replicas \(.*\) of 3 workers and \d+ files \(.*\) of the front end were read through, and all are right\n", outcome.text)
    damaged = {name: len(of_table(worker, "Visit")) for name, worker in cluster.workers.items()}
    for path in of_table(cluster.workers["w1"], "Visit"):
        replace(path, flipped(path))
    # Each is a whole file, but another one.
    others = of_table(cluster.workers["w2"], "Visit")
    assert len(others) > 2
    for path, other in zip(others, [before[path] for path in others[1:] + others[:1]], strict=True):
        assert other != before[path]
        replace(path, other)
    for path in of_table(cluster.workers["w0"], "Visit"):
        path.unlink()
    # Other workers and tables are as they were.
    outcome = cluster.command("scrub", "--table", "STAR", "--db", "Sky")
    assert outcome.status == 0 and "all are right" in outcome.text, outcome
    # The workers read by themselves, too, and may have found one or another already.
    outcome = cluster.command("scrub")
    assert outcome.status == 3 and "of them damaged, which come anew" in outcome.complaint, outcome
    found = re.findall(r"^(w\d): chunk \d+ of sky\.Visit is damaged: (.+)$", outcome.text, re.MULTILINE)
    assert {name for name, _ in found} == {"w0", "w1", "w2"}, outcome.text
    whys = {name: {why for of, why in found if of == name} for name in damaged}
    assert whys["w0"] == {"it is not on the disk any more"} and whys["w2"] == {"it is another file than was published"}
    assert "Star" not in outcome.text and "Band" not in outcome.text
    counted = lambda: {worker["name"]: worker["damaged"] for worker in cluster.status()["workers"]}  # noqa: E731
    wait_until(lambda: counted() == damaged, SECONDS, "the status tells of the damage")
    outcome = cluster.command("repair")
    assert outcome.status == 0 and "each of " in outcome.text, outcome
    assert contents(cluster) == before
    assert cluster.command("scrub").status == 0
    assert not list(cluster.directory.glob("*/replicas/tables/*/*/*.damaged"))


def test_replicas_that_a_disk_does_not_give_come_anew(cluster: Cluster) -> None:
    """They stayed as they were, and each statement that met one ran elsewhere again."""
    before = contents(cluster)
    paths = of_table(cluster.workers["w1"], "Visit")
    for path in paths:
        make_unreadable(path)
    outcome = cluster.command("scrub", "w1", "--table", "Visit")
    assert outcome.status == 3 and f"{len(paths)} of them damaged, which come anew" in outcome.complaint, outcome
    assert len(re.findall(r"^w1: chunk \d+ of sky\.Visit is damaged: .*symbolic links", outcome.text, re.MULTILINE)) == len(paths), outcome.text
    outcome = cluster.command("repair")
    assert outcome.status == 0 and "each of " in outcome.text, outcome
    assert contents(cluster) == before and not any(path.is_symlink() for path in paths)
    # What was set aside and is right is taken back, without a copy from elsewhere.
    for path in paths:
        path.rename(path.with_suffix(".damaged"))
    assert cluster.command("scrub", "w1", "--table", "Visit").status == 3
    assert cluster.command("repair").status == 0
    assert contents(cluster) == before
    assert not list(cluster.directory.glob("*/replicas/tables/*/*/*.damaged"))


def test_damage_that_is_found_while_files_come_is_made_good_too(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """The worker took it for what it had just looked for, and lacked it until it was told of another assignment."""
    own = shutil.copytree(data, tmp_path / "data")
    numbers = random.Random(3)
    notes = write_lines(tmp_path / "notes.csv", [f"{number},{numbers.randbytes(1500).hex()}" for number in range(3000)], "id,note")
    meridian.load(own, "sky", "Note", notes, kind="replicated")
    with cluster_of(meridian, tmp_path / "cluster", own, 2, 2) as cluster:
        assert cluster.command("rebalance").status == 0
        before = contents(cluster)
        cluster.workers["w1"].end()
        worker = cluster.start_worker("w1", "--repair-bandwidth", "1M")
        wait_until(lambda: "joined the cluster" in worker.log, SECONDS, "it is back")
        (first,), visits = of_table(worker, "Note"), of_table(worker, "Visit")
        assert len(before[first]) > 4_000_000, "it takes some seconds"
        for path in [first, *visits]:
            replace(path, flipped(path))
        assert cluster.command("scrub", "w1", "--table", "Note").status == 3
        wait_until(lambda: list(worker.directory.rglob("*.unfinished")), SECONDS, "it comes")
        outcome = cluster.command("scrub", "w1", "--table", "Visit")
        # The worker reads by itself, too, and may have found one already.
        assert outcome.status == 3 and "of them damaged, which come anew" in outcome.complaint, outcome
        assert not first.exists(), "it comes still"
        outcome = cluster.command("repair")
        assert outcome.status == 0 and "each of " in outcome.text, outcome
        wait_until(first.exists, SECONDS, "the replicated table is there, too")
        assert contents(cluster) == before


def test_a_statement_has_replicas_made_anew_that_cannot_be_read(cluster: Cluster) -> None:
    """The worker has opened none of them before."""
    worker = cluster.workers["w1"]
    worker.end()
    cluster.start_worker("w1")
    wait_until(lambda: "joined the cluster" in cluster.workers["w1"].log, SECONDS, "it is back")
    before = contents(cluster)
    paths = of_table(cluster.workers["w1"], "Visit")
    for path in paths:
        make_unreadable(path)
    with cluster.server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), SUM(visit) FROM Visit")
        assert cursor.fetchall() == ((STARS, STARS * (STARS - 1) // 2),)
    wait_until(lambda: "a replica is damaged" in cluster.workers["w1"].log, SECONDS, "one that was read is given up")
    outcome = cluster.command("scrub", "w1")
    assert outcome.status in (0, 3), outcome
    assert cluster.command("repair").status == 0
    assert contents(cluster) == before


def test_a_scrub_of_one_worker_reads_its_replicas_alone(cluster: Cluster) -> None:
    of_worker = len(cluster.workers["w1"].files())
    outcome = cluster.command("scrub", "w1")
    assert outcome.status == 0 and re.match(rf"{of_worker} replicas \(.*\) of 1 worker were read through", outcome.text), outcome
    outcome = cluster.command("scrub", "w1", "--table", "Band")
    assert outcome.status == 0 and outcome.text.startswith("1 replicas ("), outcome
    outcome = cluster.command("scrub", "--no-wait")
    assert outcome.status == 0 and "w0, w1, w2" in outcome.text, outcome
    assert cluster.command("scrub").status == 0
    for words in (("nobody",), ("--table", "Nothing"), ("--db", "nowhere")):
        outcome = cluster.command("scrub", *words)
        assert outcome.status == 1 and "there is no " in outcome.complaint, outcome
    # One that does not run has not read its replicas.
    cluster.workers["w2"].end(signal.SIGKILL)
    wait_until(lambda: states(cluster)["w2"] == "silent", SECONDS, "it is silent")
    outcome = cluster.command("scrub")
    assert outcome.status == 3 and "w2 did not read all of its files through: it does not report" in outcome.complaint, outcome


# The front end's own files.


@pytest.fixture
def own(data: Path, tmp_path: Path) -> Path:
    """A data directory of one test's own."""
    return shutil.copytree(data, tmp_path / "own")


def own_files(data: Path, table: str) -> dict[Path, bytes]:
    """The chunk files of a table in a data directory."""
    return {path: path.read_bytes() for path in sorted(data.glob(f"tables/sky.{table}/*/chunk_*.mrd"))}


def test_a_damaged_file_of_the_front_end_is_replaced(meridian: Meridian, own: Path, tmp_path: Path) -> None:
    """One that a statement meets, without that it fails, and those that a scrub finds. They were read around and stayed."""
    with cluster_of(meridian, tmp_path / "cluster", own, 2, 2) as cluster:
        stars, visits = own_files(own, "star"), own_files(own, "visit")
        for path, content in stars.items():
            replace(path, flipped(path))
            assert path.read_bytes() != content
        with cluster.server.connect(database="sky") as connection, connection.cursor() as cursor:
            # The plan is cached after the first one, and the front end answers.
            for star in range(17, 40):
                cursor.execute(f"SELECT id, version FROM Star WHERE id = {star}")
                assert cursor.fetchall() == ((star, 5),)
            repaired = lambda: [path for path, content in stars.items() if path.read_bytes() == content]  # noqa: E731
            wait_until(lambda: len(repaired()) >= 1, SECONDS, "a file is replaced")
            cursor.execute("SELECT id, version FROM Star WHERE id = 17")
            assert cursor.fetchall() == ((17, 5),)
        assert "a damaged file is replaced by the copy of a worker" in cluster.server.log
        # A single byte, a file that was cut short, and one that is not there.
        one, short, gone, *others = visits
        content = bytearray(visits[one])
        content[len(content) // 2] ^= 1
        replace(one, bytes(content))
        replace(short, visits[short][:-5000])
        gone.unlink()
        outcome = cluster.command("scrub")
        assert outcome.status == 3 and "of the front end's own files damaged" in outcome.complaint, outcome
        assert len(re.findall(r"^the front end: chunk \d+ of sky\.Visit is damaged: ", outcome.text, re.MULTILINE)) == 3, outcome.text
        now = lambda: {**own_files(own, "star"), **own_files(own, "visit")} == {**stars, **visits}  # noqa: E731
        wait_until(now, SECONDS, "all files are replaced")
        wait_until(lambda: cluster.status()["damaged_files"] == 0, SECONDS, "the status tells of none")
        assert cluster.command("check").status == 0
        assert cluster.command("scrub").status == 0
        assert not list(own.glob("tables/*/*/*.tmp"))
        meridian.must("check", "--data", own)


def test_a_damaged_file_that_nobody_else_has_stays_and_is_told(meridian: Meridian, own: Path, tmp_path: Path) -> None:
    cluster = Cluster(meridian, tmp_path / "cluster", own, 1)
    try:
        wait_until(lambda: cluster.status()["files"] > 0, SECONDS, "the front end knows its files")
        stars = own_files(own, "star")
        path = next(iter(stars))
        replace(path, flipped(path))
        damaged = path.read_bytes()
        outcome = cluster.command("scrub")
        assert outcome.status == 3 and "1 of the front end's own files damaged" in outcome.complaint, outcome
        outcome = cluster.command("check")
        assert outcome.status == 3 and "1 of the front end's own files are damaged" in outcome.complaint, outcome
        assert "sky.Star" in outcome.complaint and "restore the file from a backup" in outcome.complaint, outcome
        # It has no file open from before.
        cluster.restart_front_end(signal.SIGTERM)
        with cluster.server.connect(database="sky") as connection, connection.cursor() as cursor:
            with pytest.raises(pymysql.err.Error, match="is damaged"):
                cursor.execute("SELECT SUM(version), SUM(ra), SUM(`dec`) FROM Star")
        wait_until(lambda: cluster.status()["damaged_files"] == 1, SECONDS, "the status tells of it again")
        assert path.read_bytes() == damaged
        # Once somebody has restored it nothing is told any more, and workers get it.
        replace(path, stars[path])
        wait_until(lambda: cluster.status()["damaged_files"] == 0, SECONDS, "the status tells of none")
        cluster.start_worker("w0")
        cluster.wait_for_replicas()
        assert cluster.command("check").status == 0
    finally:
        cluster.end()
    assert not cluster.panics, cluster.panics


# Repairing and moving.


def test_a_repair_does_not_wait_until_a_worker_is_lost(cluster: Cluster) -> None:
    before = files(cluster)
    outcome = cluster.command("repair")
    assert outcome.status == 0 and outcome.text.startswith("nothing is to be repaired\n"), outcome
    cluster.workers["w1"].end(signal.SIGKILL)
    wait_until(lambda: states(cluster)["w1"] == "silent", SECONDS, "it is silent")
    assert cluster.status()["short_replicas"] == 0, "it may come back"
    outcome = cluster.command("repair")
    assert outcome.status == 0, outcome.complaint
    assert "are to be made that files have too few" in outcome.text and "has its 2 replicas" in outcome.text
    assert states(cluster) == {"w0": "live", "w1": "lost", "w2": "live"}
    for name in ("w0", "w2"):
        names = {path.relative_to(cluster.workers[name].directory) for path in cluster.workers[name].files()}
        assert names >= {path.relative_to(cluster.workers["w1"].directory) for path in before["w1"]}
    # With one worker alone nothing can be done.
    cluster.workers["w2"].end(signal.SIGKILL)
    wait_until(lambda: states(cluster)["w2"] == "silent", SECONDS, "it is silent")
    outcome = cluster.command("repair")
    assert outcome.status == 3 and "1 workers take files" in outcome.complaint, outcome
    # Whoever is back is not lost any more, and everything goes where it was.
    for name in ("w1", "w2"):
        cluster.start_worker(name)
    wait_until(lambda: set(states(cluster).values()) == {"live"}, SECONDS, "they are back")
    outcome = cluster.command("rebalance")
    assert outcome.status == 0 and "has its 2 replicas" in outcome.text, outcome
    assert files(cluster) == before
    outcome = cluster.command("rebalance")
    assert outcome.status == 0 and outcome.text.startswith("nothing is to be moved\n"), outcome


def test_a_rebalance_waits_until_a_new_worker_has_its_share(cluster: Cluster) -> None:
    cluster.start_worker("w3", "--repair-bandwidth", "1M")
    wait_until(lambda: "w3" in states(cluster), SECONDS, "it has joined")
    outcome = cluster.command("rebalance")
    assert outcome.status == 0 and "has its 2 replicas" in outcome.text, outcome
    status = cluster.status()
    assert status["coming_replicas"] == status["surplus_replicas"] == status["missing_replicas"] == 0
    held = [path.relative_to(worker.directory) for worker in cluster.workers.values() for path in of_table(worker, "Star")]
    assert len(of_table(cluster.workers["w3"], "Star")) > 0
    assert min(Counter(held).values()) >= status["replicas"]
    assert len(of_table(cluster.workers["w3"], "Band")) == 1
    assert cluster.command("drain", "w0").status == 0
    outcome = cluster.command("rebalance", "--no-wait")
    assert outcome.status == 0, outcome
    outcome = cluster.command("rebalance")
    assert outcome.status == 0, outcome
    assert states(cluster)["w0"] == "drained"


# Ending.


def test_a_worker_that_has_ended_is_removed_at_once(cluster: Cluster) -> None:
    """For four seconds it was said to run, and a scrub failed for it until it was removed."""
    assert cluster.command("drain", "w2").status == 0
    assert cluster.command("rebalance").status == 0
    assert states(cluster)["w2"] == "drained"
    cluster.workers["w2"].end()
    assert states(cluster)["w2"] == "silent"
    outcome = cluster.command("scrub")
    assert outcome.status == 0 and " of 2 workers and " in outcome.text, outcome
    outcome = cluster.command("scrub", "w2")
    assert outcome.status == 3 and "it does not report" in outcome.complaint, outcome
    outcome = cluster.command("remove", "w2")
    assert outcome.status == 0, outcome.complaint
    assert set(states(cluster)) == {"w0", "w1"}
    # One that is killed says nothing.
    cluster.start_worker("w2")
    wait_until(lambda: states(cluster).get("w2") == "live", SECONDS, "it is back")
    assert cluster.command("rebalance").status == 0
    cluster.workers["w2"].end(signal.SIGKILL)
    outcome = cluster.command("remove", "w2")
    assert outcome.status == 1, outcome
    assert re.search(r"runs at 127\.0\.0\.1:\d+, from where it reported \d\.\d s ago: drain it, .* try again in [1-5] s", outcome.complaint)
    wait_until(lambda: cluster.command("remove", "w2").status == 0, 20, "it is removed")


def test_a_worker_that_is_restarted_is_not_lost(cluster: Cluster) -> None:
    """Whoever says that it ends may come back: nothing moves, and its next process counts at once."""
    before = files(cluster)
    for _ in range(3):
        cluster.workers["w1"].end()
        status = cluster.status()
        assert states(cluster)["w1"] == "silent"
        assert status["short_replicas"] == status["missing_replicas"] == status["coming_replicas"] == 0, status
        cluster.start_worker("w1")
        wait_until(lambda: states(cluster)["w1"] == "live", SECONDS, "it is back")
    assert files(cluster) == before and cluster.has_replicas()


# Adding.


def test_what_add_says_adds_a_worker(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    with cluster_of(meridian, tmp_path / "cluster", data, 2, 1, tls=True) as cluster:
        assert cluster.certificates is not None
        taken = cluster.command("add", "w1", "--directory", cluster.certificates)
        assert taken.status == 1 and "runs at 127.0.0.1:" in taken.complaint, taken
        wrong = cluster.command("add", "w9", "--directory", tmp_path)
        assert wrong.status == 1 and "there is no authority (ca.key) here" in wrong.complaint, wrong
        assert not list(tmp_path.glob("*.pem"))
        assert "meridian cluster init --directory AUTHORITY w9" in cluster.command("add", "w9").text
        outcome = cluster.command("add", "w9", "--directory", cluster.certificates)
        assert outcome.status == 0, outcome.complaint
        assert cluster.command("add", "w9", "--directory", cluster.certificates).text == outcome.text
        [line] = [line for line in outcome.text.splitlines() if line.startswith("  meridian worker ")]
        words = shlex.split(line)[2:]
        given = {"DIR": str(tmp_path / "w9"), "HOST:7601": "127.0.0.1:0"}
        process = meridian.start("worker", *(given.get(word, word) for word in words))
        try:
            wait_until(lambda: states(cluster).get("w9") == "live", SECONDS, "it has joined")
            assert cluster.command("rebalance").status == 0
            assert list((tmp_path / "w9").glob("replicas/tables/*/*/chunk_*.mrd"))
        finally:
            process.kill()
            process.communicate()


def test_with_a_secret_add_says_what_is_to_be_run(cluster: Cluster, tmp_path: Path) -> None:
    outcome = cluster.command("add", "w9")
    assert outcome.status == 0, outcome.complaint
    assert f"--join {cluster.address} --data DIR --cluster-secret {cluster.secret} --name w9" in outcome.text
    outcome = cluster.command("add", "w9", "--directory", tmp_path)
    assert outcome.status == 1 and "leave --directory out" in outcome.complaint, outcome
