"""Fixtures of the whole-system tests: the program, and the catalogues that many tests query."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogues import Catalogue, load_dumps, load_gaia, load_synthetic
from meridian_cli import Meridian
from private_postgres import binaries, private_postgres
from queries import Case

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_DATA = REPOSITORY.parent / "shared" / "data"
# The seconds that each file of tests takes, to the nearest ten; those that are not in it take less.
FILE_SECONDS = Path(__file__).parent / "file_seconds.json"
# How many files the summary names.
SLOWEST = 20

seconds_taken: Counter[str] = Counter()


def file_of(nodeid: str) -> str:
    """The file of a test, below this directory."""
    return nodeid.split("::")[0].removeprefix("tests/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that take longest first: several processes take a file each, and none is left alone with a long one at the end."""
    seconds = json.loads(FILE_SECONDS.read_text())
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up what the tests of each file take, fixtures included."""
    seconds_taken[file_of(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells where the time went; MERIDIAN_WRITE_SECONDS=1 has it written down for the order of later runs."""
    if len(seconds_taken) > 1:
        terminalreporter.section("slowest files")
        for name, seconds in seconds_taken.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:8.1f}s {name}")
    if os.environ.get("MERIDIAN_WRITE_SECONDS"):
        known = json.loads(FILE_SECONDS.read_text()) | {name: round(seconds, -1) for name, seconds in seconds_taken.items()}
        known = {name: int(seconds) for name, seconds in sorted(known.items(), key=lambda it: (-it[1], it[0])) if seconds}
        FILE_SECONDS.write_text(json.dumps(known, indent=2) + "\n")


def binary_path() -> Path:
    """Where the program is: MERIDIAN_BIN, or the debug build."""
    if given := os.environ.get("MERIDIAN_BIN"):
        return Path(given).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / "debug" / "meridian"


@pytest.fixture(scope="session")
def meridian() -> Meridian:
    """The program under test."""
    path = binary_path()
    if not path.is_file():
        pytest.exit(
            f"No program at {path}: build it with `cargo build -p meridian`, or set MERIDIAN_BIN.", returncode=2
        )
    return Meridian(path)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
        ).returncode
        == 0
    )
    if not mounted:
        pytest.skip("A small file system cannot be mounted here; the full disk needs one.")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def selected_cases(request: pytest.FixtureRequest, function: str) -> list[Case]:
    """The cases of a test function that this run has selected."""
    items = [item for item in request.session.items if getattr(item, "originalname", None) == function]
    return [item.callspec.params["case"] for item in items]  # type: ignore[attr-defined]


def asked(catalogue: Catalogue, request: pytest.FixtureRequest, function: str) -> Iterator[Catalogue]:
    """A catalogue that is already being asked what the run's tests will compare."""
    catalogue.ask_ahead(selected_cases(request, function))
    yield catalogue
    catalogue.close()


@pytest.fixture(scope="session")
def synthetic_sky(
    meridian: Meridian, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalogue]:
    """The made-up sky of `synthetic.py`."""
    catalogue = load_synthetic(meridian, tmp_path_factory.mktemp("synthetic"))
    yield from asked(catalogue, request, "test_synthetic")


def dumps(name: str) -> Path:
    """One of the directories of MySQL dumps that lie beside the repository."""
    directory = SHARED_DATA / name
    if not (directory / "tables.json").is_file():
        pytest.skip(f"The LSST sample rows are not here: {directory} is missing.")
    return directory


@pytest.fixture(scope="session")
def pt11(
    meridian: Meridian, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalogue]:
    """The rows of LSST's simulation PT1.1."""
    yield from asked(load_dumps(meridian, tmp_path_factory.mktemp("pt11"), dumps("pt11")), request, "test_pt11")


@pytest.fixture(scope="session")
def pt12(
    meridian: Meridian, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalogue]:
    """The rows of LSST's simulation PT1.2."""
    yield from asked(load_dumps(meridian, tmp_path_factory.mktemp("pt12"), dumps("pt12")), request, "test_pt12")


@pytest.fixture(scope="session")
def gaia(
    meridian: Meridian, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalogue]:
    """The sample of Gaia DR3, if the environment says where it is."""
    given = os.environ.get("MERIDIAN_GAIA_CSV")
    if not given:
        pytest.skip("Set MERIDIAN_GAIA_CSV to the CSV file that `make demo` writes to run the queries on real stars.")
    yield from asked(load_gaia(meridian, tmp_path_factory.mktemp("gaia"), Path(given)), request, "test_gaia")


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL of the module's own."""
    if binaries() is None:
        pytest.skip("there is no PostgreSQL: `apt-get install postgresql`")
    with private_postgres() as url:
        yield url
