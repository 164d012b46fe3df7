"""Cones over HTTP in the benchmark: the load generator on a server of the tests' own and on `meridian serve`, the peer's server on
PostgreSQL, and what the harness makes of them."""

from __future__ import annotations

import base64
import http.server
import io
import json
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import astropy.io.votable
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from conftest import REPOSITORY
from meridian_cli import Meridian
from q3c_cluster import execute, is_installed, q3c_cluster
from serving import serving
from small_tables import DIRECTOR, write_lines

sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench.catalogue import Sky, TableFiles  # noqa: E402
from meridian_bench.cone_servers import ADDRESS, NoServer  # noqa: E402
from meridian_bench.http_cones import AMOUNTS, Cones, inner_box, random_cone, read_csv  # noqa: E402
from meridian_bench.report_cones import cone_section, cones_have_failed  # noqa: E402

STARS = 4_000
BOX = ("--ra", 10, 14, "--dec", -2, 2)


@pytest.fixture(scope="session")
def generator(meridian: Meridian) -> Path:
    """The load generator, built beside the program."""
    path = meridian.binary.parent / "meridian-load-generator"
    if not path.is_file():
        pytest.skip(f"There is no load generator beside {meridian.binary}: build it with `cargo build --workspace`.")
    return path


@pytest.fixture(scope="module")
def stars() -> np.ndarray:
    """Positions in a box, in degrees."""
    rng = np.random.default_rng(4)
    return np.column_stack([rng.uniform(9.5, 14.5, STARS), rng.uniform(-2.5, 2.5, STARS)])


def inside(stars: np.ndarray, ra: float, dec: float, radius: float) -> np.ndarray:
    """Which stars are in a cone, by the haversine formula."""
    a, d = np.radians(stars).T
    a0, d0 = np.radians([ra, dec])
    sine = np.sin((d - d0) / 2) ** 2 + np.cos(d) * np.cos(d0) * np.sin((a - a0) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(sine)) <= np.radians(radius)


def run_generator(generator: Path, base: str, *options: object) -> dict[str, Any]:
    """Runs `cones`; gives its figures."""
    command = [str(word) for word in (generator, "cones", base, *BOX, "--warm-up", 0, "--count-rows-every", 1, *options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


# A server of the tests' own.


def as_tabledata(stars: np.ndarray) -> bytes:
    rows = "".join(f"<TR><TD>{ra!r}</TD><TD>{dec!r}</TD></TR>" for ra, dec in stars.tolist())
    return votable(f"<TABLEDATA>{rows}</TABLEDATA>")


def as_binary2(stars: np.ndarray) -> bytes:
    rows = b"".join(struct.pack(">Bdd", 0, ra, dec) for ra, dec in stars.tolist())
    return votable(f'<BINARY2><STREAM encoding="base64">{base64.b64encode(rows).decode()}</STREAM></BINARY2>')


def votable(inside: str) -> bytes:
    fields = '<FIELD name="ra" datatype="double"/><FIELD name="dec" datatype="double"/>'
    return f"<VOTABLE><RESOURCE><TABLE>{fields}<DATA>{inside}</DATA></TABLE></RESOURCE></VOTABLE>".encode()


def as_csv(stars: np.ndarray) -> bytes:
    return "".join(["ra,dec\n", *(f"{ra!r},{dec!r}\n" for ra, dec in stars.tolist())]).encode()


FORMATS = {"votable": as_binary2, "votable/td": as_tabledata, "csv": as_csv}


@contextmanager
def numpy_server(stars: np.ndarray) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Answers cones by computing the distance of every star; gives its address, and what it is asked in the order of asking."""
    asked: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            cone = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            asked.append(cone)
            found = stars[inside(stars, float(cone["RA"]), float(cone["DEC"]), float(cone["SR"]))]
            body = FORMATS[cone.get("RESPONSEFORMAT", "votable")](found)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/cones", asked
    finally:
        server.shutdown()
        server.server_close()


def expected_rows(stars: np.ndarray, asked: list[dict[str, str]]) -> int:
    return sum(int(inside(stars, float(c["RA"]), float(c["DEC"]), float(c["SR"])).sum()) for c in asked)


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_every_answer_are_counted(generator: Path, stars: np.ndarray, form: str) -> None:
    """By the generator as by NumPy, at positions within the box."""
    with numpy_server(stars) as (base, asked):
        extra = f"RESPONSEFORMAT={form}"
        figures = run_generator(generator, base, "--rate", 100, "--seconds", 1, "--radius", 900, "--connections", 4, "--extra", extra)
    assert figures["errors"] == 0 and figures["requests"] == len(asked) == figures["counted_answers"]
    assert figures["counted_rows"] == expected_rows(stars, asked) > 1_000
    assert all(10 <= float(cone["RA"]) <= 14 and -2 <= float(cone["DEC"]) <= 2 for cone in asked)
    assert {cone["SR"] for cone in asked} == {"0.25"}


def test_both_loops_ask_at_the_same_positions(generator: Path, stars: np.ndarray) -> None:
    """A seed says which, whatever the loop and the number of connections."""
    with numpy_server(stars) as (base, asked):
        run_generator(generator, base, "--rate", 50, "--arrivals", "fixed", "--seconds", 1, "--seed", 5)
        steady = {(cone["RA"], cone["DEC"]) for cone in asked}
        asked.clear()
        figures = run_generator(generator, base, "--seconds", 1, "--connections", 3, "--seed", 5)
        fastest = {(cone["RA"], cone["DEC"]) for cone in asked}
    assert len(steady) == 50
    assert steady <= fastest or fastest <= steady
    assert figures["loop"] == "closed" and figures["errors"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://127.0.0.1:9/x", "--rate", "0"], ["greater than 0"]),
        (["http://127.0.0.1:9/x", "--seconds", "nan"], ["number"]),
        (["http://127.0.0.1:9/x", "--ra", "20", "10"], ["--ra 20 10", "no box"]),
        (["https://127.0.0.1:9/x"], ["https://127.0.0.1:9/x", "http://"]),
    ],
)
def test_wrong_options_are_said(generator: Path, arguments: list[str], words: list[str]) -> None:
    done = subprocess.run([generator, "cones", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and not done.stdout
    assert all(word in done.stderr for word in words), done.stderr


# Meridian.


def test_meridian_gives_as_many_rows_as_numpy(meridian: Meridian, generator: Path, stars: np.ndarray, tmp_path: Path) -> None:
    """For the same seed, in each format."""
    lines = [f"{number},{ra!r},{dec!r}" for number, (ra, dec) in enumerate(stars.tolist())]
    file = write_lines(tmp_path / "stars.csv", lines, "id,ra,dec")
    meridian.load(tmp_path / "data", "sky", "Star", file, **DIRECTOR)
    options = ("--rate", 50, "--seconds", 2, "--radius", 600, "--connections", 4, "--seed", 9)
    with numpy_server(stars) as (base, asked):
        run_generator(generator, base, *options)
        expected = expected_rows(stars, asked)
    with serving(meridian, tmp_path / "data") as server:
        for form in FORMATS:
            base = f"http://127.0.0.1:{server.http_port}/scs/sky/Star"
            figures = run_generator(generator, base, *options, "--extra", f"RESPONSEFORMAT={form}")
            assert figures["errors"] == 0 and figures["never_sent"] == 0, figures["complaints"]
            assert (figures["counted_answers"], figures["counted_rows"]) == (len(asked), expected), form


# The peer.


@pytest.fixture(scope="module")
def cluster(stars: np.ndarray) -> Iterator[Path]:
    """PostgreSQL with the stars; every seventh has no flux."""
    if not is_installed():
        pytest.skip("PostgreSQL 15 with q3c is not installed: `apt-get install postgresql-15-q3c`.")
    with q3c_cluster() as socket:
        types = "starId bigint, ra float8, decl float8, flux real, kind smallint, flags integer, name text"
        execute(socket, f"CREATE TABLE Star ({types})")
        rows = [star_row(number, ra, dec) for number, (ra, dec) in enumerate(stars.tolist())]
        execute(socket, "COPY Star FROM STDIN (FORMAT csv)", "\n".join(rows) + "\n")
        execute(socket, "CREATE INDEX ON Star (q3c_ang2ipix(ra, decl))")
        execute(socket, "ANALYZE Star")
        yield socket


def star_row(number: int, ra: float, dec: float) -> str:
    flux = "" if number % 7 == 0 else f"{flux_of(number)!r}"
    return f"{2**53 + number},{ra!r},{dec!r},{flux},{number % 3 - 1},{number * 1000},s{number}"


def flux_of(number: int) -> float:
    return float(np.float32(number * 1.1e-30))


@contextmanager
def peer(generator: Path, socket: Path, *options: object) -> Iterator[str]:
    """The peer's server; gives its address."""
    command = [generator, "q3c-server", "--socket", socket, "--user", "tester", "--table", "Star", "--ra", "ra", "--dec", "decl"]
    process = subprocess.Popen([*map(str, [*command, *options])], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = ADDRESS.search(process.stdout.readline())
        assert found is not None
        yield found.group()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as response:
        body: bytes = response.read()
        return body


NUMBERS = "starId,ra,decl,flux,kind,flags"


@pytest.mark.parametrize("plan", ["auto", "generic", "custom"])
def test_the_peer_gives_what_numpy_finds(generator: Path, cluster: Path, stars: np.ndarray, plan: str) -> None:
    """Value by value, as CSV and as VOTable, over the same connections again and again."""
    rng = np.random.default_rng(8)
    with peer(generator, cluster, "--columns", NUMBERS, "--pool", 2, "--plan", plan) as base:
        for radius in (0.0, 0.05, 0.3, 1.0) * 3:
            ra, dec = rng.uniform(10, 14), rng.uniform(-2, 2)
            numbers = np.flatnonzero(inside(stars, ra, dec, radius))
            expected = {2**53 + int(n): (*stars[n], None if n % 7 == 0 else flux_of(n), n % 3 - 1, n * 1000) for n in numbers}
            cone = f"{base}/?RA={ra}&DEC={dec}&SR={radius}"
            types = {"flux": pa.float32(), "starid": pa.int64()}
            rows = read_csv(get(f"{cone}&RESPONSEFORMAT=csv"), types).to_pylist()
            assert {row["starId"]: tuple(row.values())[1:] for row in rows} == expected
            table = astropy.io.votable.parse_single_table(io.BytesIO(get(cone)), verify="exception")
            assert [field.name for field in table.fields] == NUMBERS.split(",")
            plain = [[None if value is np.ma.masked else value.item() for value in row] for row in table.array]
            assert {row[0]: tuple(row[1:]) for row in plain} == expected


def test_the_peer_is_asked_by_the_generator(generator: Path, cluster: Path, stars: np.ndarray) -> None:
    """Both loops, with more connections than the pool has."""
    options = ("--radius", 600, "--seconds", 1, "--connections", 16, "--seed", 3)
    with numpy_server(stars) as (base, asked):
        run_generator(generator, base, *options, "--rate", 50)
        expected = expected_rows(stars, asked)
    with peer(generator, cluster, "--columns", NUMBERS, "--pool", 2) as base:
        steady = run_generator(generator, base, *options, "--rate", 50)
        assert (steady["errors"], steady["counted_rows"]) == (0, expected)
        fastest = run_generator(generator, base, *options)
        assert fastest["errors"] == 0 and fastest["answers"] > 0 and fastest["latency_ms"]["p50"] > 0


def test_the_peer_says_what_is_wrong(generator: Path, cluster: Path) -> None:
    with peer(generator, cluster, "--columns", "starId") as base, pytest.raises(urllib.error.HTTPError) as raised:
        get(f"{base}/?RA=1&DEC=95&SR=1")
    assert raised.value.code == 400 and "DEC" in raised.value.read().decode()
    command = [generator, "q3c-server", "--socket", cluster, "--user", "tester", "--ra", "ra", "--dec", "decl"]
    for options, words in (
        (["--table", "Nothing"], ["nothing", "does not exist"]),
        (["--table", "Star"], ["name", "text", "--columns"]),
        (["--table", "Star; DROP TABLE Star"], ["plain name"]),
    ):
        done = subprocess.run([*map(str, [*command, *options])], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 1 and all(word in done.stderr for word in words), done.stderr


# The harness.


def run_cones(meridian: Meridian, work: Path, *options: object) -> str:
    """A tiny run of cones over HTTP alone; gives the report."""
    command = [sys.executable, "-m", "meridian_bench", "run", "--size", "tiny", "--peers", "none", "--queries", "conehttp"]
    command += ["--no-install", "--meridian", meridian.binary, "--work", work, "--out", work, *map(str, options)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return (work / "REPORT.md").read_text()


@pytest.mark.usefixtures("generator")
def test_a_run_asks_meridian_over_http(meridian: Meridian, tmp_path: Path) -> None:
    report = run_cones(meridian, tmp_path)
    cones = json.loads((tmp_path / "samples.json").read_text())["cones"]
    assert len(cones["columns"]) == 17 and cones["absent"] == {} and cones["differences"] == []
    loads = {run["load"] for run in cones["runs"]}
    assert loads == {"steady1000", "steady250", *(f"connections{n}" for n in (1, 8, 32, 128)), *(f"radius{n}" for n in (1, 10, 60, 600))}
    assert all(run["errors"] == 0 for run in cones["runs"]), cones["runs"]
    section = report.partition("## Cones over HTTP")[2]
    for title in ("steady 1,000 a second", "steady 250 a second", "128 connections", "1 connection", "600 arcsec, 8 connections"):
        assert f"| **{title}** | Meridian | " in section
    assert {load["table"] for load in json.loads((tmp_path / "samples.json").read_text())["loads"]} == {"Object"}


def test_without_a_generator_the_report_says_so(meridian: Meridian, tmp_path: Path) -> None:
    report = run_cones(meridian, tmp_path, "--load-generator", tmp_path / "nothing")
    assert "Cones over HTTP: the load generator is absent or fell out: there is no load generator at " in report


def run_of(contender: str, load: str, at: int, p50: float, **others: object) -> dict[str, Any]:
    """A run as the record has it."""
    latencies = {"p50": p50, "p95": 2 * p50, "p99": 3 * p50, "max": 4 * p50}
    run: dict[str, Any] = {"contender": contender, "load": load, "series": "steady", "round": at, "rate": 1000.0, "connections": 64}
    run |= {"radius_arcsec": 60.0, "achieved_rate": 1000.0, "errors": 0, "never_sent": 0, "complaints": {}, "latency_ms": latencies}
    run |= {"sent_late_ms": None, "cpu_seconds": 1.0, "elapsed_seconds": 10.0, "server_ms": 0.2}
    return run | others


def record_of(*runs: dict[str, Any]) -> dict[str, Any]:
    cones = {"columns": ["objectId"], "compared": 5, "differences": [], "absent": {}, "trials": [], "setup": None, "peak_memory": 0}
    return {"about": {"threads": 2}, "cones": {**cones, "runs": list(runs)}}


def test_the_report_compares_rounds_and_knows_the_targets() -> None:
    """Medians of rounds; the ratio is of rounds in which both were asked."""
    ours = [run_of("meridian", "steady1000", at, p50) for at, p50 in enumerate([0.5, 0.25, 0.8])]
    theirs = [run_of("postgres", "steady1000", at, p50, never_sent=2) for at, p50 in enumerate([5.0, 5.0, 4.0])]
    lines = cone_section(record_of(*ours, *theirs), is_target_size=True)
    mine = next(line for line in lines if "| Meridian |" in line)
    assert "| 0.50 | 1.00 | 1.50 | 3.20 | 0 | 0.20 | 0.10 (0.05 to 0.20) | p50 ≤ 1.00 ms, p99 ≤ 5.00 ms | yes |" in mine
    assert "**0, and 6 never sent**" in next(line for line in lines if "| PostgreSQL + q3c |" in line)
    assert not cones_have_failed(record_of(*ours, *theirs))
    slow = record_of(*(run_of("meridian", "steady1000", at, 2.0) for at in range(3)))
    assert "| no |" in "".join(cone_section(slow, is_target_size=True))
    assert "| not at this size |" in "".join(cone_section(slow, is_target_size=False))


def test_a_peer_that_falls_over_takes_no_further_part(tmp_path: Path) -> None:
    """And Meridian goes on alone; without Meridian nothing does."""
    pyarrow.parquet.write_table(pa.table({"objectId": [1]}), tmp_path / "a.parquet")
    table = TableFiles("Object", [str(tmp_path / "a.parquet")], ["objectId"], "objectId", "ra", "dec", 1, 1, None, [])
    cones = Cones(tmp_path, table, Sky(0.0, 1.0, 0.0, 1.0, [], 1.0), 1, AMOUNTS["tiny"], 2)
    cones.servers = {"meridian": None, "postgres": None}  # type: ignore[dict-item]

    def fails(_: object) -> None:
        raise NoServer("it ended")

    assert cones._try("postgres", fails) is None
    assert list(cones.servers) == ["meridian"] and cones.record["absent"] == {"postgres": "it ended"}
    with pytest.raises(NoServer):
        cones._try("meridian", fails)


def test_errors_and_differing_objects_fail_a_run() -> None:
    wrong = record_of(run_of("meridian", "steady1000", 0, 0.5, errors=1))
    assert cones_have_failed(wrong) and "| no |" in "".join(cone_section(wrong, is_target_size=True))
    assert not cones_have_failed(record_of(run_of("postgres", "steady1000", 0, 0.5, errors=1)))
    differing = record_of()
    differing["cones"]["differences"].append({"found": "1 of 9 rows differ", "where": "there"})
    assert cones_have_failed(differing)


def test_cones_lie_within_the_catalogue() -> None:
    box = inner_box(Sky(0.0, 20.0, -10.0, 10.0, [], 1.0))
    assert box[0] > 0.2 and box[1] < 19.8 and (box[2], box[3]) == (-9.8, 9.8)
    cones = [random_cone(random.Random(seed), box, 60.0) for seed in range(200)]
    assert all(box[0] <= cone["RA"] <= box[1] and box[2] <= cone["DEC"] <= box[3] for cone in cones)
    small = inner_box(Sky(3.0, 3.4, 0.0, 0.4, [], 1.0))
    assert 3.0 < small[0] < small[1] < 3.4 and 0.0 < small[2] < small[3] < 0.4


def test_the_address_is_found_in_what_a_server_says() -> None:
    for line, address in (
        ("HTTP clients connect to http://127.0.0.1:4041, as with", "http://127.0.0.1:4041"),
        ("Cones: HTTP clients connect to http://127.0.0.1:80\n", "http://127.0.0.1:80"),
        ("MySQL clients connect to 127.0.0.1:4040, as with", None),
    ):
        found = re.search(ADDRESS, line)
        assert (found.group() if found else None) == address
