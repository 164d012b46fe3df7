"""Mistakes of Meridian's that are known and not yet repaired: they are counted and do not fail a run. In ADQL HTTP's status stands for MySQL's number.

Whoever repairs one takes its row away; then the tester looks for it again. A row is as narrow as the mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from differential.tree import (
    Aggregate, Column, Crossmatch, Derived, Exists, InQuery, Item, Join, Node, Quantified, Query, Select, Table, Window, walk,
)  # fmt: skip
from differential.verdict import Failure


@dataclass(frozen=True)
class KnownDifference:
    """A mistake: what its error says (of a wrong answer, "wrong"), which statements have it, and in words."""

    pattern: str
    story: str
    applies: Callable[[Query], bool] = lambda _: True


def is_correlated(query: Query) -> bool:
    """Whether a subquery names columns of the query around it."""
    inside = {node.alias for _, node in walk(query) if isinstance(node, (Table, Derived, Crossmatch))}
    return any(isinstance(node, Column) and node.alias is not None and node.alias not in inside for _, node in walk(query))


def orders_by_a_correlated_subquery(query: Query) -> bool:
    """Whether an ORDER BY asks a subquery that names columns of the query around it."""
    keys = [key for _, node in walk(query) if isinstance(node, Select) for key in node.order]
    return any(isinstance(below, Query) and is_correlated(below) for key in keys for _, below in walk(key))


def orders_by_a_subquery_of_an_items_name(query: Query) -> bool:
    """Whether an ORDER BY asks a subquery whose column is named like an item of the SELECT."""
    for _, node in walk(query):
        if isinstance(node, Select):
            names = {item.name for item in node.items if isinstance(item, Item)}
            asked = (below for key in node.order for _, below in walk(key) if isinstance(below, Select))
            if any(isinstance(item, Item) and item.name in names for below in asked for item in below.items):
                return True
    return False


def has_subquery_in_on(query: Query) -> bool:
    """Whether an ON has a subquery."""

    def asks(node: Node) -> bool:
        return any(isinstance(below, Query) for _, below in walk(node))

    return any(isinstance(node, Join) and node.on is not None and asks(node.on) for _, node in walk(query))


def aggregates_several_memberships(query: Query) -> bool:
    """Whether aggregates or window functions have two subqueries as values."""
    found = 0
    for _, node in walk(query):
        if isinstance(node, (Aggregate, Window)):
            found += sum(isinstance(below, (Exists, InQuery, Quantified)) for _, below in walk(node))
    return found > 1


KNOWN = [
    KnownDifference(
        r"error (1690|1525): .*(to Nanosecond|to Timestamp\(ns\))",
        "TIMESTAMP literals are of nanoseconds: years before 1677 and after 2262 are an error",
    ),
    KnownDifference(
        r"error ((1235|400): .*(does not support logical expression|in the ON of an outer join( are not supported|: join the subquery))|1054: |1105: |"
        r"400: (there is no|a subquery names a column of the query around it))",
        "IN and EXISTS in the ON of an outer join, and scalar subqueries in ON",
        has_subquery_in_on,
    ),
    KnownDifference(
        r"error (1060|400): .*(EXISTS|IN\b|unique expression names)",
        "two aggregates or window functions over EXISTS or IN that differ in the subquery alone have one name",
        aggregates_several_memberships,
    ),
    KnownDifference(
        r"error (1054: |(1235|400): a subquery names a column of the query around it|400: there is no)",
        "a subquery in ORDER BY that names a column which is not selected",
        orders_by_a_correlated_subquery,
    ),
    KnownDifference(r"error 400: .*(for Null|for \(Null -->|AvgGroupsAccumulator)", "totals of a NULL that is written out, in ADQL"),
    KnownDifference(r"error 1235: .*Conflicting ordering requirements in aggregate functions", "two GROUP_CONCAT of different orders in one SELECT"),
    KnownDifference(
        r"error (1052|400): the column c\d+ is in more than one",
        "a subquery in ORDER BY that gives its column the name of an item of the SELECT",
        orders_by_a_subquery_of_an_items_name,
    ),
]


def known(failure: Failure, query: Query) -> str | None:
    """What is known of a failure."""
    text = failure.story if failure.category.startswith("error") else failure.category
    return next((one.story for one in KNOWN if re.search(one.pattern, text) and one.applies(query)), None)
