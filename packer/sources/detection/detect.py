"""Which layout a raw folder has, and why.

Everything that is seen is collected first (evidence.py), and then one decision is made, since the
first match would be wrong: a folder of VOC annotations holds folders of pictures as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from packer.errors import AmbiguousFormatError, SourceError
from packer.sources import source_named
from packer.sources.detection.content import checked
from packer.sources.detection.evidence import collect_evidence, file_evidence
from packer.sources.detection.folders import label_files, sample_parts
from packer.sources.detection.found import LEAD_MIN, UNREAD, Evidence
from packer.sources.detection.look import Look, look_at, look_at_file, shown_names
from packer.sources.detection.unread import find_unread, unread_error
from packer.sources.detection.why_not import WhyNot, why_not
from packer.sources.layouts import LAYOUTS, layouts_of
from packer.sources.source import AUTO_FORMAT, SourceOptions
from packer.sources.walk import PICTURE_TYPES
from packer.wording import Summarized, count_text, readable_path

_DEFAULTS = SourceOptions()


@dataclass(frozen=True, kw_only=True)
class Detection:
    """The layout that was decided on.

    Attributes:
        format: Name of the source.
        line: What was seen and why, in one line.
        evidence: Everything that was seen, the strongest first.
    """

    format: str
    line: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Examination(Summarized):
    """Everything that is evidence for any layout, and what comes of it.

    Attributes:
        evidence: The strongest first, one entry a layout. Empty where nothing was found.
        format: Name of the source that reads the raw data; empty where none was decided on.
        line: The decision in one line; empty where there is none.
        error: Why there is none, or why a build stops all the same, with what to do; else None.
        others: Why each layout that is read, but for the one decided on, was not.
    """

    evidence: tuple[Evidence, ...]
    format: str = ""
    line: str = ""
    error: SourceError | None = None
    others: tuple[WhyNot, ...] = ()

    @property
    def is_tie(self) -> bool:
        """Whether several layouts fit, and a user has to say which."""
        return isinstance(self.error, AmbiguousFormatError)

    def summary(self) -> str:
        """The evidence as a table, the decision where there is one, and why not the others."""
        rows = [("format", "score", "seen"), *map(_table_row, self.evidence)]
        width = max(len(row[0]) for row in rows)
        lines = [f"{name:{width}}  {score:>5}  {seen}" for name, score, seen in rows]
        width = max((len(other.format) for other in self.others), default=0)
        why = [f"  {other.format:{width}}  {other.text}" for other in self.others]
        return "\n".join(
            [
                *(lines if self.evidence else []),
                *([self.line] if self.line else []),
                *(["not chosen:", *why] if why else []),
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "format": self.format or None,
            "line": self.line or None,
            "is_tie": self.is_tie,
            "problem": str(self.error) if self.error is not None else None,
            "evidence": [{**asdict(e), "is_read": e.format not in UNREAD} for e in self.evidence],
            "not_chosen": [asdict(other) for other in self.others],
        }


def _table_row(evidence: Evidence) -> tuple[str, str, str]:
    unread = "; no source reads it" if evidence.format in UNREAD else ""
    problem = f"; but {evidence.problem}" if evidence.problem else ""
    return evidence.format, str(evidence.score), f"{evidence.seen}{unread}{problem}"


def detect(raw: Path, options: SourceOptions) -> Detection:
    """Decide which source reads the raw data, and say what was seen and why.

    Looks at the names in the first two levels of folders and into a few of the files.

    Raises:
        AmbiguousFormatError: Several layouts fit equally well; the message has them all.
        SourceError: Nothing was found, or what was found is read by no source. The message names
            it and what may be done.
    """
    if options.format != AUTO_FORMAT:
        return Detection(format=options.format, line=f"format: {options.format} (as asked for)")
    found, _ = _decide(raw, options)
    if found.error is not None:
        raise found.error
    return Detection(format=found.format, line=found.line, evidence=found.evidence)


def examine(raw: Path, options: SourceOptions = _DEFAULTS) -> Examination:
    """Collect what is evidence for any layout, and decide; and say of every other why not.

    What `options.format` asks for is left aside.

    Archives are read for it, since only what is in them says whether a build takes them.

    Raises:
        SourceError: The folder cannot be listed, or a list in it cannot be read.
    """
    found, look = _decide(raw, options)
    others = why_not(look, found.evidence, found.format, is_one_file=raw.is_file())
    found = replace(found, others=others)
    if not found.format or not LAYOUTS[found.format].is_read_to_tell:
        return found
    try:
        source_named(found.format).scan(raw, options)
    except SourceError as error:
        return replace(found, error=error)
    return found


def _decide(raw: Path, options: SourceOptions) -> tuple[Examination, Look]:
    """The evidence and what comes of it, and the look that it is from."""
    shown = readable_path(os.fsencode(raw))
    if raw.is_file():
        look = look_at_file(raw)
        try:
            evidence = file_evidence(raw)
        except SourceError as problem:
            return Examination(evidence=(), error=problem), look
    else:
        look = look_at(raw)
        evidence = _gather(look, options)
        if not evidence:
            nothing = SourceError(nothing_found(raw, look.unreadable))
            return Examination(evidence=(), error=nothing), look
    best, others = evidence[0], evidence[1:]
    rivals = [other for other in others if best.score - other.score < LEAD_MIN]
    if rivals:
        error: SourceError | None = _tie(shown, [best, *rivals], others[len(rivals) :])
    else:
        error = _refusal(shown, best, "" if raw.is_file() else f" {_ways_out(evidence)}")
    unread = _other_files(look, best.format) if best.format in _PICTURES_ALONE else []
    if error is None and best.format in _PICTURES_ALONE:
        pictures = [x.join(name) for x in look.listings for name in x.pictures]
        telling = find_unread(raw, unread, pictures, None)
        error = unread_error(raw, telling, best.format) if telling else None
    if error is not None:
        return Examination(evidence=tuple(evidence), error=error), look
    also = [f"{other.format} ({other.seen})" for other in others]
    if unread:
        also.append(f"{count_text(len(unread), 'other file')}, not read: {shown_names(unread)}")
    line = f"format: {best.format} ({best.seen}); also seen: {'; '.join(also) or 'nothing'}"
    return Examination(evidence=tuple(evidence), format=best.format, line=line), look


_PICTURES_ALONE = layouts_of("pictures")


def _other_files(look: Look, format_name: str) -> list[bytes]:
    """Files that are no pictures and that pictures alone have no use for."""
    read = label_files(look) if format_name == "imagefolder" else set()
    files = [listing.join(name) for listing in look.listings for name in listing.files]
    return [path for path in files if path not in read]


def _gather(look: Look, options: SourceOptions) -> list[Evidence]:
    """All the evidence, the strongest first; of that, the content is looked into."""
    evidence = collect_evidence(look, options)
    if not evidence:
        return []
    evidence[0] = checked(evidence[0], look)
    if evidence[0].format in _PICTURES_ALONE and not evidence[0].problem:
        evidence[:0] = sample_parts(look)
    return evidence


def _tie(shown: str, candidates: list[Evidence], others: list[Evidence]) -> AmbiguousFormatError:
    lines = "\n".join(map(_candidate, candidates))
    return AmbiguousFormatError(
        f"{shown}: more than one layout fits, and nothing may be dropped in silence:\n{lines}\n"
        f"{_ways_out(others, already=candidates)}"
    )


def _refusal(shown: str, best: Evidence, ways_out: str) -> SourceError | None:
    """Why the best layout is not read, or None when it is."""
    if best.format in UNREAD:
        name, advice = UNREAD[best.format]
        return SourceError(
            f"{shown}: this looks like {name} ({best.seen}), which no source reads. "
            f"{advice}.{ways_out}"
        )
    if best.problem:
        return SourceError(
            f"{shown}: this looks like {best.format} ({best.seen}), but {best.problem}.{ways_out}"
        )
    return None


def nothing_found(raw: Path, unreadable: Sequence[bytes] = ()) -> str:
    """One line for a raw path without pictures, naming folders that could not be looked into."""
    line = (
        f"{readable_path(os.fsencode(raw))}: no pictures found; looked for {PICTURE_TYPES} in this "
        "folder and all folders below"
    )
    if unreadable:
        return f"{line}, but could not list {shown_names(unreadable)}. Check the permissions."
    return f"{line}. Check the path."


def _candidate(evidence: Evidence) -> str:
    line = f"  {evidence.format}: {evidence.seen}"
    if evidence.format in UNREAD:
        return f"{line}; {UNREAD[evidence.format][0]}, which no source reads"
    if evidence.problem:
        return f"{line}; but {evidence.problem}"
    return f"{line}; to take it give --format {evidence.format}"


def _ways_out(evidence: Iterable[Evidence], already: Iterable[Evidence] = ()) -> str:
    """What a user may do to build without what was found; `already` are named in the message."""
    usable = {found.format for found in evidence if not found.problem}
    pictures = {found.format for found in (*evidence, *already)} & set(_PICTURES_ALONE)
    ways = [f"--format {name} (the list)" for name in layouts_of("list") if name in usable]
    if usable & {"imagefolder", "sample-parts"}:
        ways.append(_way("imagefolder"))
    if pictures and "flat" not in {found.format for found in already}:
        ways.append(_way("flat"))
    if not pictures and not ways:
        return "There are no pictures to pack without it."
    if not ways:
        return "Or give the folder of the pictures you want."
    other = "To take none of these" if already else "To leave it aside"
    return f"{other}, give {' or '.join(ways)}, or the folder of the pictures you want."


def _way(name: str) -> str:
    return f"--format {name} ({LAYOUTS[name].meaning})"
