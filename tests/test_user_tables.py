"""Tables of users' own over HTTP, as curl and pyvo send them: made, filled, dropped, and what becomes of mistakes."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import re
from collections.abc import Iterator

import astropy.table
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pyvo
import requests
from pyvo.utils.prototype import activate_features

from meridian_cli import Meridian
from serving import Server, serving
from small_tables import load_stars_and_bands
from test_users import PASSWORD, Site, must

ROWS = 1000


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ann and Bob may read the database sky."""
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("http_tables"), 400)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
        must(meridian, data, "grant", name, "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


@pytest.fixture
def session(site: Site) -> Iterator[requests.Session]:
    """Ann's requests; her tables are dropped afterwards."""
    with requests.Session() as session:
        session.auth = ("ann", PASSWORD)
        yield session
        with site.connect("ann") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'ann'")
            for (table,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE ann.`{table}`")


def stars() -> astropy.table.Table:
    rng = np.random.default_rng(4)
    return astropy.table.Table({"id": np.arange(ROWS), "ra": rng.uniform(0, 360, ROWS), "dec": rng.uniform(-90, 90, ROWS), "name": [f"s{n}" for n in range(ROWS)]})


def as_bytes(table: astropy.table.Table, form: str) -> bytes:
    """The table as a file."""
    if form == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.table({name: list(table[name]) for name in table.colnames}), sink)
        return sink.getvalue()
    if form in ("csv", "tsv"):
        text = io.StringIO()
        table.write(text, format="ascii.csv" if form == "csv" else "ascii.tab")
        return text.getvalue().encode()
    binary = io.BytesIO()
    table.write(binary, format=form)
    return binary.getvalue()


def execute(site: Site, statement: str, user: str = "ann") -> list[tuple[object, ...]]:
    with site.connect(user) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.mark.parametrize("base", ["/tables", "/tap/tables"])
@pytest.mark.parametrize("form", ["csv", "parquet", "fits", "votable"])
def test_a_file_becomes_a_table(site: Site, session: requests.Session, form: str, base: str) -> None:
    table = stars()
    answer = session.put(site.server.url(f"{base}/ann.mine"), data=as_bytes(table, form))
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"table": "ann.mine", "rows_added": ROWS} and answer.headers["Location"] == "/tap/tables/ann.mine"
    assert execute(site, "SELECT COUNT(*), SUM(id), MIN(name), MAX(ra) FROM ann.mine") == [(ROWS, sum(range(ROWS)), "s0", float(max(table["ra"])))]
    # It has positions, at every protocol.
    assert execute(site, "SELECT COUNT(*) FROM crossmatch(ann.mine, ann.mine, 0.1)") == [(ROWS,)]
    assert session.put(site.server.url(f"{base}/ann.mine"), data=b"a\n1\n").status_code == 409
    assert session.delete(site.server.url(f"{base}/ann.mine")).status_code == 204
    assert session.delete(site.server.url(f"{base}/ann.mine")).status_code == 404
    assert session.get(site.server.url("/tap/tables/ann.mine")).status_code == 404


def test_pyvo_makes_fills_and_removes_a_table(site: Site, session: requests.Session) -> None:
    activate_features("cadc-tb-upload")
    service = pyvo.dal.TAPService(site.server.url("/tap"), session=session)
    definition = b"""<vosi:table xmlns:vosi="http://www.ivoa.net/xml/VOSITables/v1.0" xmlns:vod="http://www.ivoa.net/xml/VODataService/v1.1"
        xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><name>ann.list</name>
        <column><name>id</name><dataType xsi:type="vod:VOTableType">long</dataType></column>
        <column><name>ra</name><dataType xsi:type="vod:VOTableType">double</dataType></column>
        <column><name>dec</name><dataType xsi:type="vod:VOTableType">double</dataType></column>
        <column><name>name</name><dataType xsi:type="vod:VOTableType" arraysize="*">char</dataType></column></vosi:table>"""
    service.create_table("ann.list", io.BytesIO(definition))
    assert len(service.search("SELECT * FROM ann.list")) == 0
    table = stars()
    for form, pyvo_name in (("tsv", "tsv"), ("csv", "csv"), ("fits", "FITSTable")):
        service.load_table("ann.list", io.BytesIO(as_bytes(table, form)), format=pyvo_name)
    found = service.search("SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS d, MAX(ra) AS m FROM ann.list").to_table()
    assert (found["n"][0], found["d"][0], found["m"][0]) == (3 * ROWS, ROWS, max(table["ra"]))
    joined = service.search("SELECT COUNT(*) AS n FROM ann.list AS l JOIN sky.Star AS s ON l.id = s.id").to_table()
    assert joined["n"][0] == 3 * 400
    with pytest.raises(RuntimeError, match="501"):
        service.create_index("ann.list", "id")
    service.remove_table("ann.list")
    with pytest.raises(pyvo.dal.DALQueryError):
        service.search("SELECT * FROM ann.list")


def test_rows_are_added_by_the_names_of_columns(site: Site, session: requests.Session) -> None:
    session.put(site.server.url("/tables/ann.t"), data=b"id,a,b\n1,x,0.5\n")
    answer = session.post(site.server.url("/load/ann.t"), data=b"b,ID\n1.5,2\n,3\n")
    assert answer.status_code == 200 and answer.json()["rows_added"] == 2, answer.text
    assert execute(site, "SELECT * FROM ann.t ORDER BY id") == [(1, "x", 0.5), (2, None, 1.5), (3, None, None)]
    for content, status, sentence in (
        (b"id,nothing\n1,2\n", 400, "has no column nothing"),
        (b"id\nmany\n", 400, "the table, line 2: "),
        (b"", 400, "is empty"),
        (b"<VOTABLE><RESOURCE>", 400, "the table"),
        (b"SIMPLE  = nonsense", 400, "the table"),
    ):
        answer = session.post(site.server.url("/load/ann.t"), data=content)
        assert answer.status_code in (status, 400) and sentence in answer.text, answer.text
        assert "/tmp" not in answer.text, answer.text
    assert session.post(site.server.url("/load/ann.none"), data=b"id\n1\n").status_code == 404
    assert execute(site, "SELECT COUNT(*) FROM ann.t") == [(3,)]


def test_rows_of_a_text_have_the_types_of_the_table(site: Site, session: requests.Session) -> None:
    with site.connect("ann") as ann:
        ann.cursor().execute("CREATE TABLE ann.h (id BIGINT, s VARCHAR(40), y DATE, t DATETIME, d DOUBLE, n DECIMAL(20,4))")
    for id, (column, value, expected) in enumerate(
        [
            ("s", "007", "007"),
            ("s", "1.50", "1.50"),
            ("s", "1e5", "1e5"),
            ("s", "+5", "+5"),
            ("s", "nan", "nan"),
            ("n", "1234567890123456.7891", decimal.Decimal("1234567890123456.7891")),
            ("d", "", None),
            ("n", "", None),
            ("y", "", None),
            ("y", "2010-01-02", datetime.date(2010, 1, 2)),
        ]
    ):
        answer = session.post(site.server.url("/load/ann.h"), data=f"id,{column}\n{id},{value}\n".encode())
        assert answer.status_code == 200, (column, value, answer.text)
        assert execute(site, f"SELECT {column} FROM ann.h WHERE id = {id}") == [(expected,)], (column, value)
    count = execute(site, "SELECT COUNT(*) FROM ann.h")
    for wrong in (b"id\n2010-01-02\n", b"id,y\n1,20101399\n", b"id,d\n1,2010-01-02 03:04:05\n", b"id,n\n1,many\n"):
        answer = session.post(site.server.url("/load/ann.h"), data=wrong)
        assert answer.status_code == 400 and "the table, line 2: " in answer.text, (wrong, answer.text)
    assert execute(site, "SELECT COUNT(*) FROM ann.h") == count
    session.delete(site.server.url("/tables/ann.h"))


def test_whose_tables_they_are(site: Site, session: requests.Session) -> None:
    session.put(site.server.url("/tables/ann.t"), data=b"id\n1\n")
    for method, path in (("PUT", "/tables/ann.other"), ("PUT", "/tables/sky.t"), ("POST", "/load/ann.t"), ("POST", "/load/sky.Star"), ("DELETE", "/tables/ann.t"), ("DELETE", "/tap/tables/sky.Star")):
        answer = requests.request(method, site.server.url(path), data=b"id\n1\n", auth=("bob", PASSWORD), timeout=30)
        assert answer.status_code == 403 and "your own database" in answer.text, (method, path, answer.text)
        assert requests.request(method, site.server.url(path), data=b"id\n1\n", timeout=30).status_code == 401
    # A name without a database is in one's own.
    assert session.put(site.server.url("/tables/plain"), data=b"id\n1\n").status_code == 201
    assert execute(site, "SELECT * FROM ann.plain") == [(1,)]
    # A page of another site cannot.
    answer = session.put(site.server.url("/tables/ann.page"), data=b"id\n1\n", headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == 403 and "elsewhere.example" in answer.text


def test_limits_count(site: Site, session: requests.Session) -> None:
    must(site.meridian, site.data, "limit", "ann", "--stored", "10kB")
    try:
        answer = session.put(site.server.url("/tables/ann.large"), data=as_bytes(stars(), "csv"))
        assert answer.status_code == 400 and re.search(r"of 10\d* bytes|of 10240 bytes|of 10000 bytes", answer.text), answer.text
        assert execute(site, "SHOW TABLES FROM ann") == []
    finally:
        must(site.meridian, site.data, "limit", "ann", "--stored", "none")
    assert session.put(site.server.url("/tables/ann.large"), data=as_bytes(stars(), "csv")).status_code == 201
    stored = {limit["name"]: limit["used"] for limit in json.loads(session.get(site.server.url("/me")).text)["limits"]}["stored"]
    assert stored > 10_000


def test_without_users_there_are_none(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("open"), 20)
    with serving(meridian, data) as server:
        assert_refused(server)


def assert_refused(server: Server) -> None:
    for method, path in (("PUT", "/tables/sky.t"), ("POST", "/load/sky.Band"), ("DELETE", "/tables/sky.Band")):
        answer = requests.request(method, server.url(path), data=b"id\n1\n", timeout=30)
        assert answer.status_code == 400 and "meridian load" in answer.text, answer.text
