"""A few hundred generated statements of a fixed seed; `python3 -m testbed generate` asks any number of a new one."""

from __future__ import annotations

from testbed.generated import ask_generated
from testbed.generator import Generator
from testbed.sides import Sides

SEED = 20_100_615
COUNT = 300
# Of what MariaDB answers, at least so much is answered.
LEAST_SHARE = 0.97


def test_the_same_seed_gives_the_same_statements() -> None:
    one, other = Generator(7), Generator(7)
    assert [one.statement().sql for _ in range(50)] == [other.statement().sql for _ in range(50)]


def test_generated_statements(small_sky: Sides) -> None:
    outcome = ask_generated(small_sky, SEED, COUNT)
    assert not outcome.different, outcome.report()
    assert outcome.answerable > COUNT * 0.8, outcome.report()
    assert outcome.share_accepted >= LEAST_SHARE, outcome.report()
