"""Which columns an expression may name."""

from __future__ import annotations

from dataclasses import dataclass, field

from differential.databases import Field, TableShape
from differential.tree import Column

ROLES = {
    "small": ("small",), "int": ("small", "key", "big"), "tame": ("tame",), "real": ("tame", "wild", "ra", "dec"), "text": ("text",),
    "time": ("time",), "date": ("date",), "bool": ("bool",), "number": ("small", "key", "big", "tame", "wild", "ra", "dec"),
    "any": ("small", "key", "big", "tame", "wild", "ra", "dec", "text", "time", "date", "bool"),
    "grouped": ("small", "key", "text", "time", "date", "bool", "tame", "wild", "big"), "inexact": ("inexact",),
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One table of a FROM under its alias, or without one the columns that joins have made one of several. `rows` estimates how many it has."""

    alias: str | None
    fields: tuple[Field, ...]
    shape: TableShape | None
    rows: int


@dataclass(frozen=True)
class Named:
    """A column under its alias."""

    entry: Entry
    field: Field

    @property
    def column(self) -> Column:
        """The expression."""
        return Column(self.field.kind, self.entry.alias, self.field.name)


@dataclass
class Scope:
    """The tables of a FROM, and those of the query around it."""

    entries: list[Entry] = field(default_factory=list)
    outer: Scope | None = None

    def columns(self, kind: str) -> list[Named]:
        """The columns of a kind."""
        roles = ROLES[kind]
        return [Named(entry, one) for entry in self.entries for one in entry.fields if one.role in roles]

    def unique(self) -> list[Named] | None:
        """Columns that together tell all rows apart; `None` if a table has none."""
        found = []
        for entry in self.entries:
            one = next((one for one in entry.fields if one.is_unique), None)
            if one is None:
                return None
            found.append(Named(entry, one))
        return found

    def positions(self) -> list[tuple[Column, Column, Entry]]:
        """The position columns of tables that have them."""
        found = []
        for entry in self.entries:
            roles = {one.role: one for one in entry.fields}
            if "ra" in roles and "dec" in roles:
                ra, dec = (Column("real", entry.alias, roles[role].name) for role in ("ra", "dec"))
                found.append((ra, dec, entry))
        return found


def pairs(left: list[Named], right: list[Named]) -> list[tuple[Named, Named]]:
    """Columns of either side that have values in common."""
    return [(a, b) for a in left for b in right if a.field.domain and a.field.domain == b.field.domain]
