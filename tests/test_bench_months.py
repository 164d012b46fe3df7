"""The benchmark of months of nightly alert databases (`make bench-months`): a tiny run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian


def test_the_page_is_written(meridian: Meridian, tmp_path: Path) -> None:
    """Each kind of statement has what it reads before and after, and the answers are the same."""
    command = [sys.executable, "-m", "meridian_bench.months", "--meridian", str(meridian.binary), "--work", str(tmp_path / "work")]
    command += ["--out", str(tmp_path), "--nights", "2", "--states", "1", "--statements", "1"]
    paths = os.pathsep.join(str(REPOSITORY / path) for path in ("bench", "python/meridian_apdb"))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "MONTHS.md").read_text()
    for title in ("a light curve, three columns", "a light curve, all columns", "a cone of sources, one arcminute"):
        assert re.search(rf"^\| {title} \| [\d,]+ \([\d.]+ x\) \| [\d,]+ \([\d.]+ x\) \| [\d,]+ \|$", page, re.MULTILINE), page
