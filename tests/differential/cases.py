"""Shrunk cases: the rows, the statements, and what they give. They lie in `cases/`, one file each, and every run begins with them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from comparison import Row, difference, normalised_rows
from differential.databases import ARROW_TYPES, Field, TableRows, TableShape, World, load, parsed
from differential.dialects import ADQL, MYSQL, Dialect
from differential.engines import Rejection, Rows, ServedDatabase
from meridian_cli import Meridian

CASES = Path(__file__).parent / "cases"
# Of mistakes that are known and not yet repaired (known.py): moved up when they are.
OPEN_CASES = CASES / "open"


@dataclass(frozen=True)
class Case:
    """What a file of `cases/` says. Statements are asked one after the other of one server, in one dialect."""

    name: str
    story: str
    world: World
    statements: list[str]
    expected: list[list[Row]]
    dialect: Dialect = MYSQL


def written(value: object) -> object:
    """A value as JSON has it."""
    return str(value) if isinstance(value, (datetime.date, datetime.datetime)) else value


def plain_rows(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    """Rows as JSON has them; the digits of a double are all there."""
    return [[written(value) for value in row] for row in normalised_rows(rows)]


def as_json(story: str, world: World, statements: list[str], expected: list[Rows], dialect: Dialect = MYSQL) -> str:
    """The text of a case's file: a line for each row."""
    tables = []
    for table in world.tables:
        shape = table.shape
        lines = [json.dumps([written(value) for value in row.values()], ensure_ascii=False) for row in table.rows.to_pylist()]
        fields = {one.name: [one.declared, one.role] for one in shape.fields}
        head = {"database": shape.database, "name": shape.name, "options": shape.options, "position": shape.position, "late": shape.late, "fields": fields}
        rows = "[" + "".join(f"\n   {line}," for line in lines).rstrip(",") + "]"
        tables.append(json.dumps(head, ensure_ascii=False)[:-1] + f', "rows": {rows}}}')
    asked = [
        json.dumps({"sql": text, "expected": plain_rows(rows)}, ensure_ascii=False) for text, rows in zip(statements, expected)
    ]
    head = f'{{"story": {json.dumps(story)},\n "dialect": "{dialect}",\n "parts": {world.parts},\n "threads": {world.threads},\n "tables": [\n  '
    return head + ",\n  ".join(tables) + '],\n "statements": [\n  ' + ",\n  ".join(asked) + "]}\n"


def read(path: Path) -> Case:
    """Reads a case's file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tables = []
    for table in content["tables"]:
        fields = tuple(Field(name, role, declared) for name, (declared, role) in table["fields"].items())
        position = tuple(table["position"]) if table["position"] else None
        shape = TableShape(table["database"], table["name"], fields, table["options"], position, table.get("late", 0))
        kinds = [ARROW_TYPES[one.declared.split(" ")[0]] for one in fields]
        columns = zip(*table["rows"]) if table["rows"] else [[] for _ in fields]
        arrays = [pa.array([parsed(value, kind) for value in column], kind) for column, kind in zip(columns, kinds)]
        tables.append(TableRows(shape, pa.table(arrays, names=[one.name for one in fields])))
    statements, dialect = content["statements"], content.get("dialect", MYSQL)
    world = World(tuple(tables), content.get("parts", 1), content.get("threads", 2))
    assert dialect in (MYSQL, ADQL), f"{path}: there is no dialect {dialect}"
    expected = [normalised_rows(one["expected"]) for one in statements]
    return Case(path.stem, content["story"], world, [one["sql"] for one in statements], expected, dialect)


def all_cases(directory: Path = CASES) -> list[Case]:
    """The cases of a folder, in the order of their names."""
    return [read(path) for path in sorted(directory.glob("*.json"))]


def answer(served: ServedDatabase, statement: str, dialect: Dialect) -> Rows:
    """The rows of a case's statement."""
    if dialect == ADQL:
        return served.ask_adql(statement)
    return served.command_line.execute(statement) if "read_" in statement else served.ask_text(statement)


def complaint(case: Case, meridian: Meridian, directory: Path) -> str | None:
    """What is wrong with the answers to a case, if anything is."""
    load(meridian, directory, case.world)
    served = ServedDatabase(meridian, directory, case.world.threads)
    try:
        for statement, expected in zip(case.statements, case.expected):
            try:
                rows = answer(served, statement, case.dialect)
            except Rejection as rejection:
                return f"{statement}\n{rejection}"
            got = [tuple(int.from_bytes(v, "big") if isinstance(v, bytes) else written(v) for v in row) for row in rows]
            if found := difference(got, expected):
                return f"{statement}\n{found}"
        return served.panics or None
    finally:
        served.close()
