"""Views: queries that are read under a name, by every protocol, with restrictions passing through and with the rights of their maker."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from cluster_members import Cluster
from meridian_cli import Meridian
from serving import Server, serving
from small_tables import CHILD, DIRECTOR, load_stars_and_bands, write_lines, write_stars

PASSWORD = "pass word"
DEFINITIONS = {
    "Renamed": "SELECT id AS star, ra AS alpha, `dec` AS delta, version FROM Star",
    "Bright": "SELECT *, id * 2 AS twice, CONCAT('star ', id) AS label FROM Star WHERE id % 3 = 0",
    "Epochs": "SELECT id, flux, epoch FROM Source",
    "Joined": "SELECT s.id, s.ra, s.`dec`, e.flux FROM Star s JOIN Source e ON s.id = e.id",
    "Outer2": "SELECT star, alpha, delta FROM Renamed WHERE star < 200",
    "Grouped": "SELECT id, COUNT(*) AS epochs, MAX(flux) AS brightest FROM Source GROUP BY id",
    "Best": "SELECT id, flux FROM Source ORDER BY flux DESC, epoch LIMIT 5",
    "Everywhere": "SELECT a.id, b.name FROM Star a JOIN deep.Star d ON a.id = d.id JOIN Band b ON b.id = a.id",
}
PLAIN = {name: query.replace("FROM Renamed", f"FROM ({DEFINITIONS['Renamed']}) r") for name, query in DEFINITIONS.items()}


def create(meridian: Meridian, data: Path, name: str, query: str, *options: str, db: str = "sky") -> str:
    return meridian.must("view", "create", "--data", data, "--db", db, "--name", name, *options, query).text


def load(meridian: Meridian, directory: Path) -> Path:
    """300 stars, their epochs, bands, and stars of another database."""
    data = load_stars_and_bands(meridian, directory, 300)
    lines = (f"{n % 310},{(n * 37) % 101},{n}" for n in range(1000))
    meridian.load(data, "sky", "Source", write_lines(directory / "source.csv", lines, "id,flux,epoch"), **CHILD)
    meridian.load(data, "deep", "Star", write_stars(directory / "deep.csv", 50), **DIRECTOR)
    document = directory / "said.yaml"
    document.write_text("tables:\n- name: Star\n  columns:\n  - {name: version, unit: mag, ucd: phot.mag, description: how new it is}\n", encoding="utf-8")
    meridian.must("describe", "--data", data, "--db", "sky", "--edit", document)
    for name, query in DEFINITIONS.items():
        create(meridian, data, name, query)
    return data


@dataclass
class Site:
    """A server with users: `boss`; `guest` of the views Bright, Joined, Top and Epochs; `reader` of the database sky."""

    meridian: Meridian
    data: Path
    server: Server

    def rows(self, query: str, user: str = "boss") -> list[tuple[object, ...]]:
        with self.server.connect(user=user, password=PASSWORD, database="sky") as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def error(self, query: str, user: str) -> tuple[int, str]:
        with pytest.raises(pymysql.err.MySQLError) as caught:
            self.rows(query, user)
        return caught.value.args[0], caught.value.args[1]

    def http(self, path: str, user: str, **parameters: object) -> tuple[int, str]:
        request = urllib.request.Request(self.server.url(f"/{path}", **parameters))
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def adql(self, query: str, user: str = "boss") -> list[list[object]]:
        status, said = self.http("tap/sync", user, LANG="ADQL", FORMAT="json", QUERY=query)
        assert status == 200, said
        found = json.loads(said)["data"]
        assert isinstance(found, list)
        return found


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = load(meridian, tmp_path_factory.mktemp("views"))

    def user(*arguments: str, stdin: str | None = None) -> None:
        words = [str(meridian.binary), "user", *arguments, "--data", str(data)]
        subprocess.run([*words, *(["--password-stdin"] if stdin else [])], input=stdin, check=True, capture_output=True, text=True, timeout=60)

    user("add", "boss", "--admin", stdin=PASSWORD)
    for name in ("guest", "reader"):
        user("add", name, stdin=PASSWORD)
    for view in ("Bright", "Joined", "Best", "Epochs"):
        user("grant", "guest", "--read", f"sky.{view}")
    user("grant", "reader", "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


# --- what a view gives ----------------------------------------------------------------------------------------------------------------

# A query of a view, and the same of the tables.
SAME = [
    ("SELECT * FROM Renamed", "SELECT id, ra, `dec`, version FROM Star"),
    ("SELECT star FROM Renamed WHERE star IN (7, 8, 299) OR star = 3", "SELECT id FROM Star WHERE id IN (7, 8, 299) OR id = 3"),
    ("SELECT COUNT(*) FROM Bright WHERE qserv_areaspec_circle(40, 10, 30)", "SELECT COUNT(*) FROM Star WHERE qserv_areaspec_circle(40, 10, 30) AND id % 3 = 0"),
    ("SELECT star FROM Renamed WHERE qserv_areaspec_box(350, -40, 30, 40)", "SELECT id FROM Star WHERE qserv_areaspec_box(350, -40, 30, 40)"),
    ("SELECT star FROM Outer2 v WHERE qserv_areaspec_circle(100, -20, 40)", "SELECT id FROM Star WHERE id < 200 AND qserv_areaspec_circle(100, -20, 40)"),
    ("SELECT star FROM Renamed WHERE alpha BETWEEN 20 AND 40 AND delta < 0", "SELECT id FROM Star WHERE ra BETWEEN 20 AND 40 AND `dec` < 0"),
    ("SELECT twice, label, r.* FROM Bright b JOIN Renamed r ON b.id = r.star WHERE b.twice > 100", "SELECT id * 2, CONCAT('star ', id), id, ra, `dec`, version FROM Star WHERE id % 3 = 0 AND id > 50"),
    ("SELECT star, SUM(flux) FROM Renamed JOIN Epochs ON star = id GROUP BY star", "SELECT s.id, SUM(flux) FROM Star s JOIN Source e ON s.id = e.id GROUP BY s.id"),
    ("SELECT r.star FROM Renamed r LEFT JOIN Epochs e ON r.star = e.id AND e.flux > 90 WHERE e.id IS NULL", "SELECT s.id FROM Star s LEFT JOIN Source e ON s.id = e.id AND e.flux > 90 WHERE e.id IS NULL"),
    ("SELECT COUNT(*) FROM Joined WHERE qserv_areaspec_circle(200, 30, 50)", "SELECT COUNT(*) FROM Star s JOIN Source e ON s.id = e.id WHERE scisql_s2PtInCircle(s.ra, s.`dec`, 200, 30, 50) = 1"),
    ("SELECT a.star, b.star FROM Renamed a, Renamed b WHERE scisql_angSep(a.alpha, a.delta, b.alpha, b.delta) < 5 AND a.star < b.star", "SELECT a.id, b.id FROM Star a, Star b WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 5 AND a.id < b.id"),
    ("SELECT id FROM Grouped WHERE epochs = 4 AND brightest > 80", "SELECT id FROM Source GROUP BY id HAVING COUNT(*) = 4 AND MAX(flux) > 80"),
    ("SELECT id, flux FROM Best WHERE flux < 100", "SELECT id, flux FROM (SELECT id, flux FROM Source ORDER BY flux DESC, epoch LIMIT 5) t WHERE flux < 100"),
    ("SELECT id FROM Star WHERE id IN (SELECT star FROM Outer2) AND NOT EXISTS (SELECT 1 FROM Bright b WHERE b.id = Star.id)", "SELECT id FROM Star WHERE id < 200 AND id % 3 <> 0"),
    ("SELECT * FROM Everywhere", "SELECT s.id, b.name FROM Star s JOIN Band b ON b.id = s.id WHERE s.id < 50"),
    ("WITH w AS (SELECT star FROM Renamed) SELECT COUNT(*) FROM w UNION ALL SELECT COUNT(*) FROM Bright", "SELECT 300 UNION ALL SELECT 100"),
    ("SELECT id, star FROM nearest(Bright, Renamed, 36000, right_ra => alpha, right_dec => delta)", "SELECT id_1, id_2 FROM nearest((SELECT id, ra, `dec` FROM Star WHERE id % 3 = 0), Star, 36000)"),
]  # fmt: skip


def test_a_view_gives_what_its_query_gives(site: Site) -> None:
    for name, query in PLAIN.items():
        assert sorted(map(repr, site.rows(f"SELECT * FROM {name}"))) == sorted(map(repr, site.rows(query))), name
    for through, plain in SAME:
        # Three times: with its constants, planned for the cache, and from the cache.
        for _ in range(3):
            assert sorted(map(repr, site.rows(through))) == sorted(map(repr, site.rows(plain))), through


def test_reads_are_restricted_as_those_of_tables(site: Site) -> None:
    """EXPLAIN tells the chunks that are read."""

    def read(query: str) -> list[str]:
        summary = next(text for kind, text in site.rows(f"EXPLAIN {query}") if kind == "summary")
        return sorted(re.findall(r"sky\.(\w+: \d+ of \d+ chunks)", str(summary)))

    restricted = 0
    for through, plain in SAME:
        if any(word in through for word in ("UNION", "nearest", "FROM Best", "FROM Grouped", "Everywhere", "NOT EXISTS")):
            continue
        found, expected = read(through), read(plain)
        restricted += any(line.split(" ")[1] != line.split(" ")[3] for line in expected)
        if "Bright b JOIN" not in through:
            assert found == expected, through
    assert restricted >= 6
    # Co-located: a join of views runs in the pieces, as one of the tables does.
    joined = [text for query in ("Renamed JOIN Epochs ON star = id", "Star s JOIN Source e ON s.id = e.id") for kind, text in site.rows(f"EXPLAIN SELECT COUNT(*) FROM {query}") if kind == "physical_plan"]
    shapes = [re.findall(r"\w+Exec", str(text)) for text in joined]
    assert [shape.count("ChunkPhaseExec") for shape in shapes] == [1, 1] and all(shape.index("HashJoinExec") > shape.index("ChunkPhaseExec") for shape in shapes if "HashJoinExec" in shape)


def test_order_and_limit_of_a_definition_count(site: Site) -> None:
    assert [row[1] for row in site.rows("SELECT * FROM Best")] == [100] * 5
    assert site.rows("SELECT COUNT(*) FROM Best") == [(5,)]
    assert len(site.rows("SELECT * FROM Best LIMIT 9")) == 5


def test_chunk_numbers_moments_and_files_beside_views(site: Site) -> None:
    create(site.meridian, site.data, "Placed", "SELECT chunkId, id, version FROM Star WHERE NOW() > '2020-01-01'")
    assert sorted(site.rows("SELECT chunkId, COUNT(*) FROM Placed GROUP BY chunkId")) == sorted(site.rows("SELECT chunkId, COUNT(*) FROM Star GROUP BY chunkId"))
    assert len(site.rows("SELECT * FROM Placed LIMIT 1")[0]) == 3
    assert site.rows("SELECT COUNT(*) FROM Placed p JOIN Star s ON p.chunkId = s.chunkId AND p.id = s.id") == [(300,)]
    assert site.error("SELECT chunkId FROM Renamed", "boss")[0] == 1054
    site.rows("DROP VIEW Placed")


def test_headings_are_the_views(site: Site) -> None:
    with site.server.connect(user="guest", password=PASSWORD, database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT *, TWICE, id + 1 FROM Bright b LIMIT 1")
        assert [column[0] for column in cursor.description] == ["id", "ra", "dec", "version", "twice", "label", "TWICE", "id + 1"]
        fields = cursor._result.fields
        assert {(field.table_name, field.org_table, field.db) for field in fields[:6]} == {("b", "Bright", b"sky")}


# --- every protocol -------------------------------------------------------------------------------------------------------------------


def test_views_are_listed_and_described(site: Site) -> None:
    listed = dict(site.rows("SHOW FULL TABLES"))
    assert listed["Star"] == "BASE TABLE" and {listed[name] for name in DEFINITIONS} == {"VIEW"}
    assert list(listed) == sorted(listed, key=str.casefold)
    described = {row[0]: row[1] for row in site.rows("DESCRIBE Bright")}
    assert described == {"id": "bigint", "ra": "double", "dec": "double", "version": "bigint", "twice": "bigint", "label": "text"}
    status = {row[0]: row for row in site.rows("SHOW TABLE STATUS")}
    assert status["Bright"][1:17] == (None,) * 16 and status["Bright"][17] == "VIEW" and status["Star"][1] == "Meridian"
    assert site.rows("SELECT TABLE_TYPE, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_NAME = 'Bright'") == [("VIEW", None)]
    columns = site.rows("SELECT COLUMN_NAME, DATA_TYPE, COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_NAME = 'Renamed' ORDER BY ORDINAL_POSITION")
    assert columns == [("star", "bigint", ""), ("alpha", "double", ""), ("delta", "double", ""), ("version", "bigint", "how new it is")]
    ((definition, security),) = site.rows("SELECT VIEW_DEFINITION, SECURITY_TYPE FROM information_schema.VIEWS WHERE TABLE_NAME = 'Bright'")
    assert definition == DEFINITIONS["Bright"].replace("FROM Star", "FROM `sky`.Star") and security == "DEFINER"
    for statement in ("SHOW CREATE VIEW Bright", "SHOW CREATE TABLE sky.Bright"):
        assert site.rows(statement)[0][:2] == ("Bright", f"CREATE VIEW `sky`.`Bright` AS {definition}")


def test_views_by_tap(site: Site) -> None:
    kinds = dict(map(tuple, site.adql("SELECT table_name, table_type FROM TAP_SCHEMA.tables WHERE schema_name = 'sky'")))  # type: ignore[arg-type]
    assert kinds["sky.Bright"] == "view" and kinds["sky.Star"] == "table"
    said = site.adql("SELECT column_name, datatype, unit, ucd FROM TAP_SCHEMA.columns WHERE table_name = 'sky.Renamed' ORDER BY column_index")
    assert said == [["star", "long", None, "meta.id;meta.main"], ["alpha", "double", "deg", "pos.eq.ra;meta.main"], ["delta", "double", "deg", "pos.eq.dec;meta.main"], ["version", "long", "mag", "phot.mag"]]
    status, document = site.http("tap/tables/sky.Bright", "boss")
    assert status == 200 and 'type="view"' in document and "nrows" not in document
    expected = sorted(row[0] for row in site.rows("SELECT id FROM Star WHERE id % 3 = 0 AND scisql_s2PtInCircle(ra, `dec`, 100, 20, 40) = 1"))
    found = site.adql("SELECT id FROM sky.Bright WHERE 1 = CONTAINS(POINT(ra, dec), CIRCLE(100, 20, 40))", "guest")
    assert sorted(row[0] for row in found) == expected  # type: ignore[type-var]
    # A definition is in MySQL's dialect whoever reads it: texts are numbers where they are compared with numbers.
    create(site.meridian, site.data, "Odd", "SELECT id FROM Star WHERE CONCAT(id, ' stars') < 3 AND id = '2' OR id = '007' ORDER BY id")
    assert site.adql("SELECT id FROM sky.Odd") == [[2], [7]]
    status, document = site.http("tap/sync", "guest", LANG="ADQL", FORMAT="votable/td", QUERY="SELECT TOP 1 version FROM sky.Bright")
    assert 'unit="mag"' in document and 'ucd="phot.mag"' in document


def test_cones_are_searched_in_views(site: Site) -> None:
    """Cones were of tables alone."""
    within = "scisql_s2PtInCircle(ra, `dec`, 100, 20, 40) = 1"
    expected = sorted(str(row[0]) for row in site.rows(f"SELECT id FROM Star WHERE id % 3 = 0 AND {within}"))

    def cone(view: str, user: str = "boss", **parameters: object) -> tuple[int, list[str]]:
        status, said = site.http(f"scs/sky/{view}", user, **{"RA": 100, "DEC": 20, "SR": 40, "RESPONSEFORMAT": "csv", **parameters})
        return status, said.splitlines()

    for user in ("boss", "guest"):
        status, (header, *rows) = cone("Bright", user)
        assert status == 200 and header == "id,ra,dec,version,twice,label"
        assert sorted(row.split(",")[0] for row in rows) == expected and len(rows) > 5
    # The identifier and the position alone, under the view's names.
    status, (header, *rows) = cone("Outer2", VERB=1)
    assert header == "star,alpha,delta"
    everything = site.rows("SELECT star FROM Outer2 WHERE scisql_s2PtInCircle(alpha, delta, 100, 20, 40) = 1")
    assert sorted(row.split(",")[0] for row in rows) == sorted(str(row[0]) for row in everything)
    assert [len(cone("Bright", MAXREC=count)[1]) for count in (0, 2)] == [1, 3]
    assert cone("Bright", SR=0)[1] == ["id,ra,dec,version,twice,label"]
    _, document = site.http("scs/sky/Bright", "guest", RA=100, DEC=20, SR=40, RESPONSEFORMAT="votable/td")
    for words in ('ucd="ID_MAIN"', 'ucd="POS_EQ_RA_MAIN"', 'ucd="POS_EQ_DEC_MAIN"', 'unit="mag"', 'name="label"'):
        assert words in document, document
    assert cone("Grouped")[0] == 400 and "has no position" in " ".join(cone("Grouped")[1])
    assert cone("Renamed", "guest")[0] == 403 and cone("Nothing")[0] == 404


def test_views_on_the_command_line(site: Site) -> None:
    listed = site.meridian.must("tables", "--data", site.data).text
    assert re.search(r"sky +Bright +view", listed)
    kinds = [json.loads(line) for line in site.meridian.must("tables", "--data", site.data, "--format", "json").text.splitlines()]
    assert {"Bright": "view", "Star": "director"}.items() <= {line["table"]: line["kind"] for line in kinds if line["database"] == "sky"}.items()
    assert "FROM `sky`.Star WHERE id % 3 = 0" in site.meridian.must("view", "list", "--data", site.data).text
    assert site.meridian.rows(site.data, "sky", "SELECT COUNT(*) FROM Bright") == [(100,)]
    typed = site.meridian.run("sql", "--data", site.data, "--db", "sky", stdin="DESCRIBE Bright;\nSELECT COUNT(*) FROM Renamed;\n")
    assert typed.status == 0 and "twice" in typed.text and "300" in typed.text


def test_submitted_queries_read_views(site: Site) -> None:
    ((number, *_),) = site.rows("SUBMIT SELECT id FROM Joined WHERE flux > 90", "guest")
    for _ in range(200):
        ((state,),) = site.rows(f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {number}", "guest")
        if state not in ("QUEUED", "EXECUTING"):
            break
    found = site.rows(f"SELECT * FROM qserv_result({number})", "guest")
    assert sorted(found) == sorted(site.rows("SELECT s.id FROM Star s JOIN Source e ON s.id = e.id WHERE e.flux > 90"))


# --- rights ---------------------------------------------------------------------------------------------------------------------------

SECRETS = re.compile(r"star\b(?! \d)|source\b|epoch\b", re.IGNORECASE)


def test_readers_of_a_view_reach_nothing_else(site: Site) -> None:
    """The definition is planned with the rights of the archive, what its reader types with the reader's."""
    assert site.rows("SELECT COUNT(*), MAX(twice) FROM Bright", "guest") == [(100, 594)]
    boss, guest = ([sorted(map(repr, site.rows(f"SELECT * FROM {view}", user))) for view in ("Bright", "Joined", "Epochs")] for user in ("boss", "guest"))
    assert boss == guest
    # Nor by plans that others have cached.
    for _ in range(3):
        site.rows("SELECT COUNT(*) FROM Star WHERE id = 4", "reader")
        assert site.error("SELECT COUNT(*) FROM Star WHERE id = 4", "guest")[0] == 1142
    for table in ("Star", "Source", "sky.Star", "deep.Star", "Renamed", "Band", "nothing"):
        for statement in (
            "SELECT * FROM {}", "SELECT b.id FROM Bright b JOIN {} t ON b.id = t.id", "SELECT id FROM Bright WHERE id IN (SELECT id FROM {})", "DESCRIBE {}",
            "SHOW CREATE TABLE {}", "EXPLAIN SELECT * FROM {}", "SELECT * FROM nearest(Bright, {}, 10)", "WITH Star AS (SELECT id FROM {}) SELECT * FROM Star",
        ):  # fmt: skip
            expected = {1044, 1142} if table == "deep.Star" else {1142}
            assert site.error(statement.format(table), "guest")[0] in expected, statement.format(table)
    assert site.error("SELECT Star.id FROM Bright", "guest")[0] != 1142
    shown = {str(row[0]) for row in site.rows("SHOW TABLES", "guest")}
    assert shown == {"Bright", "Joined", "Best", "Epochs"}
    assert {row[0] for row in site.rows("SELECT TABLE_NAME FROM information_schema.COLUMNS", "guest")} == shown
    assert {row[0] for row in site.rows("SELECT VIEW_DEFINITION FROM information_schema.VIEWS", "guest")} == {""}
    assert {row[0] for row in site.adql("SELECT table_name FROM TAP_SCHEMA.tables WHERE schema_name = 'sky'", "guest")} == {f"sky.{name}" for name in shown}
    status, said = site.http("scs/sky/Star", "guest", RA=1, DEC=1, SR=1)
    assert "no table Star" in said or "may not" in said, (status, said)


def test_nothing_tells_readers_what_a_view_is_made_of(site: Site) -> None:
    for statement, number in [
        ("EXPLAIN SELECT * FROM Bright", 1345), ("EXPLAIN ANALYZE SELECT COUNT(*) FROM Bright", 1345), ("EXPLAIN FORMAT=TREE SELECT id FROM Bright WHERE id = 3", None),
        ("SHOW CREATE VIEW Bright", 1142), ("SELECT epoch2 FROM Epochs", 1054), ("SELECT Bright.id2 FROM Bright", 1054), ("SELECT twice.id FROM Bright", None),
        ("SELECT * FROM Brigth", 1142), ("SELECT chunkId FROM Bright", 1054), ("SELECT twice * 9223372036854775807 FROM Bright", 1690),
    ]:  # fmt: skip
        found, sentence = site.error(statement, "guest")
        assert number in (None, found), (statement, found, sentence)
        if "Epochs" not in statement:
            assert not SECRETS.search(sentence.replace("Bright", "")), sentence
    assert site.rows("SHOW WARNINGS", "guest") == []
    # Who may read the tables is told all of it.
    assert any("Star" in str(text) for _, text in site.rows("EXPLAIN SELECT * FROM Bright", "reader"))
    assert "FROM `sky`.Star" in str(site.rows("SHOW CREATE VIEW Bright", "reader"))


def test_only_administrators_make_views(site: Site) -> None:
    for user in ("guest", "reader"):
        for statement in ("CREATE VIEW sky.Mine AS SELECT 1 AS a", f"CREATE VIEW {user}.Mine AS SELECT 1 AS a", "DROP VIEW Bright", "CREATE OR REPLACE VIEW Bright AS SELECT * FROM Star"):
            assert site.error(statement, user)[0] == 1142
    site.rows("CREATE VIEW Made AS SELECT id FROM Star WHERE id < 3")
    assert site.rows("SELECT * FROM Made ORDER BY 1", "reader") == [(0,), (1,), (2,)]
    assert site.error("CREATE VIEW Made AS SELECT 1 AS a", "boss")[0] == 1050
    site.rows("CREATE OR REPLACE VIEW sky.Made AS SELECT id FROM deep.Star WHERE id < 2;")
    assert site.rows("SELECT COUNT(*) FROM Made", "reader") == [(2,)]
    site.rows("DROP VIEW Made")
    assert site.error("SELECT * FROM Made", "boss")[0] == 1146
    assert site.error("DROP VIEW Made", "boss")[0] == 1051
    site.rows("DROP VIEW IF EXISTS Made, deep.Made")


# --- making views ---------------------------------------------------------------------------------------------------------------------

WRONG = [
    ("SELECT nothing FROM Star", "nothing"), ("SELECT * FROM Nothing", "Nothing"), ("SELECT 1 AS a, 2 AS A", "two columns"), ("SELECT @x", "connection"),
    ("SELECT @@version", "connection"), ("SELECT USER() AS u", "connection"), ("SELECT DATABASE() AS d", "connection"), ("SELECT * FROM qserv_result(1)", "connection"),
    ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"), ("SELECT * FROM information_schema.TABLES", "information_schema"), ("SELECT * FROM TAP_SCHEMA.tables", "TAP_SCHEMA"),
    ("SHOW TABLES", "query"), ("EXPLAIN SELECT 1", "query"), ("DROP TABLE Star", "only queries"), ("SELECT * FROM New", "New"), ("SELECT 1; SELECT 2", "several"), ("", "no statement"),
    ("SELECT s.*, s.* FROM Star s", "twice"), ("SELECT s.id, e.id FROM Star s JOIN Source e ON s.id = e.id", "two columns"), (f"SELECT {' + '.join(['id'] * 40)} FROM Star", "name"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "words"), WRONG)
def test_what_cannot_be_a_view_is_said(site: Site, query: str, words: str) -> None:
    outcome = site.meridian.run("view", "create", "--data", site.data, "--db", "sky", "--name", "New", query)
    assert outcome.status != 0 and words.lower() in outcome.complaint.lower(), outcome.complaint
    assert "New" not in dict(site.rows("SHOW FULL TABLES"))


def test_views_do_not_read_themselves(site: Site) -> None:
    create(site.meridian, site.data, "One", "SELECT id FROM Star")
    create(site.meridian, site.data, "Two", "SELECT id FROM One")
    for name, query in [("One", "SELECT id FROM Two"), ("One", "SELECT id FROM One"), ("Two", "SELECT id FROM Star WHERE id IN (SELECT id FROM Two)")]:
        outcome = site.meridian.run("view", "create", "--data", site.data, "--db", "sky", "--name", name, "--replace", query)
        assert outcome.status != 0 and "reads itself" in outcome.complaint, outcome.complaint
    before = "Two"
    for number in range(30):
        outcome = site.meridian.run("view", "create", "--data", site.data, "--db", "sky", "--name", f"Deep{number}", f"SELECT id FROM {before}")
        if outcome.status != 0:
            break
        before = f"Deep{number}"
    assert "more than 16 deep" in outcome.complaint and 10 <= number < 20
    assert site.rows(f"SELECT COUNT(*) FROM {before}") == [(300,)]
    for name in ["One", "Two", *(f"Deep{at}" for at in range(number))]:
        site.rows(f"DROP VIEW {name}")


def test_names_belong_to_tables_or_views(site: Site, tmp_path: Path) -> None:
    outcome = site.meridian.run("view", "create", "--data", site.data, "--db", "sky", "--name", "STAR", "--replace", "SELECT 1 AS a")
    assert outcome.status != 0 and "is a table" in outcome.complaint
    outcome = site.meridian.run("load", "--data", site.data, "--db", "sky", "--table", "bright", write_lines(tmp_path / "b.csv", ["1"], "id"))
    assert outcome.status != 0 and "is a view" in outcome.complaint
    outcome = site.meridian.run("view", "create", "--data", site.data, "--db", "none", "--name", "V", "SELECT 1 AS a")
    assert outcome.status != 0 and "no database none" in outcome.complaint


# --- what becomes of views ------------------------------------------------------------------------------------------------------------


def test_columns_are_settled_and_missing_tables_are_said(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 40)
    create(meridian, data, "All_", "SELECT * FROM Band")
    create(meridian, data, "Names", "SELECT name FROM Band")
    create(meridian, data, "Stars", "SELECT * FROM Star", "--description", "all of them")
    meridian.load(data, "sky", "Band", write_lines(tmp_path / "more.csv", ["1,2,x"], "secret,id,name"), kind="replicated", replace=True)
    assert meridian.rows(data, "sky", "SELECT * FROM All_") == [(2, "x")]
    meridian.load(data, "sky", "Band", write_lines(tmp_path / "less.csv", ["1"], "id"), kind="replicated", replace=True)
    dropped = meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Star", "--yes")
    assert "Stars" in dropped.stderr
    with serving(meridian, data) as server, server.connect(database="sky") as connection, connection.cursor() as cursor:
        for statement, words in [("SELECT * FROM All_", "name"), ("SELECT name FROM Names", "name"), ("SELECT 1 FROM Stars", "star"), ("DESCRIBE Stars", "star")]:
            with pytest.raises(pymysql.err.MySQLError) as caught:
                cursor.execute(statement)
            assert caught.value.args[0] == 1356 and words in caught.value.args[1].lower(), caught.value
        cursor.execute("SHOW TABLES")
        assert [row[0] for row in cursor.fetchall()] == ["All_", "Band", "Names", "Stars"]
        cursor.execute("SELECT TABLE_NAME, TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW'")
        assert all("cannot be read" in comment for _, comment in cursor.fetchall())
        cursor.execute("SELECT * FROM Band")
        assert cursor.fetchall() == ((1,),)
        cursor.execute("CREATE OR REPLACE VIEW Names AS SELECT id AS name FROM Band")
        cursor.execute("SELECT * FROM Names")
        assert cursor.fetchall() == ((1,),)
    checked = meridian.must("check", "--data", data)
    assert "All_" in checked.stderr and "Names" not in checked.stderr


def test_views_outlive_repartitioning_and_backups(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 60)
    create(meridian, data, "Half", "SELECT id, ra, `dec` FROM Star WHERE id < 30")
    inside = "SELECT COUNT(*) FROM Half WHERE 1 = CONTAINS(POINT(ra, dec), CIRCLE(0, 0, 90))"
    before = meridian.rows(data, "sky", inside)
    meridian.must("repartition", "--data", data, "--db", "sky", "--stripes", "12", "--sub-stripes", "3")
    assert meridian.rows(data, "sky", inside) == before
    meridian.must("backup", "--data", data, tmp_path / "backup")
    meridian.must("restore", tmp_path / "backup", "--data", tmp_path / "restored")
    assert meridian.rows(tmp_path / "restored", "sky", inside) == before
    meridian.must("drop", "database", "--data", data, "--db", "sky", "--yes")
    assert meridian.must("view", "list", "--data", data).text == "There are no views here.\n"


def test_workers_run_queries_of_views(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 200)
    create(meridian, data, "Half", "SELECT id AS star, ra, `dec` FROM Star WHERE id < 100")
    cluster = Cluster(meridian, tmp_path / "cluster", data, 1)
    try:
        cluster.start_worker("w0")
        cluster.wait_for_replicas()
        with cluster.server.connect(database="sky") as connection, connection.cursor() as cursor:
            cursor.execute("EXPLAIN SELECT SUM(star) FROM Half WHERE star > 50")
            assert any(re.search(r"pieces sent to workers: w0 \d+", str(row)) for row in cursor.fetchall())
            cursor.execute("SELECT SUM(star) FROM Half WHERE star > 50")
            assert cursor.fetchall() == ((sum(range(51, 100)),),)
    finally:
        cluster.end()


def test_lists_of_columns_name_them(meridian: Meridian, site: Site) -> None:
    """`CREATE VIEW v (a, b) AS` was rejected, and a view had no words of its own."""
    with site.server.connect(user="boss", password=PASSWORD, database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE VIEW Listed (star, alpha, delta, `how new`) AS SELECT id, ra, `dec`, version + 1 FROM Star")
        cursor.execute("SELECT star, `how new` FROM Listed WHERE star = 7")
        assert cursor.fetchall() == ((7, 2),)
        cursor.execute("SHOW CREATE VIEW Listed")
        (row,) = cursor.fetchall()
        assert "`Listed` (`star`, `alpha`, `delta`, `how new`) AS" in row[1]
        cursor.execute("CREATE OR REPLACE VIEW Twice (a, b) AS SELECT id, id FROM Star")
        cursor.execute("SELECT a + b FROM Twice WHERE a = 5")
        assert cursor.fetchall() == ((10,),)
        for list_, code, words in [("(a)", 1353, "1 columns, and its query 2"), ("(a, A)", 1060, "two columns of the view")]:
            with pytest.raises(pymysql.MySQLError, match=words) as caught:
                cursor.execute(f"CREATE VIEW Wrong {list_} AS SELECT id, ra FROM Star")
            assert caught.value.args[0] == code
        explained = "EXPLAIN SELECT COUNT(*) FROM Listed WHERE qserv_areaspec_circle(10, 10, 1)"
        cursor.execute(explained)
        assert re.search(r"[1-9]\d* of \d+ chunks", str(cursor.fetchall()))
    assert "Listed" in meridian.must("view", "list", "--data", site.data).text
    create(meridian, site.data, "ByOption", "SELECT id, ra, `dec` FROM Star", "--columns", "a,b,c")
    assert meridian.rows(site.data, "sky", "SELECT a FROM ByOption WHERE a = 3") == [(3,)]
    for name in ("Listed", "Twice", "ByOption"):
        meridian.must("view", "drop", "--data", site.data, "--db", "sky", "--name", name)


def test_the_database_is_written_before_tables_of_columns_without_names(meridian: Meridian, site: Site) -> None:
    """It was not where a column has no name of its own: the planner's name for it has the database's in it."""
    for name, query in [
        ("Nameless", "SELECT id, version * 2 FROM Star WHERE id IN (SELECT id FROM Source)"),
        ("Counted", "SELECT Star.version, COUNT(*), MAX(Star.id) + 1 FROM Star GROUP BY Star.version"),
    ]:
        columns = "i,b" if name == "Nameless" else "a,b,c"
        create(meridian, site.data, name, query, "--columns", columns)
        ((definition,),) = site.rows(f"SELECT VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_NAME = '{name}'")
        assert definition == query.replace("FROM S", "FROM `sky`.S"), definition
        assert sorted(site.rows(f"SELECT * FROM {name}")) == sorted(site.rows(query))
        meridian.must("view", "drop", "--data", site.data, "--db", "sky", "--name", name)


def test_a_view_without_words_has_no_description(site: Site) -> None:
    """TAP_SCHEMA had MySQL's comment of views, VIEW."""
    found = dict(map(tuple, site.adql("SELECT table_name, description FROM TAP_SCHEMA.tables WHERE schema_name = 'sky'")))  # type: ignore[arg-type]
    assert found["sky.Bright"] is None and found["sky.Star"] == "objects with positions and a unique key"
    for path in ("tap/tables", "tap/tables/sky.Bright"):
        status, document = site.http(path, "boss")
        assert status == 200 and "<description>VIEW<" not in document and "<name>sky.Bright</name>" in document
    assert site.rows("SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_NAME = 'Bright'") == [("VIEW",)]


def test_keys_and_positions_of_views_are_principal(site: Site) -> None:
    """They had the UCDs of such columns, and were not principal."""
    query = "SELECT column_name, principal FROM TAP_SCHEMA.columns WHERE table_name = 'sky.{}' ORDER BY column_index"
    assert site.adql(query.format("Outer2")) == [["star", 1], ["alpha", 1], ["delta", 1]]
    assert site.adql(query.format("Renamed")) == [["star", 1], ["alpha", 1], ["delta", 1], ["version", 0]]
    assert site.adql(query.format("Grouped")) == [["id", 1], ["epochs", 0], ["brightest", 0]]


def test_a_new_view_that_reads_itself_is_told_so(site: Site) -> None:
    """It was told that there are no tables here."""
    for query in ("SELECT id FROM Own", "SELECT id FROM sky.OWN", "SELECT id FROM Star WHERE id IN (SELECT id FROM own)"):
        outcome = site.meridian.run("view", "create", "--data", site.data, "--db", "sky", "--name", "Own", query)
        assert outcome.status != 0 and "the view sky.Own reads itself" in outcome.complaint, outcome.complaint
    outcome = site.meridian.run("view", "create", "--data", site.data, "--db", "sky", "--name", "Own", "SELECT id FROM Stars")
    assert outcome.status != 0 and "there is no table Stars; did you mean Star?" in outcome.complaint, outcome.complaint


def test_what_is_said_of_a_view_is_shown(meridian: Meridian, site: Site, tmp_path: Path) -> None:
    create(meridian, site.data, "Said", "SELECT id, ra, `dec`, version AS mag, version * 2 AS twice FROM Star")
    document = tmp_path / "said.yaml"
    words = "tables:\n- name: said\n  description: the stars again\n  columns:\n  - {name: twice, unit: mag2, ucd: stat.value}\n  - {name: MAG, description: its own words}\n"
    document.write_text(words, encoding="utf-8")
    meridian.must("describe", "--data", site.data, "--db", "sky", "--edit", document)
    printed = meridian.must("describe", "--data", site.data, "--db", "sky", "--table", "Said").text
    # What is said of the table's column is not said of the view's, but shown where nothing else is.
    assert "the stars again" in printed and "unit: mag2" in printed and "phot.mag" not in printed
    columns = "SELECT column_name, unit, ucd, description FROM TAP_SCHEMA.columns WHERE table_name = 'sky.Said' AND column_name IN ('mag', 'twice')"
    found = set(meridian.rows(site.data, "sky", columns))
    assert found == {("mag", "mag", "phot.mag", "its own words"), ("twice", "mag2", "stat.value", None)}
    tables = "SELECT description FROM TAP_SCHEMA.tables WHERE table_name = 'sky.Said'"
    assert meridian.rows(site.data, "sky", tables) == [("the stars again",)]
    schema = meridian.sql(site.data, "sky", "SELECT mag AS m, twice FROM Said").schema
    assert schema.field("m").metadata[b"description"] == b"its own words" and schema.field("twice").metadata[b"unit"] == b"mag2"
    # It stays when the view is made anew, and in a view of the view.
    create(meridian, site.data, "Said", "SELECT id, ra, `dec`, version AS mag, version * 2 AS twice FROM Star", "--replace")
    create(meridian, site.data, "Above", "SELECT twice FROM Said")
    assert meridian.sql(site.data, "sky", "SELECT twice FROM Above").schema.field("twice").metadata[b"unit"] == b"mag2"
    outcome = meridian.run("describe", "--data", site.data, "--db", "sky", "--table", "Said", "--scan-rating", "slow")
    assert outcome.status != 0 and "is a view" in outcome.complaint
    document.write_text("tables:\n- name: Said\n  columns:\n  - {name: nothing, unit: m}\n", encoding="utf-8")
    outcome = meridian.run("describe", "--data", site.data, "--db", "sky", "--edit", document)
    assert outcome.status != 0 and "no column nothing" in outcome.complaint
    assert meridian.run("check", "--data", site.data).status == 0
    for name in ("Above", "Said"):
        meridian.must("view", "drop", "--data", site.data, "--db", "sky", "--name", name)


def test_views_of_the_version_before_are_kept(meridian: Meridian, tmp_path: Path) -> None:
    data = load(meridian, tmp_path)
    with sqlite3.connect(data / "meridian.sqlite") as catalog:
        for column in ("headings", "metadata"):
            catalog.execute(f"ALTER TABLE views DROP COLUMN {column}")
        for column in ("director_database", "stripes", "sub_stripes"):
            catalog.execute(f"ALTER TABLE table_directors DROP COLUMN {column}")
        catalog.execute("ALTER TABLE tables DROP COLUMN expires_at")
        catalog.execute("PRAGMA user_version = 7")
    catalog.close()
    assert meridian.rows(data, "sky", "SELECT COUNT(*) FROM Bright") == [(100,)]
    meridian.must("view", "create", "--data", data, "--db", "sky", "--name", "Later", "--columns", "n", "SELECT id FROM Star")
    assert meridian.rows(data, "sky", "SELECT COUNT(n) FROM Later") == [(300,)]
    meridian.must("check", "--data", data)
