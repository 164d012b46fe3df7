"""Random statements about tables of a user's own, in the SQL that MariaDB and Meridian have in common.

Left out is where they are known to differ: doubles and times with fractions as texts have other digits, and quotients of exact numbers are
doubles in Meridian (docs/sql.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

MOST_TABLES = 3
MOST_COLUMNS = 7
MOST_ROWS = 60

# A type, and the kind of its values.
TYPES = {
    "INT": "integer", "BIGINT": "integer", "SMALLINT": "integer", "TINYINT UNSIGNED": "integer", "DECIMAL(12,3)": "decimal", "DECIMAL(30,5)": "decimal",
    "DOUBLE": "double", "FLOAT": "double", "VARCHAR(6)": "text", "CHAR(4)": "text", "VARCHAR(60)": "text", "DATE": "date", "DATETIME": "time", "DATETIME(3)": "fraction",
}  # fmt: skip
# Kinds whose values have other digits as a text.
NO_TEXTS = {"double", "fraction"}


@dataclass
class Column:
    """A column of a table."""

    name: str
    ty: str
    nullable: bool = True
    default: str | None = None
    # Of a director: "ra" or "dec".
    role: str | None = None

    @property
    def kind(self) -> str:
        return self.role or TYPES[self.ty]

    @property
    def declared(self) -> str:
        null = "" if self.nullable else " NOT NULL"
        return f"{self.name} {self.ty}{null}{f' DEFAULT {self.default}' if self.default else ''}"


@dataclass
class Table:
    """A table as it is after the statements that were done."""

    name: str
    columns: list[Column] = field(default_factory=list)
    layout: str = "whole"

    def names(self) -> str:
        return ", ".join(column.name for column in self.columns)


@dataclass
class Statement:
    """A statement, the table that it changes, and the tables as they are once it is done."""

    text: str
    table: str
    after: dict[str, Table]
    # The same in MariaDB, where that is another.
    theirs: str | None = None


class Statements:
    """Statements about tables that it knows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tables: dict[str, Table] = {}
        self.rows: dict[str, int] = {}
        self.names = 0

    def next(self) -> Statement:
        """A statement; `done` is called if it was."""
        if not self.tables or (len(self.tables) < MOST_TABLES and self.random.random() < 0.15):
            return self.create()
        table = self.tables[self.random.choice(list(self.tables))]
        if self.rows[table.name] > MOST_ROWS:
            return self.change(table, f"DELETE FROM {table.name} WHERE id % 3 > 0")
        kinds = [self.insert_values] * 6 + [self.insert_select] * 4 + [self.update] * 7 + [self.delete] * 2 + [self.add] * 2 + [self.drop_column, self.rename, self.truncate, self.drop]
        return self.random.choice(kinds)(table)

    def done(self, statement: Statement, rows: int) -> None:
        """The statement was done, and its table has so many rows."""
        self.tables = statement.after
        self.rows[statement.table] = rows

    def change(self, table: Table, text: str, columns: list[Column] | None = None) -> Statement:
        after = dict(self.tables)
        if columns is not None:
            after[table.name] = replace(table, columns=columns)
        return Statement(text, table.name, after)

    def create(self) -> Statement:
        self.names += 1
        layout = self.random.choice(["whole", "child", "director", "director"])
        table = Table(f"t{self.names}", [Column("id", "INT", layout != "director")], layout)
        said, key = {"whole": ("", ""), "child": (" PARTITION BY CHILD OF sky.Star (id)", ""), "director": (" PARTITION BY DIRECTOR (id, ra, decl)", ", PRIMARY KEY (id)")}[layout]
        if layout == "director":
            table.columns += [Column("ra", "DOUBLE", False, role="ra"), Column("decl", "DOUBLE", False, role="dec")]
        table.columns += [self.column() for _ in range(self.random.randrange(1, 5))]
        self.rows[table.name] = 0
        declared = ", ".join(column.declared for column in table.columns)
        made = f"CREATE TABLE {table.name} ({declared}"
        return Statement(f"{made}){said}", table.name, {**self.tables, table.name: table}, f"{made}{key})")

    def column(self) -> Column:
        self.names += 1
        column = Column(f"c{self.names}", self.random.choice(list(TYPES)), self.random.random() < 0.8)
        if self.random.random() < 0.4:
            # What the column can hold, but for some.
            column.default = self.literal(column.kind)
        return column

    def literal(self, kind: str) -> str:
        """A value of a kind as it is typed."""
        pick = self.random
        number = pick.choice([0, 1, 2, 7, -3, 40, -40, 127, 255, 300, 32767, 99999, 2147483647, -9007199254740993, 9007199254740993])
        small = pick.randrange(-40, 40)
        whole = pick.choice([number, small, small, small])
        return {
            "integer": str(whole),
            "decimal": pick.choice([f"{whole}", f"{small / 8}", f"{small}.0005", f"{small}.1235", "12345678901234567890.123455", "(-.5)"]),
            "ra": f"{pick.randrange(2880) / 8!r}e0",
            "dec": f"{pick.randrange(-720, 721) / 8!r}e0",
            "double": pick.choice([f"{small / 8!r}e0", f"{small}", f"{small}.25", "1e10", "-2.5e-3"]),
            "text": pick.choice(["''", "'a'", "'Ab'", "'b c'", "'it''s'", "'a\\\\b'", "'äöü'", "'abcd  '", "'12'", "'-1.5'", "'abcdefg'", f"'{small}'"]),
            "date": f"'20{pick.randrange(10, 30)}-{pick.randrange(1, 13):02}-{pick.randrange(1, 29):02}'",
            "time": f"'20{pick.randrange(10, 30)}-{pick.randrange(1, 13):02}-{pick.randrange(1, 29):02} 0{pick.randrange(10)}:30:{pick.randrange(60):02}'",
            "fraction": f"'20{pick.randrange(10, 30)}-01-{pick.randrange(1, 29):02} 00:00:{pick.randrange(60):02}.{pick.randrange(1000):03}'",
        }[kind]

    def value(self, column: Column) -> str:
        """What VALUES gives to a column."""
        chance = self.random.random()
        if column.role is not None:
            return "NULL" if chance < 0.01 else self.literal(column.kind)
        if chance < 0.08:
            return "NULL"
        if chance < 0.14:
            return "DEFAULT"
        if chance < 0.2:
            return self.computed(column.kind)
        if chance < 0.26:
            kind = self.random.choice([kind for kind in TYPES.values() if column.kind != "text" or kind not in NO_TEXTS])
            return self.literal(kind)
        return self.literal(column.kind)

    def computed(self, kind: str) -> str:
        """An expression without columns."""
        return {
            "integer": "2 + 3 * 4", "decimal": "CAST('1.2345' AS DECIMAL(8,4))", "double": "SQRT(2e0)", "text": "CONCAT('a', 'b')", "date": "DATE '2020-02-28' + INTERVAL 2 DAY",
            "time": "TIMESTAMP '2020-02-28 23:59:59'", "fraction": "TIMESTAMP '2020-02-28 23:59:59'",
        }[kind]  # fmt: skip

    def some(self, table: Table) -> list[Column]:
        """Some of the columns, in any order; now and then all of them."""
        needed = [column for column in table.columns if column.role is not None]
        others = [column for column in table.columns[1:] if column.role is None]
        return [table.columns[0], *needed, *self.random.sample(others, self.random.randrange(len(others) + 1))]

    def insert_values(self, table: Table) -> Statement:
        columns = table.columns if self.random.random() < 0.5 else self.some(table)
        named = "" if columns is table.columns else f" ({', '.join(column.name for column in columns)})"
        rows = []
        for _ in range(self.random.randrange(1, 7)):
            values = [str(self.random.randrange(1000)), *(self.value(column) for column in columns[1:])]
            rows.append(f"({', '.join(values)})")
        return self.change(table, f"INSERT INTO {table.name}{named} VALUES {', '.join(rows)}")

    def insert_select(self, table: Table) -> Statement:
        source = self.tables[self.random.choice(list(self.tables))]
        columns = self.some(table)
        selected = ["id + 1000"]
        for column in columns[1:]:
            alike = [it.name for it in source.columns if it.kind == column.kind]
            allowed = [it.name for it in source.columns if column.kind != "text" or it.kind not in NO_TEXTS]
            names = allowed if column.role is None and self.random.random() < 0.15 else alike
            selected.append(self.random.choice(names) if names else self.literal(column.kind))
        names = ", ".join(column.name for column in columns)
        text = f"INSERT INTO {table.name} ({names}) SELECT {', '.join(selected)} FROM {source.name}{self.where(source)}"
        return self.change(table, text)

    def where(self, table: Table) -> str:
        return f" WHERE {self.condition(table)}" if self.random.random() < 0.85 else ""

    def condition(self, table: Table) -> str:
        column = self.random.choice(table.columns)
        kind = self.random.randrange(6)
        if kind == 0:
            return f"{column.name} IS {self.random.choice(['', 'NOT '])}NULL"
        if kind == 1:
            return f"({self.condition(table)} {self.random.choice(['AND', 'OR'])} {self.condition(table)})"
        if kind == 2:
            return f"{table.name}.id % {self.random.randrange(2, 6)} = 1"
        if kind == 3 and column.kind != "double":
            return f"{column.name} IN ({self.literal(column.kind)}, {self.literal(column.kind)})"
        return f"{column.name} {self.random.choice(['<', '>='])} {self.literal(column.kind)}"

    def expression(self, table: Table, column: Column) -> str:
        """What UPDATE gives to a column."""
        alike = self.random.choice([it.name for it in table.columns if it.kind == column.kind])
        integer = self.random.choice([it.name for it in table.columns if it.kind == "integer"])
        expressions = {
            "integer": [f"{alike} + 1", f"-{alike}", f"IF({integer} > 3, {alike}, 5)", f"id % 7 + {alike}", f"{alike} = {integer}"],
            "decimal": [f"{alike} * 2", f"{alike} + {integer}", f"-{alike}", f"{integer}"],
            "ra": [f"{alike} / 2e0", f"COALESCE({alike}, 1)"],
            "dec": [f"-{alike}", f"{alike} / 2e0"],
            "double": [f"{alike} * 2", f"{integer} / 4e0", f"COALESCE({alike}, 0) + 0.5e0"],
            "text": [f"CONCAT({alike}, 'x')", f"UPPER({alike})", f"LEFT({alike}, 2)", f"COALESCE({alike}, 'none')", f"{integer}"],
            "date": [f"{alike} + INTERVAL 3 DAY", f"LAST_DAY({alike})", f"COALESCE({alike}, '2020-01-01')"],
            "time": [f"{alike} + INTERVAL 90 MINUTE", f"COALESCE({alike}, '2020-01-01')"],
            "fraction": [f"{alike} + INTERVAL 90 SECOND", alike],
        }[column.kind]
        if column.role is not None:
            return self.random.choice([*expressions, alike, self.literal(column.kind)])
        return self.random.choice([*expressions, alike, self.literal(column.kind), "DEFAULT", "NULL"])

    def update(self, table: Table) -> Statement:
        if self.random.random() < 0.15:
            # Keys that no row has yet: where rows exchange theirs, MariaDB's answer depends on their order.
            self.names += 1
            return self.change(table, f"UPDATE {table.name} SET id = id + {100_000 * self.names}{self.where(table)}")
        # A value that a later assignment replaces is not looked at: each column once.
        columns = self.random.sample(table.columns[1:], self.random.randrange(1, len(table.columns))) if len(table.columns) > 1 else table.columns
        assigned = ", ".join(f"{column.name} = {self.expression(table, column)}" for column in columns)
        return self.change(table, f"UPDATE {table.name} SET {assigned}{self.where(table)}")

    def delete(self, table: Table) -> Statement:
        return self.change(table, f"DELETE FROM {table.name}{self.where(table)}")

    def add(self, table: Table) -> Statement:
        if len(table.columns) >= MOST_COLUMNS:
            return self.drop_column(table)
        column = self.column()
        if not column.nullable and column.default is None and column.kind in ("date", "time", "fraction"):
            column.nullable = True
        return self.change(table, f"ALTER TABLE {table.name} ADD COLUMN {column.declared}", [*table.columns, column])

    def drop_column(self, table: Table) -> Statement:
        if len(table.columns) < 3:
            return self.add(table)
        column = self.random.choice([it for it in table.columns[1:] if it.role is None] or [self.column()])
        if column not in table.columns:
            return self.add(table)
        rest = [it for it in table.columns if it is not column]
        return self.change(table, f"ALTER TABLE {table.name} DROP COLUMN {column.name}", rest)

    def rename(self, table: Table) -> Statement:
        self.names += 1
        column = self.random.choice(table.columns[1:] or table.columns)
        if column.name == "id":
            return self.add(table)
        renamed = [replace(it, name=f"c{self.names}") if it is column else it for it in table.columns]
        return self.change(table, f"ALTER TABLE {table.name} RENAME COLUMN {column.name} TO c{self.names}", renamed)

    def truncate(self, table: Table) -> Statement:
        return self.change(table, f"TRUNCATE TABLE {table.name}") if self.random.random() < 0.3 else self.insert_values(table)

    def drop(self, table: Table) -> Statement:
        if self.random.random() > 0.3:
            return self.update(table)
        after = {name: it for name, it in self.tables.items() if name != table.name}
        return Statement(f"DROP TABLE {table.name}", table.name, after)
