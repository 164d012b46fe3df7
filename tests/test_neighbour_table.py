"""The table of what neighbours cost (`make bench-neighbours`): its layouts, its check of counts, a tiny run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian as Program

sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench.neighbour_table import Layout, Outcome, disagreements, layouts  # noqa: E402


def test_layouts_have_from_few_to_many_rows_in_a_sub_chunk() -> None:
    found = [layout.rows_in_sub_chunk() for layout in layouts(50_000)]
    assert found == sorted(found)
    assert 400 < found[0] < 600
    assert any(10_000 < rows < 20_000 for rows in found)


def test_layouts_that_count_differently_are_told() -> None:
    """The same query of the same catalogue; another catalogue may count otherwise."""
    text = "SELECT 1"
    found = {
        Layout(50, 3): {text: Outcome([0.1], [7, 7])},
        Layout(50, 4): {text: Outcome([0.1], [7, 7])},
        Layout(60, 3): {text: Outcome([0.1], [9, 9])},
    }
    assert disagreements(found) == []
    found[Layout(50, 4)][text].pairs[1] = 8
    assert disagreements(found) == ["- **Counts differ: [7, 8] at 50 objects in a square degree.** `SELECT 1`"]


def test_the_table_of_costs_is_written(meridian: Program, tmp_path: Path) -> None:
    """Every density, radius, layout and condition has a time."""
    command = [sys.executable, "-m", "meridian_bench.neighbour_table", "--size", "tiny", "--threads", "1"]
    command += ["--meridian", str(meridian.binary), "--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "NEIGHBOURS.md").read_text()
    assert len(re.findall(r"^\| (?:5,000|50,000|200,000) \| ", page, re.MULTILINE)) == 12
    assert page.count("| pairs |") == 3
    assert len(re.findall(r"\d \(\d+\.\d\d\)", page)) == len(layouts(50_000)) * (5 + 3)
