"""Values: those of random tables, and the constants of statements.

A constant has a role, by which others can take its place: `small`, `key`, `big`, `tame`, `wild`, `ra`, `dec`, `radius`, `count`
(of a LIMIT), `text`, `pattern`, `time`, `date`; and those of WRITTEN_AS_TEXT, which are the same in quotes.
"""

from __future__ import annotations

import random

LEAST, GREATEST = -(2**63), 2**63 - 1
ODD_KEYS = [LEAST, LEAST + 1, -(2**53) - 1, -(2**31) - 1, -1, 0, 1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, GREATEST - 1, GREATEST]
WILD = [1e308, -1e308, 1.7e308, 5e-324, -5e-324, 2.2e-308, 0.0, -0.0, 0.1, -2.5, 1e22, 9007199254740992.0, 9007199254740994.0]
TEXTS = [
    "", " ", "plain", "Plain", "it's", 'say "so"', "a\\b", "100%_sure", "tab\there", "Ωmega", "星", "é", "NULL", "12abc", "a", "A", "b", " spaces ",
    "two\nlines", "☄", "true", "0", "semi;colon", "-- dash", "?",
]  # fmt: skip
PATTERNS = ["%", "_", "", "%a%", "p%", "%\\_%", "%\\%%", "_%e", "P_ain", "%'%", "%星%", "é"]
TIMES = ["1970-01-01 00:00:00", "1999-12-31 23:59:59", "2000-02-29 12:30:15", "2010-06-15 00:00:01", "2010-06-15 00:00:00", "2024-02-29 06:07:08", "1000-01-01 00:00:00"]
DATES = ["1970-01-01", "1999-12-31", "2000-02-29", "2010-06-15", "2010-06-14", "2024-02-29", "1000-01-01", "9999-12-31"]

KIND_OF_ROLE = {
    "small": "int", "key": "int", "big": "int", "count": "int", "tame": "real", "wild": "real", "ra": "real", "dec": "real", "radius": "real",
    "arcsec": "real", "key text": "int", "time text": "time", "date text": "date", "inexact": "real", "text": "text", "pattern": "text", "time": "time", "date": "date",
}  # fmt: skip
# Keys and times as texts: `objectId = '17'`, `seen < '2010-06-15 00:00:00'`.
WRITTEN_AS_TEXT = {"key text": "key", "time text": "time", "date text": "date"}


def tame(rng: random.Random) -> float:
    """An eighth of a small integer: sums and products of such are exact in whatever order."""
    return rng.choice([rng.randint(-40, 40), rng.randint(-4000, 4000)]) / 8


def plain(rng: random.Random, role: str) -> int | float | str:
    """A usual constant."""
    match WRITTEN_AS_TEXT.get(role, role):
        case "small":
            return rng.randint(-3, 12)
        case "key":
            return rng.choice([rng.randint(1, 60), rng.randint(1, 400), rng.randint(1, 400), rng.choice(ODD_KEYS)])
        case "big":
            return rng.choice([rng.randint(-5, 5), rng.choice(ODD_KEYS)])
        case "count":
            return rng.choice([rng.randint(0, 5), rng.randint(0, 40), rng.randint(0, 1000)])
        case "tame":
            return tame(rng)
        case "wild":
            return rng.choice([*WILD, tame(rng)])
        case "ra":
            return rng.choice([0.0, 360.0, round(rng.uniform(0, 360), 5), round(rng.uniform(0, 360), 5), round(rng.uniform(350, 370) % 360, 4)])
        case "dec":
            return rng.choice([90.0, -90.0, 0.0, round(rng.uniform(-90, 90), 5), round(rng.uniform(-90, 90), 5)])
        case "radius":
            return rng.choice([round(rng.uniform(0.001, 0.7), 7), round(rng.uniform(0.1, 8), 6), round(rng.uniform(1, 100), 5)])
        case "arcsec":
            return rng.choice([round(rng.uniform(1, 40), 5), round(rng.uniform(1, 3000), 4), round(rng.uniform(3000, 40000), 3)])
        case "text":
            return rng.choice(TEXTS)
        case "pattern":
            return rng.choice(PATTERNS)
        case "time":
            return rng.choice(TIMES)
        case "date":
            return rng.choice(DATES)
    raise ValueError(role)


def special(rng: random.Random, role: str) -> int | float | str | None:
    """A constant that a plan of other constants may not fit."""
    match WRITTEN_AS_TEXT.get(role, role):
        case "small":
            return rng.choice([0, 0, 1, -1, 1000, None])
        case "key" | "big":
            return rng.choice([0, -1, GREATEST, LEAST, 2**53 + 1, None])
        case "count":
            return rng.choice([0, 1, 100000, 10**12, GREATEST])
        case "tame":
            return rng.choice([0.0, -0.0, 1e6, -1.0, None])
        case "wild":
            return rng.choice([0.0, -0.0, 1e308, 5e-324, None])
        case "ra":
            return rng.choice([0.0, -0.0, 360.0, 359.99999999, -10.0, 725.5, None])
        case "dec":
            return rng.choice([0.0, -0.0, 90.0, -90.0, 91.5, -100.0, None])
        case "radius" | "arcsec":
            return rng.choice([0.0, -0.0, 180.0, 1e-9, -1.0, 1e308, None])
    return plain(rng, role)
