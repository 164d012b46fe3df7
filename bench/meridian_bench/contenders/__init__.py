"""The contenders, one file each. `base.py` says what each must be able to do.

The cards here say what the harness must know before a contender's Python packages are there to be imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from .base import Contender

# How far apart the same single-precision number may be in two answers, relative to itself.
SINGLE_DIGITS = 1e-6


ALL_TABLES = ("Object", "Source", "Optical", "Infrared")
# Those that find places alone, and have nothing to do with light curves.
PLACES = ("Object", "Optical", "Infrared")


@dataclass(frozen=True)
class Card:
    """A contender: where its code is, what it needs, and what it takes part in."""

    title: str
    file: str
    class_name: str
    dialect: str
    # How an answer reaches the client.
    fetches: str
    requirements: str
    debian: Sequence[str] = ()
    tables: Sequence[str] = ALL_TABLES
    single_digits: float = SINGLE_DIGITS
    # A query costs seconds of start-up or a reading of everything: it is asked few.
    slow: bool = False
    # A server that keeps its tables in memory of a size that it is told.
    has_pool: bool = False


CARDS = {
    "meridian": Card(
        "Meridian",
        "meridian",
        "Meridian",
        "meridian",
        "MySQL's text protocol over a Unix socket into Python values",
        "harness",
    ),
    "duckdb": Card("DuckDB", "duckdb", "DuckDB", "duckdb", "Arrow table in the client's process", "duckdb"),
    "chdb": Card(
        "ClickHouse (chdb)", "clickhouse", "ClickHouse", "clickhouse", "Arrow stream in the client's process", "chdb"
    ),
    "postgres": Card(
        "PostgreSQL + q3c",
        "postgres",
        "PostgreSQL",
        "postgres",
        "binary cursor over a Unix socket into Python values",
        "postgres",
        debian=("postgresql-15", "postgresql-15-q3c"),
        has_pool=True,
    ),
    "mariadb": Card(
        "MariaDB",
        "mariadb",
        "MariaDB",
        "mariadb",
        "text protocol over a Unix socket into Python values",
        "mariadb",
        debian=("mariadb-server-core", "mariadb-client-core"),
        tables=("Object", "Source"),
        # It sends FLOAT columns with six digits.
        single_digits=6e-6,
        has_pool=True,
    ),
    "astropy": Card(
        "astropy",
        "astropy",
        "Astropy",
        "python",
        "NumPy arrays; the catalogue is in memory",
        "astropy",
        tables=PLACES,
    ),
    "scipy": Card("SciPy", "scipy", "SciPy", "python", "NumPy arrays; positions are in memory", "scipy", tables=PLACES),
    "stilts": Card(
        "STILTS",
        "stilts",
        "Stilts",
        "python",
        "a process for each query, start-up included, answer in CSV",
        "stilts",
        debian=("stilts", "default-jre-headless"),
        tables=PLACES,
        slow=True,
    ),
    "lsdb": Card(
        "LSDB", "lsdb", "Lsdb", "python", "pandas frame from the HATS catalogue", "lsdb", tables=PLACES, slow=True
    ),
}
PEERS = [name for name in CARDS if name != "meridian"]


def contender_class(name: str) -> type[Contender]:
    """The class of a contender. Imports its Python packages, so this is for its own process."""
    card = CARDS[name]
    found: type[Contender] = getattr(import_module(f".{card.file}", __name__), card.class_name)
    return found
