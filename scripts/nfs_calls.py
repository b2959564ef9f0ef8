"""Calls that came to a file server; those of NFS as the kernel counts them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Calls:
    """What came to a server.

    Attributes:
        reads: Requests for bytes.
        names: Opens, looks at names, listings.
        read_bytes: Bytes that were read.
    """

    reads: int
    names: int
    read_bytes: int

    def since(self, other: Calls) -> Calls:
        """What came since then."""
        return Calls(
            self.reads - other.reads, self.names - other.names, self.read_bytes - other.read_bytes
        )


def nfs_calls(folder: Path) -> Calls | None:
    """What the kernel has asked of the NFS server that a folder lies on; None for others."""
    mountpoint = folder
    while not os.path.ismount(mountpoint):
        mountpoint = mountpoint.parent
    text = Path("/proc/self/mountstats").read_text()
    found = re.search(
        rf"mounted on {re.escape(str(mountpoint))} with fstype nfs(.*?)(?=^device |\Z)",
        text,
        re.DOTALL | re.MULTILINE,
    )
    if found is None:
        return None
    # NAME: operations transmissions timeouts bytes-sent bytes-received ...
    counts = {
        name: (int(count), int(received))
        for name, count, received in re.findall(
            r"^\s*([A-Z_]+): (\d+) \d+ \d+ \d+ (\d+)", found[1], re.MULTILINE
        )
    }
    names = ("OPEN", "OPEN_NOATTR", "LOOKUP", "GETATTR", "ACCESS", "READDIR", "READDIRPLUS")
    reads = counts.get("READ", (0, 0))
    return Calls(reads[0], sum(counts.get(name, (0, 0))[0] for name in names), reads[1])
