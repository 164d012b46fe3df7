"""Queries over HTTP: Qserv's REST API, and our own list of queries with its results."""

from __future__ import annotations

import base64
import gzip
import http.client
import io
import json
import shutil
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import astropy.table
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pymysql
import pytest

from meridian_cli import Meridian, read_arrow
from serving import Server, serving, wait_until
from small_tables import load_stars_and_bands

STARS = 60_000
ENDED = ("COMPLETED", "FAILED", "FAILED_LR", "ABORTED")
NEVER_ENDS = "SELECT sum(a.id) FROM Star a, Star b, Star c"
# Text, a key beyond what a double holds, a number that needs 17 digits, bytes, NULL and a time.
VALUES = (
    "SELECT 'a\"b\\\\é' AS t, 9223372036854775807 AS n, 18446744073709551615 AS u, 0.1e0 + 0.2e0 AS d, x'0a11ffd2' AS b,"
    " NULL AS nothing, TIMESTAMP '2026-11-24 10:00:00' AS m, CAST(1.5 AS DECIMAL(5,2)) AS c, '' AS empty"
)
VALUES_ROW = ['a"b\\é', "9223372036854775807", "18446744073709551615", "0.30000000000000004", "0A11FFD2", None]
PAIRS = (
    "SELECT a.id % 10 AS g, COUNT(*) AS n FROM Star a, Star b"
    " WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < {} GROUP BY g ORDER BY g"
)


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky in many chunks, and a small replicated table."""
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("query-api"), STARS)


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the stars."""
    with serving(meridian, Path(shutil.copytree(data, tmp_path_factory.mktemp("served") / "data"))) as server:
        yield server


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A data directory for one test's servers."""
    return Path(shutil.copytree(data, tmp_path / "data"))


class Reply:
    """A response: status, headers and body."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        """The body as JSON."""
        assert self.headers["Content-Type"] == "application/json", (self.status, self.headers, self.body)
        return json.loads(self.body)


def send(server: Server, method: str, path: str, body: object = None, user: str | None = None, **headers: str) -> Reply:
    """Sends a request; a body that is no bytes is written as JSON."""
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:whatever".encode()).decode()
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url(path), content, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return Reply(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.headers, error.read())


def succeeded(reply: Reply) -> dict[str, Any]:
    """The object of a request of Qserv's API that succeeded."""
    answer = reply.json
    assert reply.status == 200 and answer["success"] == 1, answer
    assert (answer["error"], answer["error_ext"]) == ("", {})
    assert isinstance(answer["warning"], str)
    return dict(answer)


def failed(reply: Reply, status: int = 200) -> dict[str, Any]:
    """The object of a request of Qserv's API that failed."""
    answer = reply.json
    assert reply.status == status and answer["success"] == 0, answer
    assert answer["error"] and isinstance(answer["error_ext"], dict) and answer["warning"] == ""
    return dict(answer)


def submit(server: Server, query: str, database: str = "sky", user: str | None = None) -> int:
    """The number of a query that is submitted by Qserv's API."""
    number = succeeded(send(server, "POST", "/query-async", {"query": query, "database": database}, user))["queryId"]
    assert isinstance(number, int)
    return number


def status(server: Server, number: int) -> dict[str, Any]:
    """The status of a query by Qserv's API."""
    return dict(succeeded(send(server, "GET", f"/query-async/status/{number}"))["status"])


def ended(server: Server, number: int, seconds: float = 120) -> dict[str, Any]:
    """Waits until a query has ended."""
    wait_until(lambda: status(server, number)["status"] in ENDED, seconds, f"query {number} ends")
    return status(server, number)


def test_the_version_is_told(server: Server) -> None:
    """By name and number, and others than those that are implemented are rejected, as Qserv does."""
    answer = succeeded(send(server, "GET", "/meta/version"))
    assert (answer["kind"], answer["name"], answer["version"]) == ("qserv-czar-query-frontend", "http", 55)
    assert isinstance(answer["id"], int) and isinstance(answer["instance_id"], str)
    succeeded(send(server, "GET", "/meta/version?version=55"))
    query = {"query": "SELECT 1"}
    succeeded(send(server, "POST", "/query?version=55", query))
    # What the body names takes precedence.
    succeeded(send(server, "POST", "/query?version=99", {**query, "version": 55}))
    for reply in (
        send(server, "POST", "/query?version=56", query),
        send(server, "POST", "/query", {**query, "version": 56}),
        send(server, "POST", "/query-async?version=31", query),
        send(server, "GET", "/query-async/status/1?version=1000"),
        send(server, "GET", "/query-async/result/1?version=1000"),
        send(server, "DELETE", "/query-async/1?version=1000"),
        send(server, "DELETE", "/query-async/result/1?version=1000"),
        send(server, "GET", "/meta/version?version=56"),
    ):
        answer = failed(reply)
        assert "is not in the range" in answer["error"] and answer["error_ext"]["max_version"] == 55
    assert "no number" in failed(send(server, "GET", "/meta/version?version=new"))["error"]


def test_rows_are_sent_at_once(server: Server) -> None:
    """Every value as text, as MySQL's protocol has it; NULL is null."""
    answer = succeeded(send(server, "POST", "/query", {"query": VALUES, "database": "sky"}))
    [row] = answer["rows"]
    assert row[:6] == VALUES_ROW and row[8] == ""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(VALUES)
        [direct] = cursor.fetchall()
    assert [str(direct[6]), str(direct[7])] == row[6:8]
    columns = answer["schema"]
    assert [column["column"] for column in columns] == ["t", "n", "u", "d", "b", "nothing", "m", "c", "empty"]
    types = {column["column"]: (column["type"], column["is_binary"]) for column in columns}
    assert types["n"] == ("BIGINT", 0) and types["u"] == ("BIGINT UNSIGNED", 0) and types["d"] == ("DOUBLE", 0)
    assert types["b"] == ("LONGBLOB", 1) and types["t"][0].startswith("VARCHAR") and types["c"] == ("DECIMAL(5,2)", 0)
    assert all(column["table"] == "" for column in columns)
    warned = succeeded(send(server, "POST", "/query", {"query": "SELECT COUNT(*) FROM sky.Star WHERE id = '7x'"}))
    assert warned["rows"] == [["1"]] and warned["warning"].startswith("1292")
    for encoding, value in (("hex", "0A11FFD2"), ("b64", "ChH/0g=="), ("array", [10, 17, 255, 210])):
        answer = succeeded(send(server, "POST", "/query", {"query": VALUES, "binary_encoding": encoding}))
        assert answer["rows"][0][4] == value
    assert succeeded(send(server, "POST", "/query", {"query": "SELECT id FROM sky.Star WHERE id < 0;"}))["rows"] == []


def test_results_of_any_size_are_sent(server: Server) -> None:
    """Row by row as MySQL's protocol sends them, however many blocks they take."""
    query = "SELECT id, ra, `dec`, version FROM Star ORDER BY id"
    answer = succeeded(send(server, "POST", "/query", {"query": query, "database": "sky"}))
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(query)
        direct = cursor.fetchall()
    assert len(answer["rows"]) == STARS
    assert [(int(row[0]), float(row[1]), float(row[2]), int(row[3])) for row in answer["rows"]] == list(direct)
    number = submit(server, query)
    assert ended(server, number)["finalRows"] == STARS
    assert succeeded(send(server, "GET", f"/query-async/result/{number}"))["rows"] == answer["rows"]


def test_a_result_does_not_stay_in_memory(server: Server) -> None:
    """A client that does not read suspends its query, and the server holds a few blocks."""
    query = "SELECT a.id, b.id, a.ra, b.ra FROM Star a, Star b"
    body = json.dumps({"query": query, "database": "sky"})
    before = server.resident_bytes()
    with socket.create_connection(("127.0.0.1", server.http_port)) as client:
        client.sendall(f"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        wait_until(server.is_idle, 60, "the query waits for its client")
        assert server.resident_bytes() - before < 300 << 20
    wait_until(lambda: state_of_blocking(server, query) == "ABORTED", 10, "it ends with its client")


def state_of_blocking(server: Server, statement: str) -> str | None:
    """The state of the last query of a connection with this text."""
    queries = send(server, "GET", "/queries?limit=1000").json["queries"]
    states = (query["state"] for query in queries if query["statement"] == statement and query["mode"] == "BLOCKING")
    return next(states, None)


def test_a_query_is_submitted_and_read(server: Server) -> None:
    """Its status has all that Qserv tells; the result is there until it is deleted."""
    number = submit(server, VALUES)
    told = ended(server, number)
    assert told["status"] == "COMPLETED" and told["queryId"] == number and told["query"] == VALUES and told["error"] == ""
    assert told["czarType"] == "http" and isinstance(told["czarId"], int)
    assert told["totalChunks"] == told["completedChunks"] and told["finalRows"] == told["collectedRows"] == 1
    assert told["collectedBytes"] > 0
    now = time.time()
    assert now - 60 < told["queryBeginEpoch"] <= told["lastUpdateEpoch"] <= now + 1
    for _ in range(2):
        assert succeeded(send(server, "GET", f"/query-async/result/{number}"))["rows"][0][:6] == VALUES_ROW
    answer = succeeded(send(server, "GET", f"/query-async/result/{number}?binary_encoding=b64"))
    assert answer["rows"][0][4] == "ChH/0g=="
    # The same result is a table for MySQL's clients.
    with server.connect(database="sky", user="http") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT n FROM qserv_result({number})")
        assert cursor.fetchall() == ((9223372036854775807,),)
    succeeded(send(server, "DELETE", f"/query-async/result/{number}"))
    assert "there is no query" in failed(send(server, "GET", f"/query-async/result/{number}"))["error"]


@pytest.mark.parametrize("path", ["/query", "/query-async"])
def test_wrong_requests_are_told(server: Server, path: str) -> None:
    """In a sentence and with MySQL's number, and nothing is submitted."""
    before = len(send(server, "GET", "/queries?limit=1000").json["queries"])
    for query, code, words in (
        ("SELECT nothing FROM Star", 1054, "there is no column nothing"),
        ("SELECT * FROM Nowhere", 1146, "Nowhere"),
        ("SELEC 1", 1064, "cannot be read"),
        ("SELECT 1; SELECT 2", 1064, "one statement"),
        ("", 1064, "one statement"),
        ("SET sql_select_limit = 1", 1235, "SET is for connections"),
        ("SUBMIT SELECT 1", 1235, "SUBMIT is for connections"),
        ("KILL 7", 1235, "KILL is for connections"),
    ):
        answer = failed(send(server, "POST", path, {"query": query, "database": "sky"}))
        assert answer["error_ext"]["code"] == code and words in answer["error"], answer
    assert failed(send(server, "POST", path, {"query": "SELECT 1", "database": "nowhere"}))["error_ext"]["code"] == 1049
    for body, words in (
        ({"database": "sky"}, "missing field `query`"),
        ({"query": 7}, "expected a string"),
        ([1], "cannot be read"),
        (b"{", "cannot be read"),
        (b"", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 10_000, "cannot be read"),
    ):
        answer = failed(send(server, "POST", path, body))
        assert words in answer["error"] and '"query": "SELECT 1"' in answer["error"], answer
    if path == "/query":
        answer = failed(send(server, "POST", path, {"query": "SELECT 1", "binary_encoding": "octal"}))
        assert "hex, b64 and array" in answer["error"]
    answer = failed(send(server, "POST", path, b" " * ((16 << 20) + 1)), status=413)
    assert "16 MiB" in answer["error"]
    after = send(server, "GET", "/queries?limit=1000").json["queries"]
    assert len([query for query in after if query["mode"] == "ASYNC"]) <= before


def test_unknown_numbers_are_told(server: Server) -> None:
    """By all services that take one."""
    for method, path in (
        ("GET", "/query-async/status/5"),
        ("GET", "/query-async/result/5"),
        ("DELETE", "/query-async/5"),
        ("DELETE", "/query-async/result/5"),
    ):
        answer = failed(send(server, method, path))
        assert answer["error_ext"]["code"] == 1094 and "there is no query of number 5" in answer["error"], (method, path)
    for number in ("x", "-1", "99999999999999999999999"):
        assert "not the number of a query" in failed(send(server, "GET", f"/query-async/status/{number}"))["error"]
    assert failed(send(server, "GET", "/query-async/result/5?binary_encoding=octal"))["error"].startswith("binary_encoding")


def test_methods_that_are_not_served_are_told(server: Server) -> None:
    """In JSON as everything else."""
    for method, path in (("GET", "/query"), ("PUT", "/query-async/5"), ("POST", "/queries/5"), ("DELETE", "/meta/version")):
        answer = failed(send(server, method, path), status=405)
        assert answer["error"] == f"{path} is not served with {method}"


def test_a_query_is_cancelled(server: Server) -> None:
    """It is told as aborted, has no result, and its work ends."""
    number = submit(server, NEVER_ENDS)
    wait_until(lambda: status(server, number)["completedChunks"] > 0, 60, "it runs")
    told = status(server, number)
    assert told["status"] == "EXECUTING" and told["error"] == "" and told["finalRows"] == 0
    assert 0 < told["completedChunks"] <= told["totalChunks"] and told["lastUpdateEpoch"] >= told["queryBeginEpoch"]
    assert "EXECUTING" in failed(send(server, "GET", f"/query-async/result/{number}"))["error"]
    assert "cancel it first" in failed(send(server, "DELETE", f"/query-async/result/{number}"))["error"]
    succeeded(send(server, "DELETE", f"/query-async/{number}"))
    told = status(server, number)
    assert told["status"] == "ABORTED" and "cancelled" in told["error"]
    wait_until(server.is_idle, 20, "its work ends")
    assert "aborted" in failed(send(server, "GET", f"/query-async/result/{number}"))["error"]
    assert "has ended" in failed(send(server, "DELETE", f"/query-async/{number}"))["error"]


def test_queries_are_of_their_user(server: Server) -> None:
    """Whom Basic authentication names; nobody else reads, cancels or deletes them."""
    number = submit(server, "SELECT COUNT(*) FROM Star", user="ann")
    assert ended(server, number)["status"] == "COMPLETED"
    for user in (None, "bob"):
        for method, path in (("GET", "result/"), ("DELETE", ""), ("DELETE", "result/")):
            answer = failed(send(server, method, f"/query-async/{path}{number}", user=user))
            assert answer["error_ext"]["code"] == 1227 and "another user, ann" in answer["error"]
    assert succeeded(send(server, "GET", f"/query-async/result/{number}", user="ann"))["rows"] == [[str(STARS)]]
    wrong = send(server, "GET", f"/query-async/result/{number}", Authorization="Bearer x")
    assert "Authorization" in failed(wrong)["error"]


def test_a_query_may_fail_while_it_runs(server: Server) -> None:
    """A statement that is right and meets a value that it cannot compute with."""
    number = submit(server, "SELECT CAST(9223372036854775807 AS SIGNED) + id FROM Star ORDER BY id")
    told = ended(server, number)
    assert told["status"] == "FAILED" and told["error"]
    assert "failed" in failed(send(server, "GET", f"/query-async/result/{number}"))["error"]


def test_a_result_that_is_too_large_has_a_state_of_its_own(meridian: Meridian, own_data: Path) -> None:
    """FAILED_LR, with the limit in the error."""
    with serving(meridian, own_data, "--max-result", "100K") as server:
        number = submit(server, "SELECT * FROM Star")
        told = ended(server, number)
        assert told["status"] == "FAILED_LR" and "--max-result" in told["error"]
        small = submit(server, "SELECT COUNT(*) FROM Star")
        assert ended(server, small)["status"] == "COMPLETED"
        # Rows that are not stored have no such limit.
        assert len(succeeded(send(server, "POST", "/query", {"query": "SELECT * FROM sky.Star"}))["rows"]) == STARS


def test_a_client_that_hangs_up_ends_its_query(server: Server) -> None:
    """Within a moment, and the list says so."""
    body = json.dumps({"query": NEVER_ENDS, "database": "sky"})
    client = socket.create_connection(("127.0.0.1", server.http_port))
    client.sendall(f"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    wait_until(lambda: state_of_blocking(server, NEVER_ENDS) == "EXECUTING", 20, "it runs")
    before = server.processor_seconds()
    client.close()
    wait_until(lambda: state_of_blocking(server, NEVER_ENDS) == "ABORTED", 20, "it is aborted")
    wait_until(server.is_idle, 20, "its work ends")
    # What a debug build computes until it notices, as in test_stopping.py.
    assert server.processor_seconds() - before < 0.8 + 0.5


def test_a_blocking_query_ends_by_its_number(server: Server) -> None:
    """Its client is told; KILL of its connection's number does the same."""
    for how in ("cancel", "kill"):
        replies: list[Reply] = []

        def execute() -> None:
            replies.append(send(server, "POST", "/query", {"query": NEVER_ENDS, "database": "sky"}, user=how))

        asking = threading.Thread(target=execute)
        asking.start()
        running: list[Any] = []

        def found() -> bool:
            running[:] = send(server, "GET", f"/queries?user={how}&state=EXECUTING").json["queries"]
            return len(running) == 1

        wait_until(found, 20, "it runs")
        if how == "cancel":
            succeeded(send(server, "DELETE", f"/query-async/{running[0]['id']}", user=how))
        else:
            with server.connect(user="root") as connection, connection.cursor() as cursor:
                cursor.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'kill'")
                [(process,)] = cursor.fetchall()
                cursor.execute(f"KILL {process}")
        asking.join(10)
        answer = failed(replies[0])
        assert answer["error_ext"]["code"] == 1317, answer
        assert status(server, running[0]["id"])["status"] == "ABORTED"


def test_pages_of_other_sites_do_not_reach_queries(server: Server) -> None:
    """They neither submit nor read."""
    foreign = {"Origin": "https://evil.example"}
    for method, path in (("POST", "/query"), ("POST", "/query-async"), ("POST", "/queries"), ("DELETE", "/queries/5")):
        assert send(server, method, path, {"query": "SELECT 1"}, **foreign).status == 403
    reply = send(server, "GET", "/queries", **foreign)
    assert "Access-Control-Allow-Origin" not in reply.headers
    # Jobs of TAP have statements and results, too.
    assert "Access-Control-Allow-Origin" not in send(server, "GET", "/tap/async", **foreign).headers
    assert send(server, "GET", "/tap/capabilities", **foreign).headers["Access-Control-Allow-Origin"] == "*"
    assert send(server, "GET", "/healthz", **foreign).headers["Access-Control-Allow-Origin"] == "*"


# The list of queries.


def listed(server: Server, query: str = "") -> list[dict[str, Any]]:
    """The queries of the list."""
    reply = send(server, "GET", f"/queries{query}")
    assert reply.status == 200
    return list(reply.json["queries"])


def described(server: Server, number: int) -> dict[str, Any]:
    """What is known of a query."""
    reply = send(server, "GET", f"/queries/{number}")
    assert reply.status == 200, reply.json
    return dict(reply.json)


def submitted(server: Server, statement: str, **properties: object) -> int:
    """Submits a query and waits until it has ended."""
    reply = send(server, "POST", "/queries", {"statement": statement, "database": "sky", **properties})
    assert reply.status == 202, reply.json
    number = reply.json["id"]
    assert reply.headers["Location"] == f"/queries/{number}"
    wait_until(lambda: described(server, number)["state"] in ENDED, 120, f"query {number} ends")
    return int(number)


def test_the_list_is_filtered(server: Server) -> None:
    """By state and user; the newest come first, and older ones on request."""
    first, second, third = (submitted(server, f"SELECT {n}", user="lister") for n in range(3))
    late = submitted(server, NEVER_ENDS, user="lister", time_limit=0.3)
    assert [query["id"] for query in listed(server, "?user=lister")] == [late, third, second, first]
    assert [query["id"] for query in listed(server, "?user=lister&state=completed&limit=2")] == [third, second]
    assert [query["id"] for query in listed(server, f"?user=lister&before={second}")] == [first]
    [failed_one] = listed(server, "?user=lister&state=FAILED,ABORTED")
    assert failed_one["id"] == late and failed_one["error_code"] == 3024 and "max_execution_time" in failed_one["error"]
    for query, words in (("?state=DONE", "QUEUED, EXECUTING"), ("?limit=1001", "1000 at most"), ("?limit=x", "LIMIT")):
        reply = send(server, "GET", f"/queries{query}")
        assert reply.status == 400 and words in reply.json["error"], reply.json
    long = submitted(server, f"SELECT '{'x' * 10_000}' AS long_text", user="lister")
    assert len(described(server, long)["statement"]) > 10_000
    assert len(listed(server, "?user=lister&limit=1")[0]["statement"]) < 2_100


def test_a_query_is_described(server: Server) -> None:
    """With all that information_schema.QUERIES has, and where its result is."""
    number = submitted(server, "SELECT COUNT(*) AS n FROM Star", user="ann")
    query = described(server, number)
    assert (query["user"], query["database"], query["mode"], query["protocol"]) == ("ann", "sky", "ASYNC", "HTTP")
    assert query["result"] == f"/queries/{number}/result" and query["rows"] == 1
    with server.connect(user="ann") as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SELECT * FROM information_schema.QUERIES WHERE ID = %s", (number,))
        [row] = cursor.fetchall()
    assert row["PROTOCOL"] == "HTTP" and row["STATE"] == query["state"] and row["PIECES"] == query["pieces"]
    assert str(row["SUBMITTED"]).replace(" ", "T") + "Z" == query["submitted"]
    assert send(server, "GET", "/queries/5").status == 404
    assert send(server, "GET", "/queries/x").status == 400


def test_submissions_are_checked(server: Server) -> None:
    """With a status for programs and a sentence for people."""
    for body, expected, words in (
        ({"statement": "SELECT nothing FROM Star", "database": "sky"}, 400, "there is no column"),
        ({"statement": "SELECT 1 FROM Nowhere", "database": "sky"}, 404, "Nowhere"),
        ({"statement": "SELECT 1", "databse": "sky"}, 400, "unknown field `databse`"),
        ({"statement": "SELECT 1", "time_limit": 0}, 400, "above 0"),
        ({"statement": "SELECT 1", "user": "x" * 300}, 400, "shorter"),
        ({"statement": "SHOW TABLES; SELECT 1"}, 400, "one statement"),
        ({}, 400, "missing field `statement`"),
    ):
        reply = send(server, "POST", "/queries", body)
        assert reply.status == expected and words in reply.json["error"], reply.json
    cut = submitted(server, "SELECT id FROM Star", row_limit=7)
    assert described(server, cut)["rows"] == 7


def test_statements_have_dialects(server: Server) -> None:
    """In ADQL double quotes are for names; the list tells the dialect."""
    cone = "SELECT TOP 3 \"id\", 'x' AS \"a b\" FROM \"Star\" WHERE CONTAINS(POINT(ra, \"dec\"), CIRCLE(10, 0, 20)) = 1 ORDER BY \"id\";"
    number = submitted(server, cone, dialect="adql")
    query = described(server, number)
    assert (query["state"], query["dialect"], query["rows"]) == ("COMPLETED", "adql", 3), query
    direct = "SELECT id, 'x' AS `a b` FROM Star WHERE scisql_angSep(ra, `dec`, 10, 0) < 20 ORDER BY id LIMIT 3"
    number_of_mysql = submitted(server, direct)
    assert described(server, number_of_mysql)["dialect"] == "mysql"
    assert result(server, number).json == result(server, number_of_mysql).json
    assert submitted(server, 'SELECT "text" AS t', dialect="mysql")
    for body, words in (
        ({"statement": "SELECT 1", "dialect": "oracle"}, "dialects here: mysql, adql"),
        ({"statement": 'SELECT "none" FROM "Star"', "database": "sky", "dialect": "adql"}, "none"),
        ({"statement": "SELECT 1; SELECT 2", "dialect": "adql"}, ""),
    ):
        reply = send(server, "POST", "/queries", body)
        assert reply.status == 400 and words in reply.json["error"], reply.json


def test_a_query_of_the_list_is_cancelled(server: Server) -> None:
    """By its user alone, and once."""
    reply = send(server, "POST", "/queries", {"statement": NEVER_ENDS, "database": "sky", "user": "ann"})
    number = reply.json["id"]
    reply = send(server, "DELETE", f"/queries/{number}")
    assert reply.status == 403 and "another user, ann" in reply.json["error"]
    assert send(server, "GET", f"/queries/{number}/result?user=ann").status == 409
    assert send(server, "DELETE", f"/queries/{number}/result?user=ann").status == 409
    reply = send(server, "DELETE", f"/queries/{number}?user=ann")
    assert reply.status == 200 and reply.json["state"] == "ABORTED"
    reply = send(server, "DELETE", f"/queries/{number}", user="ann")
    assert reply.status == 409 and "has ended" in reply.json["error"]
    reply = send(server, "GET", f"/queries/{number}/result?user=ann")
    assert reply.status == 409 and "aborted" in reply.json["error"]
    assert send(server, "DELETE", f"/queries/{number}/result?user=ann").status == 204
    assert send(server, "GET", f"/queries/{number}").status == 404
    wait_until(server.is_idle, 20, "its work ends")


def result(server: Server, number: int, **parameters: object) -> Reply:
    """The result of a query."""
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    return send(server, "GET", f"/queries/{number}/result?{query}")


def test_results_have_formats(server: Server) -> None:
    """Each with the same values."""
    number = submitted(server, "SELECT id, ra, NULL AS n, '' AS e, 'a,\"b\"\t' AS t FROM Star ORDER BY id LIMIT 1000")
    wanted = read_arrow(result(server, number, format="arrow").body)
    assert wanted.num_rows == 1000 and wanted.column_names == ["id", "ra", "n", "e", "t"]
    parquet = pa.parquet.read_table(io.BytesIO(result(server, number, format="parquet").body))
    assert parquet.to_pylist() == wanted.to_pylist()
    rows = [list(row.values()) for row in wanted.to_pylist()]
    document = json.loads(result(server, number, format="json").body)
    assert [column["name"] for column in document["metadata"]] == wanted.column_names
    assert document["data"] == rows == json.loads(result(server, number).body)["data"]
    lines = result(server, number, format="jsonl").body.decode().splitlines()
    assert [list(json.loads(line).values()) for line in lines] == rows
    text = result(server, number, format="csv").body
    # NULL is nothing, and an empty text is quoted.
    assert text.decode().splitlines()[1] == f'0,{rows[0][1]},,"","a,""b""\t"'
    numbers = pa.csv.read_csv(io.BytesIO(text)).select(["id", "ra"])
    assert numbers.to_pylist() == wanted.select(["id", "ra"]).to_pylist()
    tsv = result(server, number, format="tsv").body.decode().splitlines()
    assert tsv[0] == "id\tra\tn\te\tt" and tsv[1].split("\t")[2:] == ["\\N", "", 'a,"b"\\t']
    fits = astropy.table.Table.read(io.BytesIO(result(server, number, format="fits").body), format="fits")
    assert fits["id"].tolist() == wanted.column("id").to_pylist() and fits["ra"].tolist() == wanted.column("ra").to_pylist()
    reply = result(server, number, format="hdf5")
    assert reply.status == 400 and "json, csv, tsv, jsonl, parquet, arrow, fits" in reply.json["error"]
    for name, media_type in (("parquet", "application/vnd.apache.parquet"), ("json", "application/json")):
        head = send(server, "HEAD", f"/queries/{number}/result?format={name}")
        assert (head.status, head.headers["Content-Type"], head.body) == (200, media_type, b"")
        assert head.headers["Content-Length"] is None
    assert "query-" in result(server, number, format="csv").headers["Content-Disposition"]
    assert send(server, "HEAD", "/queries/5/result").status == 404


def test_values_are_exact_in_all_formats(server: Server) -> None:
    """Large integers, doubles of 17 digits, bytes and times."""
    number = submitted(server, VALUES)
    [row] = read_arrow(result(server, number, format="arrow").body).to_pylist()
    assert (row["n"], row["u"], row["d"], row["b"]) == (2**63 - 1, 2**64 - 1, 0.1 + 0.2, b"\x0a\x11\xff\xd2")
    [stored] = pa.parquet.read_table(io.BytesIO(result(server, number, format="parquet").body)).to_pylist()
    assert stored == row
    document = json.loads(result(server, number, format="json").body)
    assert document["data"][0][1:4] == [2**63 - 1, str(2**64 - 1), 0.1 + 0.2]
    line = json.loads(result(server, number, format="jsonl").body)
    assert (line["n"], line["u"], line["d"], line["nothing"]) == (2**63 - 1, 2**64 - 1, 0.1 + 0.2, None)
    for form, delimiter, null in (("csv", ",", ""), ("tsv", "\t", "\\N")):
        text = result(server, number, format=form).body.decode().splitlines()[1]
        assert text.split(delimiter)[1:6] == [str(2**63 - 1), str(2**64 - 1), repr(0.1 + 0.2), "0a11ffd2", null], text


def test_responses_are_compressed_for_who_wants_it(server: Server) -> None:
    """A short result, whose compression ended its connection without its end, and a long one; also rows that are sent at once."""
    for statement in ("SELECT COUNT(*) AS n FROM Star", "SELECT id, ra FROM Star ORDER BY id"):
        number = submitted(server, statement)
        for path in (f"/queries/{number}/result?format=arrow", f"/queries/{number}/result?format=csv", f"/query-async/result/{number}"):
            plain = send(server, "GET", path)
            packed = send(server, "GET", path, **{"Accept-Encoding": "gzip"})
            assert packed.headers["Content-Encoding"] == "gzip" and gzip.decompress(packed.body) == plain.body, path
        body = {"query": statement, "database": "sky"}
        packed = send(server, "POST", "/query", body, **{"Accept-Encoding": "gzip"})
        assert json.loads(gzip.decompress(packed.body))["rows"] == succeeded(send(server, "POST", "/query", body))["rows"]


def test_results_have_pages(server: Server) -> None:
    """Of any size at any place, also across the blocks in which a result is stored."""
    number = submitted(server, "SELECT id, ra, `dec`, 'some text that makes rows longer' AS t FROM Star ORDER BY id")
    for offset, limit in ((0, 3), (1, 1), (8191, 5), (30_000, 20_000), (STARS - 2, 10), (STARS, 5), (10 * STARS, 5), (5, 0)):
        page = json.loads(result(server, number, offset=offset, limit=limit).body)["data"]
        assert [row[0] for row in page] == list(range(STARS)[offset : offset + limit]), (offset, limit)
    whole = read_arrow(result(server, number, format="arrow", offset=1).body)
    assert whole["id"].to_pylist() == list(range(1, STARS))


def test_many_read_a_result_at_once(server: Server) -> None:
    """Each gets all of it, even if it is deleted meanwhile."""
    number = submitted(server, "SELECT id, ra, `dec` FROM Star ORDER BY id")
    wanted = result(server, number, format="csv").body
    slow = http.client.HTTPConnection("127.0.0.1", server.http_port)
    slow.request("GET", f"/queries/{number}/result?format=csv")
    response = slow.getresponse()
    begun = response.read(10)
    replies: list[bytes] = []
    readers = [threading.Thread(target=lambda: replies.append(result(server, number, format="csv").body)) for _ in range(6)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert replies == [wanted] * 6
    assert send(server, "DELETE", f"/queries/{number}/result").status == 204
    assert begun + response.read() == wanted


def test_the_result_so_far(server: Server) -> None:
    """Counts grow until they are the whole."""
    reply = send(server, "POST", "/queries", {"statement": PAIRS.format(14), "database": "sky"})
    number = reply.json["id"]
    seen = []
    told = []
    while described(server, number)["state"] not in ENDED:
        reply = result(server, number, partial="true")
        if reply.status == 200:
            seen.append(sum(row[1] for row in reply.json["data"]))
            told.append(reply.headers.get("Meridian-Warnings", ""))
        else:
            assert reply.status == 409 and "has not begun" in reply.json["error"], reply.json
    reply = result(server, number, partial="true")
    assert "Meridian-Warnings" not in reply.headers
    total = sum(row[1] for row in reply.json["data"])
    pieces = described(server, number)["pieces"]
    # Its last request may have come when it had ended.
    parts = [json.loads(text) for text in told if text]
    assert len(parts) >= len(told) - 1 and parts, told
    assert all(f"of the {pieces} pieces of the sky that it reads are done" in warning for [warning] in parts), parts
    assert total == sum(row[1] for row in result(server, number).json["data"])
    assert seen == sorted(seen) and any(0 < part < total for part in seen), (seen, total)
    assert result(server, number, partial="maybe").status == 400


def test_a_killed_server_lists_its_queries_afterwards(meridian: Meridian, own_data: Path) -> None:
    """Those that were submitted complete; the one whose client waited is aborted."""
    server = Server(meridian, own_data)
    numbers = [submit(server, PAIRS.format(1.5 + n)) for n in range(3)]
    expected = succeeded(send(server, "POST", "/query", {"query": PAIRS.format(1.5), "database": "sky"}))["rows"]
    adql = {"statement": 'SELECT COUNT(*) AS "n of all" FROM "Star"', "database": "sky", "dialect": "adql"}
    numbers += [send(server, "POST", "/queries", adql).json["id"] for _ in range(20)]

    def execute() -> None:
        with pytest.raises((OSError, http.client.HTTPException)):
            send(server, "POST", "/query", {"query": NEVER_ENDS, "database": "sky"}, user="dora")

    asking = threading.Thread(target=execute)
    asking.start()
    wait_until(lambda: len(listed(server, "?user=dora&state=EXECUTING")) == 1, 20, "it runs")
    time.sleep(3)
    server.stop(signal.SIGKILL)
    asking.join()
    with serving(meridian, own_data) as server:
        [lost] = listed(server, "?user=dora")
        assert lost["state"] == "ABORTED" and "server ended" in lost["error"] and lost["mode"] == "BLOCKING"
        for number in numbers:
            assert ended(server, number)["status"] == "COMPLETED"
        assert {query["id"] for query in listed(server, "?state=COMPLETED")} >= set(numbers)
        assert succeeded(send(server, "GET", f"/query-async/result/{numbers[0]}"))["rows"] == expected


def test_requests_that_do_not_come_are_not_waited_for(meridian: Meridian, own_data: Path) -> None:
    """They are told so after `--http-timeout`; other requests are answered meanwhile."""
    with serving(meridian, own_data, "--http-timeout", 1) as server:
        with socket.create_connection(("127.0.0.1", server.http_port), timeout=20) as client:
            client.sendall(b'POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"query": ')
            assert succeeded(send(server, "POST", "/query", {"query": "SELECT 1"}))["rows"] == [["1"]]
            reply = client.recv(100_000).decode()
        assert reply.startswith("HTTP/1.1 408") and '"success":0' in reply and "nothing more of the request came" in reply


def test_a_second_server_of_a_directory_submits_nothing(meridian: Meridian, own_data: Path) -> None:
    """And says who does; rows are sent at once by both."""
    with serving(meridian, own_data) as _, serving(meridian, own_data) as second:
        answer = failed(send(second, "POST", "/query-async", {"query": "SELECT 1"}))
        assert answer["error_ext"]["code"] == 1290 and "another server" in answer["error"]
        assert send(second, "POST", "/queries", {"statement": "SELECT 1"}).status == 503
        assert succeeded(send(second, "POST", "/query", {"query": "SELECT 1"}))["rows"] == [["1"]]
