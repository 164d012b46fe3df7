"""The program at another time of day: a library in front of the system's clock moves the time that it sees."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from meridian_cli import Meridian

LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int outcome = real(clock, now);
    const char *shift = getenv("MERIDIAN_CLOCK_SHIFT");
    if (outcome == 0 && clock == CLOCK_REALTIME && shift) now->tv_sec += atol(shift);
    return outcome;
}
"""


def library(directory: Path) -> Path:
    """Compiles the library; where there is no compiler, the test is skipped."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler for C, by which the clock is moved")
    source, made = directory / "clock.c", directory / "clock.so"
    source.write_text(LIBRARY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


class AtATime(Meridian):
    """The program, to whom it is another time when it starts."""

    def __init__(self, meridian: Meridian, library: Path, now: datetime) -> None:
        super().__init__(meridian.binary)
        self.library, self.now = library, now

    def start(self, *arguments: object, env: dict[str, str] | None = None, **options: object) -> subprocess.Popen[bytes]:
        """Starts a call and does not wait for it."""
        shift = round((self.now - datetime.now(UTC)).total_seconds())
        moved = {"LD_PRELOAD": str(self.library), "MERIDIAN_CLOCK_SHIFT": str(shift)}
        return super().start(*arguments, env={**moved, **(env or {})}, **options)
