"""What aiomysql sees of a server, for test_more_clients.py: a line of JSON for each theme. The argument is JSON too."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import aiomysql
from aiomysql.cursors import Cursor, SSCursor
from pymysql.constants import CLIENT
from values import bind, write

TASK = json.loads(sys.argv[1])
ADDRESS = {"host": "127.0.0.1", "port": TASK["port"], "user": "tester", "password": "secret", "db": "sky", "charset": "utf8mb4"}


@asynccontextmanager
async def cursor(kind: type[Cursor] = Cursor, **options: object):
    connection = await aiomysql.connect(**{**ADDRESS, **options})
    try:
        async with connection.cursor(kind) as opened:
            yield opened
        await connection.ensure_closed()
    finally:
        connection.close()


async def rows(statement: str, *values: object, **options: object) -> list[list[str | None]]:
    async with cursor(**options) as opened:
        await opened.execute(statement, values or None)
        return [[write(value) for value in row] for row in await opened.fetchall()]


def bound(parameter: dict[str, str | None]) -> tuple[str, object]:
    """The mark of a parameter, and its value: aiomysql 0.3 does not bind bytes with PyMySQL 1.2, whichever the server."""
    return ("UNHEX(%s)", parameter["text"]) if parameter["kind"] == "bytes" else ("%s", bind(parameter))


async def parameters() -> object:
    marks, values = zip(*(bound(parameter) for parameter in TASK["parameters"]), strict=True)
    return await rows(f"SELECT {', '.join(marks)}", *values)


async def compared() -> object:
    found = {}
    for condition, parameter in TASK["compared"].items():
        mark, value = bound(parameter)
        found[condition] = await rows(f"SELECT id FROM Extremes WHERE {condition.replace('?', mark)} ORDER BY id", value)
    return found


async def mistakes() -> object:
    seen = []
    for statement in TASK["mistakes"]:
        try:
            await rows(statement)
        except aiomysql.Error as error:
            seen.append([error.args[0]])
    return seen


async def stream() -> object:
    count = total = length = 0
    async with cursor(SSCursor) as opened:
        await opened.execute(TASK["stream"])
        while row := await opened.fetchone():
            count, total, length = count + 1, total + row[0], length + len(row[1])
    return [count, total, length]


async def several() -> object:
    read = []
    async with cursor(client_flag=CLIENT.MULTI_STATEMENTS) as opened:
        await opened.execute("SELECT 1 AS a; SELECT 'b', 2.5e0; SELECT id FROM Extremes WHERE id < 3 ORDER BY id")
        while True:
            read.append([[write(value) for value in row] for row in await opened.fetchall()])
            if not await opened.nextset():
                return read


async def pool() -> object:
    async with aiomysql.create_pool(maxsize=8, **ADDRESS) as many:

        async def count(at: int) -> int:
            async with many.acquire() as connection, connection.cursor() as opened:
                await opened.execute("SELECT %s + COUNT(*) FROM Extremes", (at,))
                return (await opened.fetchone())[0]

        return await asyncio.gather(*(count(at) for at in range(64)))


async def tls() -> object:
    context = ssl.create_default_context(cafile=TASK["ca"])
    return (await rows("SHOW STATUS LIKE 'Ssl_version'", ssl=context))[0][1]


async def tell(theme: str, look: Callable[[], Awaitable[object]]) -> None:
    try:
        line = {"theme": theme, "saw": await look()}
    except Exception as error:  # noqa: BLE001
        line = {"theme": theme, "failed": repr(error)}
    print(json.dumps(line))


async def main() -> None:
    await tell("values", lambda: rows(TASK["values"]))
    await tell("literals", lambda: rows(TASK["literals"]))
    for look in (parameters, compared, mistakes, stream, several, pool, tls):
        await tell(look.__name__, look)


asyncio.run(main())
