"""Installs a contender's packages: Debian's by `scripts/setup`, Python's into an environment of the contender's own.

Each has its own environment, so that no peer decides which versions another one gets.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .contenders import CARDS

BENCH = Path(__file__).resolve().parent.parent


class NotInstalled(Exception):
    """A contender cannot be had here; the text says why."""


def install(name: str) -> str:
    """Installs what is missing; gives the Python interpreter that has the contender's packages."""
    card = CARDS[name]
    _run("scripts/setup", "bench", card.requirements, *card.debian)
    return str(BENCH / ".venv" / card.requirements / "bin" / "python")


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=BENCH.parent, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise NotInstalled(lines[-1] if lines else f"`{' '.join(command)}` failed")
