"""Many scans at once, with room for a few of the columns: each decodes for the others, and every answer is DuckDB's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meridian_cli import Meridian
from serving import Server, serving

ROWS = 60_000
CONNECTIONS = 8
STATEMENTS = 12


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky with numbers and texts, some of them NULL."""
    rng = np.random.default_rng(7)
    names = pa.array([f"star {number % 997} of {number}" for number in range(ROWS)])
    columns = {
        "id": np.arange(ROWS),
        "ra": rng.uniform(0.0, 360.0, ROWS),
        "decl": np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, ROWS))),
        "n": pa.array(rng.integers(-1000, 1000, ROWS), mask=rng.random(ROWS) < 0.1),
        "m": pa.array(rng.integers(0, 7, ROWS).astype(np.int16)),
        "name": names,
        "kind": pa.array(rng.choice(["galaxy", "star", "quasar"], ROWS), mask=rng.random(ROWS) < 0.2),
    }
    path = tmp_path_factory.mktemp("stars") / "Star.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module", params=["1M", "3M", "256M"])
def server(request: pytest.FixtureRequest, meridian: Meridian, stars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with room for a block or two, for a part of the columns, and for all of them."""
    data = tmp_path_factory.mktemp("shared") / "data"
    meridian.load(data, "sky", "Star", stars, kind="director", key="id", ra="ra", dec="decl", stripes=4, sub_stripes=4)
    with serving(meridian, data, "--cache", request.param) as server:
        yield server


def statements(rng: random.Random) -> list[str]:
    """Scans that have columns in common, in forms that repeat: sums are of integers, so that they are exact."""
    found = []
    for _ in range(STATEMENTS):
        condition = rng.choice(
            [
                f"n > {rng.randrange(-900, 900)}",
                f"m = {rng.randrange(7)} AND ra < {rng.uniform(20.0, 350.0):.3f}",
                f"kind = '{rng.choice(['star', 'quasar'])}' AND n < {rng.randrange(-900, 900)}",
                f"decl BETWEEN {rng.uniform(-80.0, 0.0):.3f} AND {rng.uniform(0.0, 80.0):.3f}",
                "n IS NULL",
            ]
        )
        items = rng.choice(
            [
                "COUNT(*) AS a, SUM(n) AS b, SUM(m) AS c",
                "COUNT(kind) AS a, MIN(name) AS b, MAX(name) AS c",
                "MAX(id) AS a, MIN(kind) AS b, SUM(n) AS c",
            ]
        )
        found.append(f"SELECT {items} FROM Star WHERE {condition}")
    return found


def test_scans_at_once_give_what_they_give_alone(server: Server, stars: Path) -> None:
    oracle = duckdb.connect()
    oracle.execute(f"CREATE TABLE Star AS SELECT * FROM '{stars}'")

    def execute(seed: int) -> list[tuple[str, object]]:
        with server.connect(database="sky") as connection, connection.cursor() as cursor:
            found = []
            for statement in statements(random.Random(seed)):
                cursor.execute(statement)
                found.append((statement, cursor.fetchall()[0]))
            return found

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        answers = [answer for found in pool.map(execute, range(CONNECTIONS)) for answer in found]
    for statement, row in answers:
        assert row == oracle.execute(statement).fetchone(), statement
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT SUM(DECODED_BYTES) AS d, SUM(SHARED_BYTES) AS s FROM information_schema.QUERIES WHERE ROWS > 0")
        [(decoded, shared)] = cursor.fetchall()
    assert decoded > 0 and shared > 0
