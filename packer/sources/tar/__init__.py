"""Tar archives of samples (WebDataset): `train-000000.tar` with `a.jpg`, `a.cls`, `b.jpg`, ..."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from packer.errors import SourceError
from packer.items.raw_item import Member, RawItem, Scan
from packer.sources.archive_folders import (
    Picture,
    mask_folders_text,
    pack,
    read_layout,
)
from packer.sources.beside import Unread, files_beside, is_annotation_name
from packer.sources.container_files import (
    ContainerFiles,
    find_container_files,
    splits_of_paths,
)
from packer.sources.only_split import is_other_split
from packer.sources.pairing import stem_of
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.tar.archive import SIDECARS, Archive, Others, Sample, read_archive
from packer.sources.text_labels import TextLabels
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field

name = "tar"

TAR_EXTENSIONS = (b".tar", b".tgz", b".tar.gz")
_OTHER_COMPRESSION = re.compile(rb"\.(tar\.(bz2|xz|zst|lz4|z)|tbz2?|txz|tzst)$")

_BOX_KEYS = frozenset(("boxes", "bboxes", "bbox", "annotations", "objects", "shapes", "keypoints"))


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Samples of tar archives, in the order of the archives' paths and of their members.

    Members of one sample share their path up to the first dot of the name and stand next to each
    other. A link has the bytes of the member that it leads to. What follows the dot says what a
    member is, by its last part: a picture, `cls` (a label: number or name), `json` (kept as it is)
    or `txt` (a text). Other members are ignored, and a note names their suffixes. A sample without
    a part that others have is rejected, as are those with sparse members, or with links or paths
    that lead out of the archive; nothing is ever unpacked. Archives whose pictures have no such
    parts at all are read as zip archives are: folders in them are splits and classes.

    Args:
        raw: One archive, or a folder with archives at any depth.
        options: `classes` and `label_is_index` say what labels mean. Under format="tar", archives
            of pictures alone that hold annotation files or parts of samples are read without.

    Raises:
        SourceError: There is no archive, archives hold different parts, archives themselves, or
            annotations that are not read, or a file beside them says what their pictures are.
    """
    found = find_container_files(raw, _is_tar)
    found.ignore_pictures()
    for file in [file for file in found.files if not file.path.lower().endswith(TAR_EXTENSIONS)]:
        found.files.remove(file)
        reason = "compressed in another way than gzip; unpack it, or compress it with gzip"
        found.findings.refuse(file.path, reason)
    if not found.files and not found.findings.rejects:
        raise found.findings.nothing(
            raw,
            "no tar archive found",
            f"looked for {b' '.join(TAR_EXTENSIONS).decode()} in this folder and all folders below",
        )
    prefixes = _prefixes(file.path for file in found.files)
    splits_by_path, split_notes = splits_of_paths(file.path for file in found.files)
    splits = ordered_splits(splits_by_path.values())
    archives = []
    others = Others()
    for file in found.files:
        mark = found.findings.mark()
        archives.append(read_archive(file, prefixes[file.path], found, others))
        found.findings.tag_split(mark, splits_by_path.get(file.path))
    wanted = _wanted_parts(
        [a for a in archives if not is_other_split(splits_by_path.get(a.file.path), options.split)]
    )
    _set_lonely_aside(archives, wanted, others, found)
    members = _names_of(archives)
    for archive in archives:
        mark = found.findings.mark()
        _check_samples(archive, wanted, found)
        found.findings.tag_split(mark, splits_by_path.get(archive.file.path))
    # Without parts of their own, samples are pictures in folders.
    pictures = [] if wanted else _pictures(archives)
    kinds = {archive.file.path: archive.kind for archive in archives}

    def kind_of(picture: Picture) -> str:
        return kinds[picture.archive.path]

    layout = read_layout(os.fsencode(found.root), pictures, kind_of, options.classes)
    # img2dataset writes tables beside archives that have all of it: no reason to stop.
    are_labelled = bool(wanted or layout.classes)
    beside, other = files_beside(found, members, are_labelled=are_labelled)
    unread = Unread(
        inside=_inside(others, pictures, are_told=bool(wanted)),
        layout=layout.parts,
        beside=[] if wanted else beside,
        other=[*beside, *other] if wanted else other,
    )
    notes = found.findings.notes
    notes += unread.notes(raw, (file.path for file in found.files), options, name)
    if not wanted:
        last_notes = _content_notes(archives, found)
        return pack(name, found, layout, pictures, kind_of, options.classes, last_notes)
    labels = None
    if b"cls" in wanted:
        labels = _read_labels(archives, options, found, splits_by_path)

    for archive in archives:
        for sample in archive.samples:
            picture = sample.picture
            assert picture is not None
            if splits:
                sample.values["split"] = splits.index(splits_by_path[archive.file.path])
            member = Member(archive.kind, archive.file.byte_count, picture.position)
            found.findings.items.append(
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
    notes += split_notes
    notes += _content_notes(archives, found)
    return found.findings.as_scan(
        name, found.root, classes=classes, splits=splits, fields=_fields(wanted, classes, splits)
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


def _wanted_parts(archives: list[Archive]) -> tuple[bytes, ...]:
    """Suffixes beside the picture that samples have, in the order of `SIDECARS`.

    Raises:
        SourceError: A part is in some archives and in no sample of others, so that no sample of
            all archives could be of one kind.
    """
    with_samples = [a for a in archives if any(s.has_picture for s in a.samples)]
    wanted = []
    for suffix in SIDECARS:
        # A README and a list are parts of no picture.
        having = [
            archive
            for archive in with_samples
            if any(
                s.has_picture and (suffix in s.sidecars or suffix in s.lost)
                for s in archive.samples
            )
        ]
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


def _set_lonely_aside(
    archives: list[Archive], wanted: tuple[bytes, ...], others: Others, found: ContainerFiles
) -> None:
    """Take members without a picture out of the samples, unless others have such parts.

    A list or a README is not a sample that lost its picture.
    """
    for archive in archives:
        kept = []
        for sample in archive.samples:
            members = list(sample.sidecars.values())
            if (
                sample.has_picture
                or not sample.sidecars
                or not sample.sidecars.keys().isdisjoint(wanted)
            ):
                kept.append(sample)
                continue
            for member in members:
                suffix = readable_path(member.name.rpartition(b".")[2].lower())
                place = f"{readable_path(archive.file.path)}, member {readable_path(member.name)}"
                found.findings.ignored.add(f"tar member with .{suffix}, which is not read", place)
                if is_annotation_name(member.name):
                    others.annotations.append(place)
        archive.samples = kept


def _pictures(archives: list[Archive]) -> list[Picture]:
    """Pictures of samples that have nothing else."""
    return [
        Picture(
            archive.file,
            archive.key_of(sample),
            tuple(sample.picture.name.split(b"/")[:-1]),
            sample.picture.position,
            sample.picture.byte_count,
        )
        for archive in archives
        for sample in archive.samples
        if sample.picture is not None
    ]


def _inside(others: Others, pictures: list[Picture], *, are_told: bool) -> list[str]:
    """What archives hold beside samples; where these have parts of their own, other archives."""
    seen = []
    if others.annotations and not are_told:
        seen.append(f"annotation files ({names_text(others.annotations)})")
    masks = mask_folders_text(pictures)
    if masks:
        seen.append(masks)
    return [*seen, f"archives ({names_text(others.nested)})"] if others.nested else seen


def _names_of(archives: list[Archive]) -> list[bytes]:
    """Paths of the pictures in archives, in these."""
    return [s.picture.name for a in archives for s in a.samples if s.picture is not None]


def _names(archives: list[Archive]) -> str:
    return names_text(readable_path(archive.file.path) for archive in archives)


def _check_samples(archive: Archive, wanted: tuple[bytes, ...], found: ContainerFiles) -> None:
    """Keep the samples that are whole, with the values of their JSON and text."""
    shown = readable_path(archive.file.path)
    whole = []
    for sample in archive.samples:
        if not sample.has_picture:
            members = ", ".join(f".{s.decode()}" for s in (*sample.sidecars, *sample.lost))
            sample.problems.append(f"no picture among its members: {members}")
        for suffix in wanted:
            if suffix in sample.lost:
                continue  # With its reason.
            if suffix not in sample.sidecars:
                sample.problems.append(f"no .{suffix.decode()} member, which other samples have")
            elif suffix != b"cls":
                _read_value(sample, suffix)
        if sample.problems:
            key = archive.key_of(sample)
            place = f"{shown}, sample {readable_path(sample.key)}"
            found.findings.refuse(key, "; ".join(sample.problems), place)
        else:
            whole.append(sample)
    archive.samples = whole


def _read_value(sample: Sample, suffix: bytes) -> None:
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
    archives: list[Archive],
    options: SourceOptions,
    found: ContainerFiles,
    splits_by_path: dict[bytes, str],
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
            split = splits_by_path.get(archive.file.path, "")
            found.findings.refuse(key, problem, place, split)
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


def _content_notes(archives: list[Archive], found: ContainerFiles) -> list[str]:
    """What a user should know of the archives' content."""
    notes = []
    compressed = [archive for archive in archives if archive.kind == "tgz"]
    if compressed:
        notes.append(
            f"compressed: {_names(compressed)}; each shard reads such an archive from its "
            "start, so large ones build faster when they are unpacked to .tar"
        )
    others = {
        reason: count
        for reason, count in found.findings.ignored.counts.items()
        if "tar member" in reason
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
