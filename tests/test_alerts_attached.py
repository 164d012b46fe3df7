"""Alert databases that follow another one, of the field's own software: users' tables are the tables there, whatever happens there."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import AlertDatabase, AlertError, Conflict  # noqa: E402

import private_postgres  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import SOON, Server, serving, wait_until  # noqa: E402
from test_alerts_published import SCHEMA, execute, check  # noqa: E402

SEEDS = [int(seed) for seed in os.environ.get("MERIDIAN_ATTACHED_SEEDS", "1,2").split(",")]
KILLS = int(os.environ.get("MERIDIAN_ATTACHED_KILLS", "3"))
LEVEL1 = ROOT / ".venv" / "level1" / "bin" / "python"
# A server looks every ten seconds, and publishes as often.
FOLLOWED = 6 * SOON

# Columns of the types that the schema of the other tests lacks.
MORE_COLUMNS = """\
  - {name: band, datatype: string, length: 8, nullable: true, description: Band.}
  - {name: seen, datatype: timestamp, nullable: true, description: When it was seen.}
  - {name: stamp, datatype: binary, length: 100, nullable: true, description: Image.}
"""
OBJECTS = ["diaObjectId", "validityStartMjdTai", "validityEndMjdTai", "ra", "dec", "parallax", "firstDiaSourceMjdTai", "nDiaSources"]
LATEST = ["diaObjectId", "validityStartMjdTai", "ra", "dec", "firstDiaSourceMjdTai", "nDiaSources"]
SOURCES = [
    "diaSourceId",
    "visit",
    "detector",
    "diaObjectId",
    "ssObjectId",
    "parentDiaSourceId",
    "ssObjectReassocTimeMjdTai",
    "midpointMjdTai",
    "ra",
    "dec",
    "centroid_flag",
    "timeProcessedMjdTai",
    "timeWithdrawnMjdTai",
    "band",
    "seen",
    "stamp",
]
FORCED = ["diaObjectId", "visit", "detector", "ra", "dec", "midpointMjdTai", "flags", "timeProcessedMjdTai", "timeWithdrawnMjdTai"]
TABLES = {"DiaObject": OBJECTS, "DiaObjectLast": LATEST, "DiaSource": SOURCES, "DiaForcedSource": FORCED}

State = dict[str, list[tuple[Any, ...]]]


class Observatory:
    """A database of the field's software, with a pipeline that stores into it."""

    def __init__(self, url: str, schema: Path, seed: int, read: Callable[[str], list[tuple[Any, ...]]], namespace: str | None = None) -> None:
        assert LEVEL1.exists(), "scripts/setup level1 postgres installs the field's software"
        command = [str(LEVEL1), str(ROOT / "tests" / "level1" / "pipeline.py"), url, str(schema), str(seed)]
        self.process = subprocess.Popen(
            [*command, namespace] if namespace else command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = url
        self.read = read
        assert self.reply() == "ready"

    def reply(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the pipeline has ended"
        return json.loads(line)

    def do(self, *words: Any) -> Any:
        """Has the pipeline do something."""
        assert self.process.stdin is not None
        print(json.dumps(words), file=self.process.stdin, flush=True)
        return self.reply()

    def state(self) -> State:
        """The rows of its tables, by plain SQL."""
        found = {}
        for table, columns in TABLES.items():
            named = ", ".join(f'"{column}"' for column in columns)
            of = {"DiaObjectLast": '"DiaObject"'}.get(table, f'"{table}"')
            where = ' WHERE "validityEndMjdTai" IS NULL' if table == "DiaObjectLast" else ""
            found[table] = sorted((plain(row) for row in self.read(f"SELECT {named} FROM {of}{where}")), key=repr)
        return found

    def stop(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values as both sides can have them: SQLite has texts for times, and MySQL's protocol numbers for true and false."""
    return tuple(plain_value(value) for value in row)


def plain_value(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, str) and len(value) == 26 and value[10] == " ":
        return datetime.datetime.fromisoformat(value)
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """The schema of the field's tests, with more columns."""
    text = SCHEMA.read_text()
    end = '  primaryKey: "#DiaSource.diaSourceId"'
    assert end in text
    path = tmp_path / "apdb.yaml"
    path.write_text(text.replace(end, MORE_COLUMNS + end))
    return path


@contextmanager
def observatory(directory: Path, schema: Path, seed: int) -> Iterator[Observatory]:
    path = directory / "apdb.db"

    def read(query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return list(connection.execute(query))

    it = Observatory(f"sqlite:///{path}", schema, seed, read)
    try:
        yield it
    finally:
        it.stop()


@contextmanager
def observatory_in_postgres(schema: Path, seed: int) -> Iterator[Observatory]:
    """In a schema of its own; gives its tables through the pipeline's connection."""
    with private_postgres.private_postgres() as url:
        # The field's configurations name the driver.
        there = Observatory(url.replace("postgres://", "postgresql+psycopg2://"), schema, seed, lambda query: rows_there(there, query), "apdb")
        try:
            yield there
        finally:
            there.stop()


def rows_there(there: Observatory, query: str) -> list[tuple[Any, ...]]:
    found = there.do("read", query.replace(' FROM "', ' FROM apdb."'))
    return [tuple(bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for value in row) for row in found]


def attach(meridian: Meridian, data: Path, there: Observatory, schema: Path, *options: object) -> str:
    return meridian.must("alerts", "attach", "prompt", "--from", there.url, "--schema", schema, "--data", data, *options).text


def published(connection: pymysql.connections.Connection) -> State:
    found = {}
    for table, columns in TABLES.items():
        named = ", ".join(f"`{column}`" for column in columns)
        found[table] = sorted((plain(row) for row in execute(connection, f"SELECT {named} FROM {table}")), key=repr)
    return found


def assert_same(server: Server, wanted: State) -> None:
    with server.connect(database="prompt") as connection:
        found = published(connection)
    for table, rows in wanted.items():
        assert found[table] == rows, table


def follow(server: Server, there: Observatory) -> State:
    """Follows and publishes, and compares; gives what there was."""
    client = AlertDatabase(server.url(""), "prompt")
    client.follow()
    wanted = there.state()
    give_up = time.monotonic() + 30
    while True:
        client.publish()
        try:
            assert_same(server, wanted)
            return wanted
        except (AssertionError, pymysql.err.OperationalError):
            # The server follows by itself, too, and publishes nothing while it is at it.
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)


@pytest.mark.parametrize("seed", SEEDS)
def test_users_see_the_tables_that_are_followed(meridian: Meridian, tmp_path: Path, schema: Path, seed: int) -> None:
    """After each night, and as of each of them later; versions that come late and chunks that are deleted among it."""
    data = tmp_path / "data"
    with observatory(tmp_path, schema, seed) as there:
        there.do("change", 30)
        attach(meridian, data, there, schema)
        with serving(meridian, data) as server:
            follow_nights(meridian, data, server, there)


@pytest.mark.skipif(private_postgres.binaries() is None, reason="there is no PostgreSQL here")
def test_users_see_the_tables_that_are_followed_in_postgres(meridian: Meridian, tmp_path: Path, schema: Path) -> None:
    """There in PostgreSQL and here in a file, and both in PostgreSQL."""
    with observatory_in_postgres(schema, 11) as there:
        there.do("change", 30)
        data = tmp_path / "data"
        told = attach(meridian, data, there, schema, "--schema-name", "apdb")
        assert "follows postgres://tester@127.0.0.1" in told
        with serving(meridian, data) as server:
            follow_nights(meridian, data, server, there, 2)
        other = tmp_path / "other"
        attach(meridian, other, there, schema, "--schema-name", "apdb", "--postgres", there.url.replace("+psycopg2", ""))
        with serving(meridian, other) as server:
            follow_nights(meridian, other, server, there, 1)
        wrong = meridian.run("alerts", "attach", "wrong", "--from", there.url, "--schema", schema, "--data", data)
        assert wrong.status != 0 and "has no table ApdbReplicaChunks" in wrong.complaint


def follow_nights(meridian: Meridian, data: Path, server: Server, there: Observatory, nights: int = 4) -> None:
    client = AlertDatabase(server.url(""), "prompt")
    history = []
    for night in range(nights):
        wanted = follow(server, there)
        with server.connect(database="prompt") as connection:
            [[at]] = execute(connection, "SELECT CAST(MAX(publishedAt) AS CHAR) FROM Edition")
        history.append((at, wanted))
        assert client.publish() == []
        assert client.follow() == {"replica_chunks": 0, "rows": 0}
        assert client.publish() == [], "what has not changed is no edition"
        there.do("change", 25)
        if night == 0:
            there.do("store_late", 1.0)
        if night == nights - 2:
            # What is there is read: chunks are needed no more.
            follow(server, there)
            assert there.do("delete_chunks", 1)
            there.do("change", 10)
    # No replica chunk tells of objects of the solar system, whose times may also come late.
    there.do("pass_time", 3.0)
    there.do("to_solar_system")
    follow(server, there)
    there.do("pass_time", -2.5)
    there.do("to_solar_system")
    there.do("pass_time", 2.5)
    follow(server, there)
    with server.connect(database="prompt") as connection:
        for at, wanted in reversed(history):
            execute(connection, f"SET meridian_as_of = '{at}'")
            assert published(connection) == wanted
        execute(connection, "SET meridian_as_of = ''")
        wanted = there.state()
        meridian.must("compact", "--data", data, "--db", "prompt", "--all")
        assert published(connection) == wanted
        # Objects have one home each.
        assert execute(connection, "SELECT COUNT(*), COUNT(DISTINCT diaObjectId) FROM DiaObjectHome")[0] == (
            len({row[0] for row in wanted["DiaObject"]}),
        ) * 2
    check(meridian, data)


def test_nobody_else_stores_into_it(meridian: Meridian, tmp_path: Path, schema: Path) -> None:
    data = tmp_path / "data"
    with observatory(tmp_path, schema, 3) as there:
        there.do("change", 10)
        attach(meridian, data, there, schema)
        with serving(meridian, data) as server:
            wanted = follow(server, there)
            client = AlertDatabase(server.url(""), "prompt")
            source = wanted["DiaSource"][0][0]
            for change in (
                lambda: client.store(61000.0, objects=None, sources=None, forced_sources=None, request="a"),
                lambda: client.withdraw_sources([source], withdrawn=61000.0, time=61000.0),
                lambda: client.reassign_to_solar_system({source: 1}, time=61000.0),
                lambda: client.close_objects([1000], validity_end=61000.0, time=61000.0),
                lambda: client.set_metadata("config:keep_nights", "0"),
                client.replica_chunks,
            ):
                with pytest.raises(Conflict, match="follows|rows of another"):
                    change()
            # Pipelines read it as any other.
            visit, detector = wanted["DiaSource"][0][1:3]
            assert client.contains(visit, detector)
            owner = next(row[0] for row in wanted["DiaObjectLast"])
            assert client.sources(objects=[owner], since=0.0).num_rows == sum(
                row[3] == owner and row[4] is None for row in wanted["DiaSource"]
            )
            assert_same(server, wanted)


def test_a_server_follows_by_itself(meridian: Meridian, tmp_path: Path, schema: Path) -> None:
    """Also when it is killed again and again, and the database there cannot be reached for a while."""
    data = tmp_path / "data"
    with observatory(tmp_path, schema, 4) as there:
        there.do("change", 200)
        attach(meridian, data, there, schema)
        for kill in range(KILLS):
            server = Server(meridian, data)
            client = AlertDatabase(server.url(""), "prompt")
            wait_until(lambda: (tmp_path / "data" / "alerts" / "prompt" / "following.json").exists() or kill == 0, FOLLOWED, "follows")
            there.do("change", 20)
            # In the middle of following, wherever that is.
            try:
                if kill % 2:
                    client.follow()
            finally:
                server.stop(signal.SIGKILL)
        with serving(meridian, data) as server:
            wanted = there.state()

            def is_same() -> bool:
                with server.connect() as connection:
                    try:
                        execute(connection, "USE prompt")
                        return published(connection) == wanted
                    except pymysql.err.MySQLError:
                        return False

            wait_until(is_same, FOLLOWED, "the tables are those that are followed")
            # The next time because a replica chunk is new.
            there.do("change", 10)
            there.do("pass_time", 1.0)
            there.do("store")
            wanted = there.state()
            wait_until(is_same, FOLLOWED, "the tables are those that are followed")
            away = tmp_path / "away.db"
            (tmp_path / "apdb.db").rename(away)
            client = AlertDatabase(server.url(""), "prompt")
            with pytest.raises(AlertError, match="there is no file"):
                client.follow()
            assert "there is no file" in client.describe()["follows"]["error"]
            assert 'meridian_alerts_following_failed{database="prompt"} 1' in metrics(server)
            listed = meridian.must("alerts", "list", "--data", data).text
            assert "there is no file" in listed and "follows sqlite:///" in listed
            away.rename(tmp_path / "apdb.db")
            there.do("change", 5)
            follow(server, there)
            assert client.describe()["follows"]["error"] is None
            works = 'meridian_alerts_following_failed{database="prompt"} 0'
            wait_until(lambda: works in metrics(server), FOLLOWED, "following works")
        # Each row and each change once.
        check(meridian, data)


def metrics(server: Server) -> str:
    from urllib.request import urlopen

    with urlopen(server.url("/metrics")) as response:
        return str(response.read().decode())


def test_chunks_that_were_deleted_too_early(meridian: Meridian, tmp_path: Path, schema: Path) -> None:
    """Rows of no chunk are missed, told of, and published only when all of them are read."""
    data = tmp_path / "data"
    with observatory(tmp_path, schema, 5) as there:
        there.do("change", 20)
        there.do("delete_chunks", 2)
        there.do("change", 5)
        attach(meridian, data, there, schema)
        # The first time all rows are read, whatever their chunks.
        meridian.must("alerts", "follow", "prompt", "--data", data)
        meridian.must("alerts", "publish", "prompt", "--data", data)
        with serving(meridian, data) as server:
            before = there.state()
            assert_same(server, before)
        # While no server reads them.
        for _ in range(6):
            there.do("store")
            there.do("pass_time", 1.0)
        there.do("delete_chunks", 1)
        with serving(meridian, data) as server:
            client = AlertDatabase(server.url(""), "prompt")
            for _ in range(2):
                with pytest.raises(AlertError, match="of no replica chunk that could be read.*--all"):
                    client.follow()
            client.publish()
            assert_same(server, before)
            assert 'meridian_alerts_following_failed{database="prompt"} 1' in metrics(server)
            assert "of no replica chunk" in meridian.must("alerts", "list", "--data", data).text
        told = meridian.must("alerts", "follow", "prompt", "--all", "--data", data).text
        assert "new rows" in told
        meridian.must("alerts", "publish", "prompt", "--data", data)
        with serving(meridian, data) as server:
            assert_same(server, there.state())
            client = AlertDatabase(server.url(""), "prompt")
            assert client.follow(all_rows=True)["rows"] == 0
            assert client.publish() == []
            # Rows that are gone there are not followed.
            with closing(sqlite3.connect(tmp_path / "apdb.db", timeout=600)) as file:
                file.execute("DELETE FROM DiaForcedSource WHERE rowid = (SELECT MIN(rowid) FROM DiaForcedSource)")
                file.commit()
            with pytest.raises(AlertError, match="rows were removed there"):
                client.follow()


def test_schemas_that_differ(meridian: Meridian, tmp_path: Path, schema: Path) -> None:
    data = tmp_path / "data"
    with observatory(tmp_path, schema, 6) as there:
        there.do("change", 10)
        fewer = tmp_path / "fewer.yaml"
        text = "".join(line for line in schema.read_text().splitlines(keepends=True) if "name: band" not in line)
        fewer.write_text(text.replace("name: stamp,", "name: picture,"))
        told = attach(meridian, data, there, fewer)
        for words in (
            "DiaSource.band is not in the schema here, and left out",
            "DiaSource.stamp is not in the schema here, and left out",
            "DiaSource.picture is not there, and NULL here",
        ):
            assert words in told, told
        assert "pixelId" not in told
        meridian.must("alerts", "follow", "prompt", "--data", data)
        meridian.must("alerts", "publish", "prompt", "--data", data)
        assert "DiaSource.band" in meridian.must("alerts", "list", "--data", data).text
        rows = meridian.rows(data, "prompt", 'SELECT COUNT(*) AS "n", COUNT("picture") AS "m" FROM "DiaSource"')
        assert rows == [(len(there.state()["DiaSource"]), 0)]
        strict = tmp_path / "strict.yaml"
        strict.write_text(text.replace("{name: stamp, datatype: binary, length: 100, nullable: true", "{name: must, datatype: int, nullable: false"))
        refused = meridian.run("alerts", "attach", "other", "--from", there.url, "--schema", strict, "--data", data)
        assert refused.status != 0 and "has no column must" in refused.complaint


def test_what_cannot_be_attached(meridian: Meridian, tmp_path: Path, schema: Path) -> None:
    data, empty = tmp_path / "data", tmp_path / "empty.db"
    with closing(sqlite3.connect(empty)) as file:
        file.execute("CREATE TABLE DiaObject (a INTEGER)")
        file.commit()
    for url, words in (
        (f"sqlite:///{tmp_path}/none.db", "there is no file"),
        (f"sqlite:///{empty}", "has no table ApdbReplicaChunks"),
        (f"sqlite:///{schema}", "not a database"),
        ("mysql://ann:secret@localhost/apdb", "sqlite:///PATH or postgres://"),
        ("postgres://ann:secret@127.0.0.1:1/apdb", "refused"),
    ):
        refused = meridian.run("alerts", "attach", "prompt", "--from", url, "--schema", schema, "--data", data)
        assert refused.status != 0 and words in refused.complaint, refused.complaint
        assert "secret" not in refused.complaint
    assert not (data / "alerts" / "prompt" / "config.json").exists()
    unknown = meridian.run("alerts", "detach", "prompt", "--data", data)
    assert unknown.status != 0 and "there is no alert database prompt" in unknown.complaint


def test_detached(meridian: Meridian, tmp_path: Path, schema: Path) -> None:
    """What was published stays, and nothing is read any more."""
    data = tmp_path / "data"
    with observatory(tmp_path, schema, 7) as there:
        there.do("change", 15)
        attach(meridian, data, there, schema)
        with serving(meridian, data) as server:
            wanted = follow(server, there)
            client = AlertDatabase(server.url(""), "prompt")
            told = meridian.must("alerts", "detach", "prompt", "--data", data).text
            assert "does not follow sqlite:///" in told
            with pytest.raises(Conflict, match="follows no other one"):
                client.follow()
            there.do("change", 15)
            client.publish()
            assert_same(server, wanted)
            with pytest.raises(Conflict, match="pipelines store into that one"):
                client.withdraw_sources([wanted["DiaSource"][0][0]], withdrawn=61000.0, time=61000.0)
            assert client.describe()["follows"] is None
        assert "detached" in meridian.must("alerts", "list", "--data", data).text
        again = meridian.run("alerts", "detach", "prompt", "--data", data)
        assert again.status != 0 and "follows no other one" in again.complaint
