"""A data directory whose catalog is in PostgreSQL: every command as with SQLite, copies there and back, and two front ends over one."""

from __future__ import annotations

import signal
from itertools import count
from pathlib import Path

import pymysql
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, load_arguments
from serving import Server, serving, wait_until
from small_tables import CHILD, DIRECTOR, chunk_files, count_of, star_lines, write_lines, write_stars
from test_users import PASSWORD, must

SECONDS = 60
SCHEMAS = (f"archive_{number}" for number in count())
STATE = "SELECT count(*), min(version), max(version), sum(id) FROM Star"


def state(rows: int, version: int) -> tuple[object, ...]:
    """What STATE gives for a whole table."""
    return (rows, version, version, rows * (rows - 1) // 2)


@pytest.fixture
def data(meridian: Meridian, postgres: str, tmp_path: Path) -> Path:
    """A new data directory, with a schema of its own."""
    data = tmp_path / "data"
    said = meridian.must("catalog", "init", "--data", data, "--catalog", postgres, "--schema", next(SCHEMAS))
    assert "(schema archive_" in said.text
    return data


def test_every_command_finds_the_catalog(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "a.csv", 1500), **DIRECTOR)
    more = write_lines(tmp_path / "b.csv", [f"{n},{n % 360},{n % 80},1" for n in range(1500, 2000)])
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Star", "--append", more)
    spots = write_lines(tmp_path / "Spot.csv", [f"{n},{n % 2000},{n}" for n in range(3000)], header="spot,id,flux")
    meridian.load(data, "sky", "Spot", spots, **CHILD)
    assert meridian.rows(data, "sky", STATE) == [state(2000, 1)]
    assert meridian.rows(data, "sky", "SELECT count(*) FROM Star s JOIN Spot p ON s.id = p.id WHERE s.version = 1") == [(3000,)]
    assert "Spot" in meridian.must("tables", "--data", data).text
    meridian.must("view", "create", "--data", data, "--db", "sky", "--name", "north", "SELECT id FROM sky.Star WHERE `dec` > 0")
    assert "north" in meridian.must("view", "list", "--data", data).text
    meridian.must("compact", "--data", data, "--all", "--quiet")
    assert meridian.rows(data, "sky", STATE) == [state(2000, 1)]
    meridian.must("check", "--data", data)
    assert_rejected(meridian.run("drop", "table", "--data", data, "--db", "sky", "--table", "Star", "--yes"), "Spot")
    meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Spot", "--yes")
    assert_rejected(meridian.run("sql", "--data", data, "--db", "sky", "SELECT count(*) FROM Spot"), "Spot")
    assert {path.parts[-3] for path in chunk_files(data)} == {"sky.star"}
    # A backup has the catalog in a file, with which it is restored.
    meridian.must("backup", "--data", data, tmp_path / "backups")
    meridian.must("restore", tmp_path / "backups", "--data", tmp_path / "restored")
    assert meridian.rows(tmp_path / "restored", "sky", STATE) == [state(2000, 1)]
    meridian.must("drop", "database", "--data", data, "--db", "sky", "--yes")
    assert not chunk_files(data)
    assert not list(data.glob("meridian.sqlite*"))


@pytest.mark.parametrize("phase", ["begun", "chunks-written", "before-publish", "after-publish"])
def test_a_killed_load_leaves_the_old_table_or_the_new_one(meridian: Meridian, data: Path, tmp_path: Path, phase: str) -> None:
    old, new = write_stars(tmp_path / "old.csv", 300, 1), write_stars(tmp_path / "new.csv", 500, 2)
    meridian.load(data, "sky", "Star", old, **DIRECTOR)
    arguments = load_arguments(data, "sky", "Star", new, replace=True, **DIRECTOR)
    assert meridian.run(*arguments, env={"MERIDIAN_FAULT": f"{phase}:kill"}).status == -signal.SIGKILL
    expected = state(500, 2) if phase == "after-publish" else state(300, 1)
    assert meridian.rows(data, "sky", STATE) == [expected]
    meridian.must("check", "--data", data)

    # PostgreSQL releases the lock when it finds the session gone.
    def loads_again() -> bool:
        again = meridian.run(*arguments)
        assert again.status == 0 or "is being loaded by" in again.complaint, again.complaint
        return again.status == 0

    wait_until(loads_again, SECONDS, "the killed load's lock is released")
    assert meridian.rows(data, "sky", STATE) == [state(500, 2)]
    assert len({path.parent for path in chunk_files(data)}) == 1


def test_a_catalog_is_copied_there_and_back(meridian: Meridian, postgres: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "a.csv", 400), **DIRECTOR)
    to_postgres = ["catalog", "copy", "--data", data, "--to", postgres, "--schema", next(SCHEMAS)]
    with serving(meridian, data):
        assert_rejected(meridian.run(*to_postgres), "is open")
    assert "compared with the original" in meridian.must(*to_postgres).text
    assert "postgres://" in meridian.must("catalog", "show", "--data", data).text
    assert_rejected(meridian.run(*to_postgres), "already")
    assert meridian.rows(data, "sky", STATE) == [state(400, 1)]
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "b.csv", 500, 2), replace=True, **DIRECTOR)
    meridian.must("check", "--data", data)
    with serving(meridian, data):
        assert_rejected(meridian.run("catalog", "copy", "--data", data, "--to", "sqlite"), "is open")
    meridian.must("catalog", "copy", "--data", data, "--to", "sqlite")
    assert "meridian.sqlite" in meridian.must("catalog", "show", "--data", data).text
    assert meridian.rows(data, "sky", STATE) == [state(500, 2)]
    meridian.must("check", "--data", data)


def test_passwords_are_not_taken_where_others_see_them(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    for url in ["postgres://me:secret@127.0.0.1:1/x", "postgres://me@127.0.0.1:1/x?password=secret"]:
        refused = meridian.run("catalog", "init", "--data", tmp_path / "new", "--catalog", url)
        assert_rejected(refused, "--password-file")
        assert "secret" not in refused.complaint
    nowhere = meridian.run("catalog", "init", "--data", tmp_path / "new", "--catalog", "postgres://me@127.0.0.1:1/x")
    assert_rejected(nowhere, "cannot be reached")
    assert_rejected(meridian.run("catalog", "init", "--data", data, "--catalog", "postgres://me@127.0.0.1:1/x"), "already")


# --- two front ends -------------------------------------------------------------------------------------------------------------------


def found(server: Server, statement: str, user: str = "tester", password: str = "") -> object:
    """The only value of a result, or the number of the error."""
    try:
        with server.connect(user=user, password=password) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            (value,) = cursor.fetchone() or (None,)
            return value
    except pymysql.err.MySQLError as error:
        return ("error", error.args[0])


def wait_for(server: Server, statement: str, expected: object, **who: str) -> None:
    wait_until(lambda: found(server, statement, **who) == expected, SECONDS, f"{statement} gives {expected}")


def test_each_front_end_sees_what_is_published(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """The same statement again and again, so that its plan would be kept."""
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "a.csv", 300), **DIRECTOR)
    counted = "SELECT COUNT(*) FROM sky.Star"
    with serving(meridian, data) as one, serving(meridian, data) as other:
        for round in range(1, 4):
            for server in (one, other):
                wait_for(server, counted, 300 * round)
            first = 300 * round
            more = write_lines(tmp_path / f"{round}.csv", [f"{n},{n % 360},0,1" for n in range(first, first + 300)])
            meridian.must("load", "--data", data, "--db", "sky", "--table", "Star", "--append", more)
        for server in (one, other):
            wait_for(server, counted, 1200)
        meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Star", "--yes")
        for server in (one, other):
            wait_for(server, counted, ("error", 1146))


def test_files_stay_while_a_front_end_reads_them(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    lines = [f"{line},{'x' * 200}" for line in star_lines(60_000, 1)]
    wide = write_lines(tmp_path / "a.csv", lines, header="id,ra,dec,version,padding")
    meridian.load(data, "sky", "Star", wide, **DIRECTOR)
    meridian.load(data, "sky", "Band", write_lines(tmp_path / "b.csv", ["1,g"], "id,name"), kind="replicated")
    with serving(meridian, data) as one, serving(meridian, data) as other:
        with other.connect() as connection, connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute("SELECT id, padding FROM sky.Star")
            ids = [cursor.fetchone()[0]]
            meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Star", "--yes")
            wait_for(one, "SELECT COUNT(*) FROM sky.Star", ("error", 1146))
            assert [path for path in chunk_files(data) if path.parts[-3] == "sky.star"]
            ids += [row[0] for row in cursor]
        assert sorted(ids) == list(range(60_000))

    # With the last reader the files may go.
    meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Band", "--yes")
    assert not chunk_files(data)


def test_a_front_end_that_is_killed_keeps_nothing(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "a.csv", 300), **DIRECTOR)
    server = Server(meridian, data)
    wait_for(server, "SELECT COUNT(*) FROM sky.Star", 300)
    server.stop(signal.SIGKILL)
    meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Star", "--yes")
    assert not chunk_files(data)


def test_users_and_their_tables_are_the_same_at_both(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "a.csv", 300), **DIRECTOR)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    with serving(meridian, data) as one, serving(meridian, data) as other:
        boss = {"user": "boss", "password": PASSWORD}
        ann = {"user": "ann", "password": PASSWORD}
        with one.connect(**boss) as connection:
            # The password is doubled where it has a quote.
            literal = PASSWORD.replace("'", "''")
            connection.cursor().execute(f"CREATE USER ann IDENTIFIED BY '{literal}'")
            connection.cursor().execute("GRANT SELECT ON sky.* TO ann")
        wait_for(other, "SELECT COUNT(*) FROM sky.Star", 300, **ann)
        with one.connect(**ann) as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE TABLE ann.near AS SELECT id, ra FROM sky.Star WHERE id < 50")
            # Who has made a table reads it at once.
            cursor.execute("SELECT COUNT(*) FROM ann.near")
            assert cursor.fetchone() == (50,)
            wait_for(other, "SELECT COUNT(*) FROM ann.near", 50, **ann)
            for n in range(3):
                cursor.execute(f"INSERT INTO ann.near VALUES ({1000 + n}, 1.5)")
                cursor.execute("SELECT COUNT(*) FROM ann.near")
                assert cursor.fetchone() == (51 + n,)
            wait_for(other, "SELECT COUNT(*) FROM ann.near", 53, **ann)
        with other.connect(**ann) as connection:
            connection.cursor().execute("DROP TABLE ann.near")
        wait_for(one, "SELECT COUNT(*) FROM ann.near", ("error", 1146), **ann)
        with other.connect(**boss) as connection:
            connection.cursor().execute("DROP USER ann")
        wait_for(one, "SELECT 1", ("error", 1045), **ann)
