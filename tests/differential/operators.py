"""The table of operators and functions: how each is written for Meridian, in MySQL's dialect, and for DuckDB so that both mean the same.
ADQL's forms are in adql.py.

Left out of the grammar, since DuckDB cannot be made to mean the same by a few words, or since nobody fixes the answer:

- text in the place of a number ("Text in the place of a number is the number with which it begins");
- sums and arithmetic of doubles at the ends of their range, where the order of summing decides;
- ROUND of doubles, FORMAT, and other functions that the testbed compares with MariaDB one by one;
- NTILE, ROW_NUMBER, LAG, LEAD and frames of rows over an order with ties;
- LIMIT of an order with ties below the top of a statement;
- which of several equally near rows `nearest()` takes: its statements give columns of the left side and the separation.

Where the meanings differ: `/` is of doubles and NULL by zero, `DIV` cuts off, NULL sorts below all, conditions are numbers, texts
compare by bytes in both, the bits of NULL are 0. Integers are BIGINT in DuckDB, whose error beyond 64 bits goes with Meridian's 1690.
A double in DuckDB gets `+ 0.0`, which makes -0.0 the 0.0 that Meridian has.
"""

from __future__ import annotations

from dataclasses import dataclass

from differential.tree import Aggregate, Apply, Column, Expr


@dataclass(frozen=True)
class Operator:
    """A function of values: the kinds of its arguments and of its result, and its two forms. MySQL's dialect has none of one that is ADQL's alone."""

    args: tuple[str, ...]
    kind: str
    meridian: str
    duckdb: str
    # Whether both compute the same bits. What is not exact is compared with a tolerance, and neither grouped nor compared by `=`.
    exact: bool = True


def _same(args: str, kind: str, text: str, duckdb: str | None = None, exact: bool = True) -> Operator:
    return Operator(tuple(args.split()), kind, text, duckdb or text, exact)


def _in_adql(args: str, kind: str, duckdb: str) -> Operator:
    return Operator(tuple(args.split()), kind, "", duckdb)


_COMPARED = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Of two positions and a radius; of two positions and the widths in right ascension and declination.
NEAR_FORMS = ["near", "near_or_at"]
WINDOW_FORMS = ["in_windows", "in_windows_by_factor", "in_windows_around", "in_plain_windows"]
COMPARISONS = {f"{name}_{kind}": sign for kind in ("number", "text", "time", "date") for name, sign in _COMPARED.items()}

OPERATORS: dict[str, Operator] = {
    # Conditions.
    **{
        f"{name}_{kind}": _same(f"{kind} {kind}", "bool", f"({{0}} {sign} {{1}})")
        for kind in ("number", "text", "time", "date")
        for name, sign in _COMPARED.items()
    },
    "same_number": _same("number number", "bool", "({0} <=> {1})", "({0} IS NOT DISTINCT FROM {1})"),
    "same_text": _same("text text", "bool", "({0} <=> {1})", "({0} IS NOT DISTINCT FROM {1})"),
    "and": _same("bool bool", "bool", "({0} AND {1})"),
    "or": _same("bool bool", "bool", "({0} OR {1})"),
    "xor": _same("bool bool", "bool", "({0} XOR {1})", "({0} <> {1})"),
    "not": _same("bool", "bool", "(NOT {0})"),
    "is_true": _same("bool", "bool", "({0} IS TRUE)"),
    "is_false": _same("bool", "bool", "({0} IS FALSE)"),
    "is_unknown": _same("bool", "bool", "({0} IS NULL)"),
    "is_null": _same("any", "bool", "({0} IS NULL)"),
    "is_not_null": _same("any", "bool", "({0} IS NOT NULL)"),
    "between_number": _same("number number number", "bool", "({0} BETWEEN {1} AND {2})"),
    "not_between_number": _same("number number number", "bool", "({0} NOT BETWEEN {1} AND {2})"),
    "between_time": _same("time time time", "bool", "({0} BETWEEN {1} AND {2})"),
    "between_date": _same("date date date", "bool", "({0} BETWEEN {1} AND {2})"),
    "like": _same("text text", "bool", "({0} LIKE {1})", "({0} LIKE {1} ESCAPE '\\')"),
    "not_like": _same("text text", "bool", "({0} NOT LIKE {1})", "({0} NOT LIKE {1} ESCAPE '\\')"),
    "has_bits": _same("small small", "bool", "(({0} & {1}) AND TRUE)", "(({0} & {1}) <> 0)"),
    "is_nonzero": _same("small", "bool", "({0} AND TRUE)", "({0} <> 0)"),
    "is_one": _same("bool", "bool", "({0} = 1)", "(({0})::INTEGER = 1)"),
    # Regions. A position that is NULL is in none.
    "in_circle": _same(
        "real real real real real", "bool", "(scisql_s2PtInCircle({0}, {1}, {2}, {3}, {4}) = 1)", "is_in_circle({0}, {1}, {2}, {3}, {4})"
    ),
    "outside_circle": _same(
        "real real real real real", "bool", "(scisql_s2PtInCircle({0}, {1}, {2}, {3}, {4}) = 0)", "(NOT is_in_circle({0}, {1}, {2}, {3}, {4}))"
    ),
    "in_box": _same(
        "real real real real real real", "bool", "scisql_s2PtInBox({0}, {1}, {2}, {3}, {4}, {5})", "is_in_box({0}, {1}, {2}, {3}, {4}, {5})"
    ),
    "in_triangle": _same(
        "real real real real real real real real",
        "bool",
        "(scisql_s2PtInCPoly({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}) = 1)",
        "(in_polygon({0}, {1}, [{2}, {3}, {4}, {5}, {6}, {7}]) = 1)",
    ),
    "in_ellipse": _same(
        "real real real real real real real",
        "bool",
        "(scisql_s2PtInEllipse({0}, {1}, {2}, {3}, {4}, {5}, {6}) = 1)",
        "(in_ellipse({0}, {1}, [{2}, {3}, {4}, {5}, {6}]) = 1)",
    ),
    "near": _same("real real real real real", "bool", "(scisql_angSep({0}, {1}, {2}, {3}) < {4})", "(separation({0}, {1}, {2}, {3}) < {4})"),
    "near_or_at": _same("real real real real real", "bool", "({4} >= scisql_angSep({0}, {1}, {2}, {3}))", "(separation({0}, {1}, {2}, {3}) <= {4})"),
    # Windows in both coordinates: they bound the separation, and are joined by it.
    "in_windows": _same(
        "real real real real real real",
        "bool",
        "(ABS({0} - {2}) < {4} / COS(RADIANS({1})) AND ABS({1} - {3}) < {5})",
        "(ABS({0} - {2}) < finite({4} / NULLIF(COS(RADIANS({1})), 0)) AND ABS({1} - {3}) < {5})",
    ),
    "in_windows_by_factor": _same(
        "real real real real real real",
        "bool",
        "({5} >= ABS({3} - {1}) AND COS({3} * PI() / 180) * ABS({0} - {2}) <= {4})",
        "({5} >= ABS({3} - {1}) AND COS({3} * PI() / 180) * ABS({0} - {2}) <= {4})",
    ),
    "in_windows_around": _same(
        "real real real real real real",
        "bool",
        "({0} BETWEEN {2} - {4} / COS(RADIANS({3})) AND {2} + {4} / COS(RADIANS({3})) AND {1} BETWEEN {3} - {5} AND {3} + {5})",
        "({0} BETWEEN finite({2} - finite({4} / NULLIF(COS(RADIANS({3})), 0))) AND finite({2} + finite({4} / NULLIF(COS(RADIANS({3})), 0))) AND {1} BETWEEN {3} - {5} AND {3} + {5})",
    ),
    "in_plain_windows": _same(
        "real real real real real real",
        "bool",
        "({0} - {2} BETWEEN - {4} AND {4} AND ABS({1} - {3}) <= {5})",
        "({0} - {2} BETWEEN - {4} AND {4} AND ABS({1} - {3}) <= {5})",
    ),
    # Integers.
    "plus": _same("small small", "int", "({0} + {1})"),
    "minus": _same("small small", "int", "({0} - {1})"),
    "times": _same("small small", "int", "({0} * {1})"),
    "div": _same("small small", "int", "({0} DIV {1})", "({0} // NULLIF({1}, 0))"),
    "mod": _same("small small", "int", "({0} % {1})", "({0} % NULLIF({1}, 0))"),
    "negated": _same("small", "int", "(- {0})"),
    "abs": _same("small", "int", "ABS({0})"),
    "sign": _same("number", "int", "SIGN({0})", "(SIGN({0}))::BIGINT"),
    "length": _same("text", "int", "LENGTH({0})", "strlen({0})::BIGINT"),
    "characters": _same("text", "int", "CHAR_LENGTH({0})", "length({0})::BIGINT"),
    "year": _same("time", "int", "YEAR({0})", "year({0})::BIGINT"),
    "month": _same("date", "int", "MONTH({0})", "month({0})::BIGINT"),
    "truth": _same("bool", "int", "({0} + 0)", "(({0})::BIGINT)"),
    "if_int": _same("bool int int", "int", "IF({0}, {1}, {2})", "(CASE WHEN {0} THEN {1} ELSE {2} END)"),
    "case_int": _same("bool int", "int", "(CASE WHEN {0} THEN {1} END)"),
    "coalesce_int": _same("int int", "int", "COALESCE({0}, {1})"),
    "ifnull_int": _same("int int", "int", "IFNULL({0}, {1})", "COALESCE({0}, {1})"),
    "nullif_int": _same("int int", "int", "NULLIF({0}, {1})"),
    "greatest_int": _same("int int", "int", "GREATEST({0}, {1})", "(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE greatest({0}, {1}) END)"),
    "least_int": _same("int int", "int", "LEAST({0}, {1})", "(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE least({0}, {1}) END)"),
    # Doubles. Tame ones are eighths of small integers, of which sums and products are exact.
    "plus_real": _same("tame tame", "real", "({0} + {1})", "({0} + {1} + 0.0)"),
    "minus_real": _same("tame number", "real", "({0} - {1})", "({0} - {1} + 0.0)"),
    "times_real": _same("tame tame", "real", "({0} * {1})", "({0} * {1} + 0.0)"),
    "quotient": _same("small small", "real", "({0} / {1})", "(({0})::DOUBLE / NULLIF({1}, 0)::DOUBLE + 0.0)"),
    "quotient_real": _same("tame tame", "real", "({0} / {1})", "({0} / NULLIF({1}, 0.0) + 0.0)"),
    "negated_real": _same("tame", "real", "(- {0})", "(- {0} + 0.0)"),
    "abs_real": _same("real", "real", "ABS({0})"),
    "floor": _same("tame", "real", "FLOOR({0})", "(floor({0}) + 0.0)"),
    "ceil": _same("tame", "real", "CEIL({0})", "(ceil({0}) + 0.0)"),
    "sqrt": _same("tame", "real", "SQRT({0})", "(CASE WHEN {0} >= 0 THEN sqrt({0}) + 0.0 END)"),
    "separation": _same("real real real real", "real", "scisql_angSep({0}, {1}, {2}, {3})", "separation({0}, {1}, {2}, {3})", exact=False),
    "magnitude": _same("tame", "real", "scisql_fluxToAbMag({0})", "(CASE WHEN {0} > 0 THEN -2.5 * log10({0}) - 48.6 END)", exact=False),
    "if_real": _same("bool real real", "real", "IF({0}, {1}, {2})", "(CASE WHEN {0} THEN {1} ELSE {2} END)"),
    # Of an integer and a double, in either order, and computed with.
    "if_mixed": _same("bool small tame small", "real", "(IF({0}, {1}, {2}) + {3})", "(CASE WHEN {0} THEN ({1})::DOUBLE ELSE {2} END + {3} + 0.0)"),
    "case_mixed": _same(
        "bool tame small small",
        "real",
        "(CASE WHEN {0} THEN {1} ELSE {2} END * {3})",
        "(CASE WHEN {0} THEN {1} ELSE ({2})::DOUBLE END * {3} + 0.0)",
    ),
    "case_mixed_negated": _same(
        "bool small bool tame",
        "real",
        "(- CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END)",
        "(- CASE WHEN {0} THEN ({1})::DOUBLE WHEN {2} THEN {3} END + 0.0)",
    ),
    "coalesce_real": _same("real real", "real", "COALESCE({0}, {1})"),
    "nullif_real": _same("real real", "real", "NULLIF({0}, {1})"),
    # Texts.
    "concat": _same("text text", "text", "CONCAT({0}, {1})", "({0} || {1})"),
    "upper": _same("text", "text", "UPPER({0})"),
    "first_letters": _same("text", "text", "SUBSTRING({0}, 1, 2)"),
    "if_text": _same("bool text text", "text", "IF({0}, {1}, {2})", "(CASE WHEN {0} THEN {1} ELSE {2} END)"),
    "coalesce_text": _same("text text", "text", "COALESCE({0}, {1})"),
    "nullif_text": _same("text text", "text", "NULLIF({0}, {1})"),
    # Times.
    "coalesce_time": _same("time time", "time", "COALESCE({0}, {1})"),
    "if_time": _same("bool time time", "time", "IF({0}, {1}, {2})", "(CASE WHEN {0} THEN {1} ELSE {2} END)"),
    "date_of": _same("time", "date", "DATE({0})", "({0})::DATE"),
    "coalesce_date": _same("date date", "date", "COALESCE({0}, {1})"),
    # Those of ADQL's alone, which take the places of others of the same kinds there (adql.py): the grammar makes none.
    "ilike": _in_adql("text text", "bool", "({0} ILIKE {1})"),
    "not_ilike": _in_adql("text text", "bool", "({0} NOT ILIKE {1})"),
    "has_remainder": _in_adql("small small", "bool", "({0} % NULLIF({1}, 0) <> 0)"),
    "matches": _in_adql("text text", "bool", "COALESCE({0} ILIKE {1}, FALSE)"),
    "overlaps": _in_adql("number number number", "bool", "COALESCE({0} BETWEEN {1} AND {2}, FALSE)"),
    "is_said": _in_adql("bool", "bool", "({0} = TRUE)"),
    **{
        name: _in_adql("real real real real real", "bool", "is_in_circle({0}, {1}, {2}, {3}, {4})")
        for name in ("meets_circle", "in_circle_around", "in_circle_of_system")
    },
    "of_eighths": _in_adql("small", "int", "(trunc({0} / 8.0))::BIGINT"),
    "truncate": _in_adql("tame", "real", "(trunc({0}) + 0.0)"),
    "square": _in_adql("tame", "real", "(pow({0}, 2) + 0.0)"),
    "lower": _in_adql("text", "text", "lower({0})"),
    "cut_text": _in_adql("text", "text", "left({0}, 3)"),
}

AGGREGATES: dict[str, Operator] = {
    "count_all": _same("", "int", "COUNT(*)"),
    "count": _same("any", "int", "COUNT({0})"),
    "count_two": _same(
        "grouped grouped", "int", "COUNT({0}, {1})", "COUNT(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE row({0}, {1}) END)"
    ),
    "sum_int": _same("int", "int", "SUM({0})"),
    "sum_tame": _same("tame", "real", "SUM({0})"),
    "sum_truth": _same("bool", "int", "SUM({0})", "SUM(({0})::BIGINT)"),
    # Columns that differ in a cast alone.
    "sum_beside_cast": _same("small", "int", "(SUM({0}) + SUM(CAST({0} AS SIGNED)))", "(SUM({0}) + SUM(({0})::BIGINT))"),
    "avg_small": _same("small", "real", "AVG({0})", exact=False),
    "avg_tame": _same("tame", "real", "AVG({0})", exact=False),
    "min_int": _same("int", "int", "MIN({0})"),
    "max_int": _same("int", "int", "MAX({0})"),
    "min_real": _same("real", "real", "MIN({0})"),
    "max_real": _same("real", "real", "MAX({0})"),
    "min_text": _same("text", "text", "MIN({0})"),
    "max_text": _same("text", "text", "MAX({0})"),
    "min_time": _same("time", "time", "MIN({0})"),
    "max_time": _same("time", "time", "MAX({0})"),
    "max_date": _same("date", "date", "MAX({0})"),
    "bit_or": _same("small", "int", "BIT_OR(ABS({0}))", "COALESCE(bit_or(abs({0})), 0)"),
    "bit_xor": _same("small", "int", "BIT_XOR(ABS({0}))", "COALESCE(bit_xor(abs({0})), 0)"),
    "variance": _same("tame", "real", "VAR_POP({0})", exact=False),
    "list": _same("text", "text", "GROUP_CONCAT({0} ORDER BY {0} SEPARATOR '|')", "string_agg({0}, '|' ORDER BY {0})"),
}
# Those that make no sense, or are not in the language, with DISTINCT.
NEVER_DISTINCT = {"count_all", "sum_beside_cast", "bit_or", "bit_xor", "variance", "list"}
ALWAYS_DISTINCT = {"count_two"}

# Windows: whether the function needs an order without ties to be determined.
WINDOWS: dict[str, tuple[Operator, bool]] = {
    "row_number": (_same("", "int", "ROW_NUMBER()"), True),
    "rank": (_same("", "int", "RANK()"), False),
    "dense_rank": (_same("", "int", "DENSE_RANK()"), False),
    "lag": (_same("int", "int", "LAG({0})"), True),
    "lead": (_same("int", "int", "LEAD({0})"), True),
    "first_value": (_same("int", "int", "FIRST_VALUE({0})"), True),
    "count_window": (_same("any", "int", "COUNT({0})"), False),
    "sum_window": (_same("small", "int", "SUM({0})"), False),
    "min_window": (_same("int", "int", "MIN({0})"), False),
    "max_window": (_same("real", "real", "MAX({0})"), False),
}


def is_exact(expr: Expr) -> bool:
    """Whether both engines compute the same bits. Inside of an expression all is exact."""
    if isinstance(expr, Aggregate):
        return AGGREGATES[expr.function].exact
    if isinstance(expr, Apply):
        return OPERATORS[expr.operator].exact
    return not (isinstance(expr, Column) and expr.name == "separation")
