"""Workers that several front ends share: every front end has its pieces run by them, one of them decides what they hold, and another one does when
that is killed or hangs."""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from cluster_members import Member
from meridian_cli import Meridian, Outcome
from serving import START_SECONDS, Server, serving, wait_until
from small_tables import star_lines, write_lines
from test_cluster import STATEMENTS, execute

# Enough for each of seven chunks to have a file of its own: files of small chunks are on every worker.
STARS = 140_000
VISITS = 30_000
CUT = {"stripes": 3, "sub_stripes": 6, "overlap": 0.5}
# Longer than anything takes that comes by itself, also on a busy machine.
SECONDS = 90
# What changes of files does so in steps of a second or two, of which each follows the last one's report.
STILL_SECONDS = 8
SCHEMAS = (f"workers_{number}" for number in count())
# Lasts for as long as whatever is done to members meanwhile takes.
SLOW = "SELECT COUNT(*), SUM(v.flux), SUM(CASE WHEN v.visit % 1000 = 0 THEN SLEEP(0.5) ELSE 0 END) FROM Visit v"
PLAIN = SLOW.replace("SLEEP(0.5)", "SLEEP(0)")

Rows = list[tuple[object, ...]]


def with_numbers(files: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Files with the numbers of their inodes, without those that were given up meanwhile."""
    for path in files:
        with suppress(FileNotFoundError):
            yield path, path.stat().st_ino


@pytest.fixture(scope="module")
def loaded(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars, visits and bands, with the catalog in SQLite."""
    directory = tmp_path_factory.mktemp("shared")
    data = directory / "data"
    stars = write_lines(directory / "stars.csv", star_lines(STARS, 1))
    meridian.load(data, "sky", "Star", stars, kind="director", key="id", ra="ra", dec="dec", **CUT)
    assert len(list(data.glob("tables/*/*/chunk_*.mrd"))) == 7
    visits = [f"{number},{number * 7919 % STARS},{number % 977 / 8}" for number in range(VISITS)]
    meridian.load(data, "sky", "Visit", write_lines(directory / "visits.csv", visits, "visit,id,flux"), kind="child", key="id", director="Star")
    bands = write_lines(directory / "bands.csv", [f"{number},band {number}" for number in range(5)], "id,name")
    meridian.load(data, "sky", "Band", bands, kind="replicated")
    return data


@pytest.fixture(scope="module")
def expected(meridian: Meridian, loaded: Path) -> dict[str, Rows]:
    """What a server without workers answers."""
    with serving(meridian, loaded) as server:
        return {statement: execute(server, statement) for statement in [*STATEMENTS, PLAIN]}


@pytest.fixture
def data(meridian: Meridian, loaded: Path, postgres: str, tmp_path: Path) -> Path:
    """The same in a data directory of the test's own whose catalog is in PostgreSQL."""
    data = Path(shutil.copytree(loaded, tmp_path / "data"))
    meridian.must("catalog", "copy", "--data", data, "--to", postgres, "--schema", next(SCHEMAS))
    return data


class FrontEnds:
    """Front ends and the workers that they share."""

    def __init__(self, meridian: Meridian, directory: Path, data: Path, number: int, *options: object) -> None:
        self.meridian, self.directory, self.data, self.options = meridian, directory, data, options
        directory.mkdir()
        self.secret = directory / "secret"
        self.secret.touch(mode=0o600)
        self.secret.write_text(secrets.token_hex(32) + "\n")
        self.addresses = ["127.0.0.1:0"] * number
        self.servers: list[Server] = []
        self.ended: list[Server] = []
        self.workers: dict[str, Member] = {}
        for at in range(number):
            self.servers.append(self._start(at))

    def _start(self, at: int, *options: object) -> Server:
        server = Server(self.meridian, self.data, *self.joined(at), "--replicas", 2, *self.options, *options)
        wait_until(lambda: any("Workers join at " in line for line in server.said), START_SECONDS, "the front end listens")
        match = re.search(r"Workers join at ([\d.]+:\d+)", "\n".join(server.said))
        assert match is not None
        self.addresses[at] = match.group(1)
        return server

    def joined(self, at: int) -> tuple[object, ...]:
        """What makes a server a front end."""
        return ("--cluster", self.addresses[at], "--cluster-secret", self.secret)

    def kill(self, at: int) -> None:
        """Kills a front end."""
        self.servers[at].stop(signal.SIGKILL)

    def restart(self, at: int, *options: object) -> None:
        """Starts a front end again that has ended, at the address that it had."""
        self.ended.append(self.servers[at])
        self.servers[at] = self._start(at, *options)

    def add(self, address: str = "127.0.0.1:0", *options: object) -> None:
        """Starts another front end."""
        self.addresses.append(address)
        self.servers.append(self._start(len(self.servers), *options))

    def start_worker(self, name: str, *options: object) -> Member:
        """A worker; one of a name that it had has its directory still."""
        joined = ("--join", ",".join(self.addresses), "--cluster-secret", self.secret, *options)
        member = Member(self.meridian, name, self.directory / name, *joined, "--threads", 2, "--memory", "512M", "--cache", "64M")
        self.workers[name] = member
        return member

    def command(self, at: int, *words: object) -> Outcome:
        """`meridian cluster` with some words, at a front end."""
        return self.meridian.run("cluster", *words, "--cluster", self.addresses[at], "--cluster-secret", self.secret)

    def states(self, at: int) -> dict[str, str]:
        """The states of the workers, as a front end knows them."""
        outcome = self.command(at, "status")
        assert outcome.status == 0, outcome.complaint
        lines = (line.split() for line in outcome.text.splitlines())
        return {words[0]: words[2] for words in lines if re.fullmatch(r"w\d", words[0])}

    def gauge(self, at: int, name: str) -> int:
        """A metric of a front end."""
        with urllib.request.urlopen(self.servers[at].url("/metrics"), timeout=60) as response:
            lines = response.read().decode().splitlines()
        [value] = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"meridian_cluster_{name} ")]
        return int(float(value))

    def leads(self, at: int) -> bool:
        """Whether a front end decides what workers hold."""
        return self.gauge(at, "leads") == 1

    def leader(self) -> int:
        """Waits until one of those that run leads; gives it."""
        found: list[int] = []

        def is_one() -> bool:
            found[:] = [at for at, server in enumerate(self.servers) if server.process.poll() is None and self.leads(at)]
            return len(found) == 1

        wait_until(is_one, SECONDS, "one front end leads")
        return found[0]

    def wait_for_replicas(self, at: int) -> None:
        """Waits until a front end finds that each file has its replicas."""
        wait_until(lambda: self.command(at, "check").status == 0, SECONDS, "each file has its replicas")

    def files(self) -> dict[str, dict[Path, int]]:
        """The chunk files of each worker, each with the number of its inode: another one if it came anew."""
        return {name: dict(with_numbers(worker.files())) for name, worker in self.workers.items()}

    def wait_until_settled(self, at: int) -> dict[str, dict[Path, int]]:
        """Waits until each file has its replicas and no worker gives anything up any more; gives the files."""
        self.wait_for_replicas(at)
        files, since = self.files(), time.monotonic()

        def is_settled() -> bool:
            nonlocal files, since
            now = self.files()
            if now != files:
                files, since = now, time.monotonic()
            return time.monotonic() - since > STILL_SECONDS

        wait_until(is_settled, SECONDS, "workers hold what they shall")
        return files

    def end(self) -> None:
        """Ends all members."""
        for server in self.servers:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.stop()
        for worker in self.workers.values():
            worker.end(signal.SIGKILL)

    @property
    def panics(self) -> str:
        """What members have logged of panics."""
        logged = [line for server in [*self.servers, *self.ended] for line in server.logged]
        logged += [line for worker in self.workers.values() for line in worker.lines]
        return "\n".join(line for line in logged if "panicked" in line or "the server panic" in line)


@contextmanager
def shared_workers(
    meridian: Meridian, directory: Path, data: Path, *options: object, number: int = 2
) -> Iterator[FrontEnds]:
    """Front ends with three workers that have two replicas of each file. The end checks that nobody has panicked."""
    fronts = FrontEnds(meridian, directory, data, number, *options)
    try:
        for name in ("w0", "w1", "w2"):
            fronts.start_worker(name)
        for at in range(number):
            wait_until(lambda at=at: len(fronts.states(at)) == 3, START_SECONDS, "the workers have joined")  # type: ignore[misc]
        fronts.wait_for_replicas(fronts.leader())
        yield fronts
    finally:
        fronts.end()
    assert not fronts.panics, fronts.panics


def check_all(server: Server, expected: dict[str, Rows]) -> None:
    """Every statement is answered as a server without workers answers it: floating-point sums to the last bit."""
    for statement, rows in expected.items():
        assert execute(server, statement) == rows, statement


def pieces_run(fronts: FrontEnds, at: int, statement: str, rows: Rows) -> int:
    """The pieces that workers run for a statement, which is answered right."""
    before = fronts.gauge(at, "remote_pieces")
    assert execute(fronts.servers[at], f"/* {secrets.token_hex(4)} */ {statement}") == rows
    return fronts.gauge(at, "remote_pieces") - before


class Asking:
    """A statement that runs meanwhile."""

    def __init__(self, server: Server, statement: str) -> None:
        self.rows: Rows | BaseException = []
        self.thread = threading.Thread(target=self._run, args=(server, statement))
        self.thread.start()

    def _run(self, server: Server, statement: str) -> None:
        try:
            self.rows = execute(server, statement)
        except Exception as error:
            self.rows = error

    def finish(self) -> Rows | BaseException:
        """What came of it."""
        self.thread.join(SECONDS)
        assert not self.thread.is_alive(), "the statement hangs"
        return self.rows


def begin_slow(fronts: FrontEnds, at: int) -> Asking:
    """The slow statement at a front end, of which workers run pieces by now and are far from done."""

    def num_shares() -> float:
        with urllib.request.urlopen(fronts.servers[at].url("/metrics"), timeout=60) as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("meridian_cluster_worker_shares{"))

    before = num_shares()
    asking = Asking(fronts.servers[at], SLOW)
    wait_until(lambda: num_shares() > before, SECONDS, "workers run pieces")
    return asking


def test_pieces_of_all_front_ends_run_at_the_workers(meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows]) -> None:
    with shared_workers(meridian, tmp_path / "fronts", data, number=3) as fronts:
        leader = fronts.leader()
        for at, server in enumerate(fronts.servers):
            before = fronts.gauge(at, "remote_pieces")
            check_all(server, expected)
            assert fronts.gauge(at, "remote_pieces") > before
            assert fronts.states(at) == {"w0": "live", "w1": "live", "w2": "live"}
            assert pieces_run(fronts, at, STATEMENTS[1], expected[STATEMENTS[1]]) > 0
        fronts.wait_until_settled(leader)
        told = [fronts.command(at, "status").text.splitlines() for at in range(3)]
        assert all(f"3 front ends: {', '.join(sorted(fronts.addresses))}" in " ".join(lines).replace(" (leads)", "") for lines in told)
        assert all(f"{fronts.addresses[leader]} (leads)" in " ".join(lines) for lines in told)
        # All front ends find the same of the files.
        wait_until(lambda: len({fronts.command(at, "check").text for at in range(3)}) == 1, SECONDS, "they agree")
        # What is loaded is seen by all at once, and gets its replicas, whoever leads.
        new = [f"{STARS + number},{number % 360},{number % 80},5" for number in range(1000)]
        more = write_lines(tmp_path / "new.csv", new)
        meridian.must("load", "--data", data, "--db", "sky", "--table", "Star", "--append", more)
        for server in fronts.servers:
            total = "SELECT COUNT(*), SUM(version) FROM Star"
            wait_until(lambda server=server: execute(server, total) == [(STARS + 1000, STARS + 5000)], SECONDS, "the rows are seen")  # type: ignore[misc]
        for at in range(3):
            fronts.wait_for_replicas(at)


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_another_front_end_leads_when_the_leader_is_gone(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows], how: str
) -> None:
    """No file moves, and no statement of the others fails."""
    with shared_workers(meridian, tmp_path / "fronts", data) as fronts:
        leader = fronts.leader()
        other = 1 - leader
        before = fronts.wait_until_settled(leader)
        asking = begin_slow(fronts, other)
        fronts.servers[leader].stop(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        assert fronts.leader() == other
        rows = asking.finish()
        assert isinstance(rows, list) and rows[0][:2] == expected[PLAIN][0][:2], rows
        check_all(fronts.servers[other], expected)
        assert pieces_run(fronts, other, STATEMENTS[2], expected[STATEMENTS[2]]) > 0
        # It decides: what comes now gets its replicas.
        lines = [f"{number},{number % 360},{number % 80},1" for number in range(500)]
        path = write_lines(tmp_path / "more.csv", lines)
        meridian.load(data, "sky", "More", path, kind="director", key="id", ra="ra", dec="dec", **CUT)
        wait_until(lambda: execute(fronts.servers[other], "SELECT COUNT(*) FROM More") == [(500,)], SECONDS, "the table is seen")
        wait_until(lambda: all("more" in str(list(files)).lower() for files in fronts.files().values()), SECONDS, "workers get it")
        fronts.wait_for_replicas(other)
        meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "More")
        wait_until(lambda: fronts.files() == before, SECONDS, "the files are those of before")
        # The one that comes back follows.
        fronts.restart(leader)
        wait_until(lambda: len(fronts.states(leader)) == 3, SECONDS, "the workers report to it")
        check_all(fronts.servers[leader], expected)
        assert pieces_run(fronts, leader, STATEMENTS[2], expected[STATEMENTS[2]]) > 0
        assert fronts.leader() == other and fronts.files() == before


def test_a_leader_that_was_asleep_moves_nothing(meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows]) -> None:
    """What it would have workers hold was decided anew meanwhile: it would give back what is drained, and give up what the drained one's heirs have."""
    with shared_workers(meridian, tmp_path / "fronts", data, "--lost-after", 20) as fronts:
        asleep = fronts.leader()
        awake = 1 - asleep
        fronts.wait_until_settled(asleep)
        fronts.servers[asleep].process.send_signal(signal.SIGSTOP)
        wait_until(lambda: fronts.leads(awake), SECONDS, "the other one leads")
        assert pieces_run(fronts, awake, STATEMENTS[1], expected[STATEMENTS[1]]) > 0
        assert fronts.command(awake, "drain", "w1").status == 0
        wait_until(lambda: fronts.states(awake)["w1"] == "drained", SECONDS, "the worker is drained")
        settled = fronts.wait_until_settled(awake)
        check_all(fronts.servers[awake], expected)
        fronts.servers[asleep].process.send_signal(signal.SIGCONT)
        wait_until(lambda: "was asleep" in fronts.servers[asleep].log, SECONDS, "it notices")
        wait_until(lambda: fronts.states(asleep) == {"w0": "live", "w1": "drained", "w2": "live"}, SECONDS, "it knows what was said")
        assert not fronts.leads(asleep) and fronts.leads(awake)
        check_all(fronts.servers[asleep], expected)
        assert pieces_run(fronts, asleep, STATEMENTS[1], expected[STATEMENTS[1]]) > 0
        assert fronts.files() == settled
        # It leads again when it is its turn, and goes on where the other one was.
        fronts.kill(awake)
        wait_until(lambda: fronts.leads(asleep), SECONDS, "it leads again")
        check_all(fronts.servers[asleep], expected)
        fronts.wait_for_replicas(asleep)
        assert fronts.files() == settled
        assert fronts.command(asleep, "undrain", "w1").status == 0
        wait_until(lambda: len(fronts.workers["w1"].files()) > 1, SECONDS, "it gets its share again")
        fronts.wait_until_settled(asleep)


def test_a_worker_is_replaced_that_dies_while_nobody_leads(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows]
) -> None:
    with shared_workers(meridian, tmp_path / "fronts", data, "--lost-after", 12) as fronts:
        leader = fronts.leader()
        other = 1 - leader
        before = {name: set(files) for name, files in fronts.wait_until_settled(leader).items()}
        asking = begin_slow(fronts, other)
        fronts.kill(leader)
        fronts.workers["w1"].end(signal.SIGKILL)
        rows = asking.finish()
        assert isinstance(rows, list) and rows[0][:2] == expected[PLAIN][0][:2], rows
        wait_until(lambda: fronts.states(other)["w1"] == "lost", SECONDS, "the loss is noticed")
        fronts.wait_for_replicas(other)
        check_all(fronts.servers[other], expected)
        # It comes back while one of the front ends that it shall report to is not there.
        fronts.start_worker("w1")
        wait_until(lambda: {name: set(files) for name, files in fronts.files().items()} == before, SECONDS, "as before")
        assert pieces_run(fronts, other, STATEMENTS[2], expected[STATEMENTS[2]]) > 0
        fronts.restart(leader)
        wait_until(lambda: fronts.states(leader) == {"w0": "live", "w1": "live", "w2": "live"}, SECONDS, "they report to it")
        check_all(fronts.servers[leader], expected)


def test_operators_ask_any_front_end(meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows]) -> None:
    with shared_workers(meridian, tmp_path / "fronts", data) as fronts:
        leader = fronts.leader()
        other = 1 - leader
        before = {name: set(files) for name, files in fronts.wait_until_settled(leader).items()}
        assert fronts.command(other, "drain", "nobody").status == 1
        outcome = fronts.command(other, "drain", "w2")
        assert outcome.status == 0 and "drain" in outcome.text
        for at in (leader, other):
            wait_until(lambda at=at: fronts.states(at)["w2"] == "drained", SECONDS, "the worker is drained")  # type: ignore[misc]
        fronts.wait_for_replicas(leader)
        # Whoever leads next knows it, and one that starts then.
        fronts.kill(leader)
        assert fronts.leader() == other
        assert fronts.states(other)["w2"] == "drained"
        fronts.restart(leader)
        wait_until(lambda: fronts.states(leader).get("w2") == "drained", SECONDS, "it knows what drains")
        check_all(fronts.servers[leader], expected)
        assert not [path for path in fronts.workers["w2"].files() if "band" not in str(path).lower()]
        # One that has ended is removed at the one that does not lead, and all forget it.
        assert "drain it" in fronts.command(leader, "remove", "w2").complaint
        fronts.workers["w2"].end()
        for at in (leader, other):
            wait_until(lambda at=at: fronts.states(at)["w2"] in ("silent", "lost"), SECONDS, "it is silent")  # type: ignore[misc]
        assert fronts.command(leader, "remove", "w2").status == 0
        for at in (leader, other):
            wait_until(lambda at=at: set(fronts.states(at)) == {"w0", "w1"}, SECONDS, "it is forgotten")  # type: ignore[misc]
        # One of its name takes its share, since it is not drained any more.
        fronts.start_worker("w2")
        wait_until(lambda: {name: set(files) for name, files in fronts.files().items()} == before, SECONDS, "as before")
        assert fronts.command(leader, "drain", "w0").status == 0
        assert fronts.command(other, "undrain", "w0").status == 0
        for at in (leader, other):
            wait_until(lambda at=at: fronts.states(at) == {"w0": "live", "w1": "live", "w2": "live"}, SECONDS, "all take files")  # type: ignore[misc]
        # The catalog moves to SQLite with what drains, and the workers follow.
        assert fronts.command(other, "drain", "w1").status == 0
        for server in fronts.servers:
            server.stop()
        meridian.must("catalog", "copy", "--data", data, "--to", "sqlite")
        fronts.restart(0)
        wait_until(lambda: fronts.states(0) == {"w0": "live", "w1": "drained", "w2": "live"}, SECONDS, "it is drained still")
        assert not re.search(r"^\d+ front ends?: ", fronts.command(0, "status").text, re.MULTILINE)
        assert fronts.command(0, "undrain", "w1").status == 0
        wait_until(lambda: {name: set(files) for name, files in fronts.files().items()} == before, SECONDS, "as before")
        check_all(fronts.servers[0], expected)


def test_any_front_end_has_replicas_verified_and_made_anew(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    with shared_workers(meridian, tmp_path / "fronts", data, "--lost-after", 3600) as fronts:
        leader = fronts.leader()
        for at in (leader, 1 - leader):
            outcome = fronts.command(at, "scrub")
            assert outcome.status == 0 and "of 3 workers and 9 files" in outcome.text and "of the front end were read through" in outcome.text, outcome
        fronts.workers["w2"].end(signal.SIGKILL)
        for at in (leader, 1 - leader):
            wait_until(lambda at=at: fronts.states(at)["w2"] == "silent", SECONDS, "it is silent")  # type: ignore[misc]
        # Whoever is asked, the leader decides that it is lost.
        outcome = fronts.command(1 - leader, "repair")
        assert outcome.status == 0 and "are to be made that files have too few" in outcome.text, outcome
        assert fronts.states(leader)["w2"] == "lost"
        fronts.start_worker("w2")
        wait_until(lambda: fronts.states(leader)["w2"] == "live", SECONDS, "it is back")
        assert fronts.command(1 - leader, "rebalance").status == 0


def test_what_one_front_end_reads_stays_when_it_is_dropped_at_another(
    meridian: Meridian, data: Path, tmp_path: Path, expected: dict[str, Rows]
) -> None:
    with shared_workers(meridian, tmp_path / "fronts", data) as fronts:
        leader = fronts.leader()
        asking = begin_slow(fronts, 1 - leader)
        meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Visit")
        rows = asking.finish()
        assert isinstance(rows, list) and rows[0][:2] == expected[PLAIN][0][:2], rows
        gone = lambda: not [path for files in fronts.files().values() for path in files if "visit" in str(path).lower()]  # noqa: E731
        wait_until(gone, SECONDS, "the files of the dropped table are gone")
        fronts.wait_for_replicas(leader)


def refused(fronts: FrontEnds, data: Path, *options: object) -> str:
    """What a server says that cannot be a front end."""
    serve = ("serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "off", "--cluster", "127.0.0.1:0", "--cluster-secret", fronts.secret)
    process = fronts.meridian.start(*serve, *options)
    try:
        _, told = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 1, told
    return told.decode()


def test_front_ends_that_cannot_be_several_are_told(meridian: Meridian, loaded: Path, data: Path, tmp_path: Path) -> None:
    fronts = FrontEnds(meridian, tmp_path / "fronts", data, 1)
    try:
        told = refused(fronts, data, "--keep-files", "0")
        assert "--keep-files SIZE is for a cluster with one front end" in told and fronts.addresses[0] in told
    finally:
        fronts.end()
    alone = FrontEnds(meridian, tmp_path / "alone", data, 1, "--keep-files", "0")
    try:
        told = refused(alone, data)
        assert "has to be the only one" in told and alone.addresses[0] in told
        # One that was killed is no other one.
        alone.kill(0)
        alone.restart(0)
    finally:
        alone.end()
    sqlite = FrontEnds(meridian, tmp_path / "sqlite", Path(shutil.copytree(loaded, tmp_path / "plain")), 1)
    try:
        assert "several share the workers if the catalog is in PostgreSQL" in refused(sqlite, sqlite.data)
    finally:
        sqlite.end()
