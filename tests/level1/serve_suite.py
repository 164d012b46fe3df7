"""Starts a Meridian server (and a PostgreSQL of its own, if that is the store), runs the suite on it, and stops both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent)]

from private_postgres import private_postgres  # noqa: E402

STOP_SECONDS = 60


@contextmanager
def server(program: str, data: Path) -> Iterator[str]:
    """A server of a data directory; gives its address for HTTP clients."""
    command = [program, "serve", "--data", str(data), "--mysql", "off", "--http", "127.0.0.1:0"]
    log = data / "server.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if match := re.search(r"HTTP clients connect to (http://[\d.]+:\d+)", line):
                yield match.group(1)
                break
        else:
            raise SystemExit(f"the server does not start:\n{log.read_text()}")
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(STOP_SECONDS)


def main() -> int:
    store, replica = sys.argv[1:]
    program = os.environ["MERIDIAN_BIN"]
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="level1_")))
        environment = dict(os.environ, LEVEL1_DATA=str(data), LEVEL1_REPLICA=replica)
        if store == "postgres":
            environment["LEVEL1_POSTGRES"] = stack.enter_context(private_postgres())
        # A data directory is there from the first database on.
        schema = HERE / "schema.yaml"
        first = [program, "alerts", "create", "first", "--data", str(data), "--schema", str(schema)]
        subprocess.run(first, check=True, stdout=subprocess.DEVNULL)
        environment["LEVEL1_URL"] = stack.enter_context(server(program, data))
        paths = [str(HERE), str(ROOT / "python" / "meridian_apdb"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(HERE), str(HERE / "suite.py")]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
