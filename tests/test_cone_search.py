"""Cone searches over HTTP: what they give, in which forms, what is said of mistakes, and that real clients read it."""

from __future__ import annotations

import csv
import gzip
import http.client
import io
import json
import math
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import astropy.io.votable
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import pyvo

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, write_lines

STARS = 20_000
SOURCES = 3_000
# Where rows crowd, so that small cones have something in them: poles, the seam, chunk edges.
CROWDED = [(0.0, 90.0), (0.0, -90.0), (0.0, 0.0), (180.0, 30.0), (45.0, 29.999), (300.0, -60.0)]
UCD1 = ("ID_MAIN", "POS_EQ_RA_MAIN", "POS_EQ_DEC_MAIN")
TYPES = "id,ra,dec,flux,name,seen,good"


def star_rows(count: int, seed: int = 11) -> list[tuple[object, ...]]:
    """Half of the stars anywhere, half of them around crowded places; values of many types, some of them NULL."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[object, ...]] = []
    for number in range(count):
        if number % 2:
            ra, dec = rng.uniform(0, 360), math.degrees(math.asin(rng.uniform(-1, 1)))
        else:
            at = CROWDED[number // 2 % len(CROWDED)]
            dec = float(np.clip(at[1] + rng.normal(0, 0.3), -90, 90))
            ra = (at[0] + rng.normal(0, 0.3) / max(math.cos(math.radians(dec)), 1e-3)) % 360
        flux = None if number % 7 == 0 else float(np.float32(rng.normal(0, 1e3)))
        name = None if number % 5 == 0 else f"star <{number}> & \"é\", 'ß'"
        seen = datetime(2025, 3, number % 28 + 1, number % 10, 0, 1, number % 3 * 250_000)
        rows.append((2**62 + number, round(ra, 9) % 360, round(dec, 9), flux, name, seen, number % 3 == 0))
    return rows


@pytest.fixture(scope="module")
def stars() -> list[tuple[object, ...]]:
    """What is in the table."""
    return star_rows(STARS)


@pytest.fixture(scope="module")
def data(meridian: Meridian, stars: list[tuple[object, ...]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars, sources with positions of their own (some have none), and a table without positions."""
    directory = tmp_path_factory.mktemp("cones")
    star_file = directory / "stars.parquet"
    parquet.write_table(pa.table(dict(zip(TYPES.split(","), zip(*stars, strict=True), strict=True))), star_file)
    meridian.load(directory / "data", "sky", "Star", star_file, **DIRECTOR)
    rng = np.random.default_rng(3)
    sources = []
    for number in range(SOURCES):
        star = stars[rng.integers(STARS)]
        place = ",," if number % 11 == 0 else f",{float(str(star[1])) + rng.normal(0, 1e-4):.9f},{star[2]}"
        sources.append(f"{number},{star[0]}{place}")
    source_file = write_lines(directory / "sources.csv", sources, "sourceId,id,sra,sdec")
    child = {"kind": "child", "key": "id", "director": "Star", "ra": "sra", "dec": "sdec"}
    meridian.load(directory / "data", "sky", "Source", source_file, **child)
    filters = write_lines(directory / "filters.csv", ["1,u", "2,g"], "filterId,name")
    meridian.load(directory / "data", "sky", "Filter", filters, kind="replicated")
    return directory / "data"


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of them."""
    with serving(meridian, data) as running:
        yield running


def get(server: Server, path: str, headers: dict[str, str] | None = None, **parameters: object) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a response."""
    request = urllib.request.Request(server.url(path, **parameters), headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def cone(server: Server, ra: float, dec: float, radius: float, table: str = "Star", **parameters: object) -> list[dict[str, str]]:
    """The rows of a cone."""
    wanted = {"RA": repr(ra), "DEC": repr(dec), "SR": repr(radius), "RESPONSEFORMAT": "csv", **parameters}
    status, _, body = get(server, f"/scs/sky/{table}", **wanted)
    assert status == 200, body
    return list(csv.DictReader(io.StringIO(body.decode())))


def separation(ra: float, dec: float, ras: np.ndarray, decs: np.ndarray) -> np.ndarray:
    """Angles in degrees between directions, from their vectors: near and far alike."""

    def vectors(a: np.ndarray, d: np.ndarray) -> np.ndarray:
        a, d = np.radians(a), np.radians(d)
        return np.stack([np.cos(d) * np.cos(a), np.cos(d) * np.sin(a), np.sin(d)], axis=-1)

    one, many = vectors(np.array(ra), np.array(dec)), vectors(ras, decs)
    return np.degrees(2 * np.arctan2(np.linalg.norm(one - many, axis=-1), np.linalg.norm(one + many, axis=-1)))


def votable(body: bytes) -> astropy.io.votable.tree.VOTableFile:
    """A document that keeps all rules but for one: Simple Cone Search wants UCDs that are older than the rules."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        document = astropy.io.votable.parse(io.BytesIO(body), verify="warn")
    said = [str(warning.message) for warning in caught]
    assert all("Invalid UCD" in text and any(ucd in text for ucd in UCD1) for text in said), said
    return document


# What a cone gives.


def test_rows_are_those_of_a_loop(server: Server, stars: list[tuple[object, ...]]) -> None:
    ids = np.array([row[0] for row in stars])
    ras, decs = (np.array([row[at] for row in stars], dtype=float) for at in (1, 2))
    rng = np.random.default_rng(7)
    found = 0
    for number in range(250):
        at = CROWDED[number % len(CROWDED)]
        ra, dec = (at[0] + rng.normal(0, 0.2)) % 360, float(np.clip(at[1] + rng.normal(0, 0.2), -90, 90))
        radius = float(10 ** rng.uniform(-3, 2.25))
        distance = separation(ra, dec, ras, decs)
        # None lies so near to the edge that rounding decides.
        assert np.abs(distance - radius).min() > 1e-11
        expected = sorted(ids[distance <= radius])
        assert sorted(int(row["id"]) for row in cone(server, ra, dec, radius)) == expected
        found += len(expected)
    assert found > 10_000


def test_rows_are_those_of_sql(server: Server) -> None:
    with server.connect(database="sky") as connected, connected.cursor() as cursor:
        for table, ra, dec in (("Star", "ra", "dec"), ("Source", "sra", "sdec")):
            for at in CROWDED:
                cursor.execute(f"SELECT * FROM {table} WHERE scisql_s2PtInCircle({ra}, `{dec}`, %s, %s, 0.25) = 1", at)
                expected = sorted(int(row[0]) for row in cursor.fetchall())
                key = "id" if table == "Star" else "sourceId"
                assert sorted(int(row[key]) for row in cone(server, *at, 0.25, table)) == expected
                assert table == "Source" or expected


def test_the_whole_sky_and_none_of_it(server: Server) -> None:
    assert len(cone(server, 12.0, -34.0, 180.0)) == STARS
    with_positions = sum(number % 11 != 0 for number in range(SOURCES))
    assert len(cone(server, 12.0, -34.0, 180.0, "Source")) == with_positions
    assert cone(server, 100.0, 50.0, 1e-7) == []
    assert cone(server, 12.0, -34.0, 0.0) == []


def test_values_are_those_that_were_loaded(server: Server, stars: list[tuple[object, ...]]) -> None:
    known = {str(row[0]): row for row in stars}
    for row in cone(server, 0.0, 0.0, 0.5):
        _, ra, dec, flux, name, seen, good = known[row["id"]]
        assert (float(row["ra"]), float(row["dec"])) == (ra, dec)
        assert row["flux"] == "" if flux is None else np.float32(row["flux"]) == np.float32(flux)
        assert row["name"] == (name or "")
        assert datetime.fromisoformat(row["seen"]) == seen
        assert row["good"] == str(good).lower()


def test_verb_and_maxrec(server: Server) -> None:
    assert list(cone(server, 0.0, 0.0, 0.5, VERB=1)[0]) == ["id", "ra", "dec"]
    assert list(cone(server, 0.0, 0.0, 0.5, VERB=3)[0]) == TYPES.split(",")
    everything = len(cone(server, 0.0, 0.0, 0.5))
    assert everything > 100
    assert len(cone(server, 0.0, 0.0, 0.5, MAXREC=17)) == 17
    assert len(cone(server, 0.0, 0.0, 0.5, MAXREC=everything)) == everything
    assert len(cone(server, 0.0, 0.0, 180.0, MAXREC=STARS - 1)) == STARS - 1


@pytest.mark.parametrize("form", ["votable", "votable/td"])
def test_overflow_is_said_where_rows_were_cut_off(server: Server, form: str) -> None:
    where = {"RA": 0, "DEC": 0, "SR": 0.5, "RESPONSEFORMAT": form}
    everything = len(cone(server, 0.0, 0.0, 0.5))
    for limit, overflow in ((everything - 1, True), (everything, False), (0, False)):
        _, _, body = get(server, "/scs/sky/Star", MAXREC=limit, **where)
        table = votable(body)
        assert len(table.get_first_table().array) == limit
        assert (b'value="OVERFLOW"' in body) == overflow


def head_and_trailers(server: Server, path: str, **parameters: object) -> tuple[str, str]:
    """The head of a response to a client that takes trailers, and these, in lower case. (http.client leaves trailers unread.)"""
    target = server.url(path, **parameters).split("/", 3)[3]
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as connection:
        connection.sendall(f"GET /{target} HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n".encode())
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, body = received.split(b"\r\n\r\n", 1)
    _, _, trailers = body.rpartition(b"\r\n0\r\n")
    return head.decode().lower(), trailers.decode().strip().lower() if b"chunked" in head.lower() else ""


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_text_has_a_header_or_a_trailer_where_rows_were_cut_off(server: Server, form: str) -> None:
    """Nothing told it: of cones that are small, of those that are streamed, in tables and in views, and of lists of cones."""
    cut_off = "meridian-overflow: true"
    everything = len(cone(server, 0.0, 0.0, 0.5))
    for limit, overflow in ((everything - 1, True), (everything, False)):
        _, headers, _ = get(server, "/scs/sky/Star", RA=0, DEC=0, SR=0.5, RESPONSEFORMAT=form, MAXREC=limit)
        assert (headers.get("meridian-overflow") == "true") == overflow
    for limit, overflow in ((STARS - 1, True), (STARS, False)):
        head, trailers = head_and_trailers(server, "/scs/sky/Star", RA=0, DEC=0, SR=180, RESPONSEFORMAT=form, MAXREC=limit)
        assert [cut_off in head, trailers == cut_off].count(True) == overflow
    for limit, overflow in ((2, True), (3, False)):
        request = urllib.request.Request(server.url("/scs/sky/Star", SR=1e-6, FIND="best1", JOIN="all1", RESPONSEFORMAT=form, MAXREC=limit), data=b"ra,dec\n1,2\n3,4\n5,6\n")
        with urllib.request.urlopen(request, timeout=60) as response:
            assert (response.headers.get("Meridian-Overflow") == "true") == overflow


def test_a_view_says_that_rows_were_cut_off(meridian: Meridian, tmp_path: Path) -> None:
    lines = [f"{n},{n / 100},{n / 100}" for n in range(50)]
    meridian.load(tmp_path / "data", "sky", "Star", write_lines(tmp_path / "stars.csv", lines, "id,ra,dec"), **DIRECTOR)
    meridian.must("view", "create", "--data", tmp_path / "data", "--db", "sky", "--name", "Bright", "SELECT id, ra, dec FROM Star")
    with serving(meridian, tmp_path / "data") as server:
        for limit, overflow in ((49, True), (50, False)):
            _, headers, body = get(server, "/scs/sky/Bright", RA=0, DEC=0, SR=10, RESPONSEFORMAT="csv", MAXREC=limit)
            assert body.count(b"\n") == limit + 1
            assert (headers.get("meridian-overflow") == "true") == overflow


def test_right_ascensions_go_round(server: Server) -> None:
    """From -360 on they did, and beyond 360 they were refused."""
    rows = sorted(row["id"] for row in cone(server, 300.0, -60.0, 0.5))
    assert len(rows) > 100
    for ra in (-60.0, -420.0, 660.0, 3900.0):
        assert sorted(row["id"] for row in cone(server, ra, -60.0, 0.5)) == rows


# In which forms.


@pytest.mark.parametrize("form", ["votable", "votable/td"])
def test_a_votable_says_the_same_as_csv(server: Server, form: str) -> None:
    _, headers, body = get(server, "/scs/sky/Star", RA=0, DEC=0, SR=0.5, RESPONSEFORMAT=form)
    assert headers["content-type"].startswith("application/x-votable+xml")
    table = votable(body).get_first_table()
    ucds = {field.ucd: field for field in table.fields}
    assert (ucds["ID_MAIN"].datatype, ucds["ID_MAIN"].arraysize) == ("char", "*")
    assert ucds["POS_EQ_RA_MAIN"].datatype == ucds["POS_EQ_DEC_MAIN"].datatype == "double"
    assert str(ucds["POS_EQ_RA_MAIN"].unit) == "deg"
    rows = {row["id"]: row for row in cone(server, 0.0, 0.0, 0.5)}
    assert len(table.array) == len(rows)
    for row in table.array:
        plain = rows[str(row["id"])]
        assert (row["ra"], row["dec"]) == (float(plain["ra"]), float(plain["dec"]))
        assert str(row["name"]) == plain["name"]
        assert (plain["flux"] == "") if row["flux"] is np.ma.masked else np.float32(plain["flux"]) == row["flux"]
        assert str(row["seen"]) == plain["seen"]


def test_json_says_the_same_as_csv(server: Server) -> None:
    _, headers, body = get(server, "/scs/sky/Star", RA=0, DEC=0, SR=0.5, RESPONSEFORMAT="json")
    assert headers["content-type"] == "application/json"
    answer = json.loads(body)
    names = [column["name"] for column in answer["metadata"]]
    assert names == TYPES.split(",")
    rows = {row["id"]: row for row in cone(server, 0.0, 0.0, 0.5)}
    assert {values[0] for values in answer["data"]} == set(rows)
    for values in answer["data"]:
        plain = rows[values[0]]
        assert (values[1], values[4] or "") == (float(plain["ra"]), plain["name"])
    assert json.loads(get(server, "/scs/sky/Star", RA=0, DEC=0, SR=0, RESPONSEFORMAT="json")[2])["data"] == []


def test_tab_separated_values(server: Server) -> None:
    _, headers, body = get(server, "/scs/sky/Star", RA=0, DEC=0, SR=0.5, RESPONSEFORMAT="tsv")
    assert headers["content-type"].startswith("text/tab-separated-values")
    rows = list(csv.DictReader(io.StringIO(body.decode()), delimiter="\t"))
    assert sorted(row["id"] for row in rows) == sorted(row["id"] for row in cone(server, 0.0, 0.0, 0.5))


def test_pyvo_finds_what_it_looks_for(server: Server) -> None:
    found = pyvo.conesearch(server.url("/scs/sky/Star"), pos=(0.0, 0.0), radius=0.5)
    expected = {row["id"]: row for row in cone(server, 0.0, 0.0, 0.5)}
    assert {record.id for record in found} == set(expected)
    assert all(abs(record.pos.ra.deg - float(expected[record.id]["ra"])) < 1e-9 for record in found)
    with pytest.raises(pyvo.dal.DALQueryError, match="SR is 200"):
        pyvo.conesearch(server.url("/scs/sky/Star"), pos=(0.0, 0.0), radius=200)


def stilts(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A call of STILTS, which TOPCAT's authors make."""
    program = shutil.which("stilts")
    assert program is not None, "STILTS is not installed: run scripts/setup tests"
    call = [program, *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    "parameters",
    [
        {"SR": 0.5},
        {"SR": 0.5, "RESPONSEFORMAT": "votable/td"},
        {"SR": 0.5, "MAXREC": 3},
        {"SR": 0},
        {"SR": 200},
    ],
)
def test_votlint_finds_nothing(server: Server, tmp_path: Path, parameters: dict[str, object]) -> None:
    _, _, body = get(server, "/scs/sky/Star", RA=0, DEC=0, **parameters)
    (tmp_path / "answer.vot").write_bytes(body)
    checked = stilts("votlint", tmp_path / "answer.vot", "version=1.4", "ucd=false")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), checked


def test_stilts_searches_cones(server: Server, tmp_path: Path) -> None:
    write_lines(tmp_path / "places.csv", [f"{ra},{dec}" for ra, dec in CROWDED], "ra,dec")
    call = ["coneskymatch", "serviceurl=" + server.url("/scs/sky/Star"), f"in={tmp_path}/places.csv", "ra=ra", "dec=dec", "sr=0.1"]
    found = stilts(*call, "servicetype=cone", "find=all", "ofmt=csv", "verb=1")
    assert found.returncode == 0, found.stderr
    expected = sum(len(cone(server, ra, dec, 0.1)) for ra, dec in CROWDED)
    assert len(list(csv.DictReader(io.StringIO(found.stdout)))) == expected


def test_compressed_where_the_client_wants_it(server: Server) -> None:
    where = {"RA": 0, "DEC": 0, "SR": 0.5}
    _, headers, plain = get(server, "/scs/sky/Star", **where)
    assert "content-encoding" not in headers and int(headers["content-length"]) == len(plain)
    _, headers, packed = get(server, "/scs/sky/Star", {"Accept-Encoding": "gzip"}, **where)
    assert headers["content-encoding"] == "gzip" and gzip.decompress(packed) == plain
    _, headers, packed = get(server, "/scs/sky/Star", {"Accept-Encoding": "zstd"}, **where)
    assert headers["content-encoding"] == "zstd" and packed[:4] == b"\x28\xb5\x2f\xfd"


def test_what_a_client_has_is_not_sent_again(server: Server) -> None:
    where = {"RA": 0, "DEC": 0, "SR": 0.5}
    _, headers, _ = get(server, "/scs/sky/Star", **where)
    status, again, body = get(server, "/scs/sky/Star", {"If-None-Match": headers["etag"]}, **where)
    assert (status, body, again["etag"]) == (304, b"", headers["etag"])
    for other in ({"MAXREC": 3}, {"RESPONSEFORMAT": "csv"}, {"SR": 0.51}):
        status, changed, _ = get(server, "/scs/sky/Star", {"If-None-Match": headers["etag"]}, **{**where, **other})
        assert status == 200 and changed["etag"] != headers["etag"]


def test_a_table_that_is_loaded_anew_has_other_tags(meridian: Meridian, tmp_path: Path) -> None:
    lines = ["1,10,20,1", "2,10.001,20,1"]
    meridian.load(tmp_path / "data", "sky", "Star", write_lines(tmp_path / "a.csv", lines), **DIRECTOR)
    with serving(meridian, tmp_path / "data") as server:
        where = {"RA": 10, "DEC": 20, "SR": 0.1, "RESPONSEFORMAT": "csv"}
        _, headers, body = get(server, "/scs/sky/Star", **where)
        assert body.count(b"\n") == 3
        meridian.load(tmp_path / "data", "sky", "Star", write_lines(tmp_path / "b.csv", lines[:1]), replace=True, **DIRECTOR)
        status, _, body = get(server, "/scs/sky/Star", {"If-None-Match": headers["etag"]}, **where)
        assert status == 200 and body.count(b"\n") == 2


def test_the_files_of_a_replaced_table_may_go(meridian: Meridian, tmp_path: Path) -> None:
    """What the server remembers of a table must not keep the files of its former rows."""
    rows = write_lines(tmp_path / "a.csv", ["1,10,20,1", "2,10.001,20,1"])
    loads = tmp_path / "data" / "tables" / "sky.star"

    def load_anew() -> set[str]:
        meridian.load(tmp_path / "data", "sky", "Star", rows, replace=True, **DIRECTOR)
        return {load.name for load in loads.iterdir()}

    (first,) = load_anew()
    with serving(meridian, tmp_path / "data") as server:
        for verbosity in (1, 2, 3):
            get(server, "/scs/sky/Star", RA=10, DEC=20, SR=0.1, VERB=verbosity)
        load_anew()
        wait_until(lambda: len(list(loads.iterdir())) == 1, 60, "the server removes what it read before")
        assert first not in {load.name for load in loads.iterdir()}
        assert len(get(server, "/scs/sky/Star", RA=10, DEC=20, SR=0.1)[2]) > 0


def test_pages_of_other_origins_may_read_it(server: Server) -> None:
    _, headers, _ = get(server, "/scs/sky/Star", {"Origin": "https://example.org"}, RA=0, DEC=0, SR=0.01)
    assert headers["access-control-allow-origin"] == "*"


def test_one_connection_for_many_requests(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    sizes = set()
    for number in range(200):
        connection.request("GET", f"/scs/sky/Star?RA={number % 3 * 0.01}&DEC=0&SR=0.1")
        response = connection.getresponse()
        sizes.add(len(response.read()))
        assert response.status == 200 and not response.will_close
    assert len(sizes) <= 3
    connection.close()


def test_https_and_http_at_one_port(meridian: Meridian, data: Path) -> None:
    certificates = Path(__file__).resolve().parent / "certificates"
    files = ("--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key")
    with serving(meridian, data, *files) as server:
        trusting = ssl.create_default_context(cafile=str(certificates / "server.pem"))
        where = {"RA": 0, "DEC": 0, "SR": 0.5}
        address = server.url("/scs/sky/Star", **where)
        with urllib.request.urlopen(address.replace("http:", "https:"), context=trusting, timeout=60) as response:
            encrypted = response.read()
        assert encrypted == get(server, "/scs/sky/Star", **where)[2]
        trusting.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", server.http_port), timeout=10) as raw:
            with trusting.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped:
                assert wrapped.selected_alpn_protocol() == "h2"


def test_requests_are_logged_with_their_numbers(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--log", "meridian_server=debug") as server:
        get(server, "/scs/sky/Star", RA=0, DEC=0, SR=0.5)
        get(server, "/scs/sky/None", RA=0, DEC=0, SR=0.5)
        wait_until(lambda: server.log.count("a request was answered") == 2, 10, "both are logged")
        lines = [line for line in server.logged if "a request was answered" in line]
        assert "query=1" in lines[0] and "/scs/sky/Star?RA=0" in lines[0] and "status=200" in lines[0]
        assert "query=2" in lines[1] and "status=404" in lines[1]


def test_columns_that_are_configured(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    (tmp_path / "meridian.toml").write_text('[scs."sky.Star"]\ncolumns = ["flux"]\n', encoding="utf-8")
    with serving(meridian, data, "--config", tmp_path / "meridian.toml") as server:
        assert list(cone(server, 0.0, 0.0, 0.5)[0]) == ["id", "ra", "dec", "flux"]
        assert list(cone(server, 0.0, 0.0, 0.5, VERB=3)[0]) == TYPES.split(",")


# What is said of mistakes.


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "RA is missing"),
        ({"RA": 1, "DEC": 2}, "SR is missing"),
        ({"RA": "12:30:00", "DEC": 2, "SR": 1}, "hours, minutes and seconds"),
        ({"RA": 1, "DEC": 91, "SR": 1}, "DEC is 91"),
        ({"RA": 1, "DEC": 2, "SR": -1}, "SR is -1"),
        ({"RA": 1, "DEC": 2, "SR": 1, "VERB": 0}, "VERB is 0"),
        ({"RA": 1, "DEC": 2, "SR": 1, "RESPONSEFORMAT": "<fits>"}, "RESPONSEFORMAT is not known"),
    ],
)
def test_mistakes_are_said_in_the_standards_way(server: Server, parameters: dict[str, object], words: str) -> None:
    status, _, body = get(server, "/scs/sky/Star", **parameters)
    assert status == 200
    document = votable(body)
    infos = {info.name: info.value for info in document.resources[0].infos}
    assert words in infos["Error"] and not document.resources[0].tables
    if "RESPONSEFORMAT" not in parameters:
        status, _, body = get(server, "/scs/sky/Star", RESPONSEFORMAT="csv", **parameters)
        assert status == 400 and words in body.decode()


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/scs/sky/Stars", 404, "its tables with positions are: "),
        ("/scs/skies/Star", 404, "there is no database skies; there are: sky"),
        ("/scs/sky/Filter", 400, "Filter has no positions"),
        ("/scs/sky", 404, "/scs/&lt;database&gt;/&lt;table&gt;"),
        ("/nowhere", 404, "there is nothing at /nowhere"),
    ],
)
def test_what_is_not_there_is_said(server: Server, path: str, status: int, words: str) -> None:
    found, _, body = get(server, path, RA=1, DEC=2, SR=1, RESPONSEFORMAT="csv")
    assert found == status and words.replace("&lt;", "<").replace("&gt;", ">") in body.decode()


def test_health_and_overview(server: Server) -> None:
    assert get(server, "/healthz")[::2] == (200, b"ok\n")
    assert get(server, "/readyz")[0] == 200
    page = get(server, "/")[2].decode()
    link = page.split('<a href="')[1].split('"')[0].replace("&amp;", "&")
    status, _, body = get(server, link)
    assert status == 200 and body.count(b"\n") > 1


def test_strange_requests_leave_it_up(server: Server) -> None:
    rng = np.random.default_rng(1)
    for number in range(300):
        with socket.create_connection(("127.0.0.1", server.http_port), timeout=10) as raw:
            head = b"GET /scs/sky/Star?RA=" + rng.bytes(rng.integers(1, 50)) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
            with suppress(OSError):
                raw.sendall(rng.bytes(200) if number % 2 else head)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass
    assert get(server, "/healthz")[0] == 200


# Large answers.


def test_a_client_that_does_not_read_stops_the_work(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=10) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.sendall(b"GET /scs/sky/Star?RA=0&DEC=0&SR=180&RESPONSEFORMAT=votable/td HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(10).startswith(b"HTTP/1.1 2")
    wait_until(lambda: server.is_idle(), 10, "it is idle again")


def test_many_at_once(server: Server) -> None:
    outcomes: list[int] = []

    def execute(number: int) -> None:
        for turn in range(20):
            at = CROWDED[(number + turn) % len(CROWDED)]
            outcomes.append(len(cone(server, *at, 0.3)))

    threads = [threading.Thread(target=execute, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 320 and len(set(outcomes)) <= len(CROWDED) and min(outcomes) > 0


# Many cones in one request.


def post(server: Server, body: bytes, table: str = "Star", **parameters: object) -> tuple[int, bytes]:
    """Status and body of the answer to a list."""
    request = urllib.request.Request(server.url(f"/scs/sky/{table}", **parameters), data=body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_list_gives_what_its_cones_give(server: Server) -> None:
    positions = [(f"t{number}", *at) for number, at in enumerate([*CROWDED, (100.0, 50.0)])]
    text = "name,ra,dec\n" + "".join(f"{name},{ra},{dec}\n" for name, ra, dec in positions)
    status, body = post(server, text.encode(), SR=0.2, RESPONSEFORMAT="csv")
    assert status == 200, body
    rows = list(csv.DictReader(io.StringIO(body.decode())))
    found = sorted((row["name_1"], row["id"]) for row in rows)
    expected = sorted((name, row["id"]) for name, ra, dec in positions for row in cone(server, ra, dec, 0.2))
    assert found == expected and len(found) > 100
    assert all(0 <= float(row["separation"]) <= 720 for row in rows)
    status, body = post(server, text.encode(), SR=0.2, RESPONSEFORMAT="csv", FIND="best1", JOIN="all1", VERB=1)
    best = {row["name"]: row for row in csv.DictReader(io.StringIO(body.decode()))}
    assert len(best) == len(positions) and best["t6"]["id"] == ""
    nearest = min((row for row in rows if row["name_1"] == "t3"), key=lambda row: float(row["separation"]))
    assert best["t3"]["id"] == nearest["id"]


def test_a_list_may_be_a_votable(server: Server) -> None:
    _, _, table = get(server, "/scs/sky/Star", RA=0, DEC=0, SR=0.1, VERB=1)
    status, body = post(server, table, SR=1e-6)
    assert status == 200, body
    pairs = astropy.io.votable.parse(io.BytesIO(body), verify="exception").get_first_table()
    assert sorted(map(str, pairs.array["id_1"])) == sorted(row["id"] for row in cone(server, 0.0, 0.0, 0.1))
    assert list(map(str, pairs.array["id_1"])) == list(map(str, pairs.array["id_2"]))
    assert pairs.array["separation"].max() == 0


@pytest.mark.parametrize(
    ("body", "parameters", "words"),
    [
        (b"", {"SR": 1}, "the list is empty"),
        (b"ra,dec\n1,2\n", {}, "SR is missing"),
        (b"ra,dec\n1,2\n", {"SR": 1, "FIND": "x"}, "FIND is x"),
        (b"alpha,delta\n1,2\n", {"SR": 1}, "of the list are its position: name them, as in RA=ra&DEC=dec; it has alpha, delta\n"),
        (b"ra,dec\n1,x\n", {"SR": 1}, "the column dec of the list is no number of degrees but of type Utf8\n"),
        (b"ra,dec\n1,2\n3,4,5\n", {"SR": 1}, "the list:3: 3 fields where 2 are expected\n"),
        (b"<VOTABLE><a>", {"SR": 1}, "the list:1: it has no VOTable with columns in it\n"),
        (b"PAR1 and no more", {"SR": 1}, "the list is damaged or cut off"),
        (b"ra,dec\n1,2\n", {"SR": 1, "RA": "ra"}, "give both or neither"),
    ],
)
def test_mistakes_of_lists_are_said(server: Server, body: bytes, parameters: dict[str, object], words: str) -> None:
    status, answer = post(server, body, RESPONSEFORMAT="csv", **parameters)
    assert status == 400 and words in answer.decode(), (status, answer)


def test_lists_whose_columns_are_named(server: Server) -> None:
    text = b"alpha,delta\n0,0\n"
    status, body = post(server, text, SR=0.2, RA="alpha", DEC="delta", RESPONSEFORMAT="csv")
    assert status == 200, body
    assert body.count(b"\n") == len(cone(server, 0.0, 0.0, 0.2)) + 1


def test_a_list_leaves_no_files(server: Server, tmp_path: Path) -> None:
    descriptors = Path(f"/proc/{server.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for _ in range(20):
        post(server, b"ra,dec\n0,0\n", SR=0.1, RESPONSEFORMAT="csv")
    time.sleep(0.2)
    assert len(list(descriptors.iterdir())) <= before + 5
