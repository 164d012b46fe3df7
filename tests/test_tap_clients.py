"""The Table Access Protocol and cones by the programs that astronomers have: STILTS, astroquery's TapPlus, pyvo's jobs with their progress, and
TOPCAT and Aladin on a display of their own."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import pyvo

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, write_lines
from test_drivers import has_java
from test_more_clients import PROGRAMS, PYTHON

STARS = 300
# Where Debian's packages put programs of Java.
JARS = Path("/usr/share/java")
COUNT = "SELECT COUNT(*) AS n FROM sky.Star"


def place(n: int) -> tuple[float, float]:
    return n * 1.1 % 360, (n % 17 - 8) * 5.0


@pytest.fixture(scope="module")
def server(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("clients")
    stars = write_lines(directory / "star.csv", (f"{n},{place(n)[0]},{place(n)[1]},{n / 4}" for n in range(STARS)), "id,ra,dec,mag")
    meridian.load(directory / "data", "sky", "Star", stars, **DIRECTOR)
    with serving(meridian, directory / "data") as running:
        yield running


def stilts(task: str, **parameters: object) -> list[dict[str, str]]:
    """The rows of a task's result."""
    program = shutil.which("stilts")
    assert program is not None, "STILTS is not installed: run scripts/setup tests"
    call = [program, task, *(f"{name}={value}" for name, value in parameters.items()), "ofmt=csv"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


@pytest.fixture
def positions(tmp_path: Path) -> Path:
    """Half an arcsecond beside every tenth star, and places without one."""
    near = [f"{n},{place(n)[0]},{place(n)[1] + 0.5 / 3600}" for n in range(0, STARS, 10)]
    return write_lines(tmp_path / "places.csv", [*near, "1000,3,88", "1001,4,-88"], "name,ra,dec")


def expected(step: int = 10) -> list[tuple[int, int]]:
    return [(n, n) for n in range(0, STARS, step)]


@pytest.mark.parametrize("sync", ["true", "false"])
def test_stilts_asks_with_an_uploaded_table(server: Server, positions: Path, sync: str) -> None:
    query = "SELECT u.name, s.id FROM TAP_UPLOAD.t1 AS u JOIN sky.Star AS s ON DISTANCE(u.ra, u.dec, s.ra, s.dec) < 1 / 3600."
    polling = {} if sync == "true" else {"poll": 50}
    found = stilts("tapquery", tapurl=server.url("/tap"), sync=sync, nupload=1, upload1=positions, ufmt1="csv", upname1="t1", adql=query, **polling)
    assert sorted((int(row["name"]), int(row["id"])) for row in found) == expected()


def test_stilts_takes_up_a_job(server: Server) -> None:
    """Of a job that another program made, before and after it has run."""
    form = urllib.parse.urlencode({"QUERY": COUNT, "LANG": "ADQL"}).encode()
    with urllib.request.urlopen(server.url("/tap/async"), data=form, timeout=60) as made:
        job = made.geturl()
    urllib.request.urlopen(f"{job}/phase", data=b"PHASE=RUN", timeout=60).close()
    for delete in ("never", "always"):
        assert stilts("tapresume", joburl=job, delete=delete, poll=50) == [{"n": str(STARS)}]
    with pytest.raises(urllib.error.HTTPError) as gone:
        urllib.request.urlopen(job, timeout=60)
    assert gone.value.code == 404


@pytest.mark.parametrize("find", ["all", "best", "each"])
def test_stilts_matches_the_sky(server: Server, positions: Path, find: str) -> None:
    """In blocks, so that several tables are uploaded."""
    found = stilts(
        "tapskymatch", tapurl=server.url("/tap"), taptable="sky.Star", taplon="ra", taplat="dec", sr=1 / 3600, find=find, blocksize=7,
        **{"in": positions}, ifmt="csv", inlon="ra", inlat="dec", fixcols="all", suffixin="_in", suffixremote="_sky",
    )  # fmt: skip
    pairs = sorted((int(row["name_in"]), int(row["id_sky"])) for row in found if row["id_sky"])
    assert pairs == expected()
    assert len(found) == len(pairs) + (2 if find == "each" else 0)


def test_stilts_searches_a_cone(server: Server) -> None:
    found = stilts("cone", serviceurl=server.url("/scs/sky/Star"), lon=place(7)[0], lat=place(7)[1], radius=1e-3)
    assert [(int(row["id"]), float(row["mag"])) for row in found] == [(7, 7 / 4)]


def test_pyvo_sees_the_progress_of_a_job(server: Server) -> None:
    job = pyvo.dal.TAPService(server.url("/tap")).submit_job(f"{COUNT} WHERE mag >= 0")
    job.run()
    wait_until(lambda: job.phase == "COMPLETED", 60, "the job is complete")
    told = job.job.jobinfo["tapQueryInfo"]
    assert str(told["pct_complete"]) == "100" and int(str(told["chunks_processed"])) == int(str(told["total_chunks"])) > 0
    assert job.fetch_result()["n"][0] == STARS
    job.delete()


def seen_in_python(library: str, program: Path, *arguments: object) -> dict[str, object]:
    """What a program tells, in the environment that `scripts/setup clients` makes."""
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", f"import {library}"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{library} is not installed: run scripts/setup clients")
    done = subprocess.run([PYTHON, program, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = re.findall(r"^SEEN (.*)$", done.stdout, flags=re.MULTILINE)
    seen = json.loads(line)
    assert isinstance(seen, dict)
    return seen


def test_astropy_reads_what_is_exported(server: Server, tmp_path: Path) -> None:
    """Parquet with its units and UCDs, by the reader of VOParquet; and what astropy writes so is read."""
    parquet = tmp_path / "star.parquet"
    query = {"LANG": "ADQL", "FORMAT": "parquet", "QUERY": "SELECT id, ra, dec, mag FROM sky.Star ORDER BY id"}
    with urllib.request.urlopen(server.url("/tap/sync", **query), timeout=60) as answer:
        parquet.write_bytes(answer.read())
    seen = seen_in_python("astropy", PROGRAMS / "astropy_parquet.py", parquet)
    assert seen["columns"] == [["id", "", "meta.id;meta.main"], ["ra", "deg", "pos.eq.ra;meta.main"], ["dec", "deg", "pos.eq.dec;meta.main"], ["mag", "", ""]]
    assert seen["rows"] == STARS and seen["last"] == [STARS - 1, *place(STARS - 1), (STARS - 1) / 4]


def test_astroquery_works(server: Server) -> None:
    seen = seen_in_python("astroquery", PROGRAMS / "astroquery_client.py", server.url("/tap"))
    joined = [[3, "three"], [5, "five"]]
    assert "there is no column nothing" in str(seen.pop("mistake"))
    # With a table in memory astroquery sends FORMAT for the result and format=votable for the table.
    uploads = {f"{launch}{of} as {output}": joined for launch in ("launch_job", "launch_job_async")
               for of in ("", " of a table in memory") for output in ("votable", "csv")}  # fmt: skip
    assert seen == {"count": STARS, "json": STARS, "later": STARS, "again": STARS, "phase": "COMPLETED", "listed": True, **uploads}


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    """A display that nobody sees."""
    if shutil.which("Xvfb") is None:
        pytest.skip("there is no Xvfb: run scripts/setup desktop")
    command = ["Xvfb", "-displayfd", "1", "-screen", "0", "1280x1024x24", "-nolisten", "tcp"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            yield f":{running.stdout.readline().strip()}"
        finally:
            running.terminate()


def on_display(display: str, home: Path, *arguments: object) -> str:
    """What a program of Java writes."""
    command = ["java", f"-Duser.home={home}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env={**os.environ, "DISPLAY": display})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def topcat(display: str, directory: Path, service: str, query: str, *login: str) -> str:
    """What TOPCAT shows of a service and of a query's result."""
    jars = [JARS / f"starlink-{name}.jar" for name in ("topcat", "vo", "table")]
    if not all(jar.exists() for jar in jars) or not has_java():
        pytest.skip("TOPCAT is not installed: run scripts/setup desktop")
    return on_display(display, directory, "-cp", ":".join(map(str, jars)), PROGRAMS / "Topcat.java", service, query, directory / "topcat.png", *login)


def test_topcat_asks_in_its_window(server: Server, display: str, tmp_path: Path) -> None:
    picture = tmp_path / "topcat.png"
    said = topcat(display, tmp_path, server.url("/tap"), f"SELECT id, ra, dec FROM sky.Star WHERE id < {STARS // 2}")
    # Both schemas and their tables are in its tree.
    assert "TABLES " in said and f"ROWS {STARS // 2}\n" in said
    assert re.findall(r"^COLUMN (.*)$", said, re.MULTILINE) == ["id null", "ra deg", "dec deg"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_aladin_draws_a_cone(server: Server, display: str, tmp_path: Path) -> None:
    """Of a file: its package cannot open addresses without those of its makers."""
    program = JARS / "aladin.jar"
    if not program.exists():
        pytest.skip("Aladin is not installed: run scripts/setup desktop")
    ra, dec = place(7)
    around = {"RA": ra, "DEC": dec, "SR": 20}
    with urllib.request.urlopen(server.url("/scs/sky/Star", **around), timeout=60) as answer:
        (tmp_path / "cone.vot").write_bytes(answer.read())
    with urllib.request.urlopen(server.url("/scs/sky/Star", RESPONSEFORMAT="csv", **around), timeout=60) as answer:
        known = [row["id"] for row in csv.DictReader(io.StringIO(answer.read().decode()))]
    picture, exported = tmp_path / "aladin.png", tmp_path / "seen.tsv"
    steps = [f"load {tmp_path}/cone.vot", "sync", f"{ra} {dec:+}", "grid on", "sync", f"save {picture}", f"export cone.vot {exported}", "sync", "quit"]
    options = ["-nogui", "-local", "-nosamp", "-noreleasetest", "-nolog"]
    on_display(display, tmp_path, "-jar", program, *options, "-script=" + "; ".join(steps))
    seen = [line.split("\t")[0] for line in exported.read_text().splitlines()[2:]]
    assert sorted(seen) == sorted(known) and len(seen) > 5
    assert picture.read_bytes().startswith(b"\x89PNG")
