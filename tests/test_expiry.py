"""Tables of users' own expire: when, who is told, who may change it, and that nothing else goes with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import wait_until
from test_limits import LIMIT_REACHED, execute, limited, refused
from test_users import Site, site_of_ann_and_bob

STARS = 300
# A server looks every five seconds; the machine may be busy.
PATIENCE = 120


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of_ann_and_bob(meridian, tmp_path_factory.mktemp("expiry"), STARS) as site:
        yield site


def expires(connection: pymysql.connections.Connection, table: str) -> datetime | None:
    """When a table expires, as every list of MySQL's protocol tells it."""
    database, name = table.split(".")
    (options,) = execute(connection, f"SELECT CREATE_OPTIONS FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = '{name}'")
    (status,) = [row for row in execute(connection, f"SHOW TABLE STATUS FROM {database}") if row[0] == name]
    assert status[16] == options[0]
    text = str(options[0])
    return datetime.strptime(text, "expires=%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) if text else None


def is_in_days(time: datetime | None, days: float) -> bool:
    """Whether a time is that many days from now, give or take the minutes that a test may take."""
    return time is not None and abs(time - datetime.now(UTC) - timedelta(days=days)) < timedelta(minutes=30)


def warnings(connection: pymysql.connections.Connection) -> list[str]:
    return [str(row[2]) for row in execute(connection, "SHOW WARNINGS")]


def me(site: Site, name: str) -> dict[str, object]:
    told = json.loads(site.http("me", name)[1])
    assert isinstance(told, dict)
    return told


def is_there(connection: pymysql.connections.Connection, table: str) -> bool:
    database, name = table.split(".")
    return (name,) in execute(connection, f"SHOW TABLES FROM {database}")


def test_tables_get_a_time_and_owners_change_it(site: Site) -> None:
    with site.connect("ann") as ann:
        execute(ann, "CREATE TABLE ann.old AS SELECT * FROM sky.Star")
        assert expires(ann, "ann.old") is None
        with limited(site, "ann", lifetime=30):
            # What is made gets its time at once, what there was some seconds later.
            execute(ann, "CREATE TABLE ann.t (id BIGINT, name VARCHAR(8))")
            assert warnings(ann) == [] and is_in_days(expires(ann, "ann.t"), 30)
            wait_until(lambda: me(site, "ann")["tables"][0]["expires"] is not None, PATIENCE, "the old one gets a time")  # type: ignore[index]
            assert is_in_days(expires(ann, "ann.old"), 30)
            for too_long in ("INTERVAL 31 DAY", "INTERVAL 5 WEEK", "NEVER"):
                assert "for 30 days" in refused(ann, f"ALTER TABLE ann.t EXPIRE {too_long}")
            execute(ann, "ALTER TABLE ann.t EXPIRE INTERVAL 3 DAY")
            (told,) = warnings(ann)
            assert is_in_days(expires(ann, "ann.t"), 3)
            assert told.startswith("ann.t is removed after ") and "EXPIRE DEFAULT" in told
            # Whatever becomes of it, the time stays; and each change warns.
            for change in ("INSERT INTO ann.t VALUES (1, 'a')", "UPDATE ann.t SET name = 'b'", "ALTER TABLE ann.t ADD COLUMN x INT", "RENAME TABLE ann.t TO ann.u"):
                execute(ann, change)
                assert len(warnings(ann)) == 1, change
            assert is_in_days(expires(ann, "ann.u"), 3) and execute(ann, "SELECT id, name FROM ann.u") == [(1, "b")]
            told_by_http = me(site, "ann")
            times = {table["name"]: table["expires"] for table in told_by_http["tables"]}  # type: ignore[attr-defined]
            assert set(times) == {"ann.u", "ann.old"} and all(times.values())
            assert [sentence.split()[0] for sentence in told_by_http["warnings"]] == ["ann.u"]  # type: ignore[attr-defined]
            for path in ("tap/tables", "tap/tables/ann.u"):
                assert f"(expires {times['ann.u']})" in site.http(path, "ann")[1]

            def is_told_at_login() -> bool:
                with site.connect("ann") as other:
                    return [sentence.split()[0] for sentence in warnings(other)] == ["ann.u"]

            wait_until(is_told_at_login, PATIENCE, "whoever logs in is warned")
            execute(ann, "ALTER TABLE ann.u EXPIRE DEFAULT")
            assert warnings(ann) == [] and is_in_days(expires(ann, "ann.u"), 30)
        # The time is the table's own, and there is no limit any more.
        assert is_in_days(expires(ann, "ann.u"), 30)
        execute(ann, "ALTER TABLE ann.u EXPIRE NEVER")
        assert expires(ann, "ann.u") is None
        for name in ("old", "u"):
            execute(ann, f"DROP TABLE ann.{name}")


def test_who_may_change_it(site: Site) -> None:
    with limited(site, "ann", lifetime=30), site.connect("ann") as ann, site.connect("bob") as bob, site.connect("boss") as boss:
        execute(ann, "CREATE TABLE ann.t AS SELECT * FROM sky.Star")
        execute(ann, "GRANT SELECT ON ann.t TO bob")
        for connection, table, number in ((bob, "ann.t", 1142), (ann, "sky.Star", 1142), (ann, "ann.none", 1146), (boss, "sky.Star", 1235)):
            with pytest.raises(pymysql.err.MySQLError) as raised:
                execute(connection, f"ALTER TABLE {table} EXPIRE INTERVAL 0 SECOND")
            assert raised.value.args[0] == number, raised.value
        execute(boss, "ALTER TABLE ann.t EXPIRE INTERVAL 90 DAY")
        assert is_in_days(expires(bob, "ann.t"), 90)
        for body, status in ((b"expire=5", 200), (b"expire=default", 200), (b"expire=31", 400), (b"expire=never", 400), (b"expire=soon", 400), (b"", 400), (b"expire=99999999999999999", 400)):
            answered, text, _ = site.http("tables/ann.t", "ann", method="POST", body=body)
            assert answered == status, (body, text)
        assert is_in_days(expires(ann, "ann.t"), 30)
        assert site.http("tables/ann.t", "bob", method="POST", body=b"expire=5")[0] == 403
        execute(ann, "DROP TABLE ann.t")


def test_tables_go_and_take_nothing_along(site: Site) -> None:
    """A statement that reads the table meanwhile gets all rows; a director waits for its children; what comes after it is another table."""
    with site.connect("ann") as ann:
        execute(ann, "CREATE TABLE ann.read AS SELECT * FROM sky.Star")
        execute(ann, "CREATE TABLE ann.d PARTITION BY DIRECTOR (id, ra, `dec`) AS SELECT id, ra, `dec` FROM sky.Star")
        execute(ann, "CREATE TABLE ann.c PARTITION BY CHILD OF ann.d (id) AS SELECT id, version FROM sky.Star")
        execute(ann, "CREATE TABLE ann.kept AS SELECT id FROM ann.read")
        counted: list[object] = []

        def count() -> None:
            with site.connect("ann") as other:
                counted.extend(execute(other, "SELECT COUNT(*), SUM(SLEEP(0.05)) FROM ann.read"))

        reading = threading.Thread(target=count)
        reading.start()
        running = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT COUNT(*), SUM(SLEEP%'"
        with site.connect("boss") as boss:
            wait_until(lambda: execute(boss, running) == [(1,)], 30, "it reads")
        for table in ("read", "d"):
            execute(ann, f"ALTER TABLE ann.{table} EXPIRE INTERVAL 0 SECOND")
        wait_until(lambda: not is_there(ann, "ann.read"), PATIENCE, "it is removed")
        assert is_there(ann, "ann.d")
        reading.join()
        assert counted == [(STARS, 0)]
        execute(ann, "ALTER TABLE ann.c EXPIRE INTERVAL 1 SECOND")
        wait_until(lambda: execute(ann, "SHOW TABLES FROM ann") == [("kept",)], PATIENCE, "both are removed")
        execute(ann, "CREATE TABLE ann.read AS SELECT id FROM ann.kept")
        assert expires(ann, "ann.read") is None
        assert execute(ann, "SELECT COUNT(*) FROM ann.read") == [(STARS,)]
        with pytest.raises(pymysql.err.MySQLError) as raised:
            execute(ann, "SELECT COUNT(*) FROM ann.d")
        assert raised.value.args[0] == 1146 and LIMIT_REACHED == 1226
        for name in ("read", "kept"):
            execute(ann, f"DROP TABLE ann.{name}")
    wait_until(lambda: site.meridian.run("check", "--data", site.data).status == 0, PATIENCE, "nothing is left")
