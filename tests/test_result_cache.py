"""The result cache: which statements it answers, with the right rows whatever happens to tables, rights and settings meanwhile."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, load_stars_and_bands, write_lines, write_stars
from test_users import PASSWORD, Site, must

STARS = 3_000
# Of many chunks, so that no network thread answers it from a cached plan.
SUM = "SELECT COUNT(*), SUM(id), AVG(ra) FROM Star WHERE `dec` < 80"
ENDED = ("COMPLETED", "FAILED", "ABORTED")

Connection = pymysql.connections.Connection


@pytest.fixture(scope="module")
def server(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps the results of all statements, however short."""
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("cache"), STARS)
    meridian.load(data, "deep", "Star", write_stars(data.parent / "deep.csv", 50), **DIRECTOR)
    with serving(meridian, data, "--result-cache", 0) as server:
        yield server


@pytest.fixture
def data(meridian: Meridian, tmp_path: Path) -> Path:
    """A data directory for one test."""
    return load_stars_and_bands(meridian, tmp_path, STARS)


def execute(server: Server, statement: str, user: str = "ann", database: str = "sky") -> list[tuple[object, ...]]:
    """The rows of a statement by a connection of its own."""
    with server.connect(database=database, user=user) as connection:
        return ask_by(connection, statement)


def ask_by(connection: Connection, statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def origin(server: Server, statement: str, user: str = "ann", password: str = "") -> tuple[int, int | None]:
    """The number of the last query of this text, and that of the query whose result answered it."""
    text = statement.replace("\\", "\\\\").replace("'", "''")
    listed = (
        "SELECT ID, CACHED_FROM FROM information_schema.QUERIES"
        f" WHERE STATEMENT = '{text}' AND USER = '{user}' AND STATE = 'COMPLETED' ORDER BY ID DESC LIMIT 1"
    )
    with server.connect(user=user, password=password) as connection:
        [(number, cached)] = ask_by(connection, listed)
    assert isinstance(number, int) and (cached is None or isinstance(cached, int))
    return number, cached


def asked(server: Server, statement: str, **options: str) -> tuple[list[tuple[object, ...]], int, int | None]:
    """The rows of a statement, its number, and the number of the query that answered it."""
    found = execute(server, statement, **options)
    return found, *origin(server, statement, options.get("user", "ann"))


def test_an_equal_statement_is_answered_again(meridian: Meridian, server: Server) -> None:
    """Also of another spelling, and under its own headings; the list and HTTP tell of whose result it is."""
    rows, first, cached = asked(server, SUM)
    assert cached is None
    assert asked(server, SUM)[::2] == (rows, first)
    spelled = "select /* again */ count(*), SUM(ID), avg(RA)\nFROM star where `DEC` < 80"
    with server.connect(database="sky", user="ann") as connection, connection.cursor() as cursor:
        cursor.execute(spelled)
        assert list(cursor.fetchall()) == rows
        assert [column[0] for column in cursor.description] == ["count(*)", "SUM(ID)", "avg(RA)"]
    number, cached = origin(server, spelled)
    assert cached == first
    with urllib.request.urlopen(server.url(f"/queries/{number}")) as response:
        told = json.load(response)
    assert told["cached_from"] == first and told["pieces"] == 0 and told["rows"] == 1
    shown = meridian.must("query", "show", "--server", server.url(""), number).text
    assert f"the result of query {first}" in shown


def test_other_statements_are_not_answered(server: Server) -> None:
    """Each differs from the one before in one thing."""
    base = "SELECT id, ra + 1 AS x FROM Star WHERE version = 1 AND `dec` < 60 ORDER BY id LIMIT 1000"
    execute(server, base)
    for other in (
        base.replace("ra + 1", "ra + 2"),
        base.replace("ra + 1", "ra - 1"),
        base.replace("AS x", "AS y"),
        base.replace("< 60", "< 60.5"),
        base.replace("< 60", "<= 60"),
        base.replace("AND", "OR"),
        base.replace("LIMIT 1000", "LIMIT 999"),
        base.replace("LIMIT 1000", "LIMIT 1000 OFFSET 1"),
        base.replace("ORDER BY id", "ORDER BY id DESC"),
        base.replace("SELECT id", "SELECT -id"),
        base.replace("FROM Star", "FROM deep.Star"),
    ):
        _, number, cached = asked(server, other)
        assert cached is None or cached == number, other


def test_the_default_database_counts(server: Server) -> None:
    """The same text is of another table there."""
    [(sky,)] = execute(server, "SELECT COUNT(*) FROM Star WHERE id >= 0")
    [(deep,)] = execute(server, "SELECT COUNT(*) FROM Star WHERE id >= 0", database="deep")
    assert (sky, deep) == (STARS, 50)
    assert execute(server, "SELECT COUNT(*) FROM Star WHERE id >= 0") == [(STARS,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT NOW(), COUNT(*) FROM Star",
        "SELECT COUNT(*) FROM Star WHERE CURDATE() > '2000-01-01'",
        "SELECT UNIX_TIMESTAMP(), COUNT(*) FROM Star",
        "SELECT SUM(RAND()) FROM Star",
        "SELECT id FROM Star ORDER BY RAND() LIMIT 5",
        "SELECT UUID(), COUNT(*) FROM Star",
        "SELECT CONNECTION_ID(), COUNT(*) FROM Star",
        "SELECT USER(), COUNT(*) FROM Star",
        "SELECT DATABASE(), COUNT(*) FROM Star",
        "SELECT @@sql_mode, COUNT(*) FROM Star",
        "SELECT FOUND_ROWS(), COUNT(*) FROM Star",
        "SELECT COUNT(*) FROM Star WHERE ra > @least",
        "SELECT SLEEP(0.01), COUNT(*) FROM Star",
        "SELECT COUNT(*) FROM Star WHERE id IN (SELECT ID FROM information_schema.QUERIES)",
        "SELECT * FROM information_schema.QUERIES",
        "SELECT COUNT(*) FROM Star, information_schema.PROCESSLIST",
        "SELECT SQL_NO_CACHE COUNT(*), MAX(ra) FROM Star",
        "SELECT COUNT(*), MIN(ra) FROM (SELECT SQL_NO_CACHE * FROM Star) s",
        "EXPLAIN ANALYZE SELECT COUNT(*), MIN(ra) FROM Star",
    ],
)
def test_what_depends_on_more_than_tables_runs_each_time(server: Server, statement: str) -> None:
    """On the moment, the connection, the server; or says that it will have no cache."""
    for _ in range(3):
        assert asked(server, statement)[2] is None
    values = [execute(server, statement) for _ in range(2)]
    if any(word in statement for word in ("SUM(RAND", "UUID")):
        assert values[0] != values[1]


def test_variables_of_ones_own_have_their_values(server: Server) -> None:
    """One connection's and another's, and one that changes."""
    statement = "SELECT COUNT(*) FROM Star WHERE id < @most"
    with server.connect(database="sky", user="ann") as one, server.connect(database="sky", user="ann") as other:
        ask_by(one, "SET @most = 10")
        ask_by(other, "SET @most = 20")
        assert ask_by(one, statement) == [(10,)]
        assert ask_by(other, statement) == [(20,)]
        ask_by(one, "SET @most = 30")
        assert ask_by(one, statement) == [(30,)]
        number = ask_by(one, f"SUBMIT {statement}")[0][0]
        wait_until(lambda: state(server, number) in ENDED, 30, "it ends")
        assert ask_by(one, f"SELECT * FROM qserv_result({number})") == [(30,)]


def state(server: Server, number: object) -> str:
    return str(execute(server, f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {number}")[0][0])


def test_settings_that_change_results_count(server: Server) -> None:
    """The limit of rows; texts and numbers go out in the character set and the form of whoever asks."""
    statement = "SELECT id FROM Star WHERE `dec` > -80 ORDER BY id"
    everything = execute(server, statement)
    with server.connect(database="sky", user="ann") as connection:
        for rows in (3, 4, 3):
            ask_by(connection, f"SET sql_select_limit = {rows}")
            assert ask_by(connection, statement) == everything[:rows]
        ask_by(connection, "SET sql_select_limit = DEFAULT")
        assert ask_by(connection, statement) == everything
    named = "SELECT CONCAT('\u00e9-', name) FROM Band, Star WHERE Band.id = Star.id ORDER BY 1"
    expected = execute(server, named)
    assert expected[0] == ("\u00e9-band 0",)
    with server.connect(database="sky", user="ann", charset="latin1") as connection:
        assert ask_by(connection, named) == expected


def test_dialects_count(server: Server) -> None:
    """7 / 2 is 3.5 in MySQL's dialect, and 3 in ADQL's."""
    statement = "SELECT MAX(id) / 2 FROM Star"
    by_sql = execute(server, statement)
    assert by_sql == execute(server, statement)
    for _ in range(2):
        adql = "SELECT MAX(id) / 2 FROM sky.Star"
        address = server.url("/tap/sync", LANG="ADQL", QUERY=adql, RESPONSEFORMAT="csv")
        with urllib.request.urlopen(address) as response:
            value = response.read().decode().split()[-1]
        assert float(value) == (STARS - 1) // 2
        assert float(str(by_sql[0][0])) == (STARS - 1) / 2


def test_prepared_statements_have_their_parameters(server: Server) -> None:
    """Each value is another statement."""
    import mysql.connector

    with mysql.connector.connect(host="127.0.0.1", port=server.port, user="ann", database="sky", use_pure=True) as connection:
        cursor = connection.cursor(prepared=True)
        for most in (5, 6, 5, 6):
            cursor.execute("SELECT COUNT(*), SUM(ra) FROM Star WHERE id < %s", (most,))
            assert cursor.fetchall()[0][0] == most


def test_changes_of_tables_are_seen(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Appended, replaced, dropped and made anew, without rows; a part that is dropped; parts that are merged."""
    count = "SELECT COUNT(*), SUM(version) FROM Star WHERE `dec` < 91"
    none = "SELECT id FROM Star WHERE id = 1000000"
    with serving(meridian, data, "--result-cache", 0) as server:

        def both() -> tuple[tuple[object, ...], list[tuple[object, ...]]]:
            first, second = [(execute(server, count)[0], execute(server, none)) for _ in range(2)]
            assert first == second
            return tuple(int(str(it)) for it in first[0]), first[1]

        def load(lines: list[str], **options: object) -> None:
            meridian.load(data, "sky", "Star", write_lines(tmp_path / "more.csv", lines, "id,ra,dec,version"), **options)

        assert both() == ((STARS, STARS), [])
        load(["1000000,10,10,5"], append=True)
        assert both() == ((STARS + 1, STARS + 5), [(1000000,)])
        meridian.must("compact", "--data", data)
        assert both() == ((STARS + 1, STARS + 5), [(1000000,)])
        load(["1,1,1,7", "2,2,2,7"], replace=True, **DIRECTOR)
        assert both() == ((2, 14), [])
        meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Star", "--yes")
        with pytest.raises(pymysql.MySQLError) as raised:
            execute(server, count)
        assert raised.value.args[0] == 1146
        load(["1,1,1,9"], **DIRECTOR)
        assert both() == ((1, 9), [])


def test_descriptions_change_without_the_rows(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """What a column means is that of now, also of an answer from the cache."""
    statement = "SELECT MAX(id) AS m, version FROM Star GROUP BY version"
    with serving(meridian, data, "--result-cache", 0) as server:
        before = execute(server, statement)
        described = meridian.must("describe", "--data", data, "--db", "sky", "--table", "Star", "--format", "json").text
        edit = tmp_path / "edit.json"
        words = json.loads(described)
        words["tables"][0]["description"] = "all stars"
        edit.write_text(json.dumps(words))
        meridian.must("describe", "--data", data, "--db", "sky", "--edit", edit)
        assert execute(server, statement) == before


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ann and Bob may read the database sky; results of all statements are kept."""
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("rights"), STARS)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
        must(meridian, data, "grant", name, "--read", "sky")
    with serving(meridian, data, "--result-cache", 0) as server:
        yield Site(meridian, data, server)


def number_of_error(act: Callable[[], object]) -> int:
    with pytest.raises(pymysql.MySQLError) as raised:
        act()
    return int(raised.value.args[0])


def test_rights_are_those_of_now(site: Site) -> None:
    """A result is shared by all who may read its tables, and by nobody else, at each statement."""
    with site.connect("ann", database="sky") as ann, site.connect("bob", database="sky") as bob:
        rows = ask_by(ann, SUM)
        first, _ = origin(site.server, SUM, "ann", PASSWORD)
        assert ask_by(bob, SUM) == rows
        assert origin(site.server, SUM, "bob", PASSWORD)[1] == first
        must(site.meridian, site.data, "revoke", "bob", "--read", "sky")
        must(site.meridian, site.data, "grant", "bob", "--read", "sky.Band")
        assert number_of_error(lambda: ask_by(bob, SUM)) in (1142, 1044)
        assert number_of_error(lambda: ask_by(bob, f"SUBMIT {SUM}")) in (1142, 1044)
        assert ask_by(ann, SUM) == rows
        must(site.meridian, site.data, "grant", "bob", "--read", "sky")
        assert ask_by(bob, SUM) == rows


def test_limits_of_rows_hold_for_results_of_others(site: Site) -> None:
    """Bob may have fewer rows than the result that Ann has got."""
    statement = "SELECT id FROM Star WHERE `dec` < 70 ORDER BY id"
    with site.connect("ann", database="sky") as ann:
        rows = ask_by(ann, statement)
    must(site.meridian, site.data, "limit", "bob", "--rows", 10)
    try:
        with site.connect("bob", database="sky") as bob:
            assert number_of_error(lambda: ask_by(bob, statement)) == 1226
            number = ask_by(bob, f"SUBMIT {statement}")[0][0]
            failed = "SELECT STATE, ERROR_CODE FROM information_schema.QUERIES WHERE ID = "
            wait_until(lambda: ask_by(bob, f"{failed}{number}") == [("FAILED", 1226)], 30, "it fails")
    finally:
        must(site.meridian, site.data, "limit", "bob", "--rows", "none")
    with site.connect("bob", database="sky") as bob:
        assert ask_by(bob, statement) == rows


def test_tables_of_ones_own_count_by_their_state(site: Site) -> None:
    """After each change the statement sees what there is."""
    with site.connect("ann", database="sky") as ann:
        statement = "SELECT COUNT(*), SUM(s.id) FROM ann.mine m JOIN Star s ON m.id = s.id"

        def seen() -> tuple[int, ...]:
            first, second = ask_by(ann, statement), ask_by(ann, statement)
            assert first == second
            return tuple(int(str(value or 0)) for value in first[0])

        ask_by(ann, "CREATE TABLE ann.mine AS SELECT id, version FROM Star WHERE id < 10")
        try:
            assert seen() == (10, 45)
            ask_by(ann, "INSERT INTO ann.mine SELECT id, version FROM Star WHERE id BETWEEN 10 AND 19")
            assert seen() == (20, 190)
            ask_by(ann, "DELETE FROM ann.mine WHERE id >= 5")
            assert seen() == (5, 10)
            ask_by(ann, "UPDATE ann.mine SET id = id + 1")
            assert seen() == (5, 15)
            ask_by(ann, "DROP TABLE ann.mine")
            assert number_of_error(lambda: ask_by(ann, statement)) == 1146
            ask_by(ann, "CREATE TABLE ann.mine AS SELECT id, version FROM Star WHERE id < 3")
            assert seen() == (3, 3)
        finally:
            ask_by(ann, "DROP TABLE IF EXISTS ann.mine")


def submit(server: Server, statement: str) -> int:
    number = execute(server, f"SUBMIT {statement}")[0][0]
    assert isinstance(number, int)
    return number


def submitted(server: Server, statement: str) -> tuple[list[tuple[object, ...]], int, int | None]:
    """The same as [`asked`] of a statement that is submitted."""
    number = submit(server, statement)
    wait_until(lambda: state(server, number) in ENDED, 60, "it ends")
    assert state(server, number) == "COMPLETED"
    [(cached,)] = execute(server, f"SELECT CACHED_FROM FROM information_schema.QUERIES WHERE ID = {number}")
    return execute(server, f"SELECT * FROM qserv_result({number})"), number, cached  # type: ignore[return-value]


def test_stored_results_answer_statements(server: Server) -> None:
    """Submitted ones and those of connections, each the other's. What is removed answers no more."""
    statement = "SELECT id, ra FROM Star WHERE `dec` BETWEEN -40 AND 70 ORDER BY ra"
    rows, first, cached = submitted(server, statement)
    assert cached is None
    again, second, cached = submitted(server, statement)
    assert (again, cached) == (rows, first)
    assert asked(server, statement)[::2] == (rows, first)
    # Each has its own copy.
    remove(server, first)
    assert execute(server, f"SELECT * FROM qserv_result({second})") == rows
    again, third, cached = asked(server, statement)
    assert again == rows and cached is None, "a removed result answers"
    # That one had a plan from the plan cache, which notes that the text is worth it.
    again, fourth, cached = asked(server, statement)
    assert again == rows and cached in (None, third)
    again, _, cached = submitted(server, statement)
    assert again == rows and cached in (third, fourth)
    aborted = submit(server, "SELECT SUM(a.id) FROM Star a, Star b, Star c")
    wait_until(lambda: state(server, aborted) == "EXECUTING", 20, "it runs")
    execute(server, f"CANCEL {aborted}")


def remove(server: Server, number: int) -> None:
    request = urllib.request.Request(server.url(f"/queries/{number}/result", user="ann"), method="DELETE")
    with urllib.request.urlopen(request) as response:
        assert response.status in (200, 204)


def test_expired_results_answer_nothing(meridian: Meridian, data: Path) -> None:
    """A result is kept for two seconds here."""
    with serving(meridian, data, "--result-cache", 0, "--keep-results", 2 / 86_400) as server:
        rows, first, _ = submitted(server, SUM)
        time.sleep(2.5)
        again, _, cached = asked(server, SUM)
        assert again == rows and cached != first


def test_what_was_cut_short_is_not_kept(server: Server) -> None:
    """Of a client that goes away, that is stopped, and of a statement that fails."""
    large = "SELECT a.id, b.id, a.ra FROM Star a, Star b WHERE a.version = b.version AND a.id < 2000"
    with server.connect(database="sky", user="gone") as connection:
        connection._execute_command(pymysql.constants.COMMAND.COM_QUERY, large)  # type: ignore[attr-defined]
    with server.connect(database="sky", user="ann", cursorclass=pymysql.cursors.SSCursor) as connection:
        cursor = connection.cursor()
        cursor.execute(large)
        cursor.fetchmany(5)
        execute(server, f"KILL QUERY {connection.thread_id()}")
        with pytest.raises(pymysql.MySQLError):
            while cursor.fetchmany(10_000):
                pass
    count = f"SELECT COUNT(*) FROM ({large}) x"
    assert execute(server, count) == [(2000 * STARS,)]
    fails = "SELECT SUM(9223372036854775807 - id + version) + SUM(id * 4611686018427387904) FROM Star"
    numbers = {number_of_error(lambda: execute(server, fails)) for _ in range(3)}
    assert len(numbers) == 1


def test_large_results_are_not_kept_in_memory(server: Server) -> None:
    """Each time all rows come, and the statement runs."""
    large = "SELECT a.id AS i, b.id AS j, a.ra, b.ra AS r FROM Star a, Star b WHERE a.version = b.version AND a.id < 100"
    for _ in range(3):
        rows, _, cached = asked(server, large)
        assert len(rows) == 100 * STARS and cached is None


def test_warnings_come_again(server: Server) -> None:
    """An answer from the cache has the warnings of the statement."""
    statement = "SELECT COUNT(*), SUM(ra) FROM Star WHERE id > 'abc'"
    with server.connect(database="sky", user="ann") as connection:
        seen = []
        for _ in range(3):
            rows = ask_by(connection, statement)
            seen.append((rows, ask_by(connection, "SHOW WARNINGS")))
    assert seen[0] == seen[1] == seen[2]


def test_many_at_once_while_the_table_changes(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Counts never go back: an answer is never older than one that was given before it was asked."""
    statement = "SELECT COUNT(*) FROM Star WHERE `dec` < 91"
    with serving(meridian, data, "--result-cache", 0) as server:
        over = threading.Event()
        wrong: list[str] = []

        def watch() -> None:
            last = 0
            with server.connect(database="sky", user="ann") as connection:
                while not over.is_set():
                    [(count,)] = ask_by(connection, statement)
                    if int(str(count)) < last:
                        wrong.append(f"{count} after {last}")
                    last = int(str(count))

        threads = [threading.Thread(target=watch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(6):
            lines = [f"{1_000_000 + n},10,10,1"]
            meridian.load(data, "sky", "Star", write_lines(tmp_path / "more.csv", lines, "id,ra,dec,version"), append=True)
            [(count,)] = execute(server, statement)
            assert count == STARS + n + 1
        over.set()
        for thread in threads:
            thread.join()
        assert not wrong, wrong


def test_short_statements_are_not_kept_and_none_where_it_is_off(meridian: Meridian, data: Path) -> None:
    """A statement has to take a second."""
    slow = "SELECT COUNT(*), SUM(a.ra * b.ra) FROM Star a, Star b WHERE a.ra + b.ra > 1 AND a.id < 2500"
    for options in (("--result-cache", 1), ("--result-cache", "off")):
        with serving(meridian, data, *options) as server:
            for _ in range(3):
                assert asked(server, SUM)[2] is None
            if "off" in options:
                for _ in range(3):
                    assert asked(server, slow)[2] is None
    with serving(meridian, data, "--result-cache", "0.05") as server:
        # Whatever it was expected to take: from the third time on at the latest.
        rows = [asked(server, slow) for _ in range(3)]
        assert rows[2][2] is not None and rows[0][0] == rows[2][0]
