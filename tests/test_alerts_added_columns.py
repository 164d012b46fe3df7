"""Columns that an alert database gets at night: published with the next edition, NULL in all rows from before, beside DuckDB and a model."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import AlertDatabase, InvalidRequest  # noqa: E402

import private_postgres  # noqa: E402
from alert_model import rows_of  # noqa: E402
from comparison import difference  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from meridian_cli import rows_of as rows_of_answer  # noqa: E402
from serving import Server, serving  # noqa: E402
from test_alerts_emptied import assert_emptied, check_reads  # noqa: E402
from test_alerts_published import SCHEMA, Night, as_mysql, execute, assert_state, check, check_history, create, publish_in_vain, stores  # noqa: E402

SEEDS = [int(seed) for seed in os.environ.get("MERIDIAN_ADDED_SEEDS", "1").split(",")]

# By table: lines of the schema before which columns come, so that a new one stands between others.
MARKS = {
    "DiaObject": ("  - {name: parallax, datatype: float", 0),
    "DiaObjectLast": ("  - {name: nDiaSources, datatype: int", 1),
    "DiaSource": ("  - {name: centroid_flag, datatype: boolean", 0),
    "DiaForcedSource": ("  - {name: flags, datatype: long", 0),
}


def with_columns(text: str, added: dict[str, dict[str, str]]) -> str:
    """A schema with more columns: by table, names and types."""
    for table, columns in added.items():
        mark, which = MARKS[table]
        at = -1
        for _ in range(which + 1):
            at = text.index(mark, at + 1)
        lines = "".join(
            f"  - {{name: {name}, datatype: {kind}, nullable: true, description: What {name} is., fits:tunit: mas}}\n" for name, kind in columns.items()
        )
        text = text[:at] + lines + text[at:]
    return text


FIRST = {"DiaObject": {"class": "char"}, "DiaObjectLast": {"class": "char"}, "DiaSource": {"snr": "double", "band": "string"}, "DiaForcedSource": {"isNear": "boolean"}}
SECOND = {"DiaObject": {"nEpochs": "int"}, "DiaSource": {"trail": "float"}}
VALUES: dict[str, list[Any]] = {
    "class": [None, "", "variable"],
    "snr": [None, 0.1 + 0.2, -1e300],
    "band": ["r", "", None],
    "isNear": [True, False, None],
    "nEpochs": [7, -(2**31), None],
    "trail": [0.5, None],
}


def add(night: Night, text: str, columns: dict[str, dict[str, str]]) -> str:
    text = with_columns(text, columns)
    night.model.database.set_schema(text)
    for table, named in columns.items():
        night.model.added[table] |= {name: VALUES[name] for name in named}
    return text


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("store", stores())
def test_new_columns_are_published(meridian: Meridian, tmp_path: Path, store: str, seed: int) -> None:
    """After each edition only the archive has what was stored, and merges follow."""
    data = tmp_path / "data"
    if store == "sqlite":
        create(meridian, data, "--keep-nights", 0)
        follow(meridian, data, seed, is_file=True)
    else:
        with private_postgres.private_postgres() as url:
            create(meridian, data, "--keep-nights", 0, "--postgres", url)
            follow(meridian, data, seed, is_file=False)


def follow(meridian: Meridian, data: Path, seed: int, *, is_file: bool) -> None:
    text = SCHEMA.read_text()
    with serving(meridian, data) as server:
        night = Night(server, seed)
        for number, columns in enumerate([None, FIRST, None, SECOND]):
            if columns is not None:
                text = add(night, text, columns)
                # What is not published yet is read all the same.
                check_reads(night)
            night.change(12)
            night.publish(server)
            if is_file:
                assert_emptied(data, night)
            check_reads(night)
            if number == 2:
                meridian.must("compact", "--data", data, "--db", "prompt", "--all")
                check_reads(night)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
            check_as_of_before(connection, night)
            said = execute(connection, "SELECT column_name, description, unit FROM TAP_SCHEMA.columns WHERE table_name LIKE 'prompt.Dia%' AND description LIKE 'What %'")
            wanted = [(name, f"What {name} is.", "mas") for columns in (FIRST, SECOND) for named in columns.values() for name in named]
            assert sorted(said) == sorted(wanted)
            shown = [row[0] for row in execute(connection, "SHOW COLUMNS FROM DiaSource")]
            assert shown[-3:] == ["snr", "band", "trail"]
        check_protocols(server, night)
        # Rows from before are brought back with NULL, and changed, and published again.
        night.change(8)
        night.publish(server)
        check_reads(night)
    with serving(meridian, data) as server:
        night.moved(server)
        meridian.must("compact", "--data", data, "--db", "prompt", "--all")
        check_reads(night)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
            check_as_of_before(connection, night)
        check(meridian, data)
    check_files(meridian, data, night)


def check_as_of_before(connection: Any, night: Night) -> None:
    """As of the first edition the columns are there, and NULL in all rows."""
    at, rows = night.history[0]
    execute(connection, f"SET meridian_as_of = '{at}'")
    for table, columns in night.model.added.items():
        counts = ", ".join(f"COUNT({name})" for name in columns)
        assert execute(connection, f"SELECT COUNT(*), {counts} FROM {table}") == [(len(rows[table]), *[0] * len(columns))]
    execute(connection, "SET meridian_as_of = ''")


def check_protocols(server: Server, night: Night) -> None:
    wanted = sum(row.get("band") == "r" for row in night.model.sources.values())
    query = "SELECT COUNT(*) AS n FROM prompt.DiaSource WHERE band = 'r'"
    with urllib.request.urlopen(server.url("/tap/sync", REQUEST="doQuery", LANG="ADQL", FORMAT="csv", QUERY=query), timeout=60) as response:
        assert response.read().decode().split() == ["n", str(wanted)]
    body = json.dumps({"statement": query}).encode()
    with urllib.request.urlopen(server.url("/sql", format="csv"), body, timeout=60) as response:
        assert response.read().decode().split() == ["n", str(wanted)]


def check_files(meridian: Meridian, data: Path, night: Night) -> None:
    output = data.parent / "files"
    meridian.must("alerts", "archive", "prompt", "--data", data, "--output", output)
    state, columns = night.model.state(), night.columns()
    for table in ("DiaObject", "DiaSource", "DiaForcedSource"):
        rows = rows_of(pq.read_table(output / table), columns[table])
        assert rows == state[table], table


def test_a_killed_server_publishes_columns_with_their_edition_or_not_at_all(meridian: Meridian, tmp_path: Path) -> None:
    create(meridian, tmp_path)
    server = Server(meridian, tmp_path)
    try:
        night = Night(server, 3)
        night.change(8)
        night.publish(server)
        text = SCHEMA.read_text()
        for number, columns in enumerate((FIRST, SECOND)):
            before, names = night.model.state(), night.columns()
            with server.connect(database="prompt") as connection:
                [[editions_before]] = execute(connection, "SELECT COUNT(*) FROM Edition")
            text = add(night, text, columns)
            night.change(6)
            publishing = threading.Thread(target=publish_in_vain, args=(server.url(""),))
            publishing.start()
            time.sleep(night.model.random.uniform(0.0, 0.8))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            publishing.join()
            server = Server(meridian, tmp_path)
            night.moved(server)
            with server.connect(database="prompt") as connection:
                of_source = {row[0] for row in execute(connection, "SHOW COLUMNS FROM DiaSource")}
                [[editions]] = execute(connection, "SELECT COUNT(*) FROM Edition")
                is_published = ("snr", "trail")[number] in of_source
                # A server publishes by itself as well.
                assert is_published == (editions > editions_before)
                if not is_published:
                    assert_state(connection, before, names)
            night.publish(server)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
        check(meridian, tmp_path)
    finally:
        server.stop()


def test_names_that_cannot_be_published_are_refused(meridian: Meridian, tmp_path: Path) -> None:
    create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        database = AlertDatabase(server.url(""), "prompt")
        for name, words in (("RA", "differ in case alone"), ("Meridian_Published", "cannot be called so")):
            with pytest.raises(InvalidRequest, match=words):
                database.set_schema(with_columns(SCHEMA.read_text(), {"DiaSource": {name: "int"}}))


def test_a_view_of_the_operators_stays(meridian: Meridian, tmp_path: Path) -> None:
    """Its definition is not the publication's any more, which adds no column to it; the others get theirs."""
    create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 9)
        night.change(8)
        night.publish(server)
        query = "SELECT diaSourceId, ra FROM prompt.DiaSourceStored"
        meridian.must("view", "create", "--data", tmp_path, "--db", "prompt", "--name", "DiaSource", "--replace", query)
        add(night, SCHEMA.read_text(), FIRST)
        night.change(6)
        night.model.database.publish()
        with server.connect(database="prompt") as connection:
            assert [row[0] for row in execute(connection, "SHOW COLUMNS FROM DiaSource")] == ["diaSourceId", "ra"]
            rows = execute(connection, "SELECT diaObjectId, visit, isNear FROM DiaForcedSource")
            wanted = [(row["diaObjectId"], row["visit"], row.get("isNear")) for row in night.model.forced.values()]
            assert sorted(rows, key=repr) == as_mysql(wanted)
        assert "a view of an alert database does not show new columns" in server.log


# Of a table {t} whose parts have other columns: `band` and `snr` came with the second edition, `trail` with the third.
QUERIES = [
    "SELECT diaSourceId, band, snr, trail FROM {t}",
    "SELECT COUNT(*), COUNT(band), COUNT(snr), COUNT(trail) FROM {t}",
    "SELECT COUNT(*) FROM {t} WHERE snr > 100",
    "SELECT COUNT(*) FROM {t} WHERE NOT (snr > 100)",
    "SELECT COUNT(*) FROM {t} WHERE snr IS NULL",
    "SELECT COUNT(*) FROM {t} WHERE snr IS NOT NULL",
    "SELECT COUNT(*) FROM {t} WHERE trail IS NULL AND snr < 10",
    "SELECT diaSourceId FROM {t} WHERE trail = 0.5",
    "SELECT diaSourceId, visit FROM {t} WHERE trail > 0 OR diaSourceId % 5000 = 1",
    "SELECT COUNT(*) FROM {t} WHERE COALESCE(snr, -1) < 0",
    "SELECT COUNT(*) FROM {t} WHERE COALESCE(band, 'none') = 'none'",
    "SELECT COUNT(*) FROM {t} WHERE band IN ('g', 'r') AND diaObjectId < 500",
    "SELECT COUNT(*) FROM {t} WHERE band NOT IN ('g')",
    "SELECT COUNT(*) FROM {t} WHERE band LIKE 'g%' OR band IS NULL",
    "SELECT COUNT(*) FROM {t} WHERE band = '' AND snr BETWEEN 1 AND 50",
    "SELECT COUNT(*) FROM {t} WHERE snr > ra",
    "SELECT band, COUNT(*), MIN(snr), MAX(snr), SUM(snr) FROM {t} GROUP BY band",
    "SELECT visit, COUNT(trail), SUM(trail) FROM {t} GROUP BY visit",
    "SELECT CASE WHEN snr IS NULL THEN 'no' ELSE 'yes' END AS k, COUNT(*) FROM {t} GROUP BY 1",
    "SELECT a.diaSourceId, b.diaSourceId FROM {t} a JOIN {t} b ON a.diaObjectId = b.diaObjectId AND a.band = b.band WHERE a.visit < b.visit AND a.diaObjectId < 40",
    "SELECT a.diaSourceId FROM {t} a LEFT JOIN {t} b ON a.diaObjectId = b.diaObjectId AND b.trail IS NOT NULL WHERE b.diaSourceId IS NULL AND a.diaObjectId < 60",
    "SELECT * FROM (SELECT diaSourceId, snr FROM {t} WHERE diaObjectId = 17) x WHERE snr IS NULL OR snr >= 0",
    "SELECT diaSourceId, trail FROM {t} WHERE diaSourceId = 120003",
    "SELECT DISTINCT band, trail FROM {t} WHERE diaObjectId BETWEEN 5 AND 9",
]
# More than the rows from which on minima and maxima of blocks are looked at.
MANY = 50_000
OBJECTS = 900


def exposure(visit: int, count: int, more: dict[str, list[Any]]) -> pa.Table:
    numbers = range(count)
    columns: dict[str, Any] = {
        "diaSourceId": [visit * 60_000 + number for number in numbers],
        "diaObjectId": [number % OBJECTS for number in numbers],
        "visit": [visit] * count,
        "detector": [3] * count,
        "midpointMjdTai": [60000.0 + visit] * count,
        "timeProcessedMjdTai": [60000.0] * count,
        "ra": [10.0 + number % 1000 / 4096 for number in numbers],
        "dec": [5.0 + number % 700 / 4096 for number in numbers],
    }
    return pa.table(columns | more)


def test_parts_without_columns_beside_duckdb(meridian: Meridian, tmp_path: Path) -> None:
    create(meridian, tmp_path)
    bands = ["g", "r", "", None, "gg"]
    with serving(meridian, tmp_path) as server, server.connect() as connection, duckdb.connect() as peer:
        database = AlertDatabase(server.url(""), "prompt")
        objects = pa.table({"diaObjectId": list(range(OBJECTS)), "nDiaSources": [1] * OBJECTS, "ra": [10.1] * OBJECTS, "dec": [5.1] * OBJECTS})
        text, stored = SCHEMA.read_text(), []
        for visit, count in ((0, MANY), (1, MANY), (2, 50)):
            more: dict[str, list[Any]] = {}
            if visit >= 1:
                more |= {"band": [bands[number % 5] for number in range(count)]}
                more |= {"snr": [None if number % 11 == 0 else number / 4 - 20 for number in range(count)]}
            if visit == 2:
                more |= {"trail": [[0.5, None, 1.25][number % 3] for number in range(count)]}
            if visit == 1:
                text = with_columns(text, {"DiaSource": {"band": "string", "snr": "double"}})
                database.set_schema(text)
            if visit == 2:
                text = with_columns(text, {"DiaSource": {"trail": "float"}})
                database.set_schema(text)
            rows = exposure(visit, count, more)
            assert database.store(60000.0 + visit, objects=objects if visit == 0 else None, sources=rows)
            database.publish()
            stored.append(rows)
            peer.register("DiaSource", pa.concat_tables(stored, promote_options="default"))
            if visit > 0:
                compare(connection, peer, visit)
        meridian.must("compact", "--data", tmp_path, "--db", "prompt", "--all")
        compare(connection, peer, 2)
        check(meridian, tmp_path)


def compare(connection: Any, peer: duckdb.DuckDBPyConnection, visit: int) -> None:
    for query in QUERIES:
        if visit < 2 and "trail" in query:
            continue
        wanted = rows_of_answer(peer.sql(query.format(t="DiaSource")).to_arrow_table())
        for table in ("DiaSourceStored", "DiaSource"):
            found = execute(connection, query.format(t=f"prompt.{table}"))
            differs = difference(found, wanted)
            assert differs is None, f"{table}, {query}: {differs}"
