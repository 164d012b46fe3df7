"""Groups of users, and grants of columns: what is not granted does not exist, whatever statement asks by whatever protocol."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import mysql.connector
import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving
from small_tables import DIRECTOR, load_stars_and_bands, write_lines
from test_users import PASSWORD, Site, must, rejection, user

# Of sky.Mix: what each may read, and how it was granted.
COLUMNS = ["id", "ra", "dec", "mag", "secret"]
READERS = {
    "whole": COLUMNS,  # the table
    "partial": ["id", "mag"],  # columns
    "placed": ["id", "ra", "dec"],  # columns, with the position
    "member": ["id", "ra", "dec", "mag"],  # columns of two groups and of its own
    "inside": COLUMNS,  # the database, of a group
    "viewer": [],  # columns of a view alone
    "stranger": [],
}
STARS = 60


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("columns")
    data = load_stars_and_bands(meridian, directory, 10)
    lines = (f"{n},{10 + n / 100},{20 + n / 100},{n % 7},{1000 + n}" for n in range(STARS))
    meridian.load(data, "sky", "Mix", write_lines(directory / "mix.csv", lines, "id,ra,dec,mag,secret"), **DIRECTOR)
    meridian.must("view", "create", "--data", data, "--db", "sky", "--name", "Shown", "SELECT id, mag, secret AS inner_secret FROM Mix WHERE secret < 1030")
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in READERS:
        must(meridian, data, "add", name, password=PASSWORD)
    for group, members in (("near", "member"), ("bright", "member"), ("insiders", "inside")):
        must(meridian, data, "group", "create", group)
        must(meridian, data, "group", "members", group, "--add", members)
    for name, what in (
        ("whole", "sky.Mix"), ("partial", "SKY.mix(ID, Mag)"), ("placed", "sky.Mix(id,ra,dec)"), ("member", "sky.Mix(id)"),
        ("near", "sky.Mix(ra,dec)"), ("bright", "sky.Mix(mag)"), ("insiders", "sky"), ("viewer", "sky.Shown(id,mag)"),
    ):  # fmt: skip
        must(meridian, data, "grant", name, "--read", what)
    with serving(meridian, data, "--result-cache", 0) as server:
        yield Site(meridian, data, server)


# --- columns --------------------------------------------------------------------------------------------------------------------------

# Each names a column in another place of a statement.
STATEMENTS = [
    "SELECT {column} FROM sky.Mix", "SELECT m.{column} FROM sky.Mix m", "SELECT COUNT({column}) FROM sky.Mix", "SELECT id FROM sky.Mix WHERE {column} > 5",
    "SELECT id FROM sky.Mix ORDER BY {column}", "SELECT COUNT(*) FROM sky.Mix GROUP BY {column}", "SELECT MAX(id) FROM sky.Mix HAVING MAX({column}) > 0",
    "SELECT a.id FROM sky.Mix a JOIN sky.Mix b USING ({column})", "SELECT a.id FROM sky.Mix a JOIN sky.Mix b ON a.{column} = b.{column}",
    "SELECT id FROM sky.Mix WHERE id IN (SELECT {column} FROM sky.Mix)", "SELECT (SELECT MAX({column}) FROM sky.Mix)",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM sky.Mix WHERE {column} > 0)", "WITH w AS (SELECT {column} FROM sky.Mix) SELECT COUNT(*) FROM w",
    "SELECT d.{column} FROM (SELECT * FROM sky.Mix) d", "SELECT id FROM sky.Mix UNION SELECT {column} FROM sky.Mix",
    "SELECT ROW_NUMBER() OVER (ORDER BY {column}) FROM sky.Mix", "SELECT CASE WHEN {column} > 1 THEN 1 END FROM sky.Mix",
    "EXPLAIN SELECT {column} FROM sky.Mix", "EXPLAIN ANALYZE SELECT id FROM sky.Mix WHERE {column} > 0", "SELECT id FROM sky.Mix WHERE id = 3 AND {column} > 0",
]  # fmt: skip


@pytest.mark.parametrize("name", ["whole", "partial", "member", "viewer"])
@pytest.mark.parametrize("column", ["mag", "secret"])
def test_columns_in_every_place(site: Site, name: str, column: str) -> None:
    """A column that is not granted is answered as one that there is not. Who may read it asks the same before and after, so that kept
    plans and kept results are there."""
    may = column in READERS[name]
    with site.connect(name) as connection, site.connect("boss") as boss:
        for form in STATEMENTS:
            statement = form.format(column=column)
            boss.cursor().execute(statement)
            for _ in range(2):
                if may:
                    connection.cursor().execute(statement)
                    continue
                number, sentence = rejection(connection, statement)
                assert number == (1054 if READERS[name] else 1142), (statement, sentence)
                assert "secret" in READERS[name] or "secret" not in sentence.replace(column, ""), sentence


def test_a_column_that_is_hidden_is_told_of_as_one_that_there_is_not(site: Site) -> None:
    with site.connect("partial") as connection:
        for form in STATEMENTS:
            (_, hidden), (_, missing) = (rejection(connection, form.format(column=column)) for column in ("secret", "sacred"))
            assert hidden.replace("secret", "X") == missing.replace("sacred", "X"), form


@pytest.mark.parametrize("name", list(READERS))
def test_wildcards_and_lists_have_the_columns_that_are_granted(site: Site, name: str) -> None:
    columns = READERS[name]
    with site.connect(name) as connection:
        cursor = connection.cursor()

        def headings(statement: str) -> list[str]:
            cursor.execute(statement)
            return [str(described[0]) for described in cursor.description]

        def firsts(statement: str) -> list[str]:
            cursor.execute(statement)
            return [str(row[0]) for row in cursor.fetchall()]

        cursor.execute("SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_NAME = 'Mix' ORDER BY ORDINAL_POSITION")
        assert [row[0] for row in cursor.fetchall()] == columns
        if not columns:
            return
        assert headings("SELECT * FROM sky.Mix") == columns
        assert headings("SELECT m.* FROM sky.Mix m WHERE id = 3") == columns
        assert headings("SELECT * FROM (SELECT * FROM sky.Mix) d LIMIT 1") == columns
        assert headings("SELECT * FROM sky.Mix a NATURAL JOIN sky.Mix b") == columns
        assert len(headings("SELECT * FROM sky.Mix a JOIN sky.Mix b USING (id)")) == 2 * len(columns) - 1
        for statement in ("DESCRIBE sky.Mix", "SHOW COLUMNS FROM sky.Mix", "SHOW FULL COLUMNS FROM sky.Mix"):
            assert firsts(statement) == columns
        cursor.execute("SHOW CREATE TABLE sky.Mix")
        made = str(cursor.fetchone())
        assert [column for column in COLUMNS if f"`{column}`" in made] == columns
        # No name of a result is spelled as a column that is not seen.
        assert headings("SELECT d.SECRET FROM (SELECT id AS SECRET FROM sky.Mix) d")[0] in ("SECRET", "secret")
        cursor.execute("SELECT COUNT(*) FROM sky.Mix")
        assert cursor.fetchone() == (STARS,)
    _, listed, _ = site.http("tap/sync", name, LANG="ADQL", FORMAT="csv", QUERY="SELECT column_name FROM TAP_SCHEMA.columns WHERE table_name = 'sky.Mix'")
    assert set(listed.split()[1:]) == set(columns)
    _, listed, _ = site.http("tap/tables/sky.Mix", name)
    assert [column for column in COLUMNS if f"<name>{column}</name>" in listed] == columns


@pytest.mark.parametrize("name", [name for name, columns in READERS.items() if columns])
def test_columns_by_every_protocol(site: Site, name: str) -> None:
    """Prepared statements, TAP and its jobs, both interfaces of queries, SUBMIT, cones, positions, CREATE TABLE."""
    columns = READERS[name]
    may, sees_place = "secret" in columns, {"ra", "dec"} <= set(columns)
    statement = "SELECT secret FROM sky.Mix WHERE id = 3"
    connected = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user=name, password=PASSWORD, use_pure=True)
    cursor = connected.cursor(prepared=True)
    try:
        cursor.execute("SELECT secret FROM sky.Mix WHERE id = ?", (3,))
        assert may and cursor.fetchall() == [(1003,)]
    except mysql.connector.Error as error:
        assert not may and error.errno == 1054
    connected.close()
    status, said, _ = site.http("tap/sync", name, LANG="ADQL", FORMAT="csv", QUERY=statement)
    assert (status == 200) is may, said
    assert site.http("tap/sync", name, LANG="ADQL", FORMAT="csv", QUERY="SELECT * FROM sky.Mix")[1].splitlines()[0] == ",".join(columns)
    status, said, _ = site.http("queries", name, method="POST", body=json.dumps({"statement": statement}).encode())
    assert (status == 202) is may, said
    answer = json.loads(site.http("query", name, method="POST", body=json.dumps({"query": statement, "database": "sky"}).encode())[1])
    assert (answer.get("success") == 1) is may, answer
    with site.connect(name) as connection:
        if may:
            connection.cursor().execute(f"SUBMIT {statement}")
        else:
            assert rejection(connection, f"SUBMIT {statement}")[0] == 1054
            assert rejection(connection, f"CREATE TABLE taken AS {statement}")[0] == 1054
        copied = connection.cursor()
        copied.execute("CREATE TABLE copied AS SELECT * FROM sky.Mix")
        copied.execute(f"SELECT * FROM {name}.copied")
        assert [described[0] for described in copied.description] == columns
        copied.execute(f"DROP TABLE {name}.copied")
        inside = ["SELECT COUNT(*) FROM sky.Mix WHERE qserv_areaspec_circle(10, 20, 5)", "SELECT COUNT(*) FROM crossmatch(sky.Mix, sky.Mix, 1)"]
        chunk = "SELECT COUNT(DISTINCT chunkId) FROM sky.Mix"
        for asked in [*inside, chunk]:
            if sees_place:
                connection.cursor().execute(asked)
            else:
                number, sentence = rejection(connection, asked)
                assert number != 2013 and "`ra`" not in sentence, (asked, sentence)
    status, said, _ = site.http("scs/sky/Mix", name, RA=10, DEC=20, SR=5, VERB=3, RESPONSEFORMAT="csv")
    assert (status == 200) is sees_place, said
    if sees_place:
        assert set(said.splitlines()[0].split(",")) == set(columns)
    status, said, _ = site.http("scs/sky/Mix", name, method="POST", body=b"ra,dec\n10,20\n", SR=5, VERB=3, RESPONSEFORMAT="csv")
    assert (status == 200) is sees_place, said
    assert may or "secret" not in said


def test_columns_of_a_view(site: Site) -> None:
    """Its condition is on a column that its reader sees neither in it nor in the table."""
    with site.connect("viewer") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM sky.Shown ORDER BY id")
        assert [described[0] for described in cursor.description] == ["id", "mag"] and len(cursor.fetchall()) == 30
        cursor.execute("DESCRIBE sky.Shown")
        assert [row[0] for row in cursor.fetchall()] == ["id", "mag"]
        cursor.execute("SELECT VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_NAME = 'Shown'")
        assert "secret" not in str(cursor.fetchall())
        for form in ("SELECT {column} FROM sky.Shown", "SELECT id FROM sky.Shown ORDER BY {column}"):
            (number, hidden), (_, missing) = (rejection(connection, form.format(column=column)) for column in ("inner_secret", "inner_sacred"))
            assert number == 1054 and hidden.replace("inner_secret", "X") == missing.replace("inner_sacred", "X")
        assert rejection(connection, "SHOW CREATE VIEW sky.Shown")[0] == 1142
        assert rejection(connection, "EXPLAIN SELECT * FROM sky.Shown")[0] == 1345
    # Who may read some columns of its table is no better off.
    must(site.meridian, site.data, "grant", "partial", "--read", "sky.Shown")
    with site.connect("partial") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*), MAX(inner_secret) FROM sky.Shown")
        assert cursor.fetchone() == (30, 1029)
        assert rejection(connection, "EXPLAIN SELECT * FROM sky.Shown")[0] == 1345
        assert rejection(connection, "SHOW CREATE VIEW sky.Shown")[0] == 1142
    must(site.meridian, site.data, "revoke", "partial", "--read", "sky.Shown")


def test_grants_of_columns_over_sql(site: Site) -> None:
    with site.connect("boss") as boss, site.connect("stranger") as stranger:
        cursor = boss.cursor()
        cursor.execute("GRANT SELECT (id, `MAG`) ON sky.Mix TO stranger")
        cursor.execute("SHOW GRANTS FOR stranger")
        assert "GRANT SELECT (`id`, `mag`) ON `sky`.`mix` TO `stranger`@`%`" in {row[0] for row in cursor.fetchall()}
        asked = stranger.cursor()
        asked.execute("SELECT * FROM sky.Mix LIMIT 1")
        assert [described[0] for described in asked.description] == ["id", "mag"]
        cursor.execute("REVOKE SELECT (mag) ON sky.Mix FROM stranger")
        assert rejection(stranger, "SELECT mag FROM sky.Mix")[0] == 1054
        asked.execute("SELECT id FROM sky.Mix")
        # The grant of the table takes those of its columns along.
        cursor.execute("REVOKE SELECT ON sky.Mix FROM stranger")
        assert rejection(stranger, "SELECT id FROM sky.Mix")[0] == 1142
        for statement, number, part in [
            ("GRANT SELECT (nosuch) ON sky.Mix TO stranger", 1054, "nosuch"),
            ("GRANT SELECT (id) ON sky.* TO stranger", 1064, "table"),
            ("REVOKE SELECT (id) ON sky.Mix FROM stranger", 1141, "stranger"),
            ("GRANT SELECT (id) ON sky.Mix TO nobody", 1396, "nobody"),
        ]:
            seen, sentence = rejection(boss, statement)
            assert seen == number and part in sentence, (statement, seen, sentence)


# --- groups ---------------------------------------------------------------------------------------------------------------------------


def test_roles_over_sql(site: Site) -> None:
    with site.connect("boss") as boss, site.connect("stranger") as stranger:
        cursor = boss.cursor()
        cursor.execute("CREATE ROLE team, 'other'@'%'")
        cursor.execute("CREATE ROLE IF NOT EXISTS TEAM")
        cursor.execute("GRANT SELECT ON sky.Band TO team")
        assert rejection(stranger, "SELECT COUNT(*) FROM sky.Band")[0] == 1142
        cursor.execute("GRANT team, other TO stranger")
        stranger.cursor().execute("SELECT COUNT(*) FROM sky.Band")
        stranger.cursor().execute("SET ROLE ALL")
        for connection, asked in ((boss, "SHOW GRANTS FOR stranger"), (stranger, "SHOW GRANTS")):
            shown = connection.cursor()
            shown.execute(asked)
            rows = [str(row[0]).split(" TO ")[0] for row in shown.fetchall()]
            assert rows[0] == "GRANT USAGE ON *.*" and {"GRANT `other`@`%`", "GRANT `team`@`%`", "GRANT SELECT ON `sky`.`band`"} <= set(rows)
        cursor.execute("SHOW GRANTS FOR team")
        assert [row[0] for row in cursor.fetchall()] == ["GRANT USAGE ON *.* TO `team`@`%`", "GRANT SELECT ON `sky`.`band` TO `team`@`%`"]
        assert json.loads(site.http("me", "stranger")[1])["groups"] == ["other", "team"]
        for connection, statement, number in [
            (boss, "CREATE ROLE whole", 1396), (boss, "CREATE USER team", 1396), (boss, "CREATE ROLE team", 1396), (boss, "GRANT team TO nobody", 1396),
            (boss, "GRANT nothing TO stranger", 1396), (boss, "GRANT team TO other", 1235), (boss, "REVOKE team FROM whole", 1141), (boss, "DROP ROLE nothing", 1396),
            (boss, "DROP ROLE whole", 1396), (boss, "SET ROLE team", 1235), (stranger, "CREATE ROLE mine", 1227), (stranger, "GRANT team TO whole", 1227),
            (stranger, "DROP ROLE team", 1227), (stranger, "GRANT SELECT ON sky.Band TO team", 1227),
        ]:  # fmt: skip
            assert rejection(connection, statement)[0] == number, statement
        cursor.execute("REVOKE team FROM stranger")
        assert rejection(stranger, "SELECT COUNT(*) FROM sky.Band")[0] == 1142
        cursor.execute("GRANT team TO stranger")
        cursor.execute("DROP ROLE team, other")
        assert rejection(stranger, "SELECT COUNT(*) FROM sky.Band")[0] == 1142
        assert json.loads(site.http("me", "stranger")[1])["groups"] == []


def test_a_table_of_ones_own_is_shared_with_a_group(site: Site) -> None:
    with site.connect("whole") as owner, site.connect("member") as member, site.connect("inside") as other:
        cursor = owner.cursor()
        cursor.execute("CREATE TABLE mine AS SELECT id, mag FROM sky.Mix WHERE id < 5")
        cursor.execute("GRANT SELECT ON whole.mine TO near")
        asked = member.cursor()
        asked.execute("SELECT COUNT(*) FROM whole.mine")
        assert asked.fetchone() == (5,)
        assert rejection(member, "DROP TABLE whole.mine")[0] == 1142
        assert rejection(other, "SELECT COUNT(*) FROM whole.mine")[0] == 1142
        cursor.execute("REVOKE SELECT ON whole.mine FROM near")
        assert rejection(member, "SELECT COUNT(*) FROM whole.mine")[0] == 1142
        cursor.execute("GRANT SELECT (id) ON whole.mine TO near")
        assert rejection(member, "SELECT mag FROM whole.mine")[0] == 1054
        cursor.execute("DROP TABLE mine")


def test_limits_of_groups(site: Site) -> None:
    """The own limit comes before those of groups, of which the widest counts, and these before that of everybody."""

    def limit(*arguments: object) -> None:
        must(site.meridian, site.data, "limit", *arguments)

    def most(name: str) -> object:
        limits = json.loads(site.http("me", name)[1])["limits"]
        return next(one["limit"] for one in limits if one["name"] == "rows")

    limit("--everybody", "--rows", 40)
    limit("near", "--rows", 20)
    limit("bright", "--rows", 30)
    assert (most("member"), most("whole"), most("boss")) == (30, 40, None)
    with site.connect("member") as connection:
        connection.cursor().execute("SELECT id FROM sky.Mix LIMIT 30")
        with pytest.raises(pymysql.err.MySQLError) as ended:
            connection.cursor().execute("SELECT id FROM sky.Mix")
        assert ended.value.args[0] == 1226
    limit("member", "--rows", 10)
    assert most("member") == 10
    limit("member", "--rows", "none")
    for name in ("near", "bright", "--everybody"):
        limit(name, "--rows", "none")
    assert most("member") is None


def test_groups_on_the_command_line(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 5)
    alone = user(meridian, data, "group", "create", "team")
    assert alone.returncode != 0 and "no users yet" in alone.stderr
    for name in ("ann", "bob", "carl"):
        must(meridian, data, "add", name, "--no-password")
    assert "there are no groups" in must(meridian, data, "group", "list")
    must(meridian, data, "group", "create", "team")
    assert must(meridian, data, "group", "members", "team", "--add", "ann,bob", "--add", "carl").split() == ["ann", "bob", "carl"]
    assert must(meridian, data, "group", "members", "team", "--remove", "bob").split() == ["ann", "carl"]
    must(meridian, data, "grant", "team", "--read", "sky.Star(ra,id)", "--read", "sky.Band")
    must(meridian, data, "limit", "team", "--rows", 5)
    shown = must(meridian, data, "group", "show", "team")
    assert "ann, carl" in shown and "sky.band, sky.star(id, ra)" in shown and "rows 5" in shown
    (listed,) = json.loads(must(meridian, data, "group", "list", "--format", "json"))
    assert listed["members"] == ["ann", "carl"] and listed["limits"] == {"rows": 5}
    assert "team" in must(meridian, data, "show", "ann") and "what team may" in must(meridian, data, "list")
    for arguments, sentence in [
        (("group", "create", "Team"), "group team already"), (("group", "create", "ANN"), "user ann already"), (("add", "TEAM", "--no-password"), "group team already"),
        (("group", "create", "a b"), "cannot be the name"), (("group", "remove", "ann"), "no group ann"), (("group", "show", "nothing"), "no group nothing"),
        (("group", "members", "team", "--add", "nobody"), "no user nobody"), (("group", "members", "team", "--remove", "bob"), "does not belong"),
        (("revoke", "team", "--read", "sky.Star(dec)"), "no grant to read"), (("grant", "team", "--read", "sky(ra)"), "no database, table or columns"),
    ]:  # fmt: skip
        done = user(meridian, data, *arguments)
        assert done.returncode != 0 and sentence in done.stderr, (arguments, done.stderr)
    noted = user(meridian, data, "grant", "bob", "--read", "sky.Star(id,nosuch)")
    assert noted.returncode == 0 and "no column nosuch of sky.star yet" in noted.stderr
    must(meridian, data, "remove", "ann")
    assert must(meridian, data, "group", "members", "team").split() == ["carl"]
    must(meridian, data, "group", "remove", "team")
    assert "belongs to    none" in must(meridian, data, "show", "carl")


def test_a_query_of_a_member_runs_with_what_the_group_may_then(site: Site) -> None:
    """A column that is taken back while a query waits is not read."""
    with site.connect("boss") as boss, site.connect("member") as member:
        cursor = member.cursor()
        boss.cursor().execute("REVOKE SELECT (mag) ON sky.Mix FROM bright")
        deadline = time.monotonic() + 20
        number, _ = rejection(member, "SUBMIT SELECT mag FROM sky.Mix")
        assert number == 1054
        boss.cursor().execute("GRANT SELECT (mag) ON sky.Mix TO bright")
        cursor.execute("SUBMIT SELECT SUM(mag) FROM sky.Mix")
        query = cursor.fetchone()[0]
        state = ""
        while time.monotonic() < deadline and state != "COMPLETED":
            cursor.execute(f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {query}")
            state = cursor.fetchone()[0]
            time.sleep(0.05)
        assert state == "COMPLETED"
