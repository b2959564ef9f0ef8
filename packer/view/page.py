"""Data -> one HTML file that holds all it needs, and is allowed nothing else.

A policy in the page says so to the browser: no address is loaded but `data:` pictures, and of
programs only the one whose digest it names runs. What comes out of a store is JSON in an element
that no browser runs, with every `<` as an escape.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from packer.errors import BuildError, TargetExistsError
from packer.wording import Summarized, size_text

_MARK = '<meta name="generator" content="packer view">'
"""By which a page of ours is known: another file is not written over."""

_MARK_WITHIN = 2_000


@dataclass(frozen=True, kw_only=True)
class ViewReport(Summarized):
    """What a page shows.

    Attributes:
        path: The page.
        bytes: Its size.
        shown_count: Samples, or rejects, that are on it.
        total_count: How many there were to choose from.
        what: What they are.
        notes: What the raw data was taken for, a line each.
        failed_count: Those that are on it with an error in place of their picture.
    """

    path: str
    bytes: int
    shown_count: int
    total_count: int
    what: str = "samples"
    failed_count: int = 0
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def summary(self) -> str:
        """For a person."""
        failed = (
            f"; {self.failed_count:,} could not be read, and say why" if self.failed_count else ""
        )
        lines = "".join(f"{note}\n" for note in self.notes)
        return (
            f"{lines}{self.path}: {self.shown_count:,} of {self.total_count:,} {self.what}, "
            f"{size_text(self.bytes)}{failed}. Open it in a browser."
        )


def page_html(data: dict[str, Any], *, is_served: bool = False) -> str:
    """The page.

    Args:
        data: What it shows; see `packer.view.store_view` and `packer.view.raw_view`.
        is_served: Whether it asks the server that it came from for samples.
    """
    folder = files("packer.view")
    style = (folder / "page.css").read_text("utf-8")
    program = (folder / "page.js").read_text("utf-8")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {_digest(program)}; base-uri 'none'; form-action 'none'; "
        f"connect-src {chr(39)}{'self' if is_served else 'none'}{chr(39)}"
    )
    # In this order: what comes out of a store goes in last, and is not looked into.
    page = (folder / "page.html").read_text("utf-8")
    for name, text in (
        ("generator", _MARK),
        ("policy", policy),
        ("title", html.escape(data["title"])),
        ("style", style),
        ("program", program),
        ("data", _as_json(data)),
    ):
        before, _, after = page.partition(f"<!--{name}-->")
        page = before + text + after
    return page


def write_page(path: Path, data: dict[str, Any]) -> int:
    """Write the page to a file, whole or not at all; its size.

    Raises:
        TargetExistsError: Something is there that is not such a page.
        OSError: It cannot be written.
    """
    check_page_path(path)
    content = page_html(data).encode("utf-8", "backslashreplace")
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return len(content)


def check_page_path(path: Path) -> None:
    """See that a page may be written there, before the work is done.

    Raises:
        TargetExistsError: Something is there that is not such a page.
        BuildError: There is no folder for it.
        OSError: It cannot be looked at.
    """
    if not path.parent.is_dir():
        raise BuildError(
            f"{path}: there is no folder {path.parent}. Make it, or give another path with -o."
        )
    if not path.exists():
        return
    if path.is_file():
        with open(path, "rb") as stream:
            if _MARK.encode() in stream.read(_MARK_WITHIN):
                return
    raise TargetExistsError(
        f"{path}: something else than a page of `packer view` is there. Give another path with -o."
    )


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _as_json(data: dict[str, Any]) -> str:
    """JSON that nothing in an HTML page can be mistaken for the end of."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
