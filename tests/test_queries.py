"""Asks Meridian and DuckDB the same queries of the same rows. The queries are in `queries/`, by theme."""

from __future__ import annotations

import json

import pytest

from catalogues import Catalogue
from queries import Case, chunks, joins, keys, lsst, regions, shapes, values
from queries import gaia as gaia_queries

SYNTHETIC = chunks.CASES + regions.CASES + keys.CASES + joins.CASES + shapes.CASES + values.CASES


def each(cases: list[Case]) -> pytest.MarkDecorator:
    """One test for each case, named after it."""
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


@each(SYNTHETIC)
def test_synthetic(case: Case, synthetic_sky: Catalogue) -> None:
    synthetic_sky.check(case)


@each(lsst.PT11)
def test_pt11(case: Case, pt11: Catalogue) -> None:
    pt11.check(case)


@each(lsst.PT12)
def test_pt12(case: Case, pt12: Catalogue) -> None:
    pt12.check(case)


@each(gaia_queries.CASES)
def test_gaia(case: Case, gaia: Catalogue) -> None:
    gaia.check(case)


def test_the_made_up_sky_fills_many_chunks(synthetic_sky: Catalogue) -> None:
    (path,) = synthetic_sky.data.glob("tables/sky.object/*/manifest.json")
    assert len(json.loads(path.read_text())["manifest"]["chunks"]) >= 300


def test_case_names_are_unique() -> None:
    names = [case.name for case in SYNTHETIC]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
