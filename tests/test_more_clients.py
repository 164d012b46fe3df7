"""`meridian serve` and more clients, each a program of its own that writes what it sees: Java, Go, node, Python and R.

A client's program runs once and writes a line for each theme; the tests compare these with the rows before they were loaded, or with the
values that a statement writes out.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from synthetic import TableData
from terminal import Terminal
from test_drivers import CA, TLS, extremes, has_java
from testbed import sky

PROGRAMS = Path(__file__).resolve().parent / "clients"
# Where scripts/setup puts the clients.
INSTALLED = Path(__file__).resolve().parent.parent / ".venv" / "clients"
PYTHON = INSTALLED / "bin" / "python"
LONGEST_SECONDS = 120

EXTREMES_KINDS = [
    "integer", "integer", "integer", "integer", "integer", "float", "double", "decimal", "boolean", "day", "moment", "text", "bytes",
]  # fmt: skip
# A literal, its kind, and the value that it writes out.
LITERALS: list[tuple[str, str, object]] = [
    ("9223372036854775807", "integer", 2**63 - 1),
    ("-9223372036854775808", "integer", -(2**63)),
    ("18446744073709551615", "integer", 2**64 - 1),
    ("0.1e0", "double", 0.1),
    ("1.7976931348623157e308", "double", 1.7976931348623157e308),
    ("-2.2250738585072014e-308", "double", -2.2250738585072014e-308),
    ("NULL", "text", None),
    ("DATE '2024-02-29'", "day", datetime.date(2024, 2, 29)),
    ("TIMESTAMP '2010-06-15 01:02:03.000001'", "moment", datetime.datetime(2010, 6, 15, 1, 2, 3, 1)),
    ("TIMESTAMP '1970-01-01 00:00:00'", "moment", datetime.datetime(1970, 1, 1)),
    ("'Ωmega ☄ 星 🌌 é'", "text", "Ωmega ☄ 星 🌌 é"),
    ("''", "text", ""),
    ("TRUE", "boolean", True),
    ("1 = 2", "boolean", False),
    ("X'00FF27'", "bytes", b"\x00\xff'"),
]
# A kind, and the text from which a client makes the value that it binds.
PARAMETERS: list[tuple[str, str | None]] = [
    ("integer", str(2**63 - 1)),
    ("integer", str(-(2**63))),
    ("integer", str(2**64 - 1)),
    ("integer", "-7"),
    ("double", "0.1"),
    ("double", "1.7976931348623157e+308"),
    ("text", None),
    ("text", "it's \\ \"quoted\" % ? ; -- ☄ 🌌"),
    ("boolean", "1"),
    ("bytes", "00ff275c0a1a61"),
    ("moment", "2010-06-15 01:02:03.250001"),
]
# A condition on the table of extremes, its parameter, and the rows that it holds for.
COMPARED: dict[str, tuple[tuple[str, str], list[int]]] = {
    "ubig = ?": (("integer", str(2**64 - 1)), [1]),
    "big = ?": (("integer", str(-(2**63))), [2]),
    "at = ?": (("moment", "2010-06-15 00:00:01.000000"), [9]),
    "raw = ?": (("bytes", "00ff"), [1]),
    "txt LIKE ?": (("text", "%it's%"), [1]),
    "d < ?": (("double", "-1e300"), [2]),
}
MISTAKES = {
    "SELEC 1": (1064, "42000", "ER_PARSE_ERROR"),
    "SELECT nosuch FROM Extremes": (1054, "42S22", "ER_BAD_FIELD_ERROR"),
    "SELECT 1 FROM nosuch": (1146, "42S02", "ER_NO_SUCH_TABLE"),
    "DROP TABLE Extremes": (1290, "HY000", "ER_OPTION_PREVENTS_STATEMENT"),
}
SEVERAL = [[["1"]], [["b", "2.5"]], [["1"], ["2"]]]
LONG = (
    "SELECT sum(scisql_angSep(a.ra_PS, b.decl_PS, c.ra_PS, a.decl_PS)) FROM Object a, Object b, Object c "
    "WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 179"
)
STREAM_WIDTH = 100
STREAM = f"SELECT ABS(a.objectId) % 1000003, REPEAT('x', {STREAM_WIDTH}) FROM Object a, Extremes b, Filter c"


@pytest.fixture(scope="module")
def tables() -> dict[str, TableData]:
    """The rows of the testbed's sky."""
    return sky.make_tables()


@pytest.fixture(scope="module")
def server(meridian: Meridian, tables: dict[str, TableData], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of them."""
    data = sky.load(meridian, tmp_path_factory.mktemp("more_clients"), tables)
    with serving(meridian, data, *TLS, "--log", "warn,meridian_server=debug") as running:
        yield running


# Programs that write a line of JSON for each theme.

Themes = dict[str, dict[str, object]]


def task(server: Server) -> str:
    """What a program is to do."""
    return json.dumps(
        {
            "port": server.port,
            "ca": str(CA),
            "values": "SELECT * FROM Extremes ORDER BY id",
            "literals": f"SELECT {', '.join(literal for literal, _, _ in LITERALS)}",
            "parameters": [{"kind": kind, "text": text} for kind, text in PARAMETERS],
            "compared": {condition: {"kind": kind, "text": text} for condition, ((kind, text), _) in COMPARED.items()},
            "mistakes": list(MISTAKES),
            "long": LONG,
            "stream": STREAM,
        }
    )


def run(command: list[object], **options: object) -> str:
    """The output of a program that has to succeed."""
    outcome = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in command],
        capture_output=True, text=True, encoding="utf-8", timeout=LONGEST_SECONDS, check=False, **options,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr[-3000:]
    return str(outcome.stdout)


def themes_of(command: list[object], server: Server, **options: object) -> Themes:
    """What a program saw, by theme."""
    lines = [json.loads(line) for line in run([*command, task(server)], **options).splitlines()]
    return {line["theme"]: line for line in lines}


def need(is_there: bool, package: str) -> None:
    """Skips a test without a package."""
    if not is_there:
        pytest.skip(f"{package} is not installed: run scripts/setup clients.")


def python_program(name: str) -> list[object]:
    """A program in Python, of the environment of the clients."""
    need(PYTHON.exists(), "the Python environment of the clients")
    return [PYTHON, PROGRAMS / name]


@cache
def go_themes(server: Server) -> Themes:
    """What go-sql-driver/mysql saw."""
    need((INSTALLED / "go_client").exists(), "Go's go-sql-driver/mysql")
    return themes_of([INSTALLED / "go_client"], server)


@cache
def node_themes(server: Server) -> Themes:
    """What mysql2 saw."""
    modules = INSTALLED / "node" / "node_modules"
    need(shutil.which("node") is not None and modules.exists(), "node's mysql2")
    return themes_of(["node", PROGRAMS / "node" / "client.js"], server, env={**os.environ, "NODE_PATH": str(modules)})


@cache
def aiomysql_themes(server: Server) -> Themes:
    """What aiomysql saw."""
    return themes_of(python_program("aiomysql_client.py"), server)


@cache
def frames_themes(server: Server) -> Themes:
    """What SQLAlchemy, pandas and ibis saw."""
    return themes_of(python_program("frames.py"), server)


CLIENTS: dict[str, Callable[[Server], Themes]] = {"go": go_themes, "node": node_themes, "aiomysql": aiomysql_themes}


def seen(client: str, server: Server, theme: str) -> object:
    """What a client saw of a theme."""
    line = CLIENTS[client](server)[theme]
    assert "failed" not in line, line["failed"]
    return line["saw"]


def seen_of_frames(server: Server, theme: str) -> object:
    """What SQLAlchemy, pandas or ibis saw of a theme."""
    line = frames_themes(server)[theme]
    assert "failed" not in line, line["failed"]
    return line["saw"]


def to_float32(number: float) -> float:
    """The nearest number of 32 bits."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


READERS: dict[str, Callable[[str], object]] = {
    "integer": int,
    "double": float,
    "float": lambda text: to_float32(float(text)),
    "decimal": decimal.Decimal,
    "boolean": lambda text: bool(int(text)),
    "day": lambda text: datetime.date.fromisoformat(text[:10]),
    "moment": datetime.datetime.fromisoformat,
    "bytes": bytes.fromhex,
    "text": str,
}


def read_row(kinds: list[str], texts: list[str | None]) -> list[object]:
    """The values that a client has written as texts."""
    return [None if text is None else READERS[kind](text) for kind, text in zip(kinds, texts, strict=True)]


def expected_rows() -> list[list[object]]:
    """The table of extremes, with 32 bits of its floats."""
    return [[to_float32(value) if at == 5 and isinstance(value, float) else value for at, value in enumerate(row)] for row in extremes()]


# A theme that Go and node execute in both of the protocol's ways, and aiomysql in text alone.
BOTH_WAYS = [("go", ""), ("go", "prepared "), ("node", ""), ("node", "prepared "), ("aiomysql", "")]


@pytest.mark.parametrize(("client", "how"), BOTH_WAYS)
def test_a_client_reads_every_value(server: Server, client: str, how: str) -> None:
    rows = seen(client, server, f"{how}values")
    assert [read_row(EXTREMES_KINDS, row) for row in rows] == expected_rows()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("client", "how"), BOTH_WAYS)
def test_a_client_reads_literals(server: Server, client: str, how: str) -> None:
    (row,) = seen(client, server, f"{how}literals")  # type: ignore[misc]
    assert read_row([kind for _, kind, _ in LITERALS], row) == [value for _, _, value in LITERALS]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_binds_parameters(server: Server, client: str) -> None:
    kinds = [kind for kind, _ in PARAMETERS]
    rows = seen(client, server, "parameters")
    for row in rows:  # type: ignore[attr-defined]
        assert read_row(kinds, row) == read_row(kinds, [text for _, text in PARAMETERS])


@pytest.mark.parametrize(
    ("client", "theme"),
    [("go", "compared"), ("go", "compared in text"), ("node", "compared"), ("node", "compared in text"), ("aiomysql", "compared")],
)
def test_a_client_compares_columns_with_parameters(server: Server, client: str, theme: str) -> None:
    found = seen(client, server, theme)
    assert found == {condition: [[str(key)] for key in keys] for condition, (_, keys) in COMPARED.items()}


@pytest.mark.parametrize(
    ("client", "theme", "words"), [("go", "mistakes", 2), ("node", "mistakes", 3), ("node", "prepared mistakes", 3), ("aiomysql", "mistakes", 1)]
)
def test_a_client_gets_numbers_and_states_of_errors(server: Server, client: str, theme: str, words: int) -> None:
    assert seen(client, server, theme) == [list(mistake[:words]) for mistake in MISTAKES.values()]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_streams_rows(server: Server, tables: dict[str, TableData], client: str) -> None:
    copies = tables["Extremes"].rows.num_rows * tables["Filter"].rows.num_rows
    keys = [abs(key) % 1000003 for key in tables["Object"].rows["objectId"].to_pylist()]
    count = len(keys) * copies
    assert count > 100_000
    assert seen(client, server, "stream") == [count, sum(keys) * copies, count * STREAM_WIDTH]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_reads_several_results(server: Server, client: str) -> None:
    assert seen(client, server, "several") == SEVERAL


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clients_pool_executes_at_once(server: Server, client: str) -> None:
    assert seen(client, server, "pool") == [at + len(extremes()) for at in range(64)]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_connects_in_tls(server: Server, client: str) -> None:
    assert seen(client, server, "tls") in ("TLSv1.2", "TLSv1.3")


def test_go_is_told_the_types_of_columns(server: Server) -> None:
    told = {str(column[0]): column[1:] for column in seen("go", server, "columns")}  # type: ignore[attr-defined]
    assert [told[name][0] for name in ("id", "tiny", "big", "ubig", "uint_")] == ["INT", "TINYINT", "BIGINT", "UNSIGNED BIGINT", "UNSIGNED INT"]
    assert [told[name][0] for name in ("f", "d", "price", "day", "at", "raw")] == ["FLOAT", "DOUBLE", "DECIMAL", "DATE", "DATETIME", "BLOB"]
    assert told["ubig"][1] == "sql.Null[uint64]" and told["at"][1] == "sql.NullTime"
    assert told["price"][3:] == [True, 12, 3]


def test_go_ends_a_statement_with_its_context(server: Server) -> None:
    assert seen("go", server, "timeout") == ["context deadline exceeded", True, [["5"]]]
    wait_until(server.is_idle, 10, "it computes no more")


def test_go_reads_in_a_transaction(server: Server) -> None:
    assert seen("go", server, "transaction") == [[str(len(extremes()))]]


def test_node_is_told_the_types_of_columns(server: Server) -> None:
    told = {str(column[0]): column[1:5] for column in seen("node", server, "columns")}  # type: ignore[attr-defined]
    assert [told[name][0] for name in ("id", "tiny", "big", "f", "d", "day", "at")] == [
        "LONG", "TINY", "LONGLONG", "FLOAT", "DOUBLE", "DATE", "DATETIME",
    ]  # fmt: skip
    assert told["ubig"][:2] == ["LONGLONG", True] and told["big"][1] is False
    assert told["price"][0::2] == ["NEWDECIMAL", 3]
    assert told["raw"][3] is True and told["txt"][3] is False


def test_node_makes_dates(server: Server) -> None:
    for theme in ("dates", "prepared dates"):
        assert seen("node", server, theme) == [["2010-06-15T01:02:03.250Z", "1970-01-02T00:00:00.000Z"]]


def test_node_binds_parameters_by_name(server: Server) -> None:
    assert seen("node", server, "named") == [["x", "3"]]


def test_node_nests_columns_by_table(server: Server) -> None:
    assert seen("node", server, "nested") == [{"a": {"id": 4}, "b": {"id": 3, "day": "2000-02-29"}}]


def test_node_changes_its_session(server: Server) -> None:
    assert seen("node", server, "session") == [["other@127.0.0.1", "information_schema"]]


def test_node_leaves_a_statement(server: Server) -> None:
    assert seen("node", server, "timeout") == "PROTOCOL_SEQUENCE_TIMEOUT"
    wait_until(server.is_idle, 10, "it computes no more")


# SQLAlchemy, pandas and ibis.

TABLES = ["Extremes", "Filter", "Object", "RefMatch", "RefObject", "Source"]
COLUMN_TYPES = {
    "id": "INTEGER", "tiny": "TINYINT", "big": "BIGINT", "ubig": "BIGINT UNSIGNED", "uint_": "INTEGER UNSIGNED", "f": "FLOAT", "d": "DOUBLE",
    "price": "DECIMAL(12, 3)", "flag": "TINYINT(1)", "day": "DATE", "at": "DATETIME(6)", "txt": "TEXT", "raw": "BLOB",
}  # fmt: skip
# Those of the frames, without the row of NULLs.
FRAME_COLUMNS = {"id": 0, "big": 2, "d": 6, "at": 10, "txt": 11}


def test_sqlalchemy_inspects_tables(server: Server) -> None:
    said = seen_of_frames(server, "inspected")
    assert isinstance(said, dict)
    assert set(said["schemas"]) == {"sky", "information_schema"} and said["tables"] == TABLES and said["of all"] == TABLES
    assert {name: kind for name, kind, _ in said["types"]} == COLUMN_TYPES
    assert said["key"] == ["objectId"] and said["views"] == [] and said["nothing"] == [] and said["has"] == [True, False, True]


def test_sqlalchemy_reflects_tables(server: Server) -> None:
    said = seen_of_frames(server, "reflected")
    assert isinstance(said, dict)
    found = [[str(row[0]), str(row[3]), row[11]] for row in extremes() if row[2] is not None and row[2] > 1 and row[8]]  # type: ignore[operator]
    assert said == {"tables": TABLES, "found": found, "made": 2}


@pytest.mark.parametrize("theme", ["pandas query", "ibis values"])
def test_frames_have_every_value(server: Server, theme: str) -> None:
    said = seen_of_frames(server, theme)
    assert isinstance(said, dict)
    for name, at in FRAME_COLUMNS.items():
        values = read_row([EXTREMES_KINDS[at]] * len(said[name]), said[name])
        assert values == [row[at] for row in extremes() if row[0] != 6], name


def test_pandas_reads_tables(server: Server, tables: dict[str, TableData]) -> None:
    keys = tables["Object"].rows["objectId"].to_pylist()
    assert seen_of_frames(server, "pandas table") == {"count": len(keys), "types": ["int64", "float64"], "first": str(min(keys))}
    assert seen_of_frames(server, "pandas chunks") == [500, 500, len(keys) - 1000]


def test_ibis_is_told_what_there_is(server: Server) -> None:
    assert seen_of_frames(server, "ibis names") == {"tables": TABLES, "databases": ["information_schema", "sky"], "database": "sky"}
    kinds = ["int32", "int8", "int64", "uint64", "uint32", "float32", "float64", "decimal(12, 3)", "int8", "date", "timestamp(6)", "string", "binary"]
    assert seen_of_frames(server, "ibis schema") == [list(pair) for pair in zip(COLUMN_TYPES, kinds, strict=True)]
    assert seen_of_frames(server, "ibis statement") == ["int64", "float64"]


def test_ibis_executes_expressions(server: Server, tables: dict[str, TableData]) -> None:
    objects, sources = tables["Object"].rows, tables["Source"].rows
    keys, decs = objects["objectId"].to_pylist(), objects["decl_PS"].to_pylist()
    even = sum(key % 2 == 0 for key, dec in zip(keys, decs, strict=True) if dec > 0)
    assert seen_of_frames(server, "ibis grouped") == [sum(dec > 0 for dec in decs) - even, even]
    among = set(keys)
    assert seen_of_frames(server, "ibis joined") == sum(key in among for key in sources["objectId"].to_pylist())
    assert seen_of_frames(server, "ibis arrow") == len(keys)
    assert seen_of_frames(server, "ibis expressions") == [["1", "9999", "IT'S", "0"], ["2", "1000", 'SAY "SO"', "1"], ["3", "2000", "", "2"]]


# mycli.


def mycli(server: Server, *options: str) -> list[str]:
    """The command of mycli."""
    program = PYTHON.parent / "mycli"
    need(program.exists(), "mycli")
    return [str(program), "-h", "127.0.0.1", "-P", str(server.port), "-u", "tester", "-p", "secret", *options, "sky"]


def test_mycli_executes_statements(server: Server, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    statement = "SELECT id, big, d, txt FROM Extremes WHERE id <> 6 ORDER BY id"
    written = run([*mycli(server, "--csv"), "-e", statement], env=environment, stdin=subprocess.DEVNULL)
    header, *rows = csv.reader(io.StringIO(written, newline=""))
    assert header == ["id", "big", "d", "txt"]
    kinds = ["integer", "integer", "double", "text"]
    expected = [[row[0], row[2], row[6], row[11]] for row in extremes() if row[0] not in (6, 14)]
    assert [read_row(kinds, row) for row in rows if row[0] != "14"] == expected
    wrong = subprocess.run(
        [*mycli(server), "-e", "SELECT nosuch FROM Extremes"],
        capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert wrong.returncode == 1 and "1054" in wrong.stderr


def test_mycli_in_a_terminal(server: Server, tmp_path: Path) -> None:
    # Its answer is shown by itself and not by a pager.
    (tmp_path / ".myclirc").write_text("[main]\nenable_pager = False\n")
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    terminal = Terminal(mycli(server, "--prompt", "ready> "), environment)
    try:
        terminal.wait_for("ready>")
        terminal.enter("SELECT CONCAT('s', 'aw ', COUNT(*)) FROM Extremes;")
        terminal.wait_for(f"saw {len(extremes())}")
        terminal.enter("\\dt")
        terminal.wait_for("RefMatch")
        terminal.enter("exit")
        assert terminal.wait_for_end() == 0
    finally:
        terminal.close()


# RMySQL. Debian 12 has no RMariaDB.


@cache
def r_lines(server: Server) -> dict[str, list[list[str]]]:
    """What RMySQL saw: lists of words by their first."""
    there = shutil.which("Rscript") and subprocess.run(["Rscript", "-e", "library(RMySQL)"], capture_output=True, check=False).returncode == 0
    need(bool(there), "R's RMySQL")
    lines: dict[str, list[list[str]]] = {}
    for line in run(["Rscript", "--vanilla", PROGRAMS / "client.R", server.port], env={**os.environ, "LC_ALL": "C.UTF-8"}).splitlines():
        what, *words = line.split("\t")
        lines.setdefault(what, []).append(words)
    return lines


def test_r_reads_values(server: Server) -> None:
    said = r_lines(server)
    # Its integers have 32 bits, and its decimals are doubles.
    kinds = {0: "integer", 1: "integer", 4: "integer", 6: "double", 7: "double", 8: "boolean", 9: "day", 10: "moment"}
    rows = [read_row(list(kinds.values()), [None if word == "NULL" else word for word in words]) for words in said["row"]]
    expected = [[float(row[at]) if at == 7 and row[at] is not None else row[at] for at in kinds] for row in extremes()]  # type: ignore[arg-type]
    assert rows == expected
    assert said["text"] == [["Ωmega ☄ 星", "C3A9", "2010-06-15 01:02:03.000001", "NULL"]]
    assert said["quoted"] == [["it's \\ ;"]] and said["mistake"] == [["1054"]]


def test_r_reads_many_rows_and_whole_tables(server: Server, tables: dict[str, TableData]) -> None:
    said = r_lines(server)
    assert said["stream"] == [["100000", "10000000"]] and said["whole"] == [[str(tables["Filter"].rows.num_rows)]]
    assert sorted(said["tables"][0]) == TABLES and said["fields"] == [list(COLUMN_TYPES)] and said["exists"] == [["TRUE", "FALSE"]]


# Java's metadata. The other tests of these drivers are in test_drivers.py.

MYSQL_DRIVER, MARIADB_DRIVER = "mysql-connector-j", "mariadb-java-client"
# A driver, and its settings: some of its metadata comes from SHOW, some from information_schema.
JAVA = {
    "mysql": (MYSQL_DRIVER, ""),
    "mysql-information-schema": (MYSQL_DRIVER, "useInformationSchema=true"),
    "mysql-schema": (MYSQL_DRIVER, "databaseTerm=SCHEMA"),
    "mysql-prepared": (MYSQL_DRIVER, "useServerPrepStmts=true&useCursorFetch=true&rewriteBatchedStatements=true&useCompression=true"),
    "mariadb": (MARIADB_DRIVER, ""),
    "mariadb-schema": (MARIADB_DRIVER, "useCatalogTerm=SCHEMA"),
    "mariadb-prepared": (MARIADB_DRIVER, "useServerPrepStmts=true&useBulkStmts=true&useCompression=true"),
}


@pytest.fixture(scope="module")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program in Java has been compiled."""
    need(has_java(), "Java with its compiler")
    classes = tmp_path_factory.mktemp("classes")
    run(["javac", "-encoding", "UTF-8", "-d", classes, PROGRAMS / "Metadata.java"])
    return classes


@cache
def java_lines(variant: str, server: Server, classes: Path) -> dict[str, list[list[str]]]:
    """What a driver saw: lists of words by their first."""
    driver, settings = JAVA[variant]
    files = list((INSTALLED / "java").glob(f"{driver}-*.jar"))
    need(bool(files), f"Java's {driver}")
    plain = "sslMode=DISABLED" if driver == MYSQL_DRIVER else "useSsl=false"
    kind = "mysql" if driver == MYSQL_DRIVER else "mariadb"
    url = f"jdbc:{kind}://127.0.0.1:{server.port}/sky?user=tester&password=secret&connectTimeout=120000&{plain}&{settings}"
    term = "schema" if variant.endswith("-schema") and "information" not in variant else "catalog"
    options = ["-Xmx96m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    written = run(["java", *options, "-cp", f"{files[0]}:{classes}", "Metadata", url, term])
    lines: dict[str, list[list[str]]] = {}
    for line in written.splitlines():
        what, *words = line.split("\t")
        lines.setdefault(what, []).append(words)
    return lines


@pytest.fixture(params=JAVA)
def java(request: pytest.FixtureRequest, server: Server, java_classes: Path) -> dict[str, list[list[str]]]:
    """What a driver saw, with each of the settings."""
    return java_lines(request.param, server, java_classes)


def test_java_calls_every_method_of_the_metadata(java: dict[str, list[list[str]]]) -> None:
    called = dict(java["called"])
    assert len(called) > 170 and not {name: outcome for name, outcome in called.items() if outcome.startswith("failed")}
    assert called["getColumns(4,%)"] not in ("0 rows", "a value") and called["getTypeInfo(0,Object)"] != "0 rows"


def test_java_lists_tables_and_columns(java: dict[str, list[list[str]]]) -> None:
    assert sorted(java["tables"]) == [[name, "TABLE"] for name in TABLES]
    assert sorted(java["some tables"]) == [["RefMatch"], ["RefObject"]]
    assert [(words[0], int(words[1]), words[3]) for words in java["columns"]] == [(name, at, "YES") for at, name in enumerate(COLUMN_TYPES, 1)]
    scales = {words[0]: words[4] for words in java["columns"]}
    assert scales["price"] == "3"
    # The last names of a driver are MySQL's BIT and JDBC's BOOLEAN for one kind of column.
    kinds = {words[0]: int(words[2]) for words in java["columns"]}
    assert kinds.pop("flag") in (-7, 16)
    assert kinds == {
        "id": 4, "tiny": -6, "big": -5, "ubig": -5, "uint_": 4, "f": 7, "d": 8, "price": 3, "day": 91, "at": 93, "txt": -1, "raw": -4,
    }  # fmt: skip


def test_java_lists_keys_and_databases(java: dict[str, list[list[str]]]) -> None:
    assert java["key"] == [["objectId", "1", "PRIMARY"]] and java["best"] == [["objectId"]]
    assert [words[:2] for words in java["index"]] == [["objectId", "PRIMARY"]] and java["index"][0][2] in ("0", "false")
    assert sorted(java["schemas"]) == [["information_schema"], ["sky"]]
    assert java["product"][0][:2] == ["MySQL", "8"] and ["BIGINT"] in java["types"]


def test_java_reads_values_at_their_limits(java: dict[str, list[list[str]]]) -> None:
    expected = ["2010-06-15T01:02:03.000001", "null", "Ωmega ☄ 🌌", "true"]
    for how in ("literals", "prepared literals"):
        (words,) = java[how]
        assert [int(word) for word in words[:3]] == [2**63 - 1, -(2**63), 2**64 - 1]
        assert [float(word) for word in words[3:5]] == [0.1, 1.7976931348623157e308] and words[5:] == expected
    (words,) = java["parameters"]
    assert (int(words[0]), float(words[1]), float(words[2])) == (2**63 - 1, 12345.5, 5e-324)
    assert words[3:] == ["2010-06-15T01:02:03.250001", "☄ ' \\ 🌌"]
    assert java["parameters of a statement"] == [["5"]] and java["cursor"] == [["100000", "10000000"]] and java["batch"] == [["[0, 0]"]]


@pytest.mark.parametrize("variant", JAVA)
def test_java_binds_a_decimal_beyond_integers_with_a_sign(server: Server, java_classes: Path, variant: str) -> None:
    """It came back as BIGINT UNSIGNED, of which the statement's preparation had not told; MySQL sends a DECIMAL."""
    assert java_lines(variant, server, java_classes)["large decimal"] == [["18446744073709551615"]]


def test_java_is_told_where_a_column_comes_from(java: dict[str, list[list[str]]]) -> None:
    assert java["label"] == [["k"]]
    ((name, table, catalog, schema),) = java["origin"]
    assert name in ("id", "k") and table in ("Extremes", "e") and "sky" in (catalog, schema)
