"""`AS OF` behind a table of a nightly alert database: the rows of its time, whatever is merged, changed or killed since."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest
import pyvo

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from alert_model import PUBLISHED_COLUMNS  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import Server, serving, wait_until  # noqa: E402
from test_alerts_published import AS_OF_STATEMENTS, Night, State, answers_as_of, as_mysql, execute, create, pa  # noqa: E402

TABLES = re.compile(r"(FROM|JOIN) (\w+)")
# Where a model's rows of sources have their number and their object.
SOURCE = PUBLISHED_COLUMNS["DiaSource"]
NUMBER, OWNER = SOURCE.index("diaSourceId"), SOURCE.index("diaObjectId")


@dataclass
class Site:
    """A data directory with some editions, and what there was at each of their times."""

    meridian: Meridian
    data: Path
    history: list[tuple[str, State]]
    bytes: dict[str, list[bytes | pa.Table]]

    def times(self) -> list[str]:
        return [at for at, _ in self.history]


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Editions, between which sources get other objects, and objects other versions; parts are merged between them."""
    data = tmp_path_factory.mktemp("as_of")
    create(meridian, data)
    with serving(meridian, data) as server:
        night = Night(server, 31)
        for edition in range(4):
            night.change(16)
            night.publish(server)
            if edition == 1:
                meridian.must("compact", "--data", data, "--db", "prompt", "--all")
        answers = {at: answers_as_of(server, at) for at, _ in night.history}
    (data.parent / "plain.csv").write_text("id,x\n1,2\n")
    meridian.load(data, "prompt", "Plain", data.parent / "plain.csv")
    view = "SELECT diaObjectId, COUNT(*) AS n FROM DiaSource GROUP BY diaObjectId"
    meridian.must("view", "create", "--data", data, "--db", "prompt", "--name", "SourceCount", view)
    return Site(meridian, data, night.history, answers)


@pytest.fixture
def server(site: Site) -> Iterator[Server]:
    with serving(site.meridian, site.data) as server:
        yield server


def rows(server: Server, statement: str) -> list[tuple[Any, ...]]:
    with server.connect(database="prompt", user="ann") as connection:
        return execute(connection, statement)


def sources(state: State) -> dict[int, Any]:
    """The object of each source."""
    return {row[NUMBER]: row[OWNER] for row in state["DiaSource"]}


def test_a_table_has_the_rows_of_its_time(site: Site, server: Server) -> None:
    """Of the model, in each way to say the time; and the bytes that a time for the whole connection gives."""
    forms = ("AS OF '{}'", "AS OF TIMESTAMP '{}' AS t", "FOR SYSTEM_TIME AS OF '{}'", "FOR SYSTEM_TIME AS OF TIMESTAMP '{}' t")
    for number, (at, state) in enumerate(site.history):
        for table, columns in PUBLISHED_COLUMNS.items():
            named = ", ".join(f"`{column}`" for column in columns)
            form = forms[(number + len(table)) % len(forms)]
            found = rows(server, f"SELECT {named} FROM {table} {form.format(at)}")
            assert sorted(found, key=repr) == as_mysql(state[table]), (at, table)
        wanted = iter(site.bytes[at])
        for statement in AS_OF_STATEMENTS:
            statement = TABLES.sub(rf"\1 \2 AS OF '{at}'", statement)
            for form in ("csv", "json", "arrow"):
                body = json.dumps({"statement": statement, "database": "prompt"}).encode()
                with urllib.request.urlopen(server.url("/sql", format=form), body, timeout=120) as response:
                    answer = response.read()
                assert (pa.ipc.open_stream(answer).read_all() if form == "arrow" else answer) == next(wanted), (at, statement)


def test_two_times_in_one_statement(site: Site, server: Server) -> None:
    """Joins, subqueries, unions, WITH and views, each table with its time, or none; a connection's time is for the others."""
    (first, before), (_, between), (last, after) = site.history[0], site.history[2], site.history[-1]
    old, new = sources(before), sources(after)
    moved = sorted((number, old[number], new[number]) for number in old if number in new and old[number] != new[number])
    assert moved, "the model changes the objects of some sources"
    differ = "NOT (b.diaObjectId <=> a.diaObjectId)"
    listed = "SELECT b.diaSourceId, b.diaObjectId, a.diaObjectId FROM DiaSource AS OF '{}' b JOIN prompt.DiaSource AS OF '{}' AS a"
    found = rows(server, f"{listed.format(first, last)} ON a.diaSourceId = b.diaSourceId WHERE {differ} ORDER BY 1")
    assert found == moved
    found = rows(server, f"SELECT COUNT(*) FROM DiaSource WHERE diaSourceId NOT IN (SELECT diaSourceId FROM DiaSource AS OF '{first}')")
    assert found == [(len(new.keys() - old.keys()),)]
    found = rows(server, f"SELECT (SELECT COUNT(*) FROM DiaSource AS OF '{first}'), (SELECT COUNT(*) FROM DiaSource)")
    assert found == [(len(old), len(new))]
    union = f"SELECT 1 AS k, diaSourceId AS s FROM DiaSource AS OF '{first}' UNION ALL SELECT 2, diaSourceId FROM DiaSource AS OF '{last}'"
    found = rows(server, f"WITH both_times AS ({union}) SELECT k, COUNT(*) FROM both_times GROUP BY k ORDER BY k")
    assert found == [(1, len(old)), (2, len(new))]
    with server.connect(database="prompt") as connection:
        execute(connection, f"SET meridian_as_of = '{site.history[2][0]}'")
        counts = "SELECT (SELECT COUNT(*) FROM DiaSource AS OF '{}'), (SELECT COUNT(*) FROM DiaSource)"
        assert execute(connection, counts.format(first)) == [(len(old), len(sources(between)))]
        execute(connection, f"SET @at = '{first}'")
        assert execute(connection, "SELECT COUNT(*) FROM DiaSource AS OF @at") == [(len(old),)]
    owners = [owner for owner in old.values() if owner is not None]
    wanted = sorted((owner, owners.count(owner)) for owner in set(owners))
    found = rows(server, f"SELECT diaObjectId, n FROM SourceCount AS OF '{first}' WHERE diaObjectId IS NOT NULL ORDER BY 1")
    assert found == wanted
    name, text = "Early", f"SELECT diaSourceId, diaObjectId FROM DiaSource AS OF '{first}'"
    site.meridian.must("view", "create", "--data", site.data, "--db", "prompt", "--name", name, "--replace", text)
    assert dict(rows(server, "SELECT diaSourceId, diaObjectId FROM Early")) == old
    # By its database's name, and with what a region makes of a table.
    found = rows(server, f"SELECT COUNT(*), COUNT(prompt.DiaSource.ra) FROM DiaSource AS OF '{first}' WHERE prompt.DiaSource.diaSourceId > 0")
    assert found == [(len(old), len(old))]
    area = "qserv_areaspec_box(359, 0, 1, 20)"
    found = rows(server, f"SELECT COUNT(*) FROM DiaObjectLast o LEFT JOIN DiaSource AS OF '{first}' s ON o.diaObjectId = s.diaObjectId WHERE {area}")
    plain = rows(server, f"SELECT COUNT(*) FROM DiaObjectLast o LEFT JOIN Early s ON o.diaObjectId = s.diaObjectId WHERE {area.replace('qserv_areaspec_box(', 'scisql_s2PtInBox(o.ra, o.`dec`, ')} = 1")
    assert found == plain
    plan = "\n".join(str(row) for row in rows(server, f"EXPLAIN SELECT * FROM DiaObject AS OF '{first}' WHERE scisql_s2PtInCircle(ra, `dec`, 180, -60, 1) = 1"))
    assert "0 of" in plan or "no chunk" in plan.lower(), plan
    outcome = site.meridian.must("sql", "--data", site.data, "--db", "prompt", "--format", "csv", f"SELECT COUNT(*) AS n FROM DiaSource AS OF '{first}'")
    assert outcome.text.split() == ["n", str(len(old))]


def test_caches_tell_times_apart(site: Site) -> None:
    """Statements that differ in their time alone, again and again: in the plan cache, the result cache, and prepared ones."""
    sizes = {at: len(state["DiaSource"]) for at, state in site.history} | {None: len(site.history[-1][1]["DiaSource"])}
    assert len(set(sizes.values())) == len(site.history)
    with serving(site.meridian, site.data, "--result-cache", 0) as server:
        for _ in range(3):
            for at, size in sizes.items():
                clause = f"AS OF '{at}'" if at else ""
                assert rows(server, f"SELECT COUNT(*) FROM DiaSource {clause} WHERE diaSourceId > 5") == [(size,)], at
        settings = {"host": "127.0.0.1", "port": server.port, "user": "ann", "database": "prompt"}
        with mysql.connector.connect(**settings) as connected, connected.cursor(prepared=True) as cursor:
            for _ in range(2):
                for at in site.times():
                    for statement, values in (
                        (f"SELECT COUNT(*) FROM DiaSource AS OF '{at}' WHERE diaSourceId > %s", (5,)),
                        ("SELECT COUNT(*) FROM DiaSource AS OF %s s WHERE s.diaSourceId > %s", (at, 5)),
                    ):
                        cursor.execute(statement, values)
                        assert cursor.fetchall() == [(sizes[at],)], (statement, values)


def test_submitted_queries_keep_their_time(site: Site) -> None:
    """Whether it is in the text or the connection's, whoever submits them, and though the server is killed."""
    (first, before), (second, _) = site.history[:2]
    wanted = {number: owner for number, owner in sources(before).items()}
    text = "SELECT diaSourceId, diaObjectId FROM DiaSource"
    numbers = []
    # None runs in this server: the next one has what is written down.
    server = Server(site.meridian, site.data, "--queries-at-once", 1)
    try:
        with server.connect(database="prompt", user="ann") as connection:
            slow = "SELECT COUNT(*) FROM DiaSource a, DiaSource b, DiaSource c, DiaSource d, DiaSource e WHERE a.ra + b.ra + c.ra + d.ra + e.ra < 0"
            numbers += [execute(connection, f"SUBMIT {slow}")[0][0]]
            execute(connection, f"SET meridian_as_of = '{first}'")
            numbers += [execute(connection, f"SUBMIT {text}")[0][0]]
            execute(connection, f"SET meridian_as_of = '{second}'")
            numbers += [execute(connection, f"SUBMIT {text} AS OF '{first}'")[0][0]]
        body = json.dumps({"statement": text, "database": "prompt", "user": "ann", "as_of": first}).encode()
        with urllib.request.urlopen(server.url("/queries"), body, timeout=60) as response:
            described = json.load(response)
        assert described["as_of"] == first.replace(" ", "T") + "Z"
        numbers += [described["id"]]
        said = site.meridian.must("query", "submit", "--server", server.url(""), "--user", "ann", "--db", "prompt", "--as-of", first, text).text
        numbers += [int(said)]
    finally:
        server.stop(signal.SIGKILL)
    with serving(site.meridian, site.data, "--queries-at-once", 8) as server:
        for number in numbers[1:]:
            query = f"SELECT STATE, AS_OF FROM information_schema.QUERIES WHERE ID = {number}"
            wait_until(lambda query=query: rows(server, query)[0][0] not in ("QUEUED", "EXECUTING"), 120, f"query {number} ends")
            [(state, _)] = rows(server, query)
            assert state == "COMPLETED", rows(server, f"SELECT ERROR FROM information_schema.QUERIES WHERE ID = {number}")
            assert dict(rows(server, f"SELECT * FROM qserv_result({number})")) == wanted, number
        times = [str(row[0]) for row in rows(server, f"SELECT AS_OF FROM information_schema.QUERIES WHERE ID > {numbers[0]} AND MODE = 'ASYNC' ORDER BY ID")]
        assert times == [first, second, first, first]
        with server.connect(user="ann") as connection:
            execute(connection, f"CANCEL {numbers[0]}")


def test_tap_has_a_parameter(site: Site, server: Server) -> None:
    """Of queries and jobs, and ADQL has the clause too."""
    first, state = site.history[0]
    size = str(len(state["DiaSource"]))
    query = 'SELECT COUNT(*) AS n FROM "prompt"."DiaSource"'
    form = {"REQUEST": "doQuery", "LANG": "ADQL", "FORMAT": "csv"}
    for given in (
        {"QUERY": query, "ASOF": first},
        {"QUERY": query, "asof": first.replace(" ", "T") + "Z"},
        {"QUERY": query, "MERIDIAN_AS_OF": first},
        {"QUERY": f"{query} AS OF '{first}'"},
        {"QUERY": f"{query} AS OF TIMESTAMP '{first}' AS s", "ASOF": site.times()[1]},
    ):
        with urllib.request.urlopen(server.url("/tap/sync", **form, **given), timeout=60) as response:
            assert response.read().decode().split() == ["n", size], given
        data = urllib.parse.urlencode({**form, **given, "PHASE": "RUN"}).encode()
        with urllib.request.urlopen(server.url("/tap/async"), data, timeout=60) as response:
            job = response.url
        wait_until(lambda job=job: text_of(f"{job}/phase") not in ("QUEUED", "EXECUTING"), 60, "the job ends")
        assert text_of(f"{job}/phase") == "COMPLETED", text_of(job)
        assert [row for row in csv.reader(io.StringIO(text_of(f"{job}/results/result")))] == [["n"], [size]], given
    for given, words in (({"ASOF": "yesterday"}, "ASOF cannot be set to"), ({"ASOF": "2200-01-01"}, "still to come")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server.url("/tap/sync", **form, QUERY=query, **given), timeout=60)
        assert refused.value.code == 400 and words in refused.value.read().decode()
        data = urllib.parse.urlencode({**form, "QUERY": query, "PHASE": "RUN", **given}).encode()
        with urllib.request.urlopen(server.url("/tap/async"), data, timeout=60) as response:
            job = response.url
        assert text_of(f"{job}/phase") == "ERROR" and words in text_of(f"{job}/error")
    service = pyvo.dal.TAPService(server.url("/tap"))
    found = service.run_sync(query, asof=first)
    assert int(found["n"][0]) == int(size)


def text_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read().decode().strip()


MISTAKES = (
    ("DiaSource AS OF 'tomorrow'", 1525, "is no time"),
    ("DiaSource AS OF '2200-01-01'", 1525, "still to come"),
    ("DiaSource AS OF 7", 1525, "takes a time in UTC as a text"),
    ("DiaSource AS OF @unset", 1525, "takes a time in UTC as a text"),
    ("DiaSource s AS OF '2026-01-01'", 1064, "before its alias"),
    ("Plain AS OF '2026-01-01'", 4124, "Plain has no states of former times"),
    ("DiaSourceStored AS OF '2026-01-01'", 4124, "DiaSourceStored has no states of former times"),
    ("Edition AS OF '2026-01-01'", 4124, "Edition has no states"),
    ("information_schema.TABLES AS OF '2026-01-01'", 4124, "TABLES has no states"),
    ("DiaSorce AS OF '2026-01-01'", 1146, "there is no table DiaSorce; did you mean DiaSource"),
    ("elsewhere.DiaSource AS OF '2026-01-01'", 1146, "no database elsewhere"),
    ("(SELECT 1 AS x) AS OF '2026-01-01'", 1064, "behind the name of a table"),
)


@pytest.mark.parametrize(("table", "number", "words"), MISTAKES)
def test_mistakes_are_told_with_their_place(site: Site, server: Server, table: str, number: int, words: str) -> None:
    with pytest.raises(pymysql.MySQLError) as raised:
        rows(server, f"SELECT COUNT(*)\nFROM {table}")
    assert raised.value.args[0] == number, raised.value.args
    assert words in raised.value.args[1]
    assert "line 2" in raised.value.args[1] and "^" in raised.value.args[1], raised.value.args[1]


def test_later_changes_change_no_answer(meridian: Meridian, tmp_path: Path) -> None:
    """What users were answered as of a time they are answered after merges, reassignments and more editions."""
    create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 5)
        statement = "SELECT b.diaSourceId, b.diaObjectId AS was, n.diaObjectId AS is_now FROM DiaSource AS OF '{}' b LEFT JOIN DiaSource AS OF '{}' n ON b.diaSourceId = n.diaSourceId ORDER BY 1"
        answers: dict[str, list[tuple[Any, ...]]] = {}
        for step in range(3):
            night.change(12)
            night.publish(server)
            if step:
                text = statement.format(night.history[-2][0], night.history[-1][0])
                old, new = sources(night.history[-2][1]), sources(night.history[-1][1])
                answers[text] = rows(server, text)
                assert answers[text] == sorted((number, owner, new.get(number)) for number, owner in old.items())
            meridian.must("compact", "--data", tmp_path, "--db", "prompt", "--all")
            for text, answer in answers.items():
                assert rows(server, text) == answer, (step, text)
        assert rows(server, "SELECT COUNT(*) FROM DiaObject AS OF '2001-01-01'") == [(0,)]
