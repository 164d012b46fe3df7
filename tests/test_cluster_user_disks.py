"""Workers with disks for users' own tables alone: which files are on which disks, and that they are brought over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster_members import Cluster, Member
from meridian_cli import Meridian
from serving import START_SECONDS, wait_until
from small_tables import load_stars_and_bands
from test_users import PASSWORD, Site, must

# A child of the catalogue's stars, a director, and one that is not partitioned.
OWN_TABLES = {
    "bright": "CREATE TABLE bright AS SELECT id, ra * 2 AS twice FROM sky.Star WHERE id < 300",
    "places": "CREATE TABLE places PARTITION BY DIRECTOR (number, ra, `dec`) AS SELECT id + 1000 AS number, ra, `dec` FROM sky.Star WHERE id > 50",
    "few": "CREATE TABLE few AS SELECT 1 AS a, 2 AS b",
}
QUESTION = "SELECT COUNT(*), SUM(b.twice - 2 * s.ra), (SELECT COUNT(*) FROM ann.places), (SELECT SUM(b) FROM ann.few) FROM ann.bright b JOIN sky.Star s ON b.id = s.id"
ANSWER = (300, 0.0, 349, 2)


@contextmanager
def cluster_with_ann(meridian: Meridian, directory: Path, replicas: int) -> Iterator[tuple[Cluster, Site]]:
    """A front end without workers, at which Ann may read the database sky. The end checks that nobody has panicked."""
    data = load_stars_and_bands(meridian, directory, 400)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    cluster = Cluster(meridian, directory / "cluster", data, replicas)
    try:
        yield cluster, Site(meridian, data, cluster.server)
    finally:
        cluster.end()
    assert not cluster.panics, cluster.panics


def databases(directory: Path) -> set[str]:
    """Those of which there are chunk files."""
    return {path.parent.parent.name.split(".")[0] for path in directory.glob("replicas/tables/*/*/chunk_*.mrd")}


def test_users_tables_are_on_disks_of_their_own(meridian: Meridian, tmp_path: Path) -> None:
    with cluster_with_ann(meridian, tmp_path, replicas=2) as (cluster, site):

        def users_disk(name: str) -> Path:
            return tmp_path / f"users_{name}"

        def start(name: str, *, has_disk: bool) -> Member:
            return cluster.start_worker(name, *(("--user-data", users_disk(name)) if has_disk else ()))

        def wait_for(what: str, is_so: Callable[[], bool]) -> None:
            wait_until(lambda: cluster.has_replicas() and is_so(), 60, what)

        first, second = start("w0", has_disk=True), start("w1", has_disk=False)
        wait_until(lambda: len(cluster.status()["workers"]) == 2, START_SECONDS, "the workers have joined")
        with site.connect("ann") as ann:
            for statement in OWN_TABLES.values():
                ann.cursor().execute(statement)

        def answers() -> tuple[object, ...]:
            # With a comment of its own, so that no answer is kept from before.
            with site.connect("ann") as connection:
                cursor = connection.cursor()
                cursor.execute(f"{QUESTION} WHERE {len(asked)} = {len(asked)}")
                asked.append(True)
                (row,) = cursor.fetchall()
                return tuple(row)

        asked: list[bool] = []
        # Each worker has all; the second one has no disk for users.
        wait_for("users' tables are on the first worker's own disk", lambda: databases(users_disk("w0")) == {"ann"})
        wait_for("all are on the second one's disk", lambda: databases(second.directory) == {"ann", "sky"})
        assert databases(first.directory) == {"sky"}
        tables = {path.parent.parent.name for path in users_disk("w0").glob("replicas/tables/*/*/chunk_*.mrd")}
        assert tables == {f"ann.{name}" for name in OWN_TABLES}
        assert answers() == ANSWER
        workers = {worker["name"]: worker["user_disks"] for worker in cluster.status()["workers"]}
        assert workers["w1"] is None and workers["w0"]["bytes"] > workers["w0"]["free"] > 0
        headings, *lines = cluster.command("status").text.splitlines()
        assert headings.split()[-4:] == ["users'", "disk", "users'", "free"]
        assert [line.split()[-1] == "-" for line in lines[:2]] == [False, True], lines

        # With such a disk from now on, it brings them over; the other one gets them anew on its usual disk.
        before = sorted(path.name for path in second.files() if "/ann." in str(path))
        assert first.end() == 0 and second.end() == 0
        first, second = start("w0", has_disk=False), start("w1", has_disk=True)
        wait_for("they are brought over", lambda: databases(second.directory) == {"sky"})
        wait_for("they come anew", lambda: databases(first.directory) == {"ann", "sky"})
        assert sorted(path.name for path in users_disk("w1").glob("replicas/tables/*/*/chunk_*.mrd")) == before
        assert answers() == ANSWER

        # What is dropped goes, what is made comes, and what was replaced meanwhile is not left on the other disk.
        with site.connect("ann") as ann:
            ann.cursor().execute("DROP TABLE places")
            ann.cursor().execute("CREATE TABLE places AS SELECT id, ra, `dec` FROM sky.Star")
            ann.cursor().execute("DELETE FROM bright WHERE id >= 100")
        wait_for("the new tables are there", lambda: databases(second.directory) == {"sky"} and databases(users_disk("w1")) == {"ann"})
        assert answers() == (100, 0.0, 400, 2)
        assert cluster.command("scrub").status == 0


def test_without_the_disk_of_users_others_hold_their_tables(meridian: Meridian, tmp_path: Path) -> None:
    """A worker whose disk for users' tables fails puts them nowhere else."""
    with cluster_with_ann(meridian, tmp_path, replicas=1) as (cluster, site):
        users_disk = tmp_path / "users"
        worker = cluster.start_worker("w0", "--user-data", users_disk)
        wait_until(lambda: len(cluster.status()["workers"]) == 1, START_SECONDS, "the worker has joined")
        with site.connect("ann") as ann:
            ann.cursor().execute(OWN_TABLES["places"])
            wait_until(lambda: cluster.has_replicas() and databases(users_disk) == {"ann"}, 60, "it is on the disk of users' tables")
            users_disk.rename(tmp_path / "gone")
            users_disk.write_text("no directory")

            def warned() -> bool:
                warnings = " ".join(cluster.status()["warnings"])
                return f"the disk of {users_disk} is set aside" in warnings and "replicas have no place" in warnings

            wait_until(warned, 60, "the operator is warned")
            assert databases(worker.directory) == {"sky"}
            cursor = ann.cursor()
            cursor.execute("SELECT COUNT(*) FROM ann.places")
            assert cursor.fetchall() == ((349,),)
            assert worker.process.poll() is None


def test_a_directory_has_one_use(meridian: Meridian, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    joined = ("--join", "127.0.0.1:1", "--cluster-secret", secret)
    refused = meridian.run("worker", *joined, "--data", tmp_path / "a", "--data", tmp_path / "b", "--user-data", tmp_path / "b")
    assert refused.status != 0 and f"{tmp_path / 'b'} is given with --data and with --user-data" in refused.complaint
