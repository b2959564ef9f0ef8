#!/usr/bin/env python3
"""Installs Debian packages that tests and benchmarks need, where we are root.

    scripts/debian_packages.py fuse3

Services that come with them are not started. What this machine lacks is said in one line, with exit
status 3.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LACKING_STATUS = 3

_APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300", "-q")


def install(packages: list[str]) -> str | None:
    """Install packages; None once they are there, or why they cannot be.

    One process at a time installs; the others wait.
    """
    names = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"install {names}, or run this as root on Debian"
    # In a folder that only root may write, or another user could hold the lock for ever.
    with open("/run/lock/lmdb-packer-apt.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _no_services():
            for command in (("update",), ("install", "-y", "--no-install-recommends", *packages)):
                done = subprocess.run(
                    [*_APT, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=sys.stderr,
                    check=False,
                )
                if done.returncode:
                    return f"apt-get could not install {names}"
    return None


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Keep packages from starting services of their own while they are installed."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def main() -> None:
    """What the command line asks for."""
    problem = install(sys.argv[1:])
    if problem is not None:
        print(problem)
        sys.exit(LACKING_STATUS)


if __name__ == "__main__":
    main()
