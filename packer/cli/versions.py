"""What `packer --version` says: the first things that are asked about when something goes wrong."""

from __future__ import annotations

import importlib.metadata
import platform

from readers.store.layout import FORMAT_MAJOR, FORMAT_MINOR

_PARTS = ("torch", "numpy", "lmdb", "opencv-python-headless", "pillow", "msgspec", "click")
_EXTRAS = ("pyarrow", "fsspec", "s3fs", "distributed", "pillow-heif", "imagecodecs")
"""What some raw data, places and engines need."""


def version_lines() -> list[str]:
    """The version of the project, then those of the format, Python and libraries.

    They are read from what is installed, so nothing of it is loaded.
    """
    parts, _ = _told(_PARTS)
    extras, lacking = _told(_EXTRAS)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    lines = [
        f"packer, version {importlib.metadata.version('lmdb-packer')}",
        f"format of stores {FORMAT_MAJOR}.{FORMAT_MINOR}; {python}; {platform.platform()}",
        ", ".join(parts),
    ]
    if extras:
        lines.append(f"optional: {', '.join(extras)}")
    if lacking:
        lines.append(f"optional, not installed: {', '.join(lacking)}")
    return lines


def _told(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """(names with their versions, names of what is not installed)."""
    there, lacking = [], []
    for name in names:
        try:
            there.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lacking.append(name)
    return there, lacking
