"""Hosts of tests on this machine: network namespaces at one bridge, whose links can be cut. Only root can make them.

A link that is down loses every packet and tells nobody, as a cable that is pulled out does: neither side sees its connections end.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from meridian_cli import Meridian

# Of the addresses for benchmarks of networks (RFC 2544), which nothing else has.
NETWORK = "198.18"


def ip(*words: object) -> None:
    """The command `ip`."""
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


@dataclasses.dataclass(frozen=True)
class Host:
    """A host."""

    name: str
    address: str
    # The bridge's end of its link.
    link: str

    def cut(self) -> None:
        """Loses all packets from now on, both ways."""
        ip("link", "set", self.link, "down")

    def mend(self) -> None:
        """Loses none any more."""
        ip("link", "set", self.link, "up")

    def program(self, meridian: Meridian, directory: Path) -> Meridian:
        """The program as it runs on this host, with the files of this machine."""
        script = directory / self.name
        script.write_text(f'#!/bin/sh\nexec ip netns exec {self.name} {meridian.binary} "$@"\n')
        script.chmod(0o755)
        return Meridian(script)


@dataclasses.dataclass(frozen=True)
class Network:
    """This machine and the hosts."""

    # This machine's among the hosts.
    address: str
    hosts: list[Host]


@contextmanager
def network(count: int) -> Iterator[Network]:
    """So many hosts, which are gone at the end. Skips the test where they cannot be made."""
    # Tests of other processes have networks of their own.
    own = os.getpid() % 65_000
    bridge, subnet = f"mb{own}", f"{NETWORK}.{own % 250}"
    hosts = [Host(f"mh{own}n{number}", f"{subnet}.{number + 2}", f"mv{own}n{number}") for number in range(count)]
    try:
        try:
            ip("link", "add", bridge, "type", "bridge")
            ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
            ip("link", "set", bridge, "up")
            for host in hosts:
                ip("netns", "add", host.name)
                ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
                ip("link", "set", host.link, "master", bridge, "up")
                for words in (["addr", "add", f"{host.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):
                    ip("-n", host.name, *words)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"hosts of their own cannot be made here, as root can with `ip`: {getattr(error, 'stderr', None) or error}")
        yield Network(f"{subnet}.1", hosts)
    finally:
        for words in [*(["netns", "del", host.name] for host in hosts), ["link", "del", bridge]]:
            with suppress(OSError, subprocess.CalledProcessError):
                ip(*words)
