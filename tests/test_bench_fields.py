"""The benchmark of fields of view (`make bench-fields`): a tiny run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian


def test_the_page_is_written(meridian: Meridian, tmp_path: Path) -> None:
    """Every way has a time at each density, of rows of both widths; answers that differ would end it."""
    command = [sys.executable, "-m", "meridian_bench.fields", "--size", "tiny", "--meridian", str(meridian.binary)]
    command += ["--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "FIELDS.md").read_text()
    assert len(re.findall(r"^\| [\d,]+ (?:\| [\d.]+ ){5}\|$", page, re.MULTILINE)) == 6, page
    for way in ("sources sent to Meridian", "objects read from Meridian, matched in memory by DuckDB", "DuckDB"):
        assert re.search(rf"^\| {way} \| [\d.]+ \|$", page, re.MULTILINE), page
    assert re.search(r"objects: [1-9]\d* pairs", page), page
