"""Tar archives of samples (WebDataset): `train-000000.tar` with `a.jpg`, `a.cls`, `b.jpg`, ..."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import SourceError
from packer.sources.container_files import (
    ContainerFiles,
    find_container_files,
    splits_of_paths,
)
from packer.sources.items import Member, RawFile, RawItem, Reject, Scan
from packer.sources.pairing import stem_of
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.tar.members import TarDamageError, TarMember, TarReader
from packer.sources.text_labels import TextLabels
from packer.sources.walk import PICTURE_EXTENSIONS, readable_path, skip_reason
from packer.wording import count_text, names_text
from readers.store.schema import Field

name = "tar"

TAR_EXTENSIONS = (b".tar", b".tgz", b".tar.gz")
_OTHER_COMPRESSION = re.compile(rb"\.(tar\.(bz2|xz|zst|lz4|z)|tbz2?|txz|tzst)$")

SIDECARS = {b"cls": "label", b"json": "json", b"txt": "text"}
"""Suffixes of members beside the picture that are read, and the field that each becomes."""

_BOX_KEYS = frozenset(("boxes", "bboxes", "bbox", "annotations", "objects", "shapes", "keypoints"))


@dataclass
class _Sample:
    """Members with one key that stand next to each other."""

    key: bytes
    position: int
    picture: TarMember | None = None
    sidecars: dict[bytes, TarMember] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Archive:
    """An archive whose members were read."""

    file: RawFile
    kind: str
    prefix: bytes
    samples: list[_Sample] = field(default_factory=list)

    def key_of(self, sample: _Sample) -> bytes:
        member = sample.picture
        return self.prefix + b"/" + (member.name if member is not None else sample.key)


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Samples of tar archives, in the order of the archives' paths and of their members.

    Members of one sample share their path up to the first dot of the name and stand next to each
    other. What follows the dot says what a member is, by its last part: a picture, `cls` (a label:
    number or name), `json` (kept as it is) or `txt` (a text). Other members are ignored, and a note
    names their suffixes. A sample without a part that others have is rejected, as are links, sparse
    members and paths that lead out of the archive; nothing is ever unpacked.

    Args:
        raw: One archive, or a folder with archives at any depth.
        options: `classes` and `label_is_index` say what labels mean.

    Raises:
        SourceError: There is no archive, or archives hold different parts.
    """
    found = find_container_files(raw, _is_tar)
    found.ignore_pictures()
    for file in [file for file in found.files if not file.path.lower().endswith(TAR_EXTENSIONS)]:
        found.files.remove(file)
        reason = "compressed in another way than gzip; unpack it, or compress it with gzip"
        found.rejects.append(Reject(key=file.path, path=readable_path(file.path), reason=reason))
    if not found.files and not found.rejects:
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: no tar archive found; looked for "
            f"{b' '.join(TAR_EXTENSIONS).decode()} in this folder and all folders below."
        )
    notes: list[str] = []
    prefixes = _prefixes(file.path for file in found.files)
    archives = [_read_archive(file, prefixes[file.path], found, notes) for file in found.files]
    wanted = _wanted_parts(archives)
    for archive in archives:
        _check_samples(archive, wanted, found)
    labels = _read_labels(archives, options, found) if b"cls" in wanted else None
    splits_by_path, split_notes = splits_of_paths(archive.file.path for archive in archives)
    splits = ordered_splits(splits_by_path.values())

    items = []
    for archive in archives:
        for sample in archive.samples:
            picture = sample.picture
            assert picture is not None
            if splits:
                sample.values["split"] = splits.index(splits_by_path[archive.file.path])
            member = Member(archive.kind, archive.file.byte_count, picture.position)
            items.append(
                RawItem(
                    archive.key_of(sample),
                    archive.file.path,
                    picture.byte_count,
                    archive.file.mtime_ns,
                    sample.values,
                    member=member,
                )
            )
    classes = labels.classes.names if labels is not None else ()
    if labels is not None:
        notes += labels.notes
    return Scan(
        format=name,
        root=found.root,
        items=items,
        classes=classes,
        splits=splits,
        fields=_fields(wanted, classes, splits),
        rejects=found.rejects,
        ignored=found.ignored,
        notes=[*notes, *split_notes, *_content_notes(archives, found)],
    )


def _is_tar(path: bytes) -> bool:
    lower = path.lower()
    return lower.endswith(TAR_EXTENSIONS) or _OTHER_COMPRESSION.search(lower) is not None


def _prefixes(paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """What the keys of an archive's samples begin with: its path without extension, if unique."""
    stems = {path: _stem(path) for path in paths}
    counts: dict[bytes, int] = {}
    for stem in stems.values():
        counts[stem] = counts.get(stem, 0) + 1
    return {path: stem if counts[stem] == 1 else path for path, stem in stems.items()}


def _stem(path: bytes) -> bytes:
    lower = path.lower()
    return path[:-7] if lower.endswith(b".tar.gz") else stem_of(path)


def _read_archive(
    file: RawFile, prefix: bytes, found: ContainerFiles, notes: list[str]
) -> _Archive:
    """Group the members of an archive into samples; what belongs to none is accounted for."""
    shown = readable_path(file.path)
    reader = TarReader(found.full_path(file.path), _wants_data)
    archive = _Archive(file, "range", prefix)
    current: _Sample | None = None
    by_key: dict[bytes, _Sample] = {}
    try:
        for member in reader.members():
            place = f"{shown}, member {readable_path(member.name)}"
            if member.problem:
                key = prefix + b"/" + member.name
                found.rejects.append(Reject(key=key, path=place, reason=member.problem))
                continue
            skipped = next(filter(None, map(skip_reason, member.name.split(b"/"))), None)
            if skipped is not None:
                found.ignored.add(skipped, place)
                continue
            key, suffix = _key_and_suffix(member.name)
            last_suffix = suffix.split(b".")[-1]
            if not _is_picture(last_suffix) and last_suffix not in SIDECARS:
                shown_suffix = f".{readable_path(suffix)}" if suffix else "no suffix"
                found.ignored.add(f"tar member with {shown_suffix}, which is not read", place)
                continue
            if current is None or current.key != key:
                current = _Sample(key, member.position)
                first = by_key.setdefault(key, current)
                if first is not current:
                    first.problems.append(_apart(first, current))
                else:
                    archive.samples.append(current)
            _add_member(current, member, last_suffix)
    except TarDamageError as error:
        reason = f"{error}; what follows was not read. Get the archive anew"
        found.rejects.append(Reject(key=file.path, path=shown, reason=reason))
        if current is not None:
            current.problems.append("the archive is damaged where its next members should be")
    else:
        if not reader.has_end:
            notes.append(f"{shown} has no mark of its end, and may have been cut there")
    if reader.is_compressed:
        archive.kind = "tgz"
    return archive


def _wants_data(member_name: bytes) -> bool:
    return _key_and_suffix(member_name)[1].split(b".")[-1] in SIDECARS


def _key_and_suffix(member_name: bytes) -> tuple[bytes, bytes]:
    """Key with its folders, and what follows the first dot of the name, in lower case."""
    start = member_name.rfind(b"/") + 1
    dot = member_name.find(b".", start)
    if dot < 0:
        return member_name, b""
    return member_name[:dot], member_name[dot + 1 :].lower()


def _is_picture(last_suffix: bytes) -> bool:
    return b"." + last_suffix in PICTURE_EXTENSIONS


def _apart(first: _Sample, second: _Sample) -> str:
    return (
        f"its members stand at byte {first.position:,} and again at byte {second.position:,}, with "
        "other samples between; expected them next to each other. Sort the archive by name"
    )


def _add_member(sample: _Sample, member: TarMember, last_suffix: bytes) -> None:
    if _is_picture(last_suffix):
        if sample.picture is not None:
            sample.problems.append(
                f"two pictures: {readable_path(sample.picture.name)} and "
                f"{readable_path(member.name)}; expected one"
            )
        sample.picture = sample.picture or member
    elif last_suffix in sample.sidecars:
        sample.problems.append(f"two members with .{last_suffix.decode()}; expected one")
    else:
        sample.sidecars[last_suffix] = member


def _wanted_parts(archives: list[_Archive]) -> tuple[bytes, ...]:
    """Suffixes beside the picture that samples have, in the order of `SIDECARS`.

    Raises:
        SourceError: A part is in some archives and in no sample of others, so that no sample of
            all archives could be of one kind.
    """
    with_samples = [archive for archive in archives if archive.samples]
    wanted = []
    for suffix in SIDECARS:
        having = [a for a in with_samples if any(suffix in s.sidecars for s in a.samples)]
        if not having:
            continue
        lacking = [archive for archive in with_samples if archive not in having]
        if lacking:
            raise SourceError(
                f"members with .{suffix.decode()} are in {_names(having)} and not in "
                f"{_names(lacking)}; expected the same parts in all archives. Put those of a kind "
                "in a folder of their own, or give the path of one archive."
            )
        wanted.append(suffix)
    return tuple(wanted)


def _names(archives: list[_Archive]) -> str:
    return names_text(readable_path(archive.file.path) for archive in archives)


def _check_samples(archive: _Archive, wanted: tuple[bytes, ...], found: ContainerFiles) -> None:
    """Keep the samples that are whole, with the values of their JSON and text."""
    shown = readable_path(archive.file.path)
    whole = []
    for sample in archive.samples:
        if sample.picture is None:
            members = ", ".join(f".{suffix.decode()}" for suffix in sample.sidecars)
            sample.problems.append(f"no picture among its members: {members}")
        for suffix in wanted:
            if suffix not in sample.sidecars:
                sample.problems.append(f"no .{suffix.decode()} member, which other samples have")
            elif suffix != b"cls":
                _read_value(sample, suffix)
        if sample.problems:
            key = archive.key_of(sample)
            place = f"{shown}, sample {readable_path(sample.key)}"
            found.rejects.append(Reject(key=key, path=place, reason="; ".join(sample.problems)))
        else:
            whole.append(sample)
    archive.samples = whole


def _read_value(sample: _Sample, suffix: bytes) -> None:
    data = sample.sidecars[suffix].data or b""
    try:
        if suffix == b"json":
            value = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
            msgspec.msgpack.encode(value)  # Which has no numbers over 64 bits.
        else:
            value = data.decode("utf-8-sig")
    except (msgspec.DecodeError, UnicodeError, OverflowError, RecursionError) as error:
        sample.problems.append(f"its .{suffix.decode()} member cannot be read: {error}")
    else:
        sample.values[SIDECARS[suffix]] = value


def _read_labels(
    archives: list[_Archive], options: SourceOptions, found: ContainerFiles
) -> TextLabels:
    """Give each sample its label; those whose label is of no class are rejected."""
    texts = {
        id(sample): (sample.sidecars[b"cls"].data or b"").decode("utf-8-sig", "replace").strip()
        for archive in archives
        for sample in archive.samples
    }
    labels = TextLabels({text for text in texts.values() if _label_problem(text) is None}, options)
    for archive in archives:
        whole = []
        for sample in archive.samples:
            text = texts[id(sample)]
            label = labels.label(text)
            problem = _label_problem(text) or (labels.problem(text) if label is None else None)
            if problem is None:
                sample.values["label"] = label
                whole.append(sample)
                continue
            key = archive.key_of(sample)
            place = f"{readable_path(archive.file.path)}, sample {readable_path(sample.key)}"
            found.rejects.append(Reject(key=key, path=place, reason=problem))
        archive.samples = whole
    return labels


def _label_problem(text: str) -> str | None:
    if not text:
        return "its .cls member is empty; expected the number or name of a class"
    if "\ufffd" in text or not text.isprintable() or len(text) > 200:
        return f"its .cls member is {text[:40]!r}; expected the number or name of a class"
    return None


def _fields(
    wanted: tuple[bytes, ...], classes: tuple[str, ...], splits: tuple[str, ...]
) -> tuple[Field, ...]:
    fields = []
    for suffix in wanted:
        if suffix == b"cls":
            fields.append(Field(name="label", kind="label", dtype="int64", names=classes))
        elif suffix == b"json":
            fields.append(Field(name="json", kind="json"))
        else:
            fields.append(Field(name="text", kind="text"))
    return (*fields, split_field(splits)) if splits else tuple(fields)


def _content_notes(archives: list[_Archive], found: ContainerFiles) -> list[str]:
    """What a user should know of the archives' content."""
    notes = []
    compressed = [archive for archive in archives if archive.kind == "tgz"]
    if compressed:
        notes.append(
            f"compressed: {_names(compressed)}; each shard reads such an archive from its "
            "start, so large ones build faster when they are unpacked to .tar"
        )
    others = {
        reason: count for reason, count in found.ignored.counts.items() if "tar member" in reason
    }
    notes += [f"{count_text(count, 'file')} ignored: {reason}" for reason, count in others.items()]
    keys = {
        key
        for archive in archives
        for sample in archive.samples
        if isinstance(sample.values.get("json"), dict)
        for key in sample.values["json"]
    }
    if keys & _BOX_KEYS:
        notes.append(
            f"json holds {names_text(sorted(keys & _BOX_KEYS))}, kept as written: coordinates in "
            "it are those of the raw picture, and do not follow when it is turned or resized; the "
            "field `transform` takes them there"
        )
    return notes
