"""The picture file of a row whose table holds only the path of its image."""

from __future__ import annotations

import os
from pathlib import Path

from packer.sources.hugging_face.account import Account
from packer.sources.pairing import normal_path, split_path
from packer.wording import readable_path


def file_beside(
    written: str | None, table_path: bytes, account: Account
) -> tuple[tuple[bytes, int, int] | None, str]:
    """(path, size, time) of the picture of a row that has only a path, or why there is none."""
    if not written:
        return None, "no image: neither bytes nor a path"
    path = written.encode("utf-8", "surrogateescape")
    folder = split_path(table_path)[0]
    beside = normal_path(folder + b"/" + path)
    below_root = normal_path(path)
    if b"\0" in path or path.startswith(b"/") or beside.startswith(b"../"):
        return (
            None,
            f"image {written!r:.200} leads out of the raw folder; expected one inside of it",
        )
    tries = [(beside, account.found.full_path(beside))]
    if account.options.root is not None and not below_root.startswith(b"../"):
        full = os.path.abspath(account.options.root / os.fsdecode(below_root))
        tries.append((os.fsencode(full), Path(full)))
    for candidate, full_path in tries:
        try:
            status = os.stat(full_path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return None, f"image {written!r:.200} cannot be read: {error.strerror}"
        account.used_pictures.add(candidate)
        return (candidate, status.st_size, status.st_mtime_ns), ""
    looked = " and ".join(readable_path(os.fsencode(full_path)) for _, full_path in tries)
    return None, f"no bytes of an image, and its file is not there; looked at {looked}"
