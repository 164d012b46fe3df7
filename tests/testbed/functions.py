"""Random calls of the documented functions over values of every type, the same for the same seed.

Each call is evaluated for all rows of one table, whose columns are of the types that catalogues have. What a call means is known to
MariaDB alone; a function is given what people give it: mostly the type that it is for, sometimes another. Left out is where MySQL 8 and
MariaDB differ, and Meridian is as MySQL: texts that are no times beside times, times before 1970 as Unix time, paddings without
characters, EXTRACT of more than a day, negative decimals as unsigned integers, TIME beyond 838:59:59, characters of BINARY(n).
"""

from __future__ import annotations

import datetime
import decimal
import random
from pathlib import Path

import pyarrow as pa

import table_files
from meridian_cli import Meridian
from synthetic import TableData

DATABASE = "calls"
TABLE = "V"

TYPES = {
    "id": "int NOT NULL",
    "i": "int DEFAULT NULL",
    "b": "bigint DEFAULT NULL",
    "u": "bigint unsigned DEFAULT NULL",
    "c": "decimal(12,3) DEFAULT NULL",
    "x": "double DEFAULT NULL",
    "s": "varchar(60) DEFAULT NULL",
    "m": "varchar(60) DEFAULT NULL",
    "d": "date DEFAULT NULL",
    "t": "datetime(6) DEFAULT NULL",
    "h": "varchar(20) DEFAULT NULL",
    "y": "varbinary(40) DEFAULT NULL",
}
ARROW = [
    pa.int32(), pa.int32(), pa.int64(), pa.uint64(), pa.decimal128(12, 3), pa.float64(), pa.string(), pa.string(), pa.date32(),
    pa.timestamp("us"), pa.string(), pa.binary(),
]  # fmt: skip


def make_table() -> TableData:
    """The table: plain values of each type, its ends, and NULL."""
    day, at, money = datetime.date, datetime.datetime, decimal.Decimal
    rows = [
        (1, 0, 0, 0, money("0.000"), 0.0, "", "0", day(2010, 1, 1), at(2010, 1, 1), "00:00:00"),
        (2, 1, 1, 1, money("1.000"), 1.0, "a", "1", day(2010, 6, 15), at(2010, 6, 15, 1, 2, 3), "11:07:15"),
        (3, -1, -1, 2, money("-1.500"), -1.5, "A", "-1.5", day(2000, 2, 29), at(2000, 2, 29, 23, 59, 59, 999999), "-01:30:00"),
        (4, 7, 12345678901, 7, money("2.500"), 2.5, "abc def", "2.5e1", day(1999, 12, 31), at(1999, 12, 31, 12, 0, 0, 500000), "23:59:59"),
        (5, 42, -42, 42, money("10.005"), 0.1, "Ωmega 星 é", "42abc", day(2024, 2, 29), at(2024, 2, 29, 6, 7, 8, 250000), "100:00:01"),
        (6, -128, 255, 255, money("-0.001"), 1e10, "a,b,c", " 7 ", day(1970, 1, 1), at(1970, 1, 1, 0, 0, 1), "12:30"),
        (7, 2147483647, 2**63 - 1, 2**64 - 1, money("999999999.999"), 123456.789, "2010-06-15", "x7", day(2008, 12, 29), at(2008, 12, 29, 13, 0, 0), "7"),
        (8, -2147483648, -(2**63), 2**63, money("-999999999.999"), -0.5, "it's \"so\"", "", day(1582, 10, 15), at(1970, 1, 2, 3, 4, 5), "110715"),
        (9, 3, 3, 3, money("0.500"), 3.0, "100%_sure", "0.5", day(2012, 12, 31), at(2012, 12, 31, 11, 59, 59), "1 02:03:04"),
        (10, None, None, None, None, None, None, None, None, None, None),
    ]  # fmt: skip
    raw = [b"", b"a", b"\xff\x00A", b"\xc3\xa9", b"\x80abc\x80", b"a,\xff,b", b"\xe2\x82", b" \xa0 ", b"12", None]
    rows = [(*row, value) for row, value in zip(rows, raw)]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows), ARROW)]
    return TableData(TABLE, TYPES, pa.table(columns, names=list(TYPES)))


def load(meridian: Meridian, directory: Path, table: TableData) -> Path:
    """Loads the table into a new data directory of Meridian."""
    data = directory / "data"
    path = table_files.write_parquet(directory / "V.parquet", table)
    meridian.load(data, DATABASE, TABLE, path, kind="replicated")
    return data


# What an argument may be, by its letter: columns and constants.
ARGUMENTS: dict[str, list[str]] = {
    # A whole number, small.
    "k": ["0", "1", "2", "3", "-1", "5", "i", "(i % 5)"],
    # A whole number that no text gets long by.
    "l": ["0", "1", "2", "3", "-1", "8"],
    # A number.
    "n": ["i", "c", "x", "b", "u", "(c * 2)", "0", "1", "-3", "2.5", "0.5", "NULL", "m"],
    # A number that is no text.
    "r": ["i", "c", "x", "0", "1", "-3", "2", "NULL"],
    # The same, and not NULL.
    "v": ["i", "c", "x", "0", "1", "-3", "2", "2.5"],
    # The same, and no decimal, whose remainders are those of doubles in Meridian.
    "j": ["i", "b", "u", "0", "1", "-3", "2", "m"],
    # An integer.
    "w": ["i", "b", "u", "(i % 7)", "0", "1", "-3", "255", "NULL"],
    # A text.
    "s": ["s", "s", "m", "'abc'", "''", "'a'", "'b,a,c'", "i", "d", "CONCAT(s, 'x')"],
    # A text and nothing else.
    "o": ["s", "m", "'abc'", "'a,b'", "''", "'a'", "','"],
    # What some text is filled with.
    "z": ["'x'", "'ab'", "','"],
    # A date or a time.
    "t": ["d", "d", "t", "t", "'2010-06-15'", "'2010-06-15 01:02:03'", "20100615", "20100615010203", "NULL", "DATE '2012-12-31'",
          "TIMESTAMP '2012-12-31 23:59:59.5'", "(d + INTERVAL 1 MONTH)"],
    # One by its type.
    "D": ["d", "t", "DATE '2012-12-31'", "(d + INTERVAL 1 MONTH)", "(t - INTERVAL 1 HOUR)", "LAST_DAY(d)"],
    # One as people type it, or none.
    "e": ["d", "t", "'10-6-5'", "'20100615010203'", "'2010-06-15abc'", "'2021-02-30'", "'2010-06-15 01:02:03.25'", "100615", "s", "m",
          "'2010/6/5T1:2'", "'201006'", "'70-1-1'", "20100615010203.5"],
    # A time of day.
    "h": ["h", "h", "t", "d", "'11:07:15'", "'-11:07:15.25'", "110715", "'2010-06-15 01:02:03.5'", "NULL", "'1 02:03:04'"],
    # One of a day.
    "y": ["t", "d", "'11:07:15'", "'-11:07:15.25'", "110715", "'23:59:59'", "NULL"],
    # Anything.
    "a": ["i", "b", "u", "c", "x", "s", "m", "d", "NULL", "1", "'a'", "2.5", "'1'", "DATE '2010-06-15'", "'2010-06-15'", "0"],
    # Anything but a time.
    "g": ["i", "b", "u", "c", "x", "s", "m", "NULL", "1", "'a'", "2.5", "'1'", "0"],
    "f": ["'%Y-%m-%d'", "'%D %M %Y'", "'%H:%i:%s.%f'", "'%U %u %V %v %X %x'", "'%W %w %a %b %c %e %j'", "'%h %I %k %l %p %r %T'", "'%y %S %% %q %'"],
    "p": ["'^a'", "'b'", "'[0-9]+'", "'a|b'", "'.'", "'^1'", "'A'"],
    # A number with which a text begins.
    "m": ["m", "s", "'12abc'", "'-3.5'"],
    "=": ["=", "<>", "<", "<=", ">", ">=", "<=>"],
    # Bytes, and some that are not empty.
    "B": ["y", "y", "y", "CAST(s AS BINARY)"],
    "C": ["X'FF'", "X'80'", "_binary'a'", "_binary','"],
    # Constant bytes. Beside columns of texts they are texts in MySQL.
    "Y": ["X'FF41'", "UNHEX('C3A9')", "CHAR(200, 65)", "_binary'a,b'"],
    # A date with a time of day, the same in some days, a span, and a span of whole seconds.
    "T": ["t", "t", "TIMESTAMP '2010-06-15 01:02:03'", "TIMESTAMP '1970-01-02 03:04:05.5'"],
    "U": ["TIMESTAMP(DATE '2010-06-18', h)", "TIMESTAMP '2010-06-15 01:02:03'", "TIMESTAMP '2010-06-20 03:04:05.5'", "NULL"],
    "S": ["CAST(h AS TIME(6))", "TIME('-01:30:00.25')", "TIME '11:07:15'", "SEC_TO_TIME(i % 1000)", "SEC_TO_TIME(c % 100)",
          "TIMEDIFF(TIMESTAMP(DATE '2010-06-18', h), TIMESTAMP '2010-06-15 01:02:03')", "MAKETIME(i % 24, 1, 2)", "NULL"],
    "Z": ["TIME '11:07:15'", "TIME '-01:30:00'", "SEC_TO_TIME(i % 1000)", "MAKETIME(i % 24, 1, 2)"],
    # Texts of spans.
    "q": ["h", "'11:07:15'", "'-01:30:00.5'", "'1 02:03:04'", "110715"],
}  # fmt: skip

# Functions and what they are given, an argument a letter.
CALLS: dict[str, list[str]] = {
    "choice": [
        "IF({a}, {a}, {a})", "IFNULL({n}, {n})", "IFNULL({s}, {s})", "IFNULL({D}, {D})", "NULLIF({n}, {n})", "NULLIF({s}, {s})",
        "COALESCE({n}, {n}, {n})", "COALESCE({a}, {s})", "ISNULL({a})", "NVL({n}, {n})", "NVL2({a}, {n}, {n})", "GREATEST({v}, {v})",
        "LEAST({v}, {v})", "GREATEST({o}, {o})", "LEAST({o}, {o})", "ELT({k}, {s}, {s})", "FIELD({o}, {o}, {o})", "FIELD({r}, {r}, {r})",
        "CASE {n} WHEN {n} THEN {n} ELSE {n} END", "CASE WHEN {a} THEN {s} ELSE {s} END", "CASE {o} WHEN {o} THEN {n} END",
    ],
    "mathematics": [
        "ABS({n})", "SIGN({n})", "CEIL({n})", "CEILING({n})", "FLOOR({n})", "ROUND({n})", "ROUND({n}, {l})", "TRUNCATE({n}, {l})",
        "MOD({j}, {j})", "SQRT({n})", "POW({r}, {l})", "POWER({r}, {l})", "EXP({l})", "LN({n})", "LOG({n})", "LOG({n}, {n})", "LOG2({n})",
        "LOG10({n})", "SIN({r})", "COS({r})", "ASIN({n})", "ACOS({n})", "ATAN({n})", "ATAN2({n}, {n})", "DEGREES({n})", "RADIANS({n})",
        "CONV({w}, 10, 16)", "CONV({s}, 16, 10)", "CRC32({s})", "BIT_COUNT({w})",
    ],
    "text": [
        "CONCAT({s}, {s})", "CONCAT({a}, '|')", "CONCAT_WS(',', {s}, {s})", "LENGTH({a})", "CHAR_LENGTH({s})", "UPPER({s})", "LOWER({s})",
        "UCASE({s})", "LCASE({s})", "SUBSTRING({s}, {k})", "SUBSTRING({s}, {k}, {k})", "SUBSTR({s}, {k}, {k})", "MID({s}, {k}, {k})",
        "LEFT({s}, {k})", "RIGHT({s}, {k})", "LPAD({s}, {l}, {z})", "RPAD({s}, {l}, {z})", "TRIM({s})", "LTRIM({s})", "RTRIM({s})",
        "TRIM(BOTH 'a' FROM {s})", "TRIM(LEADING 'a' FROM {s})", "REPLACE({s}, {o}, {z})", "REVERSE({s})", "REPEAT({s}, {l})", "SPACE({l})",
        "LOCATE({s}, {s})", "LOCATE({z}, {s}, {k})", "INSTR({s}, {s})", "POSITION({o} IN {s})", "ASCII({s})", "ORD({s})", "HEX({w})",
        "HEX({s})", "UNHEX(HEX({s}))", "BIN({w})", "OCT({w})", "STRCMP({o}, {o})", "INSERT({o}, {k}, {k}, {z})", "SUBSTRING_INDEX({s}, {o}, {k})",
        "FIND_IN_SET({o}, {s})", "FORMAT({r}, {l})", "MD5({s})", "CHAR(65, {l} + 66)",
        "{s} REGEXP {p}", "{n} REGEXP {p}", "{a} LIKE {o}", "{s} NOT LIKE 'a%'",
    ],
    "patterns": [
        "REGEXP_REPLACE({s}, {p}, 'Z')", "IFNULL(REGEXP_SUBSTR({o}, {p}), '')", "REGEXP_INSTR({s}, {p})",
    ],
    "times": [
        "YEAR({t})", "QUARTER({t})", "MONTH({t})", "WEEK({t})", "WEEK({t}, {l})", "YEARWEEK({t})", "YEARWEEK({t}, {l})", "WEEK({t}, NULL)", "YEARWEEK({t}, NULL)", "DAY({t})", "DAYOFMONTH({t})",
        "DAYOFWEEK({t})", "WEEKDAY({t})", "DAYOFYEAR({t})", "DAYNAME({t})", "MONTHNAME({t})", "LAST_DAY({t})", "MAKEDATE({k} + 2010, {k} + 40)",
        "TO_DAYS({t})", "FROM_DAYS({l} + 734000)", "DATE({t})", "TIMESTAMP({t})", "DATEDIFF({t}, {t})", "TIMESTAMPDIFF(DAY, {t}, {t})",
        "TIMESTAMPDIFF(MONTH, {t}, {t})", "TIMESTAMPDIFF(SECOND, {t}, {t})", "TIMESTAMPDIFF(MICROSECOND, {t}, {t})", "TIMESTAMPADD(DAY, {k}, {t})",
        "DATE_ADD({t}, INTERVAL {k} DAY)", "DATE_ADD({t}, INTERVAL {k} MONTH)", "DATE_SUB({t}, INTERVAL {k} HOUR)", "{t} + INTERVAL {k} YEAR",
        "{t} - INTERVAL {k} SECOND", "DATE_ADD({t}, INTERVAL {k} MICROSECOND)", "EXTRACT(YEAR FROM {t})", "EXTRACT(MONTH FROM {t})",
        "EXTRACT(DAY FROM {D})", "EXTRACT(QUARTER FROM {D})", "EXTRACT(WEEK FROM {t})", "EXTRACT(HOUR FROM t)", "DATE_FORMAT({t}, {f})",
        "UNIX_TIMESTAMP(t)", "UNIX_TIMESTAMP(t + INTERVAL {l} + 2 DAY)", "UNIX_TIMESTAMP(IF(d > '1971-01-01', d, NULL))",
        "UNIX_TIMESTAMP('2010-06-15 01:02:03')", "FROM_UNIXTIME(i & 1048575)", "FROM_UNIXTIME(c)", "FROM_UNIXTIME(LEAST(x, 1e9))",
        "DATE_FORMAT({e}, {f})", "YEAR({e})", "MONTH({e})", "DAY({e})", "TO_DAYS({e})", "CAST({e} AS DATE)", "CAST({e} AS DATETIME(6))", "CONVERT_TZ({t}, '+00:00', '+05:30')",
    ],
    "bytes": [
        "CONCAT({B}, {s})", "CONCAT({s}, {B})", "CONCAT({n}, {B})", "CONCAT_WS({z}, {B}, {s})", "CONCAT_WS({C}, {s}, {B}, {s})", "CONCAT({Y}, 'abc')", "INSERT({Y}, {k}, {k}, {Y})", "LPAD({Y}, {l}, {z})", "IF({k}, {Y}, 'a')", "COALESCE({Y}, 'a')", "SUBSTRING({B}, {k}, {k})",
        "SUBSTR({B}, {k})", "MID({B}, {k}, {k})", "LEFT({B}, {k})", "RIGHT({B}, {k})", "LPAD({B}, {l}, {z})", "RPAD('abc', {l}, {C})", "TRIM({B})", "LTRIM({B})", "RTRIM({B})",
        "TRIM(BOTH {C} FROM {B})", "TRIM(LEADING {C} FROM {B})", "REPLACE({B}, {C}, {B})", "REPLACE(m, {z}, {B})", "REVERSE({B})",
        "REPEAT({B}, {l})", "INSERT({B}, {k}, {k}, {o})", "INSERT({o}, {k}, {k}, {B})", "ELT({k}, {B}, {s})", "SUBSTRING_INDEX({B}, {C}, {k})",
        "LOCATE({C}, {B})", "LOCATE({C}, {B}, {k})", "LOCATE({B}, {o})", "INSTR({B}, {o})", "POSITION({C} IN {B})", "LENGTH({B})", "CHAR_LENGTH({B})",
        "UPPER({B})", "LOWER({B})", "ORD({B})", "ASCII({B})", "HEX({B})", "MD5({B})", "CRC32({B})", "BIT_COUNT({w})", "IF({k}, {B}, {s})", "IF({k}, {n}, {B})",
        "COALESCE({B}, {s})", "COALESCE({s}, {B})", "IFNULL({B}, {o})", "CASE WHEN {k} THEN {B} ELSE {s} END", "NULLIF({B}, {B})", "FIND_IN_SET({C}, {B})",
        "STRCMP({B}, {o})", "FIELD({B}, {B}, {o})", "GREATEST({B}, {o})", "LEAST({o}, {B})", "{B} {=} {o}", "{B} {=} {B}", "{B} IN ({B}, {o})",
        "{B} BETWEEN {B} AND {o}", "{B} LIKE {o}", "{s} LIKE {C}", "CAST({B} AS BINARY(3))", "CAST(m AS BINARY(2))", "HEX(CONCAT({B}, {B}))",
    ],
    "spans": [
        "TIMEDIFF({U}, {U})", "TIMEDIFF({S}, {S})", "TIMEDIFF({q}, {q})", "ADDTIME({S}, {S})", "ADDTIME({T}, {S})", "SUBTIME({T}, {S})", "SUBTIME({S}, {q})",
        "ADDTIME({T}, {q})", "SEC_TO_TIME(({r}) % 100000)", "SEC_TO_TIME({l} * 1000)", "MAKETIME({k}, {k}, {k})", "MAKETIME({k}, 5, 1.5)", "TIME({h})", "TIME({T})", "TIME_TO_SEC({Z})",
        "CAST({h} AS TIME)", "CAST({h} AS TIME(3))", "CAST({T} AS TIME(6))", "{S} {=} {S}", "{S} {=} '11:07:15'", "{S} {=} h", "GREATEST({S}, {S})",
        "LEAST({S}, {S})", "HOUR({S})", "MINUTE({S})", "SECOND({S})", "MICROSECOND({S})", "CAST({Z} AS CHAR)", "CONCAT({Z}, 'x')", "CAST({Z} AS SIGNED)",
        "TIME_FORMAT({S}, '%H:%i:%s.%f %k')", "IF({k}, {S}, {S})", "COALESCE({S}, {S})", "NULLIF({S}, {S})", "{S} IN ({S}, '11:07:15')", "{S} BETWEEN {S} AND {S}",
        "DATE_ADD({S}, INTERVAL {k} MINUTE)", "{S} - INTERVAL {k} SECOND", "TIMESTAMP({T}, {S})", "CAST({Z} + 0 AS SIGNED)", "ISNULL({S})",
        "CASE {S} WHEN {S} THEN 1 ELSE 2 END", "IFNULL({S}, {S})",
    ],
    "times of day": ["HOUR({h})", "MINUTE({h})", "SECOND({h})", "MICROSECOND({h})", "CAST(TRUNCATE(TIME_TO_SEC({h}), 0) AS SIGNED)", "EXTRACT(HOUR FROM {y})", "EXTRACT(MINUTE FROM {y})", "EXTRACT(SECOND FROM {y})",
        "EXTRACT(MICROSECOND FROM {y})"],
    "conversion": [
        "CAST({a} AS SIGNED)", "CAST({w} AS UNSIGNED)", "CAST({a} AS CHAR)", "CAST({s} AS CHAR(3))", "CAST({n} AS DOUBLE)", "CAST({r} AS DECIMAL(20,4))",
        "CAST({t} AS DATE)", "CAST({t} AS DATETIME(6))", "CONVERT({a}, CHAR)", "CAST({s} AS BINARY)",
    ],
    "comparison": [
        "{n} {=} {n}", "{o} {=} {o}", "{D} {=} {t}", "{g} {=} {g}", "{D} {=} {D}", "{n} {=} {s}", "{n} BETWEEN {n} AND {n}", "{D} BETWEEN {t} AND {t}",
        "{o} BETWEEN {o} AND {o}", "{n} IN ({n}, {n})", "{o} IN ({o}, {o})", "{D} IN ({t}, {t})", "{a} IS NULL", "NOT {n}", "{a} AND {a}", "{n} XOR {n}", "{n} OR {n}",
    ],
    "arithmetic": [
        "{r} + {r}", "{r} - {r}", "{r} * {l}", "{n} / {r}", "{n} DIV {l}", "{j} % {j}", "-{n}", "{w} & 7", "{w} | 8", "{w} ^ 3", "{w} << 2", "{w} >> 1", "~{w}", "-{w} ^ {l}", "~{w} & 3",
        "{t} + 0", "{m} + {n}",
    ],
    "encodings": [
        "SHA1({s})", "SHA({B})", "SHA2({s}, 256)", "SHA2({B}, 512)", "SHA2({s}, 224)", "TO_BASE64({s})", "TO_BASE64({B})", "FROM_BASE64({o})",
        "FROM_BASE64(TO_BASE64({B}))", "QUOTE({o})", "SOUNDEX({o})", "MAKE_SET({k}, {o}, {o}, {o})", "EXPORT_SET({k}, {o}, 'N', {z}, 5)", "INET_ATON({o})",
        "INET_ATON(INET_NTOA({w}))", "INET_NTOA({k} * 1000)",
    ],
    "several units": [
        "WEEKOFYEAR({t})", "TO_SECONDS({t})", "PERIOD_ADD(201001, {l})", "PERIOD_DIFF(201001, 200000 + {l} + 2)", "EXTRACT(YEAR_MONTH FROM {t})",
        "EXTRACT(DAY_SECOND FROM {T})", "EXTRACT(HOUR_SECOND FROM {y})", "EXTRACT(MINUTE_MICROSECOND FROM {y})", "{T} + INTERVAL {k} HOUR_MINUTE",
        "{T} - INTERVAL '1:30' HOUR_MINUTE", "{D} + INTERVAL '1-2' YEAR_MONTH", "{t} - INTERVAL '1-2' YEAR_MONTH", "{T} + INTERVAL {o} DAY_SECOND",
        "{T} + INTERVAL CONCAT({k}, ' ', {k}) DAY_HOUR",
    ],
    "halves": [
        "LEFT({s}, 2.5)", "RIGHT({s}, 1.5)", "SUBSTRING({s}, 1.5, 2.5)", "LPAD({s}, 3.5, 'x')", "REPEAT({s}, 1.5)", "INSERT({o}, 1.5, 0.5, 'x')",
        "LOCATE('a', {s}, 1.5)", "SUBSTRING_INDEX({s}, ',', 1.5)", "ELT(1.5, {s}, {s})", "FORMAT({r}, 1.5)", "ROUND(x, 1.5)", "TRUNCATE(x, 0.5)",
        "{w} & 2.5", "{w} | 1.5", "{w} ^ 0.5", "{w} << 1.5", "{w} >> 0.5", "{t} + INTERVAL 1.5 DAY", "{t} - INTERVAL 2.5 MONTH", "{T} + INTERVAL 0.5 HOUR",
        "HEX(c)", "BIN(c)", "OCT(x % 1000)", "MAKEDATE(2010.5, 1.5)",
    ],
}  # fmt: skip


class Calls:
    """Makes calls from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, template: str, depth: int = 0) -> str:
        """A call of a template."""
        made, rest = "", template
        while "{" in rest:
            before, rest = rest.split("{", 1)
            letter, rest = rest.split("}", 1)
            made += before + self.argument(letter, depth)
        return made + rest

    def argument(self, letter: str, depth: int) -> str:
        """An argument of a kind; now and then a call itself."""
        if depth == 0 and letter in NESTED and self.random.random() < 0.12:
            return f"({self.of(self.random.choice(NESTED[letter]), 1)})"
        return self.random.choice(ARGUMENTS[letter])

    def each(self, theme: str, times: int) -> list[str]:
        """So many calls of each function of a theme."""
        return [self.of(template) for template in CALLS[theme] for _ in range(times)]


# Calls that give an argument of a kind.
NESTED = {
    "s": ["UPPER({s})", "CONCAT({s}, {s})", "SUBSTRING({s}, 2)", "REPLACE({s}, 'a', 'bb')"],
    "n": ["ABS({r})", "{r} + 1", "LENGTH({s})", "ROUND({r})"],
    "r": ["ABS({v})", "{v} * 2", "FLOOR({v})"],
    "B": ["CONCAT({B}, {s})", "REPLACE({B}, {C}, {B})", "SUBSTRING({B}, 2)", "IF({k}, {B}, {s})"],
    "S": ["ADDTIME({S}, {S})", "TIMEDIFF({S}, {S})", "IF({k}, {S}, {S})"],
    "t": ["LAST_DAY({t})", "DATE({t})", "{t} + INTERVAL 1 DAY", "CAST({t} AS DATETIME(6))"],
}
