"""What overloads a server: statements that take hours, statements that want all memory, and connections that begin something and do not go on.

The benchmark (`run.py`) and the test (`tests/test_overload.py`) use it on a table `sky.star` with `id` and `ra`.
"""

from __future__ import annotations

import gzip

# Each would take hours.
SCAN = "SELECT COUNT(*) FROM sky.star a, sky.star b, sky.star c WHERE SIN(a.id + b.id * c.id) > 2"
LARGE = "SELECT a.id, b.ra, c.id AS other FROM sky.star a, sky.star b, sky.star c"
BOMBS = [
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + " + ".join(["1"] * 50_000),
    "SELECT COUNT(*) FROM sky.star WHERE REPEAT('a', 100000) REGEXP '(a*)*b'",
    "SELECT LENGTH(REPEAT(REPEAT('x', 100000), 100000))",
    "SELECT GROUP_CONCAT(a.id, b.id) FROM sky.star a, sky.star b",
]


def beginnings(mysql: int, http: int) -> list[tuple[int, bytes]]:
    """Ports, and what is sent there: nothing at all, half a greeting, half a head, half a body."""
    body = b"POST /tap/sync HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nQ"
    return [(mysql, b""), (mysql, b"\x20\x00\x00"), (http, b"GET /tap"), (http, body)]


def packed_rows() -> bytes:
    """A table for an upload that is a thousand times as large as what is sent."""
    return gzip.compress(b"id\n" + b"1\n" * (50 << 20), compresslevel=1)
