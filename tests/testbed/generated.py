"""Asks both databases generated statements and counts what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.generator import Generator, Statement
from testbed.mariadb import Rejected
from testbed.sides import Complaint, Sides

SHOWN_REFUSALS = 10


@dataclass
class Outcome:
    """What became of a number of statements."""

    asked: int = 0
    rejected_by_both: int = 0
    rejected_by_mariadb: int = 0
    rejected_by_meridian: list[tuple[Statement, str]] = field(default_factory=list)
    different: list[tuple[Statement, str]] = field(default_factory=list)
    with_feature: Counter[str] = field(default_factory=Counter)
    accepted_with_feature: Counter[str] = field(default_factory=Counter)

    @property
    def answerable(self) -> int:
        """Statements that MariaDB answered."""
        return self.asked - self.rejected_by_both - self.rejected_by_mariadb

    @property
    def share_accepted(self) -> float:
        """Of the statements that MariaDB answered, the share that Meridian did."""
        return 1.0 - len(self.rejected_by_meridian) / max(self.answerable, 1)

    def add(self, statement: Statement, sides: Sides) -> None:
        """Asks one more statement."""
        self.asked += 1
        try:
            found = sides.difference(statement.sql, ordered=statement.ordered)
        except Rejected:
            ours, _ = sides.rejection(statement.sql)
            if ours is None:
                self.rejected_by_mariadb += 1
            else:
                self.rejected_by_both += 1
            return
        except Complaint as complaint:
            self.with_feature.update(statement.features)
            self.rejected_by_meridian.append((statement, str(complaint)))
            return
        self.with_feature.update(statement.features)
        self.accepted_with_feature.update(statement.features)
        if found is not None:
            self.different.append((statement, found))

    def report(self) -> str:
        """The counts, the share accepted by feature, and what was rejected or differs."""
        lines = [
            f"{self.asked} statements: {self.answerable} answered by MariaDB, {self.share_accepted:.2%} of these by Meridian, "
            f"{len(self.different)} differently; {self.rejected_by_both} rejected by both, {self.rejected_by_mariadb} by MariaDB alone.",
            "",
            "| feature | statements | accepted |",
            "|---|---|---|",
        ]
        for feature, count in sorted(self.with_feature.items()):
            shown = feature.replace("|", "\\|")
            lines.append(f"| `{shown}` | {count} | {self.accepted_with_feature[feature] / count:.1%} |")
        for heading, found in (("Rejected", self.rejected_by_meridian), ("Different", self.different)):
            for statement, said in found[:SHOWN_REFUSALS]:
                lines += ["", f"{heading}: {statement.sql}", f"    {said[:400]}"]
        return "\n".join(lines)


def ask_generated(sides: Sides, seed: int, count: int) -> Outcome:
    """Asks so many statements of a seed."""
    return ask_all(sides, (generator.statement() for generator in [Generator(seed)] for _ in range(count)))


def ask_all(sides: Sides, statements: Iterable[Statement]) -> Outcome:
    """Asks these statements."""
    outcome = Outcome()
    for statement in statements:
        outcome.add(statement, sides)
    return outcome
