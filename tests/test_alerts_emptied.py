"""What is published is removed from the store of an alert database: no read and no change can tell, whatever is merged or killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import AlertDatabase, AlertError, Conflict, InvalidRequest, NotFound, circle  # noqa: E402

import private_postgres  # noqa: E402
from alert_model import DEC, rows_of, table_of  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import Server, serving  # noqa: E402
from test_alerts_published import SCHEMA, Night, check, check_history, create, publish_in_vain, stores  # noqa: E402

SEEDS = [int(seed) for seed in os.environ.get("MERIDIAN_EMPTIED_SEEDS", "1").split(",")]
ROUNDS = int(os.environ.get("MERIDIAN_EMPTIED_ROUNDS", "2"))
STEPS = int(os.environ.get("MERIDIAN_EMPTIED_STEPS", "14"))
KILLS = int(os.environ.get("MERIDIAN_EMPTIED_KILLS", "2"))


def stored(data: Path, table: str) -> int:
    """How many rows of a table are in the store."""
    with closing(sqlite3.connect(data / "alerts" / "prompt" / "hot.sqlite")) as file:
        [[count]] = file.execute(f"SELECT COUNT(*) FROM {table}").fetchall()
    return int(count)


def assert_emptied(data: Path, night: Night) -> None:
    """Nothing is left but the last version of each object."""
    assert stored(data, "sources") == 0
    assert stored(data, "forced") == 0
    assert stored(data, "objects") == len({row["diaObjectId"] for row in night.model.objects})
    assert stored(data, "source_states") == 0


def check_reads(night: Night, times: int = 1) -> None:
    for _ in range(times):
        night.model.check()
    night.model.store_refused()


@contextmanager
def reading(night: Night) -> Iterator[None]:
    """Reads all sources over and over meanwhile: they are the same, wherever they are at a moment."""
    columns = ["diaSourceId", "diaObjectId", "midpointMjdTai", "timeWithdrawnMjdTai"]
    wanted = [tuple(row[column] for column in columns) for row in night.model.sources.values() if row["ss"] is None]
    keys = ["diaObjectId", "visit", "detector", "timeWithdrawnMjdTai"]
    wanted_forced = [tuple(row[column] for column in keys) for row in night.model.forced.values()]
    done, problems = threading.Event(), []

    def read() -> None:
        database, count = AlertDatabase(night.model.database.url, night.name), 0
        while not done.is_set() or count < 2:
            count += 1
            sources = rows_of(database.sources(region=circle(0.0, DEC, 20.0), since=0.0), columns)
            forced = rows_of(database.forced_sources(region=circle(0.0, DEC, 20.0), since=0.0), keys)
            if sources != sorted(wanted, key=repr) or forced != sorted(wanted_forced, key=repr):
                problems.append((sources, forced))
                return

    reader = threading.Thread(target=read)
    reader.start()
    yield
    done.set()
    reader.join()
    assert not problems


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("store", stores())
def test_reads_and_changes_cannot_tell(meridian: Meridian, tmp_path: Path, store: str, seed: int) -> None:
    """Of a database that keeps no night: after each publication only the archive has what was stored."""
    if store == "sqlite":
        create(meridian, tmp_path, "--keep-nights", 0)
        follow(meridian, tmp_path, seed, is_file=True)
    else:
        with private_postgres.private_postgres() as url:
            create(meridian, tmp_path, "--keep-nights", 0, "--postgres", url)
            follow(meridian, tmp_path, seed, is_file=False)


def follow(meridian: Meridian, data: Path, seed: int, *, is_file: bool) -> None:
    with serving(meridian, data) as server:
        night = Night(server, seed)
        for number in range(ROUNDS):
            night.change(STEPS)
            with reading(night):
                night.publish(server)
            if is_file:
                assert_emptied(data, night)
            check_reads(night)
            if number == 0:
                meridian.must("compact", "--data", data, "--db", "prompt", "--all")
        night.change(STEPS // 2)
        check_reads(night)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
    # It goes on where it was.
    with serving(meridian, data) as server:
        night.moved(server)
        check_reads(night)
        night.publish(server)
        check_reads(night)
        check(meridian, data)


def test_many_rows_are_there_while_they_are_removed(meridian: Meridian, tmp_path: Path) -> None:
    """More than are removed in one step, so that for a while store and archive have thousands of the same rows."""
    create(meridian, tmp_path, "--keep-nights", 0)
    with serving(meridian, tmp_path) as server:
        database, count = AlertDatabase(server.url(""), "prompt"), 16_000
        exposure = {"visit": 7, "detector": 3, "midpointMjdTai": 60000.0, "timeProcessedMjdTai": 60000.0}
        places = [{"diaObjectId": number // 2, "ra": 10.0 + number * 1e-5, "dec": 5.0, **exposure} for number in range(count)]
        sources = [{"diaSourceId": number, **place} for number, place in enumerate(places)]
        versions = [{"diaObjectId": place["diaObjectId"], "nDiaSources": 2, "ra": place["ra"], "dec": place["dec"]} for place in places[::2]]
        forced = places[::2]
        database.store(60000.0, objects=table_of(versions), sources=table_of(sources), forced_sources=table_of(forced))
        done, found = threading.Event(), []

        def read() -> None:
            reader, ids = AlertDatabase(server.url(""), "prompt"), list(range(count // 2))
            while not done.is_set() or len(found) < 4:
                rows = reader.sources(objects=ids, since=0.0), reader.forced_sources(region=circle(10.0, 5.0, 1.0), since=0.0)
                found.append((rows[0].num_rows, len(set(rows[0]["diaSourceId"].to_pylist())), rows[1].num_rows))

        reader = threading.Thread(target=read)
        reader.start()
        database.publish()
        done.set()
        reader.join()
        assert stored(tmp_path, "sources") == stored(tmp_path, "forced") == 0
        assert set(found) == {(count, count, count // 2)}


def test_what_was_removed_is_stored_once(meridian: Meridian, tmp_path: Path) -> None:
    create(meridian, tmp_path, "--keep-nights", 0)
    with serving(meridian, tmp_path) as server:
        database = AlertDatabase(server.url(""), "prompt")
        place: dict[str, Any] = {"ra": 10.0, "dec": 5.0}
        exposure = {"visit": 7, "detector": 3, "midpointMjdTai": 60000.0, "timeProcessedMjdTai": 60000.0}
        sources = [{"diaSourceId": number, "diaObjectId": 1, **exposure, **place} for number in (4, 5, 6)]
        forced = [{"diaObjectId": 1, **exposure, **place}]
        versions = [{"diaObjectId": 1, "nDiaSources": 3, **place}]
        given = {"objects": table_of(versions), "sources": table_of(sources), "forced_sources": table_of(forced)}
        assert database.store(60000.0, **given)
        database.publish()
        assert stored(tmp_path, "sources") == 0
        # The same request is known, and so are its rows.
        assert not database.store(60000.0, **given)
        for rows in (
            {"sources": table_of(sources[1:2])},
            {"forced_sources": table_of(forced)},
            {"objects": table_of(versions), "sources": table_of([sources[0] | {"diaSourceId": 9}, sources[2]])},
        ):
            with pytest.raises(Conflict):
                database.store(60001.0 if "objects" in rows else 60000.0, request=os.urandom(8).hex(), **rows)
        assert stored(tmp_path, "sources") == 0
        # What was brought back for a request that was refused is not here.
        assert stored(tmp_path, "forced") == 0
        # Another detector, another number, another object.
        later = {"visit": 8, "midpointMjdTai": 60001.0, "timeProcessedMjdTai": 60001.0}
        assert database.store(60001.0, sources=table_of([sources[0] | {"diaSourceId": 9} | later]), forced_sources=table_of([forced[0] | later]))
        with pytest.raises(NotFound, match="DiaSources do not exist: 3"):
            database.withdraw_sources([5, 3], withdrawn=60002.0, time=60002.0)
        assert database.withdraw_sources([5], withdrawn=60002.0, time=60002.0) == 1
        assert sorted(database.sources(objects=[1], since=0.0)["diaSourceId"].to_pylist()) == [4, 5, 6, 9]
        # An object whose last own source goes is closed, wherever the sources are.
        assert database.reassign_to_solar_system({4: 1, 6: 1, 9: 1}, time=60003.0) == 3
        assert database.latest_objects("circle 10 5 1").num_rows == 1
        database.publish()
        assert database.reassign_to_solar_system({5: 1}, time=60004.0) == 1
        assert database.latest_objects("circle 10 5 1").num_rows == 0
        outcome = meridian.run("drop", "database", "--data", tmp_path, "--db", "prompt", "--yes")
        assert outcome.status == 1 and "nothing of them can be dropped" in outcome.complaint
        outcome = meridian.run("drop", "table", "--data", tmp_path, "--db", "prompt", "--table", "edition", "--yes")
        assert outcome.status == 1, outcome.text
        (tmp_path / "other.csv").write_text("edition\n1\n")
        outcome = meridian.run("load", "--data", tmp_path, "--db", "prompt", "--table", "Edition", "--replace", tmp_path / "other.csv")
        assert outcome.status == 1 and "dropped or replaced" in outcome.complaint
        with pytest.raises(InvalidRequest, match="set it to a number of nights"):
            database.set_metadata("config:keep_nights", "some", replace=True)
        for nights in ("all", "2"):
            database.set_metadata("config:keep_nights", nights, replace=True)
        assert database.store(60005.0, sources=table_of([sources[0] | {"diaSourceId": 10}]))
        database.publish()
        assert stored(tmp_path, "sources") > 0


VERSION_3 = """
ALTER TABLE emptied_sources DROP COLUMN ra;
ALTER TABLE emptied_sources DROP COLUMN decl;
ALTER TABLE emptied_sources DROP COLUMN radius;
UPDATE settings SET value = '3' WHERE name = 'format';
"""


def test_what_was_removed_before_places_were_kept_is_found(meridian: Meridian, tmp_path: Path) -> None:
    create(meridian, tmp_path, "--keep-nights", 0)
    with serving(meridian, tmp_path) as server:
        night = Night(server, 6)
        night.change(10)
        night.publish(server)
    with closing(sqlite3.connect(tmp_path / "alerts" / "prompt" / "hot.sqlite")) as file:
        assert file.execute("SELECT COUNT(*) FROM emptied_sources WHERE radius < 3").fetchall() != [(0,)]
        file.executescript(VERSION_3)
    with serving(meridian, tmp_path) as server:
        night.moved(server)
        check_reads(night)
        # Of ranges from before, and of ranges whose circles are known.
        for _ in range(2):
            night.change(10)
            night.publish(server)
            check_reads(night)
    with closing(sqlite3.connect(tmp_path / "alerts" / "prompt" / "hot.sqlite")) as file:
        for known in ("IS NULL", "IS NOT NULL"):
            assert file.execute(f"SELECT COUNT(*) FROM emptied_sources WHERE radius {known}").fetchall() != [(0,)]
    check(meridian, tmp_path)


def test_killed_servers_lose_nothing(meridian: Meridian, tmp_path: Path) -> None:
    """A server that is killed while it publishes and removes: every row is in the store or in the archive."""
    create(meridian, tmp_path, "--keep-nights", 0)
    server = Server(meridian, tmp_path)
    try:
        night = Night(server, 13)
        for _ in range(KILLS):
            night.change(12)
            publishing = threading.Thread(target=publish_in_vain, args=(server.url(""),))
            publishing.start()
            time.sleep(night.model.random.uniform(0.0, 1.5))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            publishing.join()
            server = Server(meridian, tmp_path)
            night.moved(server)
            check_reads(night)
            night.change(4)
            check_reads(night, 1)
        night.publish(server)
        assert_emptied(tmp_path, night)
        check_reads(night)
        check(meridian, tmp_path)
    finally:
        server.stop()


def test_an_archive_that_lacks_what_was_removed(meridian: Meridian, tmp_path: Path) -> None:
    """Nothing is read or published that would miss rows."""
    create(meridian, tmp_path, "--keep-nights", 0)
    copy = (tmp_path / "meridian.sqlite").read_bytes()
    with serving(meridian, tmp_path) as server:
        night = Night(server, 2)
        night.change(8)
        night.publish(server)
    # An older copy of the archive is put in its place.
    for name in ("meridian.sqlite-wal", "meridian.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "meridian.sqlite").write_bytes(copy)
    with serving(meridian, tmp_path) as server:
        night.moved(server)
        database = night.model.database
        with pytest.raises(AlertError, match="restore it from a backup"):
            database.sources(objects=[1], since=0.0)
        with pytest.raises(Conflict, match="restore it from a backup"):
            database.publish()


# A column of each type, and values that are easily changed on their way.
TYPES = {
    "long": [2**62 + 1, -(2**63) + 1, None],
    "int": [2**31 - 1, -5, None],
    "short": [-(2**15), 7, None],
    "byte": [-128, 127, None],
    "double": [0.1 + 0.2, -1e-300, None],
    "float": [0.5, -1.25e30, None],
    "boolean": [True, False, None],
    "char": ["", "a'b\\", None],
    "unicode": ["\u00e9\u4e2d", " ", None],
    "binary": [b"\x00\xff", b"", None],
    "timestamp": [datetime(2026, 11, 26, 1, 2, 3, 456789), datetime(1969, 12, 31, 23, 59, 59, 1), None],
}


def test_every_value_comes_back_as_it_was(meridian: Meridian, tmp_path: Path) -> None:
    text = SCHEMA.read_text()
    columns = "".join(f"  - {{name: a_{name}, datatype: {name}, nullable: true, description: A.}}\n" for name in TYPES)
    mark = '  primaryKey: "#DiaSource.diaSourceId"\n'
    assert mark in text
    schema = tmp_path / "types.yaml"
    schema.write_text(text.replace(mark, columns + mark))
    data = tmp_path / "data"
    meridian.must("alerts", "create", "prompt", "--data", data, "--schema", schema, "--replica", "--keep-nights", 0)
    with serving(meridian, data) as server:
        database = AlertDatabase(server.url(""), "prompt")
        exposure = {"visit": 7, "detector": 3, "midpointMjdTai": 60000.0 + 1e-9, "timeProcessedMjdTai": 60000.0}
        rows = [
            {"diaSourceId": number, "diaObjectId": owner, **exposure, "ra": [0.0, 359.9999999999, 123.4][number], "dec": [-90.0, 12.3, 0.1][number]}
            | {f"a_{name}": values[number] for name, values in TYPES.items()}
            for number, owner in enumerate([None, 5, 6])
        ]
        assert database.store(60000.0, sources=table_of(rows))
        region = circle(0.0, 0.0, 180.0)
        before = database.sources(region=region, since=0.0).sort_by("diaSourceId")
        database.publish()
        assert stored(data, "sources") == 0
        after = database.sources(region=region, since=0.0).sort_by("diaSourceId")
        assert after.schema == before.schema
        assert after.equals(before), (after.to_pylist(), before.to_pylist())
        # And once more after they were brought back.
        assert database.withdraw_sources([0, 1, 2], withdrawn=60001.0, time=60001.0) == 3
        names = [name for name in before.column_names if name != "timeWithdrawnMjdTai"]
        again = database.sources(region=region, since=0.0).sort_by("diaSourceId")
        assert again.select(names).equals(before.select(names))
