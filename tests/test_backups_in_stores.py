"""`meridian backup` and `meridian restore` with a bucket as the place: whole or not there, incremental, verified, whatever breaks off."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from email.utils import format_datetime
from pathlib import Path

import pytest
from complaints import assert_rejected
from meridian_cli import Meridian, Outcome
from object_store import Fault, Request, Store, object_store, once_each
from small_tables import CUT, DIRECTOR, star_lines, write_lines

CERTIFICATES = Path(__file__).parent / "certificates"
# Longer than what is written in one request, by more than one part.
LONG = 40_000_000


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store(CERTIFICATES) as store:
        yield store


@pytest.fixture
def place(store: Store, tmp_path: Path) -> str:
    """A place of its own for each test."""
    return f"s3://{store.BUCKET}/backups/{tmp_path.name}"


def prefix(place: str) -> str:
    return place.split("/", 3)[3] + "/"


@pytest.fixture
def data(meridian: Meridian, tmp_path: Path) -> Path:
    """A table of two parts, and a user."""
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", write_lines(tmp_path / "a.csv", star_lines(2000, 1)), **DIRECTOR)
    append(meridian, data, tmp_path, 10_000, 500)
    subprocess.run(
        [str(meridian.binary), "user", "add", "boss", "--admin", "--data", str(data), "--password-stdin"], input="pw", text=True, check=True
    )
    return data


def append(meridian: Meridian, data: Path, tmp_path: Path, first: int, count: int) -> None:
    lines = [f"{first + int(line.split(',')[0])},{line.split(',', 1)[1]}" for line in star_lines(count, 1, first)]
    meridian.load(data, "sky", "Star", write_lines(tmp_path / f"more{first}.csv", lines), append=True)


def rows(meridian: Meridian, data: Path) -> tuple[object, ...]:
    (row,) = meridian.rows(data, "sky", "SELECT count(*), sum(id), sum(version) FROM Star")
    return row


def call(meridian: Meridian, store: Store, *words: object, **variables: str) -> Outcome:
    return meridian.run(*words, env=store.environment(**variables))


def told(meridian: Meridian, store: Store, *words: object) -> str:
    outcome = call(meridian, store, *words)
    assert outcome.status == 0, outcome.complaint
    return outcome.text


def names(meridian: Meridian, store: Store, place: str) -> list[str]:
    return [line.split()[0] for line in told(meridian, store, "restore", place, "--list").splitlines()[1:]]


def assert_restored(meridian: Meridian, store: Store, place: str, directory: Path, expected: tuple[object, ...], *options: object) -> None:
    said = told(meridian, store, "restore", place, "--data", directory, *options)
    assert "are right" in said and "is as it was at" in said
    assert rows(meridian, directory) == expected
    assert (directory / "users.sqlite").stat().st_mode & 0o777 == 0o600
    assert not list(directory.rglob("*.tmp"))


def test_each_backup_is_restored_as_it_was(meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path) -> None:
    states = []
    for step in range(3):
        if step == 1:
            append(meridian, data, tmp_path, 20_000, 300)
        if step == 2:
            meridian.must("compact", "--data", data, "--all", "--quiet")
        assert "backup " in told(meridian, store, "backup", "--data", data, place + "/" * step)
        states.append(rows(meridian, data))
    kept = names(meridian, store, place)
    assert len(kept) == 3 and kept == sorted(kept)
    for name, state in zip(kept, states, strict=True):
        assert_restored(meridian, store, place, tmp_path / name, state, "--at", name)
    # No lock is left, and the form is that of a directory: either may be copied to the other.
    assert f"{prefix(place)}backup.lock" not in store.keys()
    copy = tmp_path / "copy"
    for key in store.keys(prefix(place)):
        path = copy / key.removeprefix(prefix(place))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(key))
    meridian.must("restore", copy, "--data", tmp_path / "of-copy")
    assert rows(meridian, tmp_path / "of-copy") == states[-1]
    meridian.must("backup", "--data", data, copy)
    for path in copy.rglob("*"):
        if path.is_file() and path.name != "backup.lock":
            store.put(f"{prefix(place)}again/{path.relative_to(copy)}", path)
    assert len(names(meridian, store, f"{place}/again")) == 4
    assert_restored(meridian, store, f"{place}/again", tmp_path / "of-again", states[-1])


def test_a_second_backup_writes_what_is_new(meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path) -> None:
    told(meridian, store, "backup", "--data", data, place)
    before = len(store.proxy.requests)
    assert "0 files with 0 B were copied" in told(meridian, store, "backup", "--data", data, place)
    assert not [request.key for request in store.since(before, "PUT") if "/tables/" in request.key]
    append(meridian, data, tmp_path, 30_000, 10)
    before = len(store.proxy.requests)
    told(meridian, store, "backup", "--data", data, place)
    written = {request.key for request in store.since(before, "PUT") if "/tables/" in request.key}
    assert written and len({key.split("/tables/")[1].split("/")[1] for key in written}) == 1
    # What only old ones have goes with them.
    meridian.must("compact", "--data", data, "--all", "--quiet")
    assert "removed: " in told(meridian, store, "backup", "--data", data, place, "--keep", 1)
    assert len(names(meridian, store, place)) == 1
    meridian.must("backup", "--data", data, tmp_path / "only")
    in_directory = {str(path.relative_to(tmp_path / "only")) for path in (tmp_path / "only" / "tables").rglob("*") if path.is_file()}
    assert {key.removeprefix(prefix(place)) for key in store.keys(f"{prefix(place)}tables/")} == in_directory
    assert_restored(meridian, store, place, tmp_path / "restored", rows(meridian, data))


@pytest.mark.parametrize(
    "fault",
    [Fault(cut_after=100), Fault(is_lost=True), Fault(status=503, code="SlowDown"), Fault(status=500, code="InternalError")],
    ids=["cut", "lost", "slow", "error"],
)
def test_what_breaks_off_is_done_again(
    meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path, fault: Fault
) -> None:
    """Each different request fails once, and one whose answer is lost has been done: a lock and a snapshot are written once all the same."""
    (data / "alerts" / "night").mkdir(parents=True)
    (data / "alerts" / "night" / "long.json").write_bytes(os.urandom(LONG))
    with store.faults(once_each(fault, lambda request: True)):
        told(meridian, store, "backup", "--data", data, place)
        assert_restored(meridian, store, place, tmp_path / "restored", rows(meridian, data))
    assert (tmp_path / "restored/alerts/night/long.json").read_bytes() == (data / "alerts/night/long.json").read_bytes()
    assert store.admin.list_multipart_uploads(Bucket=store.BUCKET).get("Uploads", []) == []


def test_a_long_file_that_cannot_be_written_leaves_nothing(meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path) -> None:
    (data / "alerts" / "night").mkdir(parents=True)
    (data / "alerts" / "night" / "long.json").write_bytes(os.urandom(LONG))
    with store.faults(lambda request: Fault(status=503, code="SlowDown") if "partNumber=3" in request.path else None):
        outcome = call(meridian, store, "backup", "--data", data, place, AWS_MAX_ATTEMPTS="2")
    assert_rejected(outcome, "long.json could not be written in 2 tries", "SlowDown")
    assert store.admin.list_multipart_uploads(Bucket=store.BUCKET).get("Uploads", []) == []
    assert_rejected(call(meridian, store, "restore", place, "--data", tmp_path / "restored"), "has no backups")
    # It is no hindrance.
    told(meridian, store, "backup", "--data", data, place)
    assert_restored(meridian, store, place, tmp_path / "restored", rows(meridian, data))


@pytest.mark.parametrize("where", ["/tables/", "/snapshots/", "snapshot.json"])
def test_a_backup_that_is_killed_is_none_and_its_files_are_of_use(
    meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path, where: str
) -> None:
    told(meridian, store, "backup", "--data", data, place)
    append(meridian, data, tmp_path, 40_000, 50)
    before = len(store.proxy.requests)
    reached, killed = threading.Event(), threading.Event()

    def stop(request: Request) -> Fault | None:
        if request.method != "PUT" or where not in request.key:
            return None
        if where == "/tables/" and not request.key.endswith("manifest.json"):
            return None
        reached.set()
        # It never comes to the store.
        return Fault(waits_for=killed, status=503)

    with store.faults(stop):
        process = meridian.start("backup", "--data", data, place, env=store.environment())
        assert reached.wait(120)
        # The other files under way are written.
        process.kill()
        process.communicate(timeout=60)
        killed.set()
    written = {request.key for request in store.since(before, "PUT") if "/tables/" in request.key and request.status == 200}
    assert len(names(meridian, store, place)) == 1
    # Nobody knows that it was killed, until the lock is old by the store's own clock.
    said = assert_rejected(call(meridian, store, "backup", "--data", data, place), "is under way, or was killed", "backup.lock")
    assert place in said
    later = format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=11), usegmt=True)
    before = len(store.proxy.requests)
    with store.faults(lambda request: Fault(headers={"Date": later}) if request.key.endswith("backup.lock") else None):
        told(meridian, store, "backup", "--data", data, place)
    again = {request.key for request in store.since(before, "PUT") if "/tables/" in request.key}
    assert written.isdisjoint(again)
    assert len(names(meridian, store, place)) == 2
    assert_restored(meridian, store, place, tmp_path / "restored", rows(meridian, data))
    # What the killed one left of itself is gone.
    assert len({key.removeprefix(prefix(place)).split("/")[1] for key in store.keys(f"{prefix(place)}snapshots/")}) == 2
    assert f"{prefix(place)}backup.lock" not in store.keys()


def test_one_backup_at_a_time(meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(request: Request) -> Fault | None:
        if request.method != "PUT" or "/tables/" not in request.key:
            return None
        reached.set()
        return Fault(waits_for=go_on)

    with store.faults(hold):
        process = meridian.start("backup", "--data", data, place, env=store.environment())
        assert reached.wait(120)
        assert_rejected(call(meridian, store, "backup", "--data", data, place), "another backup into", "is under way")
        # A snapshot that is not whole is not seen.
        assert_rejected(call(meridian, store, "restore", place, "--list"), "has no backups")
        go_on.set()
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert len(names(meridian, store, place)) == 1


def test_damage_is_told_and_no_data_directory_made(meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path) -> None:
    told(meridian, store, "backup", "--data", data, place)
    victim = max((key for key in store.keys(f"{prefix(place)}tables/") if key.endswith(".mrd")), key=lambda key: len(store.get(key)))
    whole = store.get(victim)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    restored = tmp_path / "restored"
    for content, words in [(bytes(flipped), "is damaged"), (whole[:-1], "is damaged"), (None, "is missing")]:
        if content is None:
            store.admin.delete_object(Bucket=store.BUCKET, Key=victim)
        else:
            store.put(victim, content)
        shutil.rmtree(restored, ignore_errors=True)
        outcome = call(meridian, store, "restore", place, "--data", restored)
        assert_rejected(outcome, f"s3://{store.BUCKET}/{victim}", words)
        assert not (restored / "meridian.sqlite").exists()
    store.put(victim, whole)
    # What was restored until then is completed.
    assert_restored(meridian, store, place, tmp_path / "restored", rows(meridian, data))
    (saying,) = (key for key in store.keys(prefix(place)) if key.endswith("snapshot.json"))
    store.put(saying, store.get(saying)[:-20])
    assert_rejected(call(meridian, store, "restore", place, "--list"), "snapshot.json is damaged")


def test_a_restoration_that_is_killed_is_completed(meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path) -> None:
    told(meridian, store, "backup", "--data", data, place)
    reached, killed = threading.Event(), threading.Event()

    def stop(request: Request) -> Fault | None:
        if not request.key.endswith("meridian.sqlite"):
            return None
        reached.set()
        return Fault(waits_for=killed)

    restored = tmp_path / "restored"
    with store.faults(stop):
        process = meridian.start("restore", place, "--data", restored, env=store.environment())
        assert reached.wait(120)
        process.kill()
        process.communicate(timeout=60)
        killed.set()
    assert not (restored / "meridian.sqlite").exists() and list((restored / "tables").rglob("*.mrd"))
    before = len(store.proxy.requests)
    assert_restored(meridian, store, place, restored, rows(meridian, data))
    assert not [request.key for request in store.since(before, "GET") if request.key.endswith(".mrd")]


def test_places_that_are_none_are_told(meridian: Meridian, store: Store, data: Path, tmp_path: Path) -> None:
    bucket = f"s3://{store.BUCKET}"
    store.put("other/notes.txt", b"not ours")
    reader, secret = store.reader
    for place, variables, words in [
        (f"{bucket}/other", {}, ["has other files in it"]),
        ("s3://no-such-bucket/x", {}, ["there is no bucket no-such-bucket"]),
        ("http://localhost/backups?token=sesame", {}, ["no place of backups", "s3://BUCKET/PREFIX"]),
        (f"{bucket}/new", {"AWS_ACCESS_KEY_ID": reader, "AWS_SECRET_ACCESS_KEY": secret}, ["denied (AccessDenied)"]),
        (f"{bucket}/new", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, ["there are no credentials"]),
    ]:
        said = assert_rejected(call(meridian, store, "backup", "--data", data, place, **variables), *words)
        assert "sesame" not in said and secret not in said
    assert_rejected(call(meridian, store, "restore", f"{bucket}/new", "--data", tmp_path / "restored"), "has no backups")
    assert store.keys("new") == set() and store.keys("other") == {"other/notes.txt"}
    assert not (tmp_path / "restored").exists()
    # Parts of another history are refused, as in directories.
    told(meridian, store, "backup", "--data", data, f"{bucket}/history")
    shutil.rmtree(data)
    meridian.load(data, "sky", "Star", write_lines(tmp_path / "z.csv", star_lines(70, 9)), kind="director", key="id", ra="ra", dec="dec", **CUT)
    assert_rejected(call(meridian, store, "backup", "--data", data, f"{bucket}/history"), "is another part of the table")
    assert "history/backup.lock" not in store.keys()


def test_a_backup_of_an_archive_that_is_not_whole_is_none(meridian: Meridian, store: Store, place: str, data: Path) -> None:
    told(meridian, store, "backup", "--data", data, place)
    before = store.keys(prefix(place))
    victim = sorted(data.glob("tables/*/*/chunk_*.mrd"))[0]
    whole = victim.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    victim.unlink()
    assert_rejected(call(meridian, store, "backup", "--data", data, place, "--keep", 1), str(victim), "is missing", "meridian check")
    victim.write_bytes(whole[:-1])
    assert_rejected(call(meridian, store, "backup", "--data", data, place, "--keep", 1), str(victim), "is damaged", "meridian check")
    assert store.keys(prefix(place)) == before
    victim.write_bytes(flipped)
    assert_rejected(call(meridian, store, "backup", "--data", data, place + "-other"), str(victim), "is damaged", "meridian check")
    assert not [key for key in store.keys(prefix(place + "-other")) if key.endswith("snapshot.json")]


def test_a_place_is_verified(meridian: Meridian, store: Store, place: str, data: Path) -> None:
    told(meridian, store, "backup", "--data", data, place)
    assert "are as they were written" in told(meridian, store, "restore", place, "--verify")
    for victim in [next(key for key in sorted(store.keys(prefix(place))) if key.endswith(name)) for name in (".mrd", "meridian.sqlite")]:
        whole = store.get(victim)
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 1
        for content in (bytes(flipped), whole[:-1], None):
            if content is None:
                store.admin.delete_object(Bucket=store.BUCKET, Key=victim)
            else:
                store.put(victim, content)
            outcome = call(meridian, store, "restore", place, "--verify")
            assert outcome.status == 1 and f"{victim} is damaged or missing" in outcome.complaint
        store.put(victim, whole)
    told(meridian, store, "restore", place, "--verify", "--quiet")


def test_a_snapshot_that_cannot_be_read_leaves_the_others(meridian: Meridian, store: Store, place: str, data: Path, tmp_path: Path) -> None:
    state = rows(meridian, data)
    told(meridian, store, "backup", "--data", data, place)
    append(meridian, data, tmp_path, 20_000, 300)
    told(meridian, store, "backup", "--data", data, place)
    first, second = names(meridian, store, place)
    saying = f"{prefix(place)}snapshots/{second}/snapshot.json"
    store.put(saying, store.get(saying)[:-20])
    parts = store.keys(f"{prefix(place)}tables/")
    assert names(meridian, store, place) == [first]
    assert_rejected(call(meridian, store, "restore", place, "--data", tmp_path / "restored"), "snapshot.json is damaged")
    assert_restored(meridian, store, place, tmp_path / "restored", state, "--at", first)
    outcome = call(meridian, store, "backup", "--data", data, place, "--keep", 1)
    assert outcome.status == 0 and second in outcome.complaint and saying in store.keys(prefix(place))
    assert parts <= store.keys(f"{prefix(place)}tables/") and first not in names(meridian, store, place)
