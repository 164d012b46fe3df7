"""Queries that outlive their connections: submitted, listed, cancelled, their results kept, and taken up again after a kill."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import WAITING, load_stars_and_bands

STARS = 60_000
ENDED = ("COMPLETED", "FAILED", "ABORTED")
# Pairs around every star: seconds of work in many pieces, with sums of floating-point numbers.
PAIRS = (
    "SELECT a.id % 10 AS g, COUNT(*) AS n, SUM(a.ra * b.`dec`) AS s, AVG(b.ra) AS m FROM Star a, Star b"
    " WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 2.5 GROUP BY g ORDER BY g"
)
NEVER_ENDS = "SELECT sum(a.id) FROM Star a, Star b, Star c"


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky in many chunks, and a small replicated table."""
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("submitted"), STARS)


@pytest.fixture(scope="module")
def served_data(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the server that most tests share."""
    return Path(shutil.copytree(data, tmp_path_factory.mktemp("served") / "data"))


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A data directory for one test's servers: only one server at a time runs the queries of a directory."""
    return Path(shutil.copytree(data, tmp_path / "data"))


@pytest.fixture(scope="module")
def server(meridian: Meridian, served_data: Path) -> Iterator[Server]:
    """A server of the stars."""
    with serving(meridian, served_data) as server:
        yield server


def rows(server: Server, statement: str, user: str = "ann") -> list[tuple[object, ...]]:
    """The rows of a statement by a connection of its own."""
    with server.connect(database="sky", user=user) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def with_warnings(server: Server, statement: str, user: str = "ann") -> tuple[list[tuple[object, ...]], list[tuple[str, int, str]]]:
    """The rows of a statement, and its warnings."""
    with server.connect(database="sky", user=user) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        found = list(cursor.fetchall())
        cursor.execute("SHOW WARNINGS")
        return found, list(cursor.fetchall())


def error(server: Server, statement: str, user: str = "ann") -> tuple[int, str]:
    """The error of a statement."""
    with pytest.raises(pymysql.MySQLError) as raised:
        rows(server, statement, user)
    return raised.value.args[0], raised.value.args[1]


def submit(server: Server, statement: str, user: str = "ann") -> int:
    """The number of a submitted query."""
    [(number, location)] = rows(server, f"SUBMIT {statement}", user)
    assert location == f"qserv_result({number})"
    assert isinstance(number, int)
    return number


def listed(server: Server, number: int) -> dict[str, object]:
    """What the list of queries says of one."""
    with server.connect(user="somebody") as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SELECT * FROM information_schema.QUERIES WHERE ID = %s", (number,))
        [row] = cursor.fetchall()
        return dict(row)


def ended(server: Server, number: int, seconds: float = 120) -> dict[str, object]:
    """Waits until a query has ended."""
    wait_until(lambda: listed(server, number)["STATE"] in ENDED, seconds, f"query {number} ends")
    return listed(server, number)


def test_a_result_is_that_of_the_statement(server: Server) -> None:
    """Any connection of the owner reads it, as often as it likes, whole or in a query."""
    number = submit(server, f"{PAIRS};")
    info = ended(server, number)
    assert info["STATE"] == "COMPLETED", info
    assert (info["USER"], info["DB"], info["MODE"], info["STATEMENT"]) == ("ann", "sky", "ASYNC", PAIRS)
    assert info["PIECES_DONE"] == info["PIECES"] and int(str(info["PIECES"])) > 1
    assert info["SUBMITTED"] <= info["STARTED"] <= info["ENDED"] < info["EXPIRES"]  # type: ignore[operator]
    direct = rows(server, PAIRS)
    assert len(direct) == info["ROWS"] == 10
    for _ in range(2):
        # Bit for bit: sums are added in the order of the pieces.
        assert rows(server, f"SELECT * FROM qserv_result({number})") == direct
    top = rows(server, f"SELECT r.g, b.name FROM QSERV_RESULT({number}) r JOIN Band b ON r.g = b.id WHERE r.n > 0 ORDER BY r.g DESC")
    assert top == [(g, f"band {g}") for g in reversed(range(5))]


def test_results_are_of_their_owner(server: Server) -> None:
    """Nobody else reads or cancels them."""
    number = submit(server, "SELECT COUNT(*) FROM Star")
    assert ended(server, number)["STATE"] == "COMPLETED"
    for statement in (f"SELECT * FROM qserv_result({number})", f"CANCEL {number}", f"KILL {number}"):
        code, sentence = error(server, statement, user="bob")
        assert code == 1227 and "another user, ann" in sentence, statement
    code, sentence = error(server, f"SELECT * FROM qserv_result({number}, 'bob')", user="bob")
    assert code == 1582 and "takes the number of a query" in sentence


def test_results_keep_their_columns(server: Server) -> None:
    """Types, NULLs, no rows at all, and headings that are the same."""
    for statement in (
        "SELECT 1 AS a, 1.5 AS b, 'text' AS c, NULL AS d, TIMESTAMP '2026-11-24 10:00:00' AS e, CAST('2026-11-24' AS DATE) AS f",
        "SELECT id, ra, `dec` FROM Star WHERE id < 0",
        "SELECT id, ra, `dec`, version FROM Star ORDER BY id LIMIT 10000",
        "SELECT name FROM Band ORDER BY id",
        "SHOW TABLES",
    ):
        number = submit(server, statement)
        assert ended(server, number)["STATE"] == "COMPLETED", statement
        with server.connect(database="sky", user="ann") as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            direct = (cursor.fetchall(), [column[:2] for column in cursor.description])
            cursor.execute(f"SELECT * FROM qserv_result({number})")
            assert (cursor.fetchall(), [column[:2] for column in cursor.description]) == direct, statement
    number = submit(server, "SELECT a.id, b.id FROM Band a JOIN Band b ON a.id = b.id WHERE a.id = 3")
    ended(server, number)
    assert rows(server, f"SELECT id, id_2 FROM qserv_result({number})") == [(3, 3)]


def test_wrong_statements_are_rejected_when_they_are_submitted(server: Server) -> None:
    """As they are when they are asked."""
    before = len(rows(server, "SELECT ID FROM information_schema.QUERIES WHERE MODE = 'ASYNC'"))
    for statement in ("SELECT nothing FROM Star", "SELECT * FROM Nowhere", "SELEC 1", "SELECT 1; SELECT 2", "DROP TABLE Star"):
        direct = error(server, statement)
        code, sentence = error(server, f"SUBMIT {statement}")
        assert code == direct[0], (statement, sentence)
    code, sentence = error(server, "SUBMIT")
    assert code == 1064 and "SUBMIT SELECT" in sentence
    for statement in ("SUBMIT SUBMIT SELECT 1", "CANCEL", "CANCEL x", "CANCEL 1 2"):
        assert error(server, statement)[0] in (1064, 1290), statement
    assert len(rows(server, "SELECT ID FROM information_schema.QUERIES WHERE MODE = 'ASYNC'")) == before


@pytest.mark.parametrize("how", ["CANCEL {}", "CANCEL QUERY {}", "KILL {}", "KILL QUERY {}"])
def test_a_query_is_cancelled(server: Server, how: str) -> None:
    """It is told as aborted at once, and its work ends."""
    number = submit(server, NEVER_ENDS)
    wait_until(lambda: listed(server, number)["STATE"] == "EXECUTING", 20, "it runs")
    code, sentence = error(server, f"SELECT * FROM qserv_result({number})")
    assert code == 1094 and "EXECUTING" in sentence
    rows(server, how.format(number))
    info = listed(server, number)
    assert info["STATE"] == "ABORTED" and info["ERROR_CODE"] == 1317 and info["ENDED"] is not None
    wait_until(server.is_idle, 20, "the work ends")
    code, sentence = error(server, f"SELECT * FROM qserv_result({number})")
    assert code == 1094 and "aborted" in sentence
    code, sentence = error(server, how.format(number))
    assert code == 1094 and "has ended" in sentence


def test_unknown_numbers_are_told(server: Server) -> None:
    """With what lists the known ones."""
    for statement in ("CANCEL 5", "SELECT * FROM qserv_result(5)"):
        code, sentence = error(server, statement)
        assert code == 1094 and "information_schema.QUERIES" in sentence, statement


def test_limits_of_statements_go_along(server: Server) -> None:
    """`cte_max_recursion_depth` and `group_concat_max_len` of the connection that submits. They were the usual ones."""
    counting = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < {}) SELECT COUNT(*) FROM n"
    names = "SELECT GROUP_CONCAT(name ORDER BY id) FROM Band"
    numbers = []
    with server.connect(database="sky", user="ann") as connection, connection.cursor() as cursor:
        for depth, statement in [("2000", counting.format(1500)), ("5", counting.format(9)), ("DEFAULT", names)]:
            cursor.execute(f"SET cte_max_recursion_depth = {depth}, group_concat_max_len = 10")
            cursor.execute(f"SUBMIT {statement}")
            numbers.append(cursor.fetchone()[0])
    deep, shallow, cut = numbers
    assert ended(server, deep)["STATE"] == "COMPLETED"
    assert rows(server, f"SELECT * FROM qserv_result({deep})") == [(1500,)]
    info = ended(server, shallow)
    assert (info["STATE"], info["ERROR_CODE"]) == ("FAILED", 3636)
    assert ended(server, cut)["STATE"] == "COMPLETED"
    assert rows(server, f"SELECT * FROM qserv_result({cut})") == [("band 0,ban",)]
    whole = submit(server, names)
    assert ended(server, whole)["STATE"] == "COMPLETED"
    assert rows(server, f"SELECT * FROM qserv_result({whole})") == [(",".join(f"band {n}" for n in range(5)),)]


def test_a_time_limit_goes_along(server: Server) -> None:
    """`max_execution_time` and `sql_select_limit` of the connection that submits apply."""
    with server.connect(database="sky", user="ann") as connection, connection.cursor() as cursor:
        # Submitting takes some of it, on a busy machine.
        cursor.execute("SET max_execution_time = 2000, sql_select_limit = 7")
        cursor.execute(f"SUBMIT {NEVER_ENDS}")
        late = cursor.fetchone()[0]
        cursor.execute("SUBMIT SELECT id FROM Star")
        cut = cursor.fetchone()[0]
    info = ended(server, late)
    assert (info["STATE"], info["ERROR_CODE"]) == ("FAILED", 3024) and "max_execution_time" in str(info["ERROR"])
    assert ended(server, cut)["ROWS"] == 7


def test_blocking_queries_are_listed_and_end_by_their_number(server: Server) -> None:
    """With their user and text."""
    with server.connect(database="sky", user="carl") as connection:
        connection._execute_command(pymysql.constants.COMMAND.COM_QUERY, NEVER_ENDS)  # type: ignore[attr-defined]

        def running() -> list[tuple[object, ...]]:
            return rows(
                server,
                "SELECT ID, STATE, STATEMENT FROM information_schema.QUERIES WHERE USER = 'carl' AND MODE = 'BLOCKING' AND STATE = 'EXECUTING'",
            )

        wait_until(lambda: len(running()) == 1, 20, "it is listed")
        [(number, _, text)] = running()
        assert text == NEVER_ENDS
        assert error(server, f"CANCEL {number}")[0] == 1227
        rows(server, f"CANCEL {number}", user="carl")
        with pytest.raises(pymysql.MySQLError) as raised:
            connection._read_query_result()  # type: ignore[attr-defined]
        assert raised.value.args[0] == 1317
    assert listed(server, int(str(number)))["STATE"] == "ABORTED"
    assert "was no submitted one" in error(server, f"SELECT * FROM qserv_result({last_blocking(server)})")[1]


def last_blocking(server: Server) -> int:
    """The number of a blocking query that was answered."""
    rows(server, "SELECT COUNT(*) FROM Band WHERE id > 1")
    statement = "SELECT MAX(ID) FROM information_schema.QUERIES WHERE MODE = 'BLOCKING' AND STATE = 'COMPLETED' AND USER = 'ann'"
    [(number,)] = rows(server, statement)
    return int(str(number))


def test_the_result_so_far(server: Server) -> None:
    """Of the pieces that are committed: its counts grow until they are the whole."""
    statement = PAIRS.replace("COUNT(*) AS n", f"COUNT(*) AS n, {WAITING.format(0.3)}")
    number = submit(server, statement)
    seen = []
    told = []
    while listed(server, number)["STATE"] not in ENDED:
        try:
            counts, warned = with_warnings(server, f"SELECT * FROM qserv_result({number}, 'partial')")
            seen.append(sum(row[1] for row in counts))  # type: ignore[misc]
            told.extend(warned)
        except pymysql.MySQLError as raised:
            assert raised.args[0] == 1094 and "has not begun" in raised.args[1], raised
    whole, warned = with_warnings(server, f"SELECT * FROM qserv_result({number}, 'partial')")
    assert whole == rows(server, f"SELECT * FROM qserv_result({number})")
    assert not warned, "a whole result is marked as a part"
    pieces = listed(server, number)["PIECES"]
    assert isinstance(pieces, int)
    sentence = re.compile(rf"the result so far of query {number}, not the whole: (\d+) of the {pieces} pieces of the sky that it reads are done, (\d+) %")
    found = [(level, code, sentence.fullmatch(text)) for level, code, text in told]
    assert all(level == "Warning" and code == 1105 and match for level, code, match in found), told
    shares = [(int(match[1]), int(match[2])) for _, _, match in found if match]
    assert shares == sorted(shares) and all(percent == done * 100 // pieces for done, percent in shares)
    assert any(0 < done < pieces for done, _ in shares), shares
    total = sum(row[1] for row in whole)  # type: ignore[misc]
    assert seen == sorted(seen) and all(part <= total for part in seen)
    assert any(0 < part < total for part in seen), (seen, total)


def test_queries_wait_in_their_order(meridian: Meridian, own_data: Path) -> None:
    """As many run as may; the list tells the place of the others; who is cancelled leaves the queue."""
    with serving(meridian, own_data, "--queries-at-once", 1) as server:
        first = submit(server, NEVER_ENDS)
        others = [submit(server, f"SELECT COUNT(*) + {n} FROM Band") for n in range(4)]
        wait_until(lambda: listed(server, first)["STATE"] == "EXECUTING", 20, "the first runs")
        places = [listed(server, number)["QUEUE_PLACE"] for number in others]
        assert places == [1, 2, 3, 4]
        rows(server, f"CANCEL {others[1]}")
        assert [listed(server, number)["QUEUE_PLACE"] for number in others] == [1, None, 2, 3]
        rows(server, f"CANCEL {first}")
        left = [number for number in others if number != others[1]]
        states = [ended(server, number) for number in left]
        assert [state["STATE"] for state in states] == ["COMPLETED"] * 3
        begun = [str(state["STARTED"]) for state in states]
        assert begun == sorted(begun)


def test_the_process_list_has_queries_without_connections(meridian: Meridian, own_data: Path) -> None:
    """Those that wait or run, beside the connections, by SHOW as by `information_schema`; not those that have ended."""
    with serving(meridian, own_data, "--queries-at-once", 1) as server:
        number = submit(server, "SELECT COUNT(*) FROM Band")
        ended(server, number)
        first, second = submit(server, NEVER_ENDS), submit(server, "SELECT COUNT(*) FROM Star")
        wait_until(lambda: listed(server, first)["STATE"] == "EXECUTING", 20, "the first runs")
        shown = {int(str(row[0])): row for row in rows(server, "SHOW FULL PROCESSLIST")}
        read = {int(str(row[0])): row for row in rows(server, "SELECT ID, USER, HOST, DB, COMMAND, TIME, STATE, INFO FROM information_schema.PROCESSLIST")}
        for found in (shown, read):
            assert number not in found
            assert [found[first][at] for at in (1, 2, 3, 4, 7)] == ["ann", "", "sky", "Query", NEVER_ENDS]
            assert re.fullmatch(r"executing, \d+ of \d+ pieces", str(found[first][6]))
            assert [found[second][at] for at in (1, 6, 7)] == ["ann", "queued, place 1", "SELECT COUNT(*) FROM Star"]
            assert any(row[7] and "PROCESSLIST" in str(row[7]) for row in found.values())
        rows(server, f"KILL {second}")
        assert second not in {int(str(row[0])) for row in rows(server, "SHOW PROCESSLIST")}
        rows(server, f"KILL {first}")


def test_a_result_that_is_too_large_fails(meridian: Meridian, own_data: Path) -> None:
    """With the limit and what to do; and results go when they expire."""
    with serving(meridian, own_data, "--max-result", "100K", "--keep-results", "0.0001") as server:
        large = ended(server, submit(server, "SELECT * FROM Star"))
        assert large["STATE"] == "FAILED" and large["ERROR_CODE"] == 1104 and "larger than 100 KB, the most" in str(large["ERROR"])
        number = submit(server, "SELECT COUNT(*) FROM Star")
        wait_until(lambda: rows(server, f"SELECT * FROM information_schema.QUERIES WHERE ID = {number}") == [], 40, "it expires")
        assert not (own_data / "queries" / str(number)).exists()
        assert error(server, f"SELECT * FROM qserv_result({number})")[0] == 1094


def test_two_servers_of_a_directory(meridian: Meridian, served_data: Path, server: Server) -> None:
    """One runs its queries; the other says so, and answers everything else."""
    with serving(meridian, served_data) as second:
        code, sentence = error(second, "SUBMIT SELECT 1")
        assert code == 1290 and "another server" in sentence
        assert rows(second, "SELECT COUNT(*) FROM Star") == [(STARS,)]
    assert ended(server, submit(server, "SELECT 1"))["STATE"] == "COMPLETED"


def test_killed_servers_lose_nothing(meridian: Meridian, own_data: Path) -> None:
    """Whatever ran or waited when the server was killed ends right, and no committed piece runs again."""
    statements = [PAIRS.replace("< 2.5", f"< {1.5 + n * 0.5}") for n in range(4)] + ["SELECT COUNT(*), AVG(ra) FROM Star"]
    with serving(meridian, own_data) as server:
        expected = [rows(server, statement) for statement in statements]
        first = submit(server, "SELECT 1")
    numbers: list[int] = []
    for attempt in range(6):
        server = Server(meridian, own_data, "--queries-at-once", 3)
        if not numbers:
            numbers = [submit(server, statement) for statement in statements]
            assert all(number > first for number in numbers), "a number was given twice"
        time.sleep(0.4 + 0.5 * attempt)
        server.stop(signal.SIGKILL)
        assert "ran twice" not in server.log, server.log
    with serving(meridian, own_data, "--queries-at-once", 3) as server:
        for number, wanted in zip(numbers, expected, strict=True):
            info = ended(server, number)
            assert info["STATE"] == "COMPLETED", info
            assert info["PIECES_DONE"] == info["PIECES"], info
            assert rows(server, f"SELECT * FROM qserv_result({number})") == wanted
        assert "ran twice" not in server.log, server.log


def test_the_first_rows_of_a_sort_go_on_where_they_were(meridian: Meridian, own_data: Path) -> None:
    """What has the best rows so far has an identity of its own in each plan, by which a journal must not go."""
    statement = PAIRS.replace("COUNT(*) AS n", f"COUNT(*) AS n, {WAITING.format(0.25)}").replace("ORDER BY g", "ORDER BY s DESC LIMIT 3")
    pieces_run = "SELECT SUM(PIECES_DONE) FROM information_schema.QUERY_MILESTONES WHERE QUERY_ID = {}"
    with serving(meridian, own_data) as server:
        expected = rows(server, statement)
    server = Server(meridian, own_data, "--threads", 1)
    number = submit(server, statement)
    wait_until(lambda: int(str(listed(server, number)["PIECES_DONE"])) >= 1, 60, "some pieces are done")
    # Until that is written down.
    time.sleep(1.2)
    assert listed(server, number)["STATE"] == "EXECUTING", "it was done before it could be killed"
    server.stop(signal.SIGKILL)
    with serving(meridian, own_data, "--threads", 1) as server:
        info = ended(server, number)
        assert info["STATE"] == "COMPLETED" and rows(server, f"SELECT * FROM qserv_result({number})") == expected
        [(run,)] = rows(server, pieces_run.format(number))
        assert int(str(run)) <= int(str(info["PIECES"])), "pieces ran again"


def test_warnings_outlive_a_killed_server(meridian: Meridian, own_data: Path) -> None:
    """Those of pieces that do not run again were lost with the process. A value of some stars is no number."""
    spoilt = "SUM(IF(MOD(a.id, 3000) = 7, CONCAT(a.id, 'x'), '0')) AS w"
    statement = PAIRS.replace("COUNT(*) AS n", f"COUNT(*) AS n, {spoilt}, {WAITING.format(0.25)}")
    with serving(meridian, own_data) as server, server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        expected = list(cursor.fetchall())
        cursor.execute("SHOW WARNINGS")
        wanted = {sentence for _, _, sentence in cursor.fetchall()}
    assert len(wanted) == STARS // 3000
    server = Server(meridian, own_data, "--threads", 1)
    number = submit(server, statement)
    wait_until(lambda: int(str(listed(server, number)["PIECES_DONE"])) >= 3, 60, "some pieces are done")
    assert listed(server, number)["STATE"] == "EXECUTING", "it was done before it could be killed"
    server.stop(signal.SIGKILL)
    with serving(meridian, own_data) as server:
        assert ended(server, number)["STATE"] == "COMPLETED"
        with server.connect(database="sky", user="ann") as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM qserv_result({number})")
            assert list(cursor.fetchall()) == expected
            cursor.execute("SHOW WARNINGS")
            assert {sentence for _, _, sentence in cursor.fetchall()} == wanted


def blocking_queries(server: Server, statements: list[str]) -> list[threading.Thread]:
    """Connections that execute a statement each until it ends or the server does."""

    def execute(statement: str) -> None:
        with contextlib.suppress(pymysql.MySQLError, OSError):
            rows(server, statement, "bob")

    threads = [threading.Thread(target=execute, args=(statement,)) for statement in statements]
    for thread in threads:
        thread.start()
    return threads


def test_many_queries_survive_kills_at_random_moments(meridian: Meridian, own_data: Path) -> None:
    """Twenty submitted queries beside twenty blocking ones, killed MERIDIAN_KILLS times: each ends with the rows of an undisturbed run."""
    kills = int(os.environ.get("MERIDIAN_KILLS", "3"))
    seed = int(os.environ.get("MERIDIAN_SEED", "20261125"))
    rng = random.Random(seed)
    statements = [PAIRS.replace("< 2.5", f"< {0.5 + n * 0.1:.1f}") for n in range(10)]
    statements += [f"SELECT AVG(ra * {n}), STDDEV(`dec`) FROM Star WHERE ra > {n}.5" for n in range(5)]
    statements += [f"SELECT id, ra FROM Star WHERE ra BETWEEN {n} AND {n + 30} ORDER BY id" for n in range(0, 50, 10)]
    with serving(meridian, own_data) as server:
        expected = [rows(server, statement) for statement in statements]
    done, open_queries = 0, []
    for _ in range(kills):
        server = Server(meridian, own_data)
        if not open_queries:
            open_queries = [(submit(server, statement), wanted) for statement, wanted in zip(statements, expected, strict=True)]
        threads = blocking_queries(server, statements)
        time.sleep(rng.uniform(0.2, 2.5))
        server.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert "ran twice" not in server.log, (seed, server.log)
        with serving(meridian, own_data) as server:
            done += check_ended(server, open_queries, seed)
    with serving(meridian, own_data) as server:
        for number, _ in open_queries:
            ended(server, number)
        done += check_ended(server, open_queries, seed)
        assert not open_queries and done >= len(statements)
        assert "ran twice" not in server.log, (seed, server.log)
        # Blocking ones that were running have been told as aborted, and none is left as running.
        states = rows(server, "SELECT DISTINCT STATE FROM information_schema.QUERIES WHERE MODE = 'BLOCKING' AND USER = 'bob'")
        assert set(states) <= {("ABORTED",), ("COMPLETED",)}, (seed, states)


def check_ended(server: Server, open_queries: list[tuple[int, list[tuple[object, ...]]]], seed: int) -> int:
    """Takes the queries that have ended out of the list, each with the right rows; returns how many."""
    ends = [(number, wanted) for number, wanted in open_queries if listed(server, number)["STATE"] in ENDED]
    for number, wanted in ends:
        info = listed(server, number)
        assert info["STATE"] == "COMPLETED" and info["PIECES_DONE"] == info["PIECES"], (seed, info)
        assert rows(server, f"SELECT * FROM qserv_result({number})") == wanted, (seed, info)
    open_queries[:] = [query for query in open_queries if query not in ends]
    return len(ends)


def test_a_killed_server_tells_of_its_blocking_queries(meridian: Meridian, own_data: Path) -> None:
    """Those that took more than a second are written down, and told as aborted."""
    server = Server(meridian, own_data)
    connection = server.connect(database="sky", user="dora")
    connection._execute_command(pymysql.constants.COMMAND.COM_QUERY, NEVER_ENDS)  # type: ignore[attr-defined]
    time.sleep(3.5)
    server.stop(signal.SIGKILL)
    with serving(meridian, own_data) as server:
        found = rows(server, "SELECT STATE, ERROR, STATEMENT FROM information_schema.QUERIES WHERE USER = 'dora'")
        assert found == [("ABORTED", "the server ended while the query ran", NEVER_ENDS)]


MILESTONES = (
    "SELECT PHASE, RUN_BY, PIECES, PIECES_DONE, HANDED_OUT, STARTED, FIRST_ROWS, COMMITTED"
    " FROM information_schema.QUERY_MILESTONES WHERE QUERY_ID = {} ORDER BY NUMBER"
)


def check_milestones(server: Server, number: int) -> list[tuple[object, ...]]:
    """The milestones of a query that has ended: they account for all of its pieces, in the order of time."""
    info, found = listed(server, number), rows(server, MILESTONES.format(number))
    assert 1 <= len(found) <= 64
    assert sum(int(str(row[3])) for row in found) == info["PIECES_DONE"] == info["PIECES"]
    for row in found:
        assert row[1] == "here" and row[2] == row[3]
        moments = [moment for moment in row[4:] if moment is not None]
        assert moments == sorted(moments) and len(moments) >= 3, row  # type: ignore[type-var]
        assert info["SUBMITTED"] <= moments[0] and moments[-1] <= info["ENDED"]  # type: ignore[operator]
    return found


def test_milestones_tell_when_pieces_ran(meridian: Meridian, own_data: Path) -> None:
    """Of queries of both kinds, by SQL, HTTP and the command line; also in the next process; and while one runs."""
    with serving(meridian, own_data) as server:
        number = submit(server, PAIRS)
        ended(server, number)
        found = check_milestones(server, number)
        blocking = "SELECT COUNT(*), SUM(ra) FROM Star WHERE ra > 0.5"
        rows(server, blocking)
        [(other,)] = rows(server, f"SELECT MAX(ID) FROM information_schema.QUERIES WHERE STATEMENT = '{blocking}'")
        check_milestones(server, int(str(other)))
        running = submit(server, NEVER_ENDS)
        wait_until(lambda: bool(rows(server, MILESTONES.format(running))), 20, "a piece begins")
        (first, *_) = rows(server, MILESTONES.format(running))
        assert first[5] is not None
        rows(server, f"CANCEL {running}")
        text = meridian.must("query", "show", "--server", server.url(""), number).text
        assert text.count("milestone ") == len(found) and "phase 1, here: " in text, text
    with serving(meridian, own_data) as server:
        assert rows(server, MILESTONES.format(number)) == found


def test_milestones_are_few_whatever_the_pieces(meridian: Meridian, own_data: Path) -> None:
    """A query that is taken up again and again has those of all processes, merged."""
    for attempt in range(3):
        server = Server(meridian, own_data)
        if attempt == 0:
            number = submit(server, PAIRS.replace("< 2.5", "< 5.5"))
        time.sleep(1.5)
        server.stop(signal.SIGKILL)
    with serving(meridian, own_data) as server:
        assert ended(server, number)["STATE"] == "COMPLETED"
        found = rows(server, MILESTONES.format(number))
        assert 1 <= len(found) <= 64
        done = sum(int(str(row[3])) for row in found)
        # Milestones are written down each second, pieces when they are done: of the last second some may be missing.
        assert 0 < done <= int(str(listed(server, number)["PIECES"]))
