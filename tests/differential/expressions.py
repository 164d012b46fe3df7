"""Random expressions and conditions over the columns of a scope."""

from __future__ import annotations

import random
from collections.abc import Callable

from differential import values
from differential.operators import AGGREGATES, ALWAYS_DISTINCT, NEAR_FORMS, NEVER_DISTINCT, OPERATORS, WINDOW_FORMS, WINDOWS
from differential.scope import Named, Scope
from differential.tree import Aggregate, Apply, Column, Constant, Expr, InList, SortKey, Window

DEEPEST = 3
ROLE_OF_KIND = {"small": "small", "int": "key", "tame": "tame", "real": "wild", "text": "text", "time": "time", "date": "date", "number": "small"}
SIGNS = ["eq", "eq", "ne", "lt", "le", "gt", "ge"]
# What a kind of argument takes: integers are small, doubles tame, where they are computed with.
BY_KIND: dict[str, list[str]] = {}
for _name, _operator in OPERATORS.items():
    if _operator.exact and _operator.kind != "bool" and _operator.meridian:
        BY_KIND.setdefault(_operator.kind, []).append(_name)


class Expressions:
    """Makes expressions. `subquery` makes a condition with a subquery, if one may be there."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.subquery: Callable[[Scope], Expr | None] = lambda _: None
        self.scalar: Callable[[Scope, str], Expr | None] = lambda *_: None

    def chance(self, share: float) -> bool:
        """Whether something that happens in so many of all cases happens."""
        return self.random.random() < share

    # Values.

    def constant(self, role: str) -> Constant:
        """A constant that may be exchanged for others of its role."""
        return Constant(values.KIND_OF_ROLE[role], values.plain(self.random, role), role)

    def column(self, scope: Scope, kind: str) -> Column | None:
        """A column of a kind."""
        found = scope.columns(kind)
        return self.random.choice(found).column if found else None

    def value(self, scope: Scope, kind: str, depth: int = 0) -> Expr:
        """An exact expression of a kind."""
        if kind == "bool":
            return self.condition(scope, depth + 1)
        column = self.column(scope, kind)
        if column is not None and (depth >= DEEPEST or kind in ("any", "grouped") or self.chance(0.6)):
            return column
        if kind in ("any", "grouped"):
            kind = self.random.choice(["small", "text"])
        if kind in ("small", "tame", "number") or depth >= DEEPEST or self.chance(0.35):
            return self.constant(ROLE_OF_KIND[kind])
        if self.chance(0.08) and kind in ("int", "real", "text") and (found := self.scalar(scope, kind)) is not None:
            return found
        name = self.random.choice(BY_KIND[kind])
        return Apply(kind, name, tuple(self.value(scope, arg, depth + 1) for arg in OPERATORS[name].args))

    def item(self, scope: Scope) -> Expr:
        """An entry of the statement's list, exact or not."""
        if self.chance(0.6) and (column := self.column(scope, "any")):
            return column
        if self.chance(0.15) and (column := self.column(scope, "inexact")):
            return column
        if self.chance(0.08) and len(places := scope.positions()) > 1:
            (ra1, dec1, _), (ra2, dec2, _) = self.random.sample(places, 2)
            return Apply("real", "separation", (ra1, dec1, ra2, dec2))
        if self.chance(0.04) and (column := self.column(scope, "tame")):
            return Apply("real", "magnitude", (column,))
        return self.value(scope, self.random.choice(["int", "int", "real", "text", "time", "date", "bool", "bool"]))

    # Conditions.

    def condition(self, scope: Scope, depth: int = 0) -> Expr:
        """A condition."""
        if depth < DEEPEST and self.chance(0.35):
            return self.compound(scope, depth)
        makers: list[tuple[Callable[[Scope], Expr | None], float]] = [
            (self.column_and_constant, 5), (self.two_columns, 2), (self.between, 2), (self.in_list, 2), (self.null_test, 1.2), (self.like, 1),
            (self.truth, 1), (self.region, 3), (self.near, 0.7), (self.subquery, 4), (self.two_values, 1), (self.impossible, 0.2),
        ]  # fmt: skip
        while True:
            (maker,) = self.random.choices([maker for maker, _ in makers], [weight for _, weight in makers])
            if (made := maker(scope)) is not None:
                return made

    def compound(self, scope: Scope, depth: int) -> Expr:
        """Conditions put together."""
        name = self.random.choices(["and", "or", "not", "xor", "is_true", "is_false", "is_unknown"], [8, 7, 3, 1, 0.7, 0.5, 0.5])[0]
        count = len(OPERATORS[name].args)
        return Apply("bool", name, tuple(self.condition(scope, depth + 1) for _ in range(count)))

    def named(self, scope: Scope, kind: str = "any") -> Named | None:
        """A column and what is known of it, keys more often than others."""
        found = scope.columns(kind)
        if self.chance(0.35):
            found = [one for one in found if one.field.domain in ("object", "reference", "star", "source")] or found
        return self.random.choice(found) if found else None

    def compared(self, kind: str, sign: str, left: Expr, right: Expr) -> Expr:
        """A comparison, either way round."""
        if self.chance(0.25):
            left, right, sign = right, left, {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(sign, sign)
        return Apply("bool", f"{sign}_{'number' if kind in ('int', 'real') else kind}", (left, right))

    def column_and_constant(self, scope: Scope) -> Expr | None:
        """A column compared with a constant."""
        named = self.named(scope)
        if named is None or named.field.kind == "bool":
            return None
        return self.compared(named.field.kind, self.random.choice(SIGNS), named.column, self.constant(self.maybe_text(named.field.role)))

    def maybe_text(self, role: str) -> str:
        """The role, or now and then that of the same in quotes."""
        return f"{role} text" if f"{role} text" in values.WRITTEN_AS_TEXT and self.chance(0.25) else role

    def two_columns(self, scope: Scope) -> Expr | None:
        """Two columns compared."""
        kind = self.random.choice(["number", "number", "text", "time", "date"])
        one, other = self.column(scope, kind), self.column(scope, kind)
        if one is None or other is None or one == other:
            return None
        sign = self.random.choice([*SIGNS, "same"]) if kind in ("number", "text") else self.random.choice(SIGNS)
        return Apply("bool", f"{sign}_{kind}", (one, other))

    def two_values(self, scope: Scope) -> Expr:
        """Two expressions compared."""
        kind = self.random.choice(["number", "text", "time", "date"])
        made = ["int", "real"] if kind == "number" else [kind]
        left, right = (self.value(scope, self.random.choice(made), 1) for _ in range(2))
        return Apply("bool", f"{self.random.choice(SIGNS)}_{kind}", (left, right))

    def between(self, scope: Scope) -> Expr | None:
        """A column between two constants."""
        named = self.named(scope)
        if named is None or named.field.kind in ("bool", "text"):
            return None
        kind = named.field.kind
        role = self.maybe_text(named.field.role)
        bounds = [self.constant(role) for _ in range(2)]
        if self.chance(0.85):
            bounds.sort(key=lambda constant: constant.value)  # type: ignore[arg-type,return-value]
        name = f"between_{kind}" if kind in ("time", "date") else self.random.choice(["between_number"] * 4 + ["not_between_number"])
        return Apply("bool", name, (named.column, *bounds))

    def in_list(self, scope: Scope) -> Expr | None:
        """A column among constants."""
        named = self.named(scope)
        if named is None or named.field.kind == "bool":
            return None
        role = self.maybe_text(named.field.role)
        among: list[Expr] = [self.constant(role) for _ in range(self.random.choice([1, 2, 3, 3, 6, 12]))]
        if self.chance(0.12):
            among.append(Constant(named.field.kind, None))
        return InList("bool", named.column, tuple(among), self.chance(0.25))

    def null_test(self, scope: Scope) -> Expr | None:
        """Whether something is NULL."""
        column = self.column(scope, "any")
        return column and Apply("bool", self.random.choice(["is_null", "is_not_null"]), (column,))

    def like(self, scope: Scope) -> Expr | None:
        """A text and a pattern."""
        column = self.column(scope, "text")
        return column and Apply("bool", self.random.choice(["like", "like", "not_like"]), (column, self.constant("pattern")))

    def truth(self, scope: Scope) -> Expr | None:
        """Something that is a condition by itself."""
        if (column := self.column(scope, "bool")) and self.chance(0.6):
            return column if self.chance(0.6) else Apply("bool", "is_one", (column,))
        if (column := self.column(scope, "small")) is None:
            return None
        if self.chance(0.4):
            return Apply("bool", "is_nonzero", (column,))
        return Apply("bool", "has_bits", (column, Constant("int", 2 ** self.random.randint(0, 3), "small")))

    def impossible(self, scope: Scope) -> Expr:
        """A condition that is decided before any row is read."""
        return Constant("bool", self.random.choice([True, False, None]))

    def region(self, scope: Scope) -> Expr | None:
        """A restriction to a part of the sky."""
        if not (places := scope.positions()):
            return None
        ra, dec, _ = self.random.choice(places)
        match self.random.choices(["in_circle", "outside_circle", "in_box", "near", "ra", "dec", "in_triangle", "in_ellipse"], [4, 1, 4, 4, 2, 2, 1, 1])[0]:
            case "in_box":
                south, north = sorted([self.constant("dec"), self.constant("dec")], key=lambda constant: float(constant.value or 0))
                numbers = (self.constant("ra"), south, self.constant("ra"), north)
                return Apply("bool", "in_box", (ra, dec, *numbers))
            case "near":
                position = [(ra, dec), (self.constant("ra"), self.constant("dec"))]
                self.random.shuffle(position)
                return Apply("bool", self.random.choice(["near", "near_or_at"]), (*position[0], *position[1], self.constant("radius")))
            case "ra" | "dec" as role:
                bounds = sorted([self.constant(role), self.constant(role)], key=lambda constant: float(constant.value or 0))
                return Apply("bool", "between_number", (ra if role == "ra" else dec, *bounds))
            case "in_triangle":
                return Apply("bool", "in_triangle", (ra, dec, *self.triangle()))
            case "in_ellipse":
                axes = sorted((round(self.random.uniform(500, 30000), 2) for _ in range(2)), reverse=True)
                numbers = (self.constant("ra"), self.constant("dec"), *(Constant("real", axis) for axis in axes), Constant("real", 33.3))
                return Apply("bool", "in_ellipse", (ra, dec, *numbers))
            case name:
                return Apply("bool", name, (ra, dec, self.constant("ra"), self.constant("dec"), self.constant("radius")))

    def triangle(self) -> tuple[Constant, ...]:
        """Corners of a triangle that no row lies on the edge of."""
        ra, dec, size = self.random.uniform(0, 360), self.random.uniform(-60, 60), self.random.uniform(3, 25)
        corners = [(ra - size, dec - size), (ra + size * 1.01, dec - size * 0.9), (ra + size * 0.1, dec + size)]
        return tuple(Constant("real", round(number, 6)) for corner in corners for number in (corner[0] % 360, corner[1]))

    def near(self, scope: Scope) -> Expr | None:
        """Two rows near each other."""
        if len(places := scope.positions()) < 2:
            return None
        (ra1, dec1, _), (ra2, dec2, _) = self.random.sample(places, 2)
        return self.nearness(ra1, dec1, ra2, dec2)

    def nearness(self, ra1: Column, dec1: Column, ra2: Column, dec2: Column) -> Expr:
        """A condition by which two positions are near each other: within a radius, or within windows of their coordinates."""
        positions = (ra1, dec1, ra2, dec2)
        if self.chance(0.35):
            return Apply("bool", self.random.choice(WINDOW_FORMS), (*positions, self.constant("radius"), self.constant("radius")))
        return Apply("bool", self.random.choice(NEAR_FORMS), (*positions, self.constant("radius")))

    # Aggregates and windows.

    def aggregate(self, scope: Scope, names: list[str] | None = None) -> Aggregate:
        """An aggregate; only of such names, if they are given."""
        name = self.random.choice(names or list(AGGREGATES))
        operator = AGGREGATES[name]
        args = tuple(self.value(scope, arg, 2) for arg in operator.args)
        distinct = name in ALWAYS_DISTINCT or (name not in NEVER_DISTINCT and self.chance(0.15))
        return Aggregate(operator.kind, name, args, distinct)

    def window(self, scope: Scope) -> Window | None:
        """A window function whose value is determined."""
        name = self.random.choice(list(WINDOWS))
        operator, needs_unique = WINDOWS[name]
        order = [SortKey(self.value(scope, "grouped", DEEPEST), self.chance(0.4)) for _ in range(self.random.randint(0 if not needs_unique else 1, 2))]
        unique = scope.unique()
        is_unique = unique is not None and (needs_unique or self.chance(0.3))
        if needs_unique and not is_unique:
            return None
        if is_unique:
            order += [SortKey(one.column, self.chance(0.3)) for one in unique or []]
        if name in ("rank", "dense_rank") and not order:
            return None
        framed = is_unique and name.endswith("_window") and self.chance(0.5)
        frame = self.random.choice(["ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING"]) if framed else None
        partition = tuple(self.value(scope, "grouped", DEEPEST) for _ in range(self.random.choice([0, 1, 1, 2])))
        args = tuple(self.value(scope, arg, 2) for arg in operator.args)
        return Window(operator.kind, name, args, partition, tuple(order), frame)
