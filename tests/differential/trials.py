"""What is done with one statement: asked with several constants, prepared, in ADQL, and by laws that need no oracle."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from differential import values
from differential.adql import adapted, has_adql
from differential.dialects import ADQL, MYSQL, Dialect
from differential.engines import LOST, Oracle, OracleFails, Rejection, Rows, ServedDatabase, TooLarge, names_files
from differential.tap import AFTER_ROWS
from differential.tree import Apply, Constant, Expr, Node, Path, Query, Select, SetQuery, changed, first_select, kinds_of, outermost, put, walk
from differential.verdict import ROUNDING, Failure, allowed, comparable, compare, exact_columns, of_rejection, whole
from differential.writing import Places

from comparison import difference

# MySQL's number of a mistake of the server's own, and HTTP's, which is not known of one that comes after rows.
SERVERS_MISTAKES = (1815, 500, AFTER_ROWS)
EXACT_IN_DOUBLES = 2**53
PREPARED_SHARE, PARTITION_SHARE, REDUNDANT_SHARE = 0.07, 0.05, 0.05
# Of the statements that are asked in MySQL's dialect, so many are asked in ADQL as well, if they can be.
ADQL_SHARE = 0.2


@dataclass(frozen=True)
class Trial:
    """A statement with the constants that it is asked with one after the other, and a way to ask it."""

    variants: tuple[Query, ...]
    way: str = "served"
    dialect: Dialect = MYSQL


@dataclass
class Tally:
    """What was asked."""

    statements: int = 0
    in_adql: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)


def with_constants(query: Query, rng: random.Random, make: Callable[[random.Random, str], values.Value]) -> Query:
    """The statement with other constants."""

    def change(node: Node) -> Node:
        if isinstance(node, Constant) and node.role is not None:
            return replace(node, value=make(rng, node.role))
        return node

    made = changed(query, change)
    assert isinstance(made, Query)
    return made


def special_or_plain(rng: random.Random, role: str) -> values.Value:
    """A special constant, or a usual one."""
    return values.special(rng, role) if rng.random() < 0.5 else values.plain(rng, role)


def variants(query: Query, rng: random.Random) -> tuple[Query, ...]:
    """The statement as it is, with other usual constants, and with special ones: a kept plan is used from the third time on."""
    if not any(isinstance(node, Constant) and node.role for _, node in walk(query)):
        return (query,)
    more = [special_or_plain] if rng.random() < 0.8 else [values.plain, special_or_plain, special_or_plain]
    return query, with_constants(query, rng, values.plain), *(with_constants(query, rng, make) for make in more)


def trials(query: Query, rng: random.Random, dialect: Dialect = MYSQL) -> list[Trial]:
    """What is done with a statement in a dialect."""
    all_variants = variants(query, rng)
    made = [Trial(all_variants, dialect=dialect)]
    if names_files(query):
        return made
    if dialect == MYSQL and rng.random() < PREPARED_SHARE:
        made.append(Trial(all_variants, "prepared"))
    if rng.random() < PARTITION_SHARE and can_be_partitioned(query):
        made.append(Trial((query,), "partition", dialect))
    if rng.random() < REDUNDANT_SHARE and any(kind == "where" for kind, _ in conditions(query)):
        made.append(Trial((query, redundant(query, rng)), "redundant", dialect))
    return made


def trials_in_adql(query: Query, rng: random.Random, places: Places) -> list[Trial]:
    """What is done with a statement in ADQL; nothing if it cannot be asked so."""
    made = adapted(query, rng, places)
    return trials(made, rng, ADQL) if has_adql(made) else []


def conditions(query: Query) -> list[tuple[str, Path]]:
    """Where conditions stand: in WHERE, or elsewhere."""
    found = []
    for path, node in walk(query):
        if isinstance(node, Select) and node.where is not None:
            found.append(("where", (*path, ("where", None))))
    return found


def can_be_partitioned(query: Query) -> bool:
    """Whether its rows are those for which a condition holds, one by one."""
    select = query
    return isinstance(select, Select) and select.where is not None and not (
        select.groups or select.is_distinct or select.limit or select.having or select.area
        or any(type(node).__name__ in ("Aggregate", "Window") for item in select.items for _, node in walk(item))
    )  # fmt: skip


def redundant(query: Query, rng: random.Random) -> Query:
    """The statement with something added to a condition that changes nothing."""
    path = rng.choice([path for _, path in conditions(query)])
    old = query
    for name, at in path:
        old = getattr(old, name) if at is None else getattr(old, name)[at]
    assert isinstance(old, Expr)
    true = Constant("bool", True)
    forms = [
        Apply("bool", "and", (old, true)), Apply("bool", "or", (old, old)), Apply("bool", "not", (Apply("bool", "not", (old,)),)),
        Apply("bool", "is_true", (old,)), Apply("bool", "and", (old, old)),
    ]  # fmt: skip
    made = put(query, path, rng.choice(forms))
    assert isinstance(made, Query)
    return made


def computes_with_null_in_a_set(query: Query) -> bool:
    """Whether a statement with a UNION or the like computes with NULL."""
    nodes = [node for _, node in walk(query)]
    computed = (node.args for node in nodes if isinstance(node, Apply))
    has_null = any(isinstance(one, Constant) and one.value is None for args in computed for one in args)
    return has_null and any(isinstance(node, SetQuery) for node in nodes)


class Trying:
    """Does trials against a server and an oracle."""

    def __init__(self, served: ServedDatabase, oracle: Oracle, tally: Tally) -> None:
        self.served = served
        self.oracle = oracle
        self.tally = tally
        self.marks = 0

    def mark(self) -> str:
        """A word that no statement had before."""
        self.marks += 1
        return f"n{self.marks}"

    def failure(self, trial: Trial) -> tuple[Failure, int] | None:
        """The first failure, and the variant that shows it."""
        match trial.way:
            case "partition":
                return self._lawful(trial, self.partition)
            case "redundant":
                return self._lawful(trial, self.equal_answers)
        mark = self.mark()
        for at, query in enumerate(trial.variants):
            found = self.one(query, trial.way, mark, trial.dialect)
            if found is not None:
                return found, at
        return None

    def one(self, query: Query, way: str, mark: str, dialect: Dialect) -> Failure | None:
        """Asks one statement and judges the answer."""
        unlimited, taken = whole(query)
        everything: Rows | None = None
        try:
            everything = self.oracle.execute(unlimited, dialect=dialect)
        except OracleFails as failure:
            self.tally.skipped[str(failure).split(":")[0]] += 1
            if isinstance(failure, TooLarge):
                return None
        try:
            rows = self.execute(query, way, mark, dialect)
        except TooLarge as failure:
            self.tally.skipped[str(failure)] += 1
            return None
        if isinstance(rows, Failure) or rows is None or everything is None:
            return rows if isinstance(rows, Failure) else None
        found = compare(query, rows, everything, taken)
        if found is not None and (excuse := self.excuse(query, unlimited, rows, taken, dialect)):
            self.tally.skipped[excuse] += 1
            return None
        return found

    def excuse(self, query: Query, unlimited: Query, rows: Rows, taken: slice, dialect: Dialect = MYSQL) -> str | None:
        """Why rows that are not the oracle's are right all the same, if they are."""
        may_round = dialect == MYSQL and computes_with_null_in_a_set(query)
        if may_round and any(isinstance(value, int) and abs(value) > EXACT_IN_DOUBLES for row in self.oracle.execute(unlimited) for value in row):
            return "NULL in arithmetic is a double, as in MySQL, beside integers of a set operation"
        try:
            if compare(query, rows, self.oracle.ask_plainly(unlimited, dialect), taken) is None:
                return "DuckDB's optimizer contradicts DuckDB"
            one, other = (self.oracle.execute(unlimited, takes_last, dialect=dialect) for takes_last in (False, True))
            return None if compare(query, one[taken], other, taken) is None else "which of equally near rows is found is not determined"
        except OracleFails:
            return None

    def execute(self, query: Query, way: str, mark: str, dialect: Dialect) -> Rows | Failure | None:
        """The rows; a failure; or nothing, where an error may be."""
        self.tally.statements += 1
        self.tally.in_adql += dialect == ADQL
        try:
            rows = self.served.ask_prepared(query) if way == "prepared" else self.served.execute(query, mark, dialect)
        except Rejection as rejection:
            if reason := allowed(rejection):
                self.tally.allowed[reason] += 1
                return None
            return self.explained(rejection)
        return rows

    def explained(self, rejection: Rejection) -> Failure:
        """An error; one of the server's own with what it has logged of it, which comes a little later."""
        if rejection.number not in (LOST, *SERVERS_MISTAKES):
            return of_rejection(rejection)
        time.sleep(0.3)
        story = self.served.panics
        if self.served.server.process.poll() is not None:
            last = re.sub(r"\d+", "#", next((line for line in self.served.server.logged if "memory allocation" in line), "without a word"))
            return Failure(f"dead: {last}", f"{rejection}\n" + "\n".join(self.served.server.logged[:8]))
        place = re.search(r"panicked at (?:\S*/)?([^/\s]+/src/\S+?\.rs:\d+)", story)
        self.served.server.logged.clear()
        return Failure(f"panic: {place[1]}", f"{rejection}\n{story}") if place else of_rejection(rejection)

    def _lawful(self, trial: Trial, law: Callable[[Trial], Failure | None]) -> tuple[Failure, int] | None:
        found = law(trial)
        return None if found is None else (found, 0)

    def equal_answers(self, trial: Trial) -> Failure | None:
        """The variants have the same answer."""
        answers = [self.execute(query, "served", self.mark(), trial.dialect) for query in trial.variants]
        if any(answer is None or isinstance(answer, Failure) for answer in answers):
            return next((answer for answer in answers if isinstance(answer, Failure)), None)
        return self.differ(trial.variants[0], answers[0], answers[1], "with the redundant condition")  # type: ignore[arg-type]

    def partition(self, trial: Trial) -> Failure | None:
        """Rows for which a condition is true, false and unknown are all rows."""
        query = trial.variants[0]
        assert isinstance(query, Select) and query.where is not None
        forms = [query.where, Apply("bool", "not", (query.where,)), Apply("bool", "is_unknown", (query.where,)), None]
        answers = [self.execute(replace(query, where=where, order=()), "served", self.mark(), trial.dialect) for where in forms]
        if any(answer is None or isinstance(answer, Failure) for answer in answers):
            return next((answer for answer in answers if isinstance(answer, Failure)), None)
        parts = [row for answer in answers[:3] for row in answer]  # type: ignore[union-attr]
        return self.differ(query, answers[3], parts, "where the condition is true, false or unknown")  # type: ignore[arg-type]

    def differ(self, query: Query, one: Rows, other: Rows, words: str) -> Failure | None:
        """How two answers of Meridian's differ that should not."""
        kinds, exact = kinds_of(query), exact_columns(query)
        if first_select(query).limit is not None or outermost(query).limit is not None:
            # Which rows a LIMIT takes may differ.
            return None if len(one) == len(other) else Failure("law", f"{len(one)} rows, but {len(other)} {words}")
        found = difference(comparable(one, kinds, exact), comparable(other, kinds, exact), ROUNDING)
        return found and Failure("law", f"'The oracle' is Meridian {words}. {found}")  # type: ignore[return-value]
