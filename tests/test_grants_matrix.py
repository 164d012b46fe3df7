"""Every kind of grant, by every protocol, for every kind of statement: what each user gets is what a model of the grants says (`grants_model`)."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import mysql.connector
import pyarrow.parquet
import pymysql
import pytest
import requests

from grants_model import COLUMNS, GROUPS, PUBLIC, RELEASED, STATEMENTS, TABLES, USERS, WITH_DATABASE, Refused, Row, Statement, Table, explained, seen
from meridian_cli import Meridian
from serving import serving
from small_tables import CHILD, DIRECTOR, write_lines
from test_users import PASSWORD, Site, must

# What a refusal is called: by MySQL's protocol, and over HTTP.
CODES = {"table": {1142, 1044, 403}, "column": {1054, 400}, "view": {1345, 400}, "place": {400, 403, 404}}
Outcome = list[Row] | Refused
PATIENCE = 60.0


class Denied(Exception):
    """A protocol has refused, with its code."""

    def __init__(self, code: int, said: object) -> None:
        super().__init__(code, said)
        self.code = code


def lines_of(table: Table) -> Iterator[str]:
    for n in table.ids():
        yield ",".join(f"{table.value(column, n):.10g}" for column in table.columns)


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("matrix")
    data = directory / "data"
    kinds = {"Object": DIRECTOR, "Night": DIRECTOR, "Source": {**CHILD, "director": "Object"}, "Band": {"kind": "replicated"}}
    for name, options in kinds.items():
        table = TABLES[f"sky.{name}"]
        file = write_lines(directory / f"{name}.csv", lines_of(table), ",".join(table.columns))
        meridian.load(data, "sky", name, file, **options)
    # A view's fluxes are its own, as those of the other tables are.
    shift = TABLES["sky.Bright"].value("flux", 0) - TABLES["sky.Object"].value("flux", 0)
    meridian.must("view", "create", "--data", data, "--db", "sky", "--name", "Bright", f"SELECT id, ra, `dec`, flux + {shift:.0f} AS flux FROM Object WHERE id < 10")
    for name, grants in USERS.items():
        must(meridian, data, "add", name, *(["--admin"] if grants.is_admin else []), password=PASSWORD)
    for group in GROUPS:
        must(meridian, data, "group", "create", group, *(["--database"] if group in WITH_DATABASE else []))
    for name, grants in USERS.items():
        for group in (*grants.groups, *grants.left):
            must(meridian, data, "group", "members", group, "--add", name)
    meridian.must("release", "--data", data, "--db", "sky", "--table", "Night", "--condition", RELEASED)
    with serving(meridian, data, "--result-cache", 0) as server:
        site = Site(meridian, data, server)
        for full, maker in (("owner.mine", "owner"), ("owner.published", "owner"), ("team.shared", "member")):
            file = write_lines(directory / f"{full}.csv", lines_of(TABLES[full]), ",".join(COLUMNS))
            answer = requests.put(server.url(f"/tables/{full}"), data=file.read_bytes(), auth=(maker, PASSWORD), timeout=30)
            assert answer.status_code == 201, answer.text
        grants_of = [*USERS.items(), *GROUPS.items()]
        for name, grants in grants_of:
            read = [word for grant in (*grants.read, *grants.revoked) for word in ("--read", grant)]
            others = [word for grant in grants.unreleased for word in ("--unreleased", grant)]
            if read or others:
                must(meridian, data, "grant", name, *read, *others)
        must(meridian, data, "grant", "PUBLIC", *(word for grant in PUBLIC for word in ("--read", grant)))
        warm(site)
        for name, grants in USERS.items():
            if grants.revoked:
                must(meridian, data, "revoke", name, *(word for grant in grants.revoked for word in ("--read", grant)))
            for group in grants.left:
                must(meridian, data, "group", "members", group, "--remove", name)
        yield site


def warm(site: Site) -> None:
    """Whoever sees all asks everything first, and who loses it later, so that plans and results are kept that are not the others'."""
    for name in ("boss", "revoked", "left", "parted"):
        assert set(WITH_DATABASE & set(USERS[name].left)) < set(json.loads(site.http("me", name)[1])["databases"])
        with site.connect(name) as connection:
            for statement in STATEMENTS:
                for table in TABLES.values():
                    with suppress(Denied):
                        execute(connection, statement.text.format(t=table.full))


# --- protocols ------------------------------------------------------------------------------------------------------------------------


def floats(rows: object) -> list[Row]:
    return [tuple(float(value) for value in row) for row in rows]  # type: ignore[attr-defined]


def of_csv(text: str) -> list[Row]:
    return floats(list(csv.reader(text.splitlines()))[1:])


def execute(connection: pymysql.connections.Connection, statement: str) -> list[tuple[object, ...]]:
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    except pymysql.err.MySQLError as error:
        raise Denied(error.args[0], error.args[1]) from error


class Client:
    """One user, with a connection for each protocol."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        self.mysql = site.connect(name)
        self.binary = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user=name, password=PASSWORD, use_pure=True)
        self.http = requests.Session()
        self.http.auth = (name, PASSWORD)

    def close(self) -> None:
        self.mysql.close()
        self.binary.close()
        self.http.close()

    def send(self, method: str, path: str, **options: object) -> requests.Response:
        answer = self.http.request(method, self.site.server.url(f"/{path}"), timeout=PATIENCE, **options)  # type: ignore[arg-type]
        if answer.status_code >= 400:
            raise Denied(answer.status_code, answer.text)
        return answer

    def text(self, statement: str) -> list[Row]:
        return floats(execute(self.mysql, statement))

    def prepared(self, statement: str) -> list[Row]:
        cursor = self.binary.cursor(prepared=True)
        try:
            cursor.execute(statement)
            return floats(cursor.fetchall())
        except mysql.connector.Error as error:
            raise Denied(error.errno, error.msg) from error
        finally:
            cursor.close()

    def query(self, statement: str) -> list[Row]:
        answer = self.http.post(self.site.server.url("/query"), json={"query": statement, "database": ""}, timeout=PATIENCE).json()
        if answer.get("success") != 1:
            raise Denied(answer.get("errorCode", answer.get("code", 0)), answer)
        return floats(answer["rows"])

    def waited(self, statement: str) -> list[Row]:
        return of_csv(self.send("POST", "sql?format=csv", json={"statement": statement}).text)

    def tap(self, statement: str) -> list[Row]:
        return of_csv(self.send("POST", "tap/sync", data={"LANG": "ADQL", "FORMAT": "csv", "QUERY": statement}).text)

    def tap_job(self, statement: str) -> list[Row]:
        job = self.send("POST", "tap/async", data={"LANG": "ADQL", "FORMAT": "csv", "QUERY": statement, "PHASE": "RUN"})
        path = job.url.split("/", 3)[3]
        said = self.send("GET", path, params={"WAIT": 30}).text
        phase = re.search(r"phase>(\w+)<", said)
        assert phase is not None, said
        if phase.group(1) == "ERROR":
            raise Denied(0, said)
        return of_csv(self.send("GET", f"{path}/results/result").text)

    def submitted(self, statement: str) -> int:
        return int(self.send("POST", "queries", json={"statement": statement}).json()["id"])

    def wait(self, number: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while (state := self.send("GET", f"queries/{number}").json()["state"]) not in ("COMPLETED", "FAILED") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert state == "COMPLETED", state

    def results(self, statement: str) -> list[Row]:
        """A submitted query, whose stored result is read in three ways, which agree."""
        number = self.submitted(statement)
        self.wait(number)
        rows = of_csv(self.send("GET", f"queries/{number}/result", params={"format": "csv"}).text)
        exported = pyarrow.parquet.read_table(io.BytesIO(self.send("GET", f"queries/{number}/result", params={"format": "parquet"}).content))
        assert floats(zip(*(column.to_pylist() for column in exported.columns), strict=True)) == rows
        assert sorted(floats(execute(self.mysql, f"SELECT * FROM qserv_result({number})"))) == sorted(rows)
        return rows

    def table(self, statement: str) -> list[Row]:
        """A table of one's own that is made of it."""
        name = f"`{self.name}`.made"
        execute(self.mysql, f"CREATE TABLE {name} AS {statement}")
        try:
            return sorted(floats(execute(self.mysql, f"SELECT * FROM {name}")))
        finally:
            execute(self.mysql, f"DROP TABLE {name}")


    def changed(self, statement: str) -> None:
        self.send("POST", "sql", json={"statement": statement})

    def table_over_http(self, statement: str) -> list[Row]:
        """The same by a client that waits."""
        return self.made_over_http(statement, self.changed)

    def submitted_table(self, statement: str) -> list[Row]:
        """The same by one that does not."""
        return self.made_over_http(statement, lambda create: self.wait(self.submitted(create)))

    def made_over_http(self, statement: str, make: Callable[[str], None]) -> list[Row]:
        name = f"`{self.name}`.made"
        make(f"CREATE TABLE {name} AS {statement}")
        try:
            return sorted(self.waited(f"SELECT * FROM {name}"))
        finally:
            self.changed(f"DROP TABLE {name}")


def outcome(act: Callable[[], list[Row]]) -> list[Row] | Denied:
    try:
        return act()
    except Denied as denied:
        return denied


def agrees(found: list[Row] | Denied, expected: Outcome) -> bool:
    if isinstance(found, Denied):
        # A code of 0 is a protocol's that tells none.
        return isinstance(expected, Refused) and (found.code == 0 or found.code in CODES[expected.what])
    if isinstance(expected, Refused) or len(found) != len(expected):
        return False
    return all(row == pytest.approx(told) for row, told in zip(found, expected, strict=True))


@pytest.fixture(scope="module")
def clients(site: Site) -> Iterator[Callable[[str], Client]]:
    made: dict[str, Client] = {}

    def client(name: str) -> Client:
        if name not in made:
            made[name] = Client(site, name)
        return made[name]

    yield client
    for one in made.values():
        one.close()


@pytest.mark.parametrize("name", list(USERS))
def test_statements(clients: Callable[[str], Client], name: str) -> None:
    """All that is wrong is told at once. Each statement is asked twice by text: the second time a plan or a result may be kept."""
    client = clients(name)
    fast = {"text": client.text, "the same again": client.text, "prepared": client.prepared}
    http = {"HTTP": client.query, "POST /sql": client.waited, "TAP": client.tap}
    slow = {
        "TAP's jobs": client.tap_job, "submitted": client.results, "made into a table": client.table,
        "made into a table by POST /sql": client.table_over_http, "made into a table by POST /queries": client.submitted_table,
    }  # fmt: skip
    wrong: list[tuple[object, ...]] = []

    def check(statement: Statement, table: Table, protocols: dict[str, Callable[[str], list[Row]]]) -> None:
        expected = statement.expected(name, table)
        text = statement.text.format(t=table.full)
        for protocol, run in protocols.items():
            found = outcome(lambda run=run: run(text))  # type: ignore[misc]
            if not agrees(found, expected):
                wrong.append((protocol, text, expected, found))

    def all_of(protocols: dict[str, Callable[[str], list[Row]]], statements: list[Statement]) -> None:
        for table in TABLES.values():
            for statement in statements:
                check(statement, table, protocols)

    everywhere = [statement for statement in STATEMENTS if statement.everywhere]
    with ThreadPoolExecutor(2) as pool:
        for checked in (pool.submit(all_of, fast, STATEMENTS), pool.submit(all_of, http, [STATEMENTS[0], *everywhere, STATEMENTS[6]])):
            checked.result()
    all_of(slow, everywhere[:1])
    assert not wrong, wrong


@pytest.mark.parametrize("name", list(USERS))
def test_uploads_are_joined_with_what_is_seen(clients: Callable[[str], Client], name: str) -> None:
    """Who sends a table gets no more of those that it is joined with."""
    client = clients(name)
    form = {"LANG": "ADQL", "FORMAT": "csv", "UPLOAD": "list,param:list"}
    file = {"list": ("list.csv", b"number\n3\n4\n1000\n")}
    for table in TABLES.values():
        of = seen(name, table)
        for column in ("id", "flux"):
            query = f"SELECT t.id, t.{column} FROM {table.full} AS t JOIN TAP_UPLOAD.list AS l ON t.id = l.number ORDER BY t.id"
            expected = Statement(query, ("id", column), lambda of, column=column: [(float(n), of.table.value(column, n)) for n in (3, 4) if n in of.ids])  # type: ignore[misc]
            found = outcome(lambda query=query: of_csv(client.send("POST", "tap/sync", data={**form, "QUERY": query}, files=file).text))  # type: ignore[misc]
            assert agrees(found, expected.expected(name, table)), (table.full, column, of, found)


@pytest.mark.parametrize("name", list(USERS))
def test_explain_and_submit(clients: Callable[[str], Client], name: str) -> None:
    client = clients(name)
    for table in TABLES.values():
        for form in ("EXPLAIN SELECT id FROM {}", "EXPLAIN ANALYZE SELECT id FROM {}"):
            expected = explained(name, table, runs="ANALYZE" in form)
            try:
                execute(client.mysql, form.format(table.full))
                assert expected is None, (table.full, form)
            except Denied as denied:
                assert expected is not None and denied.code in CODES[expected.what], (table.full, form, denied)
        hidden = not seen(name, table).columns
        for form in ("SUBMIT SELECT id FROM {}", "DESCRIBE {}", "SHOW CREATE TABLE {}"):
            try:
                execute(client.mysql, form.format(table.full))
                assert not hidden, (table.full, form)
            except Denied as denied:
                assert denied.code in CODES["table"] and (hidden or table.reads is not None), (table.full, form, denied)


@pytest.mark.parametrize("name", list(USERS))
def test_lists(clients: Callable[[str], Client], name: str) -> None:
    """Each list has what the model says, by table and column."""
    client = clients(name)
    expected = {(full.lower(), column) for full, table in TABLES.items() for column in seen(name, table).columns}
    tables = {full for full, _ in expected}
    databases = {full.split(".")[0] for full in tables}
    places = {table.database for table in TABLES.values()}
    found = {(f"{row[0]}.{row[1]}".lower(), row[2]) for row in execute(client.mysql, "SELECT table_schema, table_name, column_name FROM information_schema.columns") if row[0] in places}
    assert found == expected
    found = {f"{row[0]}.{row[1]}".lower() for row in execute(client.mysql, "SELECT table_schema, table_name FROM information_schema.tables") if row[0] in places}
    assert found == tables
    assert {row[0] for row in execute(client.mysql, "SHOW DATABASES")} & places == databases
    for database in places:
        try:
            shown = {f"{database}.{row[0]}".lower() for row in execute(client.mysql, f"SHOW TABLES FROM {database}")}
        except Denied:
            shown = set()
        assert shown == {full for full in tables if full.startswith(f"{database}.")}
    listed = client.send("POST", "tap/sync", data={"LANG": "ADQL", "FORMAT": "csv", "QUERY": "SELECT table_name, column_name FROM TAP_SCHEMA.columns"}).text
    found = {(row[0].lower(), row[1].strip('"')) for row in csv.reader(listed.splitlines()[1:]) if row[0].split(".")[0] in places}
    assert found == expected
    document = client.send("GET", "tap/tables", params={"detail": "max"}).text
    assert {full.lower() for full in TABLES if f"<name>{full}<" in document} == tables
    me = client.send("GET", "me").json()
    assert set(me["databases"]) == {name, *(set(USERS[name].groups) & WITH_DATABASE)}
    assert {table["name"].lower() for table in me["tables"]} == {full for full in tables if full.split(".")[0] in me["databases"]}


@pytest.mark.parametrize("name", list(USERS))
def test_cones_positions_and_files(clients: Callable[[str], Client], name: str) -> None:
    client = clients(name)
    for table in TABLES.values():
        of = seen(name, table)
        path = f"scs/{table.database}/{table.name}"
        for method, options in (
            ("GET", {"params": {"RA": 10, "DEC": 20, "SR": 5, "VERB": 3, "RESPONSEFORMAT": "csv"}}),
            ("POST", {"params": {"SR": 5, "VERB": 3, "RESPONSEFORMAT": "csv"}, "data": b"ra,dec\n10,20\n"}),
        ):
            # Lists of cones are searched in tables alone, not in views.
            has_place = table.has_cones and {"ra", "dec"} <= set(of.columns) and (method == "GET" or table.reads is None)
            try:
                answer = client.send(method, path, **options).text
            except Denied as denied:
                assert not has_place, (table.full, method, denied)
                assert denied.code in CODES["place" if of.columns else "table"], (table.full, method, denied)
                continue
            assert has_place, (table.full, method)
            rows = list(csv.DictReader(answer.splitlines()))
            assert sorted(int(float(row["id"])) for row in rows) == of.ids, (table.full, method)
            # The list has positions, too.
            assert {column.removesuffix("_2") for column in rows[0]} & set(COLUMNS) == set(of.columns), (table.full, method)
            if "flux" in of.columns:
                assert sum(float(row["flux"]) for row in rows) == sum(table.value("flux", n) for n in of.ids)
        if table.has_hats:
            check_hats(client, table)


def check_hats(client: Client, table: Table) -> None:
    of = seen(client.name, table)
    base = f"hats/{table.database}/{table.name}"
    try:
        cells = client.send("GET", f"{base}/partition_info.csv").text.split()[1:]
    except Denied as denied:
        assert not {"ra", "dec"} <= set(of.columns) and denied.code in (400, 403, 404), denied
        # Nor by the address of a file that others have.
        with pytest.raises(Denied):
            client.send("GET", f"{base}/dataset/Norder=0/Dir=0/Npix=4.parquet")
        return
    rows: list[dict[str, object]] = []
    for order, cell in (line.split(",") for line in cells):
        content = client.send("GET", f"{base}/dataset/Norder={order}/Dir={int(cell) // 10_000 * 10_000}/Npix={cell}.parquet").content
        rows += pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
    assert sorted(int(str(row["id"])) for row in rows) == of.ids
    assert {column for column in rows[0] if column in COLUMNS} == set(of.columns)


@pytest.mark.parametrize("name", [name for name, grants in USERS.items() if not grants.is_admin])
def test_changes_are_of_owners_and_members(clients: Callable[[str], Client], name: str) -> None:
    """To read is not to change."""
    client = clients(name)
    own = {name, *(set(USERS[name].groups) & WITH_DATABASE)}
    for table in TABLES.values():
        if table.database in own:
            execute(client.mysql, f"DELETE FROM {table.full} WHERE id = -1")
            client.changed(f"DELETE FROM {table.full} WHERE id = -1")
            continue
        for statement in (
            "DELETE FROM {} WHERE id = -1", "INSERT INTO {} (id) VALUES (7)", "UPDATE {} SET flux = 0", "TRUNCATE TABLE {}", "DROP TABLE {}",
            "ALTER TABLE {} DROP COLUMN flux", "RENAME TABLE {0} TO {0}2", "ALTER TABLE {} EXPIRE NEVER", "ALTER TABLE {} PARTITION BY NONE",
        ):  # fmt: skip
            with pytest.raises(Denied) as denied:
                execute(client.mysql, statement.format(table.full))
            assert denied.value.code == 1142, (statement, table.full, denied.value)
            with pytest.raises(Denied) as denied:
                client.changed(statement.format(table.full))
            assert denied.value.code == 403 and '"code":1142' in str(denied.value), (statement, table.full, denied.value)
        with pytest.raises(Denied) as denied:
            execute(client.mysql, f"GRANT SELECT ON {table.full} TO nothing")
        assert denied.value.code == 1227
        for method, path in (("PUT", "tables"), ("POST", "load"), ("DELETE", "tables"), ("DELETE", "tap/tables"), ("POST", "tap/load")):
            with pytest.raises(Denied) as denied:
                client.send(method, f"{path}/{table.full}", data=b"id\n1\n")
            assert denied.value.code == 403, (method, path, denied.value)
        for form in ({"grant": "nothing"}, {"grant": "PUBLIC"}, {"revoke": "PUBLIC"}, {"expire": "never"}):
            with pytest.raises(Denied) as denied:
                client.send("POST", f"tables/{table.full}", data=form)
            assert denied.value.code == 403, (form, denied.value)


def test_results_are_of_who_asked(clients: Callable[[str], Client]) -> None:
    """Of everybody else neither the result nor the query is, whatever they may read."""
    whole = clients("whole")
    number = whole.submitted("SELECT id, flux FROM sky.Object")
    whole.wait(number)
    job = whole.send("POST", "tap/async", data={"LANG": "ADQL", "QUERY": "SELECT id FROM sky.Object", "PHASE": "RUN"}).url.split("/", 3)[3]
    assert "COMPLETED" in whole.send("GET", job, params={"WAIT": 30}).text
    for name, grants in USERS.items():
        if name == "whole" or grants.is_admin:
            continue
        client = clients(name)
        for method, path in (
            ("GET", f"queries/{number}"), ("GET", f"queries/{number}/result?format=csv"), ("GET", f"queries/{number}/result?format=parquet"),
            ("DELETE", f"queries/{number}"), ("GET", job), ("GET", f"{job}/results/result"), ("GET", f"{job}/parameters"), ("DELETE", job),
        ):  # fmt: skip
            with pytest.raises(Denied) as denied:
                client.send(method, path)
            assert denied.value.code in (403, 404), (name, path, denied.value)
        with pytest.raises(Denied):
            execute(client.mysql, f"SELECT * FROM qserv_result({number})")
        assert execute(client.mysql, f"SELECT COUNT(*) FROM information_schema.QUERIES WHERE ID = {number}") == [(0,)], name
        assert str(number) not in {str(query["id"]) for query in client.send("GET", "queries").json()["queries"]}
    assert len(of_csv(whole.send("GET", f"queries/{number}/result", params={"format": "csv"}).text)) == len(TABLES["sky.Object"].ids())


def test_a_token_that_has_expired_lets_nobody_in(site: Site) -> None:
    """By no path, while another of the same user does."""
    old, valid = (must(site.meridian, site.data, "token", "whole").strip() for _ in range(2))
    with closing(sqlite3.connect(Path(site.data) / "users.sqlite", timeout=30)) as users, users:
        # The one that was made first.
        users.execute("UPDATE tokens SET expires = 1 WHERE rowid = (SELECT MIN(rowid) FROM tokens)")
    paths = ["tap/tables", "tap/sync?LANG=ADQL&QUERY=SELECT+1", "queries", "me", "scs/sky/Object?RA=10&DEC=20&SR=1", "hats/sky/Object/hats.properties", "tap/async"]
    for token, lets_in in ((old, False), (valid, True)):
        for path in paths:
            for headers, auth in (({"Authorization": f"Bearer {token}"}, None), ({}, ("whole", token))):
                status = requests.get(site.server.url(f"/{path}"), headers=headers, auth=auth, timeout=30).status_code
                assert (status == 200) if lets_in else (status == 401), (path, status)


def test_the_model_can_fail() -> None:
    """The matrix has cells of each kind: rows of all, released rows, refused tables, refused columns."""
    outcomes = [statement.expected(name, table) for statement in STATEMENTS for name in USERS for table in TABLES.values()]
    refused = [it.what for it in outcomes if isinstance(it, Refused)]
    assert len(outcomes) > 1000 and {"table", "column"} == set(refused) and 300 < len(refused) < len(outcomes) - 300
    assert json.dumps(sorted({len(seen(name, TABLES["sky.Night"]).ids) for name in USERS})) == "[0, 20, 40]"
