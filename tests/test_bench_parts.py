"""The benchmark of tables of many parts (`make bench-parts`): a tiny run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian as Program

sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench.parts import QUERIES, SCAN_QUERIES, same  # noqa: E402


def test_results_are_compared_as_what_they_are() -> None:
    assert same([(1, "a")], [(1, "a")])
    assert not same([(1, "a")], [(1, "b")])
    assert same([(1, 2.0)], [(1, 2.0 + 1e-10)])
    assert not same([(1, 2.0)], [(1, 2.0), (1, 2.0)])


def test_the_page_is_written(meridian: Program, tmp_path: Path) -> None:
    """Every query has a time of one part, of many and of what these are compacted to, and all give the same rows."""
    command = [sys.executable, "-m", "meridian_bench.parts", "--size", "tiny"]
    command += ["--meridian", str(meridian.binary), "--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "PARTS.md").read_text()
    for title in [*QUERIES, *SCAN_QUERIES]:
        assert re.search(rf"^\| {re.escape(title)} \| [\d.]+ \| [\d.]+ \([\d.]+ x\) \| [\d.]+ \([\d.]+ x\) \|$", page, re.MULTILINE), page
    assert "differs" not in page
