"""Databases of groups: who changes their tables, by every protocol, what they may take, and what becomes of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import mysql.connector
import pymysql
import pytest
import requests

from meridian_cli import Meridian
from serving import serving, wait_until
from test_expiry import expires, is_in_days, is_there, me, warnings
from test_limits import execute, refused
from test_users import PASSWORD, Site, must, site_of_ann_and_bob, user

STARS = 300
PATIENCE = 120
CSV = b"id,ra,dec\n1,10.5,20.5\n2,11.5,21.5\n"
# With its positions and keys the table is a director, which takes no key twice.
MORE = b"id,ra,dec\n3,12.5,22.5\n4,13.5,23.5\n"
STILL_MORE = b"id,ra,dec\n5,14.5,24.5\n6,15.5,25.5\n"


@pytest.fixture(scope="module")
def whole_site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of_ann_and_bob(meridian, tmp_path_factory.mktemp("group_databases"), STARS) as site:
        must(meridian, site.data, "add", "carl", password=PASSWORD)
        yield site


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """Ann and Bob belong to the group survey, which has a database; Carl does not. Afterwards all of it is gone."""
    must(whole_site.meridian, whole_site.data, "group", "create", "survey", "--database")
    must(whole_site.meridian, whole_site.data, "group", "members", "survey", "--add", "ann,bob")
    yield whole_site
    user(whole_site.meridian, whole_site.data, "group", "remove", "survey")
    whole_site.meridian.run("drop", "database", "--data", whole_site.data, "--db", "survey", "--yes")


def number(connection: pymysql.connections.Connection, statement: str) -> int:
    with pytest.raises(pymysql.err.MySQLError) as rejected:
        connection.cursor().execute(statement)
    return int(rejected.value.args[0])


def refused_with(connection: pymysql.connections.Connection, statement: str, code: int) -> str:
    with pytest.raises(pymysql.err.MySQLError) as rejected:
        connection.cursor().execute(statement)
    assert rejected.value.args[0] == code, rejected.value
    return str(rejected.value.args[1])


def test_members_share_tables_by_mysqls_protocol(site: Site) -> None:
    """What one makes the other fills, changes, reads and drops; who is no member sees nothing of it and changes nothing."""
    with site.connect("ann") as ann, site.connect("bob", database="sky") as bob, site.connect("carl") as carl:
        execute(ann, "CREATE TABLE survey.bright AS SELECT id, ra, `dec` FROM sky.Star WHERE id < 10")
        execute(bob, "INSERT INTO survey.bright VALUES (1000, 1.5, 2.5)")
        execute(ann, "USE survey")
        # A default database of the group's takes what is made without a name.
        execute(ann, "CREATE TABLE list (id BIGINT, note VARCHAR(20))")
        execute(bob, "INSERT INTO survey.list VALUES (1, 'bob')")
        execute(ann, "UPDATE list SET note = 'ann' WHERE id = 1")
        execute(bob, "ALTER TABLE survey.list ADD COLUMN mag DOUBLE")
        execute(bob, "RENAME TABLE survey.list TO survey.targets")
        assert execute(ann, "SELECT id, note, mag FROM targets") == [(1, "ann", None)]
        assert execute(bob, "SELECT COUNT(*), MAX(id) FROM survey.bright") == [(11, 1000)]
        for member in (ann, bob):
            assert ("survey",) in execute(member, "SHOW DATABASES")
            assert set(execute(member, "SHOW TABLES FROM survey")) == {("bright",), ("targets",)}
            assert execute(member, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'survey'") == [(2,)]
        # One's own database is still that of no name.
        execute(bob, "USE sky")
        assert "`bob`.x or `survey`.x" in refused_with(bob, "CREATE TABLE sky.x AS SELECT 1 AS a", 1142)
        assert ("survey",) not in execute(carl, "SHOW DATABASES")
        for statement in ("SELECT * FROM survey.bright", "EXPLAIN SELECT * FROM survey.bright", "DESCRIBE survey.bright", "SHOW TABLES FROM survey", "USE survey"):
            assert number(carl, statement) in (1142, 1044), statement
        for statement in ("CREATE TABLE survey.y AS SELECT 1 AS a", "INSERT INTO survey.targets (id) VALUES (5)", "DROP TABLE survey.bright", "TRUNCATE TABLE survey.bright", "DELETE FROM survey.bright", "ALTER TABLE survey.bright EXPIRE NEVER"):
            assert number(carl, statement) == 1142, statement
        execute(bob, "DROP TABLE survey.targets, survey.bright")
        assert execute(ann, "SHOW TABLES FROM survey") == []


def test_members_share_tables_by_every_protocol(site: Site) -> None:
    """PUT, POST and DELETE of tables as curl and YouCat's clients send them, `meridian upload`, submitted statements, TAP, LOAD DATA, prepared statements."""
    auth = ("ann", PASSWORD)
    for base in ("/tables", "/tap/tables"):
        answer = requests.put(site.server.url(f"{base}/survey.mine"), data=CSV, auth=auth, timeout=30)
        assert answer.status_code == 201 and answer.json()["table"] == "survey.mine", answer.text
        answer = requests.post(site.server.url("/load/survey.mine"), data=MORE, auth=("bob", PASSWORD), timeout=30)
        assert answer.status_code == 200 and answer.json()["rows_added"] == 2, answer.text
        for method, path in (("PUT", f"{base}/survey.other"), ("POST", "/load/survey.mine"), ("DELETE", f"{base}/survey.mine"), ("POST", f"{base}/survey.mine?expire=never")):
            denied = requests.request(method, site.server.url(path), data=CSV, auth=("carl", PASSWORD), timeout=30)
            assert denied.status_code == 403, (method, path, denied.text)
        assert requests.delete(site.server.url(f"{base}/survey.mine"), auth=("bob", PASSWORD), timeout=30).status_code == 204
    file = site.data.parent / "upload.csv"
    environment = {"MERIDIAN_USER": "ann", "MERIDIAN_PASSWORD": PASSWORD}
    for rows, extra in ((CSV, []), (MORE, ["--append"])):
        file.write_bytes(rows)
        done = site.meridian.run("upload", "--server", site.server.url(""), "--table", "survey.sent", *extra, file, env=environment)
        assert done.status == 0 and "survey.sent: 2 rows added" in done.text, done.complaint
    file.write_bytes(STILL_MORE)
    with site.connect("bob", local_infile=True) as bob:
        execute(bob, f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE survey.sent FIELDS TERMINATED BY ',' IGNORE 1 LINES")
        assert execute(bob, "SELECT COUNT(*) FROM survey.sent") == [(6,)]
        (made,) = execute(bob, "SUBMIT CREATE TABLE survey.submitted AS SELECT id, ra, `dec` FROM sky.Star")
        state = f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {made[0]}"
        wait_until(lambda: execute(bob, state) == [("COMPLETED",)], PATIENCE, "it is made")
        assert execute(bob, "SELECT COUNT(*) FROM crossmatch(survey.submitted, sky.Star, 0.1)") == [(STARS,)]
    prepared = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user="ann", password=PASSWORD, use_pure=True)
    cursor = prepared.cursor(prepared=True)
    cursor.execute("INSERT INTO survey.sent VALUES (?, ?, ?)", (77, 1.0, 2.0))
    cursor.execute("SELECT COUNT(*) FROM survey.sent WHERE id = ?", (77,))
    assert cursor.fetchall() == [(1,)]
    prepared.close()
    # Lists: VOSI's tables, TAP_SCHEMA, cones, /me.
    for name, sees in (("bob", True), ("carl", False)):
        assert ("survey.sent" in site.http("tap/tables", name)[1]) is sees
        _, listed, _ = site.http("tap/sync", name, LANG="ADQL", FORMAT="csv", QUERY="SELECT table_name FROM TAP_SCHEMA.tables WHERE schema_name = 'survey'")
        assert set(listed.split()[1:]) == ({"survey.sent", "survey.submitted"} if sees else set())
        assert (site.http("scs/survey/submitted", name, RA=10, DEC=10, SR=180, RESPONSEFORMAT="csv")[0] == 200) is sees
        told = me(site, name)
        assert told["databases"] == ([name, "survey"] if sees else [name])
        names = {table["name"] for table in told["tables"]}  # type: ignore[index,union-attr]
        assert names == ({"survey.sent", "survey.submitted"} if sees else set())


def test_who_leaves_has_nothing_of_it_at_once_and_the_tables_stay(site: Site) -> None:
    """Also what was begun before: a file that is being sent, a statement that was prepared, a query that waits, a result that was kept."""
    with site.connect("ann") as ann, site.connect("bob") as bob:
        execute(bob, "CREATE TABLE survey.t AS SELECT id, ra, `dec` FROM sky.Star")
        execute(bob, "USE survey")
        prepared = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user="bob", password=PASSWORD, use_pure=True)
        cursor = prepared.cursor(prepared=True)
        cursor.execute("SELECT COUNT(*) FROM survey.t WHERE id < ?", (10,))
        assert cursor.fetchall() == [(10,)]
        sending = HTTPConnection("127.0.0.1", site.server.http_port, timeout=60)
        sending.putrequest("PUT", "/tables/survey.late")
        sending.putheader("Authorization", requests.auth._basic_auth_str("bob", PASSWORD))
        sending.putheader("Content-Length", str(len(CSV)))
        sending.endheaders()
        sending.send(CSV[:10])
        time.sleep(0.5)
        must(site.meridian, site.data, "group", "members", "survey", "--remove", "bob")
        for statement in ("SELECT COUNT(*) FROM survey.t", "INSERT INTO survey.t VALUES (1, 2, 3)", "DROP TABLE survey.t", "SUBMIT SELECT * FROM survey.t", "CREATE TABLE survey.more AS SELECT 1 AS a"):
            assert number(bob, statement) in (1142, 1044), statement
        assert ("survey",) not in execute(bob, "SHOW DATABASES")
        with pytest.raises(mysql.connector.Error) as rejected:
            cursor.execute("SELECT COUNT(*) FROM survey.t WHERE id < ?", (10,))
        assert rejected.value.errno in (1142, 1044)
        sending.send(CSV[10:])
        answer = sending.getresponse()
        assert answer.status == 403, answer.read()
        prepared.close()
        assert execute(ann, "SHOW TABLES FROM survey") == [("t",)] and execute(ann, "SELECT COUNT(*) FROM survey.t") == [(STARS,)]
        must(site.meridian, site.data, "group", "members", "survey", "--add", "bob")
        assert execute(bob, "SELECT COUNT(*) FROM survey.t") == [(STARS,)]


def test_who_leaves_and_reads_on_changes_nothing(site: Site) -> None:
    """What they may read stays the same, and with it their sessions and all that was kept for these: over HTTP members were taken from there."""
    with site.connect("bob") as bob, site.connect("boss") as boss:
        execute(bob, "CREATE TABLE survey.t AS SELECT id, ra, `dec` FROM sky.Star")
        execute(boss, "GRANT SELECT ON survey.* TO bob")
        for belongs in (True, False, True, False):
            must(site.meridian, site.data, "group", "members", "survey", "--add" if belongs else "--remove", "bob")
            told = me(site, "bob")
            assert (told["groups"], told["databases"]) == ((["survey"], ["bob", "survey"]) if belongs else ([], ["bob"]))
            assert any(limit["name"] == "group_stored" for limit in told["limits"]) is belongs  # type: ignore[attr-defined]
            for method, path, status in (("POST", "tables/survey.t?expire=never", 200), ("PUT", "tables/survey.u", 201), ("POST", "load/survey.u", 200), ("DELETE", "tables/survey.u", 204)):
                answer = requests.request(method, site.server.url(f"/{path}"), data={"PUT": CSV, "POST": MORE}.get(method), auth=("bob", PASSWORD), timeout=30)
                assert answer.status_code == (status if belongs else 403), (belongs, method, path, answer.text)
            if not belongs:
                assert number(bob, "DELETE FROM survey.t") == 1142
            assert execute(bob, "SELECT COUNT(*) FROM survey.t") == [(STARS,)]
        execute(boss, "REVOKE SELECT ON survey.* FROM bob")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE survey.slow AS SELECT id, SLEEP(4) AS s FROM sky.Star WHERE id = 7",
        "INSERT INTO survey.there SELECT id, SLEEP(4) FROM sky.Star WHERE id = 7",
        "INSERT INTO survey.there VALUES (5, SLEEP(4))",
        "UPDATE survey.there SET s = 1 + SLEEP(4)",
    ],
)
def test_a_statement_that_runs_while_its_user_leaves_changes_nothing(site: Site, statement: str) -> None:
    with site.connect("bob") as bob, site.connect("boss") as boss:
        execute(bob, "CREATE TABLE survey.there (id BIGINT, s DOUBLE)")
        execute(bob, "INSERT INTO survey.there VALUES (1, 0)")
        failures: list[int] = []

        def make() -> None:
            failures.append(number(bob, statement))

        making = threading.Thread(target=make)
        making.start()
        runs = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'bob' AND INFO LIKE '%SLEEP(%'"
        wait_until(lambda: execute(boss, runs) == [(1,)], PATIENCE, "it runs")
        execute(boss, "REVOKE survey FROM bob")
        making.join()
        assert failures == [1142]
    with site.connect("ann") as ann:
        assert execute(ann, "SHOW TABLES FROM survey") == [("there",)]
        assert execute(ann, "SELECT id, s FROM survey.there") == [(1, 0)]


def test_bytes_of_a_group(site: Site) -> None:
    """They are the group's, whoever of it stores, and not a member's own."""

    def stored(name: str) -> tuple[object, object]:
        with site.connect(name) as connection:
            (shown,) = [row for row in execute(connection, "SHOW LIMITS") if row[0] == "group_stored"]
        (told,) = [limit for limit in me(site, name)["limits"] if limit["name"] == "group_stored"]  # type: ignore[union-attr]
        assert (shown[1], shown[2], shown[3]) == (told["limit"], told["used"], told["meaning"])
        assert "the group survey" in str(shown[3])
        return shown[1], shown[2]

    with site.connect("ann") as ann, site.connect("bob") as bob, site.connect("boss") as boss:
        assert all(row[0] != "group_stored" for row in execute(boss, "SHOW LIMITS"))
        execute(ann, "CREATE TABLE survey.first AS SELECT * FROM sky.Star")
        most, taken = stored("bob")
        assert most is None and isinstance(taken, int) and taken > 1000
        must(site.meridian, site.data, "limit", "survey", "--group-stored", taken + 500)
        # A member's own limit is another.
        must(site.meridian, site.data, "limit", "ann", "--stored", 0)
        assert stored("ann") == (taken + 500, taken)
        for statement in ("CREATE TABLE survey.second AS SELECT * FROM sky.Star", "INSERT INTO survey.first SELECT * FROM sky.Star"):
            sentence = refused(bob, statement)
            assert f"{taken} of {taken + 500} bytes of the tables in the database of the group survey" in sentence and "DROP TABLE" in sentence
        answer = requests.put(site.server.url("/tables/survey.big"), data=b"id\n" + b"".join(b"%d\n" % (n * 7919) for n in range(20_000)), auth=("ann", PASSWORD), timeout=30)
        # To wait does not help: no 429.
        assert answer.status_code == 400 and f"{taken} of {taken + 500} bytes" in answer.text, answer.text
        execute(bob, "CREATE TABLE bob.own AS SELECT * FROM sky.Star")
        execute(bob, "DROP TABLE bob.own")
        execute(ann, "DROP TABLE survey.first")
        assert stored("ann") == (taken + 500, 0)
        execute(ann, "CREATE TABLE survey.second AS SELECT * FROM sky.Star")
        must(site.meridian, site.data, "limit", "survey", "--group-stored", "none")
        must(site.meridian, site.data, "limit", "--everybody", "--group-stored", "1kB")
        refused(ann, "CREATE TABLE survey.third AS SELECT * FROM sky.Star")
        must(site.meridian, site.data, "limit", "--everybody", "--group-stored", "none")
        must(site.meridian, site.data, "limit", "ann", "--stored", "none")
        wrong = user(site.meridian, site.data, "limit", "ann", "--group-stored", "1kB")
        assert wrong.returncode != 0 and "ann is a user" in wrong.stderr
        assert "ann is a user" in refused_with(boss, "ALTER USER ann LIMIT group_stored = 5", 1525)
        execute(boss, "ALTER USER survey LIMIT group_stored = 10")
        for connection in (ann, boss):
            # Administrators who do not belong to it fill it no further.
            refused(connection, "CREATE TABLE survey.third AS SELECT * FROM sky.Star")


def test_tables_of_a_group_expire(site: Site) -> None:
    with site.connect("ann") as ann, site.connect("bob") as bob:
        execute(ann, "CREATE TABLE survey.old AS SELECT * FROM sky.Star")
        must(site.meridian, site.data, "limit", "survey", "--lifetime", 30)
        execute(ann, "CREATE TABLE survey.t AS SELECT * FROM sky.Star")
        assert is_in_days(expires(bob, "survey.t"), 30)
        # Of two lists that are read one after the other only one may have it.
        wait_until(lambda: all(table["expires"] for table in me(site, "bob")["tables"]), PATIENCE, "the old one gets a time")  # type: ignore[attr-defined]
        assert is_in_days(expires(bob, "survey.old"), 30)
        for too_long in ("INTERVAL 31 DAY", "NEVER"):
            assert "for 30 days" in refused(bob, f"ALTER TABLE survey.t EXPIRE {too_long}")
        execute(bob, "ALTER TABLE survey.t EXPIRE INTERVAL 3 DAY")
        (told,) = warnings(bob)
        assert told.startswith("survey.t is removed after ")
        # All members are warned, whoever made it.
        assert any("survey.t is removed" in str(told) for told in me(site, "ann")["warnings"])  # type: ignore[union-attr]

        def is_warned() -> bool:
            with site.connect("ann") as again:
                return any(said.startswith("survey.t is removed") for said in warnings(again))

        wait_until(is_warned, PATIENCE, "a warning after logging in")
        with site.connect("carl") as carl:
            assert warnings(carl) == []
        execute(ann, "ALTER TABLE survey.t EXPIRE INTERVAL 1 SECOND")
        wait_until(lambda: not is_there(bob, "survey.t"), PATIENCE, "it goes")
        assert is_there(bob, "survey.old")


def test_members_say_who_else_reads(site: Site) -> None:
    with site.connect("ann") as ann, site.connect("carl") as carl:
        execute(ann, "CREATE TABLE survey.t AS SELECT id, ra, `dec` FROM sky.Star")
        execute(ann, "CREATE TABLE survey.u AS SELECT 1 AS a")
        execute(ann, "GRANT SELECT (id) ON survey.t TO carl")
        assert execute(carl, "SELECT * FROM survey.t WHERE id = 3") == [(3,)]
        assert number(carl, "INSERT INTO survey.t (id) VALUES (5)") == 1142 and number(carl, "SELECT * FROM survey.u") == 1142
        assert number(carl, "GRANT SELECT ON survey.t TO bob") == 1227
        # Any member takes it back.
        with site.connect("bob") as bob:
            execute(bob, "REVOKE SELECT (id) ON survey.t FROM carl")
            execute(bob, "GRANT SELECT ON survey.* TO PUBLIC")
        assert execute(carl, "SELECT COUNT(*) FROM survey.t") == [(STARS,)]
        execute(ann, "REVOKE SELECT ON survey.* FROM PUBLIC")
        assert number(carl, "SELECT COUNT(*) FROM survey.t") in (1044, 1142)
        changes = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `survey`.*"
        assert (f"GRANT {changes} TO `ann`@`127.0.0.1`",) in execute(ann, "SHOW GRANTS")
        with site.connect("boss") as boss:
            assert (f"GRANT {changes} TO `survey`@`%`",) in execute(boss, "SHOW GRANTS FOR survey")
            assert (f"GRANT {changes} TO `bob`@`%`",) in execute(boss, "SHOW GRANTS FOR bob")


def test_releases_do_not_hide_rows_of_ones_group(site: Site) -> None:
    """As in one's own database."""
    with site.connect("ann") as ann, site.connect("carl") as carl, site.connect("boss") as boss:
        execute(ann, "CREATE TABLE survey.t AS SELECT id, ra, `dec` FROM sky.Star")
        execute(boss, "GRANT SELECT ON survey.t TO carl")
        execute(boss, "ALTER TABLE survey.t RELEASE WHERE id < 10")
        assert execute(ann, "SELECT COUNT(*) FROM survey.t") == [(STARS,)] and execute(carl, "SELECT COUNT(*) FROM survey.t") == [(10,)]
        must(site.meridian, site.data, "group", "members", "survey", "--remove", "ann")
        execute(boss, "GRANT SELECT ON survey.t TO ann")
        assert execute(ann, "SELECT COUNT(*) FROM survey.t") == [(10,)]
        execute(boss, "ALTER TABLE survey.t RELEASE ALL")
        execute(boss, "REVOKE SELECT ON survey.t FROM ann, carl")


def test_names_that_are_taken(site: Site) -> None:
    """By users, groups, catalogues, alert databases, and by what a group or a user has left."""
    meridian, data = site.meridian, site.data

    def fails(*arguments: object) -> str:
        done = user(meridian, data, *arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr

    assert "a user ann" in fails("group", "create", "ANN", "--database")
    assert "a group survey" in fails("group", "create", "Survey", "--database")
    assert "a group survey" in fails("add", "survey", "--no-password")
    assert "a database sky already" in fails("group", "create", "Sky", "--database")
    must(meridian, data, "group", "create", "sky")
    assert "--existing" in fails("group", "database", "sky")
    assert "no group nobody" in fails("group", "database", "nobody")
    assert "cannot be the name" in fails("group", "create", "tap_schema", "--database")
    with site.connect("boss") as boss:
        assert "a database sky already" in refused_with(boss, "ALTER ROLE sky WITH DATABASE", 1396)
        assert "a database sky already" in refused_with(boss, "CREATE ROLE fine, SKY WITH DATABASE", 1396)
        assert execute(boss, "SHOW GRANTS FOR sky") == [("GRANT USAGE ON *.* TO `sky`@`%`",)]
        refused_with(boss, "ALTER ROLE nobody WITH DATABASE", 1396)
        refused_with(boss, "SHOW GRANTS FOR fine", 1396)
        execute(boss, "DROP ROLE sky")
        # Without one a group may have any name.
        execute(boss, "CREATE ROLE other WITH DATABASE")
        execute(boss, "GRANT other TO ann")
        with site.connect("ann") as ann:
            execute(ann, "CREATE TABLE other.t AS SELECT 1 AS a")
            for statement in ("CREATE ROLE x WITH DATABASE", "ALTER ROLE survey WITHOUT DATABASE", "DROP ROLE survey"):
                refused_with(ann, statement, 1227)
            execute(boss, "ALTER ROLE other WITHOUT DATABASE")
            assert number(ann, "SELECT * FROM other.t") in (1044, 1142)
            assert number(ann, "INSERT INTO other.t VALUES (2)") == 1142
            refused_with(boss, "ALTER ROLE other WITH DATABASE", 1396)
            must(meridian, data, "group", "database", "other", "--existing")
            assert execute(ann, "SELECT * FROM other.t") == [(1,)]
            # Whoever looks at the number of warnings in the answer, as clients do, is told that there is one.
            dropping = boss.cursor()
            dropping.execute("DROP ROLE other")
            assert dropping.warning_count == 1
            (said,) = warnings(boss)
            assert "the tables of other (1) stay in the database other" in said
            assert number(ann, "SELECT * FROM other.t") in (1044, 1142)
            assert execute(boss, "SELECT * FROM other.t") == [(1,)]
            # Nobody gets the tables by the name.
            assert "a database other already" in fails("add", "other", "--no-password")
            assert "a database other already" in refused_with(boss, "CREATE USER other", 1396)
            assert "a database other already" in refused_with(boss, "CREATE ROLE other WITH DATABASE", 1396)
            execute(boss, "DROP TABLE other.t")


def test_expired_tables_of_a_database_that_has_members_again_are_warned_of(site: Site) -> None:
    """Nobody was warned of them while the database was nobody's."""
    meridian, data = site.meridian, site.data
    must(meridian, data, "group", "create", "late", "--database")
    must(meridian, data, "group", "members", "late", "--add", "ann")
    with site.connect("ann") as ann:
        for name in ("short", "long", "always"):
            execute(ann, f"CREATE TABLE late.{name} AS SELECT 1 AS a")
        execute(ann, "ALTER TABLE late.long EXPIRE INTERVAL 30 DAY")
        execute(ann, "ALTER TABLE late.short EXPIRE INTERVAL 15 SECOND")
        must(meridian, data, "group", "database", "late", "--remove")
        time.sleep(16)
        assert "tables that expire within 7 days (1) stay" in must(meridian, data, "group", "database", "late", "--existing")
        # A server looks every five seconds.
        time.sleep(11)
        assert execute(ann, "SHOW TABLES FROM late") == [("always",), ("long",), ("short",)]
        assert [is_in_days(expires(ann, f"late.{name}"), days) for name, days in (("short", 7), ("long", 30))] == [True, True]
        assert expires(ann, "late.always") is None
        for name in ("short", "long", "always"):
            execute(ann, f"DROP TABLE late.{name}")
    must(meridian, data, "group", "remove", "late")


def test_the_command_line(site: Site) -> None:
    meridian, data = site.meridian, site.data
    assert "database  survey\n" in must(meridian, data, "group", "show", "survey")
    listed = json.loads(must(meridian, data, "group", "list", "--format", "json"))
    assert [(group["name"], group["database"]) for group in listed] == [("survey", True)]
    assert "has no database\n" in must(meridian, data, "group", "database", "survey", "--remove")
    assert "database  none\n" in must(meridian, data, "group", "show", "survey")
    with site.connect("ann") as ann:
        assert number(ann, "CREATE TABLE survey.t AS SELECT 1 AS a") == 1142
        assert "the members of survey change" in must(meridian, data, "group", "database", "survey")
        execute(ann, "CREATE TABLE survey.t AS SELECT 1 AS a")
    # It has one already: nothing is in the way.
    must(meridian, data, "group", "database", "survey")
    assert "its tables (1) stay in the database survey" in must(meridian, data, "group", "remove", "survey")
    must(meridian, data, "group", "create", "survey")
    with site.connect("boss") as boss:
        assert execute(boss, "SELECT * FROM survey.t") == [(1,)]


def test_they_are_there_after_a_restart(meridian: Meridian, tmp_path: Path) -> None:
    with site_of_ann_and_bob(meridian, tmp_path, 50) as site:
        must(meridian, site.data, "group", "create", "team", "--database")
        must(meridian, site.data, "group", "members", "team", "--add", "ann")
        with site.connect("ann") as ann:
            execute(ann, "CREATE TABLE team.t AS SELECT 5 AS a")
        site.server.process.kill()
        site.server.process.wait()
        with serving(meridian, site.data) as again:
            connection = again.connect(user="ann", password=PASSWORD)
            assert execute(connection, "SELECT * FROM team.t") == [(5,)]
            execute(connection, "INSERT INTO team.t VALUES (6)")
            assert execute(connection, "SELECT COUNT(*) FROM team.t") == [(2,)]
            connection.close()
