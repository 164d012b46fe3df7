"""Columns that a table gets with rows that are appended: NULL in its rows from before, whatever is asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from meridian_cli import Meridian

KINDS: dict[str, tuple[object, ...]] = {
    "Object": ("--kind", "director", "--key", "id", "--ra", "ra", "--dec", "decl", "--stripes", 20, "--sub-stripes", 2),
    "Source": ("--kind", "child", "--key", "id", "--director", "Object"),
    "Lookup": ("--kind", "replicated"),
}
FIRST = {
    "Object": {"id": "BIGINT NOT NULL", "ra": "DOUBLE NOT NULL", "decl": "DOUBLE NOT NULL"},
    "Source": {"source": "BIGINT NOT NULL", "id": "BIGINT"},
    "Lookup": {"n": "INT"},
}
MORE = {"mag": "DOUBLE", "name": "VARCHAR(20)"}
ROWS = {"Object": 60, "Source": 90, "Lookup": 9}


def row(table: str, number: int, is_new: bool) -> tuple[object, ...]:
    """A row as it is stored in the end."""
    more = (None, None) if not is_new or number % 5 == 0 else (number / 4, f"n{number % 7}")
    match table:
        case "Object":
            return (number, number * 6.0 % 360, number % 120 - 60.0, *more)
        case "Source":
            return (number, number * 7 % 130, *more)
    return (number % 4, *more)


def rows(table: str, is_new: bool) -> list[tuple[object, ...]]:
    """The rows of the first part, or of the one that is appended."""
    first = ROWS[table] if is_new else 0
    return [row(table, number, is_new) for number in range(first, first + ROWS[table])]


def write(path: Path, names: list[str], lines: list[tuple[object, ...]]) -> Path:
    """A CSV file."""
    text = (",".join("\\N" if value is None else str(value) for value in line[: len(names)]) for line in lines)
    path.write_text("\n".join([",".join(names), *text]) + "\n")
    return path


def schema(path: Path, columns: dict[str, str]) -> Path:
    """A schema file."""
    path.write_text(json.dumps({"columns": [{"name": name, "type": declared} for name, declared in columns.items()]}))
    return path


def load_first(meridian: Meridian, directory: Path, table: str) -> None:
    """Loads a table without the columns that it gets later."""
    file = write(directory / f"{table}.csv", [*FIRST[table]], rows(table, False))
    declared = schema(directory / f"{table}.json", FIRST[table])
    meridian.must("load", "--data", directory / "data", "--db", "sky", "--table", table, *KINDS[table], "--schema", declared, file)


def append(directory: Path, table: str, columns: dict[str, str], *more: object) -> list[object]:
    """The arguments that append rows with new columns."""
    file = write(directory / f"{table}-2.csv", [*FIRST[table], *MORE], rows(table, True))
    declared = schema(directory / "more.json", columns)
    return ["load", "--data", directory / "data", "--db", "sky", "--table", table, "--append", "--new-columns", declared, *more, file]


@pytest.mark.parametrize("table", [*KINDS])
def test_rows_from_before_have_null(meridian: Meridian, tmp_path: Path, table: str) -> None:
    data = tmp_path / "data"
    if table == "Source":
        load_first(meridian, tmp_path, "Object")
    load_first(meridian, tmp_path, table)
    meridian.must(*append(tmp_path, table, MORE))
    everything = rows(table, False) + rows(table, True)

    def check(*words: str) -> None:
        names = [*FIRST[table], *MORE]
        assert Counter(meridian.rows(data, "sky", f"SELECT {', '.join(names)} FROM {table}")) == Counter(everything), words
        known = [line for line in everything if line[-2] is not None]
        for condition, expected in [
            ("mag IS NULL", len(everything) - len(known)),
            ("mag IS NOT NULL", len(known)),
            ("NOT (mag > 20)", sum(line[-2] <= 20 for line in known)),
            ("name = 'n3' OR mag < 1", sum(line[-1] == "n3" or line[-2] < 1 for line in known)),
            ("COALESCE(name, 'none') = 'none'", len(everything) - len(known)),
        ]:
            assert meridian.rows(data, "sky", f"SELECT COUNT(*) FROM {table} WHERE {condition}") == [(expected,)], condition
        least = meridian.rows(data, "sky", f"SELECT MIN(mag), MAX(name), COUNT(mag), COUNT(*) FROM {table}")
        assert least == [(min(line[-2] for line in known), max(line[-1] for line in known), len(known), len(everything))]

    check("two parts")
    # One more part has the columns as they are now.
    again = append(tmp_path, table, MORE)
    refused = meridian.run(*again)
    assert refused.status != 0 and "cannot get the column mag: it has one" in refused.complaint
    check("as before")
    meridian.must("compact", "--data", data, "--db", "sky", "--all")
    check("merged")
    meridian.must("check", "--data", data)


def test_what_cannot_be_added_is_said(meridian: Meridian, tmp_path: Path) -> None:
    load_first(meridian, tmp_path, "Lookup")
    for columns, words in [
        ({"mag": "DOUBLE NOT NULL", "name": "VARCHAR(20)"}, "cannot get the column mag: it is NOT NULL"),
        ({"N": "INT"}, "cannot get the column N: it has one"),
        ({"mag": "DOUBLE", "MAG": "DOUBLE"}, "mag"),
    ]:
        refused = meridian.run(*append(tmp_path, "Lookup", columns))
        assert refused.status != 0 and words.lower() in refused.complaint.lower(), refused.complaint
    arguments = append(tmp_path, "Lookup", MORE)
    arguments.remove("--append")
    assert "--append" in meridian.run(*arguments).complaint
    assert meridian.rows(tmp_path / "data", "sky", "SELECT COUNT(*) FROM Lookup") == [(ROWS["Lookup"],)]
    # On trial nothing changes.
    meridian.must(*append(tmp_path, "Lookup", MORE, "--dry-run"))
    assert "mag" not in meridian.must("sql", "--data", tmp_path / "data", "--db", "sky", "--format", "csv", "SELECT * FROM Lookup LIMIT 0").text


def test_columns_come_without_rows(meridian: Meridian, tmp_path: Path) -> None:
    load_first(meridian, tmp_path, "Lookup")
    arguments = append(tmp_path, "Lookup", MORE, "--allow-empty")
    write(tmp_path / "Lookup-2.csv", ["n", *MORE], [])
    meridian.must(*arguments)
    assert meridian.rows(tmp_path / "data", "sky", "SELECT COUNT(*), COUNT(mag), COUNT(name) FROM Lookup") == [(ROWS["Lookup"], 0, 0)]
