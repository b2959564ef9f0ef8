"""The raw picture of a sample, as it is now, for the place beside the stored one.

Most keys are paths below the raw folder: those files are read as they are. Where a key is none (a
picture of an archive, of a list), the raw data is scanned as the build did it, once.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.errors import SourceError
from packer.files.sizes import picture_bytes_max, size_problem
from packer.items.raw_item import RawItem, Scan
from packer.raw.containers import Containers
from packer.raw.files import RawFileError
from packer.raw.read_ahead import image_file, read_files
from packer.sources import scan_source
from packer.stores.against import options_of
from packer.stores.keys import key_bytes
from packer.view.pictures import picture_uri
from packer.wording import size_text
from readers.store.errors import ImageError, StoreError
from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import ImageHeader, read_header
from readers.store.reader import StoreReader

_PIXELS_MAX = 2**28


class RawPictures:
    """Pictures of the raw data that a store was built from.

    Args:
        store: The store.
        raw: The raw data, where it is now.
        root: Folder that the paths of a list are relative to.

    Raises:
        SourceError: There is nothing at the path.
    """

    def __init__(self, store: StoreReader, raw: Path, root: Path | None) -> None:
        if not raw.exists():
            raise SourceError(f"{raw}: nothing there; expected the raw data of {store.path}.")
        self._store = store
        self._raw = raw
        self._root = root
        self._scan: Scan | None = None
        self._places: dict[bytes, int] = {}
        self._problem = ""
        self._lock = threading.Lock()

    def beside(self, key: str, bytes_max: int) -> dict[str, Any]:
        """The picture of a key as the page shows it, or why there is none, as `error`."""
        try:
            found = self._found(key_bytes(key))
            notes = []
            if isinstance(found, bytes):
                header = read_header(found, pixels_max=_PIXELS_MAX)
                notes.append(f"{header.format}, {size_text(len(found))}")
                pixels = _decoded(found, header)
            else:
                pixels = found
            uri, said = picture_uri(pixels, bytes_max)
        except (RawFileError, SourceError, StoreError) as error:
            return {"error": str(error)}
        height, width = pixels.shape[:2]
        note = "; ".join([*notes, said] if said else notes)
        is_clear = pixels.shape[2] in (2, 4)
        return {"pic": uri, "clear": is_clear, "w": width, "h": height, "note": note}

    def _found(self, key: bytes) -> bytes | NDArray[np.uint8]:
        """The bytes of a picture's file, or its pixels where it has none."""
        data = self._file(key)
        if data is not None:
            return data
        if self._problem:
            raise SourceError(self._problem)
        try:
            item = self._item(key)
        except (SourceError, StoreError) as error:
            self._problem = str(error)
            raise
        if item is None or self._scan is None:
            raise SourceError(f"there is no such picture in {self._raw} now")
        root = os.fsencode(os.path.abspath(self._scan.root))
        if item.member is None:
            data_or_error = read_files(root, item)[image_file(item)]
            if isinstance(data_or_error, RawFileError):
                raise data_or_error
            return data_or_error
        containers = Containers(root)
        try:
            return containers.read(item)
        finally:
            containers.close()

    def _file(self, key: bytes) -> bytes | None:
        """What the file holds whose path below the raw folder the key is; None where there is none.

        A key may be a stranger's: it leads nowhere outside of the raw folder, but by links that are
        in there, which a build follows as well.
        """
        parts = key.split(b"/")
        if not self._raw.is_dir() or not key or b"\0" in key or {b"", b".", b".."} & {*parts}:
            return None
        path = os.path.join(os.fsencode(self._raw), key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with open(descriptor, "rb") as stream:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            problem = size_problem(found.st_size, picture_bytes_max())
            if problem is not None:
                raise ImageError(problem)
            return stream.read()

    def _item(self, key: bytes) -> RawItem | None:
        """The raw item of a key. The first call takes as long as a build takes to find them all."""
        with self._lock:
            self._find_items()
        at = self._places.get(key)
        return None if at is None or self._scan is None else self._scan.items[at]

    def _find_items(self) -> None:
        if self._scan is None:
            options = options_of(self._store, self._root)
            self._scan = scan = scan_source(self._raw, options)
            # Numbers alone: items are made when they are asked for, and there may be millions.
            self._places = {item.key: at for at, item in enumerate(scan.items)}


def _decoded(data: bytes, header: ImageHeader) -> NDArray[Any]:
    """Pixels as the file has them; where those are not read, as a build in colour has them."""
    try:
        return decode_image(data, "unchanged", header)
    except ImageError:
        return decode_image(data, "rgb", header)
