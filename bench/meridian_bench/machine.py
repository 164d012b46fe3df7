"""The machine: what it is, what is free on it, and its page cache."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

READ_BYTES = 8 * 2**20


def memory_bytes() -> int:
    """All memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(directory: Path) -> int:
    """Free room on the disk of a directory."""
    return shutil.disk_usage(directory).free


def describe(directory: Path) -> dict[str, str]:
    """Processor, memory, disk, kernel and system, as sentences' parts."""
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":")[1].strip() for line in cpu.splitlines() if line.startswith("model name")), "?")
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
        "disk": _disk(directory),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "system": release.get("PRETTY_NAME", "?"),
        "Python": platform.python_version(),
    } | page_cache()


def page_cache(monitors: Path = Path("/sys/kernel/mm/damon/admin/kdamonds")) -> dict[str, str]:
    """Whether the kernel takes files out of the page cache that nobody has read for a while, though there is room (DAMON)."""
    for scheme in sorted(monitors.glob("*/contexts/*/schemes/*")):
        monitor, context = scheme.parents[3], scheme.parents[1]
        if _word(monitor / "state") == "on" and _word(scheme / "action") == "pageout":
            idle = int(_word(scheme / "access_pattern/age/min")) * int(_word(context / "monitoring_attrs/intervals/aggr_us"))
            return {"page cache": f"the kernel drops what was not read for {idle / 1e6:.0f} s, though there is room (DAMON)"}
    return {}


def _word(file: Path) -> str:
    return file.read_text().strip()


def _disk(directory: Path) -> str:
    done = subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE,FSTYPE", "-T", str(directory)], capture_output=True, text=True, check=False
    )
    source, _, kind = done.stdout.strip().partition(" ")
    usage = shutil.disk_usage(directory)
    rotating = Path(f"/sys/block/{Path(source).name.rstrip('0123456789')}/queue/rotational")
    spins = rotating.read_text().strip() if rotating.exists() else "?"
    word = {"0": "solid state or virtual", "1": "rotating or virtual"}.get(spins, "kind unknown")
    return f"{usage.total / 1e9:,.0f} GB, {usage.free / 1e9:,.0f} GB free, {kind.strip() or '?'} ({word})"


def read_files(directory: Path) -> None:
    """Reads every file below a directory, so that it is in the page cache as far as there is room."""
    for file in directory.rglob("*"):
        if file.is_file():
            with file.open("rb", buffering=0) as content:
                while content.read(READ_BYTES):
                    pass


def forget_files(directory: Path) -> None:
    """Takes the files below a directory out of the page cache; whoever has them open should have ended before."""
    os.sync()
    for file in directory.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
