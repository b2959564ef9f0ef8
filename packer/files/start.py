"""What a file really is, told from its first bytes, where its name promises something else.

Downloads leave empty files, pages that ask for a login, zeros, and pointers of Git LFS.
"""

from __future__ import annotations

import os

from readers.store.pictures.signatures import START_BYTES, is_lfs_pointer, stranger_kind


def pointer_reason(start: bytes) -> str:
    """That a file is a Git LFS pointer, and what to do; empty where it is none.

    Args:
        start: Its first bytes, `START_BYTES` or more where there are as many.
    """
    if not is_lfs_pointer(start):
        return ""
    return f"it looks like {stranger_kind(start)}"


def pointer_reason_of(path: str | bytes | os.PathLike[str]) -> str:
    """The same for a file by its path; empty where it cannot be read, which others will say."""
    try:
        with open(path, "rb") as file:
            return pointer_reason(file.read(START_BYTES))
    except OSError:
        return ""


def content_problem(start: bytes) -> str:
    """Why a file cannot hold annotations, whatever it is called; empty where it may.

    Args:
        start: Its first bytes, `START_BYTES` or more where there are as many.
    """
    if not start.removeprefix(b"\xef\xbb\xbf").strip():
        return "the file is empty"
    if not any(start):
        return f"the first {len(start)} bytes are all zero, an unfinished copy perhaps"
    kind = stranger_kind(start)
    return f"it looks like {kind}" if kind is not None else ""
