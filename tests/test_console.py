"""What commands say: nobody reading it, or no room for it, neither ends what they do nor makes them panic."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from complaints import assert_rejected
from meridian_cli import LONGEST_SECONDS, Meridian, Outcome
from small_tables import write_lines

STARS = [f"{number},{number * 3.5},{number - 50}" for number in range(100)]
MADE = ("--objects", 300, "--epochs", 2)


@pytest.fixture
def stars(tmp_path: Path) -> Path:
    """A file of stars."""
    return write_lines(tmp_path / "Star.csv", STARS, header="id,ra,dec")


@pytest.fixture
def data(meridian: Meridian, stars: Path, tmp_path: Path) -> Path:
    """A data directory with the stars."""
    meridian.load(tmp_path / "data", "sky", "Star", stars, key="id", ra="ra", dec="dec")
    return tmp_path / "data"


@contextmanager
def gone() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def run_unread(meridian: Meridian, *arguments: object) -> int:
    """The exit status of a call of which neither output is read."""
    command = [str(meridian.binary), *map(str, arguments)]
    with gone() as unread:
        call = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=unread, stderr=unread, check=False, timeout=LONGEST_SECONDS
        )
    return call.returncode


def run_without_room(meridian: Meridian, *arguments: object) -> Outcome:
    """A call of which standard output is a full disk."""
    command = [str(meridian.binary), *map(str, arguments)]
    with Path("/dev/full").open("wb") as full:
        call = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=LONGEST_SECONDS,
        )
    return Outcome(call.returncode, b"", call.stderr.decode())


def count(meridian: Meridian, data: Path, table: str) -> int:
    """How many rows a table has."""
    return int(meridian.sql(data, "sky", f"SELECT count(*) FROM {table}").column(0)[0].as_py())


def answers(data: Path) -> list[tuple[object, ...]]:
    """Calls that answer on standard output."""
    return [
        ("tables", "--data", data),
        ("check", "--data", data),
        ("sql", "--data", data, "--db", "sky", "SELECT * FROM Star"),
        ("serve", "--data", data, "--show-config"),
        ("sky", "chunks", "--stripes", 85, "--sub-stripes", 12, "box 0 0 10 10"),
    ]


def test_a_load_that_nobody_watches_is_whole(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    places = ("--key", "id", "--ra", "ra", "--dec", "dec")
    load = ("load", "--data", data, "--db", "sky", "--table", "Star", *places, stars)
    assert run_unread(meridian, *load) == 0
    assert count(meridian, data, "Star") == len(STARS)


def test_all_tables_are_made_when_nobody_watches(meridian: Meridian, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "files"
    assert run_unread(meridian, "synthesize", "generate", *MADE, "--data", data, "--db", "sky") == 0
    assert [count(meridian, data, table) for table in ("Object", "Source")] == [300, 600]
    assert run_unread(meridian, "synthesize", "generate", *MADE, "--out", out) == 0
    assert sorted(path.name for path in out.iterdir()) == ["Object", "Source"]


@pytest.mark.parametrize("call", range(len(answers(Path()))))
def test_an_answer_that_nobody_reads_is_no_failure(meridian: Meridian, data: Path, call: int) -> None:
    assert run_unread(meridian, *answers(data)[call]) == 0


@pytest.mark.parametrize("call", range(len(answers(Path()))))
def test_an_answer_without_room_is_a_failure(meridian: Meridian, data: Path, call: int) -> None:
    assert_rejected(run_without_room(meridian, *answers(data)[call]), "No space left on device")


def test_all_tables_are_made_when_there_is_no_room_for_reports(meridian: Meridian, tmp_path: Path) -> None:
    data = tmp_path / "data"
    outcome = run_without_room(meridian, "synthesize", "generate", "--quiet", *MADE, "--data", data, "--db", "sky")
    assert_rejected(outcome, "sky.Object is loaded", "No space left on device")
    assert [count(meridian, data, table) for table in ("Object", "Source")] == [300, 600]
    outcome = run_without_room(meridian, "synthesize", "generate", "--quiet", *MADE, "--out", tmp_path / "files")
    assert_rejected(outcome, "all files are written", "No space left on device")


def test_a_rejection_that_nobody_reads_keeps_its_status(meridian: Meridian, data: Path) -> None:
    assert run_unread(meridian, "sql", "--data", data, "--db", "sky", "SELECT nothing FROM Star") == 1


def test_a_server_whose_log_nobody_reads_goes_on(meridian: Meridian, data: Path) -> None:
    endpoints = ("--mysql", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "trace")
    command = [str(meridian.binary), "serve", "--data", str(data), *endpoints]
    with gone() as unread:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=unread)
    assert server.stdout is not None
    try:
        said = "".join(server.stdout.readline().decode() for _ in range(5))
        port = int(found(r"MySQL clients connect to 127\.0\.0\.1:(\d+)", said))
        url = found(r"curl '([^']+)'", said)
        for _ in range(3):
            with pymysql.connect(host="127.0.0.1", port=port, database="sky") as connection:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT count(*) FROM Star")
                    assert cursor.fetchall() == ((len(STARS),),)
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert answer.status == 200
        server.terminate()
        assert server.wait(timeout=60) == 0
    finally:
        server.kill()
        server.stdout.close()
        server.wait()


def found(pattern: str, text: str) -> str:
    """What a pattern's group is in a text."""
    match = re.search(pattern, text)
    assert match is not None, f"there is no {pattern} in:\n{text}"
    return match.group(1)


def test_the_environment_names_the_data_directory(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """Every command had to be told the data directory again."""
    env = {"MERIDIAN_DATA": str(tmp_path / "named")}

    def must(*arguments: object) -> str:
        outcome = meridian.run(*arguments, env=env)
        assert outcome.status == 0, outcome.complaint
        return outcome.text + outcome.stderr

    must("load", "--db", "sky", "--table", "Star", "--key", "id", "--ra", "ra", "--dec", "dec", stars)
    assert "100" in must("sql", "SELECT count(*) FROM Star")
    assert "Star" in must("tables")
    must("check")
    must("compact")
    must("repartition", "--db", "sky", "--stripes", 10)
    must("synthesize", "generate", "--db", "made", "--stripes", 4, *MADE)
    must("synthesize", "generate", "--out", tmp_path / "files", "--stripes", 4, *MADE)
    must("drop", "table", "--db", "sky", "--table", "Star", "--yes")
    # The option takes precedence.
    outcome = meridian.run("tables", "--data", tmp_path / "other", env=env)
    assert_rejected(outcome, "other")


COMMANDS = ("sql", "serve", "load", "check", "repartition", "compact", "drop", "tables", "sky", "synthesize", "completion", "man")


def test_shells_complete_commands_and_options(meridian: Meridian, tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = meridian.must("completion", shell).text
        for word in (*COMMANDS, "max-errors", "sub-stripes"):
            assert word in script, (shell, word)
    script = tmp_path / "meridian.bash"
    script.write_text(meridian.must("completion", "bash").text)
    asked = (
        f". {script}; COMP_WORDS=(meridian load --dry); COMP_CWORD=2;"
        " _meridian meridian --dry load; printf '%s ' \"${COMPREPLY[@]}\""
    )
    completed = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["--dry-run"], completed.stderr
    assert_rejected_usage(meridian.run("completion", "cmd"), "bash", "zsh", "fish")


def assert_rejected_usage(outcome: Outcome, *words: str) -> None:
    """Checks that the arguments were rejected with all of `words`."""
    assert outcome.status == 2 and all(word in outcome.complaint for word in words), outcome.complaint


def test_manual_pages(meridian: Meridian, tmp_path: Path) -> None:
    pages = tmp_path / "share" / "man1"
    meridian.must("man", "--output", pages)
    for command in COMMANDS:
        page = (pages / f"meridian-{command}.1").read_text()
        assert ".SH NAME" in page and f"meridian\\-{command}" in page
    assert ".SH SUBCOMMANDS" in meridian.must("man").text
    assert "dry\\-run" in meridian.must("man", "load").text
    assert meridian.must("man", "sky", "locate").text.startswith(".")
    assert_rejected(meridian.run("man", "lode"), "no command lode", "load")
    assert_rejected(meridian.run("man", "--output", "/dev/null/pages"), "cannot write manual pages")
