"""The samples of one tar archive: its members by name, and what links in it lead to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from packer.items.raw_item import RawFile
from packer.sources.beside import is_annotation_name, is_nested
from packer.sources.container_files import ContainerFiles
from packer.sources.tar.members import (
    DATA_BYTES_MAX,
    DEREFERENCED,
    TarDamageError,
    TarMember,
    TarReader,
)
from packer.sources.walk import PICTURE_EXTENSIONS, skip_reason
from packer.wording import readable_path

SIDECARS = {b"cls": "label", b"json": "json", b"txt": "text"}
"""Suffixes of members beside the picture that are read, and the field that each becomes."""

_BYTES_MAX = {b"cls": 2**16, b"json": DATA_BYTES_MAX, b"txt": 2**20}
"""Of each. A label is a word, a text a caption."""

_LINKS_FOLLOWED_MAX = 40
"""As Linux does: more is a circle."""


@dataclass
class Sample:
    """Members with one key that stand next to each other.

    Attributes:
        key: With its folders.
        position: Where its first member begins.
        picture: Its picture.
        sidecars: Other members that are read, by suffix.
        lost: Suffixes of members that cannot be used, about which `problems` says why.
        problems: Why it cannot be packed.
        values: Of its fields.
    """

    key: bytes
    position: int
    picture: TarMember | None = None
    sidecars: dict[bytes, TarMember] = field(default_factory=dict)
    lost: set[bytes] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def has_picture(self) -> bool:
        """Whether there is one, though it may be lost."""
        return self.picture is not None or any(map(_is_picture, self.lost))

    def lose(self, member: TarMember, suffix: bytes, problem: str) -> None:
        """Note that a member cannot be used: the sample is rejected, once."""
        self.lost.add(suffix)
        self.problems.append(f"{readable_path(member.name)}: {problem}")


@dataclass
class Others:
    """Places of members that are parts of no sample and that say something.

    Attributes:
        annotations: Those that are called like annotation files.
        nested: Archives.
    """

    annotations: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)


@dataclass
class Archive:
    """An archive whose members were read."""

    file: RawFile
    kind: str
    prefix: bytes
    samples: list[Sample] = field(default_factory=list)

    def key_of(self, sample: Sample) -> bytes:
        """Key of the item of a sample."""
        member = sample.picture
        return self.prefix + b"/" + (member.name if member is not None else sample.key)


def read_archive(file: RawFile, prefix: bytes, found: ContainerFiles, unread: Others) -> Archive:
    """Group the members of an archive into samples; what belongs to none is accounted for.

    Args:
        file: The archive.
        prefix: What keys of its samples begin with.
        found: Takes rejects, ignored members and notes of what is odd.
        unread: Takes the places of members that are not read and say something.
    """
    shown = readable_path(file.path)
    reader = TarReader(found.full_path(file.path), _data_bytes_max)
    archive = Archive(file, "range", prefix)
    current: Sample | None = None
    by_key: dict[bytes, Sample] = {}
    links = _Links(reader)
    try:
        for member in reader.members():
            place = f"{shown}, member {readable_path(member.name)}"
            key, suffix = _key_and_suffix(member.name)
            last_suffix = suffix.split(b".")[-1]
            is_part = _is_picture(last_suffix) or last_suffix in SIDECARS
            if member.problem and not is_part and not member.link:
                reject_key = prefix + b"/" + member.name
                found.findings.refuse(reject_key, member.problem, place)
                continue
            # ".." begins with a dot, but is no hidden name: it is a problem.
            parts = (part for part in member.name.split(b"/") if part != b"..")
            skipped = next(filter(None, map(skip_reason, parts)), None)
            links.add(member)
            if skipped is not None:
                found.findings.ignored.add(skipped, place)
                continue
            if not is_part:
                shown_suffix = f".{readable_path(suffix)}" if suffix else "no suffix"
                found.findings.ignored.add(
                    f"tar member with {shown_suffix}, which is not read", place
                )
                if is_nested(member.name):
                    unread.nested.append(place)
                elif is_annotation_name(member.name):
                    unread.annotations.append(place)
                continue
            if current is None or current.key != key:
                current = Sample(key, member.position)
                first = by_key.setdefault(key, current)
                if first is not current:
                    first.problems.append(_apart(first, current))
                else:
                    archive.samples.append(current)
            _add_member(current, member, last_suffix)
    except TarDamageError as error:
        reason = f"{error}; what follows was not read. Get the archive anew"
        found.findings.refuse(file.path, reason)
        if current is not None:
            current.problems.append("the archive is damaged where its next members should be")
    else:
        if not reader.has_end:
            found.findings.notes.append(
                f"{shown} has no mark of its end, and may have been cut there"
            )
    for sample in archive.samples:
        links.resolve(sample)
    if reader.is_compressed:
        archive.kind = "tgz"
    return archive


def _data_bytes_max(member_name: bytes) -> int:
    return _BYTES_MAX.get(_key_and_suffix(member_name)[1].split(b".")[-1], 0)


def _key_and_suffix(member_name: bytes) -> tuple[bytes, bytes]:
    """Key with its folders, and what follows the first dot of the name, in lower case."""
    start = member_name.rfind(b"/") + 1
    dot = member_name.find(b".", start)
    if dot < 0:
        return member_name, b""
    return member_name[:dot], member_name[dot + 1 :].lower()


def _is_picture(last_suffix: bytes) -> bool:
    return b"." + last_suffix in PICTURE_EXTENSIONS


def _apart(first: Sample, second: Sample) -> str:
    return (
        f"its members stand at byte {first.position:,} and again at byte {second.position:,}, with "
        "other samples between; expected them next to each other. Sort the archive by name"
    )


def _add_member(sample: Sample, member: TarMember, last_suffix: bytes) -> None:
    if member.problem:
        sample.lose(member, last_suffix, member.problem)
    elif _is_picture(last_suffix):
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


class _Links:
    """What the links of an archive lead to.

    A hard link is a second name of a member before it, as GNU tar writes a file with two names; a
    symbolic link may lead to a member that follows.

    Args:
        reader: The archive's reader.
    """

    def __init__(self, reader: TarReader) -> None:
        self._reader = reader
        self._members: dict[bytes, TarMember] = {}

    def add(self, member: TarMember) -> None:
        """Remember a member that links may lead to. Of two of a name the last counts, as in tar."""
        self._members[member.name] = member

    def resolve(self, sample: Sample) -> None:
        """Give the links among a sample's members the bytes of what they lead to."""
        if sample.picture is not None and sample.picture.link:
            link, sample.picture = sample.picture, None
            target = self._target(link)
            if isinstance(target, str):
                sample.lose(link, _key_and_suffix(link.name)[1].split(b".")[-1], target)
            else:
                sample.picture = target._replace(name=link.name, link=b"", data=None)
        for suffix, link in list(sample.sidecars.items()):
            if link.link:
                del sample.sidecars[suffix]
                target = self._target(link)
                if not isinstance(target, str):
                    data = target.data
                    data = self._reader.read_again(target) if data is None else data
                    if data is not None:
                        sample.sidecars[suffix] = target._replace(name=link.name, data=data)
                        continue
                    shown = readable_path(target.name)
                    target = f"a link to {shown!r}, which is not read; {DEREFERENCED}"
                sample.lose(link, suffix, target)

    def _target(self, link: TarMember) -> TarMember | str:
        """The member that a link leads to in the end, or why there is none."""
        member = link
        for _ in range(_LINKS_FOLLOWED_MAX):
            found = self._members.get(member.link)
            if found is None:
                shown = readable_path(member.link)
                return f"a link to {shown!r}, which is not in the archive; {DEREFERENCED}"
            if found.problem:
                return f"a link to {readable_path(found.name)!r}, which is {found.problem}"
            if not found.link:
                return found
            member = found
        return f"a link to {readable_path(link.link)!r}, which leads back to itself"
