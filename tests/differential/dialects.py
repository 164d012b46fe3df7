"""The dialects that Meridian is asked in, and a statement's text in each."""

from __future__ import annotations

from typing import Literal

from differential.adql import AdqlWriter, DuckWriterOfAdql
from differential.tree import Query
from differential.writing import DuckWriter, MeridianWriter, Places

Dialect = Literal["mysql", "adql"]
MYSQL: Dialect = "mysql"
ADQL: Dialect = "adql"


def for_meridian(query: Query, dialect: Dialect = MYSQL) -> str:
    """A statement as Meridian is asked."""
    return (AdqlWriter() if dialect == ADQL else MeridianWriter()).write(query)


def for_duckdb(query: Query, places: Places, takes_last: bool = False, dialect: Dialect = MYSQL) -> str:
    """A statement as DuckDB is asked for what it means in a dialect."""
    writer = DuckWriterOfAdql if dialect == ADQL else DuckWriter
    return writer(places, takes_last).write(query)
