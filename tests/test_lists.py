"""Conditions that compare a value with several lists: whether NULL, FALSE or TRUE, and whatever was asked before, as SQLite decides."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

ROWS = [(number, value) for number, value in enumerate([None, 1, 2, 3, 4, 5, None, 2])]
STATEMENTS = 250
# A wording is planned with placeholders when it is asked for the second time.
TIMES = 4


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymysql.connections.Connection]:
    """A connection to a director: keys, which are never NULL, and values that may be."""
    directory = tmp_path_factory.mktemp("lists")
    rows = directory / "rows.csv"
    rows.write_text("id,ra,decl,a\n" + "".join(f"{key},{key * 40},{key},{'' if value is None else value}\n" for key, value in ROWS))
    data: Path = directory / "data"
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Values", "--key", "id", "--ra", "ra", "--dec", "decl", rows)
    with serving(meridian, data) as server, server.connect(database="sky") as connected:
        yield connected


@pytest.fixture(scope="module")
def oracle() -> sqlite3.Connection:
    """The same rows in SQLite."""
    connected = sqlite3.connect(":memory:")
    connected.execute("CREATE TABLE `Values` (id INTEGER NOT NULL, a INTEGER)")
    connected.executemany("INSERT INTO `Values` VALUES (?, ?)", ROWS)
    return connected


def element(rng: random.Random) -> str:
    """What a value is compared with: mostly a number, sometimes a column or NULL."""
    return rng.choice(["#", "#", "#", "#", "a", "id", "NULL"])


def condition(rng: random.Random, depth: int, member: Callable[[random.Random], str]) -> str:
    """A condition with `#` in the place of each number."""
    if depth == 0 or rng.random() < 0.2:
        column = rng.choice(["a", "a", "id"])
        negated = rng.choice(["", "NOT "])
        match rng.randrange(4):
            case 0:
                return f"{column} {rng.choice(['=', '<>'])} {member(rng)}"
            case length:
                return f"{column} {negated}IN ({', '.join(member(rng) for _ in range(length))})"
    parts = [condition(rng, depth - 1, member) for _ in range(rng.choice([2, 2, 3]))]
    joined = f" {rng.choice(['AND', 'OR'])} ".join(parts)
    return f"{rng.choice(['', '', 'NOT '])}({joined})"


@pytest.mark.parametrize("member", [lambda _: "#", element], ids=["numbers", "anything"])
@pytest.mark.parametrize("seed", range(4))
def test_lists_are_as_sqlite_has_them(connection: pymysql.connections.Connection, oracle: sqlite3.Connection, seed: int, member: Callable[[random.Random], str]) -> None:
    """In WHERE, where unknown counts as false, and as an item of the SELECT, where it is NULL."""
    rng = random.Random(seed)
    cursor = connection.cursor()
    for _ in range(STATEMENTS // 4):
        wording = condition(rng, rng.choice([1, 2, 2]), member)
        forms = [f"SELECT id FROM `Values` WHERE {wording} ORDER BY id", f"SELECT id, ({wording}) AS q FROM `Values` ORDER BY id"]
        for form in forms:
            for _ in range(TIMES):
                statement = "".join(str(rng.randrange(6)) if letter == "#" else letter for letter in form)
                cursor.execute(statement)
                assert list(cursor.fetchall()) == oracle.execute(statement).fetchall(), statement
