"""LOAD DATA LOCAL INFILE: files of clients become rows of users' tables, with pymysql and the command line, beside MariaDB."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving
from small_tables import load_stars_and_bands
from strict_mariadb import outcome, rows, strict_mariadb
from test_users import PASSWORD, Site, must
from testbed.mariadb import MariaDB

COLUMNS = "id INT NOT NULL, d DECIMAL(8,3), s VARCHAR(20) DEFAULT 'none', at DATETIME, x DOUBLE"
# A file, and how the statement describes it.
FILES = [
    ("1\t1.5\tone\t2026-01-02 03:04:05\t1e3\n2\t\\N\t\\N\t\\N\t\\N\n3\t-0.0005\ta\\tb\\\\c\t2026-01-02\t.5\n", ""),
    ("id,d,s\r\n1,2.5,\"a, \"\"b\"\"\"\r\n2,NULL,\"NULL\"\r\n3,1,\"two\r\nlines\"\r\n", "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' LINES TERMINATED BY '\\r\\n' IGNORE 1 LINES (id, d, s)"),
    ("a|7|1.25|rest\nb|8|2.5|x", "FIELDS TERMINATED BY '|' ESCAPED BY '' LINES TERMINATED BY '\\n' (s, id, d, @skipped)"),
    ("'1';'it''s'\n'2';'\\'q\\''\n", "FIELDS TERMINATED BY ';' ENCLOSED BY '\\'' (id, s)"),
    ("", ""),
    ("1\n2\n", "(id)"),
    ("äöü\t5\n", "CHARACTER SET utf8mb4 (s, id)"),
    # Columns get values that are computed from the fields.
    ("1,250,b\n2,\\N,c\n3,7,d", "FIELDS TERMINATED BY ',' (id, @Hundredths, s) SET d = @hundredths / 100, s = CONCAT(UPPER(s), '-', id), x = 0.5"),
    ("1,7,a\n2,8,b\n", "FIELDS TERMINATED BY ',' (@id, @skipped, @s) SET id = @id + @base, s = REPEAT(@s, 30), x = t.id * 2, d = x + @base"),
    ("5,3\n6,-4\n", "FIELDS TERMINATED BY ',' (id, d) SET d = d * d, d = d + 1, s = DEFAULT, at = STR_TO_DATE(CONCAT('2026-01-0', id), '%Y-%m-%d')"),
    ("20260102,1e400,abc,1\n\\N,zwei,\\N,2\n", "FIELDS TERMINATED BY ',' (@day, x, @t, id) SET at = @day, s = IFNULL(@t, (SELECT 'none')), d = IF(@t IS NULL, NULL, @t)"),
    ("1\t2\n3\n4\t5\t6\n", "(@a, @b) SET id = @a, d = @b"),
    ("1\t1\n2\tx\n", "(id, @b) SET id = id * 1000000 * 1000000, d = IF(id > 5, 4, 3)"),
    ("", "(@a) SET id = @a"),
]  # fmt: skip


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """The server with which statements are compared."""
    yield from strict_mariadb(tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("files"), 20)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


@pytest.fixture
def ann(site: Site) -> Iterator[pymysql.connections.Connection]:
    """A connection that sends files, of a user who has a table t."""
    with site.connect("ann", database="ann", local_infile=True) as connection:
        assert outcome(connection, "DROP TABLE IF EXISTS t") == 0
        assert outcome(connection, f"CREATE TABLE t ({COLUMNS})") == 0
        yield connection


@pytest.mark.parametrize("at", range(len(FILES)))
def test_files_have_the_rows_that_mariadb_reads(ann: pymysql.connections.Connection, mariadb: MariaDB, tmp_path: Path, at: int) -> None:
    content, described = FILES[at]
    path = tmp_path / "rows.txt"
    path.write_bytes(content.encode())
    outcome(mariadb.connection, "DROP TABLE IF EXISTS t")
    outcome(mariadb.connection, f"CREATE TABLE t ({COLUMNS})")
    statement = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t {described}"
    for connection in (mariadb.connection, ann):
        outcome(connection, "SET @base = 10, @a = 'before', @id = NULL, @skipped = NULL, @s = NULL, @hundredths = NULL, @t = NULL")
    expected = outcome(mariadb.connection, statement)
    assert outcome(ann, statement) == expected
    # MariaDB notes digits that are rounded away, too.
    warned = [[row for row in rows(connection, "SHOW WARNINGS") if row[0] == "Warning"] for connection in (mariadb.connection, ann)]
    assert [row[1] for row in warned[0]] == [row[1] for row in warned[1]], warned
    for read in ("SELECT * FROM t", "SELECT @id, @skipped, @s, @a, @hundredths, @t"):
        assert rows(ann, read) == rows(mariadb.connection, read), warned


def test_large_files(ann: pymysql.connections.Connection, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    count = 60_000
    path.write_text("".join(f"{n},{n}.125,{'x' * (n % 20)}\n" for n in range(count)))
    assert outcome(ann, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t FIELDS TERMINATED BY ',' (id, d, s)") == count
    assert rows(ann, "SELECT COUNT(*), MAX(id), SUM(CHAR_LENGTH(s)) FROM t") == [(count, count - 1, str(sum(n % 20 for n in range(count))))]


def test_what_cannot_be_stored_changes_nothing(ann: pymysql.connections.Connection, tmp_path: Path) -> None:
    """Errors name the row; the connection goes on. What a column cannot hold is adjusted (test_values_of_mysql.py), but there is no zero date."""
    path = tmp_path / "wrong.txt"
    assert outcome(ann, "ALTER TABLE t ADD COLUMN seen DATE NOT NULL DEFAULT '2026-01-01'") == 0
    for content, described, code, word in [
        ("1\t2026-01-01\n2\tsoon\n", "(id, seen)", 1292, "Row 2"),
        ("1\t\\N\n", "(id, seen)", 1048, "Row 1"),
        ("x\n", "(s)", 1364, "id"),
        ("1\n", "(nothing)", 1054, "nothing"),
        ("1\n", "(id) SET nothing = 1", 1054, "nothing"),
        ("1\n", "(id) SET d = nothing", 1054, "nothing"),
        ("1\n", "(id) SET d = nosuch(id)", 1305, "nosuch"),
        ("1\n2\n", "(id) SET seen = IF(id = 2, 'soon', '2026-01-01')", 1292, "Row 2"),
        ("1\n", "(@a)", 1064, "SET"),
    ]:
        path.write_text(content)
        found = outcome(ann, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t {described}")
        assert isinstance(found, tuple) and found[0] == code and word in found[1], f"{content!r}: {found}"
        assert rows(ann, "SELECT COUNT(*) FROM t") == [(0,)]
    path.write_bytes(b"1\t\xff\n")
    found = outcome(ann, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t (id, s)")
    assert isinstance(found, tuple) and found[0] == 1300 and "latin1" in found[1]
    assert outcome(ann, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t CHARACTER SET latin1 (id, s)") == 1
    assert rows(ann, "SELECT s FROM t") == [("ÿ",)]


def test_who_sends_files(site: Site, ann: pymysql.connections.Connection, tmp_path: Path) -> None:
    """No file is requested of a client that sends none, nor for a table that the user may not change."""
    path = tmp_path / "one.txt"
    path.write_text("1\n")
    statement = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE ann.t (id)"
    with site.connect("ann", database="ann") as plain:
        found = outcome(plain, statement)
        assert isinstance(found, tuple) and found[0] == 3948 and "local_infile=True" in found[1]
        assert rows(plain, "SELECT 1") == [(1,)]
    with site.connect("bob", local_infile=True) as bob:
        found = outcome(bob, statement)
        assert isinstance(found, tuple) and found[0] == 1142
    found = outcome(ann, f"LOAD DATA INFILE '{path}' INTO TABLE t (id)")
    assert isinstance(found, tuple) and found[0] == 1290 and "LOCAL" in found[1]
    # A file that the client does not have: it sends nothing, and the connection goes on.
    missing = outcome(ann, f"LOAD DATA LOCAL INFILE '{tmp_path / 'missing'}' INTO TABLE t (id)")
    assert isinstance(missing, tuple) and rows(ann, "SELECT COUNT(*) FROM t") == [(0,)]


@pytest.mark.parametrize("client", ["mariadb", "mysql"])
def test_the_command_line_sends_files(site: Site, ann: pymysql.connections.Connection, tmp_path: Path, client: str) -> None:
    program = shutil.which(client)
    if program is None:
        pytest.skip(f"The client {client} is not installed.")
    path = tmp_path / "rows.tsv"
    path.write_text("".join(f"{n}\t{n}.5\n" for n in range(2000)))
    command = [program, "--no-defaults", "-h", "127.0.0.1", "-P", str(site.server.port), "-u", "ann", f"--password={PASSWORD}", "--local-infile=1", "ann"]
    statement = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t (id, d); SELECT COUNT(*), SUM(d) FROM t"
    done = subprocess.run([*command, "-N", "-e", statement], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2000", "2000000.000"], done.stdout
