"""The comparison itself must not let a wrong answer pass."""

from __future__ import annotations

from comparison import Tolerance, difference


def test_multisets_count_repeated_rows() -> None:
    assert difference([(1,), (1,)], [(1,), (1,)]) is None
    assert difference([(1,), (1,)], [(1,)]) is not None
    assert difference([(1,), (2,)], [(1,), (1,)]) is not None


def test_null_is_not_zero_nor_empty_text() -> None:
    assert difference([(None,)], [(0,)]) is not None
    assert difference([(None,)], [("",)]) is not None
    assert difference([(None, 1)], [(None, 1.0)]) is None


def test_floats_within_rounding_in_any_order() -> None:
    ours = [(1.0 + 1e-12, 5.0), (1.0, 4.0)]
    theirs = [(1.0 + 2e-12, 4.0), (1.0, 5.0)]
    assert difference(ours, theirs) is None
    assert difference([(1.0,)], [(1.0 + 1e-6,)]) is not None
    assert difference([(1e-30,)], [(2e-30,)]) is not None
    assert difference([(1e-15,)], [(0.0,)], Tolerance(absolute=1e-12)) is None


def test_large_integers_are_compared_exactly() -> None:
    assert difference([(9007199254740993,)], [(9007199254740992,)]) is not None


def test_order_counts_where_asked() -> None:
    assert difference([(1,), (2,)], [(2,), (1,)]) is None
    assert difference([(1,), (2,)], [(2,), (1,)], ordered=True) is not None
    assert difference([(1,)], [(1,), (2,)], ordered=True) is not None
