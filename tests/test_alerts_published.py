"""What alert databases publish: users' tables are what was stored and changed, now and as of any time, whatever is merged or killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import AlertDatabase, AlertError, Conflict  # noqa: E402

import private_postgres  # noqa: E402
from alert_model import DEC, PUBLISHED_COLUMNS, Model, separation  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import Server, serving, wait_until  # noqa: E402
from test_users import PASSWORD, must  # noqa: E402

SCHEMA = ROOT / "tests" / "level1" / "schema.yaml"
SEEDS = [int(seed) for seed in os.environ.get("MERIDIAN_PUBLISHED_SEEDS", "1").split(",")]
KILLS = int(os.environ.get("MERIDIAN_PUBLISHED_KILLS", "2"))
EDITIONS = int(os.environ.get("MERIDIAN_PUBLISHED_EDITIONS", "3"))

State = dict[str, list[tuple[Any, ...]]]
NOTHING: State = {table: [] for table in PUBLISHED_COLUMNS}


def create(meridian: Meridian, data: Path, *options: object, name: str = "prompt") -> None:
    meridian.must("alerts", "create", name, "--data", data, "--schema", SCHEMA, "--replica", *options)


class Night:
    """A database that a model stores into, and what users saw of it."""

    def __init__(self, server: Server, seed: int, name: str = "prompt") -> None:
        self.name = name
        self.model = Model(AlertDatabase(server.url(""), name), random.Random(seed))
        self.history: list[tuple[str, State]] = []
        # Of each of these times the columns that there were.
        self.seen: dict[str, dict[str, list[str]]] = {}

    def moved(self, server: Server) -> None:
        self.model.database = AlertDatabase(server.url(""), self.name)

    def columns(self) -> dict[str, list[str]]:
        return {table: self.model.columns(table, columns) for table, columns in PUBLISHED_COLUMNS.items()}

    def change(self, steps: int = 20) -> None:
        model = self.model
        kinds = [model.store] * 6 + [model.close, model.withdraw, model.to_solar_system, model.to_objects] * 2
        for _ in range(steps):
            model.random.choice(kinds)()

    def publish(self, server: Server) -> None:
        """Publishes and checks, and notes what there was at that time."""
        self.model.database.publish()
        rows = self.model.state()
        with server.connect(database=self.name) as connection:
            assert_state(connection, rows, self.columns())
            [[at]] = execute(connection, "SELECT CAST(MAX(publishedAt) AS CHAR) FROM Edition")
        self.history.append((at, rows))
        self.seen[at] = self.columns()


def execute(connection: pymysql.connections.Connection, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def state(connection: pymysql.connections.Connection, columns: dict[str, list[str]] = PUBLISHED_COLUMNS) -> State:
    found = {}
    for table, names in columns.items():
        named = ", ".join(f"`{column}`" for column in names)
        found[table] = sorted(execute(connection, f"SELECT {named} FROM {table}"), key=repr)
    return found


def as_mysql(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """MySQL's protocol has numbers for true and false."""
    return sorted((tuple(int(value) if isinstance(value, bool) else value for value in row) for row in rows), key=repr)


def assert_state(connection: pymysql.connections.Connection, wanted: State, columns: dict[str, list[str]] = PUBLISHED_COLUMNS) -> None:
    found = state(connection, columns)
    for table, rows in wanted.items():
        assert found[table] == as_mysql(rows), table


def check(meridian: Meridian, data: Path) -> None:
    outcome = meridian.run("check", "--data", data)
    assert outcome.status == 0, outcome.text + outcome.complaint


def stores() -> list[str]:
    return ["sqlite"] if private_postgres.binaries() is None else ["sqlite", "postgres"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("store", stores())
def test_users_see_what_was_stored_and_changed(meridian: Meridian, tmp_path: Path, store: str, seed: int) -> None:
    """After each publication, and as of each of them later, before and after merges."""
    if store == "sqlite":
        create(meridian, tmp_path)
        follow_a_night(meridian, tmp_path, seed, EDITIONS)
    else:
        with private_postgres.private_postgres() as url:
            create(meridian, tmp_path, "--postgres", url)
            follow_a_night(meridian, tmp_path, seed, EDITIONS - 1)


def follow_a_night(meridian: Meridian, data: Path, seed: int, editions: int) -> None:
    with serving(meridian, data) as server:
        night = Night(server, seed)
        for _ in range(editions):
            night.change()
            night.publish(server)
        assert night.model.database.publish() == []
        with server.connect(database="prompt") as connection:
            check_history(connection, night, editions - 1)
            merged = meridian.must("compact", "--data", data, "--db", "prompt", "--all")
            assert "DiaSourceStored" in merged.text
            assert_state(connection, night.history[-1][1])
            check_restrictions(server, connection, night)
        # What comes afterwards changes nothing of what was.
        night.change()
        night.publish(server)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
        check(meridian, data)


def check_history(connection: pymysql.connections.Connection, night: Night, times: int | None = None) -> None:
    """Compares the states of some times, or of all, in any order."""
    count = len(night.history) if times is None else times
    for at, wanted in night.model.random.sample(night.history, count):
        execute(connection, f"SET meridian_as_of = '{at}'")
        assert_state(connection, wanted, night.seen[at])
    execute(connection, "SET meridian_as_of = '2001-01-01'")
    assert execute(connection, "SELECT COUNT(*) FROM DiaObject") == [(0,)]
    execute(connection, "SET meridian_as_of = ''")


def check_restrictions(server: Server, connection: pymysql.connections.Connection, night: Night) -> None:
    """Cones and numbers of objects restrict what is read, and give what they should."""
    rows = night.model.state()
    columns = PUBLISHED_COLUMNS
    for table, found in rows.items():
        at = columns[table].index("diaObjectId")
        ra, dec = columns[table].index("ra"), columns[table].index("dec")
        numbers = sorted({row[at] for row in found if row[at] is not None})
        chosen = night.model.random.sample(numbers, min(len(numbers), 2))
        for number in chosen:
            got = state_of(connection, table, f"WHERE diaObjectId = {number}")
            assert got == as_mysql([row for row in found if row[at] == number]), (table, number)
        centre = (0.1, DEC - 0.2)
        got = state_of(connection, table, f"WHERE scisql_s2PtInCircle(ra, `dec`, {centre[0]}, {centre[1]}, 0.4) = 1")
        assert got == as_mysql([row for row in found if separation(centre, (row[ra], row[dec])) <= 0.4]), table
        # Elsewhere there is nothing to read.
        plan = "\n".join(str(row) for row in execute(connection, f"EXPLAIN SELECT * FROM {table} WHERE scisql_s2PtInCircle(ra, `dec`, 180, -60, 1) = 1"))
        assert "0 of" in plan or "no chunk" in plan.lower(), plan
    # By another protocol, in another dialect.
    query = 'SELECT COUNT(*) AS n FROM "prompt"."DiaSource" WHERE "ssObjectId" IS NOT NULL'
    with urllib.request.urlopen(server.url("/tap/sync", REQUEST="doQuery", LANG="ADQL", FORMAT="csv", QUERY=query), timeout=60) as response:
        lines = response.read().decode().split()
    wanted = sum(row["ss"] is not None for row in night.model.sources.values())
    assert lines == ["n", str(wanted)]
    at, former = night.history[0]
    query = 'SELECT COUNT(*) AS n FROM "prompt"."DiaSource"'
    asked = {"REQUEST": "doQuery", "LANG": "ADQL", "FORMAT": "csv", "QUERY": query, "MERIDIAN_AS_OF": at}
    with urllib.request.urlopen(server.url("/tap/sync", **asked), timeout=60) as response:
        assert response.read().decode().split() == ["n", str(len(former["DiaSource"]))]
    body = json.dumps({"statement": "SELECT COUNT(*) AS n FROM prompt.DiaObject", "as_of": at}).encode()
    with urllib.request.urlopen(server.url("/sql", format="csv"), body, timeout=60) as response:
        assert response.read().decode().split() == ["n", str(len(former["DiaObject"]))]
    body = json.dumps({"statement": "SELECT 1", "as_of": "yesterday"}).encode()
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(server.url("/queries"), body, timeout=60)


def state_of(connection: pymysql.connections.Connection, table: str, condition: str) -> list[tuple[Any, ...]]:
    named = ", ".join(f"`{column}`" for column in PUBLISHED_COLUMNS[table])
    return sorted(execute(connection, f"SELECT {named} FROM {table} {condition}"), key=repr)


# Rows in an order, groups, a join, and a cone.
AS_OF_STATEMENTS = (
    "SELECT * FROM DiaObject ORDER BY diaObjectId, validityStartMjdTai",
    "SELECT * FROM DiaSource ORDER BY diaSourceId",
    "SELECT * FROM DiaForcedSource ORDER BY diaObjectId, visit, detector",
    "SELECT diaObjectId, COUNT(*) AS n, MAX(midpointMjdTai) AS last FROM DiaSource GROUP BY diaObjectId ORDER BY diaObjectId",
    "SELECT o.diaObjectId, s.diaSourceId, s.ra FROM DiaObjectLast o JOIN DiaSource s ON o.diaObjectId = s.diaObjectId ORDER BY s.diaSourceId",
    f"SELECT diaObjectId FROM DiaObjectLast WHERE scisql_s2PtInCircle(ra, `dec`, 0.1, {DEC - 0.2}, 0.4) = 1 ORDER BY diaObjectId",
)


def answers_as_of(server: Server, at: str) -> list[bytes | pa.Table]:
    """Answers as of a time: their bytes, and of Arrow the values (what is behind a NULL is nobody's)."""
    found: list[bytes | pa.Table] = []
    for statement in AS_OF_STATEMENTS:
        for form in ("csv", "json", "arrow"):
            body = json.dumps({"statement": statement, "database": "prompt", "as_of": at}).encode()
            with urllib.request.urlopen(server.url("/sql", format=form), body, timeout=120) as response:
                answer = response.read()
            found.append(pa.ipc.open_stream(answer).read_all() if form == "arrow" else answer)
    return found


def test_answers_as_of_a_time_stay_the_same_bytes(meridian: Meridian, tmp_path: Path) -> None:
    """Whatever is merged, reassigned, withdrawn, closed and stored afterwards."""
    create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 12)
        wanted: dict[str, list[bytes | pa.Table]] = {}
        for _ in range(2):
            night.change(20)
            night.publish(server)
            at = night.history[-1][0]
            wanted[at] = answers_as_of(server, at)
        assert len({answers[3] for answers in wanted.values()}) == 2, "the night has changed something"
        for is_merged in (True, False):
            if is_merged:
                meridian.must("compact", "--data", tmp_path, "--db", "prompt", "--all")
            else:
                night.change(20)
                night.publish(server)
            for at, answers in wanted.items():
                assert answers_as_of(server, at) == answers, (is_merged, at)


def test_killed_publications_are_whole_and_once(meridian: Meridian, tmp_path: Path) -> None:
    """A server that is killed while it publishes has published an edition or not, and the next one goes on."""
    create(meridian, tmp_path)
    server = Server(meridian, tmp_path)
    try:
        night = Night(server, 7)
        for _ in range(KILLS):
            night.change(12)
            before = night.history[-1][1] if night.history else None
            publishing = threading.Thread(target=publish_in_vain, args=(server.url(""),))
            publishing.start()
            time.sleep(night.model.random.uniform(0.0, 0.8))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            publishing.join()
            server = Server(meridian, tmp_path)
            night.moved(server)
            with server.connect() as connection:
                seen = published_state(connection)
            wanted = {table: as_mysql(rows) for table, rows in night.model.state().items()}
            former = {table: as_mysql(rows) for table, rows in before.items()} if before else NOTHING
            assert seen in (former, wanted)
            night.publish(server)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
            editions = execute(connection, "SELECT edition FROM Edition ORDER BY edition")
            assert editions == [(number + 1,) for number in range(len(editions))]
            homes = execute(connection, "SELECT COUNT(*), COUNT(DISTINCT diaObjectId) FROM DiaObjectHome")
            assert homes[0][0] == homes[0][1] == len({row["diaObjectId"] for row in night.model.objects})
        check(meridian, tmp_path)
    finally:
        server.stop()


def test_nobody_changes_what_is_published(meridian: Meridian, tmp_path: Path) -> None:
    """An administrator could drop it over SQL, and rows that were removed from the store were nowhere then."""
    create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 5)
        night.change(8)
        night.publish(server)
    must(meridian, tmp_path, "add", "boss", "--admin", password=PASSWORD)
    with serving(meridian, tmp_path) as server, server.connect(user="boss", password=PASSWORD, database="Prompt") as connection:
        for statement in (
            "DROP TABLE Edition", "DROP TABLE prompt.DiaSourceStored", "TRUNCATE prompt.DiaObjectVersion", "DELETE FROM DiaObjectEnd",
            "UPDATE PROMPT.Edition SET edition = 7", "ALTER TABLE Edition RENAME TO prompt.other", "CREATE TABLE prompt.own AS SELECT 1 AS a",
        ):  # fmt: skip
            with pytest.raises(pymysql.MySQLError, match="publishing alone changes them") as raised:
                execute(connection, statement)
            assert raised.value.args[0] == 1290, statement
        assert_state(connection, night.history[-1][1])


def publish_in_vain(url: str) -> None:
    try:
        AlertDatabase(url, "prompt", retries=0).publish()
    except AlertError:
        pass  # The server dies meanwhile.


def published_state(connection: pymysql.connections.Connection) -> State:
    """What users see. The tables and views are made before the first edition: they are not there yet, or empty, while nothing is published."""
    try:
        execute(connection, "USE prompt")
        return state(connection)
    except pymysql.MySQLError as error:
        assert error.args[0] in (1049, 1146), error
        return NOTHING


def test_a_server_publishes_by_itself(meridian: Meridian, tmp_path: Path) -> None:
    """What is closed is seen, and counted, soon after; what is not waits."""
    create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 3)
        night.change(10)
        # A chunk that has just begun.
        now = time.time() / 86400 + 40587
        night.model.time = max(night.model.time, now)

        def is_published() -> bool:
            with urllib.request.urlopen(server.url("/alerts/prompt"), timeout=60) as response:
                told = json.load(response)["publication"]
            return bool(told["editions"] == 1 and told["open_chunks"] == 0)

        wait_until(is_published, 120, "it is published")
        with server.connect(database="prompt") as connection:
            assert_state(connection, night.model.state())
        night.model.store()
        assert night.model.database.publish() == []
        with urllib.request.urlopen(server.url("/metrics"), timeout=60) as response:
            metrics = response.read().decode()
        assert 'meridian_alerts_published_edition{database="prompt"} 1' in metrics
        assert 'meridian_alerts_open_chunks{database="prompt"} 1' in metrics
        listed = meridian.must("alerts", "list", "--data", tmp_path).text
        assert "published up to edition 1, waiting: 0 closed editions, 0 closed and 1 open replica chunks" in listed


def test_by_hand_and_what_cannot_be(meridian: Meridian, tmp_path: Path) -> None:
    create(meridian, tmp_path)
    create(meridian, tmp_path, name="other")
    meridian.must("alerts", "create", "plain", "--data", tmp_path, "--schema", SCHEMA)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 5)
        night.change(10)
        outcome = meridian.run("alerts", "publish", "prompt", "--data", tmp_path)
        assert outcome.status == 1 and "publishes it by itself" in outcome.complaint
        with pytest.raises(Conflict, match="without --replica"):
            AlertDatabase(server.url(""), "plain").publish()
        for wrong, words in (("tomorrow", "give a time in UTC"), ("2200-01-01", "still to come")):
            with server.connect() as connection, pytest.raises(pymysql.MySQLError, match=words):
                execute(connection, f"SET meridian_as_of = '{wrong}'")
        with pytest.raises(AlertError):
            AlertDatabase(server.url(""), "nothing").publish()
    said = meridian.must("alerts", "publish", "prompt", "--data", tmp_path).text
    assert said.startswith("edition 1: ") and " rows of the replica chunks " in said
    assert "nothing is to be published" in meridian.must("alerts", "publish", "prompt", "--data", tmp_path).text
    assert "nothing is to be published" in meridian.must("alerts", "publish", "other", "--data", tmp_path).text
    outcome = meridian.run("alerts", "publish", "plain", "--data", tmp_path)
    assert outcome.status == 1 and "without --replica" in outcome.complaint
    with serving(meridian, tmp_path) as server, server.connect(database="prompt") as connection:
        assert_state(connection, night.model.state())


def test_views_are_described_as_the_schema_describes_them(meridian: Meridian, tmp_path: Path) -> None:
    """Once: what an operator says later stays."""
    create(meridian, tmp_path)

    def described() -> dict[tuple[str, str], tuple[str | None, str | None]]:
        query = "SELECT table_name, column_name, description, unit FROM TAP_SCHEMA.columns WHERE table_name LIKE 'prompt.Dia%'"
        return {(table, column): (text, unit) for table, column, text, unit in execute(connection, query)}

    with serving(meridian, tmp_path) as server, server.connect() as connection:
        night = Night(server, 6)
        night.change(8)
        night.publish(server)
        words = described()
        assert words["prompt.DiaSource", "ra"] == ("Right ascension.", "deg")
        assert words["prompt.DiaObject", "parallax"] == ("Parallax.", "mas")
        assert words["prompt.DiaObject", "validityEndMjdTai"] == ("End of the version.", None)
        assert words["prompt.DiaObjectLast", "nDiaSources"] == ("Number of sources.", None)
        assert words["prompt.DiaForcedSource", "timeWithdrawnMjdTai"][0]
        edit = tmp_path / "edit.yaml"
        edit.write_text("name: DiaSource\ncolumns:\n- {name: ra, description: Where it is.}\n")
        meridian.must("describe", "--data", tmp_path, "--db", "prompt", "--table", "DiaSource", "--edit", edit)
        night.change(4)
        night.publish(server)
        assert described() == words | {("prompt.DiaSource", "ra"): ("Where it is.", "deg")}


# What tables of version 1 were, beside those that have not changed.
VERSION_1 = """
ALTER TABLE replica_chunks RENAME TO later;
CREATE TABLE replica_chunks (number INTEGER PRIMARY KEY, id INTEGER UNIQUE, updated INTEGER NOT NULL, unique_id TEXT NOT NULL) STRICT;
INSERT INTO replica_chunks SELECT number, id, updated, unique_id FROM later;
DROP TABLE later;
ALTER TABLE visits DROP COLUMN emptied;
DROP TABLE emptied_sources;
DROP TABLE editions;
DROP TABLE source_states;
DROP TABLE object_states;
DROP TABLE object_closes;
DROP TABLE forced_withdrawals;
UPDATE settings SET value = '1' WHERE name = 'format';
"""


def test_databases_of_version_1_are_brought_up_to_date(meridian: Meridian, tmp_path: Path) -> None:
    """What was stored and changed before is published as it is. Where something is published that they do not know, nothing is."""
    create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 11)
        night.change(20)
        night.publish(server)
        night.change(10)
    night.history.clear()
    with closing(sqlite3.connect(tmp_path / "alerts" / "prompt" / "hot.sqlite")) as file:
        file.executescript(VERSION_1)
    outcome = meridian.run("alerts", "publish", "prompt", "--data", tmp_path)
    assert outcome.status == 1 and "meridian drop database --db prompt" in outcome.complaint, outcome.complaint
    meridian.must("drop", "database", "--data", tmp_path, "--db", "prompt", "--yes")
    with serving(meridian, tmp_path) as server:
        night.moved(server)
        night.publish(server)
        night.change(10)
        night.publish(server)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
    check(meridian, tmp_path)
