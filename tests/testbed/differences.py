"""Where Meridian is known and wanted to differ from MariaDB: in types of columns, never in rows.

Each is a pair of kinds, Meridian's and MariaDB's, with the reason. docs/sql.md lists them.
"""

from __future__ import annotations

KNOWN_TYPES = {
    ("double", "decimal"): (
        "numbers with a point, quotients and averages are doubles: the digits that a DECIMAL quotient keeps by default, four "
        "more than its dividend has, are too few for astronomy"
    ),
    ("float", "double"): (
        "EXCEPT and INTERSECT have the types of their left side, whose rows they give; a FLOAT beside an integer stays one"
    ),
    ("decimal", "double"): "the same for a DECIMAL on their left side",
}
