"""The kept cases as tests, and that the tester itself sees what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from differential.cases import Case, all_cases, complaint
from meridian_cli import Meridian


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_case(case: Case, meridian: Meridian, tmp_path: Path) -> None:
    assert (found := complaint(case, meridian, tmp_path)) is None, f"{case.story}\n{found}"
