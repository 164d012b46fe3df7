"""Doubles as programs write them, with up to 17 digits: each is found by its own text, as often as it is asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

ROWS = 60


def double(rng: random.Random) -> float:
    """A number of any digits, small and large, of either sign."""
    return rng.choice([-1, 1]) * rng.choice([rng.random(), rng.uniform(0, 360), rng.uniform(1e9, 1e13), rng.uniform(1, 9) * 10.0 ** rng.randint(-30, 30)])


VALUES = [double(random.Random(seed)) for seed in range(ROWS)]
# Digits beyond those of a double, and what lies beside them.
DECIMALS = ["0.12345678901234567890", "0.12345678901234567891", "12345678901234567.123", "4.00000000000000000001"]


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymysql.connections.Connection]:
    """A connection to a table of doubles and one of decimals."""
    directory = tmp_path_factory.mktemp("doubles")
    data: Path = directory / "data"
    doubles = directory / "doubles.csv"
    doubles.write_text("id,x\n" + "".join(f"{key},{value!r}\n" for key, value in enumerate(VALUES)))
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Doubles", "--kind", "replicated", doubles)
    decimals, schema = directory / "decimals.csv", directory / "decimals.json"
    decimals.write_text("id,d,e\n" + "".join(f"{key},{value},{value}\n" for key, value in enumerate(DECIMALS)))
    schema.write_text(
        '{"columns": [{"name": "id", "type": "INT"}, {"name": "d", "type": "DECIMAL(38,20)"}, {"name": "e", "type": "DOUBLE"}]}'
    )
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Decimals", "--kind", "replicated", "--schema", schema, decimals)
    with serving(meridian, data) as server, server.connect(database="sky") as connected:
        yield connected


@pytest.mark.parametrize("form", ["x = {0}", "x IN ({0}, 5.5)", "x BETWEEN {0} AND {0}", "{0} <= x AND NOT x > {0}", "CASE x WHEN {0} THEN 1 ELSE 0 END = 1"])
def test_a_double_is_found_by_its_text(connection: pymysql.connections.Connection, form: str) -> None:
    """In all forms of a comparison, from the first time on to when the plan is kept; with an exponent and without."""
    cursor = connection.cursor()
    for key, value in enumerate(VALUES):
        for text in {repr(value), f"{value:.17g}", f"{value:.16e}"}:
            cursor.execute(f"SELECT id FROM Doubles WHERE {form.format(text)}")
            assert cursor.fetchall() == ((key,),), text


def test_what_is_above_and_below_is_told_apart(connection: pymysql.connections.Connection) -> None:
    """As often as it is asked, of numbers of many digits and of few."""
    cursor = connection.cursor()
    rng = random.Random(1)
    for _ in range(60):
        bound = rng.choice([rng.choice(VALUES), double(rng), round(double(rng), 3)])
        cursor.execute(f"SELECT COUNT(*) FROM Doubles WHERE x > {bound!r}")
        assert cursor.fetchall() == ((sum(value > bound for value in VALUES),),), bound


def test_decimals_keep_their_digits(connection: pymysql.connections.Connection) -> None:
    """A number of many digits is compared with a decimal digit by digit, also where a plan could be kept; beside a double it is one."""
    cursor = connection.cursor()
    for _ in range(4):
        for key, value in enumerate(DECIMALS):
            cursor.execute(f"SELECT id FROM Decimals WHERE d = {value}")
            assert cursor.fetchall() == ((key,),), value
        cursor.execute("SELECT COUNT(*) FROM Decimals WHERE d > 0.12345678901234568")
        assert cursor.fetchall() == ((2,),)
        cursor.execute("SELECT COUNT(*) FROM Decimals WHERE d > 4.0000000000000001")
        assert cursor.fetchall() == ((1,),)
        cursor.execute("SELECT id FROM Decimals WHERE d = e AND e = CAST(d AS DOUBLE)")
        assert cursor.fetchall() == tuple((key,) for key in range(len(DECIMALS)))
