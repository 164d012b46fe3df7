"""A program at a pseudo-terminal: what it shows is waited for, and keys are pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

# A debug build on a busy machine opens a data directory in seconds; a test that fails waits so long.
LONGEST_WAIT = 60.0
CTRL_C = "\x03"
CTRL_D = "\x04"
TAB = "\t"
UP = "\x1b[A"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r|\x07")


class Terminal:
    """A program whose input and output are a terminal of so many rows and columns."""

    def __init__(self, command: list[str], env: dict[str, str], rows: int = 24, columns: int = 100) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("PAGER", "COLUMNS")}
        environment.update({"TERM": "xterm"}, **env)
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown = ""
        # How much of what was shown has been waited for.
        self.seen = 0

    def press(self, keys: str) -> None:
        """Presses keys."""
        os.write(self.master, keys.encode())

    def enter(self, line: str) -> None:
        """Types a line."""
        self.press(line + "\r")

    def wait_for(self, text: str, seconds: float = LONGEST_WAIT) -> str:
        """Waits until a text is shown behind what was waited for before; gives all that came up to it."""
        deadline = time.monotonic() + seconds
        while (at := self.shown.find(text, self.seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was not shown, but:\n{self.shown[self.seen :]}"
            if not self._read(0.1) and self.process.poll() is not None and not self._read(0.1):
                raise AssertionError(f"it ended before it showed {text!r}:\n{self.shown}")
        before = self.shown[self.seen : at + len(text)]
        self.seen = at + len(text)
        return before

    def wait_for_end(self) -> int:
        """Waits until the program has ended; gives its exit status."""
        deadline = time.monotonic() + LONGEST_WAIT
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end:\n{self.shown}"
            self._read(0.1)
        while self._read(0.0):
            pass
        return self.process.returncode

    def close(self) -> None:
        """Ends the program, if a test has not."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            content = os.read(self.master, 65536)
        except OSError:
            # All that had it open are gone.
            return False
        self.shown += ESCAPES.sub("", content.decode("utf-8", "replace"))
        return bool(content)


def prompt(binary: Path, data: Path, home: Path, *options: object, **env: str) -> Terminal:
    """`meridian sql` at a terminal, with a home directory of its own."""
    command = [str(binary), "sql", "--data", str(data), *map(str, options)]
    return Terminal(command, {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), **env})
