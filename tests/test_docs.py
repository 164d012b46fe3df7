"""The documents: all are in their index, the everyday tasks can be executed as they are written, and messages are those of the program."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from meridian_cli import LONGEST_SECONDS, Meridian
from small_tables import write_lines

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs"


def test_the_index_has_every_document() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text()))
    assert listed == {path.name for path in DOCS.glob("*.md")} - {"README.md"}


def test_the_readme_lists_every_command(meridian: Meridian) -> None:
    told = re.findall(r"^  ([a-z-]+)  +\S", meridian.must("--help").text, re.MULTILINE)
    assert "sql" in told
    listed = re.findall(r"`meridian ([a-z-]+)", (REPOSITORY / "README.md").read_text().split("## The commands")[1].split("###")[0])
    assert set(listed) == set(told) - {"help"}


def sections(page: str) -> dict[str, list[str]]:
    """The commands of each section of a page: its indented lines."""
    parts = re.split(r"^## (.+)$", (DOCS / page).read_text(), flags=re.MULTILINE)
    titled = {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}
    return {title: re.findall(r"^    (\S.*)$", text, re.MULTILINE) for title, text in titled.items()}


def write_inputs(directory: Path) -> None:
    """The files that the everyday tasks load."""
    write_lines(directory / "stars.csv", [f"{n},{n * 3.5},{n - 40},{n % 7}.5" for n in range(90)], header="id,ra,dec,mag")
    write_lines(directory / "more.csv", [f"{n},{n / 2},{n - 120},1.5" for n in range(90, 150)], header="id,ra,dec,mag")
    epochs = [f"{n // 3},{55_000 + n}.25,{n}.5" for n in range(270)]
    write_lines(directory / "epochs.csv", epochs, header="id,mjd,flux")
    write_lines(directory / "more-epochs.csv", [f"{n},55999.5,1.5" for n in range(90, 150)], header="id,mjd,flux")
    write_lines(directory / "bad.csv", [f"{n},0.5,0.5" for n in range(90)], header="id,mjd,flux")


def test_the_everyday_tasks_can_be_done_as_they_are_written(meridian: Meridian, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "meridian").symlink_to(meridian.binary)
    tasks = sections("everyday.md")
    begin, see, load, drop = (tasks.pop(title) for title in ("", "See what is there", "Load", "Drop"))
    script = [*begin, *load, *see, *(command for commands in tasks.values() for command in commands), *drop]
    # Those with a bucket are in test_backups_in_stores.py.
    script = [command for command in script if "s3://" not in command]
    assert sum(command.startswith("meridian ") for command in script) >= 20
    done = subprocess.run(
        ["bash", "-e", "-x", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "north.parquet").is_file()
    assert "Object" not in meridian.must("tables", "--data", tmp_path / "sky").text
    assert "Object" in meridian.must("tables", "--data", tmp_path / "restored").text


def sources() -> str:
    """All texts of the program, those of several lines joined."""
    text = "\n".join(path.read_text() for path in sorted((REPOSITORY / "crates").rglob("*.rs")))
    return re.sub(r"\\\n\s*", "", text)


def messages() -> list[str]:
    """The messages that the page about them has."""
    rows = re.findall(r"^\| `(.+?)` \|", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(rows) >= 20
    return rows


@pytest.fixture(scope="module")
def program() -> str:
    """The texts of the program."""
    return sources()


@pytest.mark.parametrize("message", messages())
def test_messages_are_those_of_the_program(program: str, message: str) -> None:
    for part in re.split(r" ?\.\.\.[ :]*", message):
        assert part.strip() in program, part
