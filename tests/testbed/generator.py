"""Random statements over the testbed's sky, the same for the same seed.

A statement is put together of features, each of which the generator names: the report says of each how many of the statements
that have it Meridian accepted. What a statement means is known to MariaDB alone; the generator only takes care that the answer
does not depend on chance: a LIMIT has an ORDER BY without ties, and no group is looked at but through aggregates.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

BANDS = "ugrizy"

# Columns by table and kind: integers, doubles (FLOAT columns among them), texts, times.
INTEGERS = {
    "Object": ["objectId", "flags", "nObs"],
    "Source": ["sourceId", "objectId", "filterId"],
    "RefObject": ["refId", "isStar"],
    "RefMatch": ["refId", "objectId"],
    "Filter": ["filterId"],
    "Extremes": ["id", "tiny"],
}
DOUBLES = {
    "Object": ["ra_PS", "decl_PS", "extendedness"],
    "Source": ["ra", "decl", "taiMidPoint"],
    "RefObject": ["ra", "decl", "rMag"],
    "RefMatch": ["score"],
    "Filter": ["photClam"],
    "Extremes": ["price"],
}
TEXTS = {"Object": ["name"], "RefObject": ["sedName"], "Filter": ["filterName"], "Extremes": ["txt"]}
TIMES = {"Object": ["lastSeen"], "Extremes": ["at"]}
# Small integers: what can be multiplied without leaving 64 bits.
SMALL = {"flags", "nObs", "filterId", "isStar", "id", "tiny"}
KEYS = {"Object": "objectId", "Source": "sourceId", "RefObject": "refId", "Filter": "filterId", "Extremes": "id"}
POSITIONS = {"Object": ("ra_PS", "decl_PS"), "Source": ("ra", "decl"), "RefObject": ("ra", "decl")}
JOINS = [
    ("Object", "Source", "objectId", "objectId"),
    ("Object", "RefMatch", "objectId", "objectId"),
    ("RefObject", "RefMatch", "refId", "refId"),
    ("Source", "Filter", "filterId", "filterId"),
    ("Object", "Filter", "flags", "filterId"),
    ("Source", "RefMatch", "objectId", "objectId"),
]
WORDS = ["'plain'", "''", "'NULL'", "\"it's single\"", "'a\\ttab'", "'Ωmega ☄ 星 é'", "'r'", "'100%_sure'"]
PATTERNS = ["'%in%'", "'p%'", "'_'", "'%'", "'%\\_%'", "'%e'", "'a_tab'"]
DEEPEST = 3


@dataclass
class Statement:
    """A statement, the features that it has, and whether its ORDER BY fixes the order of its rows."""

    sql: str
    features: set[str]
    ordered: bool = False


@dataclass
class Scope:
    """The tables that an expression may refer to, by their aliases."""

    tables: dict[str, str] = field(default_factory=dict)

    def columns(self, kind: dict[str, list[str]]) -> list[str]:
        """The columns of a kind, qualified."""
        return [f"{alias}.{name}" for alias, table in self.tables.items() for name in kind.get(table, [])]


class Generator:
    """Makes statements from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.features: set[str] = set()

    def statement(self) -> Statement:
        """The next statement."""
        self.features = set()
        shape = self.random.choices(
            [self.rows, self.groups, self.total, self.union, self.nested, self.common_table, self.nothing],
            [30, 20, 12, 8, 12, 8, 10],
        )[0]
        sql, ordered = shape()
        return Statement(sql, set(self.features), ordered)

    # Shapes of statements.

    def rows(self) -> tuple[str, bool]:
        """Rows of one table or a join."""
        scope, source, key = self.source()
        items = [self.item(scope) for _ in range(self.random.randint(1, 4))]
        distinct = "DISTINCT " if self.chance(0.12, "DISTINCT") else ""
        sql = f"SELECT {distinct}{', '.join(items)} FROM {source}{self.where(scope)}"
        if key is None or distinct or not self.chance(0.35, "ORDER BY"):
            return sql, False
        first = self.choice(scope.columns(INTEGERS) + scope.columns(DOUBLES))
        direction = self.choice(["", " DESC", " ASC"])
        return f"{sql} ORDER BY {first}{direction}, {key}{self.limit()}", True

    def limit(self) -> str:
        """A LIMIT, perhaps."""
        if not self.chance(0.7, "LIMIT"):
            return ""
        count, skipped = self.random.randint(0, 30), self.random.randint(0, 20)
        return self.choice([f" LIMIT {count}", f" LIMIT {skipped}, {count}", f" LIMIT {count} OFFSET {skipped}"])

    def groups(self) -> tuple[str, bool]:
        """Aggregates by group."""
        self.features.add("GROUP BY")
        scope, source, _ = self.source()
        group = self.choice(
            [self.choice(scope.columns(INTEGERS)), self.small_integer(scope), self.condition(scope), self.text(scope)]
        )
        if group.lstrip("-").isdigit():
            # A number alone would be the place of a column.
            group = f"({group} + 0)"
        aggregates = [self.aggregate(scope) for _ in range(self.random.randint(1, 3))]
        having = f" HAVING {self.aggregate(scope)} > {self.random.randint(0, 5)}" if self.chance(0.25, "HAVING") else ""
        return f"SELECT {group}, {', '.join(aggregates)} FROM {source}{self.where(scope)} GROUP BY {group}{having}", False

    def total(self) -> tuple[str, bool]:
        """Aggregates of all rows."""
        scope, source, _ = self.source()
        aggregates = [self.aggregate(scope) for _ in range(self.random.randint(1, 4))]
        return f"SELECT {', '.join(aggregates)} FROM {source}{self.where(scope)}", False

    def union(self) -> tuple[str, bool]:
        """Rows of two SELECTs."""
        word = self.choice(["UNION", "UNION ALL", "UNION DISTINCT", "EXCEPT", "INTERSECT"])
        self.features.add(word)
        kinds = self.random.choices([INTEGERS, DOUBLES], k=self.random.randint(1, 2))
        parts = []
        for _ in range(2):
            scope, source, _ = self.source(joins=False)
            items = [self.choice(scope.columns(kind) or ["1"]) for kind in kinds]
            parts.append(f"SELECT {', '.join(items)} FROM {source}{self.where(scope)}")
        return f" {word} ".join(parts), False

    def nested(self) -> tuple[str, bool]:
        """Rows that a subquery chooses or gives."""
        kind = self.choice(["IN (SELECT)", "NOT IN (SELECT)", "EXISTS", "NOT EXISTS", "scalar subquery", "derived table"])
        self.features.add(kind)
        if kind == "derived table":
            inner, _ = self.groups_named()
            return f"SELECT t.k, t.n + 1 FROM ({inner}) t WHERE t.n > {self.random.randint(0, 6)}", False
        left, right, left_key, right_key = self.choice(JOINS[:3])
        outer, inner_scope = Scope({"o": left}), Scope({"s": right})
        where = self.condition(inner_scope)
        if kind == "scalar subquery":
            value = f"(SELECT {self.choice(['COUNT(*)', f'MAX(s.{right_key})'])} FROM {right} s WHERE s.{right_key} = o.{left_key})"
            return f"SELECT o.{left_key}, {value} AS v FROM {left} o{self.where(outer)}", False
        if "IN" in kind.split():
            chosen = f"o.{left_key} {kind.split(' (')[0]} (SELECT s.{right_key} FROM {right} s WHERE {where})"
        else:
            chosen = f"{kind} (SELECT 1 FROM {right} s WHERE s.{right_key} = o.{left_key} AND {where})"
        return f"SELECT o.{left_key} FROM {left} o WHERE {chosen} AND {self.condition(outer)}", False

    def groups_named(self) -> tuple[str, bool]:
        """Groups whose columns have names."""
        table = self.choice(["Object", "Source", "RefMatch"])
        scope = Scope({"g": table})
        column = self.choice(scope.columns(INTEGERS))
        return f"SELECT {column} AS k, COUNT(*) AS n FROM {table} g{self.where(scope)} GROUP BY {column}", False

    def common_table(self) -> tuple[str, bool]:
        """A common table, used once or twice."""
        self.features.add("WITH")
        inner, _ = self.groups_named()
        if self.chance(0.4, "join"):
            return f"WITH c AS ({inner}) SELECT a.k, a.n, b.n FROM c a JOIN c b ON a.k = b.k WHERE a.n > 1", False
        return f"WITH c AS ({inner}) SELECT COUNT(*), SUM(n), MAX(k) FROM c WHERE n > {self.random.randint(0, 3)}", False

    def nothing(self) -> tuple[str, bool]:
        """Expressions over nothing."""
        self.features.add("no table")
        scope = Scope()
        return f"SELECT {', '.join(self.item(scope) for _ in range(self.random.randint(1, 4)))}", False

    # Where rows come from.

    def source(self, joins: bool = True) -> tuple[Scope, str, str | None]:
        """A FROM, and a key that orders its rows without ties."""
        if joins and self.chance(0.4):
            return self.joined()
        table = self.choice(list(INTEGERS))
        alias = table[0].lower()
        key = KEYS.get(table)
        return Scope({alias: table}), f"{table} {alias}", key and f"{alias}.{key}"

    def joined(self) -> tuple[Scope, str, str | None]:
        """A join of two tables."""
        left, right, left_key, right_key = self.choice(JOINS)
        scope = Scope({"a": left, "b": right})
        kinds = ["JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN"] + ["USING"] * (left_key == right_key)
        kind = self.choice(kinds)
        self.features.add(kind)
        equal = f"a.{left_key} = b.{right_key}"
        if kind == "USING":
            return scope, f"{left} a JOIN {right} b USING ({left_key})", None
        more = f" AND {self.condition(scope)}" if self.chance(0.2) else ""
        return scope, f"{left} a {kind} {right} b ON {equal}{more}", None

    def where(self, scope: Scope) -> str:
        """A WHERE, perhaps."""
        if self.chance(0.25):
            return ""
        return f" WHERE {self.condition(scope)}"

    # Conditions.

    def condition(self, scope: Scope, depth: int = 0) -> str:
        """A condition."""
        if depth < DEEPEST and self.chance(0.3):
            word = self.choice(["AND", "OR", "XOR", "&&", "NOT", "!"])
            self.features.add(word)
            one = self.condition(scope, depth + 1)
            if word in ("NOT", "!"):
                return f"{word} ({one})"
            return f"({one}) {word} ({self.condition(scope, depth + 1)})"
        makers: list[Callable[[Scope], str]] = [
            self.comparison, self.comparison, self.between, self.in_list, self.null_test, self.bit_test,
        ]  # fmt: skip
        if scope.columns(TEXTS):
            makers += [self.text_test]
        if scope.columns(TIMES):
            makers += [self.time_test]
        if any(table in POSITIONS for table in scope.tables.values()):
            makers += [self.region, self.region]
        return self.choice(makers)(scope)

    def comparison(self, scope: Scope) -> str:
        """Two numbers compared."""
        operator = self.choice(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
        self.features.add("<=>" if operator == "<=>" else "comparison")
        return f"{self.number(scope)} {operator} {self.number(scope)}"

    def between(self, scope: Scope) -> str:
        """A number within bounds."""
        self.features.add("BETWEEN")
        low = self.random.randint(-20, 30)
        word = self.choice(["BETWEEN", "NOT BETWEEN"])
        return f"{self.number(scope)} {word} {low} AND {low + self.random.randint(0, 40)}"

    def in_list(self, scope: Scope) -> str:
        """A number among several."""
        self.features.add("IN")
        values = [str(self.random.randint(-5, 20)) for _ in range(self.random.randint(1, 5))]
        if self.chance(0.15):
            values.append("NULL")
        return f"{self.integer(scope)} {self.choice(['IN', 'NOT IN'])} ({', '.join(values)})"

    def null_test(self, scope: Scope) -> str:
        """Whether something is NULL."""
        self.features.add("IS NULL")
        return f"{self.number(scope)} {self.choice(['IS NULL', 'IS NOT NULL'])}"

    def bit_test(self, scope: Scope) -> str:
        """A number as a condition, or bits of one."""
        self.features.add("number as condition")
        return self.choice([self.small_integer(scope), f"{self.small_integer(scope)} & {2 ** self.random.randint(0, 4)}"])

    def text_test(self, scope: Scope) -> str:
        """A condition on text."""
        column = self.choice(scope.columns(TEXTS))
        if self.chance(0.5, "LIKE"):
            return f"{column} {self.choice(['LIKE', 'NOT LIKE'])} {self.choice(PATTERNS)}"
        self.features.add("text comparison")
        return f"{column} {self.choice(['=', '<', '>=', '<>'])} {self.choice(WORDS)}"

    def time_test(self, scope: Scope) -> str:
        """A condition on a time."""
        self.features.add("time comparison")
        column = self.choice(scope.columns(TIMES))
        year = self.random.randint(2009, 2020)
        return self.choice(
            [f"{column} >= '{year}-06-01'", f"YEAR({column}) = {year}", f"{column} BETWEEN '{year}-01-01' AND '{year + 2}-12-31'"]
        )

    def region(self, scope: Scope) -> str:
        """A restriction to a region."""
        alias, table = self.choice([pair for pair in scope.tables.items() if pair[1] in POSITIONS])
        ra, dec = (f"{alias}.{name}" for name in POSITIONS[table])
        centre = self.choice([(0, 0), (359.99, 30), (120, 89.9), (240, -89.9), (10, 20), (100, 40)])
        # None ends at a pole, where rounding decides.
        size = self.choice([1, 5, 20, 61])
        if self.chance(0.5, "circle"):
            inside = f"scisql_s2PtInCircle({ra}, {dec}, {centre[0]}, {centre[1]}, {size})"
        else:
            self.features.add("box")
            low, high = max(-90, centre[1] - size), min(90, centre[1] + size)
            inside = f"scisql_s2PtInBox({ra}, {dec}, {(centre[0] - size) % 360}, {low}, {(centre[0] + size) % 360}, {high})"
        return f"{inside} = {self.choice([1, 1, 1, 0])}"

    # Values.

    def item(self, scope: Scope) -> str:
        """An item of a select list."""
        makers = [self.number, self.number, self.condition, self.choice_of_two, self.text]
        return self.choice(makers)(scope)

    def number(self, scope: Scope) -> str:
        """A number."""
        return self.choice([self.integer, self.double])(scope)

    def integer(self, scope: Scope) -> str:
        """An integer."""
        columns = scope.columns(INTEGERS)
        if columns and self.chance(0.5):
            return self.choice(columns)
        return self.small_integer(scope)

    def small_integer(self, scope: Scope, depth: int = 0) -> str:
        """An integer that can be computed with."""
        columns = [name for name in scope.columns(INTEGERS) if name.split(".")[1] in SMALL]
        if depth >= 2 or self.chance(0.4):
            return self.choice(columns) if columns and self.chance(0.7) else str(self.random.randint(-9, 30))
        one, other = self.small_integer(scope, depth + 1), self.small_integer(scope, depth + 1)
        operator = self.choice(["+", "-", "*", "DIV", "%", "MOD", "&", "|", "ABS", "LENGTH", "SIGN", "<<", "IFNULL", "CAST"])
        self.features.add(operator)
        if operator in ("&", "|"):
            # Unsigned results would make a later difference an error in both.
            return f"CAST({one} {operator} {other} AS SIGNED)"
        if operator == "<<":
            return f"CAST((ABS({one}) & 255) << {self.random.randint(0, 8)} AS SIGNED)"
        if operator == "CAST":
            return f"CAST({one} AS SIGNED)"
        if operator == "IFNULL":
            return f"IFNULL({one}, {other})"
        if operator in ("ABS", "LENGTH", "SIGN"):
            return f"{operator}({one})"
        return f"({one} {operator} {other})"

    def double(self, scope: Scope, depth: int = 0) -> str:
        """A double."""
        columns = scope.columns(DOUBLES)
        if depth >= 2 or self.chance(0.5):
            return self.choice(columns) if columns else f"{self.random.uniform(-50, 50):.3f}e0"
        one = self.double(scope, depth + 1)
        operator = self.choice(["+", "-", "*", "/", "SQRT", "ROUND", "FLOOR", "COS", "POW", "LOG10", "COALESCE", "NULLIF"])
        self.features.add(operator)
        if operator in ("+", "-", "*", "/"):
            return f"({one} {operator} {self.small_integer(scope)})"
        if operator == "POW":
            return f"POW({one}, 2)"
        if operator == "ROUND":
            # Halves are met by no value after so odd a factor.
            return f"ROUND({one} * 1.00000137e0, {self.random.randint(0, 3)})"
        if operator == "COALESCE":
            return f"COALESCE({one}, {self.random.randint(0, 9)})"
        if operator == "NULLIF":
            return f"NULLIF({one}, 0)"
        if operator == "FLOOR":
            return f"FLOOR({one} * 1.00000137e0)"
        if operator == "COS":
            return f"COS(RADIANS({one}))"
        return f"{operator}({one})"

    def text(self, scope: Scope) -> str:
        """A text."""
        columns = scope.columns(TEXTS)
        base = self.choice(columns) if columns and self.chance(0.7) else self.choice(WORDS)
        function = self.choice(["", "UPPER", "LOWER", "REVERSE", "SUBSTRING", "CONCAT", "LEFT", "REPLACE", "LPAD", "TRIM"])
        if function:
            self.features.add(function)
        arguments = {
            "": base,
            "SUBSTRING": f"SUBSTRING({base}, {self.choice([1, 2, 3, -3])}, {self.random.randint(0, 4)})",
            "CONCAT": f"CONCAT({base}, '/', {self.small_integer(scope)})",
            "LEFT": f"LEFT({base}, {self.random.randint(0, 5)})",
            "REPLACE": f"REPLACE({base}, 'i', 'II')",
            "LPAD": f"LPAD({base}, {self.random.randint(0, 9)}, '*')",
        }
        return arguments.get(function, f"{function}({base})")

    def choice_of_two(self, scope: Scope) -> str:
        """A CASE or an IF."""
        condition = self.condition(scope)
        if self.chance(0.5, "CASE"):
            return f"CASE WHEN {condition} THEN {self.small_integer(scope)} ELSE {self.small_integer(scope)} END"
        self.features.add("IF")
        return f"IF({condition}, {self.text(scope)}, 'no')"

    def aggregate(self, scope: Scope) -> str:
        """An aggregate."""
        function = self.choice(["COUNT(*)", "COUNT", "COUNT DISTINCT", "SUM", "AVG", "MIN", "MAX", "SUM of conditions", "BIT_OR"])
        self.features.add(function)
        if function == "COUNT(*)":
            return function
        if function == "COUNT DISTINCT":
            return f"COUNT(DISTINCT {self.integer(scope)})"
        if function == "SUM of conditions":
            return f"SUM({self.condition(scope)})"
        if function in ("SUM", "AVG"):
            # A sum of doubles depends on the order in so far as they cancel each other: integers are summed.
            return f"{function}({self.small_integer(scope)})"
        if function == "BIT_OR":
            return f"BIT_OR(ABS({self.small_integer(scope)}))"
        return f"{function}({self.number(scope)})"

    # Chance.

    def chance(self, probability: float, feature: str | None = None) -> bool:
        """Whether something is done; if so, the statement has the feature."""
        done = self.random.random() < probability
        if done and feature:
            self.features.add(feature)
        return done

    def choice(self, of: list):  # type: ignore[type-arg,no-untyped-def]
        """One of several."""
        return self.random.choice(of)
