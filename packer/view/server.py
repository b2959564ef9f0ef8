"""A server that pages through all of a store, for the browsers of this machine alone.

It listens on 127.0.0.1. Other users of the machine reach that address too, and so do pages of
strangers in the same browser: so every address begins with a secret that is told to its user alone,
and a request under another host's name is refused.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from packer.view.cards import key_text
from packer.view.page import page_html
from packer.view.store_view import StoreView, class_table
from readers.store.errors import StoreError
from readers.store.schema import Schema

HOST = "127.0.0.1"

AT_ONCE = 60
"""Samples of an answer."""

LOOKED_AT_MAX = 3_000
"""Samples that are looked through for an answer: the page asks again to go on."""

_CARD_BYTES = 40_000
_LARGE_BYTES = 900_000
_REJECTS = 200


class ViewServer:
    """A server of one store's samples. Close it, or use it as a context.

    Args:
        view: The store, and which of its samples are looked at.
        port: 0 takes any that is free.

    Attributes:
        url: The page's address; its path is the secret.

    Raises:
        OSError: The port is taken.
    """

    def __init__(self, view: StoreView, port: int = 0) -> None:
        secret = secrets.token_urlsafe(16)
        pages = _Pages(view)

        class Handler(_Handler):
            pass

        Handler.pages, Handler.secret = pages, secret
        self._server = _Server((HOST, port), Handler)
        self.url = f"http://{HOST}:{self._server.server_address[1]}/{secret}/"

    def serve(self) -> None:
        """Answer until `close` is called, or an exception comes (Ctrl-C)."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering."""
        self._server.server_close()

    def stop(self) -> None:
        """Have `serve`, in another thread, return."""
        self._server.shutdown()

    def __enter__(self) -> ViewServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has seen enough, and says no more, is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Pages:
    """What is answered. Samples are read one request at a time."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._lock = threading.Lock()
        manifest = view.manifest
        self._schema: Schema = manifest.schema
        names = _class_names(self._schema) or manifest.classes
        data = {
            **view.head(),
            "samples": [],
            "rejects": {**view.rejects(_REJECTS, _CARD_BYTES), "alone": False},
            "classes": {},
            "class_names": [key_text(name) for name in names],
            "served": True,
        }
        self.page = page_html(data, is_served=True).encode("utf-8", "backslashreplace")

    def samples(self, query: dict[str, str]) -> dict[str, Any]:
        """The next samples that fit, from a position on.

        Raises:
            ValueError: The position is not a number.
        """
        at = max(0, int(query.get("start", "0")))
        indices = self._view.indices
        cards: list[dict[str, Any]] = []
        with self._lock:
            end = min(len(indices), at + LOOKED_AT_MAX)
            while at < end and len(cards) < AT_ONCE:
                index = int(indices[at])
                if self._view.fits(
                    index,
                    text=query.get("q", ""),
                    class_name=query.get("class", ""),
                    split=query.get("split", ""),
                ):
                    cards.append(self._view.card(index, _CARD_BYTES))
                at += 1
        return {
            "samples": cards,
            "classes": self._classes(cards),
            "seen": at,
            "next": at if at < len(indices) else None,
        }

    def sample(self, query: dict[str, str]) -> dict[str, Any]:
        """One sample, large.

        Raises:
            ValueError: There is no such sample.
        """
        index = int(query.get("index", ""))
        if not 0 <= index < self._view.manifest.sample_count:
            raise ValueError(f"no sample {index}")
        with self._lock:
            card = self._view.card(index, _LARGE_BYTES)
        return {"sample": card, "classes": self._classes([card])}

    def _classes(self, cards: list[dict[str, Any]]) -> dict[int, list[str]]:
        return class_table(cards, self._schema, self._view.manifest.classes)


class _Handler(BaseHTTPRequestHandler):
    pages: _Pages
    secret: str
    timeout = 30

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        first, _, name = parts.path.removeprefix("/").partition("/")
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (HOST, "localhost") or not secrets.compare_digest(
            first.encode(), self.secret.encode()
        ):
            self._answer(403, b"The address has a secret part: take it as it was printed.\n")
            return
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        try:
            if name == "":
                self._answer(200, self.pages.page, "text/html; charset=utf-8")
            elif name == "samples":
                self._json(self.pages.samples(query))
            elif name == "sample":
                self._json(self.pages.sample(query))
            else:
                self._answer(404, b"There is no such page.\n")
        except ValueError as error:
            self._answer(400, f"{error}\n".encode("utf-8", "backslashreplace"))
        except StoreError as error:
            self._answer(500, f"{error}\n".encode("utf-8", "backslashreplace"))

    def _json(self, data: dict[str, Any]) -> None:
        self._answer(200, json.dumps(data, allow_nan=False).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the user's."""


def _class_names(schema: Schema) -> tuple[str, ...]:
    field = next((schema[name] for name in ("label", "labels") if name in schema), None)
    return (field.names or ()) if field is not None else ()
