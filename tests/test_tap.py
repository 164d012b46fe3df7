"""The Table Access Protocol: what is there, queries, jobs, what is said of mistakes, and that real clients work with it."""

from __future__ import annotations

import csv
import io
import random
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

import astropy.io.fits
import astropy.io.votable
import astropy.table
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pyvo

from complaints import assert_rejected
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from test_cone_search import head_and_trailers
from test_users import must

STARS = 3_000
UWS = "{http://www.ivoa.net/xml/UWS/v1.0}"
ODD_NAMES = ["size", "g-mag", "Étoile"]


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of each kind: stars, their sources, pairs of stars and galaxies, and filters whose columns have odd names."""
    directory = tmp_path_factory.mktemp("tap")
    data: Path = directory / "data"
    rng = random.Random(5)

    def load(table: str, header: str, rows: list[tuple[object, ...]], *options: object) -> None:
        file = directory / f"{table}.csv"
        with file.open("w", newline="") as opened:
            writer = csv.writer(opened)
            writer.writerow(header.split(","))
            writer.writerows(rows)
        meridian.must("load", "--data", data, "--db", "sky", "--table", table, *options, file)

    places = [(rng.uniform(0, 360), rng.uniform(-80, 80)) for _ in range(STARS)]
    stars = [(n, ra, dec, rng.choice(["", rng.random()]), f"star <{n}> & é", "2026-01-02 03:04:05", n % 2 == 0) for n, (ra, dec) in enumerate(places)]
    load("Star", "id,ra,dec,flux,name,seen,good", stars, "--key", "id", "--ra", "ra", "--dec", "dec")
    galaxies = [(n, ra, dec + 1e-4) for n, (ra, dec) in enumerate(places[:500])]
    load("Galaxy", "galaxy,ra,dec", galaxies, "--key", "galaxy", "--ra", "ra", "--dec", "dec")
    sources = [(n, n % STARS, places[n % STARS][0], places[n % STARS][1], rng.random()) for n in range(2 * STARS)]
    load("Source", "sourceId,id,ra,dec,flux", sources, "--director", "Star", "--key", "id", "--own-key", "sourceId", "--ra", "ra", "--dec", "dec")
    pairs = [(n, n, 0.36) for n in range(500)]
    load("Pairs", "star,galaxy,separation", pairs, "--kind", "match", "--director", "Star,Galaxy", "--key", "star,galaxy")
    load("Filter", ",".join(ODD_NAMES), [(1, 2.5, "α"), (2, 3.5, "β")], "--kind", "replicated")
    return data


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of these tables."""
    with serving(meridian, data) as running:
        yield running


@pytest.fixture(scope="module")
def service(server: Server) -> pyvo.dal.TAPService:
    """The service as pyvo knows it."""
    return pyvo.dal.TAPService(server.url("/tap"))


class HttpResponse:
    """A response."""

    def __init__(self, response: object, body: bytes) -> None:
        self.status: int = response.status  # type: ignore[attr-defined]
        self.headers = response.headers  # type: ignore[attr-defined]
        self.url: str = response.geturl()  # type: ignore[attr-defined]
        self.body = body
        self.text = body.decode(errors="replace")


def execute(server: Server, path: str, form: dict[str, object] | None = None, method: str | None = None, **parameters: object) -> HttpResponse:
    """A request, with a form by POST; redirections are followed."""
    body = urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(server.url(path, **parameters), data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return HttpResponse(response, response.read())
    except urllib.error.HTTPError as error:
        return HttpResponse(error, error.read())


def rows_of(text: str) -> list[list[str]]:
    """The rows of a CSV, without its header."""
    return list(csv.reader(io.StringIO(text)))[1:]


def error_of(answer: HttpResponse) -> str:
    """The sentence of an error document."""
    found = re.search(r'value="ERROR">(.*?)</INFO>', answer.text, re.DOTALL)
    assert found is not None, answer.text
    return found.group(1)


def taplint(server: Server, *options: str) -> str:
    """What STILTS's checker says in all stages but that which needs other networks. There is no error in it."""
    program = shutil.which("stilts")
    assert program is not None, "stilts is missing: scripts/setup tests installs it"
    stages = "TMV TME TMS TMC CPV CAP AVV QGE QPO QAS UWS MDQ OBS UPL EXA"
    command = [program, *options, "taplint", f"tapurl={server.url('/tap')}", f"stages={stages}", "report=EWSF", "maxrepeat=5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "Errors: 0;" in done.stdout, done.stdout + done.stderr
    assert not re.search(r"^E-", done.stdout, re.MULTILINE), done.stdout
    return done.stdout


def assert_all_is_read(report: str) -> None:
    """No warning of metadata; and every query of the examples is executed, and read by its grammar."""
    assert not re.search(r"^W-MDQ", report, re.MULTILINE), report
    assert re.search(r"Syntax validity success/attempt: (\d+)/\1, ", report), report
    assert re.search(r"Execution success/attempt: (\d+)/\1$", report, re.MULTILINE), report


def test_taplint_finds_no_error(server: Server) -> None:
    """And no warning but that texts come back in Unicode."""
    assert_all_is_read(taplint(server))


def test_taplint_finds_no_error_where_users_log_in(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Who logs in may read it all; whoever does not is let in nowhere."""
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    password = "no-shell-reads-this"
    must(meridian, copy, "add", "ann", password=password)
    must(meridian, copy, "grant", "ann", "--read", "sky")
    with serving(meridian, copy) as server:
        login = ["-Dstar.basicauth.user=ann", f"-Dstar.basicauth.password={password}"]
        assert_all_is_read(taplint(server, *login))
        assert execute(server, "/tap/sync", {"LANG": "ADQL", "QUERY": "SELECT 1 AS a FROM sky.Filter"}).status == 401


# An expression or a query for everything of the language that the service declares, by its first word.
FEATURES = {
    "AREA": "AREA(CIRCLE(1, 2, 3))",
    "BOX": "COORD1(CENTROID(BOX(1, 2, 3, 4)))",
    "CENTROID": "COORD2(CENTROID(CIRCLE(1, 2, 3)))",
    "CIRCLE": "CONTAINS(POINT(1, 2), CIRCLE(1, 2, 3))",
    "CONTAINS": "CONTAINS(POINT(ra, dec), CIRCLE(1, 2, 3))",
    "COORD1": "COORD1(POINT(ra, dec))",
    "COORD2": "COORD2(POINT(ra, dec))",
    "COORDSYS": "COORDSYS(POINT('ICRS', ra, dec))",
    "DISTANCE": "DISTANCE(ra, dec, 3, 4) + DISTANCE(POINT(ra, dec), POINT(3, 4))",
    "INTERSECTS": "INTERSECTS(CIRCLE(1, 2, 3), POLYGON(1, 2, 3, 4, 5, 1))",
    "POINT": "CONTAINS(POINT('ICRS', ra, dec), BOX(1, 2, 3, 4))",
    "POLYGON": "CONTAINS(POINT(ra, dec), POLYGON(1, 2, 3, 4, 5, 1))",
    "REGION": "CONTAINS(POINT(ra, dec), REGION('Circle ICRS 1 2 3'))",
    "LOWER": "LOWER(name)",
    "UPPER": "UPPER(name)",
    "ILIKE": "SELECT name FROM sky.Star WHERE name ILIKE 'STAR%'",
    "UNION": "SELECT id FROM sky.Star UNION SELECT galaxy FROM sky.Galaxy",
    "EXCEPT": "SELECT id FROM sky.Star EXCEPT SELECT galaxy FROM sky.Galaxy",
    "INTERSECT": "SELECT id FROM sky.Star INTERSECT SELECT galaxy FROM sky.Galaxy",
    "WITH": "WITH s AS (SELECT id FROM sky.Star) SELECT COUNT(*) AS n FROM s",
    "COALESCE": "COALESCE(flux, 1)",
    "CAST": "CAST(flux AS INTEGER)",
    "OFFSET": "SELECT id FROM sky.Star ORDER BY id OFFSET 5",
    "ivo_healpix_index": "ivo_healpix_index(6, ra, dec)",
    "ivo_healpix_center": "COORD1(ivo_healpix_center(6, 5))",
    "ivo_to_jd": "ivo_to_jd(seen)",
    "ivo_to_mjd": "ivo_to_mjd(seen)",
    "ivo_nocasematch": "ivo_nocasematch(name, 'STAR')",
    "ivo_hasword": "ivo_hasword(name, 'star')",
    "ivo_hashlist_has": "ivo_hashlist_has('a#b', 'b')",
    "ivo_string_agg": "ivo_string_agg(name, ',')",
    "ivo_interval_overlaps": "ivo_interval_overlaps(1, 2, 1.5, 3)",
    "scisql_angSep": "scisql_angSep(ra, dec, 1, 2)",
    "scisql_fluxToAbMag": "scisql_fluxToAbMag(flux)",
    "scisql_abMagToFlux": "scisql_abMagToFlux(20)",
    "IN_UNIT": "IN_UNIT(ra, 'arcsec')",
    "scisql_nanojanskyToAbMag": "scisql_nanojanskyToAbMag(flux)",
    "scisql_abMagToNanojansky": "scisql_abMagToNanojansky(20)",
}


def test_what_is_declared_can_be_done(server: Server) -> None:
    """Every form of the capabilities is executed in a query, and every format of results is written."""
    document = ElementTree.fromstring(execute(server, "/tap/capabilities").text)
    forms = [form.text or "" for form in document.iter("form")]
    declared = {re.split(r"\W", form)[0] for form in forms}
    assert declared == set(FEATURES) and len(forms) == len(declared)
    # In the capitals of TAPRegExt's own identifier, but for a group that STILTS would reject there.
    groups = [str(group.get("type")).split("#features-") for group in document.iter("languageFeatures")]
    assert {name for standard, name in groups if standard != "ivo://ivoa.net/std/TAPRegExt"} == {"adql-conditional"}
    for name, text in FEATURES.items():
        query = text if text.startswith(("SELECT", "WITH")) else f"SELECT {text} AS x FROM sky.Star WHERE flux > 0"
        found = execute(server, "/tap/sync", QUERY=query, FORMAT="csv")
        assert found.status == 200 and rows_of(found.text), f"{name}: {found.text}"
    for form in document.iter("outputFormat"):
        for name in [form.findtext("mime"), form.findtext("alias")]:
            answer = execute(server, "/tap/sync", QUERY="SELECT TOP 1 id FROM sky.Star", FORMAT=name)
            assert answer.status == 200, f"{name}: {answer.text}"


def test_pyvo_browses_and_asks(service: pyvo.dal.TAPService) -> None:
    """Tables with their columns, a synchronous query with a quoted name, and a count over a region."""
    tables = service.tables
    assert {"sky.Star", "sky.Source", "sky.Pairs", "sky.Filter", "TAP_SCHEMA.columns"} <= set(tables.keys())
    star = {column.name: column for column in tables["sky.Star"].columns}
    assert star["ra"].unit == "deg" and star["ra"].ucd == "pos.eq.ra;meta.main"
    assert [column.name for column in tables["sky.Filter"].columns] == ['"size"', '"g-mag"', '"Étoile"']
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = service.search('SELECT f."size", f."g-mag", f."Étoile" FROM sky.Filter AS f ORDER BY 1').to_table()
    assert [tuple(row) for row in found] == [(1, 2.5, "α"), (2, 3.5, "β")]
    count = service.search("SELECT COUNT(*) AS n FROM sky.Star WHERE 1 = CONTAINS(POINT(ra, dec), CIRCLE(180, 0, 60))")
    assert 0 < count["n"][0] < STARS


def test_pyvo_runs_jobs(server: Server, service: pyvo.dal.TAPService) -> None:
    """A job from its making to its deletion, with its result; and one whose query is wrong, which fails when it runs."""
    job = service.submit_job("SELECT COUNT(*) AS n FROM sky.Source", runid="night 7")
    assert job.phase == "PENDING"
    job.run()
    job.wait(phases=["COMPLETED", "ERROR"], timeout=60)
    assert job.phase == "COMPLETED"
    assert job.fetch_result()["n"][0] == 2 * STARS
    assert job.url in [f"{service.baseurl}/async/{listed.jobid}" for listed in service.get_job_list(phases=["COMPLETED"])]
    number = job.url.rsplit("/", 1)[1]
    job.delete()
    assert execute(server, f"/tap/async/{number}").status == 404
    wrong = service.submit_job("SELECT nothing FROM sky.Star")
    wrong.run()
    wrong.wait(phases=["COMPLETED", "ERROR"], timeout=60)
    assert wrong.phase == "ERROR"
    with pytest.raises(pyvo.dal.DALQueryError, match="there is no column nothing"):
        wrong.raise_if_error()


@pytest.mark.parametrize("form", ["votable", "votable/td", "csv", "tsv", "json"])
@pytest.mark.parametrize("limit", [STARS - 1, STARS, STARS + 1])
def test_what_is_cut_off_is_said(server: Server, form: str, limit: int) -> None:
    """One row less than there are, as many, and one more: in the formats that have a place for it, and in the number of rows."""
    answer = execute(server, "/tap/sync", {"QUERY": "SELECT id FROM sky.Star", "RESPONSEFORMAT": form, "MAXREC": limit})
    cut = limit < STARS
    if form == "votable":
        table = astropy.io.votable.parse(io.BytesIO(answer.text.encode())).get_first_table()
        assert len(table.array) == min(limit, STARS)
    elif form in ("csv", "tsv"):
        assert len(answer.text.splitlines()) == min(limit, STARS) + 1
        assert (answer.headers.get("Meridian-Overflow") == "true") == cut
    if form.startswith("votable"):
        assert ('value="OVERFLOW"' in answer.text) == cut
        # A result is only called whole where it is.
        assert answer.text.index("QUERY_STATUS") < answer.text.index("<TABLE")
    elif form == "json":
        assert ("overflow" in answer.text.lower()) == cut


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_a_large_text_has_a_trailer_where_rows_were_cut_off(server: Server, form: str) -> None:
    """It had no place for it. Clients that take no trailers see none."""
    query = "SELECT a.id, a.ra, b.ra AS other FROM sky.Star AS a, sky.Star AS b"
    limited = {"QUERY": query, "FORMAT": form, "MAXREC": 80_000}
    head, trailers = head_and_trailers(server, "/tap/sync", **limited)
    assert "trailer: meridian-overflow" in head and "\r\nmeridian-overflow" not in head
    assert trailers == "meridian-overflow: true"
    answer = execute(server, "/tap/sync", **limited)
    assert len(answer.text.splitlines()) == 80_001 and "Trailer" not in answer.headers
    job = job_of(server, PHASE="RUN", **limited)
    wait_until(lambda: text_of(server, f"{job}/phase") == "COMPLETED", 60, "the job is completed")
    head, trailers = head_and_trailers(server, f"{job}/results/result")
    assert "\r\nmeridian-overflow: true" in head or trailers == "meridian-overflow: true"
    # A result that is known to be whole has none.
    head, trailers = head_and_trailers(server, "/tap/sync", QUERY=query.replace("SELECT", "SELECT TOP 80000"), FORMAT=form, MAXREC=80_000)
    assert "trailer: meridian-overflow" in head and not trailers


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("text/csv;header=present;charset=utf-8", "text/csv"),
        ("text/csv; charset=UTF-8", "text/csv"),
        ('text/tab-separated-values; header="present"', "text/tab-separated-values"),
        ('application/x-votable+xml; serialization="TABLEDATA"', "application/x-votable+xml;serialization=tabledata"),
        ("application/x-votable+xml;charset=utf-8", "application/x-votable+xml"),
        ("application/json; charset=utf-8", "application/json"),
    ],
)
def test_media_types_may_have_parameters(server: Server, given: str, told: str) -> None:
    """What the service says of its own results was refused."""
    for name in ("RESPONSEFORMAT", "FORMAT"):
        answer = execute(server, "/tap/sync", {"QUERY": "SELECT id FROM sky.Star WHERE id = 1", name: given})
        assert answer.status == 200, answer.text
        media_type = answer.headers["Content-Type"]
        assert media_type.startswith(told) and ("tabledata" in media_type) == ("tabledata" in told)
        again = execute(server, "/tap/sync", {"QUERY": "SELECT id FROM sky.Star WHERE id = 1", name: media_type})
        assert again.status == 200 and again.headers["Content-Type"] == media_type
    refused = execute(server, "/tap/sync", {"QUERY": "SELECT 1", "FORMAT": "text/csv;header=absent"})
    assert refused.status == 400 and "it is one of votable" in error_of(refused)


def test_infinities_are_spelled_as_in_the_standard(server: Server) -> None:
    """As `inf` STILTS read them as blanks. What is written is read again, as an upload."""
    rows = [["1", "inf"], ["2", "-inf"], ["3", "1.5"], ["4", ""]]
    table = "n,x\n" + "".join(f"{n},{x}\n" for n, x in rows)
    fields = {"QUERY": "SELECT n, x FROM TAP_UPLOAD.mine ORDER BY n", "UPLOAD": "mine,param:f"}
    written = send(server, "/tap/sync", {**fields, "FORMAT": "votable/td"}, {"f": table.encode()})
    assert written.status == 200, written.text
    cells = re.findall(r"<TD>(.*?)</TD>", written.text)
    assert cells == ["1", "+Inf", "2", "-Inf", "3", "1.5", "4", ""]
    again = send(server, "/tap/sync", {**fields, "FORMAT": "csv"}, {"f": written.body})
    assert rows_of(again.text) == rows
    point = '<FIELD name="p" datatype="double" arraysize="2"/><DATA><TABLEDATA><TR><TD>+Inf -Inf</TD></TR></TABLEDATA></DATA>'
    document = f'<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3"><RESOURCE><TABLE>{point}</TABLE></RESOURCE></VOTABLE>'
    listed = send(server, "/tap/sync", {"QUERY": "SELECT p FROM TAP_UPLOAD.mine", "UPLOAD": "mine,param:f", "FORMAT": "votable/td"}, {"f": document.encode()})
    assert re.findall(r"<TD>(.*?)</TD>", listed.text) == ["+Inf -Inf"]


def test_no_rows_are_wanted(server: Server) -> None:
    """MAXREC=0 asks for the columns alone."""
    answer = execute(server, "/tap/sync", QUERY="SELECT id, name FROM sky.Star", MAXREC=0, FORMAT="votable/td")
    assert answer.text.count("<FIELD") == 2 and "<TR>" not in answer.text


@pytest.mark.parametrize(
    ("parameters", "status", "sentence"),
    [
        ({}, 400, "QUERY is missing"),
        ({"QUERY": "SELECT 1", "LANG": "PQL"}, 400, "LANG is PQL: it is one of ADQL"),
        ({"QUERY": "SELECT 1", "FORMAT": "xls"}, 400, "RESPONSEFORMAT is xls: it is one of"),
        ({"QUERY": "SELECT 1", "MAXREC": "many"}, 400, "MAXREC is no whole number of rows: many"),
        ({"QUERY": "SELECT 1", "UPLOAD": "t,param:f"}, 400, "UPLOAD names the part f, which the request does not have"),
        ({"QUERY": "SELECT 1", "UPLOAD": "t"}, 400, "UPLOAD is t: send the table in the request"),
        ({"QUERY": "SELECT 1", "UPLOAD": "t,http://127.0.0.1/x.vot"}, 400, "127.0.0.1 is not on the public network"),
        ({"QUERY": "SELECT 1", "UPLOAD": "t,file:///etc/passwd"}, 400, "file is not fetched, only http and https"),
        ({"QUERY": "SELECT * FROM TAP_UPLOAD.t"}, 404, "no table was uploaded with this statement"),
        ({"QUERY": "SELECT * FROM read_csv('/etc/passwd')"}, 400, "read_csv"),
        ({"QUERY": "SELECT FROM"}, 400, "expected an expression, found: from"),
        ({"QUERY": "SELECT flx FROM sky.Star"}, 400, "there is no column flx; did you mean flux?"),
        ({"QUERY": "SELECT 1 FROM sky.Nothing"}, 404, "nothing"),
        ({"QUERY": "DROP TABLE sky.Star"}, 400, "quer"),
    ],
)
def test_mistakes_are_documents(server: Server, parameters: dict[str, object], status: int, sentence: str) -> None:
    """A VOTable with the sentence and no table, and the status for programs."""
    answer = execute(server, "/tap/sync", parameters)
    assert answer.status == status, answer.text
    assert sentence.lower() in error_of(answer).lower()
    assert "<TABLE" not in answer.text
    assert answer.headers["Content-Type"].startswith("application/x-votable+xml")


def test_forms_of_another_type_are_refused(server: Server) -> None:
    for media_type, body, status, sentence in (
        ("application/json", b"{}", 415, "send the parameters as a form"),
        ("multipart/form-data", b"--x", 400, "the form cannot be read"),
        ("multipart/form-data; boundary=x", b"--x", 400, "the form cannot be read"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n", 400, "has no name"),
    ):
        request = urllib.request.Request(server.url("/tap/sync"), data=body, headers={"Content-Type": media_type})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code == status and sentence in refused.value.read().decode()


def send(server: Server, path: str, fields: dict[str, object], files: dict[str, bytes], *, typed: bool = True) -> HttpResponse:
    """A request with a form of several parts."""
    parts = []
    for name, value in fields.items():
        parts.append(f'--b0undary\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode())
    for name, content in files.items():
        head = f'--b0undary\r\nContent-Disposition: form-data; name="{name}"'
        head += f'; filename="{name}.bin"\r\nContent-Type: application/octet-stream' if typed else ""
        parts.append(f"{head}\r\n\r\n".encode() + content + b"\r\n")
    body = b"".join([*parts, b"--b0undary--\r\n"])
    request = urllib.request.Request(server.url(path), data=body, headers={"Content-Type": "multipart/form-data; boundary=b0undary"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return HttpResponse(response, response.read())
    except urllib.error.HTTPError as error:
        return HttpResponse(error, error.read())


def places_of(server: Server) -> list[tuple[int, float, float]]:
    """Some stars, each moved by half an arcsecond, and places without one."""
    rows = rows_of(execute(server, "/tap/sync", QUERY="SELECT id, ra, dec FROM sky.Star WHERE id < 200 ORDER BY id", FORMAT="csv").text)
    stars = [(int(number), float(ra), float(dec) + 0.5 / 3600) for number, ra, dec in rows]
    return stars + [(1000 + n, 10.0 * n, 89.5) for n in range(30)]


def as_csv(rows: list[tuple[int, float, float]]) -> bytes:
    return "".join(["n,ra,dec\n", *(f"{n},{ra!r},{dec!r}\n" for n, ra, dec in rows)]).encode()


def as_parquet(rows: list[tuple[int, float, float]]) -> bytes:
    sink = io.BytesIO()
    columns = list(zip(*rows, strict=True))
    pq.write_table(pa.table(dict(zip(("n", "ra", "dec"), columns, strict=True))), sink)
    return sink.getvalue()


def as_votable(rows: list[tuple[int, float, float]], tabledata_format: str = "tabledata") -> bytes:
    table = astropy.table.Table(rows=rows, names=("n", "ra", "dec"))
    document = astropy.io.votable.from_table(table)
    sink = io.BytesIO()
    document.to_xml(sink, tabledata_format=tabledata_format)
    return sink.getvalue()


def as_fits(rows: list[tuple[int, float, float]]) -> bytes:
    sink = io.BytesIO()
    astropy.table.Table(rows=rows, names=("n", "ra", "dec")).write(sink, format="fits")
    return sink.getvalue()


def test_carriage_returns_are_read_from_elements(server: Server) -> None:
    """A reader of XML takes one that is no reference for the end of a line."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": [1], "t": ["a\r\nb\rc<"]}), sink)
    fields: dict[str, object] = {"UPLOAD": "mine,param:x", "QUERY": "SELECT n, t FROM TAP_UPLOAD.mine"}
    for form in ("votable/td", "votable"):
        answer = send(server, "/tap/sync", {**fields, "FORMAT": form}, {"x": sink.getvalue()})
        table = astropy.io.votable.parse_single_table(io.BytesIO(answer.body)).to_table()
        assert list(table["t"]) == ["a\r\nb\rc<"], form


NEAREST = (
    "SELECT u.n, s.id FROM TAP_UPLOAD.mine AS u JOIN sky.Star AS s ON DISTANCE(POINT(s.ra, s.dec), POINT(u.ra, u.dec)) < 0.0003 ORDER BY u.n"
)


def read_file(content: bytes, form: str) -> tuple[astropy.table.Table, bool]:
    """A result in the format of a file, and whether it says that rows were cut off."""
    if form == "fits":
        with astropy.io.fits.open(io.BytesIO(content)) as file:
            return astropy.table.Table.read(file[1]), bool(file[1].header.get("OVERFLOW", False))
    metadata = pq.read_metadata(io.BytesIO(content)).metadata
    table = pq.read_table(io.BytesIO(content))
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return astropy.table.Table(columns), metadata.get(b"overflow") == b"true"


@pytest.mark.parametrize(("form", "media_type"), [("fits", "application/fits"), ("parquet", "application/vnd.apache.parquet")])
@pytest.mark.parametrize("limit", [None, 99, 100, 101])
def test_results_are_files(server: Server, form: str, media_type: str, limit: int | None) -> None:
    """In sync and in jobs, with their units, cut off exactly where they are."""
    query = "SELECT id, ra, dec, name FROM sky.Star WHERE id < 100 ORDER BY id"
    limited = {} if limit is None else {"MAXREC": limit}
    expected = rows_of(execute(server, "/tap/sync", QUERY=query, FORMAT="csv", **limited).text)
    answer = execute(server, "/tap/sync", QUERY=query, RESPONSEFORMAT=form, **limited)
    assert answer.status == 200 and answer.headers["Content-Type"] == media_type, answer.text
    job = job_of(server, QUERY=query, RESPONSEFORMAT=media_type, PHASE="RUN", **limited)
    wait_until(lambda: text_of(server, f"{job}/phase") == "COMPLETED", 20, "the job is completed")
    for content in (answer.body, execute(server, f"{job}/results/result").body):
        table, is_cut_off = read_file(content, form)
        assert is_cut_off == (limit == 99)
        assert [[str(int(row["id"])), float(row["ra"]), float(row["dec"])] for row in table] == [[row[0], float(row[1]), float(row[2])] for row in expected]
    if form == "fits":
        assert table["ra"].unit == "deg"


@pytest.mark.parametrize("form", ["csv", "parquet", "fits", "tabledata", "binary", "binary2"])
def test_uploaded_tables_are_joined(server: Server, form: str) -> None:
    """In every format, and in every place of a query."""
    rows = places_of(server)
    content = {"csv": as_csv, "parquet": as_parquet, "fits": as_fits}.get(form, lambda rows: as_votable(rows, form))(rows)
    files = {"table1": content}
    fields: dict[str, object] = {"UPLOAD": "mine,param:table1", "FORMAT": "csv", "LANG": "ADQL"}
    answer = send(server, "/tap/sync", {**fields, "QUERY": NEAREST}, files)
    assert answer.status == 200, answer.text
    assert rows_of(answer.text) == [[str(n), str(n)] for n in range(200)]
    for query, expected in (
        ("SELECT COUNT(*) AS n FROM tap_upload.mine", [["230"]]),
        ("SELECT TAP_UPLOAD.mine.n FROM TAP_UPLOAD.MINE WHERE tap_upload.mine.n < 2 ORDER BY n", [["0"], ["1"]]),
        ("SELECT TOP 1 mine.* FROM tap_upload.mine WHERE n = 1000", [["1000", "0", "89.5"]]),
        ("SELECT COUNT(*) AS n FROM sky.Star WHERE id IN (SELECT n FROM tap_upload.mine)", [["230"]]),
        ("SELECT COUNT(*) AS n FROM tap_upload.mine a, tap_upload.mine AS b WHERE a.n = b.n", [["230"]]),
    ):
        answer = send(server, "/tap/sync", {**fields, "QUERY": query}, files)
        assert answer.status == 200, answer.text
        found = rows_of(answer.text)
        assert [[float(value) for value in row] for row in found] == [[float(value) for value in row] for row in expected], query


def test_the_same_query_reads_another_table(server: Server) -> None:
    """A plan that is kept has nothing of an upload."""
    fields: dict[str, object] = {"UPLOAD": "t,param:x", "QUERY": "SELECT SUM(n) AS n FROM TAP_UPLOAD.t", "FORMAT": "csv"}
    for numbers in ([1, 2], [5], [7, 8, 9]):
        content = as_csv([(n, 1.0, 2.0) for n in numbers])
        assert rows_of(send(server, "/tap/sync", fields, {"x": content}).text) == [[str(sum(numbers))]]
        assert rows_of(send(server, "/tap/sync", fields, {"x": content}, typed=False).text) == [[str(sum(numbers))]]
    assert execute(server, "/tap/sync", fields).status == 400


def test_results_tell_what_columns_are(server: Server) -> None:
    """Units and UCDs of the tables' columns, under whatever name, and nothing of what is computed from them."""
    table = astropy.table.Table(rows=[(1, 2.5, 3.5, "2026-11-20T08:00:00")], names=("n", "v", "ra", "t"))
    table["v"].unit = "km/s"
    document = astropy.io.votable.from_table(table)
    field = document.get_first_table().get_field_by_id_or_name("v")
    field.ucd = "spect.dopplerVeloc"
    document.get_first_table().get_field_by_id_or_name("t").xtype = "timestamp"
    sink = io.BytesIO()
    document.to_xml(sink)
    query = (
        "SELECT TOP 1 s.ra AS r, s.dec, s.id, s.flux, u.v AS speed, u.v * 2 AS twice, q.w, u.t, p.star"
        " FROM sky.Star s, TAP_UPLOAD.u AS u, (SELECT v AS w FROM TAP_UPLOAD.u GROUP BY v) q, sky.Pairs p"
    )
    expected = {
        "r": ("deg", "pos.eq.ra;meta.main", None),
        "dec": ("deg", "pos.eq.dec;meta.main", None),
        "id": (None, "meta.id;meta.main", None),
        "flux": (None, None, None),
        "speed": ("km / s", "spect.dopplerVeloc", None),
        "twice": (None, None, None),
        "w": ("km / s", "spect.dopplerVeloc", None),
        "t": (None, None, "timestamp"),
        "star": (None, "meta.id", None),
    }
    # Asked twice: a plan that is kept says the same.
    for _ in range(2):
        answer = send(server, "/tap/sync", {"UPLOAD": "u,param:x", "QUERY": query, "FORMAT": "votable"}, {"x": sink.getvalue()})
        fields = astropy.io.votable.parse(io.BytesIO(answer.text.encode())).get_first_table().fields
        found = {field.name: (str(field.unit) if field.unit else None, field.ucd, field.xtype) for field in fields}
        assert found == expected
    for _ in range(3):
        plain = execute(server, "/tap/sync", QUERY="SELECT ra FROM sky.Star WHERE id = 7").text
        assert 'ucd="pos.eq.ra;meta.main" unit="deg"' in plain


def test_several_tables_are_uploaded(server: Server) -> None:
    first, second = as_csv([(n, 1.0, 2.0) for n in range(10)]), as_votable([(n, 1.0, 2.0) for n in range(5, 20)])
    query = "SELECT a.n FROM TAP_UPLOAD.a JOIN TAP_UPLOAD.b ON a.n = b.n ORDER BY a.n"
    fields: dict[str, object] = {"UPLOAD": "a,param:one;b,param:two", "QUERY": query, "FORMAT": "csv"}
    answer = send(server, "/tap/sync", fields, {"one": first, "two": second})
    assert rows_of(answer.text) == [[str(n)] for n in range(5, 10)]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT s.id FROM TAP_UPLOAD.mine AS u JOIN sky.Star AS s ON u.n = s.id", []),
        ("SELECT s.id, u.n FROM sky.Star AS s LEFT JOIN TAP_UPLOAD.mine AS u ON u.n = s.id WHERE s.id < 2 ORDER BY s.id", [["0", ""], ["1", ""]]),
        ("SELECT id FROM sky.Star WHERE id IN (SELECT n FROM TAP_UPLOAD.mine)", []),
        ("SELECT COUNT(*) AS k FROM sky.Star WHERE id NOT IN (SELECT n FROM TAP_UPLOAD.mine)", [[str(STARS)]]),
        ("SELECT s.id FROM TAP_UPLOAD.mine AS u JOIN sky.Star AS s ON s.name = u.name", []),
        ("SELECT u.n, s.id FROM TAP_UPLOAD.mine AS u JOIN sky.Star AS s ON DISTANCE(POINT(s.ra, s.dec), POINT(u.ra, u.dec)) < 0.0003", []),
        ("SELECT u.n, s.id FROM TAP_UPLOAD.mine AS u JOIN sky.Star AS s ON 1 = CONTAINS(POINT(s.ra, s.dec), CIRCLE(u.ra, u.dec, 0.1))", []),
        ("SELECT COUNT(*) AS k, COUNT(n) AS c, MAX(ra) AS m, SUM(n + 1) AS s FROM TAP_UPLOAD.mine", [["0", "0", "", ""]]),
        ("SELECT n, COUNT(*) AS k FROM TAP_UPLOAD.mine WHERE ra > 10 AND name LIKE 'a%' GROUP BY n ORDER BY n", []),
        ("SELECT n + 1 AS m, ra - dec AS d, UPPER(name) AS u, SQRT(ra) AS r FROM TAP_UPLOAD.mine ORDER BY m", []),
        ("SELECT id FROM sky.Star WHERE id < 1 UNION ALL SELECT n FROM TAP_UPLOAD.mine", [["0"]]),
        ("SELECT DISTINCT n, name FROM TAP_UPLOAD.mine", []),
    ],
)
def test_an_uploaded_header_alone_has_no_rows(server: Server, query: str, rows: list[list[str]]) -> None:
    """Its columns were texts, with which no integer of a catalogue could be compared."""
    for form in ("csv", "votable", "votable/td", "json", "fits", "parquet"):
        fields: dict[str, object] = {"UPLOAD": "mine,param:x", "QUERY": query, "FORMAT": form}
        answer = send(server, "/tap/sync", fields, {"x": b"n,ra,dec,name\n"})
        assert answer.status == 200, (form, answer.text)
        if form == "csv":
            assert rows_of(answer.text) == rows
    job = send(server, "/tap/async", {**fields, "FORMAT": "csv", "PHASE": "RUN"}, {"x": b"n,ra,dec,name\n"})
    path = job.url[len(server.url("")) :]
    wait_until(lambda: text_of(server, f"{path}/phase") == "COMPLETED", 60, "the job is completed")
    assert rows_of(execute(server, f"{path}/results/result").text) == rows


def test_mistakes_of_uploads_are_said(server: Server) -> None:
    """By the names that the client has given, never by those of files."""
    good = as_csv([(1, 2.0, 3.0)])
    joined = "SELECT u.n FROM TAP_UPLOAD.mine AS u JOIN sky.Star AS s ON DISTANCE(u.ra, u.dec, s.wrong, s.dec) < 0.1"
    fields: dict[str, object] = {"UPLOAD": "mine,param:x", "QUERY": "SELECT * FROM TAP_UPLOAD.mine", "FORMAT": "csv"}
    for changes, content, status, sentence in (
        ({"QUERY": "SELECT * FROM TAP_UPLOAD.other"}, good, 404, "no table of this name was uploaded with this statement; there are: mine"),
        ({"QUERY": "SELECT nothing FROM TAP_UPLOAD.mine"}, good, 400, "there is no column nothing"),
        ({"QUERY": joined}, good, 400, f"(line 1, column {joined.index('wrong') + 1})\n  {joined.replace('<', '&lt;')}\n"),
        ({"UPLOAD": "mine,param:y"}, good, 400, "UPLOAD names the part y"),
        ({"UPLOAD": "mine,param:x;MINE,param:x"}, good, 400, "two tables MINE"),
        ({"UPLOAD": "my table,param:x"}, good, 400, "names a table &quot;my table&quot;"),
        ({}, b"", 400, "the uploaded table is empty"),
        ({}, b"<VOTABLE><RESOURCE><TABLE>", 400, "TAP_UPLOAD.mine"),
        ({}, b"PAR1 and no more", 400, "TAP_UPLOAD.mine"),
        ({}, b"n,ra\n1,2\n3\n", 400, "TAP_UPLOAD.mine"),
    ):
        answer = send(server, "/tap/sync", {**fields, **changes}, {"x": content})
        said = error_of(answer) if answer.status != 200 else answer.text
        assert answer.status == status and sentence.lower() in said.lower(), (sentence, said)
        assert "read_" not in said and "/tmp" not in said, said
    job = send(server, "/tap/async", {**fields, "PHASE": "RUN"}, {"x": b"<VOTABLE><RESOURCE><TABLE>"})
    path = job.url[len(server.url("")) :]
    wait_until(lambda: text_of(server, f"{path}/phase") == "ERROR", 60, "the job fails")
    said = execute(server, f"{path}/error").text
    assert "TAP_UPLOAD.mine" in said and "read_" not in said, said


def test_pyvo_uploads(service: pyvo.dal.TAPService, server: Server) -> None:
    """To queries and to jobs."""
    table = astropy.table.Table(rows=places_of(server), names=("n", "ra", "dec"))
    for found in (
        service.search(NEAREST, uploads={"mine": table}),
        service.run_async(NEAREST, uploads={"mine": table}),
    ):
        assert list(found["n"]) == list(found["id"]) == list(range(200))


def test_jobs_keep_their_tables(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Until they are destroyed, and over the end of a server."""
    copy = tmp_path / "data"
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("queries"))
    kept = copy / "queries" / "jobs" / "uploads"
    long = "SELECT COUNT(*) AS n FROM sky.Source a, sky.Source b, TAP_UPLOAD.mine u WHERE a.flux + b.flux < 0.5 AND a.sourceId < 1000 AND u.n = 3"
    with serving(meridian, copy) as server:
        files = {"x": as_csv([(n, 1.0, 2.0) for n in range(5)])}
        fields: dict[str, object] = {"UPLOAD": "mine,param:x", "QUERY": long, "FORMAT": "csv"}
        pending = send(server, "/tap/async", {**fields, "QUERY": "SELECT SUM(n) AS n FROM TAP_UPLOAD.mine"}, files)
        running = send(server, "/tap/async", {**fields, "PHASE": "RUN"}, files)
        paths = [job.url[len(server.url("")) :] for job in (pending, running)]
        later = job_of(server, QUERY="SELECT COUNT(*) AS n FROM TAP_UPLOAD.two", FORMAT="csv")
        assert send(server, f"{later}/parameters", {"UPLOAD": "two,param:y"}, {"y": as_csv([(1, 2.0, 3.0)])}).status == 200
        paths.append(later)
        assert len(list(kept.iterdir())) == 3
        wait_until(lambda: text_of(server, f"{paths[1]}/phase") == "EXECUTING", 60, "the job runs")
        server.stop(signal.SIGKILL)
    (kept / "left").write_text("by a server that was killed")
    with serving(meridian, copy) as server:
        assert len(list(kept.iterdir())) == 3
        for job, expected in zip(paths, ("10", None, "1"), strict=True):
            execute(server, f"{job}/phase", {"PHASE": "RUN"})
            wait_until(lambda job=job: text_of(server, f"{job}/phase") == "COMPLETED", 600, "the job is complete")
            found = rows_of(execute(server, f"{job}/results/result").text)
            assert expected is None or found == [[expected]]
        assert found
        plain = "SELECT COUNT(*) AS n FROM sky.Source a, sky.Source b WHERE a.flux + b.flux < 0.5 AND a.sourceId < 1000"
        assert rows_of(execute(server, f"{paths[1]}/results/result").text) == rows_of(execute(server, "/tap/sync", QUERY=plain, FORMAT="csv").text)
        for job in paths:
            assert execute(server, job, {"ACTION": "DELETE"}).status == 200
        assert not list(kept.iterdir())


def test_addresses_may_end_with_a_slash(server: Server) -> None:
    """A client that is given one as the service's address writes two."""
    service = pyvo.dal.TAPService(server.url("/tap/"))
    assert service.search("SELECT COUNT(*) AS n FROM sky.Star")["n"].tolist() == [STARS]
    assert {table.name for table in service.tables} >= {"sky.Star", "sky.Source"}
    assert "<vosi:availability" in execute(server, "/tap/availability/").text


def test_tables_are_described(server: Server) -> None:
    """All of them, without columns, and one of them; a name that there is not; and the same in TAP_SCHEMA."""
    whole = ElementTree.fromstring(execute(server, "/tap/tables").text)
    names = [table.findtext("name") for table in whole.iter("table")]
    assert names[:5] == ["sky.Filter", "sky.Galaxy", "sky.Pairs", "sky.Source", "sky.Star"]
    listed = rows_of(execute(server, "/tap/sync", QUERY="SELECT table_name FROM TAP_SCHEMA.tables", FORMAT="csv").text)
    assert [name for (name,) in listed] == names
    short = ElementTree.fromstring(execute(server, "/tap/tables", detail="min").text)
    assert not list(short.iter("column"))
    one = ElementTree.fromstring(execute(server, "/tap/tables/sky.Pairs").text)
    targets = {key.findtext("targetTable") for key in one.iter("foreignKey")}
    assert targets == {"sky.Star", "sky.Galaxy"}
    assert execute(server, "/tap/tables/sky.None").status == 404
    assert "it is min or max" in error_of(execute(server, "/tap/tables", detail="some"))
    joined = "SELECT k.from_table, c.from_column FROM TAP_SCHEMA.keys k JOIN TAP_SCHEMA.key_columns c ON k.key_id = c.key_id WHERE k.target_table = 'sky.Star'"
    found = rows_of(execute(server, "/tap/sync", QUERY=joined, FORMAT="csv").text)
    assert sorted(map(tuple, found)) == [("sky.Pairs", "star"), ("sky.Source", "id")]


def job_of(server: Server, **form: object) -> str:
    """The path of a new job."""
    made = execute(server, "/tap/async", form)
    assert made.status == 200, made.text
    return made.url[len(server.url("")) :]


def text_of(server: Server, path: str) -> str:
    """A plain answer."""
    return execute(server, path).text.strip()


def test_a_job_is_changed_and_aborted(server: Server) -> None:
    """Its parameters and limits until it runs, its time of destruction always; then it is ended."""
    job = job_of(server, LANG="ADQL", QUERY="SELECT 1 AS one")
    assert text_of(server, f"{job}/phase") == "PENDING"
    execute(server, f"{job}/parameters", {"QUERY": "SELECT 2 AS two"})
    execute(server, f"{job}/executionduration", {"EXECUTIONDURATION": 7})
    assert text_of(server, f"{job}/executionduration") == "7"
    execute(server, f"{job}/destruction", {"DESTRUCTION": "2100-01-01T00:00:00Z"})
    assert text_of(server, f"{job}/destruction") < "2100"
    execute(server, f"{job}/destruction", {"DESTRUCTION": "3000-01-01"})
    assert text_of(server, f"{job}/destruction") < "2100"
    for wrong in ["soon", -1, 1.5]:
        refused = execute(server, f"{job}/executionduration", {"EXECUTIONDURATION": wrong})
        assert refused.status == 400 and f"EXECUTIONDURATION is {wrong}: it is a whole number of seconds" in error_of(refused)
    parameters = ElementTree.fromstring(execute(server, f"{job}/parameters").text)
    assert {one.get("id"): one.text for one in parameters} == {"LANG": "ADQL", "QUERY": "SELECT 2 AS two"}
    assert text_of(server, f"{job}/owner") == "http"
    # It was said to have no owner.
    refused = execute(server, f"{job}/owner", {"OWNER": "ann"})
    assert refused.status == 400 and "the owner of a job cannot be changed" in error_of(refused)
    waits = execute(server, f"{job}/results/result")
    assert waits.status == 404 and "has no result yet: it is PENDING" in error_of(waits)
    execute(server, f"{job}/phase", {"PHASE": "ABORT"})
    assert text_of(server, f"{job}/phase") == "ABORTED"
    refused = execute(server, f"{job}/parameters", {"QUERY": "SELECT 3"})
    assert refused.status == 400 and "is ABORTED" in error_of(refused)
    ended = execute(server, f"{job}/results/result")
    assert ended.status == 404 and "has no result: it was aborted" in error_of(ended)
    for path, form in [(f"{job}/phase", {"PHASE": "GO"}), (f"{job}/destruction", {"DESTRUCTION": "soon"}), (f"{job}/size", {"X": 1}), (job, {"ACTION": "KEEP"})]:
        assert execute(server, path, form).status in (400, 404), path
    gone = execute(server, job, method="DELETE")
    assert gone.status == 303 and gone.headers["Location"].endswith("/tap/async")
    assert execute(server, job).status == 404
    another = job_of(server, QUERY="SELECT 1 AS one")
    assert execute(server, another, {"ACTION": "DELETE"}).url.endswith("/tap/async")


def test_clients_wait_for_a_job(server: Server) -> None:
    """Until its phase changes, no longer than they say, and not if it is in another phase than they think."""
    job = job_of(server, QUERY="SELECT COUNT(*) AS n FROM sky.Star")
    begun = time.monotonic()
    waited = ElementTree.fromstring(execute(server, job, WAIT=1).text)
    assert waited.findtext(f"{UWS}phase") == "PENDING" and time.monotonic() - begun >= 1
    execute(server, job, WAIT=30, PHASE="EXECUTING")
    assert time.monotonic() - begun < 20
    execute(server, f"{job}/phase", {"PHASE": "RUN"})
    wait_until(lambda: text_of(server, f"{job}/phase") == "COMPLETED", 60, "the job is complete")
    assert execute(server, job, WAIT=-1).status == 200
    done = ElementTree.fromstring(execute(server, job).text)
    result = done.find(f"{UWS}results/{UWS}result")
    assert result is not None and result.get("id") == "result"
    assert execute(server, f"{job}/error").status == 404


def test_jobs_are_listed_by_their_phases(server: Server) -> None:
    """Those of phases in which no job ever is were all jobs."""
    pending = job_of(server, QUERY="SELECT 1 AS one").rsplit("/", 1)[1]
    ended = job_of(server, QUERY="SELECT 1 AS one", PHASE="ABORT").rsplit("/", 1)[1]

    def listed(*phases: str) -> set[str]:
        query = "&".join(f"PHASE={phase}" for phase in phases)
        answer = execute(server, f"/tap/async?{query}")
        assert answer.status == 200, answer.text
        return {str(job.get("id")) for job in ElementTree.fromstring(answer.text)}

    assert {pending, ended} <= listed()
    assert pending in listed("PENDING") and ended not in listed("PENDING")
    for never in ("HELD", "suspended", "ARCHIVED", "UNKNOWN"):
        assert listed(never) == set()
        assert ended in listed(never, "ABORTED") and pending not in listed(never, "ABORTED")
    refused = execute(server, "/tap/async", PHASE="FOO")
    assert refused.status == 400 and "PHASE is FOO: it is one of PENDING" in error_of(refused)


def test_a_job_that_runs_on_is_not_done(server: Server) -> None:
    """It was said to be complete, and to end when it had begun, while its join ran on; and then the limit of connections was named."""
    endless = "SELECT COUNT(*) AS n FROM sky.Source a, sky.Source b, sky.Source c WHERE a.flux + b.flux + c.flux < 0"
    job = job_of(server, QUERY=endless, EXECUTIONDURATION=4, PHASE="RUN")
    wait_until(lambda: text_of(server, f"{job}/phase") == "EXECUTING", 20, "the job runs")
    looks = 0
    while text_of(server, f"{job}/phase") == "EXECUTING":
        asked = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        document = ElementTree.fromstring(execute(server, job).text)
        if document.findtext(f"{UWS}phase") != "EXECUTING":
            break
        quote, percent = document.findtext(f"{UWS}quote"), document.findtext(".//{*}pct_complete")
        assert not quote or quote >= asked, (quote, asked)
        assert percent is None or int(percent) < 100
        looks += 1
        time.sleep(0.1)
    assert looks > 3 and text_of(server, f"{job}/phase") == "ERROR"
    sentence = "the query took longer than its EXECUTIONDURATION of 4 s"
    told = ElementTree.fromstring(execute(server, job).text).findtext(f"{UWS}errorSummary/{UWS}message")
    assert told is not None and told.startswith(sentence)
    assert sentence in error_of(execute(server, f"{job}/error"))
    assert sentence in error_of(execute(server, f"{job}/results/result"))


def test_jobs_are_of_their_owners(server: Server) -> None:
    """Another's are neither listed nor shown."""
    job = job_of(server, QUERY="SELECT 1 AS one")
    request = urllib.request.Request(server.url(job), headers={"Authorization": "Basic YW5uOg=="})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 403
    request = urllib.request.Request(server.url("/tap/async"), headers={"Authorization": "Basic YW5uOg=="})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert b"jobref" not in answer.read()


def test_jobs_survive_a_killed_server(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """One that waits to be started, one that runs, and one that is complete, are there afterwards and end right."""
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    long = "SELECT COUNT(*) AS n FROM sky.Source a, sky.Source b WHERE a.flux + b.flux < 0.5 AND a.sourceId < 1000"
    with serving(meridian, copy) as server:
        done = job_of(server, QUERY="SELECT COUNT(*) AS n FROM sky.Star", FORMAT="csv", PHASE="RUN")
        wait_until(lambda: text_of(server, f"{done}/phase") == "COMPLETED", 60, "the job is complete")
        pending = job_of(server, QUERY="SELECT COUNT(*) AS n FROM sky.Filter", FORMAT="csv")
        gone = job_of(server, QUERY=long, PHASE="RUN")
        wait_until(lambda: text_of(server, f"{gone}/phase") == "EXECUTING", 60, "the job runs")
        assert execute(server, gone, {"ACTION": "DELETE"}).status == 200
        running = job_of(server, QUERY=long, FORMAT="csv", PHASE="RUN")
        server.stop(signal.SIGKILL)
    with serving(meridian, copy) as server:
        assert rows_of(execute(server, f"{done}/results/result").text) == [[str(STARS)]]
        assert text_of(server, f"{pending}/phase") == "PENDING"
        number = gone.rsplit("/", 1)[1]
        assert execute(server, gone).status == 404 and execute(server, f"/queries/{number}").status == 404
        execute(server, f"{pending}/phase", {"PHASE": "RUN"})
        for job in (pending, running):
            wait_until(lambda job=job: text_of(server, f"{job}/phase") == "COMPLETED", 120, "the job is complete")
        assert rows_of(execute(server, f"{pending}/results/result").text) == [["2"]]
        expected = rows_of(execute(server, "/tap/sync", QUERY=long, FORMAT="csv").text)
        assert rows_of(execute(server, f"{running}/results/result").text) == expected


def test_a_client_that_leaves_ends_its_query(server: Server) -> None:
    """The work stops."""
    endless = "SELECT COUNT(*) AS n FROM sky.Source a, sky.Source b, sky.Source c WHERE a.flux + b.flux + c.flux < 0"
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(server.url("/tap/sync", QUERY=endless), timeout=1)
    wait_until(server.is_idle, 10, "the query ends")


RECORD = {
    "identifier": "ivo://example.org/tap",
    "url": "https://tap.example.org/",
    "title": "Stars & more",
    "publisher": "Observatory",
    "contact": "Ann",
    "description": "Stars.",
    "subject": "Sky surveys",
}


def record_arguments(data: Path, **changed: str) -> list[object]:
    """The arguments of a command for a record."""
    words = RECORD | changed
    return ["registry-record", "--data", data, *(word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", value))]


def test_registry_record(meridian: Meridian, data: Path, server: Server) -> None:
    """Its parts in the schema's order; its capabilities and tables are those that the service tells."""
    outcome = meridian.must(*record_arguments(data, short_name="Stars", email="a@example.org", reference_url="https://example.org/stars"))
    root = ElementTree.fromstring(outcome.text)
    instance = "{http://www.w3.org/2001/XMLSchema-instance}"
    assert root.tag == "{http://www.ivoa.net/xml/RegistryInterface/v1.0}Resource"
    assert root.get(f"{instance}type") == "vs:CatalogService" and root.get("status") == "active"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(root.get("created")))
    parts = [child.tag for child in root]
    assert parts == ["title", "shortName", "identifier", "curation", "content", *["capability"] * 5, "tableset"]
    assert [child.tag for child in root.iterfind("curation/*")] == ["publisher", "contact"]
    assert [child.tag for child in root.iterfind("content/*")] == ["subject", "description", "referenceURL", "type"]
    assert root.findtext("title") == "Stars & more" and root.findtext("curation/contact/email") == "a@example.org"
    told = ElementTree.fromstring(execute(server, "/tap/capabilities").text)
    here, there = server.url("/tap"), "https://tap.example.org/tap"
    same = [ElementTree.tostring(child).decode().replace(here, there).split() for child in told]
    assert [ElementTree.tostring(child).decode().split() for child in root.iterfind("capability")] == same
    columns = {(table.findtext("name"), name.text) for table in root.iterfind("tableset/schema/table") for name in table.iterfind("column/name")}
    told = ElementTree.fromstring(execute(server, "/tap/tables").text)
    assert columns == {(table.findtext("name"), name.text) for table in told.iter("table") for name in table.iterfind("column/name")}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"identifier": "example.org/tap"}, "ivo://"),
        ({"identifier": "ivo:///x"}, "ivo://"),
        ({"url": "tap.example.org"}, "no address"),
        ({"reference_url": "example.org"}, "no address"),
        ({"title": " "}, "the title is empty"),
        ({"short_name": "longer than sixteen letters"}, "more than 16"),
    ],
)
def test_wrong_registry_records_are_rejected(meridian: Meridian, data: Path, changed: dict[str, str], words: str) -> None:
    assert_rejected(meridian.run(*record_arguments(data, **changed)), words)
