"""Submitted queries and jobs of TAP that several front ends share: every server takes them, shows them, ends them and hands out their results, and
goes on with those of one that is gone."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from struct import unpack_from
from urllib.parse import urlencode

import pytest

from meridian_cli import Meridian
from private_postgres import binaries
from serving import Server, serving, wait_until
from small_tables import load_stars_and_bands
from test_login_over_http import cookie_of, who
from test_login_over_http import send as send_to
from test_submitted_queries import ENDED, NEVER_ENDS, PAIRS, ended, error, listed, rows, submit
from test_tap import execute, rows_of, send, text_of
from test_users import PASSWORD, must

# Enough for a dozen pieces.
STARS = 400_000
# Long enough for whatever is done to the servers meanwhile, however fast the machine is.
SLOW = (
    "SELECT id % 10 AS g, COUNT(*) AS n, SUM(ra * `dec`) AS s, AVG(ra) AS m, SUM(CASE WHEN id % 2000 = 0 THEN SLEEP(0.2) ELSE 0 END) AS z"
    " FROM Star GROUP BY g ORDER BY g"
)
PLAIN = SLOW.replace("0.2", "0.0")
NEAR = PAIRS.replace("< 2.5", "< 0.1")
SECONDS = 120
SCHEMAS = (f"fronts_{number}" for number in count())


@pytest.fixture(scope="module")
def loaded(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky, with the catalog in SQLite."""
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("fronts"), STARS)


@pytest.fixture
def data(meridian: Meridian, loaded: Path, postgres: str, tmp_path: Path) -> Path:
    """The same in a data directory of the test's own whose catalog is in PostgreSQL."""
    data = Path(shutil.copytree(loaded, tmp_path / "data"))
    meridian.must("catalog", "copy", "--data", data, "--to", postgres, "--schema", next(SCHEMAS))
    return data


def pieces_done(server: Server, number: int) -> int:
    return int(str(listed(server, number)["PIECES_DONE"]))


def wait_for_pieces(server: Server, number: int, least: int = 3) -> None:
    """Until some pieces are done."""
    wait_until(lambda: pieces_done(server, number) >= least, SECONDS, f"{least} pieces of query {number} are done")


def journal_of(data: Path, number: int, epoch: int = 0) -> Path:
    return data / "queries" / str(number) / (f"journal-{epoch}" if epoch else "journal")


def commits(journal: bytes) -> list[tuple[int, int]]:
    """The phases and pieces that a journal says are done, as docs/queries.md describes the file."""
    assert journal[:8] == b"MRDNBLK1"
    found, at = [], 8
    while at + 48 <= len(journal):
        kind, phase, piece, _, _, length = unpack_from("<IIQQQQ", journal, at)
        at += 48 + length
        if kind == 3 and at <= len(journal):
            found.append((phase, piece))
    return found


def request(server: Server, method: str, path: str, body: object = None) -> tuple[int, object]:
    """The status and the object of a request."""
    sent = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(server.url(path), data=sent, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None
    except urllib.error.HTTPError as failed:
        return failed.code, json.loads(failed.read())


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """The process is stopped meanwhile."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def assert_ran_once(*servers: Server) -> None:
    for server in servers:
        assert "ran twice" not in server.log, server.log


def test_each_takes_queries_and_answers_for_those_of_the_others(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as one, serving(meridian, data) as two, serving(meridian, data) as three:
        servers = [one, two, three]
        numbers = [submit(server, NEAR) for server in servers for _ in range(2)]
        assert len(set(numbers)) == 6
        expected = rows(one, NEAR)
        for at, number in enumerate(numbers):
            for server in servers:
                # It is listed at once wherever it was submitted.
                assert listed(server, number)["STATEMENT"] == NEAR
            other = servers[(at + 1) % 3]
            assert ended(other, number)["STATE"] == "COMPLETED"
            assert rows(other, f"SELECT * FROM qserv_result({number})") == expected
            infos = [listed(server, number) for server in servers]
            assert infos[0] == infos[1] == infos[2]
        listings = [rows(server, "SELECT ID FROM information_schema.QUERIES WHERE MODE = 'ASYNC' ORDER BY ID") for server in servers]
        assert listings == [[(number,) for number in sorted(numbers)]] * 3
        # Of their owner alone.
        for statement in (f"SELECT * FROM qserv_result({numbers[0]})", f"CANCEL {numbers[0]}"):
            assert error(two, statement, user="bob")[0] == 1227


# What the tables of version 1 were.
VERSION_1 = "ALTER TABLE {0}.queries DROP COLUMN as_of, DROP COLUMN recursion_depth, DROP COLUMN group_concat_bytes; UPDATE {0}.query_settings SET version = 1"


def psql(url: str, statement: str) -> str:
    """What PostgreSQL's own client prints of a statement."""
    programs = binaries()
    assert programs is not None
    command = [programs / "psql", "-d", url, "-v", "ON_ERROR_STOP=1", "-Atqc", statement]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_lists_of_version_1_are_brought_up_to_date(meridian: Meridian, data: Path, postgres: str) -> None:
    """By two servers that start at once: what was submitted before is listed with its result, what waited runs, and new queries are taken."""
    schema = json.loads((data / "meridian.catalog").read_text())["schema"]
    with serving(meridian, data) as server:
        done = submit(server, NEAR)
        before, expected = ended(server, done), rows(server, NEAR)
    server = Server(meridian, data, "--queries-at-once", 1)
    waiting = [submit(server, statement) for statement in (SLOW, NEAR)]
    server.stop(signal.SIGKILL)
    psql(postgres, VERSION_1.format(schema))
    with ThreadPoolExecutor() as pool:
        begun = [pool.submit(Server, meridian, data) for _ in range(2)]
        servers = [it.result() for it in begun]
    try:
        assert psql(postgres, f"SELECT version FROM {schema}.query_settings") == "3"
        for server in servers:
            assert listed(server, done) == before and before["AS_OF"] is None
            assert rows(server, f"SELECT * FROM qserv_result({done})") == expected
        for number in [*waiting, *(submit(server, NEAR) for server in servers)]:
            assert ended(servers[0], number)["STATE"] == "COMPLETED"
        assert rows(servers[1], f"SELECT * FROM qserv_result({waiting[1]})") == expected
    finally:
        for server in servers:
            server.stop()
    # One of a version to come is left alone.
    psql(postgres, f"UPDATE {schema}.query_settings SET version = 4")
    outcome = meridian.run("serve", "--data", data, "--mysql", "127.0.0.1:0")
    assert outcome.status != 0 and "is of a newer version of this program, 4 where this one knows 3" in outcome.complaint


def test_any_ends_and_removes_a_query_of_another(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--queries-at-once", 1) as one, serving(meridian, data) as two:
        running, waiting, killed = (submit(one, NEVER_ENDS) for _ in range(3))
        wait_until(lambda: listed(two, running)["STATE"] == "EXECUTING", SECONDS, "it runs")
        assert (listed(two, waiting)["STATE"], listed(two, waiting)["QUEUE_PLACE"]) == ("QUEUED", 1)
        for statement, number in ((f"CANCEL {waiting}", waiting), (f"KILL {killed}", killed), (f"CANCEL {running}", running)):
            rows(two, statement)
            for server in (two, one):
                info = listed(server, number)
                assert (info["STATE"], info["ERROR"]) == ("ABORTED", "the query was cancelled")
            assert "it is ABORTED" in error(one, statement if "CANCEL" in statement else f"CANCEL {number}")[1]
        # What ran has made room for another one, and left no files.
        number = submit(one, PLAIN)
        assert ended(two, number)["STATE"] == "COMPLETED"
        wait_until(lambda: not journal_of(data, running).exists(), SECONDS, "the journal is removed")
        assert request(two, "DELETE", f"/queries/{number}/result?user=ann")[0] == 204
        for server in (one, two):
            assert request(server, "GET", f"/queries/{number}")[0] == 404
        assert not (data / "queries" / str(number)).exists()


def test_requests_over_http_go_to_any(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as one, serving(meridian, data) as two:
        status, made = request(one, "POST", "/queries", {"statement": PLAIN, "database": "sky", "user": "ann"})
        assert status == 202 and isinstance(made, dict)
        number = made["id"]
        assert request(two, "GET", f"/queries/{number}")[0] == 200
        wait_until(lambda: request(two, "GET", f"/queries/{number}")[1]["state"] == "COMPLETED", SECONDS, "it ends")  # type: ignore[index]
        results = [request(server, "GET", f"/queries/{number}/result?format=json&user=ann")[1] for server in (one, two)]
        assert results[0] == results[1]
        status, long = request(one, "POST", "/queries", {"statement": NEVER_ENDS, "database": "sky", "user": "ann"})
        assert isinstance(long, dict)
        status, cancelled = request(two, "DELETE", f"/queries/{long['id']}?user=ann")
        assert status == 200 and isinstance(cancelled, dict) and cancelled["state"] == "ABORTED"
        status, shown = request(two, "GET", f"/query-async/status/{number}")
        assert isinstance(shown, dict) and shown["status"]["status"] == "COMPLETED"


def test_another_goes_on_when_one_is_killed(meridian: Meridian, data: Path) -> None:
    """What ran goes on from its journal, and what waited runs."""
    with serving(meridian, data) as two, serving(meridian, data) as three:
        expected = rows(two, PLAIN)
        one = Server(meridian, data, "--queries-at-once", 1, "--threads", 2)
        number = submit(one, SLOW)
        waiting = [submit(one, statement) for statement in (NEAR, PLAIN)]
        wait_for_pieces(two, number)
        one.stop(signal.SIGKILL)
        left = journal_of(data, number).read_bytes()
        done = commits(left)
        assert len(done) >= 3
        # Within some seconds, and without anybody asking for it.
        wait_until(lambda: journal_of(data, number, 1).exists() or listed(two, number)["STATE"] in ENDED, SECONDS, "it goes on")
        # A piece that was being written is cut off; each that is done is taken along, and none of these is done once more.
        with contextlib.suppress(FileNotFoundError):
            taken = commits(journal_of(data, number, 1).read_bytes())
            assert taken[: len(done)] == done and len(set(taken)) == len(taken)
        for server in (three, two):
            info = ended(server, number)
            assert info["STATE"] == "COMPLETED" and info["PIECES_DONE"] == info["PIECES"], info
            assert rows(server, f"SELECT * FROM qserv_result({number})") == expected
            for other, statement in zip(waiting, (NEAR, PLAIN), strict=True):
                assert ended(server, other)["STATE"] == "COMPLETED"
                assert rows(server, f"SELECT * FROM qserv_result({other})") == rows(server, statement)
        assert_ran_once(one, two, three)
        assert not list((data / "queries").glob("*/journal*"))


def test_queries_that_were_cancelled_do_not_go_on(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as two:
        one = Server(meridian, data)
        gone, left = submit(one, SLOW), submit(one, SLOW)
        wait_for_pieces(two, gone)
        one.stop(signal.SIGKILL)
        rows(two, f"CANCEL {gone}")
        assert listed(two, gone)["STATE"] == "ABORTED"
        assert ended(two, left)["STATE"] == "COMPLETED" and listed(two, gone)["STATE"] == "ABORTED"
        wait_until(lambda: not (data / "queries" / str(gone)).exists(), SECONDS, "its files are removed")


@pytest.mark.parametrize("wakes", ["while it runs elsewhere", "when it has ended"])
def test_one_that_was_stopped_changes_nothing_of_what_others_took_over(meridian: Meridian, data: Path, wakes: str) -> None:
    with serving(meridian, data, "--threads", 2) as one, serving(meridian, data) as two, serving(meridian, data) as three:
        expected = rows(three, PLAIN)
        number, waiting = submit(one, SLOW), submit(one, NEAR)
        wait_for_pieces(two, number)
        with stopped(one):
            wait_until(lambda: journal_of(data, number, 1).exists() or listed(two, number)["STATE"] in ENDED, SECONDS, "another one goes on")
            if wakes == "when it has ended":
                assert ended(two, number)["STATE"] == "COMPLETED"
                result = data / "queries" / str(number) / "result-1"
                before = (result.read_bytes(), result.stat().st_mtime_ns)
        # It finds out, and takes part again.
        wait_until(lambda: "was out of touch" in one.log, SECONDS, "it finds out")
        for server in (one, two, three):
            info = ended(server, number)
            assert info["STATE"] == "COMPLETED" and info["PIECES_DONE"] == info["PIECES"], info
            assert rows(server, f"SELECT * FROM qserv_result({number})") == expected
            assert ended(server, waiting)["STATE"] == "COMPLETED"
        if wakes == "when it has ended":
            assert (result.read_bytes(), result.stat().st_mtime_ns) == before
        assert_ran_once(one, two, three)
        # Whatever it was doing with the query, it left what the other one had.
        assert [path.name for path in (data / "queries" / str(number)).glob("result*")] == ["result-1"]
        again = submit(one, PLAIN)
        assert ended(three, again)["STATE"] == "COMPLETED"
        assert rows(three, f"SELECT * FROM qserv_result({again})") == expected


def test_all_that_is_left_goes_on_when_all_were_killed(meridian: Meridian, data: Path) -> None:
    """Again and again: a query is taken over by one that is killed in turn."""
    with serving(meridian, data) as server:
        expected = rows(server, PLAIN)
    number = 0
    for _ in range(3):
        servers = [Server(meridian, data, "--threads", 2) for _ in range(2)]
        if not number:
            number = submit(servers[0], SLOW)
        before = pieces_done(servers[1], number)
        wait_until(lambda: pieces_done(servers[1], number) > before or listed(servers[1], number)["STATE"] in ENDED, SECONDS, "it runs")
        for server in servers:
            server.stop(signal.SIGKILL)
        assert_ran_once(*servers)
    with serving(meridian, data) as server:
        assert ended(server, number)["STATE"] == "COMPLETED"
        assert rows(server, f"SELECT * FROM qserv_result({number})") == expected
        assert_ran_once(server)


def test_one_that_ends_leaves_its_queries_at_once(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as two:
        with serving(meridian, data, "--queries-at-once", 1, "--threads", 2) as one:
            number, waiting = submit(one, SLOW), submit(one, PLAIN)
            wait_for_pieces(two, number)
        for other, statement in ((number, PLAIN), (waiting, PLAIN)):
            assert ended(two, other)["STATE"] == "COMPLETED"
            assert rows(two, f"SELECT * FROM qserv_result({other})") == rows(two, statement)
        assert_ran_once(two)


def test_a_job_of_tap_is_the_same_at_all(meridian: Meridian, data: Path) -> None:
    files = {"x": b"n,ra,dec\n" + b"".join(b"%d,1.0,2.0\n" % n for n in range(5))}
    upload = {"UPLOAD": "mine,param:x", "FORMAT": "csv"}
    with serving(meridian, data) as two:
        with contextlib.ExitStack() as stack:
            one = stack.enter_context(serving(meridian, data, "--threads", 2))
            query = "SELECT SUM(n) AS n FROM TAP_UPLOAD.mine"
            made = send(one, "/tap/async", {**upload, "QUERY": query}, files)
            job = made.url[len(one.url("")) :]
            # Made at one, changed and started at the other one, followed at both.
            assert text_of(two, f"{job}/phase") == "PENDING"
            assert execute(two, f"{job}/parameters", {"MAXREC": "7"}).status == 200
            assert "7" in execute(one, f"{job}/parameters").text
            execute(two, f"{job}/phase", {"PHASE": "RUN"})
            for server in (one, two):
                shown = execute(server, job, WAIT=60, PHASE="QUEUED")
                assert shown.status == 200
                wait_until(lambda server=server: text_of(server, f"{job}/phase") == "COMPLETED", SECONDS, "it is complete")  # type: ignore[misc]
                assert rows_of(execute(server, f"{job}/results/result").text) == [["10"]]
                assert job.rsplit("/", 1)[1] in execute(server, "/tap/async").text
            # Another one is taken over with its table by the other server.
            long = (
                "SELECT COUNT(*) AS n FROM sky.Star a, sky.Star b, TAP_UPLOAD.mine u"
                " WHERE a.id < 6000 AND b.id < 6000 AND a.ra + b.ra < 2.0 AND u.n = 3"
            )
            running = send(one, "/tap/async", {**upload, "QUERY": long, "PHASE": "RUN"}, files).url[len(one.url("")) :]
            waiting = send(one, "/tap/async", {**upload, "QUERY": query}, files).url[len(one.url("")) :]
            wait_until(lambda: text_of(two, f"{running}/phase") in ("EXECUTING", "COMPLETED"), SECONDS, "it runs")
            one.stop(signal.SIGKILL)
        wait_until(lambda: text_of(two, f"{running}/phase") not in ("QUEUED", "EXECUTING"), SECONDS, "it ends")
        assert text_of(two, f"{running}/phase") == "COMPLETED", execute(two, running).text
        plain = "SELECT COUNT(*) AS n FROM sky.Star a, sky.Star b WHERE a.id < 6000 AND b.id < 6000 AND a.ra + b.ra < 2.0"
        expected = rows_of(execute(two, "/tap/sync", QUERY=plain, FORMAT="csv").text)
        assert rows_of(execute(two, f"{running}/results/result").text) == expected
        execute(two, f"{waiting}/phase", {"PHASE": "RUN"})
        wait_until(lambda: text_of(two, f"{waiting}/phase") == "COMPLETED", SECONDS, "it is complete")
        with serving(meridian, data) as three:
            assert execute(three, running, {"ACTION": "DELETE"}).status == 200
            for server in (two, three):
                assert execute(server, running).status == 404


def test_a_users_limit_counts_over_all(meridian: Meridian, data: Path) -> None:
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    must(meridian, data, "limit", "ann", "--submitted", 2)
    ann = {"user": "ann", "password": PASSWORD, "database": "sky"}
    with serving(meridian, data) as one, serving(meridian, data) as two:
        numbers = []
        for server in (one, two):
            with server.connect(**ann) as connection, connection.cursor() as cursor:
                cursor.execute(f"SUBMIT {NEVER_ENDS}")
                numbers.append(cursor.fetchone()[0])
        for server in (one, two):
            with server.connect(**ann) as connection, connection.cursor() as cursor, pytest.raises(Exception, match="2 of 2 submitted"):
                cursor.execute(f"SUBMIT {PLAIN}")
        with one.connect(**ann) as connection, connection.cursor() as cursor:
            cursor.execute(f"CANCEL {numbers[1]}")
            cursor.execute(f"SUBMIT {PLAIN}")
            cursor.execute(f"CANCEL {numbers[0]}")


def test_sessions_of_browsers_and_tokens_are_the_same_at_all(meridian: Meridian, data: Path) -> None:
    """Each server had sessions of its own: a browser that a balancer sent to another one had to log in again, and stayed logged in where it had been."""
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
    with serving(meridian, data) as one, serving(meridian, data) as two:
        servers = [one, two]

        def log_in(server: Server, name: str) -> str:
            status, _, headers = send_to(server, "/login", "POST", urlencode({"user": name, "password": PASSWORD}).encode())
            assert status == 200
            return cookie_of(headers)

        first, second, third = log_in(one, "ann"), log_in(two, "ann"), log_in(two, "bob")
        for server in servers:
            assert [who(server, Cookie=cookie) for cookie in (first, second, third)] == ["ann", "ann", "bob"]
        # Of one browser alone, and at all servers.
        assert send_to(two, "/logout", "POST", b"", Cookie=first)[0] == 204
        for server in servers:
            assert [who(server, Cookie=cookie) for cookie in (first, second, third)] == [None, "ann", "bob"]
        token = must(meridian, data, "token", "ann").split()[-1]
        assert token.startswith("mrd_")
        for server in servers:
            assert who(server, Authorization=f"Bearer {token}") == "ann"
        must(meridian, data, "token", "ann", "--revoke-all")
        must(meridian, data, "passwd", "ann", password="another one")
        for server in servers:
            assert who(server, Authorization=f"Bearer {token}") is None
            assert [who(server, Cookie=cookie) for cookie in (second, third)] == [None, "bob"]
        must(meridian, data, "remove", "bob")
        assert [who(server, Cookie=third) for server in servers] == [None, None]
        last = log_in(one, "boss")
    # It outlives the servers.
    with serving(meridian, data) as later:
        assert who(later, Cookie=last) == "boss"
    assert (data / "sessions.sqlite").stat().st_mode & 0o777 == 0o600
    assert last.split("=")[1].encode() not in (data / "sessions.sqlite").read_bytes()


def test_queries_move_with_the_catalog(meridian: Meridian, loaded: Path, postgres: str, tmp_path: Path) -> None:
    """Into PostgreSQL and back: numbers, results, and what was not done yet."""
    data = Path(shutil.copytree(loaded, tmp_path / "data"))
    server = Server(meridian, data, "--threads", 2)
    expected = rows(server, PLAIN)
    first = submit(server, PLAIN)
    ended(server, first)
    number = submit(server, SLOW)
    wait_for_pieces(server, number)
    server.stop(signal.SIGKILL)
    meridian.must("catalog", "copy", "--data", data, "--to", postgres, "--schema", next(SCHEMAS))
    server = Server(meridian, data, "--threads", 2)
    assert rows(server, f"SELECT * FROM qserv_result({first})") == expected
    before = pieces_done(server, number)
    wait_until(lambda: pieces_done(server, number) > before or listed(server, number)["STATE"] in ENDED, SECONDS, "it goes on")
    second = submit(server, PLAIN)
    assert second not in (first, number)
    ended(server, second)
    server.stop(signal.SIGKILL)
    # Backups have the catalog alone.
    meridian.must("backup", "--data", data, tmp_path / "backups")
    meridian.must("restore", tmp_path / "backups", "--data", tmp_path / "restored")
    meridian.must("catalog", "copy", "--data", data, "--to", "sqlite")
    with serving(meridian, data) as server:
        assert ended(server, number)["STATE"] == "COMPLETED"
        third = submit(server, PLAIN)
        ended(server, third)
        assert len({first, number, second, third}) == 4
        for done in (first, number, second, third):
            assert rows(server, f"SELECT * FROM qserv_result({done})") == expected
        assert_ran_once(server)
