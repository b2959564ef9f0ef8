"""Why a layout was not chosen: what it requires, and what was found instead.

It is said of every layout that is read, so that a user whose data is of one of them sees what is
missing in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packer.errors import SourceError
from packer.sources.detection.files import kind_of_file
from packer.sources.detection.found import FILES_MAX, LEAD_MIN, UNREAD, Evidence
from packer.sources.detection.json_outline import read_json_outline
from packer.sources.detection.look import Look
from packer.sources.layouts import LAYOUTS, Layout, layouts_of
from packer.sources.lists.csv_table import read_columns
from packer.sources.lists.open_images import BOX_COLUMNS
from packer.wording import count_text, names_text, readable_path

_SHOWN_MAX = 40
"""Letters of a first line."""


@dataclass(frozen=True, kw_only=True)
class WhyNot:
    """Why one layout was not chosen.

    Attributes:
        format: Name of the layout.
        requires: What has to be there for it.
        is_seen: Whether there is evidence for it.
        reason: What was found instead; where it was seen, what is wrong with it or which other
            layout is as certain.
    """

    format: str
    requires: str
    is_seen: bool
    reason: str

    @property
    def text(self) -> str:
        """One line without the name."""
        return self.reason if self.is_seen else f"needs {self.requires}; {self.reason}"


def why_not(
    look: Look, evidence: Sequence[Evidence], chosen: str, *, is_one_file: bool
) -> tuple[WhyNot, ...]:
    """What is missing for each layout but the chosen one, by the order of the table.

    Args:
        look: At the raw folder; or at a folder with nothing but the file that was given.
        evidence: All that was seen, the strongest first.
        chosen: The layout that was decided on; empty where there is none.
        is_one_file: Whether the raw path is a file.
    """
    seen = {found.format: found for found in evidence}
    reasons = []
    for name, layout in LAYOUTS.items():
        if name == chosen:
            continue
        if name in seen:
            reason = _outweighed(seen[name], evidence)
        elif is_one_file and not layout.may_be_file:
            reason = "one file was given, and this is read from a folder"
        else:
            reason = _missing(name, layout, look, evidence, is_one_file=is_one_file)
        reasons.append(
            WhyNot(format=name, requires=layout.requires, is_seen=name in seen, reason=reason)
        )
    return tuple(reasons)


def _outweighed(found: Evidence, evidence: Sequence[Evidence]) -> str:
    """Why a layout that something speaks for was not chosen."""
    if found.problem:
        return f"{found.seen}, but {found.problem}"
    other = next((other for other in evidence if other is not found), None)
    if other is None or found.score - other.score >= LEAD_MIN:
        return f"{found.seen}, but other files say more than it reads"
    unread = " (which no source reads)" if other.format in UNREAD else ""
    if other.score - found.score >= LEAD_MIN:
        more = f"is more certain, {other.score} over {found.score}"
        return f"{found.seen}, but {other.format}{unread} {more}"
    return f"{found.seen}, but {other.format}{unread} fits as well"


def _missing(
    name: str, layout: Layout, look: Look, evidence: Sequence[Evidence], *, is_one_file: bool
) -> str:
    """What was looked for and not found, of a layout that nothing speaks for."""
    if layout.kind == "pictures":
        return _of_pictures(look, evidence)
    parts = []
    groups = (*layout.folders_beside, *layout.folders_anywhere)
    if groups:
        parts.append(_of_folders(look, groups))
    if layout.endings:
        parts.append(_of_files(name, layout, look, is_one_file=is_one_file))
    return ", and ".join(parts) or "no such file"


def _of_pictures(look: Look, evidence: Sequence[Evidence]) -> str:
    """Of class folders and of pictures alone, one is told by the same pictures as the other."""
    of_pictures = layouts_of("pictures")
    seen = next((found.seen for found in evidence if found.format in of_pictures), "")
    return seen or "no pictures"


def _of_folders(look: Look, groups: Sequence[tuple[bytes, ...]]) -> str:
    """Which folders of the group that is nearest to being whole are there, and which are not."""
    there = {
        part.lower(): part
        for listing in look.listings
        for path in (listing.path, *map(listing.join, listing.folders))
        for part in path.split(b"/")
        if part
    }
    nearest = max(groups, key=lambda group: sum(name in there for name in group))
    found = [readable_path(there[name]) for name in nearest if name in there]
    if len(found) == len(nearest):
        return f"{' and '.join(found)} do not lie side by side"
    if found:
        lacking = [readable_path(name) for name in nearest if name not in there]
        return f"there is {', '.join(found)}, but no folder {', '.join(lacking)}"
    return "no such folder"


def _of_files(name: str, layout: Layout, look: Look, *, is_one_file: bool) -> str:
    """What the files are that might have told the layout."""
    names = [f"*{ending}" for ending in layout.endings]
    kinds = f"{' or '.join([*([', '.join(names[:-1])] if names[1:] else []), names[-1]])}"
    paths = look.files(*(ending.encode() for ending in layout.endings))
    if not paths and is_one_file:
        return f"{readable_path(look.listings[0].files[0])} is not called {kinds}"
    if not paths:
        return f"no {kinds} file"
    if layout.kind == "archive" and look.has_pictures:
        return f"{readable_path(paths[0])} lies beside pictures, and those alone are taken"
    held = _held(name, look, paths[0])
    if len(paths) == 1:
        return held
    looked = f"the first {FILES_MAX} of " if len(paths) > FILES_MAX else ""
    return f"none of {looked}{count_text(len(paths), f'{kinds} file')}; the first: {held}"


def _held(name: str, look: Look, path: bytes) -> str:
    """What a file holds, as far as one line can say it."""
    shown = readable_path(path)
    kind = kind_of_file(look, path)
    if kind is not None and kind != name:
        return f"{shown} is of {kind}"
    if path.lower().endswith((b".csv", b".tsv")):
        return _of_columns(name, Path(os.fsdecode(os.path.join(look.root, path))), shown)
    if path.lower().endswith(b".json"):
        outline = read_json_outline(os.path.join(look.root, path))
        keys = names_text(sorted(outline.keys)) or "none"
        return f"{shown} has{' a list with' if outline.is_list else ''} the keys {keys}"
    head = look.head(path)
    if path.lower().endswith(b".xml"):
        root = re.search(r"<([A-Za-z_][\w:.-]*)", re.sub(r"(?s)<!--.*?-->", "", head))
        return f"{shown} has the root <{root[1]}>" if root else f"{shown} is not XML"
    first = next((line.strip() for line in head.splitlines() if line.strip()), "")
    if not first:
        return f"{shown} is empty"
    return f"{shown} begins with {first[:_SHOWN_MAX]!r}"


def _of_columns(name: str, path: Path, shown: str) -> str:
    """Which columns a list lacks."""
    try:
        columns = read_columns(path)
    except SourceError:
        return f"{shown} cannot be read as a table"
    if name == "open-images":
        lower = {column.lower() for column in columns.names}
        lacking = [column for column in BOX_COLUMNS if column.lower() not in lower]
        return f"{shown} has no column {names_text(lacking)}"
    if columns.path is None:
        return f"{shown} has no column of paths among {names_text(columns.names)}"
    return f"{shown} says nothing of its pictures in {names_text(columns.names)}"
