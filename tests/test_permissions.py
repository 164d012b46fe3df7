"""Who may read a data directory, and what can be done with one that can only be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, load_arguments, read_arrow, rows_of
from serving import serving
from small_tables import CHILD, DIRECTOR, HEADER, star_lines, write_lines, write_stars

NOBODY = 65534
COUNT = "SELECT count(*), max(version) FROM Star"
OTHER_USER = {"user": NOBODY, "group": NOBODY, "extra_groups": []}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user or mount a file system")


def make_data(meridian: Meridian, directory: Path) -> Path:
    """A director and a child."""
    data = directory / "data"
    meridian.load(data, "sky", "Star", write_stars(directory / "Star.csv", 2000), **DIRECTOR)
    spots = write_lines(directory / "Spot.csv", [f"{n},{n % 2100},{n}" for n in range(5000)], header="spot,id,flux")
    meridian.load(data, "sky", "Spot", spots, **CHILD)
    return data


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may pass through."""
    place = Path(tempfile.mkdtemp(prefix="meridian-permissions-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def open_meridian(meridian: Meridian, open_place: Path) -> Meridian:
    """The program where every user may run it: what is built may lie where others may not pass."""
    program = open_place / "meridian"
    try:
        os.link(meridian.binary, program)
    except OSError:
        shutil.copyfile(meridian.binary, program)
    program.chmod(0o755)
    return Meridian(program)


@pytest.fixture
def group_data(meridian: Meridian, open_place: Path) -> Path:
    """A data directory of root's that another user may read as a member of its group."""
    data = make_data(meridian, open_place)
    for path in [data, *data.rglob("*")]:
        os.chown(path, 0, NOBODY)
    return data


@pytest.fixture
def mounted(meridian: Meridian, tmp_path: Path) -> Iterator[Path]:
    """A data directory on a file system that is mounted read-only."""
    data = make_data(meridian, tmp_path)
    with mount_read_only(data, tmp_path / "mounted") as place:
        yield place


@contextmanager
def mount_read_only(data: Path, place: Path) -> Iterator[Path]:
    """Shows a directory at another place, read-only."""
    place.mkdir()
    bind = ["mount", "--bind", str(data), str(place)]
    if os.geteuid() != 0 or subprocess.run(bind, capture_output=True, check=False).returncode != 0:
        pytest.skip("A directory cannot be mounted read-only here.")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_files_are_for_the_owner_and_the_group(meridian: Meridian, tmp_path: Path) -> None:
    """Everything was open to whoever the umask let in."""
    data, stars = tmp_path / "new" / "data", HEADER + "\n" + "\n".join(star_lines(3000, 1)) + "\n"
    loading = load_arguments(data, "sky", "Star", Path("-"), memory="16M", **DIRECTOR)
    outcome = meridian.run(*loading, stdin=stars, umask=0)
    assert outcome.status == 0, outcome.complaint
    spots = write_lines(tmp_path / "Spot.csv", [f"{n},{n % 3100},{n}" for n in range(5000)], header="spot,id,flux")
    assert meridian.run(*load_arguments(data, "sky", "Spot", spots, **CHILD), umask=0).status == 0
    for arguments in (["check", "--data", data], ["sql", "--data", data, "--db", "sky", COUNT]):
        assert meridian.run(*arguments, umask=0).status == 0
    kinds = set()
    for path in [data.parent, data, *data.rglob("*")]:
        allowed = 0o750 if path.is_dir() else 0o640
        mode = path.stat().st_mode & 0o7777
        assert mode == allowed, f"{path} has mode {mode:o}"
        kinds.add(path.suffix)
    assert {".mrd", ".sqlite", ".lock"} <= kinds


def test_the_umask_takes_more_away(meridian: Meridian, tmp_path: Path) -> None:
    path = write_stars(tmp_path / "Star.csv", 500)
    assert meridian.run(*load_arguments(tmp_path / "data", "sky", "Star", path, **DIRECTOR), umask=0o077).status == 0
    for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_check_tells_that_everybody_may_read(meridian: Meridian, tmp_path: Path) -> None:
    data = make_data(meridian, tmp_path)
    assert "note" not in meridian.must("check", "--data", data).text
    data.chmod(0o755)
    assert f"chmod -R o-rwx {data}" in meridian.must("check", "--data", data).text


def execute(meridian: Meridian, data: Path, **options: object) -> list[tuple[object, ...]]:
    """The number of stars and their version."""
    outcome = meridian.run("sql", "--data", data, "--db", "sky", "--format", "arrow", COUNT, **options)
    assert outcome.status == 0, outcome.complaint
    return rows_of(read_arrow(outcome.stdout))


def ask_server(cursor: object) -> tuple[tuple[object, ...], ...]:
    """The same of a server."""
    cursor.execute(f"{COUNT.replace('FROM ', 'FROM sky.')}")  # type: ignore[attr-defined]
    return cursor.fetchall()  # type: ignore[attr-defined,no-any-return]


def test_a_read_only_file_system(meridian: Meridian, mounted: Path, tmp_path: Path) -> None:
    assert execute(meridian, mounted) == [(2000, 1)]
    assert "Star" in meridian.must("tables", "--data", mounted).text
    assert "are right" in meridian.must("check", "--data", mounted).text
    with serving(meridian, mounted) as server, server.connect() as connection, connection.cursor() as cursor:
        assert ask_server(cursor) == ((2000, 1),)
        cursor.execute("SELECT count(*) FROM sky.Star t JOIN sky.Spot s ON s.id = t.id")
        assert cursor.fetchall()[0][0] > 4000
    rejected = meridian.run(*load_arguments(mounted, "sky", "More", tmp_path / "Star.csv", **DIRECTOR))
    assert_rejected(rejected, "meridian.sqlite", "cannot be changed", "read-only")


def test_changes_in_a_log_that_cannot_be_read_are_not_left_out(meridian: Meridian, tmp_path: Path) -> None:
    data = make_data(meridian, tmp_path)
    writer = sqlite3.connect(data / "meridian.sqlite")
    writer.execute("CREATE TABLE notes (note TEXT)")
    writer.commit()
    copy = shutil.copytree(data, tmp_path / "copy", ignore=shutil.ignore_patterns("*-shm"))
    writer.close()
    assert (copy / "meridian.sqlite-wal").stat().st_size > 0
    with mount_read_only(copy, tmp_path / "mounted") as place:
        for command in (["sql", "--db", "sky", COUNT], ["check"], ["tables"]):
            outcome = meridian.run(command[0], "--data", place, *command[1:])
            assert_rejected(outcome, "meridian.sqlite-wal", "changes", "meridian check")
    meridian.must("check", "--data", copy)


@needs_root
def test_another_user_of_the_group(open_meridian: Meridian, group_data: Path) -> None:
    assert execute(open_meridian, group_data, **OTHER_USER) == [(2000, 1)]
    outcome = open_meridian.run("check", "--data", group_data, **OTHER_USER)
    assert outcome.status == 0 and "are right" in outcome.text, outcome.complaint
    stranger = {**OTHER_USER, "group": NOBODY - 1}
    outcome = open_meridian.run("sql", "--data", group_data, "--db", "sky", COUNT, **stranger)
    assert outcome.status != 0, "others may read"


@needs_root
def test_a_server_that_may_only_read_sees_what_others_load(
    meridian: Meridian, open_meridian: Meridian, group_data: Path, open_place: Path
) -> None:
    class AsOther(Meridian):
        def start(self, *arguments: object, **options: object) -> subprocess.Popen[bytes]:  # type: ignore[override]
            return super().start(*arguments, **{**options, **OTHER_USER})  # type: ignore[arg-type]

    with serving(AsOther(open_meridian.binary), group_data) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            assert ask_server(cursor) == ((2000, 1),)
            for version in (2, 3):
                # Whoever makes a directory that passes its group on, as for shared ones, need not care for it.
                tables = [group_data, *(path for path in group_data.rglob("*") if path.is_dir())]
                for path in tables:
                    path.chmod(0o2750)
                stars = write_stars(open_place / f"{version}.csv", 1000 * version, version)
                meridian.load(group_data, "sky", "Star", stars, replace=True, **DIRECTOR)
                assert ask_server(cursor) == ((1000 * version, version),)
