"""`meridian sql` itself: output formats, where statements come from, and what is said about wrong ones."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import assert_rejected, points_at
from meridian_cli import Meridian, Outcome, read_arrow, rows_of
from small_tables import DIRECTOR, write_lines

QUERY = "SELECT id, note, ra FROM Star ORDER BY id"
ROWS = [
    (1, "plain", 10.5),
    (2, 'quote " and, comma', 20.25),
    (3, "", 30.0),
    (4, None, 40.0),
    (5, "☄ tab\tinside", 359.5),
]


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five stars with notes."""
    directory = tmp_path_factory.mktemp("sql")
    lines = [
        '1,10.5,1,"plain"',
        '2,20.25,2,"quote "" and, comma"',
        '3,30,3,""',
        "4,40,4,\\N",
        '5,359.5,5,"☄ tab\tinside"',
    ]
    path = write_lines(directory / "Star.csv", lines, header="id,ra,dec,note")
    schema = directory / "schema.json"
    names = {"id": "bigint NOT NULL", "ra": "double NOT NULL", "dec": "double NOT NULL", "note": "varchar(40)"}
    columns = [{"name": name, "type": declared} for name, declared in names.items()]
    schema.write_text(json.dumps({"columns": columns, "quote": '"', "null": "\\N"}))
    meridian.load(directory / "data", "sky", "Star", path, schema=schema, **DIRECTOR)
    return directory / "data"


def execute(meridian: Meridian, data: Path, *arguments: object, stdin: str = "") -> Outcome:
    """Asks, whatever comes of it."""
    return meridian.run("sql", "--data", data, "--db", "sky", *arguments, stdin=stdin)


def test_arrow(meridian: Meridian, data: Path) -> None:
    answer = read_arrow(execute(meridian, data, "--format", "arrow", QUERY).stdout)
    assert rows_of(answer) == ROWS
    assert answer.column_names == ["id", "note", "ra"]


def test_parquet(meridian: Meridian, data: Path) -> None:
    assert rows_of(pq.read_table(io.BytesIO(execute(meridian, data, "--format", "parquet", QUERY).stdout))) == ROWS


def test_texts_are_of_a_type_that_pyarrow_computes_with(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """They were `string_view`, of which pyarrow has no filter, no order and no comparison."""
    parquet, exported = tmp_path / "rows.parquet", tmp_path / "star.parquet"
    assert execute(meridian, data, "--format", "parquet", "--output", parquet, QUERY).status == 0
    meridian.must("export", "--data", data, "--db", "sky", "--table", "Star", "--format", "parquet", "--output", exported, "--quiet")
    arrow = read_arrow(execute(meridian, data, "--format", "arrow", QUERY).stdout)
    for table in (pq.read_table(parquet), pq.read_table(exported), arrow):
        assert table.schema.field("note").type == pa.string()
        assert table.sort_by("note").column("note").to_pylist()[0] == ""
    for path in (parquet, exported):
        assert pq.read_table(path, filters=[("note", "==", "plain")]).column("id").to_pylist() == [1]


def test_csv(meridian: Meridian, data: Path) -> None:
    lines = list(csv.reader(io.StringIO(execute(meridian, data, "--format", "csv", QUERY).text)))
    assert lines[0] == ["id", "note", "ra"]
    assert [int(line[0]) for line in lines[1:]] == [row[0] for row in ROWS]
    assert [line[1] for line in lines[1:3]] == [ROWS[0][1], ROWS[1][1]]
    assert [float(line[2]) for line in lines[1:]] == [row[2] for row in ROWS]


def test_tsv(meridian: Meridian, data: Path) -> None:
    lines = execute(meridian, data, "--format", "tsv", QUERY).text.splitlines()
    assert lines[0].split("\t") == ["id", "note", "ra"]
    assert len(lines) == 6
    assert float(lines[5].split("\t")[-1]) == 359.5


def test_json_lines(meridian: Meridian, data: Path) -> None:
    lines = [json.loads(line) for line in execute(meridian, data, "--format", "json", QUERY).text.splitlines()]
    assert [(line["id"], line.get("note"), line["ra"]) for line in lines] == ROWS


def test_table(meridian: Meridian, data: Path) -> None:
    outcome = execute(meridian, data, QUERY)
    assert "quote" in outcome.text and "359.5" in outcome.text
    assert "5 rows" in outcome.text + outcome.complaint


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "arrow", "parquet", "table"])
def test_no_rows(meridian: Meridian, data: Path, form: str) -> None:
    outcome = execute(meridian, data, "--format", form, "SELECT id, note FROM Star WHERE id = 99")
    assert outcome.status == 0, outcome.complaint
    if form == "arrow":
        assert read_arrow(outcome.stdout).schema.names == ["id", "note"]


def test_statement_from_a_file(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "query.sql"
    path.write_text("-- how many\nSELECT count(*)\nFROM Star;\n")
    assert "5" in execute(meridian, data, "--format", "csv", "--file", path).text
    assert_rejected(execute(meridian, data, "--file", tmp_path / "absent.sql"), "absent.sql")


@pytest.mark.parametrize("comment", ["-- how many\n", "--\n", "# how many\n", "/* how many */ "])
def test_a_statement_may_begin_with_a_comment(meridian: Meridian, data: Path, comment: str) -> None:
    """What began with two dashes was taken for an option."""
    outcome = execute(meridian, data, f"{comment}SELECT count(*) AS n FROM Star FETCH FIRST 1 ROWS ONLY", "--format", "csv")
    assert outcome.text.split() == ["n", "5"]


def test_statement_from_standard_input(meridian: Meridian, data: Path) -> None:
    assert "5" in execute(meridian, data, "--format", "csv", stdin="SELECT count(*) AS n FROM Star").text


def test_each_statement_of_a_pipe_is_answered_when_it_is_whole(meridian: Meridian, data: Path) -> None:
    running = meridian.start("sql", "--data", data, "--db", "sky", "--format", "arrow", "--quiet")
    assert running.stdin and running.stdout
    for number, statement in enumerate(["SELECT 0 AS n;", "SELECT\n 1 -- not here;\n AS n;", "SELECT 2 AS n /* ; */\n;"]):
        running.stdin.write(statement.encode() + b"\n")
        running.stdin.flush()
        # Nothing more is written before the answer has come.
        with pa.ipc.open_stream(running.stdout) as answer:
            assert answer.read_all().to_pydict() == {"n": [number]}
    running.stdin.write(b"SELECT 'a;\nb' AS n")
    running.stdin.close()
    with pa.ipc.open_stream(running.stdout) as answer:
        assert answer.read_all().to_pydict() == {"n": ["a;\nb"]}
    assert running.wait(timeout=60) == 0


def test_a_device_is_written_to_and_not_replaced(meridian: Meridian, data: Path) -> None:
    before = Path("/dev/null").stat()
    assert execute(meridian, data, "--format", "csv", "--output", "/dev/null", QUERY).status == 0
    after = Path("/dev/null").stat()
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)


def test_database_in_the_name(meridian: Meridian, data: Path) -> None:
    outcome = meridian.run("sql", "--data", data, "--format", "csv", "SELECT count(*) FROM sky.Star")
    assert outcome.status == 0 and "5" in outcome.text, outcome.complaint


def test_explain_tells_what_is_read(meridian: Meridian, data: Path) -> None:
    told = execute(meridian, data, "EXPLAIN SELECT * FROM Star WHERE scisql_s2PtInCircle(ra, dec, 10, 1, 2) = 1")
    assert told.status == 0, told.complaint
    assert "chunk" in told.text.lower()


def test_the_number_of_the_chunk_is_headed_as_qserv_spells_it(meridian: Meridian, data: Path) -> None:
    count = "SELECT CHUNKID, count(*) AS n FROM Star s GROUP BY s.chunkid"
    answer = execute(meridian, data, "--dialect", "adql", "--format", "csv", count)
    assert answer.text.splitlines()[0] == "chunkId,n"
    answer = execute(meridian, data, "--format", "csv", "SELECT * FROM Star WHERE chunkId >= 0")
    assert answer.text.splitlines()[0] == "id,ra,dec,note"


def test_mysql_heads_columns_as_they_were_typed(meridian: Meridian, data: Path) -> None:
    answer = execute(meridian, data, "--format", "csv", "SELECT s.ID, Count( * ), 'a', RA  + 1 FROM Star s GROUP BY id, ra")
    assert answer.text.splitlines()[0] == "ID,Count( * ),a,RA  + 1"


def test_a_column_named_chunkid_of_its_own_stays(meridian: Meridian, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "Own.csv", ["1,10.5,1,-7", "2,20.5,2,-8"], header="id,ra,dec,CHUNKid")
    meridian.load(tmp_path / "data", "sky", "Own", path, **DIRECTOR)
    answer = execute(meridian, tmp_path / "data", "--format", "csv", "SELECT * FROM Own WHERE chunkId = -7")
    assert answer.text.splitlines() == ["id,ra,dec,CHUNKid", "1,10.5,1.0,-7"]


def test_a_replicated_table_has_no_chunk_number(meridian: Meridian, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "Filter.csv", ["1,u", "2,g"], header="filterId,filterName")
    meridian.load(tmp_path / "data", "sky", "Filter", path, kind="replicated")
    sentence = assert_rejected(execute(meridian, tmp_path / "data", "SELECT chunkId FROM Filter"), "chunkId", "filterId")
    assert points_at(sentence, "chunkId"), sentence


# What is said about wrong statements: the word that is wrong, where it is, and what was perhaps meant.

TYPOS = {
    "column": ("SELECT nte FROM Star", "nte", "note"),
    "column in WHERE": ("SELECT id\nFROM Star\nWHERE rra > 3", "rra", "ra"),
    "column of an alias": ("SELECT s.nott FROM Star s", "nott", "note"),
    "table": ("SELECT id FROM Staar", "Staar", "Star"),
    "column beside the chunk's number": ("SELECT chunkId, nte FROM Star", "nte", "note"),
    "table beside the chunk's number": ("SELECT chunkId FROM Staar", "Staar", "Star"),
    "function": ("SELECT scisql_angSepp(ra, dec, 0, 0) FROM Star", "scisql_angSepp", "scisql_angSep"),
    "region function": (
        "SELECT id FROM Star WHERE scisql_s2PtInCircl(ra, dec, 0, 0, 1) = 1",
        "scisql_s2PtInCircl",
        "Circle",
    ),
    "area": ("SELECT id FROM Star WHERE qserv_areaspec_boxx(0, 0, 1, 1)", "qserv_areaspec_boxx", "qserv_areaspec_box"),
}


@pytest.mark.parametrize("typo", TYPOS)
def test_typo(meridian: Meridian, data: Path, typo: str) -> None:
    sql, wrong, meant = TYPOS[typo]
    sentence = assert_rejected(execute(meridian, data, sql), wrong, meant)
    assert points_at(sentence, wrong), f"does not show where {wrong} is: {sentence}"


@pytest.mark.parametrize(
    "sql", ["SELEC id FROM Star", "SELECT id FORM Star x", "SELECT id FROM Star WHERE", "SELECT (1"]
)
def test_grammar(meridian: Meridian, data: Path, sql: str) -> None:
    sentence = assert_rejected(execute(meridian, data, sql))
    assert "line" in sentence.lower() or "^" in sentence or "end" in sentence.lower(), sentence


NONSENSE = {
    "negative radius": ("SELECT id FROM Star WHERE scisql_s2PtInCircle(ra, dec, 0, 0, -1) = 1", "-1"),
    "declination beyond the pole": ("SELECT id FROM Star WHERE qserv_areaspec_circle(0, 95, 1)", "95"),
    "too few arguments": ("SELECT id FROM Star WHERE qserv_areaspec_circle(0, 5)", "circle"),
    "too few arguments of a function": ("SELECT scisql_fluxToAbMag() FROM Star", "fluxToAbMag"),
    "polygon of two corners": ("SELECT id FROM Star WHERE qserv_areaspec_poly(0, 0, 1, 1)", "poly"),
    "text for a number": ("SELECT id FROM Star WHERE scisql_s2PtInCircle(ra, dec, 'a', 0, 1) = 1", "a"),
    "ungrouped column": ("SELECT note, count(*) FROM Star", "note"),
    "writing": ("DELETE FROM Star", ""),
    "no statement": ("", ""),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense(meridian: Meridian, data: Path, kind: str) -> None:
    sql, word = NONSENSE[kind]
    assert_rejected(execute(meridian, data, sql), word)


def test_unknown_database(meridian: Meridian, data: Path) -> None:
    assert_rejected(meridian.run("sql", "--data", data, "--db", "skyy", "SELECT 1 FROM Star"), "skyy", "sky")


def test_directory_without_data(meridian: Meridian, tmp_path: Path) -> None:
    for arguments in (("sql", "--db", "sky", "SELECT 1"), ("tables",), ("check",)):
        outcome = meridian.run(arguments[0], "--data", tmp_path, *arguments[1:])
        assert_rejected(outcome, str(tmp_path))
    assert list(tmp_path.iterdir()) == [], "asking made files"


def test_a_file_stands_for_a_table_by_its_name(meridian: Meridian, tmp_path: Path) -> None:
    """`FROM 'file.csv'`: the reader follows from the ending, and the name keeps its case."""
    stars = tmp_path / "My Stars.CSV"
    stars.write_text("id,ra,dec\n1,10,1\n2,20,2\n")
    meridian.load(tmp_path / "data", "sky", "Star", stars, kind="director", key="id", ra="ra", dec="dec")
    for statement, expected in {
        f"SELECT COUNT(*) AS n FROM '{stars}'": ["n", "2"],
        f"SELECT t.id FROM \"{stars}\" AS t JOIN Star USING (id) WHERE t.id > 1": ["id", "2"],
        f"SELECT COUNT(*) AS n FROM crossmatch(Star, (SELECT * FROM '{stars}'), 3)": ["n", "2"],
    }.items():
        assert meridian.must("sql", "--data", tmp_path / "data", "--format", "csv", "--quiet", statement).text.split() == expected
