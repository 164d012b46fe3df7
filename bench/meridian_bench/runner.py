"""Runs the benchmark: loads the contenders group by group and asks them in turns."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .catalogue import Catalogue
from .comparison import difference
from .cone_servers import NoServer, find_generator
from .constants import Constants
from .contenders import CARDS, SINGLE_DIGITS
from .contenders.base import Setup
from .http_cones import AMOUNTS, CONES, PEER, Cones, empty_record
from .install import NotInstalled, install
from .machine import forget_files, free_bytes, memory_bytes, read_files
from .query import JOIN, LOOKUP, Query
from .queries import queries_for
from .reckoning import reason_to_leave_out
from .sizes import SPARE_BYTES, Size, room_for
from .worker import Reply, Trouble, Worker

OURS = "meridian"
# Of a block of lookups, those whose every query costs seconds get this many.
SLOW_BLOCK = 5
# Of lookups as many do not count, at most: memory that nobody has touched for seconds is slow at first on a virtual machine.
WARMING_LOOKUPS = 500
# Seconds that a contender may take for what does not count.
WARMING_SECONDS = 5.0
# Seconds within which a contender loads all tables whose loads are repeated.
QUICK_LOADING = 120.0
MOST_DIFFERENCES_KEPT = 5


def log(text: str) -> None:
    """Says how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Plan:
    """What to run, as the command line has it."""

    size: Size
    groups: Sequence[Sequence[str]]
    work: Path
    program: Path
    threads: int
    keep: bool
    # Names of queries, or none for all.
    chosen: Sequence[str]
    # An interpreter that has all packages already, or None to install them.
    python: str | None
    # The load generator, or None to build it.
    generator: Path | None
    # The size's name.
    size_name: str
    # Whether each contender has the memory of the machine to itself while it is asked.
    apart: bool


class Run:
    """One run. `record` is what the raw file gets, and all that the report is made from."""

    def __init__(self, plan: Plan, catalogue: Catalogue, constants: Constants) -> None:
        self.plan = plan
        self.catalogue = catalogue
        self.constants = constants
        self.workers: dict[str, Worker] = {}
        self.pythons: dict[str, str] = {}
        # Who was loaded in this run, and not yet again.
        self.loaded: set[str] = set()
        self.record: dict[str, Any] = {
            "versions": {},
            "absent": {},
            "loads": [],
            "memory": {},
            "queries": [],
            "left_out": {},
        }
        columns = catalogue.tables["Object"].columns
        self.queries = queries_for(list(catalogue.tables), columns, plan.chosen)
        self.asks_cones = not plan.chosen or CONES in plan.chosen
        # What no query is about need not be loaded.
        asked = {table for query in self.queries for table in query.tables}
        asked |= {"Object"} if self.asks_cones else set()
        self.tables = {name: table for name, table in catalogue.tables.items() if name in asked}

    def everything(self, raw: Path) -> None:
        """All groups. A peer that fails is left out, and the record says why; without Meridian there is no run."""
        if not self._ready(OURS):
            raise SystemExit(f"Meridian cannot take part: {self.record['absent']['meridian']}")
        try:
            self._find_generator()
            for number, group in enumerate(self.plan.groups):
                self._run_group(number, group)
                raw.write_text(json.dumps(self.record))
            if self.asks_cones and "cones" not in self.record:
                self._cones_over_http()
                if self.plan.apart and any(PEER in group for group in self.plan.groups):
                    self.record["cones"]["absent"][PEER] = "one contender runs at a time, and these take turns"
        finally:
            # Also where somebody ends the run: hours of samples are in it.
            raw.write_text(json.dumps(self.record))
            self._close_all()

    # Loading.

    def _home(self, name: str) -> Path:
        return self.plan.work / name

    def _stripes(self) -> int | None:
        file = self.plan.work / "stripes.txt"
        return int(file.read_text()) if file.is_file() else None

    def _setup(self, name: str, home: Path | None = None) -> Setup:
        tables = {table: files for table, files in self.tables.items() if table in CARDS[name].tables}
        servers = max([sum(CARDS[peer].has_pool for peer in group) for group in self.plan.groups], default=0)
        return Setup(
            home or self._home(name),
            tables,
            self.plan.threads,
            memory_bytes(),
            self.plan.program,
            self._stripes(),
            max(1, servers),
        )

    def _worker(self, name: str, home: Path | None = None) -> Worker:
        worker = Worker(name, self._setup(name, home), self.pythons[name])
        self.record["versions"][name] = worker.version
        return worker

    def _ready(self, name: str) -> bool:
        """Installs and loads a contender; says in the record why it is absent if that fails."""
        try:
            log(f"{CARDS[name].title}: installing")
            self.pythons[name] = self.plan.python or install(name)
            self._load(name)
        except (NotInstalled, Trouble, OSError) as error:
            self.record["absent"][name] = str(error)
            log(f"{CARDS[name].title} is left out: {error}")
            if not self.plan.keep:
                shutil.rmtree(self._home(name), ignore_errors=True)
            return False
        return True

    def _load(self, name: str) -> None:
        """Loads all tables, each in a fresh process, or takes what an earlier run has loaded from the same files."""
        note = self.plan.work / f"{name}_loaded.json"
        made_by = [self.catalogue.made_by, self.catalogue.directory]
        if self.plan.keep and note.is_file():
            loaded = json.loads(note.read_text())
            stripes = self._stripes() if name != OURS else loaded["stripes"]
            has_all = {load["table"] for load in loaded["loads"]} >= set(self._setup(name).tables)
            is_same = loaded["made_by"] == made_by and loaded["stripes"] == stripes
            if has_all and is_same and self._home(name).exists():
                self.record["loads"] += loaded["loads"]
                log(f"{CARDS[name].title}: as an earlier run has loaded it")
                return
        note.unlink(missing_ok=True)
        shutil.rmtree(self._home(name), ignore_errors=True)
        self._check_room(name)
        figures: list[dict[str, Any]] = []
        for table, (seconds, peak) in self._load_into(name, self._home(name)):
            figures.append({"contender": name, "table": table, "times": [seconds], "peak": peak})
        self.loaded.add(name)
        sizes = self._sizes(name)
        for figure in figures:
            figure["bytes"] = sizes.get(str(figure["table"]), 0)
        self.record["loads"] += figures
        if CARDS[name].tables and self._home(name).exists():
            note.write_text(json.dumps({"made_by": made_by, "stripes": self._stripes(), "loads": figures}))

    def _load_into(self, name: str, home: Path) -> Iterator[tuple[str, tuple[float, int]]]:
        """Loads all tables, each in a fresh process; gives seconds and peak bytes of each."""
        for table in self._setup(name).tables.values():
            log(f"{CARDS[name].title}: loading {table.name}")
            # Otherwise whoever comes first would wait for the disk, and the others not.
            for directory in {Path(file).parent for file in table.files}:
                read_files(directory)
            worker = self._worker(name, home)
            try:
                yield table.name, worker.load(table)
            finally:
                worker.close()

    def _load_again(self, names: Sequence[str]) -> None:
        """Those that load quickly load several times, in turns: what a load takes differs from one to the next."""
        figures = {(load["contender"], load["table"]): load for load in self.record["loads"]}
        taken = {name: sum(load["times"][0] for load in self.record["loads"] if load["contender"] == name) for name in names}
        quick = [name for name in names if name in self.loaded and taken[name] <= QUICK_LOADING]
        if OURS not in quick or quick == [OURS]:
            return
        # Once for each, whatever groups are still to come.
        self.loaded.clear()
        again = self.plan.work / "again"
        for turn in range(1, self.plan.size.loads):
            for name in quick[turn % len(quick) :] + quick[: turn % len(quick)]:
                try:
                    self._check_room(name)
                    for table, (seconds, peak) in self._load_into(name, again):
                        figure = figures[name, table]
                        figure["times"].append(seconds)
                        figure["peak"] = max(figure["peak"], peak)
                except Trouble as error:
                    log(f"{CARDS[name].title} does not load again: {error}")
                finally:
                    shutil.rmtree(again, ignore_errors=True)

    def _check_room(self, name: str) -> None:
        tables = self._setup(name).tables
        rows = {table: files.rows for table, files in tables.items()}
        columns = len(tables["Object"].columns) if "Object" in tables else 0
        needed = room_for(name, rows.get("Object", 0), rows.get("Source", 0), columns) + SPARE_BYTES
        free = free_bytes(self.plan.work)
        if free < needed:
            raise Trouble(f"it needs about {needed / 1e9:.0f} GB of disk, and {free / 1e9:.0f} GB are free")

    def _sizes(self, name: str) -> dict[str, int]:
        """Bytes by table; of those that say it only while they run."""
        if not self._home(name).exists():
            return {}
        worker = self._worker(name)
        try:
            worker.call("start")
            return worker.call("bytes_on_disk")  # type: ignore[return-value]
        finally:
            worker.close()

    # Asking.

    def _run_group(self, number: int, peers: Sequence[str]) -> None:
        present = [name for name in peers if self._is_asked_anything(name) and self._ready(name)]
        if peers and not present and number > 0:
            return
        names = [OURS, *present]
        self._load_again(names)
        self._cold(number, [name for name in names if CARDS[name].dialect != "python"])
        if self.plan.apart:
            self._ask_apart(number, names)
        else:
            self._ask_together(number, names)
        if not self.plan.keep:
            for name in present:
                shutil.rmtree(self._home(name), ignore_errors=True)
                (self.plan.work / f"{name}_loaded.json").unlink(missing_ok=True)

    def _ask_together(self, number: int, names: Sequence[str]) -> None:
        """All contenders run at the same time and take turns query by query."""
        for name in names:
            self._start(name)
        for name in names:
            self._fill_caches(name)
        for query in self.queries:
            asking = self._asking(number, query, [name for name in names if name in self.workers])
            if asking is None:
                continue
            log(f"{query.name}: {asking.title}")
            asking.warm_up(asking.takers)
            for at in range(asking.rounds):
                asking.round(asking.block, turn=at)
            for name in asking.takers:
                self._note_memory(name)
            self.record["queries"].append(asking.as_json())
        if self.asks_cones and PEER in self.workers:
            self._cones_over_http()
        self._close_all()

    def _ask_apart(self, number: int, names: Sequence[str]) -> None:
        """One contender runs at a time: it is asked all queries of a round, and ends before the next one starts."""
        askings = [self._asking(number, query, names) for query in self.queries]
        askings = [asking for asking in askings if asking is not None]
        lost: set[str] = set()
        for at in range(self.plan.size.rounds):
            rounds = [asking.begin(asking.at_once) for asking in askings]
            for name in in_turn(names, at):
                if name in lost:
                    continue
                for other in names:
                    forget_files(self._home(other))
                self._start(name)
                self._fill_caches(name)
                for asking, one in zip(askings, rounds, strict=True):
                    if name in self.workers and name in asking.takers:
                        log(f"{CARDS[name].title}, round {at + 1}: {asking.query.name}")
                        asking.warm_up([name])
                        if name in self.workers and name in asking.takers:
                            asking.execute(name, one)
                            self._note_memory(name)
                lost |= {name} - set(self.workers)
                self._close_all()
            for asking, one in zip(askings, rounds, strict=True):
                asking.end(one)
        self.record["queries"] += [asking.as_json() for asking in askings]

    def _start(self, name: str) -> None:
        # Few lookups touch what few scans have read: without this most of them would measure the disk.
        read_files(self._home(name))
        try:
            self.workers[name] = self._worker(name)
            self.workers[name].call("start")
        except Trouble as error:
            self._lose(name, error)

    def _fill_caches(self, name: str) -> None:
        """What a contender keeps in memory of its tables it keeps from here on: it has been asked about every value once."""
        if name not in self.workers or CARDS[name].dialect == "python":
            return
        log(f"{CARDS[name].title}: reading every column once")
        # Least and greatest values some know without looking.
        texts = [
            f"SELECT {', '.join(f'avg({column}) AS mean_{column}' for column in table.columns)} FROM {table.name}"
            for table in self._setup(name).tables.values()
        ]
        try:
            for reply in self.workers[name].execute(texts, answers=False):
                if reply.complaint:
                    log(f"{CARDS[name].title} did not read every column: {reply.complaint}")
        except Trouble as error:
            self._lose(name, error)

    def _lose(self, name: str, error: Trouble) -> None:
        """A contender's process has ended: it takes no further part."""
        self.record["absent"][name] = str(error)
        log(f"{CARDS[name].title} takes no further part: {error}")
        if worker := self.workers.pop(name, None):
            worker.close()

    def _close_all(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()

    def _note_memory(self, name: str) -> None:
        if worker := self.workers.get(name):
            peak: Any = worker.call("peak_memory")
            self.record["memory"][name] = max(self.record["memory"].get(name, 0), peak)

    def _text(self, name: str, query: Query, constants: dict[str, object]) -> str | None:
        if name == OURS or not query.by_chunk or self._stripes():
            return query.asked_in(CARDS[name].dialect, constants, self.catalogue.tables["Object"].columns)
        return None

    def _asking(self, number: int, query: Query, names: Sequence[str]) -> Asking | None:
        """A query to those that can be asked it; `None` where Meridian alone would be, and was in an earlier group."""
        asking = Asking(self, query, number, cold=False)
        constants = self.constants.draw()
        fit = [name for name in names if not self._is_left_out(name, query)]
        asking.takers = [name for name in fit if self._text(name, query, constants) is not None]
        if asking.takers == [OURS] and self._asked_already(query, cold=False):
            return None
        return asking

    def _is_asked_anything(self, name: str) -> bool:
        """Whether any of the chosen queries is for a peer; otherwise it need not be loaded, and the record says so."""
        if name == PEER and self.asks_cones:
            return True
        constants = self.constants.draw()
        for query in self.queries:
            if not self._is_left_out(name, query) and self._text(name, query, constants) is not None:
                return True
        self.record["absent"][name] = "it is asked none of the chosen queries"
        return False

    def _is_left_out(self, name: str, query: Query) -> bool:
        """Whether a peer is not asked; the record gets the reason."""
        reason = reason_to_leave_out(name, query, self.constants)
        if reason:
            self.record["left_out"].setdefault(query.name, {})[name] = reason
        return bool(reason)

    def _find_generator(self) -> None:
        """Before anything is measured, since it may have to be compiled. Without it cones are not asked over HTTP."""
        if not self.asks_cones:
            return
        try:
            self.generator = find_generator(self.plan.generator, self.plan.program, self.plan.python is None)
        except NotInstalled as error:
            self._no_cones("generator", str(error))

    def _cones_over_http(self) -> None:
        """Starts the servers of cones and asks them; the peer's PostgreSQL runs already, if it takes part."""
        if worker := self.workers.pop(OURS, None):
            # Two programs with the same columns in memory would be one too many.
            worker.close()
        amount = AMOUNTS[self.plan.size_name]
        cones = Cones(
            self.generator, self.catalogue.tables["Object"], self.constants.sky, self.constants.seed, amount, self.plan.threads
        )
        self.record["cones"] = cones.record
        try:
            cluster: Any = self.workers[PEER].call("cluster") if PEER in self.workers else None
            cones.measure(self.plan.program, self._home(OURS), cluster)
        except (NoServer, Trouble, OSError) as error:
            self._no_cones(OURS, str(error))

    def _no_cones(self, absent: str, why: str) -> None:
        log(f"cones are not asked over HTTP: {why}")
        self.asks_cones = False
        self.record.setdefault("cones", empty_record())["absent"][absent] = why

    def _asked_already(self, query: Query, cold: bool) -> bool:
        """Whether an earlier group was asked: Meridian alone need not be asked again."""
        return any(asked["name"] == query.name and asked["cold"] == cold for asked in self.record["queries"])

    def _cold(self, number: int, names: Sequence[str]) -> None:
        """Asks some queries once after each start, nothing of the contender's files being in the page cache."""
        for query in self.queries:
            if not query.cold or (list(names) == [OURS] and self._asked_already(query, cold=True)):
                continue
            asking = Asking(self, query, number, cold=True)
            log(f"{query.name}, cold: {asking.title}")
            asking.takers = list(names)
            for at in range(self.plan.size.cold_rounds):
                asking.round(1, turn=at)
            self.record["queries"].append(asking.as_json())


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The contenders of a round, of which another one begins each time."""
    start = turn % len(names) if names else 0
    return [*names[start:], *names[:start]]


@dataclass
class Round:
    """Constants that all contenders are asked with, and what they replied."""

    constants: list[dict[str, object]]
    replies: dict[str, list[Reply]] = field(default_factory=dict)


class Asking:
    """One query in one group: who still takes part, and the times of each round."""

    def __init__(self, run: Run, query: Query, group: int, cold: bool) -> None:
        self.run = run
        self.query = query
        self.title = query.title.format(**run.constants.areas())
        self.group = group
        self.cold = cold
        size = run.plan.size
        is_lookup = query.kind == LOOKUP
        # How many rounds, how many of the query in each, and how many rounds before them that do not count.
        self.rounds = -(-size.lookups // size.block) if is_lookup else size.rounds
        self.block = size.block if is_lookup else 1
        # How many a contender is asked from its start to its end, where one runs at a time.
        self.at_once = -(-size.lookups // size.rounds) if is_lookup else 1
        self.warming = -(-min(WARMING_LOOKUPS, size.lookups // 4) // size.block) if is_lookup else 1
        self.takers: list[str] = []
        self.times: dict[str, list[list[float]]] = {}
        self.spent: dict[str, float] = {}
        self.rows: list[int] = []
        # Of spatial joins: what they counted.
        self.pairs: list[int] = []
        self.complaints: dict[str, str] = {}
        self.differences: list[dict[str, str]] = []
        self.compared = 0

    def round(self, block: int, turn: int = 0) -> None:
        """Asks each taker a block of the same constants, beginning with another one each time."""
        one = self.begin(block)
        for name in in_turn(self.takers, turn):
            self.execute(name, one)
        self.end(one)

    def warm_up(self, names: Sequence[str]) -> None:
        """The same for some of the takers, as often as it takes and not for long, without counting it."""
        spent = dict.fromkeys(names, 0.0)
        for turn in range(self.warming):
            one = self.begin(self.block)
            for name in in_turn(self.takers, turn):
                if spent.get(name, WARMING_SECONDS) < WARMING_SECONDS and not self._has_spent(name):
                    self.execute(name, one, counted=False)
                    spent[name] += sum(reply.seconds for reply in one.replies[name])
            self.end(one)

    def begin(self, block: int) -> Round:
        """A round of so many queries, the same for all."""
        return Round([self.run.constants.draw() for _ in range(block)])

    def execute(self, name: str, one: Round, counted: bool = True) -> None:
        """Asks one contender the queries of a round, unless it has spent its time."""
        rounds = self.times.setdefault(name, [])
        if self._has_spent(name):
            rounds.append([])
            return
        count = SLOW_BLOCK if CARDS[name].slow else len(one.constants)
        one.replies[name] = self._ask(name, one.constants[:count])
        answered = [reply.seconds for reply in one.replies[name] if reply.answer is not None]
        # One that has spent its time in the first round already is not asked a second time.
        if counted or sum(answered) > self.run.plan.size.budget:
            rounds.append(answered)
            self.spent[name] = self.spent.get(name, 0.0) + sum(answered)

    def _has_spent(self, name: str) -> bool:
        """Whether a contender has been asked, and has had its time."""
        return self.spent.get(name, 0.0) > self.run.plan.size.budget and bool(self.times.get(name))

    def end(self, one: Round) -> None:
        """Compares what the contenders have answered in a round."""
        self._compare(one.replies, one.constants)

    def _ask(self, name: str, constants: list[dict[str, object]]) -> list[Reply]:
        """One contender's replies; one that complains is not asked this query again."""
        texts = [self.run._text(name, self.query, one) or "" for one in constants]
        try:
            worker = self._cold_worker(name) if self.cold else self.run.workers[name]
            try:
                replies = worker.execute(texts)
            finally:
                if self.cold:
                    worker.close()
        except Trouble as error:
            self._drop(name, str(error))
            if not self.cold:
                self.run._lose(name, error)
            return []
        if complaint := next((reply.complaint for reply in replies if reply.complaint), ""):
            self._drop(name, complaint)
        return replies

    def _drop(self, name: str, complaint: str) -> None:
        self.complaints[name] = complaint
        self.takers = [taker for taker in self.takers if taker != name]
        log(f"  {CARDS[name].title}: {complaint}")

    def _cold_worker(self, name: str) -> Worker:
        forget_files(self.run._home(name))
        worker = self.run._worker(name)
        worker.call("start")
        return worker

    def _compare(self, replies: dict[str, list[Reply]], constants: list[dict[str, object]]) -> None:
        """Compares every answer with that of the first peer, or with Meridian's if no peer answered."""
        names = sorted(replies, key=lambda name: (name == OURS, list(CARDS).index(name)))
        names = [name for name in names if replies[name]]
        if not names:
            return
        answers = [reply.answer for reply in replies[names[0]] if reply.answer is not None]
        self.rows += [answer.num_rows for answer in answers]
        if self.query.kind == JOIN:
            self.pairs += [answer.column(0)[0].as_py() for answer in answers]
        for name in names[1:]:
            digits = max(CARDS[name].single_digits, CARDS[names[0]].single_digits, SINGLE_DIGITS)
            for at, (theirs, ours) in enumerate(zip(replies[names[0]], replies[name], strict=False)):
                if theirs.answer is None or ours.answer is None:
                    continue
                self.compared += 1
                if found := difference(ours.answer, theirs.answer, digits):
                    self._note_difference(name, names[0], found, constants[at])

    def _note_difference(self, name: str, reference: str, found: str, constants: dict[str, object]) -> None:
        log(f"  ANSWERS DIFFER: {CARDS[name].title} against {CARDS[reference].title}: {found}")
        if len(self.differences) < MOST_DIFFERENCES_KEPT:
            text = self.run._text(name, self.query, constants) or ""
            self.differences.append({"contender": name, "against": reference, "found": found, "text": text})

    def as_json(self) -> dict[str, Any]:
        """For the raw file."""
        return {
            "name": self.query.name,
            "title": self.title,
            "kind": self.query.kind,
            "cold": self.cold,
            "group": self.group,
            "times": self.times,
            "rows": sorted(self.rows)[len(self.rows) // 2] if self.rows else None,
            "pairs": sorted(self.pairs)[len(self.pairs) // 2] if self.pairs else None,
            "compared": self.compared,
            "complaints": self.complaints,
            "differences": self.differences,
        }
