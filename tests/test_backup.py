"""`meridian backup` and `meridian restore`: what is restored is what there was at one moment, or nothing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from meridian_cli import Meridian
from serving import serving

HEADER = "id,ra,dec,mag"


def write_stars(path: Path, first: int, count: int) -> Path:
    """Stars all over the sky."""
    made = random.Random(first)
    rows = [f"{first + n},{made.uniform(0, 360):.6f},{made.uniform(-89, 89):.6f},{made.uniform(10, 20):.3f}" for n in range(count)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def run(meridian: Meridian, *words: object, fails: bool = False) -> str:
    """Calls the program; returns what it prints, or why it fails."""
    done = subprocess.run([str(meridian.binary), *map(str, words)], capture_output=True, text=True, timeout=120)
    assert (done.returncode != 0) == fails, done.stderr + done.stdout
    return done.stderr if fails else done.stdout


def load(meridian: Meridian, data: Path, file: Path, *options: object) -> None:
    run(meridian, "load", "--data", data, "--db", "sky", "--table", "Star", "--key", "id", "--ra", "ra", "--dec", "dec", *options, file)


def append(meridian: Meridian, data: Path, file: Path) -> None:
    run(meridian, "load", "--data", data, "--db", "sky", "--table", "Star", "--append", file)


def rows(meridian: Meridian, data: Path) -> tuple[int, int]:
    """The number of the stars and the sum of their keys."""
    line = run(meridian, "sql", "--data", data, "--format", "csv", "--quiet", "SELECT COUNT(*), SUM(id) FROM sky.Star").splitlines()[1]
    count, total = line.split(",")
    return int(count), int(total)


def names(meridian: Meridian, place: Path) -> list[str]:
    """The backups of a place, the oldest first."""
    return [line.split()[0] for line in run(meridian, "restore", place, "--list").splitlines()[1:]]


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def data(meridian: Meridian, tmp_path: Path) -> Path:
    """A table of two parts, and a user."""
    data = tmp_path / "data"
    load(meridian, data, write_stars(tmp_path / "a.csv", 0, 2000), "--kind", "director")
    append(meridian, data, write_stars(tmp_path / "b.csv", 10_000, 500))
    subprocess.run([str(meridian.binary), "user", "add", "boss", "--admin", "--data", str(data), "--password-stdin"], input="pw", text=True, check=True)
    return data


def test_each_backup_is_restored_as_it_was(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    states = []
    for step in range(4):
        if step == 1:
            append(meridian, data, write_stars(tmp_path / "c.csv", 20_000, 300))
        if step == 2:
            run(meridian, "compact", "--data", data, "--all", "--quiet")
        if step == 3:
            load(meridian, data, write_stars(tmp_path / "d.csv", 50_000, 100), "--kind", "director", "--replace")
        told = run(meridian, "backup", "--data", data, place)
        assert "0 files with 0 B were copied" not in told
        states.append(rows(meridian, data))
    # Nothing is new.
    assert "0 files with 0 B were copied" in run(meridian, "backup", "--data", data, place)
    kept = names(meridian, place)
    assert len(kept) == 5 and kept == sorted(kept)
    for name, state in zip(kept, [*states, states[-1]], strict=True):
        restored = tmp_path / f"restored-{name}"
        told = run(meridian, "restore", place, "--data", restored, "--at", name)
        assert "are right" in told and "is as it was at" in told
        assert rows(meridian, restored) == state
        assert "boss" in run(meridian, "user", "list", "--data", restored)
        assert (restored / "users.sqlite").stat().st_mode & 0o777 == 0o600
        assert (restored / "meridian.sqlite").stat().st_mode & 0o007 == 0
    # What is restored is a data directory as any other.
    restored = tmp_path / f"restored-{kept[0]}"
    append(meridian, restored, write_stars(tmp_path / "e.csv", 60_000, 50))
    assert rows(meridian, restored)[0] == 2550
    shutil.rmtree(data)
    with serving(meridian, tmp_path / f"restored-{kept[-1]}") as server, server.connect(user="boss", password="pw") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM sky.Star")
        assert cursor.fetchall() == ((100,),)


def test_the_oldest_go_and_what_they_had_alone(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    run(meridian, "backup", "--data", data, place)
    load(meridian, data, write_stars(tmp_path / "d.csv", 50_000, 100), "--kind", "director", "--replace")
    assert "removed: " in run(meridian, "backup", "--data", data, place, "--keep", 1)
    assert len(names(meridian, place)) == 1
    only = tmp_path / "only"
    run(meridian, "backup", "--data", data, only)
    assert {name for name in files(place) if name.startswith("tables")} == {name for name in files(only) if name.startswith("tables")}
    run(meridian, "restore", place, "--data", tmp_path / "restored")
    assert rows(meridian, tmp_path / "restored")[0] == 100


def test_backups_beside_appends_drops_and_compactions_are_of_a_moment(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place, done = tmp_path / "backups", threading.Event()
    states = {rows(meridian, data)}
    before = [*states][0]

    def change() -> None:
        count, total = before
        try:
            for step in range(8):
                first = 100_000 + step * 1000
                # Whoever reads meanwhile sees the table with these rows or without.
                states.add((count + 40, total + sum(range(first, first + 40))))
                append(meridian, data, write_stars(tmp_path / "more.csv", first, 40))
                count, total = count + 40, total + sum(range(first, first + 40))
                if step % 3 == 2:
                    run(meridian, "compact", "--data", data, "--all", "--quiet")
        finally:
            done.set()

    changing = threading.Thread(target=change)
    changing.start()
    while not done.is_set():
        run(meridian, "backup", "--data", data, place)
    changing.join()
    kept = names(meridian, place)
    assert len(kept) > 2
    for name in kept:
        restored = tmp_path / f"restored-{name}"
        run(meridian, "restore", place, "--data", restored, "--at", name)
        assert rows(meridian, restored) in states
        shutil.rmtree(restored)


def killed_at_random(words: list[object], made: random.Random) -> None:
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(made.uniform(0, 0.25))
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_what_is_killed_is_there_as_a_whole_or_not(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place, restored, made = tmp_path / "backups", tmp_path / "restored", random.Random(7)
    state = rows(meridian, data)
    for _ in range(12):
        killed_at_random([meridian.binary, "backup", "--data", data, place], made)
    run(meridian, "backup", "--data", data, place)
    for name in names(meridian, place):
        run(meridian, "restore", place, "--data", tmp_path / name, "--at", name)
        assert rows(meridian, tmp_path / name) == state
    for _ in range(12):
        killed_at_random([meridian.binary, "restore", place, "--data", restored, "--no-check"], made)
        if (restored / "meridian.sqlite").exists():
            assert rows(meridian, restored) == state
            shutil.rmtree(restored)
    if not (restored / "meridian.sqlite").exists():
        run(meridian, "restore", place, "--data", restored)
    assert rows(meridian, restored) == state and not (restored / "restore.unfinished").exists()


def test_damage_is_found_and_nothing_of_it_is_restored(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    run(meridian, "backup", "--data", data, place)
    (name,) = names(meridian, place)
    chunk = next(path for path in (place / "tables").rglob("chunk_*"))
    whole = chunk.read_bytes()
    for damaged in [whole[:-1], whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :]]:
        chunk.write_bytes(damaged)
        told = run(meridian, "restore", place, "--data", tmp_path / "restored", fails=True)
        assert f"{chunk.name} is damaged" in told
        assert not (tmp_path / "restored" / "meridian.sqlite").exists()
    chunk.unlink()
    assert "cannot read" in run(meridian, "restore", place, "--data", tmp_path / "restored", fails=True)
    chunk.write_bytes(whole)
    run(meridian, "restore", place, "--data", tmp_path / "restored")
    snapshot = place / "snapshots" / name / "snapshot.json"
    text = snapshot.read_text()
    for wrong in ["{", text.replace('"format": 1', '"format": 2'), text.replace("tables/sky.star", "../sky.star")]:
        snapshot.write_text(wrong)
        assert "is damaged, or of a newer program" in run(meridian, "restore", place, "--data", tmp_path / "other", fails=True)


def test_mistakes_are_told(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    assert "has no backups" in run(meridian, "restore", place, "--list", fails=True)
    assert "holds no Meridian data" in run(meridian, "backup", "--data", tmp_path / "none", place, fails=True)
    assert "within each other" in run(meridian, "backup", "--data", data, data / "backups", fails=True)
    assert "is no place of backups" in run(meridian, "backup", "--data", data, Path(__file__).parent, fails=True)
    run(meridian, "backup", "--data", data, place)
    assert "has no backup never" in run(meridian, "restore", place, "--data", tmp_path / "x", "--at", "never", fails=True)
    assert "has something in it already" in run(meridian, "restore", place, "--data", data, fails=True)
    assert "--keep" in run(meridian, "backup", "--data", data, place, "--keep", 0, fails=True)
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "cannot make" in run(meridian, "backup", "--data", data, tmp_path / "closed" / "b", fails=True)


def test_a_place_has_backups_of_one_history(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """A restored directory gives numbers to parts that the original has given to others."""
    place, restored = tmp_path / "backups", tmp_path / "restored"
    run(meridian, "backup", "--data", data, place)
    run(meridian, "restore", place, "--data", restored)
    append(meridian, data, write_stars(tmp_path / "c.csv", 20_000, 300))
    append(meridian, restored, write_stars(tmp_path / "d.csv", 30_000, 300))
    run(meridian, "backup", "--data", data, place)
    assert "name a new directory" in run(meridian, "backup", "--data", restored, place, fails=True)
    run(meridian, "restore", place, "--data", tmp_path / "again")
    assert rows(meridian, tmp_path / "again") == rows(meridian, data)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def state_of(place: Path) -> dict[str, bytes]:
    """The files of a place, without what a backup that failed has left for the next one to remove."""
    kept = [name for name in files(place) if name != "backup.lock" and not name.startswith("snapshots/unfinished/")]
    return {name: (place / name).read_bytes() for name in kept}


@pytest.mark.parametrize("pattern", ["chunk_*.mrd", "overlap_*.mrd", "index/keys.mri", "manifest.json"])
def test_a_backup_of_an_archive_that_is_not_whole_is_none(meridian: Meridian, data: Path, tmp_path: Path, pattern: str) -> None:
    """Backups succeeded without the files that were missing, and `--keep` removed the last whole one."""
    place = tmp_path / "backups"
    if pattern.startswith("overlap"):
        load(meridian, data, write_stars(tmp_path / "o.csv", 0, 3000), "--kind", "director", "--replace", "--overlap", "0.5")
    run(meridian, "backup", "--data", data, place)
    before = state_of(place)
    victim = sorted((data / "tables" / "sky.star").glob(f"*/{pattern}"))[0]
    whole = victim.read_bytes()
    for wrong in (None, whole[:-1], whole[: len(whole) // 2], b""):
        victim.unlink(missing_ok=True)
        if wrong is not None:
            victim.write_bytes(wrong)
        told = run(meridian, "backup", "--data", data, place, "--keep", 1, fails=True)
        assert str(victim) in told and "meridian check" in told
        assert state_of(place) == before
    # What is copied anew is read through.
    victim.write_bytes(whole)
    flip(victim)
    told = run(meridian, "backup", "--data", data, tmp_path / "other", fails=True)
    assert f"{victim} is damaged" in told and "meridian check" in told
    assert not (tmp_path / "other" / "snapshots").exists() or names_in(tmp_path / "other") == []
    assert not list((tmp_path / "other").rglob("*.tmp"))
    victim.write_bytes(whole)
    run(meridian, "backup", "--data", data, place, "--keep", 1)
    run(meridian, "restore", place, "--data", tmp_path / "restored")


def names_in(place: Path) -> list[str]:
    return [path.name for path in (place / "snapshots").iterdir() if path.name[0].isdigit()]


def test_a_part_that_is_missing_is_told(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    run(meridian, "backup", "--data", data, place)
    before = state_of(place)
    part = sorted((data / "tables" / "sky.star").iterdir())[0]
    shutil.move(part, tmp_path / "part")
    told = run(meridian, "backup", "--data", data, place, "--keep", 1, fails=True)
    assert str(part) in told and "meridian check" in told
    assert state_of(place) == before


def test_a_place_is_verified(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """Backups go by the files that the place has already: nothing read them before they were needed."""
    place = tmp_path / "backups"
    assert "has no backups" in run(meridian, "restore", place, "--verify", fails=True)
    run(meridian, "backup", "--data", data, place)
    append(meridian, data, write_stars(tmp_path / "c.csv", 20_000, 300))
    run(meridian, "backup", "--data", data, place)
    old, new = names(meridian, place)
    assert "of 2 backups are as they were written" in run(meridian, "restore", place, "--verify")
    assert "of 1 backups are as they were written" in run(meridian, "restore", place, "--verify", "--at", old)
    shared, alone = (sorted((place / "tables").glob(f"*/{part}/chunk_*.mrd"))[0] for part in (1, 3))
    own = place / "snapshots" / old / "meridian.sqlite"
    for victim, backups in [(shared, f"{old}, {new}"), (alone, new), (own, old)]:
        whole = victim.read_bytes()
        flip(victim)
        told = run(meridian, "restore", place, "--verify", fails=True)
        assert f"{victim} is damaged or missing" in told and f"in {backups}\n" in told and told.count("it is not what was backed up") == 1
        for name in (old, new):
            run(meridian, "restore", place, "--verify", "--at", name, fails=name in backups)
        victim.unlink()
        assert str(victim) in run(meridian, "restore", place, "--verify", fails=True)
        victim.write_bytes(whole)
    assert "has no backup never" in run(meridian, "restore", place, "--verify", "--at", "never", fails=True)
    # A backup copies anew what is not as long as it was.
    whole = shared.read_bytes()
    shared.write_bytes(whole[:-1])
    assert "1 files with" in run(meridian, "backup", "--data", data, place)
    assert shared.read_bytes() == whole
    run(meridian, "restore", place, "--verify")


def test_a_snapshot_that_cannot_be_read_leaves_the_others(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """One damaged `snapshot.json` made all backups of its place unusable."""
    place = tmp_path / "backups"
    run(meridian, "backup", "--data", data, place)
    state = rows(meridian, data)
    load(meridian, data, write_stars(tmp_path / "d.csv", 50_000, 100), "--kind", "director", "--replace")
    run(meridian, "backup", "--data", data, place)
    first, second = names(meridian, place)
    saying = place / "snapshots" / second / "snapshot.json"
    whole = saying.read_bytes()
    for wrong in (whole[:-20], b"", None):
        saying.unlink()
        if wrong is not None:
            saying.write_bytes(wrong)
        listed = subprocess.run([str(meridian.binary), "restore", str(place), "--list"], capture_output=True, text=True, timeout=120, check=True)
        assert first in listed.stdout and second not in listed.stdout and f"backup {second} cannot be read" in listed.stderr
        # An older backup is not taken for the newest one.
        assert str(saying) in run(meridian, "restore", place, "--data", tmp_path / "restored", fails=True)
        assert str(saying) in run(meridian, "restore", place, "--data", tmp_path / "restored", "--at", second, fails=True)
        run(meridian, "restore", place, "--data", tmp_path / "restored", "--at", first)
        assert rows(meridian, tmp_path / "restored") == state
        shutil.rmtree(tmp_path / "restored")
        assert second in run(meridian, "restore", place, "--verify", fails=True)
        saying.write_bytes(whole)
    saying.write_bytes(whole[:-20])
    before = {name for name in files(place) if name.startswith("tables")}
    done = subprocess.run(
        [str(meridian.binary), "backup", "--data", str(data), str(place), "--keep", "1"], capture_output=True, text=True, timeout=120, check=True
    )
    assert f"backup {second} cannot be read" in done.stderr and f"removed: {first}\n" in done.stdout
    assert {name for name in files(place) if name.startswith("tables")} == before
    assert second not in names(meridian, place) and len(names(meridian, place)) == 1
    # Once it can be read it counts again, and what nothing has goes.
    saying.write_bytes(whole)
    assert f"removed: {second}\n" in run(meridian, "backup", "--data", data, place, "--keep", 2)
    assert len({name for name in files(place) if name.startswith("tables")}) < len(before)


def test_a_restoration_that_fails_leaves_room_for_another(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """The directory of a failed restoration stayed, in which the other backup that was advised could not be restored."""
    place, restored = tmp_path / "backups", tmp_path / "restored"
    run(meridian, "backup", "--data", data, place)
    state = rows(meridian, data)
    append(meridian, data, write_stars(tmp_path / "c.csv", 20_000, 300))
    run(meridian, "backup", "--data", data, place)
    first, second = names(meridian, place)
    (victim,) = (place / "tables").glob("*/3/manifest.json")
    whole = victim.read_bytes()
    flip(victim)
    for is_there in (False, True):
        if is_there:
            restored.mkdir()
        assert f"{victim} is damaged" in run(meridian, "restore", place, "--data", restored, fails=True)
        assert restored.exists() == is_there and (not is_there or not any(restored.iterdir()))
    run(meridian, "restore", place, "--data", restored, "--at", first)
    assert rows(meridian, restored) == state
    victim.write_bytes(whole)
    # What a killed one leaves.
    shutil.rmtree(restored)
    run(meridian, "restore", place, "--data", restored)
    (restored / "meridian.sqlite").unlink()
    (restored / "restore.unfinished").write_text(second)
    for path in [*restored.glob("meridian.*"), *(restored / "locks").rglob("*")]:
        path.unlink()
    shutil.rmtree(restored / "locks", ignore_errors=True)
    chunk = next((restored / "tables" / "sky.star" / "3").glob("chunk_*.mrd"))
    chunk.rename(f"{chunk}.tmp")
    new = ["--db", "sky", "--table", "Other", "--kind", "director", "--key", "id", "--ra", "ra", "--dec", "dec"]
    told = run(meridian, "load", "--data", restored, *new, tmp_path / "c.csv", fails=True)
    assert "a backup is being restored into" in told and "meridian restore" in told
    note = restored / "notes.txt"
    note.write_text("not ours")
    before = files(restored)
    assert "has something in it already" in run(meridian, "restore", place, "--data", restored, "--at", first, fails=True)
    assert files(restored) == before
    note.unlink()
    run(meridian, "restore", place, "--data", restored, "--at", first)
    assert rows(meridian, restored) == state and not (restored / "restore.unfinished").exists()
    assert not (restored / "tables" / "sky.star" / "3").exists()
    append(meridian, restored, write_stars(tmp_path / "d.csv", 30_000, 10))


@pytest.mark.parametrize("who_goes_on", ["original", "restored"])
def test_a_place_goes_on_with_one_directory(meridian: Meridian, data: Path, tmp_path: Path, who_goes_on: str) -> None:
    """Two directories took turns in a place unless both had given the same number to parts."""
    place, restored = tmp_path / "backups", tmp_path / "restored"
    run(meridian, "backup", "--data", data, place)
    run(meridian, "backup", "--data", data, place)
    run(meridian, "restore", place, "--data", restored)
    goes_on, stops = (data, restored) if who_goes_on == "original" else (restored, data)
    # Neither has a part that the other one has not.
    for _ in range(2):
        run(meridian, "backup", "--data", goes_on, place)
    before = state_of(place)
    told = run(meridian, "backup", "--data", stops, place, "--keep", 1, fails=True)
    assert names(meridian, place)[-1] in told and "is of another data directory" in told and "name a new directory" in told
    assert state_of(place) == before
    run(meridian, "backup", "--data", stops, tmp_path / "other")
    run(meridian, "backup", "--data", goes_on, place)


def test_a_directory_that_was_restored_from_an_older_backup_needs_a_new_place(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    run(meridian, "backup", "--data", data, place)
    run(meridian, "backup", "--data", data, place)
    run(meridian, "restore", place, "--data", tmp_path / "restored", "--at", names(meridian, place)[0])
    assert "is of another data directory" in run(meridian, "backup", "--data", tmp_path / "restored", place, fails=True)
    run(meridian, "backup", "--data", data, place)
