"""Small text files that say how a whole data set is to be read: class names, label maps, YAML."""

from __future__ import annotations

import os
from pathlib import Path

from packer.errors import SourceError
from packer.sources.file_start import pointer_reason
from packer.sources.walk import readable_path


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Raises:
        SourceError: The file cannot be read or is not UTF-8.
    """
    place = readable_path(os.fsencode(path))
    try:
        data = path.read_bytes()
        if pointer_reason(data):
            raise SourceError(f"{place}: {pointer_reason(data)}.")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise SourceError(f"{place}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{place}: not UTF-8 ({error}). Save it as UTF-8.") from error
