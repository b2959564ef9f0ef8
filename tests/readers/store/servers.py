"""A web server and an S3 server on this machine, which fail when a test says so."""

from __future__ import annotations

import gzip
import http.server
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

KEYS = {"key": "a-key", "secret": "a-secret"}
"""What the S3 server takes; it takes any."""


class Request(NamedTuple):
    """What a client asks for. `range` is empty when it asks for a whole file."""

    method: str
    path: str
    range: str


@dataclass
class Faults:
    """What goes wrong at a server, and what it was asked.

    Attributes:
        answer: Called with each request: a status to answer with, "cut" for half of an answer,
            "slow" and "late" for one that takes its time, "drop" for none, None for the right one.
            Of the web server also "shifted" for bytes beside those that were asked for, "packed"
            for gzip that nobody wants, "moved" for another place where the file is.
        requests: All of them so far.
    """

    answer: Callable[[Request], int | str | None] = lambda request: None
    requests: list[Request] = field(default_factory=list)

    def of(self, request: Request) -> int | str | None:
        """What is to go wrong now."""
        self.requests.append(request)
        fault = self.answer(request)
        if fault == "late":
            time.sleep(1)
        if fault == "slow":
            time.sleep(0.05)
        return fault

    def gets(self, name: str) -> list[Request]:
        """Requests for a file's bytes."""
        return [one for one in self.requests if one.method == "GET" and one.path.endswith(name)]


@dataclass
class Served:
    """A server that runs.

    Attributes:
        url: Where its stores lie.
        options: The `storage_options` for it.
        faults: As it has them.
        put: Puts a file there: put(name, content).
    """

    url: str
    options: dict[str, Any]
    faults: Faults
    put: Callable[[str, bytes], None]

    def put_store(self, folder: Path, name: str = "store.lmdb") -> str:
        """Copy a store there. Its URL is returned."""
        for path in sorted(folder.iterdir()):
            self.put(f"{name}/{path.name}", path.read_bytes())
        return f"{self.url}/{name}"


@contextmanager
def _running(server: Any) -> Iterator[int]:
    """Its port."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


# --- a web server ---------------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _WebServer

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        path = self.path.partition("?")[0]
        asked = self.headers.get("Range", "") if self.server.has_ranges else ""
        fault = self.server.faults.of(Request(self.command, path, asked))
        if fault == "drop":
            self.close_connection = True
            return
        if fault == "moved":
            self.send_response(302)
            self.send_header("Location", f"/moved{path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        file = self.server.folder / path.removeprefix("/moved").lstrip("/")
        if isinstance(fault, int) or not file.is_file():
            self.send_response(fault if isinstance(fault, int) else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body, found = file.read_bytes(), file.stat()
        total = len(body)
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
        self.send_response(206 if span else 200)
        if span:
            first, last = int(span[1]), min(int(span[2]), total - 1)
            if fault == "shifted":
                first, last = first + 1, last + 1
            body = body[first : last + 1]
            self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        if fault == "packed":
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("ETag", f'"{found.st_size:x}-{found.st_mtime_ns:x}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if has_body:
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
            self.close_connection = fault == "cut"

    def log_message(self, *_: object) -> None:
        """Nothing: faults are meant."""


class _WebServer(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, folder: Path, faults: Faults, *, has_ranges: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.faults, self.has_ranges = folder, faults, has_ranges


@contextmanager
def web_server(folder: Path, *, has_ranges: bool = True) -> Iterator[Served]:
    """A plain web server of the files of a folder."""
    pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra remote")
    faults = Faults()

    def put(name: str, content: bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    with _running(_WebServer(folder, faults, has_ranges=has_ranges)) as port:
        yield Served(f"http://127.0.0.1:{port}", {}, faults, put)


# --- an S3 server ---------------------------------------------------------------------------------

_CODES = {403: "AccessDenied", 400: "ExpiredToken", 503: "SlowDown", 500: "InternalError"}


class _Failing:
    """A WSGI application before another: some answers are wrong."""

    def __init__(self, application: Any, faults: Faults) -> None:
        self._application = application
        self._faults = faults

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        fault = self._faults.of(Request(method, path, environ.get("HTTP_RANGE", "")))
        if isinstance(fault, int):
            # What was sent with it is taken, or the connection is of no use any more.
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            code = _CODES.get(fault, "Error")
            body = f"<Error><Code>{code}</Code><Message>So it is.</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response(f"{fault} {code}", headers)
            return [] if method == "HEAD" else [body]
        parts = self._application(environ, start_response)
        if fault == "cut":
            whole = b"".join(parts)
            return [whole[: len(whole) // 2]]
        if fault == "drop":
            raise ConnectionError("dropped")
        return parts  # type: ignore[no-any-return]


@contextmanager
def s3_server() -> Iterator[Served]:
    """An S3 server, moto's, with one bucket."""
    pytest.importorskip("s3fs", reason="needs s3fs, of the extra remote")
    moto = pytest.importorskip("moto.server", reason="needs moto, an S3 server for tests")
    import boto3
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def connection_dropped(self, *_: object) -> None:
            self.close_connection = True

        def log(self, *_: object) -> None:
            """Nothing: faults are meant."""

    faults = Faults()
    application = _Failing(moto.DomainDispatcherApplication(moto.create_backend_app), faults)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
    with _running(server) as port:
        address = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id=KEYS["key"],
            aws_secret_access_key=KEYS["secret"],
        )
        client.create_bucket(Bucket="bucket")

        def put(name: str, content: bytes) -> None:
            client.put_object(Bucket="bucket", Key=name, Body=content)

        options = {**KEYS, "endpoint_url": address, "client_kwargs": {"region_name": "us-east-1"}}
        try:
            yield Served("s3://bucket", options, faults, put)
        finally:
            client.close()
