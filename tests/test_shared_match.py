"""What docs/users.md shows: a user with nothing but curl uploads 100,000 positions, keeps them as a table, matches them with the catalogue, keeps the pairs,
and shares them with a colleague, who reads them as TOPCAT does; the same with pyvo. astropy finds the same pairs."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import astropy.units as u
import numpy as np
import pytest
import pyvo
import requests
from astropy.coordinates import SkyCoord, angular_separation
from pyvo.utils.prototype import activate_features

from meridian_cli import Meridian
from serving import serving
from small_tables import load_stars_and_bands, star_lines, write_lines
from test_tap_clients import display as display
from test_tap_clients import topcat
from test_users import Site, must

# 20,000,000 of them take some minutes.
STARS = int(os.environ.get("MERIDIAN_STARS", "200000"))
POSITIONS = 100_000
# Without spaces, on which the script that starts STILTS falls.
WORD = "arcseconds-27"
# All pairs, as they are searched beside it: by default only those are kept of which neither end has a nearer partner.
MATCH = "SELECT number, id, separation FROM crossmatch({positions}, sky.Star, 1, 'all')"
Pairs = set[tuple[int, int]]


def columns(lines: list[str]) -> SkyCoord:
    """The positions in lines of a number, a right ascension and a declination."""
    values = np.array([[float(value) for value in line.split(",")[1:3]] for line in lines])
    return SkyCoord(values[:, 0], values[:, 1], unit="deg")


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """Positions, each within some tenths of an arcsecond of a star; every tenth has none."""
    rng = np.random.default_rng(27)
    stars = columns(star_lines(STARS, 1)[:POSITIONS])
    beside = stars.directional_offset_by(rng.uniform(0, 360, POSITIONS) * u.deg, rng.uniform(0, 0.8, POSITIONS) * u.arcsec)
    apart = np.where(np.arange(POSITIONS) % 10 == 0, -np.sign(beside.dec.deg) * 0.01, 0.0)
    return [f"{n},{ra:.9f},{dec:.9f}" for n, (ra, dec) in enumerate(zip(beside.ra.deg, beside.dec.deg + apart, strict=True))]


@pytest.fixture(scope="module")
def pairs(lines: list[str]) -> Pairs:
    """Those within an arcsecond, as astropy finds them."""
    lists, stars = columns(lines), columns(star_lines(STARS, 1))
    order = np.argsort(stars.dec)
    sorted_dec = stars.dec.deg[order]
    first, last = (np.searchsorted(sorted_dec, lists.dec.deg + side / 3600) for side in (-1.0, 1.0))
    found: Pairs = set()
    # The first, second, ... star of those with about the declination of each position.
    for step in range(int((last - first).max())):
        numbers = np.flatnonzero(first + step < last)
        ids = order[first[numbers] + step]
        apart = angular_separation(lists.ra[numbers], lists.dec[numbers], stars.ra[ids], stars.dec[ids])
        is_near = apart < 1 * u.arcsec
        found |= set(zip(numbers[is_near].tolist(), ids[is_near].tolist(), strict=True))
    return found


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("shared"), STARS)
    for name in ("ann", "bob", "cleo"):
        must(meridian, data, "add", name, password=WORD)
        must(meridian, data, "grant", name, "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


def curl(site: Site, path: str, *options: str, user: str = "ann") -> str:
    """What the server answers, if all is well."""
    program = shutil.which("curl")
    assert program is not None, "curl is not installed: run scripts/setup tests"
    call = [program, "--silent", "--show-error", "--fail-with-body", "-u", f"{user}:{WORD}", *options, site.server.url(path)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ended(site: Site, number: int) -> None:
    """Waits until a query is completed."""
    give_up = time.monotonic() + 300
    while (query := json.loads(curl(site, f"/queries/{number}")))["state"] != "COMPLETED":
        assert query["state"] in ("QUEUED", "EXECUTING") and time.monotonic() < give_up, query
        time.sleep(0.1)


def read_by_stilts(site: Site, table: str, user: str) -> subprocess.CompletedProcess[str]:
    """A table by the library with which TOPCAT reads."""
    program = shutil.which("stilts")
    assert program is not None, "STILTS is not installed: run scripts/setup tests"
    login = [f"-Dstar.basicauth.user={user}", f"-Dstar.basicauth.password={WORD}"]
    query = [f"tapurl={site.server.url('/tap')}", f"adql=SELECT number, id FROM {table}", "ofmt=csv"]
    return subprocess.run([program, *login, "tapquery", *query], capture_output=True, text=True, timeout=300, check=False)


def pairs_read(site: Site, table: str, user: str = "bob") -> Pairs:
    done = read_by_stilts(site, table, user)
    assert done.returncode == 0, done.stderr
    return {(int(row["number"]), int(row["id"])) for row in csv.DictReader(io.StringIO(done.stdout))}


def test_positions_are_matched_kept_and_shared_with_curl(site: Site, lines: list[str], pairs: Pairs, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "positions.csv", lines, "number,ra,dec")
    assert len(pairs) > 0.85 * POSITIONS
    assert f"{POSITIONS}" in curl(site, "/tables/ann.positions", "-T", str(file)).replace(",", "")
    statement = f"CREATE TABLE ann.near AS {MATCH.format(positions='ann.positions')}"
    ended(site, json.loads(curl(site, "/queries", "-d", json.dumps({"statement": statement})))["id"])
    assert json.loads(curl(site, "/tables/ann.near", "-d", "grant=bob")) == {"table": "ann.near", "granted": ["bob"]}
    assert pairs_read(site, "ann.near") == pairs
    # A colleague who was not named sees neither, and the positions are nobody's but hers.
    for table, user in (("ann.near", "cleo"), ("ann.positions", "bob")):
        refused = read_by_stilts(site, table, user)
        assert refused.returncode != 0 and table.split(".")[1] in refused.stderr


def test_a_colleague_reads_them_in_topcat(site: Site, display: str, tmp_path: Path) -> None:
    """In its window, which asks for the user and the password."""
    statement = "CREATE TABLE ann.shown AS SELECT id, ra, `dec` FROM sky.Star WHERE id < 1234"
    ended(site, json.loads(curl(site, "/queries", "-d", json.dumps({"statement": statement})))["id"])
    curl(site, "/tables/ann.shown", "-d", "grant=bob")
    said = topcat(display, tmp_path, site.server.url("/tap"), "SELECT id, ra, dec FROM ann.shown", "bob", WORD)
    assert "LOGIN\n" in said and "ROWS 1234\n" in said, said


def test_positions_are_matched_and_kept_with_pyvo(site: Site, lines: list[str], pairs: Pairs) -> None:
    activate_features("cadc-tb-upload")
    with requests.Session() as session:
        session.auth = ("ann", WORD)
        service = pyvo.dal.TAPService(site.server.url("/tap"), session=session)
        columns_of_list = [("number", "long"), ("ra", "double"), ("dec", "double")]
        described = "".join(f'<column><name>{name}</name><dataType xsi:type="vs:VOTableType">{kind}</dataType></column>' for name, kind in columns_of_list)
        spaces = 'xmlns:vosi="http://www.ivoa.net/xml/VOSITables/v1.0" xmlns:vs="http://www.ivoa.net/xml/VODataService/v1.1"'
        spaces += ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        service.create_table("ann.list", io.BytesIO(f"<vosi:table {spaces}><name>ann.list</name>{described}</vosi:table>".encode()))
        service.load_table("ann.list", io.BytesIO("\n".join(["number,ra,dec", *lines, ""]).encode()), format="csv")
        job = service.submit_job("SELECT l.number, s.id FROM ann.list AS l JOIN sky.Star AS s ON DISTANCE(l.ra, l.dec, s.ra, s.dec) < 1 / 3600.")
        job.run().wait(phases=["COMPLETED", "ERROR", "ABORTED"], timeout=300)
        assert job.phase == "COMPLETED"
        found = job.fetch_result()
        assert {(int(row["number"]), int(row["id"])) for row in found} == pairs
        # What was found is kept without finding it again.
        number = job.url.rsplit("/", 1)[1]
        keep = session.post(site.server.url("/queries"), json={"statement": f"CREATE TABLE ann.found AS SELECT * FROM qserv_result({number})"})
        keep.raise_for_status()
        ended(site, keep.json()["id"])
        shared = session.post(site.server.url("/tables/ann.found"), data={"grant": "bob, public"})
        assert shared.json()["granted"] == ["bob", "public"]
        assert pairs_read(site, "ann.found") == pairs_read(site, "ann.found", "cleo") == pairs
        session.post(site.server.url("/tables/ann.found"), data={"revoke": "PUBLIC"}).raise_for_status()
        assert read_by_stilts(site, "ann.found", "cleo").returncode != 0


@pytest.mark.parametrize(
    ("user", "table", "form", "status", "part"),
    [
        ("ann", "ann.kept", {}, 400, "one of"),
        ("ann", "ann.kept", {"grant": "bob", "expire": "3"}, 400, "one of"),
        ("ann", "ann.kept", {"grant": "nobody"}, 400, "nobody"),
        ("ann", "ann.kept", {"grant": ""}, 400, "one of"),
        ("ann", "ann.kept", {"grant": "bob,,cleo"}, 400, "a name is missing"),
        ("ann", "ann.kept", {"grant": "bob,nobody"}, 400, "nobody"),
        ("ann", "ann.kept", {"revoke": "bob"}, 400, "no grant"),
        ("ann", "ann.nothing", {"grant": "bob"}, 404, "nothing"),
        ("ann", "sky.Star", {"grant": "bob"}, 403, "own"),
        ("bob", "ann.kept", {"grant": "bob"}, 403, "own"),
    ],
)
def test_what_cannot_be_shared(site: Site, user: str, table: str, form: dict[str, str], status: int, part: str) -> None:
    ended(site, json.loads(curl(site, "/queries", "-d", json.dumps({"statement": "CREATE TABLE IF NOT EXISTS ann.kept AS SELECT * FROM sky.Band"})))["id"])
    told = requests.post(site.server.url(f"/tables/{table}"), data=form, auth=(user, WORD), timeout=60)
    assert told.status_code == status and part in told.text, told.text
    assert read_by_stilts(site, "ann.kept", "bob").returncode != 0


@pytest.mark.parametrize("query", ["SELECT * FROM ann.kept", "SELECT COUNT(*) FROM sky.Star s, ann.kept k"])
def test_only_what_may_be_read_is_kept(site: Site, query: str) -> None:
    ended(site, json.loads(curl(site, "/queries", "-d", json.dumps({"statement": "CREATE TABLE IF NOT EXISTS ann.kept AS SELECT * FROM sky.Band"})))["id"])
    told = requests.post(site.server.url("/queries"), json={"statement": f"CREATE TABLE bob.mine AS {query}"}, auth=("bob", WORD), timeout=60)
    assert told.json()["code"] == 1142 and "ann.kept" in told.json()["error"], told.text


@pytest.mark.parametrize("statement", ["DROP TABLE ann.kept", "CREATE TABLE ann.more (id INT)", "INSERT INTO ann.kept VALUES (1, 'x')"])
def test_what_is_not_submitted(site: Site, statement: str) -> None:
    told = requests.post(site.server.url("/queries"), json={"statement": statement}, auth=("ann", WORD), timeout=60)
    assert told.status_code == 400 and "POST /sql" in told.json()["error"], told.text
