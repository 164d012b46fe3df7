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

import astropy.io.votable
import pytest
import pyvo

from meridian_cli import Meridian
from serving import Server, serving, wait_until

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


class Answer:
    """A response."""

    def __init__(self, response: object, body: bytes) -> None:
        self.status: int = response.status  # type: ignore[attr-defined]
        self.headers = response.headers  # type: ignore[attr-defined]
        self.url: str = response.geturl()  # type: ignore[attr-defined]
        self.text = body.decode()


def ask(server: Server, path: str, form: dict[str, object] | None = None, method: str | None = None, **parameters: object) -> Answer:
    """A request, with a form by POST; redirections are followed."""
    body = urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(server.url(path, **parameters), data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return Answer(response, response.read())
    except urllib.error.HTTPError as error:
        return Answer(error, error.read())


def rows_of(text: str) -> list[list[str]]:
    """The rows of a CSV, without its header."""
    return list(csv.reader(io.StringIO(text)))[1:]


def error_of(answer: Answer) -> str:
    """The sentence of an error document."""
    found = re.search(r'value="ERROR">(.*?)</INFO>', answer.text, re.DOTALL)
    assert found is not None, answer.text
    return found.group(1)


def test_taplint_finds_no_error(server: Server) -> None:
    """All stages but those that need uploads or other networks."""
    program = shutil.which("stilts")
    assert program is not None, "stilts is missing: scripts/setup tests installs it"
    stages = "TMV TME TMS TMC CPV CAP AVV QGE QPO QAS UWS MDQ OBS EXA"
    command = [program, "taplint", f"tapurl={server.url('/tap')}", f"stages={stages}", "report=EWSF", "maxrepeat=5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "Errors: 0;" in done.stdout, done.stdout
    assert not re.search(r"^E-", done.stdout, re.MULTILINE), done.stdout
    # Every query of the examples is executed, and read by its grammar.
    assert re.search(r"Syntax validity success/attempt: (\d+)/\1, ", done.stdout), done.stdout
    assert re.search(r"Execution success/attempt: (\d+)/\1$", done.stdout, re.MULTILINE), done.stdout


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
    "scisql_nanojanskyToAbMag": "scisql_nanojanskyToAbMag(flux)",
    "scisql_abMagToNanojansky": "scisql_abMagToNanojansky(20)",
}


def test_what_is_declared_can_be_done(server: Server) -> None:
    """Every form of the capabilities is executed in a query, and every format of results is written."""
    document = ElementTree.fromstring(ask(server, "/tap/capabilities").text)
    forms = [form.text or "" for form in document.iter("form")]
    declared = {re.split(r"\W", form)[0] for form in forms}
    assert declared == set(FEATURES) and len(forms) == len(declared)
    for name, text in FEATURES.items():
        query = text if text.startswith(("SELECT", "WITH")) else f"SELECT {text} AS x FROM sky.Star WHERE flux > 0"
        found = ask(server, "/tap/sync", QUERY=query, FORMAT="csv")
        assert found.status == 200 and rows_of(found.text), f"{name}: {found.text}"
    for form in document.iter("outputFormat"):
        for name in [form.findtext("mime"), form.findtext("alias")]:
            answer = ask(server, "/tap/sync", QUERY="SELECT TOP 1 id FROM sky.Star", FORMAT=name)
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
    assert ask(server, f"/tap/async/{number}").status == 404
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
    answer = ask(server, "/tap/sync", {"QUERY": "SELECT id FROM sky.Star", "RESPONSEFORMAT": form, "MAXREC": limit})
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


def test_no_rows_are_wanted(server: Server) -> None:
    """MAXREC=0 asks for the columns alone."""
    answer = ask(server, "/tap/sync", QUERY="SELECT id, name FROM sky.Star", MAXREC=0, FORMAT="votable/td")
    assert answer.text.count("<FIELD") == 2 and "<TR>" not in answer.text


@pytest.mark.parametrize(
    ("parameters", "status", "sentence"),
    [
        ({}, 400, "QUERY is missing"),
        ({"QUERY": "SELECT 1", "LANG": "PQL"}, 400, "LANG is PQL: it is one of ADQL"),
        ({"QUERY": "SELECT 1", "FORMAT": "xls"}, 400, "RESPONSEFORMAT is xls: it is one of"),
        ({"QUERY": "SELECT 1", "MAXREC": "many"}, 400, "MAXREC is no whole number of rows: many"),
        ({"QUERY": "SELECT 1", "UPLOAD": "t,param:f"}, 400, "takes no uploads"),
        ({"QUERY": "SELECT FROM"}, 400, "expected an expression, found: from"),
        ({"QUERY": "SELECT flx FROM sky.Star"}, 400, "there is no column flx; did you mean flux?"),
        ({"QUERY": "SELECT 1 FROM sky.Nothing"}, 404, "nothing"),
        ({"QUERY": "DROP TABLE sky.Star"}, 400, "quer"),
    ],
)
def test_mistakes_are_documents(server: Server, parameters: dict[str, object], status: int, sentence: str) -> None:
    """A VOTable with the sentence and no table, and the status for programs."""
    answer = ask(server, "/tap/sync", parameters)
    assert answer.status == status, answer.text
    assert sentence.lower() in error_of(answer).lower()
    assert "<TABLE" not in answer.text
    assert answer.headers["Content-Type"].startswith("application/x-votable+xml")


def test_forms_of_another_type_are_refused(server: Server) -> None:
    """As uploads are sent."""
    request = urllib.request.Request(server.url("/tap/sync"), data=b"--x", headers={"Content-Type": "multipart/form-data; boundary=x"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 415 and b"takes no uploads" in refused.value.read()


def test_tables_are_described(server: Server) -> None:
    """All of them, without columns, and one of them; a name that there is not; and the same in TAP_SCHEMA."""
    whole = ElementTree.fromstring(ask(server, "/tap/tables").text)
    names = [table.findtext("name") for table in whole.iter("table")]
    assert names[:5] == ["sky.Filter", "sky.Galaxy", "sky.Pairs", "sky.Source", "sky.Star"]
    listed = rows_of(ask(server, "/tap/sync", QUERY="SELECT table_name FROM TAP_SCHEMA.tables", FORMAT="csv").text)
    assert [name for (name,) in listed] == names
    short = ElementTree.fromstring(ask(server, "/tap/tables", detail="min").text)
    assert not list(short.iter("column"))
    one = ElementTree.fromstring(ask(server, "/tap/tables/sky.Pairs").text)
    targets = {key.findtext("targetTable") for key in one.iter("foreignKey")}
    assert targets == {"sky.Star", "sky.Galaxy"}
    assert ask(server, "/tap/tables/sky.None").status == 404
    assert "it is min or max" in error_of(ask(server, "/tap/tables", detail="some"))
    joined = "SELECT k.from_table, c.from_column FROM TAP_SCHEMA.keys k JOIN TAP_SCHEMA.key_columns c ON k.key_id = c.key_id WHERE k.target_table = 'sky.Star'"
    found = rows_of(ask(server, "/tap/sync", QUERY=joined, FORMAT="csv").text)
    assert sorted(map(tuple, found)) == [("sky.Pairs", "star"), ("sky.Source", "id")]


def job_of(server: Server, **form: object) -> str:
    """The path of a new job."""
    made = ask(server, "/tap/async", form)
    assert made.status == 200, made.text
    return made.url[len(server.url("")) :]


def text_of(server: Server, path: str) -> str:
    """A plain answer."""
    return ask(server, path).text.strip()


def test_a_job_is_changed_and_aborted(server: Server) -> None:
    """Its parameters and limits until it runs, its time of destruction always; then it is ended."""
    job = job_of(server, LANG="ADQL", QUERY="SELECT 1 AS one")
    assert text_of(server, f"{job}/phase") == "PENDING"
    ask(server, f"{job}/parameters", {"QUERY": "SELECT 2 AS two"})
    ask(server, f"{job}/executionduration", {"EXECUTIONDURATION": 7})
    assert text_of(server, f"{job}/executionduration") == "7"
    ask(server, f"{job}/destruction", {"DESTRUCTION": "2100-01-01T00:00:00Z"})
    assert text_of(server, f"{job}/destruction") < "2100"
    parameters = ElementTree.fromstring(ask(server, f"{job}/parameters").text)
    assert {one.get("id"): one.text for one in parameters} == {"LANG": "ADQL", "QUERY": "SELECT 2 AS two"}
    assert text_of(server, f"{job}/owner") == "http"
    ask(server, f"{job}/phase", {"PHASE": "ABORT"})
    assert text_of(server, f"{job}/phase") == "ABORTED"
    refused = ask(server, f"{job}/parameters", {"QUERY": "SELECT 3"})
    assert refused.status == 400 and "is ABORTED" in error_of(refused)
    for path, form in [(f"{job}/phase", {"PHASE": "GO"}), (f"{job}/destruction", {"DESTRUCTION": "soon"}), (f"{job}/size", {"X": 1}), (job, {"ACTION": "KEEP"})]:
        assert ask(server, path, form).status in (400, 404), path
    gone = ask(server, job, method="DELETE")
    assert gone.status == 303 and gone.headers["Location"].endswith("/tap/async")
    assert ask(server, job).status == 404
    another = job_of(server, QUERY="SELECT 1 AS one")
    assert ask(server, another, {"ACTION": "DELETE"}).url.endswith("/tap/async")


def test_clients_wait_for_a_job(server: Server) -> None:
    """Until its phase changes, no longer than they say, and not if it is in another phase than they think."""
    job = job_of(server, QUERY="SELECT COUNT(*) AS n FROM sky.Star")
    begun = time.monotonic()
    waited = ElementTree.fromstring(ask(server, job, WAIT=1).text)
    assert waited.findtext(f"{UWS}phase") == "PENDING" and time.monotonic() - begun >= 1
    ask(server, job, WAIT=30, PHASE="EXECUTING")
    assert time.monotonic() - begun < 20
    ask(server, f"{job}/phase", {"PHASE": "RUN"})
    wait_until(lambda: text_of(server, f"{job}/phase") == "COMPLETED", 60, "the job is complete")
    assert ask(server, job, WAIT=-1).status == 200
    done = ElementTree.fromstring(ask(server, job).text)
    result = done.find(f"{UWS}results/{UWS}result")
    assert result is not None and result.get("id") == "result"
    assert ask(server, f"{job}/error").status == 404


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
    long = "SELECT COUNT(*) AS n FROM sky.Source a, sky.Source b WHERE a.flux + b.flux < 0.5"
    with serving(meridian, copy) as server:
        done = job_of(server, QUERY="SELECT COUNT(*) AS n FROM sky.Star", FORMAT="csv", PHASE="RUN")
        wait_until(lambda: text_of(server, f"{done}/phase") == "COMPLETED", 60, "the job is complete")
        pending = job_of(server, QUERY="SELECT COUNT(*) AS n FROM sky.Filter", FORMAT="csv")
        gone = job_of(server, QUERY=long, PHASE="RUN")
        wait_until(lambda: text_of(server, f"{gone}/phase") == "EXECUTING", 60, "the job runs")
        assert ask(server, gone, {"ACTION": "DELETE"}).status == 200
        running = job_of(server, QUERY=long, FORMAT="csv", PHASE="RUN")
        server.stop(signal.SIGKILL)
    with serving(meridian, copy) as server:
        assert rows_of(ask(server, f"{done}/results/result").text) == [[str(STARS)]]
        assert text_of(server, f"{pending}/phase") == "PENDING"
        number = gone.rsplit("/", 1)[1]
        assert ask(server, gone).status == 404 and ask(server, f"/queries/{number}").status == 404
        ask(server, f"{pending}/phase", {"PHASE": "RUN"})
        for job in (pending, running):
            wait_until(lambda job=job: text_of(server, f"{job}/phase") == "COMPLETED", 120, "the job is complete")
        assert rows_of(ask(server, f"{pending}/results/result").text) == [["2"]]
        expected = rows_of(ask(server, "/tap/sync", QUERY=long, FORMAT="csv").text)
        assert rows_of(ask(server, f"{running}/results/result").text) == expected


def test_a_client_that_leaves_ends_its_query(server: Server) -> None:
    """The work stops."""
    endless = "SELECT COUNT(*) AS n FROM sky.Source a, sky.Source b, sky.Source c WHERE a.flux + b.flux + c.flux < 0"
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(server.url("/tap/sync", QUERY=endless), timeout=1)
    wait_until(server.is_idle, 10, "the query ends")
