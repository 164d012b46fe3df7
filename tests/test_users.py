"""Users: who may log in, by which protocol, and what each may read by it."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import mysql.connector
import pymysql
import pytest
from pymysql.constants import CLIENT

from meridian_cli import Meridian
from serving import SOON, Server, serving, wait_until
from small_tables import load_stars_and_bands, write_lines, write_stars

# pymysql sends anything but ASCII in latin1.
PASSWORD = "p: ss'w0rd"


def user(meridian: Meridian, data: Path, *arguments: object, password: str | None = None) -> subprocess.CompletedProcess[str]:
    """Calls `meridian user`."""
    words = [str(meridian.binary), "user", *map(str, arguments), "--data", str(data)]
    words += ["--password-stdin"] if password is not None else []
    return subprocess.run(words, input=password, capture_output=True, text=True, timeout=60)


def must(meridian: Meridian, data: Path, *arguments: object, password: str | None = None) -> str:
    done = user(meridian, data, *arguments, password=password)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Site:
    """A server with users: an administrator; `reader` of the database sky; `narrow` of sky.Band; `fresh`, who may read nothing."""

    meridian: Meridian
    data: Path
    server: Server

    def connect(self, name: str, password: str = PASSWORD, **options: object) -> pymysql.connections.Connection:
        return self.server.connect(user=name, password=password, **options)

    def http(self, path: str, name: str | None, password: str = PASSWORD, *, method: str = "GET", body: bytes | None = None, **parameters: object) -> tuple[int, str, Message]:
        """Status, body and headers of a request."""
        request = urllib.request.Request(self.server.url(f"/{path}", **parameters), data=body, method=method)
        if name is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode())
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read().decode(), response.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers


@contextmanager
def site_of_ann_and_bob(meridian: Meridian, directory: Path, stars: int) -> Iterator[Site]:
    """Ann and Bob may read the database sky; the administrator is boss."""
    data = load_stars_and_bands(meridian, directory, stars)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
        must(meridian, data, "grant", name, "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("users")
    data = load_stars_and_bands(meridian, directory, 300)
    meridian.load(data, "deep", "Star", write_stars(directory / "deep.csv", 50), kind="director", key="id", ra="ra", dec="dec")
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in ("reader", "narrow", "fresh"):
        must(meridian, data, "add", name, password=PASSWORD)
    must(meridian, data, "grant", "reader", "--read", "sky")
    must(meridian, data, "grant", "narrow", "--read", "Sky.Band")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


# --- logging in -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "mysql_native_password"])
def test_clients_log_in_with_the_right_password_alone(site: Site, plugin: str) -> None:
    """Also those that begin with another plugin. The answer does not tell whether there is such a user."""
    sentences = set()
    for name, password, number in [("reader", PASSWORD, None), ("reader", "wrong", 1045), ("reader", "", 1045), ("nobody", PASSWORD, 1045), ("READER", PASSWORD, 1045)]:
        begun = time.monotonic()
        try:
            connected = mysql.connector.connect(
                host="127.0.0.1", port=site.server.port, user=name, password=password, auth_plugin=plugin, use_pure=True
            )
            connected.close()
            assert number is None
        except mysql.connector.Error as error:
            assert error.errno == number, error
            sentences.add(str(error.msg).replace(name, "X").replace("NO", "YES"))
            assert time.monotonic() - begun > 0.4
    assert len(sentences) == 1


def test_change_user_logs_in_anew(site: Site) -> None:
    with site.connect("narrow") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT CURRENT_USER()")
        assert cursor.fetchone()[0].startswith("narrow")
    connected = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user="narrow", password=PASSWORD, use_pure=True)
    connected.cmd_change_user("reader", PASSWORD)
    cursor = connected.cursor()
    cursor.execute("SELECT COUNT(*) FROM sky.Star")
    assert cursor.fetchall() == [(300,)]
    cursor.execute("SHOW PROCESSLIST")
    assert {row[1] for row in cursor.fetchall()} == {"reader"}
    with pytest.raises(mysql.connector.Error):
        connected.cmd_change_user("boss", "wrong")


def test_http_asks_for_a_login_and_takes_passwords_and_tokens(site: Site) -> None:
    status, said, headers = site.http("tap/capabilities", None)
    assert status == 401 and "log in" in said
    assert "Basic" in headers["WWW-Authenticate"]
    assert site.http("tap/capabilities", "reader", "wrong")[0] == 401
    status, _, headers = site.http("tap/capabilities", "reader")
    assert status == 200 and headers["X-VO-Authenticated"] == "reader"
    assert site.http("healthz", None)[0] == site.http("readyz", None)[0] == 200
    token = must(site.meridian, site.data, "token", "reader").strip()
    # As the password of anybody, which some clients call x-oauth-basic.
    assert site.http("tap/capabilities", "x-oauth-basic", token)[2]["X-VO-Authenticated"] == "reader"
    for scheme, expected in [("Bearer", 200), ("bearer", 200), ("Digest", 401)]:
        request = urllib.request.Request(site.server.url("/tap/capabilities"), headers={"Authorization": f"{scheme} {token}"})
        try:
            assert urllib.request.urlopen(request, timeout=30).status == expected
        except urllib.error.HTTPError as error:
            assert error.code == expected
    assert "1 of reader's tokens" in must(site.meridian, site.data, "token", "reader", "--revoke-all")
    assert site.http("tap/capabilities", "x-oauth-basic", token)[0] == 401


def test_a_password_that_changes_while_it_is_verified_is_not_known_afterwards(site: Site) -> None:
    with ThreadPoolExecutor(8) as crowd:
        for number in range(12):
            # Each time another user: too many wrong passwords of one would be refused.
            hasty = f"hasty{number}"
            must(site.meridian, site.data, "add", hasty, password="old")
            # Logins with the password of now and of soon, some of which are verified while it changes.
            tried = [crowd.submit(site.http, "me", hasty, password) for password in ("old", "new", "old")]
            must(site.meridian, site.data, "passwd", hasty, password="new")
            assert {login.result()[0] for login in tried} <= {200, 401, 503}
            assert site.http("me", hasty, "old")[0] == 401
            must(site.meridian, site.data, "passwd", hasty, password="old")
            assert site.http("me", hasty, "new")[0] == 401
            assert site.http("me", hasty, "old")[0] == 200
            must(site.meridian, site.data, "remove", hasty)


def test_wrong_logins_do_not_queue_up(site: Site) -> None:
    token = must(site.meridian, site.data, "token", "narrow").split()[-1]
    streams = [socket.create_connection(("127.0.0.1", site.server.http_port), timeout=60) for _ in range(100)]
    for number, stream in enumerate(streams):
        # Of many names, since too many wrong passwords of one are refused.
        wrong = base64.b64encode(f"stranger{number}:wrong".encode()).decode()
        stream.sendall(f"GET /me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Basic {wrong}\r\n\r\n".encode())
    # Tokens are not verified.
    assert site.http("me", "narrow", token)[0] == 200
    replies = [stream.makefile("rb").read().decode() for stream in streams]
    assert {reply.split(" ")[1] for reply in replies} == {"401", "503"}
    busy = next(reply for reply in replies if " 503 " in reply)
    assert "too many logins" in busy and "retry-after: 1\r\n" in busy.lower()
    assert site.http("me", "narrow")[0] == 200
    for stream in streams:
        stream.close()


def test_failed_logins_count_together(meridian: Meridian, tmp_path: Path) -> None:
    """By each protocol, at each server of the data directory, and after a restart."""
    data = load_stars_and_bands(meridian, tmp_path, 20)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
    token = must(meridian, data, "token", "ann").split()[-1]

    def is_refused(site: Site) -> bool:
        with pytest.raises(pymysql.Error) as told:
            site.connect("ann", "wrong")
        assert told.value.args[0] in (1045, 3955)
        return bool(told.value.args[0] == 3955)

    with serving(meridian, data) as one, serving(meridian, data) as two:
        first, second = Site(meridian, data, one), Site(meridian, data, two)
        for _ in range(5):
            assert first.http("me", "ann", "wrong")[0] == 401
            assert not is_refused(first)
        # No password is tried any more, also not the right one, which a guess would tell.
        with pytest.raises(pymysql.Error) as told:
            first.connect("ann")
        assert told.value.args[0] == 3955 and "try again in" in told.value.args[1]
        status, said, headers = first.http("me", "ann")
        assert status == 429 and "too many logins" in said and 0 < int(headers["Retry-After"]) <= 60
        assert first.http("me", "ann", token)[0] == first.http("me", "bob")[0] == 200
        first.connect("bob").close()
        wait_until(lambda: second.http("me", "ann")[0] == 429, SOON, "the other server counts them, too")
        assert second.http("me", "bob")[0] == 200
        one.stop()
    with serving(meridian, data) as server:
        assert Site(meridian, data, server).http("me", "ann")[0] == 429


def test_a_header_of_the_servers_own_does_not_let_in(site: Site) -> None:
    """The name that authentication gives to the routes is taken away where it comes with a request."""
    request = urllib.request.Request(site.server.url("/queries"), headers={"X-Meridian-User": "boss"})
    with pytest.raises(urllib.error.HTTPError) as rejected:
        urllib.request.urlopen(request, timeout=30)
    assert rejected.value.code == 401


# --- what each may read ---------------------------------------------------------------------------------------------------------------

# For each table whether `boss`, `reader`, `narrow` and `fresh` may read it.
GRANTS = {
    "sky.Star": {"boss": True, "reader": True, "narrow": False, "fresh": False},
    "sky.Band": {"boss": True, "reader": True, "narrow": True, "fresh": False},
    "deep.Star": {"boss": True, "reader": False, "narrow": False, "fresh": False},
    "deep.Nothing": {"boss": None, "reader": False, "narrow": False, "fresh": False},
}
# Every kind of statement that reads a table, or tells of one.
STATEMENTS = [
    "SELECT COUNT(*) FROM {table}", "SELECT * FROM {table} LIMIT 1", "SELECT 1 FROM sky.Band b WHERE EXISTS (SELECT 1 FROM {table})",
    "SELECT * FROM (SELECT id FROM {table}) d LIMIT 1", "WITH w AS (SELECT id FROM {table}) SELECT COUNT(*) FROM w",
    "SELECT id FROM {table} UNION SELECT id FROM {table}", "SELECT (SELECT MAX(id) FROM {table})", "SELECT a.id FROM {table} a JOIN {table} b ON a.id = b.id",
    "SELECT id FROM {table} WHERE id = 3", "EXPLAIN SELECT * FROM {table}", "EXPLAIN ANALYZE SELECT COUNT(*) FROM {table}",
    "DESCRIBE {table}", "SHOW CREATE TABLE {table}", "SHOW COLUMNS FROM {table}", "SHOW INDEX FROM {table}",
]  # fmt: skip


@pytest.mark.parametrize("name", ["boss", "reader", "narrow", "fresh"])
@pytest.mark.parametrize("table", list(GRANTS))
def test_statements(site: Site, name: str, table: str) -> None:
    """Each is asked several times, as the plan of the second may be kept; before and after, the administrator asks the same."""
    may = GRANTS[table][name]
    with site.connect(name) as connection, site.connect("boss") as boss:
        for form in STATEMENTS:
            statement = form.format(table=table)
            needs_band = "sky.Band b" in form and not GRANTS["sky.Band"][name]
            for _ in range(3):
                if GRANTS[table]["boss"]:
                    boss.cursor().execute(statement)
                cursor = connection.cursor()
                if may and not needs_band:
                    cursor.execute(statement)
                    cursor.fetchall()
                    continue
                with pytest.raises(pymysql.err.MySQLError) as rejected:
                    cursor.execute(statement)
                expected = {1146} if may is None else {1142, 1044}
                assert rejected.value.args[0] in expected, (statement, rejected.value)


@pytest.mark.parametrize("name", ["boss", "reader", "narrow", "fresh"])
def test_prepared_statements_and_field_lists(site: Site, name: str) -> None:
    connected = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user=name, password=PASSWORD, use_pure=True)
    for table, may in ((table, granted[name]) for table, granted in GRANTS.items()):
        cursor = connected.cursor(prepared=True)
        try:
            cursor.execute(f"SELECT id FROM {table} WHERE id = ?", (3,))
            assert may and cursor.fetchall() == [(3,)]
        except mysql.connector.Error as error:
            assert not may and error.errno in (1142, 1146), error


@pytest.mark.parametrize("name", ["boss", "reader", "narrow", "fresh"])
def test_listings_have_what_may_be_read(site: Site, name: str) -> None:
    tables = {table for table, granted in GRANTS.items() if granted[name]}
    databases = {table.split(".")[0] for table in tables}
    with site.connect(name) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW DATABASES")
        assert {row[0] for row in cursor.fetchall()} - {"information_schema"} == databases
        cursor.execute("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('sky', 'deep')")
        assert {".".join(row) for row in cursor.fetchall()} == tables
        cursor.execute("SELECT DISTINCT table_schema, table_name FROM information_schema.columns WHERE table_schema IN ('sky', 'deep')")
        assert {".".join(row) for row in cursor.fetchall()} == tables
        for database in ("sky", "deep", "nowhere"):
            try:
                cursor.execute(f"SHOW TABLES FROM {database}")
                assert {f"{database}.{row[0]}" for row in cursor.fetchall()} == {one for one in tables if one.startswith(database)}
                cursor.execute(f"USE {database}")
            except pymysql.err.MySQLError as error:
                assert database not in databases
                assert error.args[0] == (1049 if name == "boss" else 1044)
    status, listed, _ = site.http("tap/tables", name)
    assert status == 200
    assert {table for table in GRANTS if f"<name>{table}<" in listed} == tables
    _, listed, _ = site.http("tap/sync", name, LANG="ADQL", FORMAT="csv", QUERY="SELECT table_name FROM TAP_SCHEMA.tables")
    assert {table for table in GRANTS if table in listed.split()} == tables
    _, overview, _ = site.http("", name)
    assert ("deep" in overview) == ("deep" in databases)


@pytest.mark.parametrize("name", ["boss", "reader", "narrow", "fresh"])
@pytest.mark.parametrize("table", ["sky.Star", "deep.Star", "deep.Nothing"])
def test_every_road_over_http(site: Site, name: str, table: str) -> None:
    """Cones, lists of positions, TAP, jobs and queries of both interfaces."""
    may = GRANTS[table][name]
    path = table.replace(".", "/")
    position = {"RA": 10, "DEC": 10, "SR": 5, "RESPONSEFORMAT": "csv"}
    refused = (404,) if may is None else (403,)
    assert (site.http(f"scs/{path}", name, **position)[0] == 200) if may else (site.http(f"scs/{path}", name, **position)[0] in refused)
    posted = site.http(f"scs/{path}", name, method="POST", body=b"ra,dec\n10,10\n", SR=5, RESPONSEFORMAT="csv")
    assert (posted[0] == 200) is bool(may), posted
    statement = f"SELECT COUNT(*) FROM {table}"
    status, said, _ = site.http("tap/sync", name, LANG="ADQL", FORMAT="csv", QUERY=statement)
    assert (status == 200) is bool(may), said
    body = json.dumps({"statement": statement}).encode()
    status, said, _ = site.http("queries", name, method="POST", body=body)
    assert (status == 202) is bool(may), said
    status, said, _ = site.http("query", name, method="POST", body=json.dumps({"query": statement, "database": ""}).encode())
    answer = json.loads(said)
    assert (answer.get("success") == 1) is bool(may), said


def test_no_database_is_chosen(site: Site) -> None:
    """That is what is told, whatever may be read."""
    for name in ("boss", "reader", "narrow", "fresh"):
        with site.connect(name) as connection:
            with pytest.raises(pymysql.err.MySQLError) as rejected:
                connection.cursor().execute("SELECT * FROM Star")
            assert rejected.value.args[0] == 1046, name


def test_grants_are_shown(site: Site) -> None:
    expected = {
        "boss": {"SELECT ON *.*"},
        "reader": {"USAGE ON *.*", "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `reader`.*", "SELECT ON `sky`.*"},
        "narrow": {"USAGE ON *.*", "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `narrow`.*", "SELECT ON `sky`.`band`"},
    }
    for name, grants in expected.items():
        with site.connect(name) as connection:
            cursor = connection.cursor()
            cursor.execute("SHOW GRANTS")
            assert {row[0] for row in cursor.fetchall()} == {f"GRANT {grant} TO `{name}`@`127.0.0.1`" for grant in grants}


def test_queries_are_their_owners(site: Site) -> None:
    """Listed, shown, cancelled and downloaded by their owner and an administrator alone."""
    status, said, _ = site.http("queries", "reader", method="POST", body=b'{"statement": "SELECT COUNT(*) FROM sky.Star"}')
    assert status == 202, said
    number = json.loads(said)["id"]
    deadline = time.monotonic() + 20
    while json.loads(site.http(f"queries/{number}", "reader")[1])["state"] != "COMPLETED" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert site.http(f"queries/{number}/result", "reader", format="csv")[1].split()[-1] == "300"
    for road in (f"queries/{number}", f"queries/{number}/result", f"query-async/status/{number}"):
        status, said, _ = site.http(road, "narrow")
        assert status == 404 or json.loads(said).get("success") == 0, (road, said)
    assert site.http(f"queries/{number}", "boss")[0] == 200
    assert str(number) not in [str(one["id"]) for one in json.loads(site.http("queries", "narrow")[1])["queries"]]
    assert str(number) in [str(one["id"]) for one in json.loads(site.http("queries", "boss")[1])["queries"]]
    status, said, _ = site.http("queries", "narrow", method="POST", body=b'{"statement": "SELECT 1", "user": "reader"}')
    assert status == 403 and "logged in as narrow" in said
    with site.connect("narrow") as connection, site.connect("reader") as owner:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM information_schema.QUERIES WHERE USER <> 'narrow'")
        assert cursor.fetchone() == (0,)
        cursor.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER <> 'narrow'")
        assert cursor.fetchone() == (0,)
        with pytest.raises(pymysql.err.MySQLError):
            cursor.execute(f"SELECT * FROM qserv_result({number})")
        with pytest.raises(pymysql.err.MySQLError) as rejected:
            cursor.execute(f"KILL {owner.thread_id()}")
        assert rejected.value.args[0] == 1095
        owner.cursor().execute(f"SELECT * FROM qserv_result({number})")


# --- users over SQL -------------------------------------------------------------------------------------------------------------------


def rejection(connection: pymysql.connections.Connection, statement: str) -> tuple[int, str]:
    with pytest.raises(pymysql.err.MySQLError) as rejected:
        connection.cursor().execute(statement)
    number, sentence = rejected.value.args
    assert "hidden" not in sentence, sentence
    return number, sentence


def test_users_are_added_changed_and_dropped_by_sql(site: Site) -> None:
    with site.connect("boss") as boss:
        cursor = boss.cursor()
        cursor.execute("CREATE USER 'sue'@'%' IDENTIFIED BY 'first', tokens")
        cursor.execute("CREATE USER IF NOT EXISTS SUE IDENTIFIED BY 'other', tom IDENTIFIED BY 'toms'")
        assert rejection(boss, "CREATE USER tim IDENTIFIED BY 'x', Tom IDENTIFIED BY 'hidden'")[0] == 1396
        with pytest.raises(pymysql.err.OperationalError):
            site.connect("tim", "x")
        cursor.execute("GRANT SELECT ON sky.Band TO sue, tom@'%'")
        with site.connect("sue", "first") as sue, site.connect("tom", "toms") as tom:
            for connection in (sue, tom):
                connection.cursor().execute("SELECT COUNT(*) FROM sky.Band")
                assert rejection(connection, "SELECT COUNT(*) FROM sky.Star")[0] == 1142
            cursor.execute("USE sky")
            cursor.execute("GRANT SELECT ON * TO tom")
            tom.cursor().execute("SELECT COUNT(*) FROM sky.Star")
            # What one of them does not have is taken from none.
            number, sentence = rejection(boss, "REVOKE SELECT ON sky.* FROM tom, sue")
            assert number == 1141 and "sue" in sentence
            tom.cursor().execute("SELECT COUNT(*) FROM sky.Star")
            cursor.execute("SHOW GRANTS FOR 'tom'@'%'")
            assert [row[0] for row in cursor.fetchall()] == [
                "GRANT USAGE ON *.* TO `tom`@`%`",
                "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `tom`.* TO `tom`@`%`",
                "GRANT SELECT ON `sky`.* TO `tom`@`%`",
            ]
            cursor.execute("FLUSH PRIVILEGES")
            tom.cursor().execute("SHOW GRANTS FOR tom")
            assert rejection(tom, "SHOW GRANTS FOR sue")[0] == 1227
            cursor.execute("REVOKE SELECT ON sky.* FROM tom")
            assert rejection(tom, "SELECT COUNT(*) FROM sky.Star")[0] == 1142
            sue.cursor().execute("SET PASSWORD = 'se\\'cond'")
            sue.cursor().execute("SELECT COUNT(*) FROM sky.Band")
            with pytest.raises(pymysql.err.OperationalError):
                site.connect("sue", "first")
            site.connect("sue", "se'cond").close()
            cursor.execute("ALTER USER sue IDENTIFIED BY 'third'")
            assert site.http("tap/capabilities", "sue", "se'cond")[0] == 401
            assert site.http("tap/capabilities", "sue", "third")[0] == 200
            cursor.execute("DROP USER sue, tom, tokens")
            for connection in (sue, tom):
                assert rejection(connection, "SELECT 1")[0] == 1045
        assert rejection(boss, "DROP USER sue")[0] == 1396
        cursor.execute("DROP USER IF EXISTS sue, tom")
    listed = must(site.meridian, site.data, "list")
    assert not {"sue", "tom", "tokens", "tim"} & {line.split()[0] for line in listed.splitlines()}


def test_users_share_their_own_tables(site: Site) -> None:
    with site.connect("narrow") as owner, site.connect("fresh") as colleague, site.connect("reader") as third:
        cursor = owner.cursor()
        cursor.execute("CREATE TABLE narrow.hits AS SELECT * FROM sky.Band")
        cursor.execute("CREATE TABLE narrow.kept AS SELECT * FROM sky.Band")
        count = "SELECT COUNT(*) FROM narrow.hits"
        assert rejection(colleague, count)[0] == 1142
        cursor.execute("GRANT SELECT ON narrow.hits TO fresh")
        colleague.cursor().execute(count)
        assert rejection(colleague, "SELECT * FROM narrow.kept")[0] == 1142
        assert rejection(colleague, "DROP TABLE narrow.hits")[0] == 1142
        # By TAP, as TOPCAT reads it.
        assert "narrow.hits" in site.http("tap/tables", "fresh")[1]
        assert rejection(third, count)[0] == 1142
        cursor.execute("USE narrow")
        cursor.execute("GRANT SELECT ON hits TO public, fresh")
        third.cursor().execute(count)
        third.cursor().execute("SHOW GRANTS")
        assert "PUBLIC" in must(site.meridian, site.data, "list") and "narrow.hits" in must(site.meridian, site.data, "show", "PUBLIC")
        cursor.execute("REVOKE SELECT ON narrow.hits FROM fresh")
        colleague.cursor().execute(count)
        cursor.execute("REVOKE SELECT ON narrow.hits FROM PUBLIC")
        assert rejection(colleague, count)[0] == rejection(third, count)[0] == 1142
        assert rejection(owner, "REVOKE SELECT ON narrow.hits FROM PUBLIC")[0] == 1141
        # Only what is one's own, and only to whom there is.
        for statement, number in [
            ("GRANT SELECT ON sky.Band TO fresh", 1227),
            ("GRANT SELECT ON sky.* TO PUBLIC", 1227),
            ("GRANT SELECT ON reader.t TO fresh", 1227),
            ("GRANT SELECT ON narrow.nothing TO fresh", 1146),
            ("GRANT SELECT ON narrow.hits TO nobody", 1396),
            ("ALTER USER PUBLIC IDENTIFIED BY 'x'", 1227),
        ]:
            assert rejection(owner, statement)[0] == number, statement
        cursor.execute("DROP TABLE narrow.hits, narrow.kept")
    with site.connect("boss") as boss:
        assert rejection(boss, "CREATE USER public")[0] == 1396
        assert rejection(boss, "ALTER USER PUBLIC IDENTIFIED BY 'x'")[0] == 1396
    must(site.meridian, site.data, "grant", "public", "--read", "sky.Star")
    assert site.http("tap/sync", "fresh", QUERY="SELECT COUNT(*) AS n FROM sky.Star", LANG="ADQL", RESPONSEFORMAT="csv")[1].split() == ["n", "300"]
    must(site.meridian, site.data, "revoke", "PUBLIC", "--read", "sky.Star")


def test_what_is_wrong_with_a_statement_about_users_is_told(site: Site) -> None:
    with site.connect("boss") as boss:
        for statement, number, part in [
            ("CREATE USER sky IDENTIFIED BY 'hidden'", 1396, "database sky"),
            ("CREATE USER 'a b' IDENTIFIED BY 'hidden'", 1396, "letters"),
            ("CREATE USER empty IDENTIFIED BY ''", 1819, "1 to 256"),
            ("CREATE USER far@localhost IDENTIFIED BY 'hidden'", 1235, "hosts"),
            ("CREATE USER far IDENTIFIED BY hidden", 1064, "quotes"),
            ("ALTER USER nobody IDENTIFIED BY 'hidden'", 1396, "nobody"),
            ("SET PASSWORD FOR nobody = 'hidden'", 1396, "nobody"),
            ("DROP USER reader, nobody", 1396, "nobody"),
            ("DROP USER boss", 1396, "another administrator"),
            ("GRANT SELECT ON Star TO reader", 1046, "USE"),
            ("GRANT SELECT ON nothing.* TO reader", 1049, "nothing"),
            ("GRANT SELECT ON sky.Nothing TO reader", 1146, "SHOW TABLES"),
            ("GRANT SELECT ON sky.Band TO nobody", 1396, "nobody"),
            ("GRANT ALL ON sky.* TO reader", 1235, "SELECT"),
            ("REVOKE SELECT ON deep.* FROM narrow", 1141, "narrow"),
            ("CREATE ROLE reader", 1396, "already"),
            ("SHOW GRANTS FOR nobody", 1396, "nobody"),
        ]:
            seen, sentence = rejection(boss, statement)
            assert seen == number and part in sentence, (statement, seen, sentence)
    site.connect("reader").close()


def test_who_is_no_administrator_changes_their_own_password_alone(site: Site) -> None:
    with site.connect("reader") as connection:
        for statement in (
            "CREATE USER x IDENTIFIED BY 'hidden'",
            "DROP USER narrow",
            "ALTER USER boss IDENTIFIED BY 'hidden'",
            "SET PASSWORD FOR narrow = 'hidden'",
            "GRANT SELECT ON sky.* TO narrow",
            "GRANT SELECT ON narrow.* TO reader",
            "REVOKE SELECT ON sky.* FROM reader",
        ):
            assert rejection(connection, statement)[0] == 1227, statement
        connection.cursor().execute(f"ALTER USER reader IDENTIFIED BY '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    site.connect("reader").close()
    # Whoever comes in without a password shares the name with others.
    must(site.meridian, site.data, "add", "anonymous", "--no-password")
    with site.connect("anonymous", "") as connection:
        assert rejection(connection, "SET PASSWORD = 'hidden'")[0] == 1227
    must(site.meridian, site.data, "remove", "anonymous")


def test_passwords_are_in_no_list_and_no_log(site: Site) -> None:
    with site.connect("boss", client_flag=CLIENT.MULTI_STATEMENTS) as boss:
        cursor = boss.cursor()
        seen = []
        cursor.execute("CREATE USER lena IDENTIFIED BY 'hidden1'; ALTER USER lena IDENTIFIED BY 'hidden2'; SELECT INFO FROM information_schema.PROCESSLIST; DROP USER lena")
        seen.extend(cursor.fetchall())
        while cursor.nextset():
            seen.extend(cursor.fetchall())
        assert seen and "hidden" not in str(seen)
        cursor.execute("SELECT * FROM information_schema.QUERIES")
        assert "hidden" not in str(cursor.fetchall())
    assert "hidden" not in site.server.log


def test_without_users_the_first_is_added_on_the_command_line(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 10)
    with serving(meridian, data) as server, server.connect() as connection:
        number, sentence = rejection(connection, "CREATE USER ann IDENTIFIED BY 'hidden'")
        assert number == 1290 and "meridian user add NAME --admin" in sentence


# --- changes while a server runs ------------------------------------------------------------------------------------------------------


def test_changes_count_with_the_next_statement(site: Site) -> None:
    """Grants, and their withdrawal, of a connection that is open and has plans; a user who is removed is out."""
    must(site.meridian, site.data, "add", "guest", password="first")
    with site.connect("guest", "first") as connection:
        cursor = connection.cursor()

        def reads() -> bool:
            try:
                cursor.execute("SELECT COUNT(*) FROM sky.Band")
                return True
            except pymysql.err.MySQLError as error:
                assert error.args[0] == 1142
                return False

        for _ in range(3):
            assert not reads()
            must(site.meridian, site.data, "grant", "guest", "--read", "sky.Band", "--read", "deep")
            assert reads() and reads() and reads()
            must(site.meridian, site.data, "revoke", "guest", "--read", "sky.Band")
        must(site.meridian, site.data, "passwd", "guest", password="second")
        assert site.http("tap/capabilities", "guest", "first")[0] == 401
        assert site.http("tap/capabilities", "guest", "second")[0] == 200
        must(site.meridian, site.data, "remove", "guest")
        with pytest.raises(pymysql.err.MySQLError) as ended:
            cursor.execute("SELECT 1")
        assert ended.value.args[0] == 1045
    assert site.http("tap/capabilities", "guest", "second")[0] == 401


def test_a_query_runs_with_the_rights_that_its_user_has_then(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 50)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with serving(meridian, data, "--queries-at-once", 1) as server:
        site = Site(meridian, data, server)
        with site.connect("ann", database="sky") as connection:
            cursor = connection.cursor()
            # The first is at work while the second waits.
            cursor.execute("SUBMIT SELECT COUNT(*) FROM Star a, Star b, Star c, Star d, Star e WHERE a.ra + b.ra + c.ra + d.ra + e.ra < 0")
            (first, _) = cursor.fetchone()
            cursor.execute("SUBMIT SELECT COUNT(*) FROM Star")
            (second, _) = cursor.fetchone()
            must(meridian, data, "revoke", "ann", "--read", "sky")
            cursor.execute(f"CANCEL {first}")
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                cursor.execute(f"SELECT STATE, ERROR FROM information_schema.QUERIES WHERE ID = {second}")
                state, error = cursor.fetchone()
                if state not in ("QUEUED", "EXECUTING"):
                    break
                time.sleep(0.1)
            assert state == "FAILED" and "may not" in error


def test_the_first_user_closes_an_open_server(meridian: Meridian, tmp_path: Path) -> None:
    """Who is connected by a name that nobody proved has to log in, also as that name's user; the last user to go opens it again."""
    data = load_stars_and_bands(meridian, tmp_path, 20)
    with serving(meridian, data) as server:
        site = Site(meridian, data, server)
        with site.connect("ann", "whatever") as connection:
            connection.cursor().execute("SELECT COUNT(*) FROM sky.Star")
            assert site.http("queries", None)[0] == 200
            assert "everybody has to log in" in must(meridian, data, "add", "ann", "--admin", password=PASSWORD)
            with pytest.raises(pymysql.err.MySQLError) as ended:
                connection.cursor().execute("SELECT COUNT(*) FROM sky.Star")
            assert ended.value.args[0] == 1045
        assert site.http("queries", None)[0] == 401
        with site.connect("ann") as connection:
            connection.cursor().execute("SELECT COUNT(*) FROM sky.Star")
        assert "nobody has to log in" in must(meridian, data, "remove", "ann")
        assert site.http("queries", None)[0] == 200


def test_anonymous_may_read_what_is_granted_to_that_user(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "add", "anonymous", "--no-password")
    must(meridian, data, "grant", "anonymous", "--read", "sky.Band")
    with serving(meridian, data) as server:
        site = Site(meridian, data, server)
        status, said, headers = site.http("tap/sync", None, LANG="ADQL", FORMAT="csv", QUERY="SELECT COUNT(*) FROM sky.Band")
        assert status == 200 and said.split()[-1] == "5"
        assert "Basic" in headers["WWW-Authenticate"] and "X-VO-Authenticated" not in headers
        assert site.http("tap/sync", None, LANG="ADQL", QUERY="SELECT COUNT(*) FROM sky.Star")[0] != 200
        with site.connect("anonymous", "") as connection:
            connection.cursor().execute("SELECT * FROM sky.Band")
        with pytest.raises(pymysql.err.MySQLError):
            site.connect("anonymous", "some")


def test_users_who_cannot_be_read_let_nobody_in(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    with serving(meridian, data) as server:
        (data / "users.sqlite").write_bytes(b"nothing" * 1000)
        site = Site(meridian, data, server)
        assert site.http("queries", None)[0] == 503
        with pytest.raises(pymysql.err.MySQLError) as rejected:
            site.connect("ann")
        assert rejected.value.args[0] == 1045


# --- the command line -----------------------------------------------------------------------------------------------------------------


def test_the_command_line(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    assert "nobody has to log in" in must(meridian, data, "list")
    must(meridian, data, "add", "ann", password="secret\nmore")
    assert (data / "users.sqlite").stat().st_mode & 0o777 == 0o600
    assert b"secret" not in (data / "users.sqlite").read_bytes()
    noted = user(meridian, data, "grant", "ann", "--read", "SKY.star", "--read", "later")
    assert noted.returncode == 0 and "there is no later yet" in noted.stderr
    (listed,) = json.loads(must(meridian, data, "list", "--format", "json"))
    assert listed["read"] == ["later", "sky.star"] and listed["password"] and not listed["admin"]
    assert "password" in must(meridian, data, "show", "ann")
    for arguments, sentence in [
        (("add", "Ann"), "already"), (("add", "SKY"), "a database sky already"), (("add", "a b"), "cannot be the name"), (("add", "information_schema"), "cannot be the name"),
        (("grant", "bob", "--read", "sky"), "no user bob"), (("remove", "bob"), "no user bob"), (("show", "bob"), "no user bob"),
        (("revoke", "ann", "--read", "sky"), "no grant to read sky"), (("grant", "ann", "--read", "a.b.c"), "no database, table or columns"),
    ]:  # fmt: skip
        done = user(meridian, data, *arguments, password="x" if arguments[0] == "add" else None)
        assert done.returncode != 0 and sentence in done.stderr, (arguments, done.stderr)
    empty = user(meridian, data, "add", "bob", password="")
    assert empty.returncode != 0 and "1 to 256 bytes" in empty.stderr
    elsewhere = user(meridian, tmp_path / "nowhere", "list")
    assert elsewhere.returncode != 0 and "holds no Meridian data" in elsewhere.stderr
    token = user(meridian, data, "token", "ann", "--days", 1)
    assert token.stdout.startswith("mrd_") and token.stdout.strip().encode() not in (data / "users.sqlite").read_bytes()


def test_addresses_that_others_reach_need_users_and_tls(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    certificates = Path(__file__).parent / "certificates"
    tls = ("--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key")

    def start(*options: object) -> str:
        words = [str(meridian.binary), "serve", "--data", str(data), "--mysql", "0.0.0.0:0", "--http", "off", *map(str, options)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "RUST_LOG": "info"})
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "MySQL clients connect" in line:
                break
        process.terminate()
        process.wait(timeout=30)
        return said

    for options in [(), tls]:
        assert "can be reached from other machines" in start(*options)
    assert "MySQL clients connect" in start("--insecure")
    must(meridian, data, "add", "ann", password=PASSWORD)
    assert "can be reached from other machines" in start()
    assert "MySQL clients connect" in start(*tls)


def own_address() -> str | None:
    """An address of this machine that is no loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only chooses the way.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def test_a_server_that_others_reach_stays_closed(meridian: Meridian, tmp_path: Path) -> None:
    """Passwords are not taken in the clear from elsewhere, and the last user to go does not open it."""
    data = load_stars_and_bands(meridian, tmp_path, 20)
    must(meridian, data, "add", "ann", "--admin", password=PASSWORD)
    certificates = Path(__file__).parent / "certificates"
    options = ("--http", "0.0.0.0:0", "--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key")
    with serving(meridian, data, *options) as server:
        site = Site(meridian, data, server)
        login = {"Authorization": "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()}
        port = server.url("/").rsplit(":", 1)[1].strip("/")

        def status(address: str, scheme: str, headers: dict[str, str]) -> int:
            context = ssl._create_unverified_context() if scheme == "https" else None
            request = urllib.request.Request(f"{scheme}://{address}:{port}/queries", headers=headers)
            try:
                return int(urllib.request.urlopen(request, timeout=30, context=context).status)
            except urllib.error.HTTPError as error:
                return error.code

        assert status("127.0.0.1", "http", login) == 200
        elsewhere = own_address()
        if elsewhere is not None:
            assert status(elsewhere, "https", login) == 200
            assert status(elsewhere, "http", login) == 403
        must(meridian, data, "remove", "ann")
        assert status("127.0.0.1", "http", {}) == status("127.0.0.1", "http", login) == 401
        with pytest.raises(pymysql.err.MySQLError) as rejected:
            site.connect("ann")
        assert rejected.value.args[0] == 1045
