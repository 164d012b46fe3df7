"""The queries of the comparison with DuckDB, by theme. See tests/README.md for how to add one."""

from __future__ import annotations

from dataclasses import dataclass, field

from comparison import Tolerance


@dataclass(frozen=True)
class Case:
    """One query and what DuckDB is asked instead (the same text if `oracle` is None)."""

    name: str
    sql: str
    oracle: str | None = None
    ordered: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    def oracle_sql(self) -> str:
        """What DuckDB is asked."""
        return self.sql if self.oracle is None else self.oracle


def same_rows(name: str, template: str, ours: str, theirs: str, **options: object) -> Case:
    """A query whose restriction, `{where}` in the template, is written differently for the two engines."""
    return Case(name, template.format(where=ours), template.format(where=theirs), **options)  # type: ignore[arg-type]
