"""Many connections that insert a row at a time: their rows are stored together, each is durable when it is acknowledged, and the table has few
parts.

MERIDIAN_INSERTS says how many rows each connection inserts.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving, wait_until
from small_tables import load_stars_and_bands
from test_own_tables import rows
from test_users import PASSWORD, Site, must

CONNECTIONS = 20
INSERTS = int(os.environ.get("MERIDIAN_INSERTS", "3"))


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("groups"), 100)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


def at_once(site: Site, work: Callable[[int, pymysql.cursors.Cursor], None]) -> float:
    """Work by many connections; how many seconds it took."""
    failures: list[BaseException] = []
    begin = threading.Barrier(CONNECTIONS + 1)

    def run(number: int) -> None:
        try:
            with site.connect("ann", database="ann") as connection:
                begin.wait()
                work(number, connection.cursor())
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)
            begin.abort()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    begin.wait()
    begun = time.monotonic()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return time.monotonic() - begun


def parts(site: Site, table: str) -> int:
    listed = map(json.loads, site.meridian.must("tables", "--data", site.data, "--format", "json").text.splitlines())
    (found,) = [line["parts"] for line in listed if line["table"] == table and line["kind"] != "held"]
    assert isinstance(found, int)
    return found


def do(site: Site, statement: str) -> None:
    with site.connect("ann", database="ann") as connection:
        connection.cursor().execute(statement)


def read(site: Site, query: str) -> list[tuple[object, ...]]:
    with site.connect("ann", database="ann") as connection:
        return rows(connection, query)


@pytest.mark.parametrize("layout", ["NONE", "CHILD OF sky.Star (id)", "DIRECTOR (id, ra, decl)"])
def test_rows_of_many_connections_are_stored_together(site: Site, layout: str) -> None:
    table = "t_" + layout.split()[0].lower()
    do(site, f"CREATE TABLE {table} (id BIGINT, ra DOUBLE, decl DOUBLE, who INT DEFAULT 7) PARTITION BY {layout}")

    def insert(number: int, cursor: pymysql.cursors.Cursor) -> None:
        for n in range(INSERTS):
            key = number * INSERTS + n
            assert cursor.execute(f"INSERT INTO {table} (id, ra, decl) VALUES ({key}, {key % 360}, {key % 90}.5)") == 1
            # It is there with the answer.
            assert cursor.execute(f"SELECT who FROM {table} WHERE id = {key}") == 1

    seconds = at_once(site, insert)
    count = CONNECTIONS * INSERTS
    print(f"{layout}: {count / seconds:.0f} rows a second, {parts(site, table)} parts")
    assert read(site, f"SELECT COUNT(*), COUNT(DISTINCT id), MIN(who), MAX(who) FROM {table}") == [(count, count, 7, 7)]
    assert parts(site, table) < count / 2
    site.meridian.must("check", "--data", site.data)


def test_a_mistake_is_of_whoever_makes_it(site: Site) -> None:
    """Beside others a key that is there already, and a value that cannot be stored."""
    do(site, "CREATE TABLE d (id BIGINT, ra DOUBLE, decl DOUBLE) PARTITION BY DIRECTOR (id, ra, decl)")
    codes: list[int] = []

    def insert(number: int, cursor: pymysql.cursors.Cursor) -> None:
        for n in range(3):
            # Two connections each have the same keys; a third of the others is outside of the sky.
            key = (number // 2) * 100 + n
            try:
                cursor.execute(f"INSERT INTO d VALUES ({key}, 1, {99 if number % 6 == 5 else 9})")
            except pymysql.err.MySQLError as error:
                codes.append(int(error.args[0]))

    at_once(site, insert)
    assert read(site, "SELECT COUNT(*), COUNT(DISTINCT id), MAX(decl) FROM d") == [(3 * CONNECTIONS // 2, 3 * CONNECTIONS // 2, 9.0)]
    outside = 3 * len([number for number in range(CONNECTIONS) if number % 6 == 5])
    assert sorted(codes) == [1062] * (3 * CONNECTIONS // 2 - outside) + [1264] * outside


def waiting(site: Site) -> int:
    """How many INSERTs of ann's wait or run."""
    ((count,),) = read(site, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO %'")
    assert isinstance(count, int)
    return count


@contextmanager
def held(site: Site, table: str) -> Iterator[None]:
    """Nothing is stored into a table, which has one row, meanwhile: an UPDATE of it does not end."""
    with site.connect("ann", database="ann") as connection:
        number = connection.thread_id()

        def update() -> None:
            with pytest.raises(pymysql.err.OperationalError):
                connection.cursor().execute(f"UPDATE {table} SET id = id WHERE SLEEP(600) = 1")

        thread = threading.Thread(target=update)
        thread.start()
        wait_until(lambda: any("SLEEP" in str(info) for (info,) in read(site, f"SELECT INFO FROM information_schema.PROCESSLIST WHERE ID = {number}")), 60, "the UPDATE runs")
        try:
            yield
        finally:
            do(site, f"KILL QUERY {number}")
            thread.join()


@pytest.mark.parametrize("layout", ["NONE", "CHILD OF sky.Star (id)", "DIRECTOR (id, ra, decl)"])
def test_one_mistake_among_many_that_wait(site: Site, layout: str) -> None:
    """Statements of one, two and three rows are stored at once; of some of them a row cannot be stored, and these leave nothing."""
    kind = layout.split()[0].lower()
    do(site, f"CREATE TABLE m_{kind} (id BIGINT NOT NULL, ra DOUBLE, decl DOUBLE, who INT) PARTITION BY {layout}")
    do(site, f"INSERT INTO m_{kind} VALUES (-1, 1, 1, -1)")
    told: dict[int, int] = {}

    def insert(number: int, cursor: pymysql.cursors.Cursor) -> None:
        # Pairs of connections have one key, and every fifth one that the table has.
        keys = [-1 if number % 5 == 0 else number // 2 * 10, *[number * 10 + 500 + n for n in range(number % 3)]]
        decl = 91 if number == 7 else 9
        try:
            told[number] = cursor.execute(f"INSERT INTO m_{kind} VALUES " + ", ".join(f"({key}, 2, {decl}, {number})" for key in keys))
        except pymysql.err.MySQLError as error:
            told[number] = -int(error.args[0])

    with held(site, f"m_{kind}"):
        thread = threading.Thread(target=at_once, args=(site, insert))
        thread.start()
        wait_until(lambda: waiting(site) == CONNECTIONS, 120, "all wait")
    thread.join()
    rows_of = {number: number % 3 + 1 for number in range(CONNECTIONS)}
    if kind == "director":
        assert {told[number] for number in (0, 5, 10, 15)} == {-1062}
        assert told[7] == -1264
        # Of 2n and 2n + 1 the one that came first has the key, if it is not of those above.
        for n in range(CONNECTIONS // 2):
            both = [number for number in (2 * n, 2 * n + 1) if number % 5 > 0 and number != 7]
            assert sorted(told[number] > 0 for number in both) == [False] * (len(both) - 1) + [True], (n, told)
            assert all(told[number] in (rows_of[number], -1062) for number in both), told
    elif kind == "child":
        # The position of a child's row may be none, and is refused where it is beyond a pole.
        assert told[7] in (2, -1264)
        assert {number: count for number, count in told.items() if number != 7} == {number: count for number, count in rows_of.items() if number != 7}
    else:
        assert told == rows_of
    expected = sorted([(-1, 1), *[(number, count) for number, count in told.items() if count > 0]])
    assert sorted(read(site, f"SELECT who, COUNT(*) FROM m_{kind} GROUP BY who")) == expected
    site.meridian.must("check", "--data", site.data)


def test_keys_of_a_director_are_those_of_its_children(site: Site) -> None:
    """Rows of a director and of its child that come at the same time: whichever is first, they are joined."""
    do(site, "CREATE TABLE o (id BIGINT, ra DOUBLE, decl DOUBLE) PARTITION BY DIRECTOR (id, ra, decl)")
    do(site, "CREATE TABLE s (n BIGINT, o BIGINT, ra DOUBLE, decl DOUBLE) PARTITION BY CHILD OF ann.o (o)")

    def insert(number: int, cursor: pymysql.cursors.Cursor) -> None:
        for n in range(4):
            # The child's rows have positions of their own, elsewhere.
            key = number // 2 * 4 + n
            values = f"o VALUES ({key}, {key * 9}, {key - 40}.5)" if number % 2 else f"s VALUES ({2 * key}, {key}, {key * 5}, 3), ({2 * key + 1}, {key}, {key * 5}, 3)"
            cursor.execute(f"INSERT INTO {values}")

    at_once(site, insert)
    count = 2 * CONNECTIONS
    assert read(site, "SELECT COUNT(*), COUNT(DISTINCT s.n), MIN(ABS(o.ra - s.o * 9)), MAX(ABS(o.ra - s.o * 9)) FROM o JOIN s ON o.id = s.o") == [(2 * count, 2 * count, 0.0, 0.0)]
    assert read(site, "SELECT COUNT(*) FROM s WHERE o NOT IN (SELECT id FROM o)") == [(0,)]
    site.meridian.must("check", "--data", site.data)


def test_columns_that_come_meanwhile(site: Site) -> None:
    """A row has the columns that the table has when it is stored; none is lost or is there twice."""
    do(site, "CREATE TABLE a (id BIGINT)")

    def work(number: int, cursor: pymysql.cursors.Cursor) -> None:
        if number == 0:
            for n in range(3):
                cursor.execute(f"ALTER TABLE a ADD COLUMN c{n} INT DEFAULT {n}")
            return
        for n in range(4):
            cursor.execute(f"INSERT INTO a (id) VALUES ({number * 10 + n})")

    at_once(site, work)
    count = 4 * (CONNECTIONS - 1)
    assert read(site, "SELECT COUNT(*), COUNT(DISTINCT id), MIN(c0), MAX(c1), MIN(c2), MAX(c2) FROM a") == [(count, count, 0, 1, 2, 2)]
