"""Tables that users send, in every encoding and serialization that there is, and what they are told of files that are none."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Iterator

import astropy.io.fits
import astropy.io.votable
import astropy.table
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, write_lines
from test_tap import error_of, execute, rows_of, send, text_of
from test_users import PASSWORD, Site, must

NOISE = np.random.default_rng(3).bytes(100_000)
# Stars at 10, 20 and so on degrees of the equator, seen at 8, 9 and so on o'clock.
STARS = 10


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Stars that everybody may read, and Ann, who may have tables of her own."""
    directory = tmp_path_factory.mktemp("uploaded_formats")
    data = directory / "data"
    lines = (f"{n},{10 * n},0,2026-11-20 {8 + n:02}:00:00" for n in range(STARS))
    meridian.load(data, "sky", "Star", write_lines(directory / "stars.csv", lines, "id,ra,dec,seen"), **DIRECTOR)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    must(meridian, data, "add", "anonymous", "--no-password")
    must(meridian, data, "grant", "anonymous", "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


@pytest.fixture(scope="module")
def server(site: Site) -> Server:
    """The server of the site."""
    return site.server


def upload(server: Server, content: bytes, query: str = "SELECT * FROM TAP_UPLOAD.t", form: str = "csv", *, typed: bool = True) -> list[list[str]]:
    """The rows of a query with a table."""
    answer = send(server, "/tap/sync", {"UPLOAD": "t,param:x", "QUERY": query, "FORMAT": form}, {"x": content}, typed=typed)
    assert answer.status == 200, answer.text
    return rows_of(answer.text)


def refused(server: Server, content: bytes, query: str = "SELECT * FROM TAP_UPLOAD.t", status: int = 400) -> str:
    """What is said of a table that cannot be read."""
    answer = send(server, "/tap/sync", {"UPLOAD": "t,param:x", "QUERY": query, "FORMAT": "csv"}, {"x": content})
    assert answer.status == status, answer.text
    told = error_of(answer)
    assert "/tmp" not in told and "read_" not in told and "DataFusion" not in told, told
    return told


def votable(fields: str, rows: str = "", declaration: str = '<?xml version="1.0"?>') -> str:
    """A document with rows as elements."""
    data = f"<DATA><TABLEDATA>{rows}</TABLEDATA></DATA>" if rows else ""
    return f'{declaration}\n<VOTABLE version="1.4"><RESOURCE><TABLE>\n{fields}\n{data}</TABLE></RESOURCE></VOTABLE>\n'


NAMED = '<FIELD name="id" datatype="int"/><FIELD name="name" datatype="unicodeChar" arraysize="*"/>'


def named_row(name: str) -> str:
    return f"<TR><TD>1</TD><TD>{name}</TD></TR>"


@pytest.mark.parametrize(
    ("declared", "codec", "name"),
    [
        ("UTF-8", "utf-8", "β Ori, é, 𝄞"),
        ("UTF-8", "utf-8-sig", "β Ori"),
        ("UTF-16", "utf-16", "β Ori, é, 𝄞"),
        ("UTF-16LE", "utf-16-le", "β Ori"),
        ("UTF-16BE", "utf-16-be", "β Ori"),
        ("ISO-8859-1", "latin-1", "Cassiopée ÿ"),
        ("windows-1252", "cp1252", "é € œ"),
        ("US-ASCII", "ascii", "Vega"),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_votables_are_in_the_encoding_that_they_declare(server: Server, declared: str, codec: str, name: str, is_packed: bool) -> None:
    text = votable(NAMED, named_row(name) * 3, f'<?xml version="1.0" encoding="{declared}"?>')
    content = text.encode(codec)
    if codec in ("utf-8", "latin-1"):
        assert astropy.io.votable.parse(io.BytesIO(content)).get_first_table().array["name"][0] == name
    assert upload(server, gzip.compress(content) if is_packed else content) == [["1", name]] * 3


def test_other_encodings_are_named(server: Server) -> None:
    told = refused(server, votable(NAMED, named_row("x"), '<?xml version="1.0" encoding="EUC-JP"?>').encode())
    assert "TAP_UPLOAD.t: " in told and "EUC-JP" in told and "UTF-8" in told, told


def as_votable(table: astropy.table.Table, serialization: str) -> bytes:
    sink = io.BytesIO()
    astropy.io.votable.from_table(table).to_xml(sink, tabledata_format=serialization)
    return sink.getvalue()


def as_fits(table: astropy.table.Table) -> bytes:
    sink = io.BytesIO()
    table.write(sink, format="fits")
    return sink.getvalue()


def as_csv(table: astropy.table.Table) -> bytes:
    text = io.StringIO()
    table.write(text, format="ascii.csv")
    return text.getvalue().encode()


@pytest.mark.parametrize("form", ["tabledata", "binary", "binary2", "fits", "csv"])
def test_gzipped_tables_are_unpacked(server: Server, site: Site, form: str) -> None:
    """In a query, in a job, as a part that is not said to be a file, and as a table that stays."""
    table = astropy.table.Table({"n": np.arange(2000), "name": [f"star {n}" for n in range(2000)]})
    plain = {"fits": as_fits, "csv": as_csv}.get(form, lambda table: as_votable(table, form))(table)
    packed = gzip.compress(plain)
    query = "SELECT COUNT(*) AS n, SUM(n) AS s, MAX(name) AS m FROM TAP_UPLOAD.t"
    expected = [["2000", str(sum(range(2000))), "star 999"]]
    assert upload(server, plain, query) == expected
    assert upload(server, packed, query) == expected
    assert upload(server, packed, query, typed=False) == expected
    job = send(server, "/tap/async", {"UPLOAD": "t,param:x", "QUERY": query, "FORMAT": "csv", "PHASE": "RUN"}, {"x": packed})
    path = job.url[len(server.url("")) :]
    wait_until(lambda: text_of(server, f"{path}/phase") == "COMPLETED", 60, "the job is complete")
    assert rows_of(execute(server, f"{path}/results/result").text) == expected
    for headers in ({}, {"Content-Encoding": "gzip"}):
        answer = requests.put(server.url("/tables/ann.packed"), data=packed, headers=headers, auth=("ann", PASSWORD), timeout=60)
        assert answer.status_code == 201 and answer.json()["rows_added"] == 2000, answer.text
        assert requests.delete(server.url("/tables/ann.packed"), auth=("ann", PASSWORD), timeout=60).status_code == 204


def test_gzip_streams_that_are_bad(server: Server) -> None:
    rows = gzip.compress(NOISE)
    for content, status, told in [
        (rows[:50_000], 400, "cannot be unpacked"),
        (b"\x1f\x8b and no more", 400, "cannot be unpacked"),
        (gzip.compress(b""), 400, "is empty"),
        (gzip.compress(b"n\n" + b"1\n" * (20 << 20)), 413, "more than 250 times its length"),
        (gzip.compress(gzip.compress(votable(NAMED, named_row("x")).encode())), 400, "gzipped twice"),
        (rows, 400, "it is no text"),
    ]:
        said = refused(server, content, status=status)
        assert told in said, said


SEEN = '<FIELD name="n" datatype="int"/><FIELD name="seen" datatype="char" arraysize="*" xtype="{}"/>'
TIMES = "".join(f"<TR><TD>{n}</TD><TD>{time}</TD></TR>\n" for n, time in enumerate(["2026-11-20T10:00:00", "2026-11-20T11:30:00.5Z", "2026-11-20", ""]))


@pytest.mark.parametrize("xtype", ["timestamp", "adql:TIMESTAMP"])
def test_columns_of_times_are_times(server: Server, site: Site, xtype: str) -> None:
    content = votable(SEEN.format(xtype), TIMES).encode()
    later = "SELECT n FROM TAP_UPLOAD.t WHERE seen > TIMESTAMP '2026-11-20T09:00:00' ORDER BY n"
    assert upload(server, content, later) == [["0"], ["1"]]
    joined = "SELECT s.id, t.n FROM sky.Star AS s JOIN TAP_UPLOAD.t AS t ON s.seen = t.seen"
    assert upload(server, content, joined) == [["2", "0"]]
    before = "SELECT COUNT(*) AS c FROM sky.Star AS s JOIN TAP_UPLOAD.t AS t ON s.seen < t.seen WHERE t.n = 1"
    assert upload(server, content, before) == [["4"]]
    assert upload(server, content, "SELECT n FROM TAP_UPLOAD.t WHERE seen IS NULL") == [["3"]]
    answer = send(server, "/tap/sync", {"UPLOAD": "t,param:x", "QUERY": "SELECT n, seen FROM TAP_UPLOAD.t ORDER BY n"}, {"x": content})
    found = astropy.io.votable.parse(io.BytesIO(answer.body)).get_first_table()
    assert found.get_field_by_id_or_name("seen").xtype == "timestamp"
    assert [str(time)[:21] for time in found.array["seen"][:2]] == ["2026-11-20T10:00:00", "2026-11-20T11:30:00.5"]
    answer = requests.put(server.url("/tables/ann.times"), data=content, auth=("ann", PASSWORD), timeout=60)
    assert answer.status_code == 201, answer.text
    # More rows come into columns as they are.
    assert requests.post(server.url("/load/ann.times"), data=content, auth=("ann", PASSWORD), timeout=60).status_code == 200
    with site.connect("ann") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), MAX(seen) > '2026-11-20 11:30:00' FROM ann.times WHERE seen >= '2026-11-20 10:00:00'")
        assert list(cursor.fetchall()) == [(4, 1)]
        cursor.execute("DROP TABLE ann.times")
        cursor.execute("CREATE TABLE ann.texts (n INT, seen VARCHAR(40))")
        assert requests.post(server.url("/load/ann.texts"), data=content, auth=("ann", PASSWORD), timeout=60).status_code == 200
        cursor.execute("SELECT seen FROM ann.texts WHERE n = 1")
        assert list(cursor.fetchall()) == [("2026-11-20T11:30:00.5Z",)]
        cursor.execute("DROP TABLE ann.texts")


def test_what_is_no_time_is_told(server: Server) -> None:
    wrong = votable(SEEN.format("timestamp"), TIMES.replace("2026-11-20T10", "yesterday at 10")).encode()
    told = refused(server, wrong)
    assert "TAP_UPLOAD.t:4: row 1: " in told and "yesterday at 10:00:00" in told and "the column seen is no time" in told, told
    # A column that the query does not read is not looked at.
    assert upload(server, wrong, "SELECT MAX(n) AS n FROM TAP_UPLOAD.t") == [["3"]]


@pytest.mark.parametrize(
    "content",
    [b"id,name", b"id,name\n", b"id,name\r\n", b"\xef\xbb\xbfid,name", votable(NAMED).encode(), votable(NAMED, " ").encode(), votable(NAMED).replace("\n</TABLE>", "<DATA/></TABLE>").encode()],
    ids=["no end of line", "LF", "CR LF", "a mark", "no DATA", "no rows", "empty DATA"],
)
def test_tables_without_rows(server: Server, content: bytes) -> None:
    assert upload(server, content) == []
    assert upload(server, content, "SELECT COUNT(*) AS c, COUNT(id) AS d, COUNT(name) AS e FROM TAP_UPLOAD.t") == [["0", "0", "0"]]
    answer = send(server, "/tap/sync", {"UPLOAD": "t,param:x", "QUERY": "SELECT * FROM TAP_UPLOAD.t", "FORMAT": "csv"}, {"x": content})
    assert answer.text.strip() == "id,name"


SHAPES = (
    '<FIELD name="n" datatype="int"/><FIELD name="p" datatype="double" arraysize="2" xtype="point"/>'
    '<FIELD name="c" datatype="double" arraysize="3" xtype="circle"/><FIELD name="s" datatype="char" arraysize="*" xtype="adql:POINT"/>'
)
SHAPED = (
    "<TR><TD>1</TD><TD>10.001 0</TD><TD>30 0 15</TD><TD>Position ICRS 10 0</TD></TR>"
    "<TR><TD>2</TD><TD>-330 0.5</TD><TD>30 0 1</TD><TD/></TR>"
    "<TR><TD>3</TD><TD/><TD>1 2 -3</TD><TD/></TR>"
    "<TR><TD>4</TD><TD>10 95</TD><TD/><TD/></TR>"
)


def points(serialization: str) -> bytes:
    """The shapes as elements or as bytes."""
    text = votable(SHAPES, SHAPED)
    if serialization == "tabledata":
        return text.encode()
    document = astropy.io.votable.parse(io.BytesIO(text.encode()))
    sink = io.BytesIO()
    document.to_xml(sink, tabledata_format=serialization)
    return sink.getvalue()


@pytest.mark.parametrize("serialization", ["tabledata", "binary", "binary2"])
def test_columns_of_points_and_circles_are_geometry(server: Server, serialization: str) -> None:
    content = points(serialization)
    for query, expected in [
        ("SELECT n FROM TAP_UPLOAD.t WHERE 1 = CONTAINS(p, CIRCLE(10, 0, 1)) ORDER BY n", [["1"]]),
        ("SELECT n FROM TAP_UPLOAD.t WHERE 1 = CONTAINS(POINT(40, 0), c) ORDER BY n", [["1"]]),
        ("SELECT n, p FROM TAP_UPLOAD.t WHERE n <= 2 ORDER BY n", [["1", "10.001 0.0"], ["2", "30.0 0.5"]]),
        ("SELECT n, COORD1(p) AS a, COORD2(p) AS d FROM TAP_UPLOAD.t WHERE n = 2", [["2", "30.0", "0.5"]]),
        # Where there is no such point there is none.
        ("SELECT n FROM TAP_UPLOAD.t WHERE p IS NULL ORDER BY n", [["3"], ["4"]]),
        ("SELECT t.n, s.id FROM sky.Star AS s JOIN TAP_UPLOAD.t AS t ON DISTANCE(POINT(s.ra, s.dec), t.p) < 0.01 ORDER BY n", [["1", "1"]]),
        ("SELECT t.n, s.id FROM sky.Star AS s JOIN TAP_UPLOAD.t AS t ON 1 = CONTAINS(POINT(s.ra, s.dec), CIRCLE(t.p, 0.6)) ORDER BY n", [["1", "1"], ["2", "3"]]),
        ("SELECT t.n, COUNT(*) AS c FROM sky.Star AS s JOIN TAP_UPLOAD.t AS t ON 1 = CONTAINS(POINT(s.ra, s.dec), t.c) GROUP BY t.n ORDER BY n", [["1", "3"], ["2", "1"]]),
    ]:
        assert upload(server, content, query) == expected, query
    if serialization == "tabledata":
        assert upload(server, content, "SELECT s FROM TAP_UPLOAD.t WHERE n = 1") == [["Position ICRS 10 0"]]
    answer = send(server, "/tap/sync", {"UPLOAD": "t,param:x", "QUERY": "SELECT p FROM TAP_UPLOAD.t ORDER BY n"}, {"x": content})
    field = astropy.io.votable.parse(io.BytesIO(answer.body)).get_first_table().fields[0]
    assert (field.datatype, field.arraysize, field.xtype) == ("double", "2", "point")
    # A table that stays has no geometry: the numbers are a text.
    answer = requests.put(server.url("/tables/ann.shapes"), data=content, auth=("ann", PASSWORD), timeout=60)
    assert answer.status_code == 201, answer.text
    assert requests.delete(server.url("/tables/ann.shapes"), auth=("ann", PASSWORD), timeout=60).status_code == 204


def test_a_result_with_points_comes_back(server: Server) -> None:
    query = "SELECT id, POINT(ra, dec) AS p FROM sky.Star"
    for form in ("votable", "votable/td", "fits"):
        result = execute(server, "/tap/sync", QUERY=query, FORMAT=form).body
        found = upload(server, result, "SELECT id FROM TAP_UPLOAD.t WHERE 1 = CONTAINS(p, CIRCLE(30, 0, 15)) ORDER BY id")
        assert found == [["2"], ["3"], ["4"]], form


def test_two_columns_of_one_name_are_told(server: Server) -> None:
    columns = [astropy.io.fits.Column(name=name, format="J", array=[1, 2]) for name in ("ra", "dec", "other")]
    table = astropy.io.fits.BinTableHDU.from_columns(columns)
    sink = io.BytesIO()
    table.writeto(sink)
    for name in (b"ra   ", b"RA   "):
        content = sink.getvalue().replace(b"'other   '", b"'" + name + b"   '")
        told = refused(server, content, "SELECT dec FROM TAP_UPLOAD.t")
        assert f'its columns 1 and 3 are both called &quot;{name.decode().strip()}&quot;' in told, told
    told = refused(server, votable('<FIELD name="é" datatype="int"/><FIELD name="É" datatype="int"/>').encode())
    assert "its columns 1 and 2 are both called" in told, told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (NOISE[:5000], "it is no text, and no other table"),
        (bytes(range(256)) * 4, "it is no text, and no other table"),
        (b"<!DOCTYPE html>\n<html><head><title>404</title></head><body><br>Not found</body></html>", "it is a page of HTML"),
        (b"\n  <html><p>Not found</html>", "it is a page of HTML"),
        (b"<gpx><trk/></gpx>", "it begins with the element"),
        (b'{"rows": [[1, 2]], "columns": ["ra", "dec"]}', "it is JSON"),
        (b'[{"ra": 1, "dec": 2}]', "it is JSON"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", "it is a PDF file"),
        (b"PK\x03\x04" + bytes(100), "it is a zip file"),
        ("ra,dec\n1,2\n".encode("utf-16"), "it is a text in UTF-16: send it in UTF-8"),
        (b'<VOTABLE><INFO name="QUERY_STATUS" value="ERROR">wrong</INFO></VOTABLE>', "it has no VOTable with columns in it"),
    ],
    ids=["random", "every byte", "HTML", "HTML behind blanks", "XML", "JSON", "JSON of rows", "PDF", "zip", "UTF-16", "error"],
)
def test_what_is_no_table_is_told(server: Server, content: bytes, told: str) -> None:
    said = refused(server, content)
    assert "TAP_UPLOAD.t" in said and told in said, said
    answer = requests.put(server.url("/tables/ann.none"), data=content, auth=("ann", PASSWORD), timeout=60)
    assert answer.status_code == 400 and told in answer.text and "the table" in answer.text, answer.text


def test_texts_in_utf8_are_taken(server: Server) -> None:
    for text, expected in [
        ("[Fe/H],{x}\n-0.5,1\n", [["-0.5", "1"]]),
        ("名前\tdéc\nα\t1.5\n", [["α", "1.5"]]),
        ("id;name\n1;a {b}\n", [["1", "a {b}"]]),
        ('id,name\n1,"a\nb"\n', [["1", "a\nb"]]),
    ]:
        assert upload(server, text.encode()) == expected, text


BITS = '<FIELD name="one" datatype="bit"/><FIELD name="few" datatype="bit" arraysize="11"/>'


def test_bits_are_read(server: Server) -> None:
    """As astropy writes them in elements, and as the standard says that they are in bytes; of a single one astropy takes another bit."""
    few = [True, False, True, True, False, False, False, False, True, True, True]
    document = astropy.io.votable.parse(io.BytesIO(votable(BITS, "<TR><TD>1</TD><TD>10110000111</TD></TR><TR><TD>0</TD><TD>00000000001</TD></TR>").encode()))
    assert list(document.get_first_table().array["few"][0]) == few
    expected = [["true", "1 0 1 1 0 0 0 0 1 1 1"], ["false", "0 0 0 0 0 0 0 0 0 0 1"]]
    for serialization in ("tabledata", "binary", "binary2"):
        sink = io.BytesIO()
        document.to_xml(sink, tabledata_format=serialization)
        assert upload(server, sink.getvalue()) == expected, serialization
    # The standard's: the first bit is the most significant one.
    stream = base64.b64encode(bytes([0x80, 0xB0, 0xE0, 0x00, 0x00, 0x20])).decode()
    content = votable(BITS, "x").replace("<TABLEDATA>x</TABLEDATA>", f'<BINARY><STREAM encoding="base64">{stream}</STREAM></BINARY>')
    assert upload(server, content.encode()) == expected


SHAPES_OF_TYPE = '<FIELD name="n" datatype="int"/><FIELD name="p" datatype="{0}" arraysize="2" xtype="point"/><FIELD name="c" datatype="{0}" arraysize="3" xtype="circle"/>'


@pytest.mark.parametrize("datatype", ["float", "double"])
def test_shapes_of_floats_are_geometry(server: Server, datatype: str) -> None:
    """Only those of doubles were; DALI has both."""
    rows = "".join(f"<TR><TD>{n}</TD><TD>{10 * n + 0.5} 0.25</TD><TD>{10 * n} 0 1.5</TD></TR>" for n in range(5))
    document = astropy.io.votable.parse(io.BytesIO(votable(SHAPES_OF_TYPE.format(datatype), rows).encode()))
    near = "SELECT u.n, COORD1(u.p), s.id FROM TAP_UPLOAD.t AS u JOIN sky.Star AS s ON DISTANCE(POINT(s.ra, s.dec), u.p) < 1 WHERE 1 = CONTAINS(u.p, u.c) ORDER BY u.n"
    for serialization in ("tabledata", "binary", "binary2"):
        sink = io.BytesIO()
        document.to_xml(sink, tabledata_format=serialization)
        assert upload(server, sink.getvalue(), near) == [[str(n), str(10 * n + 0.5), str(n)] for n in range(5)], serialization
    for form in ("E", "D"):
        columns = [
            astropy.io.fits.Column("n", "J", array=np.arange(5)),
            astropy.io.fits.Column("p", f"2{form}", array=np.array([[10 * n + 0.5, 0.25] for n in range(5)])),
            astropy.io.fits.Column("c", f"3{form}", array=np.array([[10 * n, 0, 1.5] for n in range(5)])),
        ]
        table = astropy.io.fits.BinTableHDU.from_columns(columns)
        table.header["TXTYP2"], table.header["TXTYP3"] = "point", "circle"
        file = io.BytesIO()
        table.writeto(file)
        assert upload(server, file.getvalue(), near) == [[str(n), str(10 * n + 0.5), str(n)] for n in range(5)], form


def test_numbers_that_stand_for_none_may_have_fractions(server: Server) -> None:
    """VALUES were of integers alone."""
    fields = "".join(f'<FIELD name="{name}" datatype="{name}"><VALUES null="{null}"/></FIELD>' for name, null in [("int", "-99"), ("float", "-99.1"), ("double", "-99.1")])
    rows = "".join(f"<TR><TD>{a}</TD><TD>{b}</TD><TD>{c}</TD></TR>" for a, b, c in [("-99", "-99.1", "-99.1"), ("99", "-99.10", "99.1")])
    assert upload(server, votable(fields, rows).encode()) == [["", "", ""], ["99", "", "99.1"]]


def test_nobody_is_told_of_options_of_the_command_line(server: Server) -> None:
    """TAP has none of them."""
    lists = io.BytesIO()
    pq.write_table(pa.table({"id": [1], "few": [[1, 2]]}), lists)
    structures = io.BytesIO()
    pq.write_table(pa.table({"id": [1], "both": [{"a": 1}]}), structures)
    for content, words in [
        (lists.getvalue(), "a list of BIGINT: a table holds plain values only"),
        (structures.getvalue(), "a structure: a table holds plain values only"),
        (b"a,A\n1,2\n", "names the column"),
        (b",a,b\n0,1,2\n1,3,4\n2,5,6\n", "give every column a name"),
        (b"", "is empty"),
    ]:
        said = refused(server, content)
        assert words in said and "--" not in said and "curl" not in said and "Int64" not in said, said
