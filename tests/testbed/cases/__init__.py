"""The testbed's hand-written statements, by theme.

`$` before a theme's list in docs/sql.md's coverage table is its number of statements. To add one, add its text to the list
that fits; it is asked of both databases as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """A statement for both databases; `reference` is what MariaDB is asked where it has no such form."""

    sql: str
    reference: str | None = None
    ordered: bool = False

    def __str__(self) -> str:
        return self.sql


def ordered(*statements: str) -> list[Query]:
    """Statements whose ORDER BY leaves no ties: the order of the rows is compared too."""
    return [Query(statement, ordered=True) for statement in statements]


def queries(*statements: str) -> list[Query]:
    """Statements that both are asked as they stand."""
    return [Query(statement) for statement in statements]
