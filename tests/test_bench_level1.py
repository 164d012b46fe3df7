"""The benchmark of alert databases (`make bench-level1`): a tiny run of each of its parts."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian as Program

LEVEL1 = REPOSITORY / ".venv" / "level1" / "bin" / "python"
ARCHIVED, RELEASED = 6, 3


def read_rows(visits: int) -> int:
    """What is read of a detector after so many visits: 53 variable objects, and of each visit 27 more, which are measured in five visits."""
    objects = 53 + 27 * visits
    sources = 80 * visits
    forced = sum(53 + 27 * min(visit, 5) for visit in range(1, visits + 1))
    return objects + sources + forced


def test_the_page_is_written(meridian: Program, tmp_path: Path) -> None:
    """Histories in the store, in the archive, and put there by a release are read with as many rows as the visits have."""
    assert LEVEL1.exists(), "scripts/setup level1 postgres installs the field's software"
    command = [LEVEL1, "-m", "meridian_bench.level1", "--meridian", meridian.binary, "--stores", "sqlite", "--output", tmp_path / "LEVEL1.md"]
    command += ["--visits", 10, "--detectors", 1, "--archived-visits", ARCHIVED, "--camera-detectors", 2]
    command += ["--cadence-visits", 2, "--cadence", 0.5, "--release-visits", RELEASED, "--merged-rows", 1000, "--idle-stores", 4]
    folders = ("bench", "tests", "tests/level1", "python/meridian_apdb")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(str(REPOSITORY / folder) for folder in folders), "TMPDIR": str(tmp_path)}
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "LEVEL1.md").read_text()
    for line in (
        r"sqlite \| a store \| [\d.]+ \| [\d.]+ \| [\d.]+ x",
        r"sqlite \| a read, 5 visits of history \| [\d.]+ \| [\d.]+ \| [\d.]+ x",
        r"sqlite \| [\d,]+ \| [\d.]+ \| [\d.]+",
        # The camera.
        r"sqlite \| store \| [\d.]+ \| [\d.]+ \| [\d.]+ x",
        r"sqlite \| read \| [\d.]+ \| [\d.]+ \| [\d.]+ x",
        r"sqlite \| [\d,]+ \| [\d.]+ \| [\d.]+",
        # What is in the archive.
        rf"sqlite \| {read_rows(ARCHIVED):,} \| [\d.]+ \| [\d.]+ \| [\d.]+ x \| [\d.]+ x",
        # The release's rows, and those of the first visit after it in the store.
        rf"sqlite \| [\d,]+ \| 2 \| {read_rows(RELEASED + 1):,} \| ([\d.]+ \| ){{5}}\d",
        # A merge.
        r"sqlite \| [\d,]+ \| \d+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ x \| 4, \d+",
    ):
        assert re.search(rf"^\| {line} \|$", page, re.MULTILINE), page
