"""Temporary files: where they are, how much room they may take, and that none are left."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import SOON, Server, serving, wait_until
from small_tables import load_stars_and_bands

STARS = 120_000
FULL = 1114
# What it sorts, some 30 MB, has no room in the memory of the servers here.
SORTED = "(SELECT id, s, ROW_NUMBER() OVER (ORDER BY s DESC, id) AS r FROM (SELECT id, CONCAT(REPEAT(id, 40), ra) AS s FROM Star) y) x"
SORT = f"SELECT SUM(id * r), MAX(LENGTH(s)) FROM {SORTED}"
# The same, and it waits now and then once rows are sorted.
SLOW_SORT = f"SELECT SUM(id * r), MAX(LENGTH(s)) FROM {SORTED} WHERE SLEEP(CASE WHEN r % 1000 = 0 THEN 1 ELSE 0 END) = 0"
LITTLE = ("--memory", "48M", "--cache", "16M", "--threads", 2)


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky, and a small table."""
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("temporary"), STARS)


def execute(server: Server, statement: str) -> tuple[tuple[object, ...], ...]:
    """The rows of a statement by a connection of its own."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return tuple(cursor.fetchall())


def folders(directory: Path) -> list[Path]:
    """The folders of processes."""
    return sorted(it for it in directory.iterdir() if it.is_dir()) if directory.exists() else []


def spilled(server: Server, directory: Path) -> Iterator[Path]:
    """The files that statements have spilled now."""
    (folder,) = folders(directory)
    # Unlike a glob, a walk passes over a folder that is removed meanwhile.
    return (Path(at) / name for at, _, names in os.walk(folder) for name in names if name != "lock")


@pytest.fixture(scope="module")
def expected(meridian: Meridian, data: Path) -> tuple[tuple[object, ...], ...]:
    """What the sort gives with all the memory of the machine."""
    with serving(meridian, data) as server:
        return execute(server, SORT)


def test_statements_spill_into_the_data_directory(meridian: Meridian, data: Path, expected: object) -> None:
    """And nothing is left afterwards."""
    with serving(meridian, data, *LITTLE) as server:
        asked = threading.Thread(target=lambda: ignore(lambda: execute(server, SLOW_SORT)), daemon=True)
        asked.start()
        # A file is made before the first rows are in it.
        wait_until(lambda: any(spilled(server, data / "tmp")) and gauge(server, "meridian_spilled_bytes") > 0, 3 * SOON, "it spills")
        stop_all(server)
        asked.join(SOON)
        wait_until(lambda: gauge(server, "meridian_spilled_bytes") == 0, SOON, "it gives back what it took")
        assert execute(server, SORT) == expected
        # Its rows are there before its operators have ended.
        wait_until(lambda: not any(spilled(server, data / "tmp")), SOON, "it removes its files")
    assert folders(data / "tmp") == []


def test_what_is_spilled_has_a_limit(meridian: Meridian, data: Path, expected: object) -> None:
    """The statement fails, says why, and takes nothing more; others go on."""
    with serving(meridian, data, *LITTLE, "--temp-size", "4M") as server:
        assert gauge(server, "meridian_spilled_limit_bytes") == 4 << 20
        for _ in range(2):
            with pytest.raises(pymysql.MySQLError) as failed:
                execute(server, SORT)
            code, sentence = failed.value.args
            assert code == FULL and "more than their limit of 4.0 MB" in sentence, sentence
            wait_until(lambda: gauge(server, "meridian_spilled_bytes") == 0, SOON, "it gives back what it took")
        assert execute(server, "SELECT COUNT(*) FROM Star") == ((STARS,),)
    with serving(meridian, data, *LITTLE, "--temp-size", "1G") as server:
        assert execute(server, SORT) == expected


def test_what_a_killed_server_left_is_removed(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """By the next one that uses the directory, which leaves alone what others use and what is not Meridian's."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    (directory / "somebody's").mkdir()
    (directory / "somebody's" / "file").write_text("kept")
    killed = Server(meridian, data, *LITTLE, "--temp-dir", directory)
    asked = threading.Thread(target=lambda: ignore(lambda: execute(killed, SLOW_SORT)), daemon=True)
    asked.start()
    wait_until(lambda: any(it.name != "lock" for it in directory.glob("*-*/*/*")), 3 * SOON, "it spills")
    killed.stop(signal.SIGKILL)
    (left,) = (it for it in folders(directory) if it.name != "somebody's")
    with serving(meridian, data, *LITTLE, "--temp-dir", directory) as server:
        assert not left.exists()
        (used,) = (it for it in folders(directory) if it.name != "somebody's")
        with serving(meridian, data, "--temp-dir", directory):
            assert used.exists() and len(folders(directory)) == 3
        assert used.exists() and execute(server, "SELECT COUNT(*) FROM Star") == ((STARS,),)
    assert (directory / "somebody's" / "file").read_text() == "kept"
    assert [it.name for it in folders(directory)] == ["somebody's"]


def test_the_command_line_leaves_nothing(meridian: Meridian, data: Path) -> None:
    """Its own sorts spill there as well."""
    outcome = meridian.run("sql", "--data", data, "--db", "sky", "--memory", "48M", "--cache", "0", "--threads", 2, "--format", "csv", SORT)
    assert outcome.status == 0, outcome.complaint
    assert folders(data / "tmp") == []


def test_a_directory_that_cannot_be_used_is_named(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """The server does not start."""
    (tmp_path / "file").write_text("no directory")
    outcome = meridian.run("serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "off", "--temp-dir", tmp_path / "file")
    assert outcome.status == 1
    assert "temporary files cannot be written in" in outcome.complaint and "--temp-dir" in outcome.complaint


def ignore(work: object) -> None:
    """Does it, whatever becomes of it."""
    try:
        work()  # type: ignore[operator]
    except (pymysql.MySQLError, OSError):
        pass


def gauge(server: Server, name: str) -> float:
    """A metric of the server's."""
    with urllib.request.urlopen(server.url("/metrics"), timeout=SOON) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def stop_all(server: Server) -> None:
    """Ends the statements of all other connections."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SHOW PROCESSLIST")
        for row in cursor.fetchall():
            if row[0] != connection.thread_id():
                ignore(lambda number=row[0]: cursor.execute(f"KILL {number}"))
