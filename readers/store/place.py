"""Where a store lies: in a folder of a file system, or at a URL of a bucket or web server.

Whatever takes a store's path takes a `Place`: a `Path`, or a `Url`, which like a path has files
below it, a name, and a text for messages. (A `Path` cannot hold a URL: it drops a slash of it.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:://|::)")
_LOCAL = re.compile(r"(?:file|local)://", re.IGNORECASE)
_LOST_SLASH = re.compile(r"(?:s3a?|gs|gcs|https?|abfss?|az|oci|hf|r2):/[^/]")
_WEB = ("http://", "https://")
_SECRETS = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True)
class Url:
    """A store, or a file of one, in a bucket or on a web server.

    Attributes:
        text: The URL. It may hold secrets: a query that signs it, a password.
        options: Settings of its file system, as fsspec's `storage_options`: keys, an endpoint.
    """

    text: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        base, mark, query = self._parts()
        object.__setattr__(self, "text", base.rstrip("/") + mark + query)

    def _parts(self) -> tuple[str, str, str]:
        """The URL, a question mark and what is behind it; elsewhere the mark is part of a name."""
        if self.text.lower().startswith(_WEB):
            return self.text.partition("?")
        return self.text, "", ""

    def __truediv__(self, name: str) -> Url:
        """A file below it. What signs a URL of the web is taken along."""
        base, mark, query = self._parts()
        return Url(f"{base}/{name}{mark}{query}", self.options)

    @property
    def name(self) -> str:
        """The last part."""
        return self._parts()[0].rsplit("/", 1)[-1]

    def __str__(self) -> str:
        """The URL as it may be shown: without what signs it."""
        return _SECRETS.sub("", self._parts()[0])

    __repr__ = __str__


Place: TypeAlias = Path | Url


def is_url(text: str) -> bool:
    """Whether a text is a URL of something that is not in a folder of this machine."""
    return bool(_URL.match(text)) and not _LOCAL.match(text)


def place_of(path: str | Path | Url, storage_options: Mapping[str, Any] | None = None) -> Place:
    """The place that a user's path means.

    Args:
        path: A folder, or a URL such as "s3://bucket/out.lmdb".
        storage_options: See `Url.options`; None leaves those that a `Url` has.

    Raises:
        ValueError: Options for what is not a URL, or a URL that went through a `Path`.
    """
    if isinstance(path, str) and _LOCAL.match(path):
        path = Path(_LOCAL.sub("", path))
    if isinstance(path, str) and is_url(path):
        path = Url(path)
    if isinstance(path, Url):
        return path if storage_options is None else Url(path.text, storage_options)
    if storage_options is not None:
        raise ValueError(f"storage_options are for URLs such as s3://bucket/out.lmdb; got {path!s}")
    if _LOST_SLASH.match(str(path)):
        raise ValueError(f"{path!s}: a Path drops a slash of a URL; give the URL as text")
    return Path(path)
