"""One run: worlds one after the other in several processes, their failures made small and shown."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from differential import cases
from differential.databases import World, WorldMaker, load
from differential.dialects import MYSQL, for_duckdb, for_meridian
from differential.engines import Oracle, OracleFails, Rows, ServedDatabase, names_files
from differential.grammar import Grammar
from differential.known import known
from differential.shrinking import shrink, shrink_rows, skeleton, tables_of
from differential.tree import Query
from differential.trials import ADQL_SHARE, Tally, Trial, Trying, trials, trials_in_adql
from differential.verdict import Failure, whole
from differential.writing import Places
from meridian_cli import Failed, Meridian

MOST_SHRUNK = 4
SHOWN_ROWS = 12
# The threads of the servers of one world and of the next ones.
THREADS = (2, 1, 4)
# Of these there are many; any other category is one error, which is shown once.
ANSWERS = ("wrong", "law")


@dataclass(frozen=True)
class Plan:
    """What a run does. A world and its statements follow from the seed, its number and theirs."""

    binary: Path
    seed: int
    count: int
    seconds: float | None
    jobs: int
    first_world: int
    statements_a_world: int
    shrink_seconds: float
    save: Path | None
    only: str | None = None
    # Failures of which the category matches are counted and not made smaller.
    ignored: tuple[str, ...] = ()
    # Whether all is asked in ADQL, and nothing in MySQL's dialect.
    all_in_adql: bool = False


@dataclass
class Found:
    """A failure as it is shown."""

    place: str
    way: str
    failure: Failure
    form: str
    statements: list[str]
    oracle: list[str]
    case: str
    rows: str


@dataclass
class Outcome:
    """What a world, or a run, came to."""

    tally: Tally = field(default_factory=Tally)
    found: list[Found] = field(default_factory=list)
    not_shrunk: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        """Takes in what another came to."""
        self.tally.statements += other.tally.statements
        self.tally.in_adql += other.tally.in_adql
        self.tally.skipped += other.tally.skipped
        self.tally.allowed += other.tally.allowed
        self.found += other.found
        self.not_shrunk += other.not_shrunk
        self.known += other.known


class WorldRun:
    """All statements of one world."""

    def __init__(self, plan: Plan, number: int, shown_before: frozenset[str]) -> None:
        self.plan = plan
        self.errors = set(shown_before)
        self.number = number
        self.meridian = Meridian(plan.binary)
        self.world = replace(WorldMaker(hash_of(plan.seed, number)).make(), threads=THREADS[number % len(THREADS)])
        self.outcome = Outcome()
        self.forms: set[str] = set()

    def run(self, quota: int, deadline: float | None) -> Outcome:
        """Asks about so many statements."""
        with tempfile.TemporaryDirectory(prefix="differential_") as name:
            directory = Path(name)
            load(self.meridian, directory, self.world)
            served = ServedDatabase(self.meridian, directory, self.world.threads)
            try:
                trying = Trying(served, Oracle(self.world), self.outcome.tally)
                number = 0
                while self.outcome.tally.statements < quota and (deadline is None or time.time() < deadline):
                    if self.plan.only is None or self.plan.only == str(number):
                        self.statement(trying, number)
                    number += 1
                    if self.plan.only is not None and number > int(self.plan.only):
                        break
                if served.panics:
                    # No statement had an error of it: it is not known which one it was.
                    self.outcome.not_shrunk[f"panic, by no statement's error: {served.panics}"] += 1
            finally:
                served.close()
        return self.outcome

    def statement(self, trying: Trying, number: int) -> None:
        """Makes one statement and does what is to be done with it."""
        place = f"{self.plan.seed}/{self.number}/{number}"
        query = Grammar(self.world, place).statement()
        for trial in self.trials(query, place, trying.oracle.places):
            failed = trying.failure(trial)
            if failed is not None:
                self.failed(trying, trial, *failed, place)
                return

    def trials(self, query: Query, place: str, places: Places) -> list[Trial]:
        """What is done with a statement. ADQL's share has its own chance: what is asked in MySQL's dialect is the same with it and without."""
        made = [] if self.plan.all_in_adql else trials(query, random.Random(f"{place}/trials"))
        chance = random.Random(f"{place}/adql")
        if chance.random() < ADQL_SHARE or self.plan.all_in_adql:
            made += trials_in_adql(query, chance, places)
        return made

    def failed(self, trying: Trying, trial: Trial, failure: Failure, at: int, place: str) -> None:
        """Makes a failure small, and keeps it if its form is new."""
        if (story := known(failure, trial.variants[at])) is not None:
            self.outcome.known[story] += 1
            return
        ignored = any(re.search(pattern, failure.category) for pattern in self.plan.ignored)
        if ignored or failure.category in self.errors or len(self.forms) >= MOST_SHRUNK:
            self.outcome.not_shrunk[failure.category] += 1
            return
        if failure.category not in ANSWERS:
            self.errors.add(failure.category)
        tally = self.outcome.tally
        asked, in_adql = tally.statements, tally.in_adql
        alone = replace(trial, variants=(trial.variants[at],))
        if trial.way in ("served", "prepared") and len(trial.variants) > 1 and same(trying, alone, failure):
            trial = alone
        small = shrink(trial.variants, lambda variants: same(trying, replace(trial, variants=variants), failure), self.plan.shrink_seconds)
        trial = replace(trial, variants=small)
        tally.statements, tally.in_adql = asked, in_adql
        form = f"{failure.category} {trial.dialect} {trial.way} {skeleton(small[0], self.world)}"
        if form in self.forms:
            return
        self.forms.add(form)
        world = self.small_world(trial, failure)
        found = self.shown(place, trial, failure, form, world)
        keep(self.plan, found)
        self.outcome.found.append(found)

    def small_world(self, trial: Trial, failure: Failure) -> World:
        """The tables that are needed, with the fewest rows found; all rows if the failure is not to be had again."""
        needed = replace(self.world, tables=tuple(self.world.tables[at] for at in tables_of(trial.variants, self.world)))

        def fails(world: World) -> bool:
            try:
                found = failure_in(self.meridian, world, trial)
            except (Failed, OracleFails):
                return False
            return found is not None and found.category == failure.category

        if not fails(needed):
            return needed
        return shrink_rows(needed, fails, self.plan.shrink_seconds * 1.5)

    def shown(self, place: str, trial: Trial, failure: Failure, form: str, world: World) -> Found:
        """A failure as it is shown: asked once more of the few rows, so that the story is about them."""
        oracle = Oracle(world)
        try:
            failure = failure_in(self.meridian, world, trial) or failure
        except (Failed, OracleFails):
            pass
        statements = [for_meridian(query, trial.dialect) for query in trial.variants]
        expected: list[Rows] = []
        for query in trial.variants:
            unlimited, taken = whole(query)
            try:
                expected.append(oracle.execute(unlimited, dialect=trial.dialect)[taken])
            except OracleFails:
                expected.append([])
        case = cases.as_json(f"Found by the differential tester, {place}.", world, statements, expected, trial.dialect)
        asked = [for_duckdb(query, world.places(), dialect=trial.dialect) for query in trial.variants]
        way = trial.way if trial.dialect == MYSQL else f"{trial.way}, in ADQL"
        return Found(place, way, failure, form, statements, asked, case, rows_text(world))


def hash_of(seed: int, number: int) -> int:
    """A seed for a world."""
    return random.Random(f"{seed}/{number}").randrange(2**32)


def same(trying: Trying, trial: Trial, failure: Failure) -> bool:
    """Whether a trial fails in the same way; a statement that DuckDB does not understand does not count."""
    try:
        for query in trial.variants:
            trying.oracle.execute(whole(query)[0], dialect=trial.dialect)
    except OracleFails:
        return False
    found = trying.failure(trial)
    return found is not None and found[0].category == failure.category


def failure_in(meridian: Meridian, world: World, trial: Trial) -> Failure | None:
    """How a trial fails in a world that is loaded for it alone."""
    with tempfile.TemporaryDirectory(prefix="differential_") as name:
        load(meridian, Path(name), world)
        served = ServedDatabase(meridian, Path(name), world.threads)
        try:
            found = Trying(served, Oracle(world), Tally()).failure(trial)
        finally:
            served.close()
    return found and found[0]


def rows_text(world: World) -> str:
    """The rows of small tables as text, and how many there are of large ones."""
    lines = []
    for table in world.tables:
        shape, rows = table.shape, table.rows
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in shape.options.items())
        lines.append(f"{shape.database}.{shape.name} ({options}), {rows.num_rows} rows: {', '.join(rows.column_names)}")
        if rows.num_rows <= SHOWN_ROWS:
            lines += [f"  {tuple(cases.written(value) for value in row.values())}" for row in rows.to_pylist()]
    return "\n".join(lines)


def one_world(plan: Plan, number: int, quota: int, deadline: float | None, shown_before: frozenset[str]) -> Outcome:
    """What a process does."""
    return WorldRun(plan, number, shown_before).run(quota, deadline)


def show(found: Found) -> str:
    """A failure, ready to be pasted."""
    parts = [f"== {found.failure.category} ({found.way}), SEED and places: {found.place}", *(f"{sql};" for sql in found.statements)]
    parts += ["-- DuckDB is asked", *(f"{sql};" for sql in found.oracle), "-- what was seen", found.failure.story, "-- the rows", found.rows]
    return "\n".join(parts)


def run(plan: Plan, say: Callable[[str], None]) -> Outcome:
    """Asks as many statements as the plan says, or for as long."""
    outcome, forms, started = Outcome(), Counter[str](), time.time()
    deadline = None if plan.seconds is None else started + plan.seconds
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(plan.jobs, mp_context=context) as pool:
        number, promised = plan.first_world, 0
        running: dict[concurrent.futures.Future[Outcome], int] = {}
        while True:
            while len(running) < plan.jobs and promised < plan.count and (deadline is None or time.time() < deadline):
                quota = min(plan.statements_a_world, plan.count - promised)
                errors = frozenset(one.failure.category for one in outcome.found) - frozenset(ANSWERS)
                running[pool.submit(one_world, plan, number, quota, deadline, errors)] = number
                number, promised = number + 1, promised + quota
            if not running:
                break
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                world = running.pop(future)
                result = future.result()
                outcome.add(result)
                for found in result.found:
                    forms[found.form] += 1
                    if forms[found.form] == 1:
                        say(show(found))
                say(
                    f"world {world}: {result.tally.statements} statements, {len(result.found)} failures; "
                    f"{outcome.tally.statements} in {time.time() - started:.0f} s"
                )
    return outcome


def keep(plan: Plan, found: Found) -> None:
    """Writes a failure as a case."""
    if plan.save is not None:
        plan.save.mkdir(parents=True, exist_ok=True)
        (plan.save / f"{found.place.replace('/', '-')}.json").write_text(found.case, encoding="utf-8")
        (plan.save / f"{found.place.replace('/', '-')}.txt").write_text(show(found), encoding="utf-8")
