"""What databases, tables and columns mean: `meridian describe`, what is loaded with files, and what every protocol shows of it."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import astropy.io.fits
import astropy.io.votable
import astropy.table
import astropy.units
import pyarrow.parquet as pq
import pymysql
import pytest
import yaml

from meridian_cli import Meridian
from serving import Server, serving
from small_tables import extract_version_0_1_0, write_lines

# A schema as lsst-sdm-schemas writes them, with much that is not kept.
FELIS = r"""---
name: dp9_sky
"@id": "#dp9_sky"
description: "It's a survey \\ of \"all\" <things>."
version:
  current: "9.1.0"
  compatible:
  - "9.0.0"
tables:
- name: OBJECT
  "@id": "#OBJECT"
  description: >
    Objects of the co-added images,
    each once.
  tap:table_index: 7
  votable:utype: caom:Plane
  mysql:engine: MyISAM
  mysql:charset: latin1
  primaryKey: "#OBJECT.objectId"
  columnGroups:
  - name: core
    columns: ["#OBJECT.objectId"]
  columns:
  - name: objectid
    "@id": "#OBJECT.objectId"
    datatype: long
    nullable: false
    description: Unique key
    ivoa:ucd: meta.id;meta.main
    tap:principal: 1
    tap:column_index: 1
    mysql:datatype: BIGINT
  - name: RA
    "@id": "#OBJECT.ra"
    datatype: double
    description: "Right ascension: it's <b>mean</b> & \\ \"weighted\""
    fits:tunit: deg
    ivoa:ucd: pos.eq.ra;meta.main
    tap:principal: 1
    tap:column_index: 2
    votable:utype: stc:AstroCoords.Position2D.Value2.C1
  - name: g_flux
    "@id": "#OBJECT.g_flux"
    datatype: float
    description: Flux in g
    ivoa:unit: nJy
    fits:tunit: mJy
    ivoa:ucd: phot.flux.density;em.opt.B
    tap:principal: 0
    tap:column_index: 40
  - name: seen
    "@id": "#OBJECT.seen"
    datatype: string
    length: 30
    votable:xtype: timestamp
    votable:arraysize: "30*"
  - name: extra
    "@id": "#OBJECT.extra"
    datatype: int
    ivoa:ucd: meta.code
  constraints:
  - name: c
    "@type": ForeignKey
    columns: ["#OBJECT.objectId"]
  indexes:
  - name: i
    columns: ["#OBJECT.ra"]
- name: Visit
  "@id": "#Visit"
  columns:
  - name: id
    "@id": "#Visit.id"
    datatype: someday
"""
RA_MEANS = "Right ascension: it's <b>mean</b> & \\ \"weighted\""


def load_object(meridian: Meridian, data: Path, directory: Path, **options: object) -> None:
    """A director of three rows."""
    rows = directory / "object.csv"
    rows.write_text("objectId,ra,dec,g_flux,seen,note\n1,10,5,1.5,2026-01-02T03:04:05,x\n2,20,-5,2.5,2026-01-03T03:04:05,y\n3,30,0,,,z\n")
    meridian.load(data, "sky", "Object", rows, key="objectId", ra="ra", dec="dec", text="seen", **options)


@pytest.fixture
def data(meridian: Meridian, tmp_path: Path) -> Path:
    """A director and a replicated table."""
    place = tmp_path / "data"
    load_object(meridian, place, tmp_path)
    bands = tmp_path / "band.csv"
    bands.write_text("band,name\n1,g\n")
    meridian.load(place, "sky", "Band", bands, kind="replicated")
    return place


@pytest.fixture
def felis(tmp_path: Path) -> Path:
    """The schema."""
    path = tmp_path / "schema.yaml"
    path.write_text(FELIS)
    return path


@pytest.fixture
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of these tables."""
    with serving(meridian, data) as running:
        yield running


def described(meridian: Meridian, data: Path, *options: object) -> dict:  # type: ignore[type-arg]
    """What is known, as a document."""
    return yaml.safe_load(meridian.must("describe", "--data", data, "--db", "sky", *options).text)  # type: ignore[no-any-return]


def columns_of(document: dict, table: str) -> dict[str, dict]:  # type: ignore[type-arg]
    """What is said of the columns of a table, by name."""
    (found,) = (it for it in document["tables"] if it["name"] == table)
    return {column["name"]: {word: value for word, value in column.items() if word != "name"} for column in found["columns"]}


def edit(meridian: Meridian, data: Path, text: str, *options: object) -> str:
    """Describes by a text; gives what is said about that."""
    outcome = meridian.run("describe", "--data", data, "--db", "sky", *options, "--edit", "-", stdin=text)
    assert outcome.status == 0, outcome.complaint
    return outcome.text + outcome.complaint


def rejected(meridian: Meridian, *arguments: object, stdin: str = "") -> str:
    """What is said of a call that fails."""
    outcome = meridian.run("describe", *arguments, stdin=stdin)
    assert outcome.status == 1, outcome.text
    assert outcome.stdout == b""
    assert len(outcome.complaint.splitlines()) == 1, outcome.complaint
    return outcome.complaint


def mysql(server: Server, statement: str) -> list[dict[str, object]]:
    """The rows of a statement, by heading."""
    with server.connect(database="sky", cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())  # type: ignore[arg-type]


def fetch(server: Server, path: str, **parameters: object) -> bytes:
    """The body of a response."""
    with urllib.request.urlopen(server.url(path, **parameters), timeout=60) as response:
        return response.read()  # type: ignore[no-any-return]


def tap(server: Server, query: str, response_format: str = "votable") -> bytes:
    """The response to a query in ADQL."""
    return fetch(server, "/tap/sync", LANG="ADQL", QUERY=query, RESPONSEFORMAT=response_format)


def fields(document: bytes) -> dict[str, astropy.io.votable.tree.Field]:
    """The fields of a VOTable as astropy reads them."""
    table = astropy.io.votable.parse(io.BytesIO(document)).get_first_table()
    return {field.name: field for field in table.fields}


def tap_schema(server: Server, query: str) -> list[dict[str, object]]:
    """Rows of TAP_SCHEMA by heading, without NULLs."""
    answer = json.loads(tap(server, query, "json"))
    names = [column["name"] for column in answer["metadata"]]
    return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in answer["data"]]


def test_a_schema_of_felis_describes_what_is_there(meridian: Meridian, data: Path, felis: Path) -> None:
    """Names match without case, unknown words are passed over, and what has no counterpart is told."""
    before = meridian.rows(data, "sky", "SELECT * FROM Object ORDER BY objectId")
    outcome = meridian.must("describe", "--data", data, "--db", "SKY", "--felis", felis)
    assert outcome.text.splitlines() == [
        f"sky is described as {felis} says: 1 table, 4 columns.",
        "Only in the file, tables: Visit.",
        "Only in the file, columns: Object.extra.",
        "Not in the file, tables: Band.",
        "Not in the file, columns: Object.dec, Object.note.",
    ]
    assert outcome.complaint == ""
    document = described(meridian, data)
    assert document["description"] == "It's a survey \\ of \"all\" <things>."
    (table,) = (it for it in document["tables"] if it["name"] == "Object")
    assert (table["description"], table["table_index"]) == ("Objects of the co-added images, each once.", 7)
    assert table["utype"] == "caom:Plane"
    columns = columns_of(document, "Object")
    assert columns["ra"] == {
        "description": RA_MEANS,
        "unit": "deg",
        "ucd": "pos.eq.ra;meta.main",
        "utype": "stc:AstroCoords.Position2D.Value2.C1",
        "principal": True,
        "column_index": 2,
    }
    assert (columns["g_flux"]["unit"], columns["g_flux"]["principal"]) == ("nJy", False)
    assert columns["seen"] == {"xtype": "timestamp"}
    assert columns["dec"] == {}
    assert columns_of(document, "Band") == {"band": {}, "name": {}}

    again = meridian.must("describe", "--data", data, "--db", "sky", "--felis", felis).text
    assert again.startswith(f"sky is described so already: 1 table, 4 columns of {felis}.\n")
    assert meridian.rows(data, "sky", "SELECT * FROM Object ORDER BY objectId") == before
    meridian.must("check", "--data", data)


def test_a_schema_may_refer_to_another(meridian: Meridian, data: Path, felis: Path, tmp_path: Path) -> None:
    """As later schemas of Rubin do, whose columns are in one file for all."""
    schema = tmp_path / "later.yaml"
    schema.write_text(
        "name: later\nresources: {base: {uri: 'resource://sdm.schemas/schema.yaml'}}\n"
        "tables:\n- name: Object\n  columnRefs:\n    base:\n      OBJECT:\n        RA:\n        note: {ref_name: g_flux, overrides: {description: other}}\n"
    )
    assert "1 table, 2 columns" in meridian.must("describe", "--data", data, "--db", "sky", "--felis", schema).text
    columns = columns_of(described(meridian, data), "Object")
    assert (columns["ra"]["description"], columns["note"]["unit"], columns["note"]["description"]) == (RA_MEANS, "nJy", "other")
    felis.unlink()
    told = rejected(meridian, "--data", data, "--db", "sky", "--felis", schema)
    assert "later.yaml: the resource base: " in told
    assert "there is no file" in told and "schema.yaml: check the name" in told


def test_what_is_printed_is_read_again(meridian: Meridian, data: Path, felis: Path, tmp_path: Path) -> None:
    """In YAML and in JSON, into another directory; and edits are of single words."""
    meridian.must("describe", "--data", data, "--db", "sky", "--felis", felis)
    document = described(meridian, data)
    for words in ("yaml", "json"):
        printed = meridian.must("describe", "--data", data, "--db", "sky", "--format", words).text
        other = tmp_path / words
        load_object(meridian, other, tmp_path)
        shutil.copy(tmp_path / "band.csv", tmp_path / f"{words}.csv")
        meridian.load(other, "sky", "Band", tmp_path / f"{words}.csv", kind="replicated")
        assert "is described as" in edit(meridian, other, printed)
        assert described(meridian, other) == document
        assert "is described so already" in edit(meridian, other, printed)

    one = described(meridian, data, "--table", "OBJECT")
    assert [table["name"] for table in one["tables"]] == ["Object"]
    assert "description" not in one
    edit(meridian, data, "description: null\ncolumns: [{name: RA, unit: null, ucd: '', 'tap:principal': 0}]", "--table", "object")
    changed = described(meridian, data, "--table", "Object")["tables"][0]
    assert "description" not in changed
    assert changed["utype"] == "caom:Plane"
    ra = changed["columns"][1]
    assert "unit" not in ra
    assert "ucd" not in ra
    assert (ra["principal"], ra["description"]) == (False, RA_MEANS)

    toml = tmp_path / "words.toml"
    toml.write_text('description = "d"\n[[tables]]\nname = "Band"\n[[tables.columns]]\nname = "band"\ndescription = "number"\nprincipal = true\n')
    meridian.must("describe", "--data", data, "--db", "sky", "--edit", toml)
    document = described(meridian, data)
    assert document["description"] == "d"
    assert columns_of(document, "Band")["band"] == {"description": "number", "principal": True}


def test_units_and_ucds_are_checked_and_kept(meridian: Meridian, data: Path) -> None:
    """A warning for each that others may not read, with the word."""
    told = edit(
        meridian,
        data,
        "tables: [{name: Object, columns: [{name: g_flux, unit: electron, ucd: phot.flx}, {name: note, unit: electron, ucd: meta.main},"
        " {name: dec, unit: mas.yr**-1, ucd: pos.pm;pos.eq.dec, descripton: x}]}]",
    )
    assert 'warning: Object.g_flux, Object.note: "electron" is no unit that VOUnits know' in told
    assert 'UCD1+ has no word "phot.flx"' in told
    assert 'the word "meta.main" may not be the first' in told
    assert "warning: passed over: descripton of the column Object.dec" in told
    assert "mas" not in told
    columns = columns_of(described(meridian, data), "Object")
    assert columns["g_flux"] == {"unit": "electron", "ucd": "phot.flx"}


def test_mistakes_are_told_and_change_nothing(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """One sentence each, which says what may have been meant."""
    before = described(meridian, data)
    where = ["--data", data, "--db", "sky"]
    assert "there is no database sly: did you mean sky?" in rejected(meridian, "--data", data, "--db", "sly")
    assert "has no table Objct: did you mean Object?" in rejected(meridian, *where, "--table", "Objct")
    assert "`meridian tables` lists what there is" in rejected(meridian, *where, "--table", "Zzzzzzz")
    assert "no.yaml: check the name" in rejected(meridian, *where, "--felis", tmp_path / "no.yaml")
    assert "holds no Meridian data" in rejected(meridian, "--data", tmp_path / "nowhere", "--db", "sky")
    table = "tables: [{name: Object, columns: "
    for text, told in [
        ("tables: [", "standard input: "),
        ("- 1", "it is no description"),
        ("tables: [{name: Objekt}]", "has no table Objekt: did you mean Object?"),
        (table + "[{name: g_flx}]}]", "the table Object has no column g_flx: did you mean g_flux?"),
        (table + "[{unit: m}]}]", "a column of the table Object has no name"),
        (table + "[{name: ra, unit: [m]}]}]", "the column Object.ra: unit: a list is no text"),
        (table + "[{name: ra, unit: 3}]}]", "the column Object.ra: unit: 3 is no text"),
        (table + "[{name: ra, principal: 2}]}]", "the column Object.ra: principal is 2: it is 0 or 1"),
        (table + "[{name: ra, column_index: x}]}]", 'the column Object.ra: column_index: "x" is no whole number'),
        (table + "[{name: ra, principal: often}]}]", 'the column Object.ra: principal: "often" is neither 0 nor 1'),
        (table + "[{name: ra, unit: m}, {name: RA, unit: s}]}]", "it has two columns Object.RA"),
        ("tables: [{name: Object}, {name: object}]", "it has two tables object"),
        (table + "{ra: deg}}]", "the columns of Object: "),
    ]:
        assert told in rejected(meridian, *where, "--edit", "-", stdin=text), text
    schema = tmp_path / "bad.yaml"
    schema.write_text("name: x\n")
    assert "missing field `tables`" in rejected(meridian, *where, "--felis", schema)
    schema.write_bytes(b"\xff\xfe")
    assert "it is no text in UTF-8" in rejected(meridian, *where, "--felis", schema)
    toml = tmp_path / "bad.toml"
    toml.write_text("description = ")
    assert "bad.toml: " in rejected(meridian, *where, "--edit", toml).splitlines()[0]
    assert described(meridian, data) == before


def test_the_virtual_observatory_sees_it(meridian: Meridian, server: Server, data: Path, felis: Path) -> None:
    """TAP_SCHEMA, /tap/tables, and the fields of results; in a server that runs already and has answered before."""
    query = "SELECT objectId, ra AS r, g_flux, seen, dec + 1 AS d FROM sky.Object ORDER BY objectId"
    before = [tap(server, query, "csv") for _ in range(3)][0]
    silent = fields(tap(server, query))
    assert (silent["r"].unit, silent["r"].description, silent["g_flux"].ucd) == (astropy.units.deg, None, None)
    fetch(server, "/scs/sky/Object", RA=10, DEC=5, SR=1)
    meridian.must("describe", "--data", data, "--db", "sky", "--felis", felis)
    time.sleep(1)

    said = fields(tap(server, query))
    assert said["r"].description == RA_MEANS
    assert (said["r"].ucd, said["r"].utype) == ("pos.eq.ra;meta.main", "stc:AstroCoords.Position2D.Value2.C1")
    assert (said["g_flux"].unit, said["g_flux"].ucd) == (astropy.units.nJy, "phot.flux.density;em.opt.B")
    assert (said["seen"].xtype, said["seen"].datatype) == ("timestamp", "char")
    assert (said["d"].description, said["d"].unit) == (None, None)
    assert tap(server, query, "csv") == before
    metadata = {column["name"]: column for column in json.loads(tap(server, query, "json"))["metadata"]}
    assert metadata["r"]["description"] == RA_MEANS
    # astroquery reads both of every column.
    assert (metadata["d"]["unit"], metadata["d"]["description"]) == (None, None)
    assert not {"ucd", "xtype", "utype"} & set(metadata["d"])
    cone = fields(fetch(server, "/scs/sky/Object", RA=10, DEC=5, SR=1, VERB=3))
    assert (cone["g_flux"].unit, cone["ra"].description) == (astropy.units.nJy, RA_MEANS)
    assert cone["ra"].ucd == "POS_EQ_RA_MAIN"

    (schema,) = tap_schema(server, "SELECT * FROM TAP_SCHEMA.schemas WHERE schema_name = 'sky'")
    assert schema["description"] == "It's a survey \\ of \"all\" <things>."
    (table,) = tap_schema(server, "SELECT * FROM TAP_SCHEMA.tables WHERE table_name = 'sky.Object'")
    assert (table["description"], table["utype"], table["table_index"]) == ("Objects of the co-added images, each once.", "caom:Plane", 7)
    rows = tap_schema(server, "SELECT * FROM TAP_SCHEMA.columns WHERE table_name = 'sky.Object'")
    columns = {row["column_name"]: row for row in rows}
    ra = columns["ra"]
    assert (ra["unit"], ra["ucd"], ra["description"]) == ("deg", "pos.eq.ra;meta.main", RA_MEANS)
    assert (ra["utype"], ra["principal"], ra["column_index"]) == ("stc:AstroCoords.Position2D.Value2.C1", 1, 2)
    assert (columns["g_flux"]["unit"], columns["g_flux"]["principal"], columns["g_flux"]["column_index"]) == ("nJy", 0, 40)
    assert (columns["seen"]["xtype"], columns["seen"]["datatype"]) == ("timestamp", "char")
    assert (columns["dec"]["unit"], columns["dec"]["principal"], columns["dec"]["column_index"]) == ("deg", 1, 3)

    for path in ("/tap/tables", "/tap/tables/sky.Object"):
        document = ElementTree.fromstring(fetch(server, path))
        (column,) = (it for it in document.iter("column") if it.findtext("name") == "g_flux")
        assert (column.findtext("unit"), column.findtext("description")) == ("nJy", "Flux in g")
        assert column.findtext("ucd") == "phot.flux.density;em.opt.B"


def test_validators_of_votables_have_nothing_to_say(meridian: Meridian, server: Server, data: Path, felis: Path, tmp_path: Path) -> None:
    """STILTS reads what astropy reads."""
    if shutil.which("stilts") is None:
        pytest.skip("there is no stilts")
    meridian.must("describe", "--data", data, "--db", "sky", "--felis", felis)
    table = tmp_path / "result.vot"
    table.write_bytes(tap(server, "SELECT * FROM sky.Object"))
    outcome = subprocess.run(["stilts", "votlint", table], capture_output=True, text=True, check=False)
    assert outcome.stdout == "", outcome.stdout


def test_mysql_clients_see_it(meridian: Meridian, server: Server, data: Path, felis: Path) -> None:
    """As comments, in a server that runs already, within a second."""

    def comments() -> dict[object, object]:
        return {row["Field"]: row["Comment"] for row in mysql(server, "SHOW FULL COLUMNS FROM Object")}

    assert set(comments().values()) == {""}
    assert {row["Name"]: row["Comment"] for row in mysql(server, "SHOW TABLE STATUS")} == {"Band": "replicated table", "Object": "director table"}
    rows = mysql(server, "SELECT * FROM Object ORDER BY objectId")
    meridian.must("describe", "--data", data, "--db", "sky", "--felis", felis)
    time.sleep(1)
    assert comments() == {"objectId": "Unique key", "ra": RA_MEANS, "dec": "", "g_flux": "Flux in g", "seen": "", "note": ""}
    status = {row["Name"]: row["Comment"] for row in mysql(server, "SHOW TABLE STATUS")}
    assert status == {"Band": "replicated table", "Object": "Objects of the co-added images, each once."}
    (created,) = mysql(server, "SHOW CREATE TABLE Object")
    assert "`g_flux` double DEFAULT NULL COMMENT 'Flux in g',\n" in str(created["Create Table"])
    escaped = RA_MEANS.replace("\\", "\\\\").replace("'", "''")
    assert f"`ra` double NOT NULL COMMENT '{escaped}',\n" in str(created["Create Table"])
    assert str(created["Create Table"]).endswith("\n) COMMENT='Objects of the co-added images, each once.'")
    (created,) = mysql(server, "SHOW CREATE DATABASE sky")
    assert "COMMENT 'It''s a survey \\\\ of \"all\" <things>.'" in str(created["Create Database"])
    listed = mysql(server, "SELECT COLUMN_NAME AS n, COLUMN_COMMENT AS c FROM information_schema.COLUMNS WHERE TABLE_NAME = 'Object'")
    assert {row["n"]: row["c"] for row in listed} == comments()
    (table,) = mysql(server, "SELECT TABLE_COMMENT AS c FROM information_schema.TABLES WHERE TABLE_NAME = 'Object'")
    assert table["c"] == "Objects of the co-added images, each once."
    (schema,) = mysql(server, "SELECT SCHEMA_COMMENT AS c FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'sky'")
    assert schema["c"] == "It's a survey \\ of \"all\" <things>."
    assert mysql(server, "SELECT * FROM Object ORDER BY objectId") == rows


def test_a_wide_table_with_long_descriptions(meridian: Meridian, tmp_path: Path) -> None:
    """As wide as the widest of Rubin's."""
    data, names = tmp_path / "data", [f"c{number}" for number in range(1300)]
    rows = tmp_path / "wide.csv"
    rows.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    meridian.load(data, "sky", "Wide", rows, kind="replicated")
    text = "It's long. " * 50
    words = {"tables": [{"name": "Wide", "columns": [{"name": name, "description": f"{name}: {text}".strip()} for name in names]}]}
    assert "1 table, 1300 columns" in edit(meridian, data, json.dumps(words))
    with serving(meridian, data) as server:
        shown = mysql(server, "SHOW FULL COLUMNS FROM Wide")
        assert [row["Comment"] for row in shown] == [column["description"] for column in words["tables"][0]["columns"]]  # type: ignore[index]
        assert len(fields(tap(server, "SELECT * FROM sky.Wide"))) == 1300


def test_files_bring_what_they_say(meridian: Meridian, tmp_path: Path) -> None:
    """VOTable and FITS as astropy writes them, and Parquet as Meridian does; a load that replaces the table says it anew."""
    table = astropy.table.Table({"id": [1, 2], "ra": [10.0, 20.0], "dec": [1.0, 2.0], "g": [1.5, 2.5]})
    table["ra"].unit, table["g"].unit = "deg", "mag"
    table["g"].description = "g <magnitude> & 'more'\n   of it"
    table["g"].meta["ucd"] = "phot.mag;em.opt.B"
    votable = astropy.io.votable.from_table(table)
    field = votable.get_first_table().get_field_by_id_or_name("g")
    field.utype = "photDM:mag"
    votable.to_xml(str(tmp_path / "a.vot"))
    data = tmp_path / "data"
    keys = {"key": "id", "ra": "ra", "dec": "dec"}
    meridian.load(data, "sky", "T", tmp_path / "a.vot", **keys)
    g = columns_of(described(meridian, data), "T")["g"]
    expected = {"description": "g <magnitude> & 'more' of it", "unit": "mag", "ucd": "phot.mag;em.opt.B", "utype": "photDM:mag"}
    assert g == expected

    parquet = tmp_path / "b.parquet"
    parquet.write_bytes(meridian.must("sql", "--data", data, "--db", "sky", "--format", "parquet", "SELECT * FROM T").stdout)
    meridian.load(data, "sky", "U", parquet, **keys)
    assert columns_of(described(meridian, data), "U")["g"] == expected
    # Its footer has a VOTable without rows (VOParquet).
    said = pq.read_metadata(parquet).metadata[b"IVOA.VOTable-Parquet.content"]
    g_field = astropy.io.votable.parse(io.BytesIO(said)).get_first_table().get_field_by_id_or_name("g")
    assert {"description": g_field.description, "unit": str(g_field.unit), "ucd": g_field.ucd, "utype": g_field.utype} == expected
    others = tmp_path / "others.parquet"
    words = {name: {"unit": "deg", "ucd": "", "description": ""} for name in ("id", "ra", "dec")} | {"g": {key: expected[key] for key in ("unit", "ucd", "description")}}
    astropy.table.Table({name: list(table[name]) for name in table.colnames}).write(others, format="parquet.votable", metadata=words)
    assert not any(field.metadata for field in pq.read_schema(others))
    meridian.load(data, "sky", "W", others, **keys)
    assert columns_of(described(meridian, data), "W")["g"] == {key: expected[key] for key in ("unit", "ucd", "description")}

    table["g"].unit = "nJy"
    fits = astropy.io.fits.BinTableHDU(table)
    fits.header["TCOMM4"], fits.header["TUCD4"] = "a flux", "phot.flux"
    fits.writeto(tmp_path / "c.fits")
    edit(meridian, data, "tables: [{name: T, description: mine, columns: [{name: g, principal: 1}, {name: ra, description: kept}]}]")
    meridian.load(data, "sky", "T", tmp_path / "c.fits", replace=True, **keys)
    document = described(meridian, data, "--table", "T")
    assert document["tables"][0]["description"] == "mine"
    columns = columns_of(document, "T")
    assert columns["g"] == {"description": "a flux", "unit": "nJy", "ucd": "phot.flux", "utype": "photDM:mag", "principal": True}
    assert columns["ra"]["description"] == "kept"

    radians = tmp_path / "d.fits"
    table["ra"], table["dec"] = [0.1, 0.2], [0.3, 0.4]
    table["ra"].unit = "rad"
    astropy.io.fits.BinTableHDU(table).writeto(radians)
    meridian.load(data, "sky", "V", radians, position_unit="radians", **keys)
    assert "unit" not in columns_of(described(meridian, data), "V")["ra"]


def test_places_that_are_said_are_given_to_no_other_column(meridian: Meridian, tmp_path: Path) -> None:
    """What nothing was said of kept the number that it would have had, which was another one's then."""
    data = tmp_path / "data"
    for table in ("A", "B", "C"):
        meridian.load(data, "sky", table, write_lines(tmp_path / f"{table}.csv", ["1,2,3,4"], "p,q,r,s"), kind="replicated")
    edit(meridian, data, "tables: [{name: C, table_index: 1}, {name: A, columns: [{name: s, column_index: 1}, {name: q, column_index: 7}]}]")
    columns = "SELECT column_name, column_index FROM TAP_SCHEMA.columns WHERE table_name = 'sky.A' ORDER BY column_index"
    assert meridian.rows(data, "sky", columns) == [("s", 1), ("p", 2), ("r", 3), ("q", 7)]
    tables = "SELECT table_name, table_index FROM TAP_SCHEMA.tables WHERE schema_name = 'sky' ORDER BY table_index"
    assert meridian.rows(data, "sky", tables) == [("sky.C", 1), ("sky.A", 2), ("sky.B", 3)]


def test_ecsv_brings_units_and_descriptions(meridian: Meridian, tmp_path: Path) -> None:
    """As astropy writes them."""
    table = astropy.table.Table({"id": [1, 2], "g": [1.5, 2.5]})
    table["g"].unit, table["g"].description = "mag", "magnitude, in g"
    table.write(tmp_path / "a.ecsv", format="ascii.ecsv")
    data = tmp_path / "data"
    meridian.load(data, "sky", "T", tmp_path / "a.ecsv", kind="replicated")
    assert columns_of(described(meridian, data), "T") == {"id": {}, "g": {"unit": "mag", "description": "magnitude, in g"}}


def test_it_outlives_appends_merges_and_another_partitioning(meridian: Meridian, data: Path, felis: Path, tmp_path: Path) -> None:
    """What is said belongs to the table, not to its rows."""
    meridian.must("describe", "--data", data, "--db", "sky", "--felis", felis)
    document = described(meridian, data)
    for key in range(10, 14):
        more = tmp_path / "more.csv"
        more.write_text(f"objectId,ra,dec,g_flux,seen,note\n{key},40,1,,,\n")
        meridian.must("load", "--data", data, "--db", "sky", "--table", "Object", "--append", more)
    meridian.must("compact", "--data", data, "--all")
    meridian.must("repartition", "--data", data, "--db", "sky", "--stripes", "20", "--sub-stripes", "4")
    assert described(meridian, data) == document
    load_object(meridian, data, tmp_path, replace=True)
    assert described(meridian, data) == document
    meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Object", "--yes")
    load_object(meridian, data, tmp_path)
    assert set(map(len, columns_of(described(meridian, data), "Object").values())) == {0}


def test_an_older_directory_is_brought_up_to_date(meridian: Meridian, data: Path, felis: Path) -> None:
    """The version before knew of no descriptions."""
    with sqlite3.connect(data / "meridian.sqlite") as catalog:
        catalog.execute("DROP TABLE views")
        catalog.execute("DELETE FROM lists WHERE name = 'views'")
        catalog.execute("ALTER TABLE databases DROP COLUMN description")
        for column in ("description", "utype", "table_index", "expires_at"):
            catalog.execute(f"ALTER TABLE tables DROP COLUMN {column}")
        for column in ("description", "unit", "ucd", "utype", "xtype", "principal", "column_index"):
            catalog.execute(f"ALTER TABLE columns DROP COLUMN {column}")
        for column in ("director_database", "stripes", "sub_stripes"):
            catalog.execute(f"ALTER TABLE table_directors DROP COLUMN {column}")
        catalog.execute("PRAGMA user_version = 5")
    catalog.close()
    assert meridian.rows(data, "sky", "SELECT COUNT(*) FROM Object") == [(3,)]
    assert columns_of(described(meridian, data), "Band") == {"band": {}, "name": {}}
    meridian.must("describe", "--data", data, "--db", "sky", "--felis", felis)
    assert columns_of(described(meridian, data), "Object")["g_flux"]["unit"] == "nJy"
    meridian.must("check", "--data", data)


def test_a_version_that_was_released_is_brought_up_to_date(meridian: Meridian, tmp_path: Path) -> None:
    """Version 0.1.0's directory, which other tests read as well."""
    data = extract_version_0_1_0(tmp_path)
    first = json.loads(meridian.must("tables", "--data", data, "--format", "json").text.splitlines()[0])
    where = ["--data", data, "--db", first["database"]]
    outcome = meridian.run("describe", *where, "--edit", "-", stdin=f"tables: [{{name: {first['table']}, description: old}}]")
    assert outcome.status == 0, outcome.complaint
    document = yaml.safe_load(meridian.must("describe", *where, "--table", first["table"]).text)
    assert document["tables"][0]["description"] == "old"
