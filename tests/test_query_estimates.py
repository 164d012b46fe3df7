"""What a query is expected to read and to take: EXPLAIN, the list of queries, statements that are too long for a connection, metrics."""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, load_stars_and_bands

STARS = 40_000


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky in many chunks, and a small replicated table."""
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("estimates"), STARS)


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A data directory for one test's servers: only one server at a time runs the queries of a directory."""
    return Path(shutil.copytree(data, tmp_path / "data"))


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the stars."""
    with serving(meridian, Path(shutil.copytree(data, tmp_path_factory.mktemp("served") / "data"))) as server:
        yield server


def rows(server: Server, statement: str) -> list[tuple[object, ...]]:
    """The rows of a statement by a connection of its own."""
    with server.connect(database="sky", user="ann") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def summary(server: Server, statement: str, explain: str = "EXPLAIN") -> str:
    """The first row of an EXPLAIN."""
    kind, text = rows(server, f"{explain} {statement}")[0]
    assert kind == "summary"
    return str(text)


def metric(server: Server, name: str) -> float:
    """A sample of the metrics."""
    with urllib.request.urlopen(server.url("/metrics"), timeout=20) as response:
        lines = response.read().decode().splitlines()
    [value] = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"{name} ")]
    return float(value)


def test_explain_begins_with_what_is_read(server: Server) -> None:
    """All chunks for a scan, with exactly the table's rows and the columns that the statement names."""
    text = summary(server, "SELECT COUNT(*), AVG(ra) FROM Star WHERE `dec` > 0.1")
    assert re.match(r"scan in lane FAST, pieces: \d+, expected: .+\n", text), text
    found = re.search(r"sky\.Star: (\d+) of (\d+) chunks, (\d+) rows, (\d+) bytes of columns ra, dec$", text)
    assert found, text
    touched, chunks, scanned, size = map(int, found.groups())
    [(distinct,)] = rows(server, "SELECT COUNT(DISTINCT chunkId) FROM Star")
    # Chunks without stars north of the equator may be left out.
    assert chunks == distinct and touched <= chunks
    assert scanned <= STARS and size == scanned * 16
    whole = summary(server, "SELECT AVG(ra) FROM Star")
    assert f"{chunks} of {chunks} chunks, {STARS} rows, {STARS * 8} bytes of columns ra" in whole, whole


def test_explain_of_a_few_rows_is_interactive(server: Server) -> None:
    """A key, a small circle, a replicated table, and no table at all."""
    [(key, ra, dec)] = rows(server, "SELECT id, ra, `dec` FROM Star ORDER BY id LIMIT 1")
    for condition in (f"id = {key}", f"scisql_angSep(ra, `dec`, {ra}, {dec}) < 0.01"):
        text = summary(server, f"SELECT * FROM Star WHERE {condition}")
        assert text.startswith("interactive, pieces: "), text
        found = re.search(r"sky\.Star: (\d+) of \d+ chunks, (\d+) rows", text)
        assert found and 1 <= int(found[1]) <= 4 and 1 <= int(found[2]) < STARS // 10, text
    assert "sky.Band: " in summary(server, "SELECT * FROM Band")
    assert summary(server, "SELECT 1") == "interactive: reads no table of the archive"


@pytest.mark.parametrize("explain", ["EXPLAIN ANALYZE", "EXPLAIN VERBOSE", "EXPLAIN FORMAT TREE"])
def test_every_explain_of_a_plan_begins_so(server: Server, explain: str) -> None:
    """Whatever its form; a table that is described is no plan."""
    assert "sky.Star: " in summary(server, "SELECT COUNT(*) FROM Star WHERE ra > 7", explain)
    assert rows(server, "DESCRIBE Star")[0][0] == "id"


def test_the_list_tells_what_was_expected(server: Server) -> None:
    """Of a blocking query, also when its plan was cached, and of a submitted one before it begins."""
    for constant in (1.5, 2.5, 3.5, 4.5):
        statement = f"SELECT SUM(ra + `dec`) FROM Star WHERE ra > {constant}"
        rows(server, statement)
        found = rows(server, f'SELECT SCAN_BYTES, LANE FROM information_schema.QUERIES WHERE STATEMENT = "{statement}"')
        assert found == [(STARS * 16, "FAST")], constant
    [(number, _)] = rows(server, "SUBMIT SELECT AVG(ra) FROM Star")
    listed = f"SELECT SCAN_BYTES, ESTIMATED_MS IS NOT NULL, STATE FROM information_schema.QUERIES WHERE ID = {number}"
    assert rows(server, listed)[0][:2] == (STARS * 8, 1)
    wait_until(lambda: rows(server, listed)[0][2] == "COMPLETED", 30, "the query ends")
    assert rows(server, listed)[0][:2] == (STARS * 8, 1)


def test_the_list_tells_what_was_decoded(meridian: Meridian, own_data: Path) -> None:
    """Of the first scan all, and of the next one nothing; a cache of nothing is decoded for each."""
    listed = "SELECT DECODED_BYTES, SHARED_BYTES FROM information_schema.QUERIES WHERE STATEMENT = '%s'"
    for cache, again in (("64M", (0, STARS * 8)), ("0", (STARS * 8, 0))):
        with serving(meridian, own_data, "--cache", cache) as server:
            for number, expected in enumerate([(STARS * 8, 0), again]):
                statement = f"SELECT SUM(ra) + {number} AS q FROM Star"
                rows(server, statement)
                [(decoded, shared)] = rows(server, listed % statement)
                assert isinstance(decoded, int) and isinstance(shared, int)
                # Buffers of whole blocks are a little larger than their values, and pieces of small chunks have blocks in common.
                slack = STARS if cache != "0" else 0
                assert expected[0] - slack <= decoded <= expected[0] * 1.5 and abs(shared - expected[1]) <= slack, (cache, time)


def test_explain_analyze_ends_with_what_was_read(server: Server) -> None:
    """The pieces that ran, bytes, the time of threads and of the whole."""
    kind, text = rows(server, "EXPLAIN ANALYZE SELECT SUM(`dec`) FROM Star")[-1]
    assert kind == "reads"
    said = dict(line.split(": ", 1) for line in str(text).splitlines())
    assert set(said) == {"pieces", "decoded", "found decoded", "thread time", "elapsed"}
    assert int(said["pieces"]) > 1 and int(said["decoded"].split()[0]) + int(said["found decoded"].split()[0]) >= STARS * 8


def test_explain_analyze_does_so_on_the_command_line(meridian: Meridian, data: Path) -> None:
    """Where nobody schedules threads."""
    outcome = meridian.must("sql", "--data", data, "--db", "sky", "--format", "csv", "EXPLAIN ANALYZE SELECT SUM(`dec`) FROM Star")
    last = outcome.text[outcome.text.rindex("reads,") :]
    said = dict(line.split(": ", 1) for line in last.removeprefix("reads,").strip().strip('"').splitlines())
    assert set(said) == {"pieces", "decoded", "found decoded", "elapsed"}
    assert int(said["pieces"]) > 1 and int(said["decoded"].split()[0]) >= STARS * 8


def test_a_statement_that_takes_too_long_is_rejected(meridian: Meridian, own_data: Path) -> None:
    """With the expected time, the limit and what to do; as often as it is asked, cached or not; submitted it runs."""
    with serving(meridian, own_data, "--max-blocking", "0.0001") as server:
        for constant in (1, 2, 3):
            statement = f"SELECT COUNT(*), SUM(ra) FROM Star WHERE ra > {constant}.5"
            with pytest.raises(pymysql.MySQLError) as raised:
                rows(server, statement)
            code, sentence = raised.value.args
            assert code == 1226 and "SUBMIT" in sentence and "--max-blocking" in sentence, raised.value
        # It is not begun: no piece runs.
        assert rows(server, "SELECT PIECES_DONE FROM information_schema.QUERIES WHERE ERROR_CODE = 1226") == [(0,)] * 3
        assert rows(server, "SELECT COUNT(*) FROM Band") == [(5,)]
        assert "scan in lane" in summary(server, statement)
        [(number, _)] = rows(server, f"SUBMIT {statement}")
        state = f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {number}"
        wait_until(lambda: rows(server, state) == [("COMPLETED",)], 30, "the query ends")
        [(count, _)] = rows(server, f"SELECT * FROM qserv_result({number})")
        assert isinstance(count, int) and 0 < count < STARS
    with serving(meridian, own_data, "--max-blocking", "0") as server:
        assert rows(server, "SELECT COUNT(*) FROM Star WHERE ra >= 0") == [(STARS,)]


def test_metrics_tell_of_lanes_and_the_queue(meridian: Meridian, own_data: Path) -> None:
    """While a query scans, its lane has it and its pieces; another one waits."""
    with serving(meridian, own_data, "--queries-at-once", 1) as server:
        assert metric(server, 'meridian_lane_queries{lane="fast"}') == 0
        pairs = "SELECT COUNT(*) FROM Star a, Star b WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 40"
        [(number, _)] = rows(server, f"SUBMIT {pairs}")
        [(waiting, _)] = rows(server, "SUBMIT SELECT COUNT(*) FROM Star")
        # Both at some moment; not at every one, since the pieces of a phase may all be running.
        for state in ("running", "waiting"):
            name = f'meridian_lane_pieces{{lane="fast",state="{state}"}}'
            wait_until(lambda: metric(server, name) > 0, 20, f"pieces are {state}")  # noqa: B023
        assert metric(server, 'meridian_lane_queries{lane="fast"}') == 1
        assert metric(server, "meridian_queries_queued") == 1
        for query in (waiting, number):
            rows(server, f"CANCEL {query}")
        wait_until(lambda: metric(server, 'meridian_lane_queries{lane="fast"}') == 0, 20, "the query has left its lane")
        assert metric(server, "meridian_queries_queued") == 0


def test_the_lane_of_a_table_is_chosen(meridian: Meridian, own_data: Path, tmp_path: Path) -> None:
    """By `meridian describe`, beside a server; EXPLAIN, the list and the description show it, and a load that replaces the table keeps it."""
    scan = "SELECT COUNT(*), SUM(ra) FROM Star WHERE ra > 1"

    def describe(*arguments: object) -> str:
        return meridian.must("describe", "--data", own_data, "--db", "sky", *arguments).text

    def lane(server: Server) -> str:
        rows(server, scan)
        [(listed,)] = rows(server, f"SELECT LANE FROM information_schema.QUERIES WHERE STATEMENT = '{scan}' ORDER BY ID DESC LIMIT 1")
        assert f"scan in lane {listed}" in summary(server, scan)
        return str(listed)

    assert "scan_rating" not in describe("--table", "Star")
    with serving(meridian, own_data) as server:
        assert lane(server) == "FAST"
        for name in ("snail", "fast", "medium", "slow"):
            assert describe("--table", "star", "--scan-rating", name) == f"Scans of sky.Star are in lane {name}.\n"
            assert lane(server) == name.upper()
            assert f"scan_rating: {name}" in describe("--table", "Star")
        assert describe("--table", "Star", "--scan-rating", "slow") == "Scans of sky.Star are in lane slow already.\n"
        small = tmp_path / "few.csv"
        small.write_text("id,ra,dec,version\n" + "".join(f"{n},{n * 3},{n % 80},1\n" for n in range(100)))
        meridian.load(own_data, "sky", "Star", small, replace=True, **DIRECTOR)
        assert lane(server) == "SLOW"
        printed = tmp_path / "printed.yaml"
        printed.write_text(describe())
        assert "described so already" in describe("--edit", printed)
        printed.write_text(printed.read_text().replace("scan_rating: slow", "scan_rating: snail"))
        describe("--edit", printed)
        assert lane(server) == "SNAIL"
        assert "go by the bytes" in describe("--table", "Star", "--scan-rating", "auto")
        assert lane(server) == "FAST"
        printed.write_text(printed.read_text().replace("scan_rating: snail", "scan_rating: hasty"))
        complaint = meridian.run("describe", "--data", own_data, "--db", "sky", "--edit", printed)
        assert complaint.status == 1 and "fast, medium, slow or snail" in complaint.complaint
        assert meridian.run("describe", "--data", own_data, "--db", "sky", "--scan-rating", "slow").status == 2
        assert meridian.run("describe", "--data", own_data, "--db", "sky", "--table", "Star", "--scan-rating", "quick").status == 2
