"""Damaged files: found by the query that reads them and by `meridian check`, never answered from."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, Outcome
from small_tables import CHILD, DIRECTOR, chunk_files, extract_version_0_1_0, write_lines, write_stars

ALL = "SELECT * FROM Star"


@pytest.fixture(scope="module")
def loaded(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A director and its child, whole."""
    directory = tmp_path_factory.mktemp("damage")
    data = directory / "data"
    meridian.load(data, "sky", "Star", write_stars(directory / "Star.csv", 20_000), **DIRECTOR)
    spots = write_lines(directory / "Spot.csv", [f"{n},{n % 21_000},{n}" for n in range(30_000)], header="spot,id,flux")
    meridian.load(data, "sky", "Spot", spots, **CHILD)
    return data


@pytest.fixture
def star_chunk(loaded: Path) -> Iterator[Path]:
    """The largest chunk file of Star, mended afterwards."""
    path = [path for path in chunk_files(loaded) if "star" in path.parent.parent.name.lower()][-1]
    content = path.read_bytes()
    yield path
    path.write_bytes(content)


def flip(path: Path, at: int) -> None:
    """Flips one bit of the byte at an offset."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(bytes(content))


def query(meridian: Meridian, data: Path, sql: str = ALL) -> Outcome:
    """Asks, whatever comes of it."""
    return meridian.run("sql", "--data", data, "--db", "sky", "--format", "csv", sql)


def test_whole_data_passes(meridian: Meridian, loaded: Path) -> None:
    told = meridian.must("check", "--data", loaded).text
    # Copies in overlaps are no rows of the table.
    assert re.search(r"^sky\.Star: \d+ files with 20,000 rows, and [\d,]+ copies of them near chunks' borders, are right$", told, re.MULTILINE), told
    assert re.search(r"^sky\.Spot: \d+ files with 30,000 rows are right$", told, re.MULTILINE), told


@pytest.mark.parametrize("share", [0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97, 0.999])
def test_flipped_byte(meridian: Meridian, loaded: Path, star_chunk: Path, share: float) -> None:
    flip(star_chunk, int(star_chunk.stat().st_size * share))
    assert_rejected(meridian.run("check", "--data", loaded), star_chunk.name)
    answer = query(meridian, loaded)
    assert_rejected(answer, star_chunk.name, "damaged")


def test_first_and_last_bytes(meridian: Meridian, loaded: Path, star_chunk: Path) -> None:
    content = star_chunk.read_bytes()
    for at in (0, 5, len(content) - 1, len(content) - 9, len(content) - 40):
        star_chunk.write_bytes(content)
        flip(star_chunk, at)
        assert_rejected(meridian.run("check", "--data", loaded), star_chunk.name)


def test_other_chunks_still_answer(meridian: Meridian, loaded: Path, star_chunk: Path) -> None:
    whole = query(meridian, loaded, "SELECT count(*) FROM Star WHERE dec > 80").text
    flip(star_chunk, star_chunk.stat().st_size // 2)
    again = query(meridian, loaded, "SELECT count(*) FROM Star WHERE dec > 80")
    assert (again.status, again.text) == (0, whole)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.98])
def test_truncated_chunk(meridian: Meridian, loaded: Path, star_chunk: Path, kept: float) -> None:
    content = star_chunk.read_bytes()
    star_chunk.write_bytes(content[: int(len(content) * kept)])
    assert_rejected(meridian.run("check", "--data", loaded), star_chunk.name)
    assert_rejected(query(meridian, loaded), star_chunk.name)


def test_missing_chunk(meridian: Meridian, loaded: Path, star_chunk: Path) -> None:
    hidden = star_chunk.rename(star_chunk.with_suffix(".hidden"))
    try:
        assert_rejected(meridian.run("check", "--data", loaded), star_chunk.name)
        assert_rejected(query(meridian, loaded), star_chunk.name)
    finally:
        hidden.rename(star_chunk)


def test_chunk_of_another_load_in_its_place(meridian: Meridian, loaded: Path, star_chunk: Path) -> None:
    other = [path for path in chunk_files(loaded) if path.parent != star_chunk.parent][-1]
    star_chunk.write_bytes(other.read_bytes())
    assert_rejected(meridian.run("check", "--data", loaded), star_chunk.name)


CATALOG_CHANGES = [
    ("DELETE FROM columns WHERE name = 'version'", "sky.star"),
    ("UPDATE columns SET type = 'int32' WHERE name = 'id'", "sky.s"),
    ("DELETE FROM chunks WHERE rowid_of", "chunks"),
    ("UPDATE parts SET row_count = row_count - 1 WHERE load_id = (SELECT min(load_id) FROM parts)", "sky.star"),
    ("UPDATE databases SET sub_stripes = sub_stripes + 1", "database sky"),
    ("UPDATE table_directors SET key_column = 'spot'", "sky.spot"),
]


@pytest.mark.parametrize(("change", "named"), CATALOG_CHANGES)
def test_changed_catalog(meridian: Meridian, loaded: Path, change: str, named: str) -> None:
    """Columns vanished from SHOW CREATE TABLE and chunks from scans, and `meridian check` found all to be right."""
    path = loaded / "meridian.sqlite"
    content = path.read_bytes()
    some_chunk = "(load_id, chunk_id) = (SELECT load_id, chunk_id FROM chunks ORDER BY row_count DESC LIMIT 1)"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        assert connection.execute(change.replace("rowid_of", some_chunk)).rowcount > 0
    connection.close()
    try:
        sentence = assert_rejected(meridian.run("check", "--data", loaded), "checksum", named)
        assert "backup" in sentence
        asked = [
            query(meridian, loaded, "SELECT count(*), sum(t.version) FROM Star t JOIN Spot s ON s.id = t.id"),
            query(meridian, loaded, "SHOW CREATE TABLE Star"),
            query(meridian, loaded, "SELECT count(*) FROM Spot WHERE flux >= 0"),
        ]
        rejected = [assert_rejected(outcome, "checksum") for outcome in asked if outcome.status != 0]
        assert rejected, "every answer passed"
    finally:
        path.write_bytes(content)
    meridian.must("check", "--data", loaded)


def test_damaged_overlap(meridian: Meridian, loaded: Path) -> None:
    path = chunk_files(loaded, "overlap_*.mrd")[-1]
    content = path.read_bytes()
    flip(path, len(content) // 2)
    try:
        assert_rejected(meridian.run("check", "--data", loaded), path.name)
    finally:
        path.write_bytes(content)


def test_damaged_index(meridian: Meridian, loaded: Path) -> None:
    files = [path for path in loaded.glob("tables/*/*/index/*") if path.is_file()]
    path = max(files, key=lambda path: path.stat().st_size)
    content = path.read_bytes()
    flip(path, len(content) // 2)
    try:
        assert_rejected(meridian.run("check", "--data", loaded), path.name)
    finally:
        path.write_bytes(content)
    meridian.must("check", "--data", loaded)


TO_VERSION_1 = [
    *(f"ALTER TABLE {table} DROP COLUMN checksum" for table in ("databases", "tables", "loads")),
    "ALTER TABLE loads DROP COLUMN chunk_count",
    "ALTER TABLE loads DROP COLUMN chunks_checksum",
    "DROP TABLE lists",
    "PRAGMA user_version = 1",
]


def test_a_catalog_without_checksums_is_brought_up_to_date(meridian: Meridian, tmp_path: Path) -> None:
    for command in ("check", "load"):
        data = extract_version_0_1_0(tmp_path / command)
        connection = sqlite3.connect(data / "meridian.sqlite")
        for statement in TO_VERSION_1:
            connection.execute(statement)
        connection.commit()
        connection.close()
        if command == "check":
            told = meridian.must("check", "--data", data).text
        else:
            path = write_lines(tmp_path / "Plain.csv", ["1"], header="a")
            told = meridian.load(data, "sky", "Plain", path).text
        assert "of version 1" in told and "checksums" in told, told
        again = meridian.must("check", "--data", data).text
        assert "of version 1" not in again
        assert meridian.rows(data, "sky", "SELECT count(*) FROM Object o JOIN Source s ON o.objectId = s.objectId") == [(3,)]
