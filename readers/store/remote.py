"""The files of a store in a bucket or on a web server, by fsspec.

fsspec is imported when the first such store is opened, and not before.

NOTE [ a file system in each process ]: the file systems of fsspec answer in a thread of their own,
which a forked child does not have, over connections that it shares with its parent. So a child
makes its own. It must not let go of its parent's either: to close a connection there would take it
out of the parent's epoll(7), which both have, and the parent would wait for ever.
"""

from __future__ import annotations

import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from readers.store.errors import RemoteError
from readers.store.place import Url
from readers.store.read_policy import ReadPolicy, tried
from readers.store.remote_errors import ChangedError, RemoteFaultError, asked

_OPENING = ReadPolicy(retry_count=3)
"""How often a file is looked for: after 2 s the user is told. A wrong name of a server is as likely
as one that is away."""

_CONNECT_S = 10.0
_SILENCE_S = 30.0
"""A connection on which nothing comes for so long is given up."""

_CONNECTION_COUNT = 64
"""More than there are threads that read; botocore's own limit is 10."""

_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "content_md5")
_TIMES = ("Last-Modified", "LastModified", "last_modified", "mtime", "created")

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file as it was found.

    Attributes:
        name: In the store.
        size: Its bytes.
        version: What changes with it, as far as the server says: its ETag, or time of change.
    """

    name: str
    size: int
    version: str


class RemoteFiles:
    """The files of one store. Any thread may ask; a forked child asks by a connection of its own.

    Args:
        url: The store.
        writes: Whether files are to be uploaded. Then it is tried for longer, since hours of work
            wait; and by the libraries as well: of a file a part, where we would upload all of it.
    """

    def __init__(self, url: Url, *, writes: bool = False) -> None:
        self.url = url
        self._policy = ReadPolicy() if writes else _OPENING
        self._writes = writes
        self._system: Any = None
        self._root = ""
        self._closing: Any = None
        with _lock:
            _all.add(self)

    @property
    def is_web(self) -> bool:
        """Whether it is a plain web server: it lists no files, and takes none."""
        return "http" in _protocols(self._connected())

    def _connected(self) -> Any:
        """The file system, in this process."""
        with _lock:
            if self._system is None:
                self._system, self._root = _connect(self.url, tries_again=self._writes)
                self._closing = weakref.finalize(self, _disconnect, self._system)
            return self._system

    def _path(self, name: str) -> str:
        """A file's path as the file system has it."""
        system = self._connected()
        return (self.url / name).text if "http" in _protocols(system) else f"{self._root}/{name}"

    def read(self, name: str, byte_count_max: int) -> bytes:
        """The first bytes of a file, or all of them.

        Raises:
            RemoteError: It is not there, or cannot be read.
        """
        if not byte_count_max:
            return b""
        path = self._path(name)
        system = self._connected()

        def first() -> bytes:
            try:
                return asked(lambda: bytes(system.cat_file(path, start=0, end=byte_count_max)))
            except RemoteFaultError as fault:
                if fault.failure.status == 416:  # A file without bytes has no first ones.
                    return b""
                raise

        return self._tried(name, first)

    def find(self, name: str, *, is_fresh: bool = False) -> RemoteFile:
        """What the server says of a file, or has said in a list. Raises as `read` does.

        Args:
            name: Of the file.
            is_fresh: What it has said before does not count.
        """
        path = self._path(name)
        if is_fresh:
            self._connected().invalidate_cache()
        info = self._tried(name, lambda: self._connected().info(path))
        return self._found(name, info)

    def _found(self, name: str, info: Mapping[str, Any]) -> RemoteFile:
        size = info.get("size")
        if size is None:
            raise RemoteError(
                f"{self.url / name}: the server does not say its size. Shards are read by ranges "
                "of bytes: serve them as plain files, uncompressed."
            )
        if info.get("partial") is False:
            raise RemoteError(f"{self.url / name}: {_NO_RANGES}")
        versions = (str(info[key]) for key in (*_VERSIONS, *_TIMES) if info.get(key))
        return RemoteFile(name=name, size=int(size), version=_comparable(next(versions, "")))

    def listing(self) -> dict[str, RemoteFile] | None:
        """All files of the store by name, or None where the server does not list them."""
        if self.is_web:
            return None
        system = self._connected()
        try:
            infos = self._tried("", lambda: system.ls(self._root, detail=True, refresh=True))
        except RemoteError as error:
            return {} if error.is_missing else None
        files = (info for info in infos if info["type"] == "file")
        return {
            name: self._found(name, info)
            for info in files
            for name in [str(info["name"]).rsplit("/", 1)[-1]]
        }

    def read_range(self, file: RemoteFile, start: int, end: int) -> bytes:
        """Bytes of a file that is as it was found; fewer where the answer ended early.

        Raises:
            RemoteFaultError: It cannot be read, or is another by now.
        """
        return asked(lambda: self._range(file, start, end))

    def _range(self, file: RemoteFile, start: int, end: int) -> bytes:
        system = self._connected()
        path = self._path(file.name)
        for protocol, ask in (("http", _http_range), ("s3", _s3_range)):
            if protocol in _protocols(system):
                from fsspec.asyn import sync

                answer: bytes = sync(system.loop, ask, system, path, file, start, end)
                return answer
        return bytes(system.cat_file(path, start=start, end=end))

    def checks_answers(self) -> bool:
        """Whether each answer is seen to be of the file that was found."""
        return bool({"http", "s3"} & set(_protocols(self._connected())))

    def put(self, source: Path, name: str) -> RemoteFile:
        """Upload a file, in parts when it is large. Raises as `read` does."""
        path = self._path(name)
        self._tried(name, lambda: self._connected().put_file(os.fspath(source), path))
        return self.find(name, is_fresh=True)

    def put_bytes(self, data: bytes, name: str) -> None:
        """Upload a small file. Raises as `read` does."""
        path = self._path(name)
        self._tried(name, lambda: self._connected().pipe_file(path, data))

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is none. Raises as `read` does."""
        path = self._path(name)
        try:
            self._tried(name, lambda: self._connected().rm_file(path))
        except RemoteError as error:
            if not error.is_missing:
                raise

    def _tried(self, name: str, call: Callable[[], _Result]) -> _Result:
        """What a call gives, tried again while it may pass."""
        try:
            return tried(lambda: asked(call), self._policy)
        except RemoteFaultError as fault:
            failure = fault.failure
            place = self.url / name if name else self.url
            error = RemoteError(f"{place}: {failure.text}. {failure.remedy}")
            error.is_missing = failure.kind == "missing"
            raise error from fault


class OtherBytesError(Exception):
    """An answer has other bytes than those that were asked for."""

    def __init__(self, found: str, asked: str) -> None:
        super().__init__(
            f"the server answered {found}, {asked}; see whether a proxy on the way changes answers"
        )


class NoRangesError(Exception):
    """A server answers with the whole file."""

    def __init__(self) -> None:
        super().__init__(_NO_RANGES)


_NO_RANGES = (
    "the server does not answer requests for ranges of bytes, by which shards are read. Serve the "
    "store with one that does (nginx, Apache, Caddy, any bucket), or copy it here."
)


async def _http_range(system: Any, url: str, file: RemoteFile, start: int, end: int) -> bytes:
    """Bytes of a file on a web server."""
    session = await system.set_session()
    settings = dict(system.kwargs)
    # Ranges are of the file, not of what a server might make of it on the way.
    headers = {
        **settings.pop("headers", {}),
        "Range": f"bytes={start}-{end - 1}",
        "Accept-Encoding": "identity",
    }
    async with session.get(system.encode_url(url), headers=headers, **settings) as answer:
        answer.raise_for_status()
        if answer.status != 206:
            raise NoRangesError
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise OtherBytesError(f"in {encoding}", "though it was asked for the bytes as they are")
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        _check_same(file, answer.headers.get("Content-Range", ""), version, start, end)
        data: bytes = await answer.read()
        return data


async def _s3_range(system: Any, path: str, file: RemoteFile, start: int, end: int) -> bytes:
    """Bytes of an object of S3. What its library offers for that does not tell what came."""
    bucket, key, _ = system.split_path(path)
    answer = await system._call_s3(
        "get_object", Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}"
    )
    try:
        said, version = answer.get("ContentRange", ""), answer.get("ETag", "")
        _check_same(file, said, version, start, end)
        data: bytes = await answer["Body"].read()
        return data
    finally:
        answer["Body"].close()


def _check_same(file: RemoteFile, content_range: str, version: str, start: int, end: int) -> None:
    """Hold an answer against the file that was found and the bytes that were asked for.

    Raises:
        ChangedError: It is of another file.
        OtherBytesError: It has other bytes.
    """
    total = content_range.rpartition("/")[2]
    if total.isdecimal() and int(total) != file.size:
        raise ChangedError(f"{file.size} bytes", f"{total} bytes")
    if version and file.version and _comparable(version) != file.version:
        raise ChangedError(file.version, version)
    span = re.match(r"bytes (\d+)-(\d+)/", content_range)
    last = min(end, file.size) - 1
    if span is not None and (int(span[1]), int(span[2])) != (start, last):
        raise OtherBytesError(
            f"with bytes {span[1]}-{span[2]}", f"and bytes {start}-{last} were asked for"
        )


def _comparable(version: str) -> str:
    """An ETag without its quotes; a weak one is as good, for whoever changes a file."""
    return version.removeprefix("W/").strip('"')


def _connect(url: Url, *, tries_again: bool) -> tuple[Any, str]:
    """The file system of a URL, and its path there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise RemoteError(f"{url}: {_needs('fsspec')}") from error
    try:
        options = _with_defaults(url, tries_again=tries_again)
        # Not fsspec's own instances, which others in this process change and clear.
        system, path = url_to_fs(url.text, skip_instance_cache=True, **options)
    except ImportError as error:
        raise RemoteError(f"{url}: {_needs(str(error))}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise RemoteError(
            f"{url}: {error}. Expected a URL that fsspec knows, such as s3://bucket/out.lmdb, and "
            "the storage_options of its file system."
        ) from error
    if "s3" in _protocols(system) and not tries_again:
        system.retries = 1  # Who asks tries again.
    return system, str(path).rstrip("/")


def _needs(what: str) -> str:
    return (
        f"stores at URLs need more packages ({what}). Install them: "
        'pip install "lmdb-packer[remote]"; for gs:// gcsfs and for az:// adlfs as well.'
    )


def _with_defaults(url: Url, *, tries_again: bool) -> dict[str, Any]:
    """The user's options, with time limits and counts of ours where he says nothing."""
    options = dict(url.options)
    if url.text.startswith(("s3://", "s3a://")):
        # Tried again by one policy: botocore's own would multiply it.
        defaults = {
            "connect_timeout": _CONNECT_S,
            "read_timeout": _SILENCE_S,
            "max_pool_connections": _CONNECTION_COUNT,
            "retries": {"total_max_attempts": 5 if tries_again else 1},
        }
        options["config_kwargs"] = {**defaults, **options.get("config_kwargs", {})}
    elif url.text.startswith(("http://", "https://")):
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
        options["client_kwargs"] = {"timeout": timeout, **options.get("client_kwargs", {})}
    return options


def _protocols(system: Any) -> tuple[str, ...]:
    found = system.protocol
    return (found,) if isinstance(found, str) else tuple(found)


def files_of(url: Url, *, writes: bool = False) -> RemoteFiles:
    """The files of a store: by the connections that this process has to it, or by new ones.

    Args:
        url: The store.
        writes: See `RemoteFiles`.
    """
    key = (url.text, json.dumps(dict(url.options), sort_keys=True, default=repr), writes)
    found = _known.get(key)
    if found is None:
        found = _known[key] = RemoteFiles(url, writes=writes)
    return found


def _disconnect(system: Any) -> None:
    """Close the connections now; fsspec would do it when garbage is collected, in any process."""
    for closing in _closings(system):
        closing()


def _closings(system: Any) -> list[weakref.finalize[..., Any]]:
    """What fsspec has put by for the end of a file system."""
    found = (getattr(one, "__callback__", None) for one in weakref.getweakrefs(system))
    return [one for one in found if isinstance(one, weakref.finalize)]


def _forget() -> None:
    """NOTE [ a file system in each process ]: in a forked child."""
    global _lock
    _lock = threading.Lock()
    for files in list(_all):
        if files._system is not None:
            for closing in (files._closing, *_closings(files._system)):
                closing.detach()
            _of_parent.append(files._system)
            files._system = None


_Key = tuple[str, str, bool]

_known: weakref.WeakValueDictionary[_Key, RemoteFiles] = weakref.WeakValueDictionary()
_all: weakref.WeakSet[RemoteFiles] = weakref.WeakSet()
_of_parent: list[Any] = []
_lock = threading.Lock()
os.register_at_fork(after_in_child=_forget)
