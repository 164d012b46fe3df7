"""Directors whose key is a text: unique, looked up and joined by the text as other directors by their integers. Compared with DuckDB on the same rows."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import mysql.connector
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from meridian_cli import Meridian
from serving import serving
from test_users import PASSWORD, must

CHUNKS = re.compile(r"ChunkPhaseExec: (\d+) of (\d+) chunks?")
STARS = 400
# Names that are nearly others, and what quoting, padding and encodings could spoil.
ODD = ["", " ", "a", "A", "a ", " a", "a\t", "é", "e\u0301", "it's", 'q"q', "100%", "a_b", "12", "012", "12.0", "NULL", "ζ Ret", "x" * 300]


@dataclass(frozen=True)
class Sky:
    """A data directory and the same rows in DuckDB."""

    meridian: Meridian
    data: Path
    duck: duckdb.DuckDBPyConnection
    names: list[str]

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return self.meridian.rows(self.data, "d", query)

    def explained(self, query: str) -> str:
        return self.meridian.must("sql", "--data", self.data, "--db", "d", "--dialect", "adql", f"EXPLAIN {query}").text

    def touched(self, query: str) -> list[tuple[int, int]]:
        """How many chunks of how many each chunk phase of a query reads."""
        plan = self.explained(query)
        phases = [(int(read), int(of)) for read, of in CHUNKS.findall(plan)]
        assert phases, plan
        return phases


def write(path: Path, **columns: list[object]) -> Path:
    """A Parquet file; columns are texts, integers or doubles by their first value."""
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    kind = {name: kinds[type(next(value for value in values if value is not None))] for name, values in columns.items()}
    pq.write_table(pa.table({name: pa.array(values, kind[name]) for name, values in columns.items()}), path)
    return path


@pytest.fixture(scope="module")
def sky(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sky]:
    """Stars, their epochs (orphans, NULLs) in two parts, their spectra, references with an integer key, and pairs of both."""
    rng, directory = random.Random(7), tmp_path_factory.mktemp("text_keys")
    data = directory / "data"
    names = [*ODD, *(f"{n:08d}{rng.choice('+-')}{rng.randrange(10**7):07d}" for n in range(STARS - len(ODD)))]
    ras, decs = [rng.uniform(0, 360) for _ in names], [rng.uniform(-80, 80) for _ in names]
    star = {"designation": names, "ra": ras, "dec": decs, "mag": [rng.uniform(8, 20) for _ in names]}
    some = [*names, None, "nobody", "nobody ", "none"]
    epochs: dict[str, list[object]] = {"epochId": list(range(1500)), "designation": [rng.choice(some) for _ in range(1500)], "flux": [rng.uniform(0, 9) for _ in range(1500)]}
    spectra: dict[str, list[object]] = {"star": [rng.choice(some) for _ in range(300)], "z": [rng.uniform(0, 3) for _ in range(300)]}
    refs: dict[str, list[object]] = {"refId": list(range(200)), "ra": ras[:200], "dec": decs[:200]}
    pairs = {"name": [*names[:150], "nobody", None], "refId": [*range(150), 3, 4], "score": [rng.uniform(0, 1) for _ in range(152)]}
    cut = {"stripes": 18, "sub_stripes": 4, "overlap": 0.2}
    halves = [{name: values[half::2] for name, values in star.items()} for half in range(2)]
    meridian.load(data, "d", "Star", write(directory / "a.parquet", **halves[0]), key="designation", ra="ra", dec="dec", **cut)
    parts = [{name: values[half::2] for name, values in epochs.items()} for half in range(2)]
    meridian.load(data, "d", "Epoch", write(directory / "e0.parquet", **parts[0]), key="designation", director="Star")
    # Children and orphans come before the rest of the stars.
    meridian.load(data, "d", "Star", write(directory / "b.parquet", **halves[1]), append=True, key="designation")
    meridian.load(data, "d", "Epoch", write(directory / "e1.parquet", **parts[1]), append=True)
    meridian.load(data, "d", "Spectrum", write(directory / "s.parquet", **spectra), key="star", director="Star")
    meridian.load(data, "d", "Ref", write(directory / "r.parquet", **refs), key="refId", ra="ra", dec="dec")
    meridian.load(data, "d", "Pair", write(directory / "p.parquet", **pairs), key="name,refId", director="Star,Ref")
    meridian.must("check", "--data", data)
    duck = duckdb.connect()
    for table, columns in {"Star": star, "Epoch": epochs, "Spectrum": spectra, "Ref": refs, "Pair": pairs}.items():
        pq.write_table(pa.table(columns), directory / f"{table}.duck")
        duck.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{directory / table}.duck')")
    yield Sky(meridian, data, duck, names)
    duck.close()


QUERIES = [
    "SELECT COUNT(*), COUNT(DISTINCT designation), MIN(designation), MAX(designation) FROM Star",
    "SELECT designation, ra, mag FROM Star",
    *(f"SELECT designation, mag FROM Star WHERE designation = '{name.replace(chr(39), chr(39) * 2)}'" for name in ODD),
    "SELECT designation FROM Star WHERE designation IN ('a', 'A', 'a ', 'nobody', NULL)",
    "SELECT designation FROM Star WHERE designation NOT IN ('a', 'A', 'a ')",
    "SELECT designation FROM Star WHERE NOT (designation = 'a')",
    "SELECT designation FROM Star WHERE designation = 'a' OR mag < 10",
    "SELECT designation FROM Star WHERE designation = 'a' OR designation = 'A'",
    "SELECT designation FROM Star WHERE designation = 'a' AND designation = 'A'",
    "SELECT designation FROM Star WHERE designation = NULL",
    "SELECT designation FROM Star WHERE designation > 'a' AND designation < 'b'",
    "SELECT designation FROM Star WHERE designation LIKE 'a'",
    "SELECT designation FROM Star WHERE designation || '' = 'a'",
    "SELECT epochId FROM Epoch WHERE designation = 'nobody'",
    "SELECT epochId FROM Epoch WHERE designation IN ('nobody', 'a', 'é')",
    "SELECT epochId FROM Epoch WHERE designation IS NULL",
    "SELECT epochId FROM Epoch WHERE NOT (designation = 'nobody')",
    "SELECT e.epochId, s.mag FROM Star s JOIN Epoch e ON s.designation = e.designation",
    "SELECT e.epochId, s.mag FROM Star s JOIN Epoch e ON s.designation = e.designation WHERE s.designation = 'a'",
    "SELECT e.epochId, s.mag FROM Star s JOIN Epoch e ON s.designation = e.designation AND e.flux > 5 WHERE e.designation IN ('a', 'A')",
    "SELECT s.designation, e.epochId FROM Star s LEFT JOIN Epoch e ON s.designation = e.designation",
    "SELECT s.designation, e.epochId FROM Star s RIGHT JOIN Epoch e ON s.designation = e.designation",
    "SELECT s.designation, e.epochId, e.designation FROM Star s FULL JOIN Epoch e ON s.designation = e.designation",
    "SELECT e.designation, COUNT(*), COUNT(p.z) FROM Epoch e JOIN Spectrum p ON e.designation = p.star GROUP BY e.designation",
    "SELECT e.epochId, p.z FROM Epoch e FULL JOIN Spectrum p ON e.designation = p.star",
    "SELECT s.designation FROM Star s WHERE EXISTS (SELECT 1 FROM Epoch e WHERE e.designation = s.designation)",
    "SELECT s.designation FROM Star s WHERE NOT EXISTS (SELECT 1 FROM Epoch e WHERE e.designation = s.designation)",
    "SELECT s.designation FROM Star s WHERE s.designation IN (SELECT designation FROM Epoch WHERE flux > 8)",
    "SELECT s.designation FROM Star s WHERE s.designation NOT IN (SELECT designation FROM Epoch WHERE designation IS NOT NULL)",
    "SELECT s.designation FROM Star s WHERE s.designation NOT IN (SELECT designation FROM Epoch)",
    "SELECT designation, COUNT(*), MAX(flux) FROM Epoch GROUP BY designation",
    "SELECT s.designation, COUNT(e.epochId) FROM Star s LEFT JOIN Epoch e ON s.designation = e.designation GROUP BY s.designation",
    "SELECT COUNT(*) FROM Star a JOIN Star b ON a.designation = b.designation",
    "SELECT COUNT(*) FROM Star a JOIN Star b ON a.designation <> b.designation AND a.mag = b.mag",
    "SELECT p.name, p.refId, s.mag, r.ra FROM Pair p JOIN Star s ON p.name = s.designation JOIN Ref r ON p.refId = r.refId",
    "SELECT p.name, p.refId FROM Pair p WHERE p.name = 'a' OR p.refId = 7",
    "SELECT p.name, p.refId, s.mag FROM Pair p LEFT JOIN Star s ON p.name = s.designation",
    "SELECT p.refId, e.epochId FROM Pair p JOIN Epoch e ON p.name = e.designation",
    "SELECT a.designation FROM (SELECT designation, mag FROM Star WHERE mag < 15) a JOIN (SELECT designation, SUM(flux) AS f FROM Epoch GROUP BY designation) b ON a.designation = b.designation WHERE b.f > 10",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_results_are_those_of_duckdb(sky: Sky, query: str) -> None:
    expected = Counter(sky.duck.execute(query).fetchall())
    assert Counter(sky.rows(query)) == expected


def test_the_text_is_looked_up(sky: Sky) -> None:
    """A condition on the text reads the chunk of its row, and joins on it stay within the pieces of the sky."""
    for condition in ("designation = 'a'", "'a' = designation", "designation = 'a' AND mag < 30"):
        ((read, of),) = sky.touched(f"SELECT mag FROM Star WHERE {condition}")
        assert read == 1 < of
    ((read, of),) = sky.touched("SELECT flux FROM Epoch WHERE designation IN ('a', 'nobody')")
    assert read <= 2 < of
    ((read, of),) = sky.touched("SELECT mag FROM Star WHERE designation = 'a' OR mag < 9")
    assert read == of
    for join in (
        "Star s JOIN Epoch e ON s.designation = e.designation",
        "Star s LEFT JOIN Epoch e ON s.designation = e.designation",
        "Epoch e JOIN Spectrum p ON e.designation = p.star",
        "Pair p JOIN Star s ON p.name = s.designation",
    ):
        plan = sky.explained(f"SELECT COUNT(*) FROM {join}")
        phase, joined = plan.find("ChunkPhase"), re.search(r"\w*Join\w*Exec", plan)
        assert joined and 0 <= phase < joined.start(), plan
    ((read, of),) = sky.touched("SELECT e.flux FROM Star s JOIN Epoch e ON s.designation = e.designation WHERE s.designation = 'a'")
    assert read == 1 < of
    # Another text of the same tables is no key.
    plan = sky.explained("SELECT COUNT(*) FROM Star s JOIN Epoch e ON s.designation = e.designation || ''")
    assert re.search(r"\w*Join\w*Exec", plan).start() < plan.find("ChunkPhase"), plan  # type: ignore[union-attr]


def test_the_number_is_a_column_like_others(sky: Sky) -> None:
    numbers = sky.rows("SELECT COUNT(*), COUNT(DISTINCT designation_key) FROM Star")
    assert numbers == [(STARS, STARS)]
    joined = "SELECT COUNT(*) FROM Star s JOIN Epoch e ON s.designation_key = e.designation_key AND s.designation <> e.designation"
    assert sky.rows(joined) == [(0,)]
    marks = "SELECT column_name, column_key FROM information_schema.columns WHERE table_name = 'Star' AND column_key <> ''"
    assert sorted(sky.rows(marks)) == [("designation", "UNI"), ("designation_key", "PRI")]


@pytest.mark.parametrize("header", [True, False], ids=["with header", "without header"])
def test_names_are_unique(meridian: Meridian, tmp_path: Path, header: bool) -> None:
    """The second of two rows with one name is refused, in a file, in a part and in a later one; so is a row without a name."""
    data, target = tmp_path / "data", ("load", "--data", tmp_path / "data", "--db", "d", "--table")
    head = "designation,ra,dec\n" if header else ""
    named = () if header else ("--no-header",)
    key, ra = ("designation", "ra") if header else ("column1", "column2")
    stars, at = tmp_path / "stars.csv", 2 if header else 1
    stars.write_text(head + "00424433+4116085,1,1\nb1,2,2\n00424433+4116085,3,3\n\\N,4,4\n")
    options = (*target, "Star", "--key", key, *(("--ra", "ra", "--dec", "dec") if header else ("--ra", "column2", "--dec", "column3")), *named, stars)
    refused = meridian.run(*options)
    assert refused.status == 1 and str(stars) in refused.complaint
    report = meridian.must(*options, "--max-errors", 2).text
    assert f"its {key} occurs before, at {stars}:{at}" in report and f"the key {key} is NULL" in report
    assert f"the column {key}_key, which is computed of it" in report
    assert sorted(meridian.rows(data, "d", f"SELECT {key} FROM Star")) == [("00424433+4116085",), ("b1",)]
    more = tmp_path / "more.csv"
    more.write_text(head + "b1,9,9\nc1,5,5\n")
    append = (*target, "Star", "--append", *named, more)
    refused = meridian.run(*append)
    assert refused.status == 1 and f'the table has the {key} "b1" already' in refused.complaint
    meridian.must(*append, "--max-errors", 1, "--key", key)
    assert meridian.rows(data, "d", f"SELECT {key}, COUNT(*) FROM Star GROUP BY {key} HAVING COUNT(*) > 1") == []
    assert meridian.rows(data, "d", "SELECT COUNT(*) FROM Star") == [(3,)]
    meridian.must("check", "--data", data)
    for command in (("compact", "--table", "Star"), ("repartition", "--stripes", 12, "--sub-stripes", 2)):
        meridian.must(command[0], "--data", data, "--db", "d", *command[1:])
        assert meridian.rows(data, "d", f"SELECT {ra} FROM Star WHERE {key} = 'c1'") == [(5.0,)]


def test_keys_that_do_not_fit(meridian: Meridian, tmp_path: Path) -> None:
    """A text is no key of a director whose key is an integer, and the other way round."""
    target = ("load", "--data", tmp_path / "data", "--db", "d", "--table")
    stars, ints, children, digits = (tmp_path / name for name in ("stars.csv", "ints.csv", "children.csv", "digits.csv"))
    stars.write_text("name,ra,dec\na,1,1\nb,2,2\nc,3,3\n7,7,7\n")
    ints.write_text("id,ra,dec\n1,1,1\n2,2,2\n")
    children.write_text("name,v\na,1\nb,2\n")
    digits.write_text("name,v\n7,1\n8,2\n")
    meridian.must(*target, "Star", "--key", "name", "--ra", "ra", "--dec", "dec", stars)
    meridian.must(*target, "Plain", "--key", "id", "--ra", "ra", "--dec", "dec", ints)
    refused = meridian.run(*target, "Of", "--key", "name", "--director", "Plain", children)
    assert refused.status == 1 and "--key name is a text, and the key of Plain is id, an integer" in refused.complaint
    refused = meridian.run(*target, "Of", "--key", "name", "--director", "Star", digits)
    assert refused.status == 1 and "give --text name" in refused.complaint
    meridian.must(*target, "Of", "--key", "name", "--director", "Star", "--text", "name", digits)
    assert meridian.rows(tmp_path / "data", "d", "SELECT s.ra, o.v FROM Star s JOIN Of o ON s.name = o.name") == [(7.0, 1)]
    # A file that has the number beside the text, as a result that was saved, is believed in nothing.
    saved = tmp_path / "saved.csv"
    saved.write_text("name,ra,dec,name_key\nz,9,9,17\n")
    meridian.must(*target, "Star", "--append", saved)
    assert meridian.rows(tmp_path / "data", "d", "SELECT ra FROM Star WHERE name = 'z'") == [(9.0,)]
    assert meridian.rows(tmp_path / "data", "d", "SELECT ra FROM Star WHERE name_key = 17") == []
    refused = meridian.run(*target, "Star", "--append", ints)
    assert refused.status == 1


def test_tables_with_generated_keys_stay_as_they_are(meridian: Meridian, tmp_path: Path) -> None:
    """A director whose texts have generated keys beside them, as former versions made them."""
    target = ("load", "--data", tmp_path / "data", "--db", "d", "--table")
    stars = tmp_path / "stars.csv"
    stars.write_text("designation,ra,dec\na,1,1\na,2,2\n")
    meridian.must(*target, "Star", "--generate-key", "--key", "id", "--ra", "ra", "--dec", "dec", stars)
    meridian.must(*target, "Star", "--append", "--generate-key", stars)
    assert meridian.rows(tmp_path / "data", "d", "SELECT COUNT(*), COUNT(DISTINCT id) FROM Star WHERE designation = 'a'") == [(4, 4)]


def test_a_table_of_a_user(meridian: Meridian, tmp_path: Path) -> None:
    """Rows that are inserted and changed have the numbers of their texts, whatever a statement gives the column of numbers."""
    data, stars = tmp_path / "data", tmp_path / "stars.csv"
    stars.write_text("designation,ra,dec,mag\n" + "".join(f"s{n},{n},{n % 60},{n / 10}\n" for n in range(200)))
    target = ("load", "--data", data, "--key", "designation", "--ra", "ra", "--dec", "dec", "--stripes", 18, "--sub-stripes", 2)
    meridian.must(*target, "--db", "sky", "--table", "Star", stars)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    meridian.must(*target, "--db", "ann", "--table", "Mine", stars)
    with serving(meridian, data) as server, server.connect(user="ann", password=PASSWORD, database="ann") as connection:
        cursor = connection.cursor()

        def found(designation: str) -> list[tuple[object, ...]]:
            cursor.execute("SELECT ra, mag FROM Mine WHERE designation = %s", (designation,))
            return list(cursor.fetchall())

        cursor.execute("INSERT INTO Mine (designation, ra, `dec`, mag) VALUES ('new', 1.5, 2.5, 3.5), ('other', 2.5, 2.5, 4.5)")
        cursor.execute("INSERT INTO Mine (designation, ra, `dec`, mag, designation_key) VALUES ('given', 9.5, 2.5, 5.5, 17)")
        assert (found("new"), found("other"), found("given")) == ([(1.5, 3.5)], [(2.5, 4.5)], [(9.5, 5.5)])
        cursor.execute("UPDATE Mine SET designation = 'renamed' WHERE designation = 's7'")
        cursor.execute("UPDATE Mine SET designation_key = 5, mag = -1 WHERE designation = 's8'")
        assert (found("s7"), found("renamed"), found("s8")) == ([], [(7.0, 0.7)], [(8.0, -1.0)])
        cursor.execute("DELETE FROM Mine WHERE designation = 's9'")
        assert found("s9") == []
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT designation), COUNT(DISTINCT designation_key) FROM Mine")
        assert cursor.fetchall() == ((202, 202, 202),)
        cursor.execute("SELECT COUNT(*) FROM Mine m JOIN sky.Star s ON m.designation = s.designation AND m.designation_key = s.designation_key")
        assert cursor.fetchall() == ((198,),)
        cursor.execute("CREATE TABLE Copy AS SELECT * FROM sky.Star WHERE mag < 5")
        cursor.execute("SELECT COUNT(*) FROM Copy c JOIN sky.Star s ON c.designation = s.designation")
        assert cursor.fetchall() == ((50,),)
        with (
            mysql.connector.connect(host="127.0.0.1", port=server.port, user="ann", password=PASSWORD, database="ann") as prepared,
            prepared.cursor(prepared=True) as binary,
        ):
            for designation, rows in (("renamed", [(7.0,)]), ("s7", []), ("new", [(1.5,)]), ("s10", [(10.0,)])):
                binary.execute("SELECT ra FROM Mine WHERE designation = ?", (designation,))
                assert binary.fetchall() == rows
                binary.execute("SELECT m.ra FROM Mine m JOIN Copy c ON m.designation = c.designation WHERE c.designation IN (?, 'none')", (designation,))
                assert len(binary.fetchall()) == (designation == "s10")
    meridian.must("check", "--data", data)
