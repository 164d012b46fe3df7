"""Fixtures of the testbed: the private MariaDB, and the catalogues in both databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogues import load_dumps
from meridian_cli import Meridian
from mysql_dump import read_dump, tables_of
from synthetic import TableData
from testbed import sky
from testbed.mariadb import SERVER, MariaDB
from testbed.sides import Asker, Sides

# Columns by which LSST's tables are joined.
INDEXES = {
    "Object": ["objectId"],
    "Source": ["objectId", "sourceId", "scienceCcdExposureId"],
    "SimRefObject": ["refObjectId"],
    "RefSrcMatch": ["refObjectId", "sourceId"],
}
SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """The server."""
    if not Path(SERVER).exists() or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed: run scripts/setup tests.")
    server = MariaDB(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def small_sky(meridian: Meridian, mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """The testbed's own sky in both databases."""
    directory = tmp_path_factory.mktemp("small_sky")
    tables = sky.make_tables()
    data = sky.load(meridian, directory, tables)
    mariadb.make_database(sky.DATABASE, list(tables.values()), sky.INDEXES)
    sides = Sides(Asker(meridian, data, sky.DATABASE), mariadb, sky.DATABASE)
    yield sides
    sides.asker.close()


def lsst_sides(meridian: Meridian, mariadb: MariaDB, name: str, directory: Path) -> Iterator[Sides]:
    """One of the sets of LSST's sample rows in both databases."""
    dumps = SHARED_DATA / name
    if not (dumps / "tables.json").is_file():
        pytest.skip(f"The LSST sample rows are not here: {dumps} is missing.")
    loaded = load_dumps(meridian, directory, dumps)
    tables = []
    for table in tables_of(dumps).values():
        types = {column.name: column.type for column in table.columns}
        tables.append(TableData(table.name, types, read_dump(table)))
    mariadb.make_database(name, tables, INDEXES)
    sides = Sides(Asker(meridian, loaded.data, name), mariadb, name)
    yield sides
    sides.asker.close()


@pytest.fixture(scope="session")
def pt11_sides(meridian: Meridian, mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """LSST's simulation PT1.1."""
    yield from lsst_sides(meridian, mariadb, "pt11", tmp_path_factory.mktemp("pt11_sides"))


@pytest.fixture(scope="session")
def pt12_sides(meridian: Meridian, mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """LSST's simulation PT1.2."""
    yield from lsst_sides(meridian, mariadb, "pt12", tmp_path_factory.mktemp("pt12_sides"))
