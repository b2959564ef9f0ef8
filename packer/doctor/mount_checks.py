"""Checks of the mount that a path lies on: its type and its options.

Sources: nfs(5), mount(8), proc(5), fuse's kernel documentation.
"""

from __future__ import annotations

from pathlib import Path

from packer.doctor.check import Check
from packer.wording import size_text
from readers.machine import Mount

_NFS_READ_BYTES_LEAST = 2**17
"""Below 128 KiB, an image of 224 x 224 takes more than one request."""

_LOCAL_COPY = (
    'if it is too slow, have it on a local disk: LMDBDataset(path, cache_dir="/local/disk"), or '
    "cp -r STORE /local/disk/"
)


def check_mount(path: Path, mount: Mount, *, is_store: bool) -> Check:
    """The type of the file system that a path lies on."""
    name, figure = "mount", f"{path} lies on {mount.type}, mounted at {mount.folder}"
    if mount.is_network:
        is_fuse = mount.type.startswith("fuse")
        what = "each read passes through a FUSE process" if is_fuse else "each read crosses the net"
        if is_store:
            why = (
                f"Until it is in the page cache, {what}; storage and epoch, below, say what that "
                "costs."
            )
            return Check(name, "warn", figure, why, _LOCAL_COPY)
        why = f"A folder of files costs several metadata calls a sample and epoch, and {what}."
        return Check(name, "warn", figure, why, f"packer build {path} OUT")
    if mount.type == "unknown":
        return Check(name, "skip", figure, "Mounts cannot be listed here (/proc/self/mountinfo).")
    why = "A local file system: files are read and mapped at its full speed."
    if mount.type in ("tmpfs", "ramfs"):
        why = "It lies in memory already: quick, but it counts as memory of the job, and is gone "
        why += "with the next boot."
    elif mount.type == "overlay":
        why = (
            "A container's own layer: local, but gone with the container. Mount a volume for data."
        )
    return Check(name, "pass", figure, why)


def check_mount_options(mount: Mount) -> Check:
    """Options that multiply calls or make files unreliable."""
    values = dict(option.partition("=")[::2] for option in mount.options)
    is_nfs = mount.type.startswith("nfs")
    told = [
        option
        for option in dict.fromkeys(mount.options)
        if option.partition("=")[0]
        in {
            *("ro", "rw", "sync", "noac", "actimeo", "acregmin", "acregmax", "acdirmin", "rsize"),
            *("nconnect", "vers", "soft", "softerr", "hard", "noatime", "relatime", "strictatime"),
            *("direct_io", "cache", "lookupcache"),
        }
    ]
    figure = ",".join(told) or "defaults"
    problems, remedies = [], []
    if "noac" in values or values.get("actimeo") == "0" or values.get("acregmax") == "0":
        which = "noac" if "noac" in values else "actimeo=0"
        problems.append(
            f"{which}: no attribute is remembered, so that every open asks the server for each "
            "folder on the path and for the file again"
        )
        remedies.append("remount with actimeo=60 (or more: data sets do not change)")
    if values.get("lookupcache") == "none":
        problems.append("lookupcache=none: no name is remembered, so that every open asks for all")
        remedies.append("remount with lookupcache=all")
    if "sync" in values:
        problems.append("sync: every write waits for the disk; builds become many times slower")
        remedies.append("remount with async, or packer build --scratch FOLDER on a local disk")
    read_bytes = values.get("rsize", "")
    if read_bytes.isdecimal() and int(read_bytes) < _NFS_READ_BYTES_LEAST:
        problems.append(
            f"rsize={read_bytes}: at most {size_text(int(read_bytes))} a request, so that an image "
            "takes several"
        )
        remedies.append("remount with rsize=1048576")
    if "strictatime" in values:
        problems.append("strictatime: every read writes the time of access")
        remedies.append("remount with noatime")
    if is_nfs and ("soft" in values or "softerr" in values):
        problems.append("soft: a server that is slow to answer ends training with an I/O error")
        remedies.append("remount with hard")
    if "direct_io" in values or values.get("cache") == "none":
        problems.append("nothing is kept in the page cache: every epoch reads all of it again")
        remedies.append("mount with caching, or copy the data to a local disk")
    if problems:
        why = "; ".join(problems) + "."
        return Check("mount_options", "warn", figure, why, "; ".join(remedies))
    why = "No option that multiplies calls or makes reads unreliable."
    if is_nfs and "nconnect" not in values:
        why += " With nconnect=8 several TCP connections carry the reads, if the server allows."
    return Check("mount_options", "pass", figure, why)
