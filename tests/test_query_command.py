"""`meridian query`: the queries of a running server on the command line."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from meridian_cli import Meridian, Outcome, read_arrow
from serving import Server, serving, wait_until
from small_tables import WAITING, load_stars_and_bands

STARS = 60_000
NEVER_ENDS = "SELECT sum(a.id) FROM Star a, Star b, Star c"
# Seconds in many pieces.
PAIRS = (
    f"SELECT a.id % 10 AS g, COUNT(*) AS n, {WAITING.format(0.2)} FROM Star a, Star b"
    " WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 2.5 GROUP BY g ORDER BY g"
)


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky in many chunks."""
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("query-command"), STARS)


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the stars."""
    with serving(meridian, Path(shutil.copytree(data, tmp_path_factory.mktemp("served") / "data"))) as server:
        yield server


class Command:
    """`meridian query` against one server, as one user."""

    def __init__(self, meridian: Meridian, server: Server, user: str = "ann") -> None:
        self.meridian = meridian
        self.env = {"MERIDIAN_SERVER": f"http://127.0.0.1:{server.http_port}", "MERIDIAN_USER": user}

    def run(self, *arguments: object, stdin: str = "") -> Outcome:
        """Runs a command to its end."""
        return self.meridian.run("query", *arguments, env=self.env, stdin=stdin)

    def must(self, *arguments: object, stdin: str = "") -> str:
        """The output of a command that has to succeed."""
        outcome = self.run(*arguments, stdin=stdin)
        assert outcome.status == 0, outcome.complaint
        return outcome.text

    def fails(self, *arguments: object, status: int = 1) -> str:
        """What a command that has to fail says."""
        outcome = self.run(*arguments)
        assert outcome.status == status, (outcome.status, outcome.text, outcome.complaint)
        return outcome.complaint

    def submit(self, statement: str, *options: object) -> int:
        """Submits a query."""
        return int(self.must("submit", "--db", "sky", *options, statement))

    def shown(self, number: int) -> dict[str, object]:
        """What is known of a query."""
        return dict(json.loads(self.must("show", number, "--format", "json")))


@pytest.fixture
def command(meridian: Meridian, server: Server) -> Command:
    """The commands as ann."""
    return Command(meridian, server)


def test_a_query_is_submitted_followed_and_read(command: Command) -> None:
    """Its number goes to standard output, everything else beside it."""
    outcome = command.run("submit", "--db", "sky", "--wait", PAIRS)
    assert outcome.status == 0, outcome.complaint
    number = int(outcome.text)
    assert f"query {number}: EXECUTING" in outcome.complaint and "of" in outcome.complaint
    assert "COMPLETED" in outcome.complaint
    shown = command.shown(number)
    assert (shown["state"], shown["user"], shown["database"], shown["statement"]) == ("COMPLETED", "ann", "sky", PAIRS)
    text = command.must("show", number)
    for line in ("state        COMPLETED", "user         ann", "rows         10", f"statement    {PAIRS}", "kept until"):
        assert line in text, text
    assert command.must("show", "--wait", number) == text
    assert command.must("submit", "--file", "-", stdin="SELECT 1;").strip().isdigit()
    adql = command.submit('SELECT COUNT(*) AS "n of all" FROM "Star"', "--dialect", "adql", "--wait")
    assert command.must("result", adql, "--format", "csv") == f"n of all\n{STARS}\n"
    assert "dialect      adql" in command.must("show", adql)


def test_the_list_is_aligned_and_filtered(command: Command, meridian: Meridian, server: Server) -> None:
    """As a table for people, and in JSON for programs."""
    other = Command(meridian, server, user="lister")
    numbers = [other.submit(f"SELECT\n {n} AS n", "--wait") for n in range(3)]
    lines = command.must("list", "--user", "lister").splitlines()
    assert lines[0].split() == ["id", "state", "user", "database", "lane", "pieces", "rows", "submitted", "statement"]
    assert [int(line.split()[0]) for line in lines[1:]] == numbers[::-1]
    at = lines[0].index("statement")
    assert [line[at:] for line in lines[1:]] == [f"SELECT {n} AS n" for n in (2, 1, 0)]
    listed = [json.loads(line) for line in command.must("list", "--user", "lister", "--limit", 2, "--format", "json").splitlines()]
    assert [query["id"] for query in listed] == numbers[:0:-1]
    assert command.must("list", "--user", "lister", "--state", "failed,aborted").splitlines() == [command.must("list", "--user", "nobody").strip()]
    assert "QUEUED, EXECUTING" in command.fails("list", "--state", "done")


def test_results_are_written_as_by_sql(command: Command, meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Byte for byte, in each format, to standard output or to a file."""
    statement = "SELECT id, ra, NULL AS n, '' AS e, 'a,\"b\"\t' AS t, x'0aff' AS b FROM Star WHERE id < 2000 ORDER BY id"
    number = command.submit(statement, "--wait")
    for form in ("table", "csv", "tsv", "json", "arrow"):
        direct = meridian.must("sql", "--data", data, "--db", "sky", "--format", form, statement).stdout
        written = command.run("result", number, "--format", form)
        assert written.status == 0 and "2,000 rows in" in written.complaint, written.complaint
        if form == "arrow":
            assert read_arrow(written.stdout).to_pylist() == read_arrow(direct).to_pylist()
        else:
            assert written.stdout == direct, form
    file = tmp_path / "result.parquet"
    assert command.run("result", number, "--format", "parquet", "-o", file, "--quiet").complaint == ""
    assert pa.parquet.read_table(file)["id"].to_pylist() == list(range(2000))
    assert list(tmp_path.iterdir()) == [file]
    page = command.must("result", number, "--format", "csv", "--offset", 10, "--limit", 3)
    assert [line.split(",")[0] for line in page.splitlines()] == ["id", "10", "11", "12"]
    empty = command.submit("SELECT id, ra FROM Star WHERE id < 0", "--wait")
    assert command.must("result", empty, "--format", "csv") == "id,ra\n"


def test_a_result_that_breaks_off_leaves_no_file(command: Command, meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Neither one that looks whole nor the part that came; and what was there stays."""
    copy = Path(shutil.copytree(data, tmp_path / "data"))
    file = tmp_path / "result.csv"
    file.write_text("of before")
    server = Server(meridian, copy)
    mine = Command(meridian, server)
    number = mine.submit("SELECT a.id, b.id, a.ra, b.ra FROM Star a, Star b WHERE a.id < 40", "--wait")
    # The reader of a pipe that is not read suspends the download half-way.
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = meridian.start("query", "result", number, "--format", "csv", "-o", fifo, env=mine.env)
    with fifo.open("rb") as reader:
        assert reader.read(100).startswith(b"id,id,ra,ra\n")
        server.stop(signal.SIGKILL)
        reader.read()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and b"broke off" in said, said
    complaint = mine.fails("result", number, "--format", "csv", "-o", file)
    assert "no server answers" in complaint
    assert file.read_text() == "of before"
    assert not (tmp_path / "result.csv.part").exists()


def test_readers_of_pipes_may_go_or_wait(command: Command, meridian: Meridian, tmp_path: Path) -> None:
    """Who reads no more ends the download; Ctrl-C ends one that nobody reads."""
    number = command.submit("SELECT a.id, b.id, a.ra, b.ra FROM Star a, Star b WHERE a.id < 10", "--wait")
    process = meridian.start("query", "result", number, "--format", "csv", env=command.env)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"id,id,ra,ra\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0, process.stderr.read()
    process = meridian.start("query", "result", number, "--format", "csv", env=command.env)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"id,id,ra,ra\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert b"cancelled" in process.stderr.read()


def test_a_query_is_cancelled(command: Command, meridian: Meridian, server: Server) -> None:
    """By its user; who follows it is told, and the exit status says that it did not complete."""
    number = command.submit(NEVER_ENDS)
    follower = meridian.start("query", "show", number, "--wait", env=command.env)
    wait_until(lambda: command.shown(number)["pieces_done"] != 0, 60, "it runs")
    other = Command(meridian, server, user="bob")
    complaint = other.fails("cancel", number)
    assert "another user, ann" in complaint and "--user" in complaint
    assert "EXECUTING" in command.fails("result", number)
    assert command.must("cancel", number) == f"Query {number} is cancelled.\n"
    told, said = follower.communicate(timeout=60)
    assert follower.returncode == 1
    assert b"ABORTED" in told and f"query {number} aborted: the query was cancelled".encode() in said, (told, said)
    assert "has ended" in command.fails("cancel", number)
    assert command.must("show", number).count("ABORTED") == 1
    assert "aborted" in command.fails("result", number)


def test_the_result_so_far(command: Command) -> None:
    """Rows of a query that runs."""
    number = command.submit(PAIRS.replace("SLEEP(0.2)", "SLEEP(0.8)"))
    seen: list[int] = []

    def some() -> bool:
        outcome = command.run("result", number, "--partial", "--format", "csv")
        assert outcome.status == 0 or "has not begun" in outcome.complaint, outcome.complaint
        if outcome.status == 0 and command.shown(number)["state"] == "EXECUTING":
            assert f"meridian: warning 1105 (HY000): the result so far of query {number}, not the whole: " in outcome.complaint
        seen.append(sum(int(line.split(",")[1]) for line in outcome.text.splitlines()[1:]))
        return command.shown(number)["state"] == "COMPLETED"

    wait_until(some, 120, "it completes")
    whole = command.must("result", number, "--format", "csv")
    total = sum(int(line.split(",")[1]) for line in whole.splitlines()[1:])
    assert any(0 < part < total for part in seen), (seen, total)


def test_ctrl_c_leaves_the_query_running(command: Command, meridian: Meridian) -> None:
    """And says how to go on."""
    number = command.submit(NEVER_ENDS)
    follower = meridian.start("query", "show", "--wait", number, env=command.env)
    assert follower.stderr is not None
    assert b"EXECUTING" in follower.stderr.readline()
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=20)
    assert follower.returncode == 130 and b"goes on" in said and f"query show {number} --wait".encode() in said, said
    assert command.shown(number)["state"] == "EXECUTING"
    command.must("cancel", number)


def test_progress_is_a_bar_on_a_terminal(command: Command, meridian: Meridian) -> None:
    """With pieces, their rate and the time that is left."""
    number = command.submit(PAIRS.replace("SLEEP(0.2)", "SLEEP(0.4)"))
    controller, terminal = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(controller, 65536):
                shown.append(part)
        except OSError:
            # The other side was closed.
            return

    follower = subprocess.Popen(
        [str(meridian.binary), "query", "show", "--wait", str(number)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, **command.env, "TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(terminal)
    reading = threading.Thread(target=read)
    reading.start()
    told, _ = follower.communicate(timeout=120)
    reading.join(10)
    os.close(controller)
    text = b"".join(shown).decode("utf-8", "replace")
    assert follower.returncode == 0 and b"COMPLETED" in told, (told, text)
    assert f"query {number} [" in text and "pieces" in text and "EXECUTING" in text, text


def test_a_server_that_is_killed_is_told_and_goes_on(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Who follows a query is told that it goes on; the list of the next server has it."""
    copy = Path(shutil.copytree(data, tmp_path / "data"))
    server = Server(meridian, copy)
    before = Command(meridian, server)
    number = before.submit(PAIRS)
    late = before.submit(PAIRS.replace("SLEEP(0.2)", "SLEEP(0.8)"))
    follower = meridian.start("query", "show", "--wait", late, env=before.env)
    assert follower.stderr is not None
    assert follower.stderr.readline() != b""
    server.stop(signal.SIGKILL)
    _, said = follower.communicate(timeout=20)
    assert follower.returncode == 1 and b"no server answers" in said and b"goes on when the server runs again" in said, said
    assert "no server answers" in before.fails("list")
    with serving(meridian, copy) as server:
        after = Command(meridian, server)
        assert {number, late} <= {int(line.split()[0]) for line in after.must("list").splitlines()[1:]}
        for query in (number, late):
            assert "COMPLETED" in after.must("show", "--wait", query)
            assert len(after.must("result", query, "--format", "csv").splitlines()) == 11


def test_queries_wait_for_their_turn(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """And their place in the queue is shown."""
    with serving(meridian, Path(shutil.copytree(data, tmp_path / "data")), "--queries-at-once", 1) as server:
        command = Command(meridian, server)
        first, second = command.submit(NEVER_ENDS), command.submit("SELECT 1")
        assert "QUEUED, place 1 of the queue" in command.must("show", second)
        assert "QUEUED 1" in command.must("list", "--state", "queued")
        follower = meridian.start("query", "show", "--wait", second, env=command.env)
        assert follower.stderr is not None
        assert b"QUEUED, place 1" in follower.stderr.readline()
        command.must("cancel", first)
        told, _ = follower.communicate(timeout=60)
        assert follower.returncode == 0 and b"COMPLETED" in told


def test_mistakes_are_told(command: Command, tmp_path: Path) -> None:
    """In a sentence, with exit status 1, or 2 for the arguments."""
    assert "there is no query of number 5" in command.fails("show", 5)
    assert "there is no query of number 5" in command.fails("result", 5)
    assert "there is no column nothing" in command.fails("submit", "--db", "sky", "SELECT nothing FROM Star")
    assert "cannot read" in command.fails("submit", "--file", tmp_path / "none.sql")
    assert "max_execution_time" in command.fails("submit", "--db", "sky", "--time-limit", 0.2, "--wait", NEVER_ENDS)
    assert "invalid value" in command.fails("show", "x", status=2)
    assert "required" in command.fails("submit", status=2)
    for address, words in (
        ("https://127.0.0.1:1", "no server answers at https://127.0.0.1:1"),
        ("gopher://127.0.0.1:8080", "gopher is not spoken"),
        ("http://127.0.0.1:1", "no server answers at http://127.0.0.1:1"),
        ("http://127.0.0.1:1/queries", "ends with its port"),
        ("nowhere.invalid:80", "no server answers"),
    ):
        assert words in command.fails("list", "--server", address)


def test_empty_variables_say_nothing(command: Command, meridian: Meridian) -> None:
    """Neither of the server's address nor of the user, who is then that of the operating system."""
    environment = {**command.env, "MERIDIAN_USER": "", "USER": "login"}
    number = meridian.run("query", "submit", "SELECT 1", env=environment).text.strip()
    assert command.shown(int(number))["user"] == "login"
    outcome = meridian.run("query", "show", "--help", env={"MERIDIAN_SERVER": ""})
    assert outcome.status == 0 and "http://127.0.0.1:8080" in outcome.text
    complaint = meridian.run("query", "show", 5, env={"MERIDIAN_SERVER": ""}).complaint
    # Whether or not some server listens at the usual address.
    assert "http://127.0.0.1:8080" in complaint or "there is no query" in complaint, complaint


def test_other_servers_are_told(command: Command) -> None:
    """Something that speaks HTTP and is no Meridian, and something that does not."""
    for answer, words in (
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnope\n", "no server of this program"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "no server of this program"),
        (b"\x4a\x00\x00\x00\x0a8.0.36\x00", "no server answers"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nbusy\n", "busy"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"queries": [', "broke off"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def speak(answer: bytes = answer, listener: socket.socket = listener) -> None:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(answer)
                    time.sleep(0.2)

            speaking = threading.Thread(target=speak)
            speaking.start()
            complaint = command.fails("list", "--server", f"http://127.0.0.1:{listener.getsockname()[1]}")
            speaking.join()
            assert words in complaint, complaint
