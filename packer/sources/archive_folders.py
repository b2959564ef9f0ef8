"""Folders inside of archives: splits, classes and parts of samples, as folders on a disk are read.

train/cat/1.jpg           a split and a class; a folder around all the rest is passed over
val/images/1.jpg          `images` names no class: the picture has none
A/1.png B/1.png           parts of one sample, and no classes: see `siblings.py`
MOT17-02/img1/1.jpg       a sequence of frames, and no class

Nothing is unpacked: the rules are applied to the names of members, and a few members are looked
into where names alone do not tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

from packer.items.raw_item import Member, RawFile, RawItem, Scan
from packer.raw.containers import Containers
from packer.raw.files import RawFileError
from packer.sources.class_folders import are_sequences, classless, names_no_class
from packer.sources.class_names import ClassNames, check_any_class, class_names
from packer.sources.container_files import ContainerFiles, split_of_path, splits_of_paths
from packer.sources.detection.folders import folder_names, mask_folders, masks_beside
from packer.sources.detection.found import UNREAD
from packer.sources.detection.look import Listing, Look, shown_names
from packer.sources.flat import BESIDE_SPLITS
from packer.sources.imagefolder import BESIDE_CLASSES, NO_CLASSES, OTHER_CLASS
from packer.sources.masks.names import role_of
from packer.sources.pairing import split_path, stem_of
from packer.sources.siblings import find_parts, split_names
from packer.sources.splits import are_all_splits, ordered_splits, split_field
from packer.wording import names_text, readable_path
from readers.store.schema import Field
from readers.store.splits import canonical_split

_MASK_FOLDERS = frozenset(
    b"masks mask labels label annotations annotation annots gt groundtruth ground_truth gtfine "
    b"segmentation segmentations segmentationclass segmentationobject".split()
)
_STREAM_BYTES_MAX = 2**26
"""Members of larger compressed streams are not looked into: each costs reading all before it."""


@dataclass
class Picture:
    """A picture in an archive.

    Attributes:
        archive: The archive.
        key: Key of its item, whose last part is its name.
        folders: In the archive, without those that lie around everything.
        position: See `Member.position`.
        byte_count: Its size.
    """

    archive: RawFile
    key: bytes
    folders: tuple[bytes, ...]
    position: int
    byte_count: int

    @property
    def archive_stem(self) -> bytes:
        """Name of the archive without its extension."""
        return split_path(stem_of(self.archive.path))[1]

    def item(self, container: str, values: dict[str, object]) -> RawItem:
        """The raw item of the picture."""
        member = Member(container, self.archive.byte_count, self.position)
        archive = self.archive
        return RawItem(
            self.key, archive.path, self.byte_count, archive.mtime_ns, values, member=member
        )


@dataclass
class Layout:
    """What the folders of pictures say.

    Attributes:
        splits: Split of each picture, by key; empty where there are none.
        classes: Class folder of each picture, by key; empty where folders are no classes.
        left_out: Why a picture is not packed, by key.
        parts: What the folders are where they hold parts of samples; empty where they do not.
        notes: What was seen or chosen.
    """

    splits: dict[bytes, str] = field(default_factory=dict)
    classes: dict[bytes, bytes] = field(default_factory=dict)
    left_out: dict[bytes, str] = field(default_factory=dict)
    parts: str = ""
    notes: list[str] = field(default_factory=list)


def read_layout(
    root: bytes,
    pictures: Sequence[Picture],
    container: Callable[[Picture], str],
    given: tuple[str, ...] | None,
) -> Layout:
    """What the folders of pictures in archives say. Changes `folders`: wrappers are taken off.

    Args:
        root: Folder that the paths of the archives are relative to.
        pictures: Of all archives.
        container: How the archive of a picture is read, as `Member.container` has it.
        given: Classes that the user names; folders of these names are classes, whatever they hold.
    """
    wrappers = _strip_wrappers(pictures)
    layout = Layout()
    named = {os.fsencode(name) for name in given or ()}
    if named.isdisjoint(chain.from_iterable(picture.folders for picture in pictures)):
        layout.parts = _parts_text(root, pictures, container)
    depth = _read_splits(pictures, layout)
    if layout.parts:
        layout.left_out.clear()
        return layout
    _read_classes(pictures, depth, named, layout)
    if not layout.classes and len(wrappers) > 1 and not all(map(names_no_class, wrappers)):
        shown = names_text(map(readable_path, sorted(wrappers)))
        layout.notes.append(
            f"folders around all of an archive are not taken for classes: {shown}; if they are, "
            "unpack the archives into one folder and give that"
        )
    return layout


def _strip_wrappers(pictures: Iterable[Picture]) -> set[bytes]:
    """Take off the folders around everything in an archive; gives the first of each.

    One that is named like a split is none of them.
    """
    by_archive: dict[bytes, list[Picture]] = {}
    for picture in pictures:
        by_archive.setdefault(picture.archive.path, []).append(picture)
    found = set()
    for held in by_archive.values():
        count = 0
        # As deep as the flattest picture.
        for level in zip(*(picture.folders for picture in held), strict=False):
            if len(set(level)) > 1 or are_all_splits(level[:1]):
                break
            count += 1
        if count:
            found.add(held[0].folders[count - 1])
            for picture in held:
                picture.folders = picture.folders[count:]
    return found


def _read_splits(pictures: Sequence[Picture], layout: Layout) -> int:
    """Note the split of each picture; gives the depth of class folders.

    All the first folders are splits, or none; without, the names of the archives may speak of them.
    """
    tops = {picture.folders[0] for picture in pictures if picture.folders}
    if are_all_splits(tops):
        for picture in pictures:
            if picture.folders:
                layout.splits[picture.key] = readable_path(picture.folders[0])
                continue
            split = split_of_path(picture.archive.path)
            if split is not None:
                layout.splits[picture.key] = split
            else:
                layout.left_out[picture.key] = BESIDE_SPLITS
        return 1
    by_path, layout.notes = splits_of_paths({picture.archive.path: None for picture in pictures})
    layout.splits = {p.key: by_path[p.archive.path] for p in pictures if by_path}
    named = sorted(top for top in tops if canonical_split(os.fsdecode(top)) is not None)
    if named:
        shown = names_text(map(readable_path, named))
        layout.notes.append(
            f"not taken for splits, although named like them: {shown}; other folders beside them "
            "hold pictures too"
        )
    return 0


def _read_classes(
    pictures: Sequence[Picture], depth: int, named: set[bytes], layout: Layout
) -> None:
    """Note the class folder of each picture, if folders are classes, and what has none."""
    groups: dict[str, set[bytes]] = {}
    below: dict[tuple[bytes, ...], set[tuple[bytes, ...]]] = {}
    for p in pictures:
        if len(p.folders) > depth:
            groups.setdefault(layout.splits.get(p.key, ""), set()).add(p.folders[depth])
            below.setdefault(p.folders[: depth + 1], set()).add(p.folders[depth + 1 :])
    if are_sequences(below.values()):
        layout.notes.append(
            f"not taken for classes, since each is a sequence of frames: {_names(groups.values())}"
        )
        return
    passed = classless(groups.values()) - named
    if passed:
        layout.notes.append(f"not taken for classes, since they name none: {_names([passed])}")
    classes: dict[bytes, bytes] = {}
    for p in pictures:
        folders = p.folders[depth:]
        if folders and folders[0] in passed:
            folders = () if len(folders) == 1 or names_no_class(folders[1]) else folders[1:]
        if folders:
            classes[p.key] = folders[0]
    # Below splits, a folder around everything is no wrapper.
    if len(set(classes.values())) < 2 - depth:
        if classes:
            layout.notes.append(
                f"unlabelled: one folder alone may be a class ({_names([classes.values()])}), so "
                "that folders were not taken for classes"
            )
        return
    if len(set(classes.values())) == 1:
        layout.notes.append(f"only one class: {_names([classes.values()])}")
    layout.classes = classes
    labelled = {layout.splits.get(key, "") for key in classes}
    for p in pictures:
        if p.key not in classes and p.key not in layout.left_out:
            has_classes = layout.splits.get(p.key, "") in labelled
            layout.left_out[p.key] = BESIDE_CLASSES if has_classes else NO_CLASSES


def pack(
    format_name: str,
    found: ContainerFiles,
    layout: Layout,
    pictures: Sequence[Picture],
    container: Callable[[Picture], str],
    given: tuple[str, ...] | None,
    last_notes: Iterable[str] = (),
) -> Scan:
    """The scan of pictures in archives; those of no given class are ignored.

    Args:
        format_name: The source's name.
        found: The archives, and what was met beside their pictures.
        layout: From `read_layout`.
        pictures: Of all archives. Those that the layout leaves out are counted as ignored.
        container: How the archive of a picture is read, as `Member.container` has it.
        given: Classes that the user names.
        last_notes: Of what else is in the archives.
    """
    findings = found.findings
    findings.notes += layout.notes
    for picture in pictures:
        reason = layout.left_out.get(picture.key)
        if reason is not None:
            findings.ignore(reason, [picture.key])
    findings.note_ignored(BESIDE_SPLITS, BESIDE_CLASSES, NO_CLASSES)
    findings.notes += last_notes
    classes: ClassNames | None = None
    if layout.classes:
        folders = {readable_path(name) for name in layout.classes.values()}
        if given is not None:
            check_any_class(found.root, given, folders)
        classes = class_names(folders, given)
    splits = ordered_splits(layout.splits.values())
    for picture in pictures:
        if picture.key in layout.left_out:
            continue
        values: dict[str, object] = {}
        if classes is not None:
            class_name = readable_path(layout.classes[picture.key])
            label = classes.label(class_name)
            if label is None:
                findings.ignore(OTHER_CLASS, [picture.key])
                continue
            values["label"] = label
        if splits:
            values["split"] = splits.index(layout.splits[picture.key])
        findings.items.append(picture.item(container(picture), values))
    findings.note_ignored(OTHER_CLASS)
    names = classes.names if classes is not None else ()
    fields = [Field(name="label", kind="label", dtype="int64", names=names)] if names else []
    fields += [split_field(splits)] if splits else []
    return findings.as_scan(
        format_name, found.root, classes=names, splits=splits, fields=tuple(fields)
    )


def _names(groups: Iterable[Iterable[bytes]]) -> str:
    return names_text(map(readable_path, sorted(set(chain.from_iterable(groups)))))


def mask_folders_text(pictures: Sequence[Picture]) -> str:
    """Folders and archives that are called like those of masks or labels; empty without any."""
    masks = {f for p in pictures for f in p.folders if f.lower() in _MASK_FOLDERS}
    # `images.zip` and `masks.zip` are as two folders. One alone holds what it holds.
    stems = {picture.archive_stem for picture in pictures}
    of_masks = {stem for stem in stems if role_of(stem).holds_masks}
    if of_masks and of_masks != stems:
        masks |= {split_path(p.archive.path)[1] for p in pictures if p.archive_stem in of_masks}
    return f"folders of masks or labels ({_names([masks])})" if masks else ""


# --- parts of samples -----------------------------------------------------------------------------


def _parts_text(
    root: bytes, pictures: Sequence[Picture], container: Callable[[Picture], str]
) -> str:
    """What folders are that hold masks or other parts of samples; empty where none do."""
    folders: dict[bytes, list[bytes]] = {}
    # `left.zip` and `right.zip` are as two folders.
    has_several = len({picture.archive.path for picture in pictures}) > 1

    def folder_of(picture: Picture) -> bytes:
        parts = (stem_of(picture.archive.path),) if has_several else ()
        return b"/".join((*parts, *picture.folders))

    for picture in pictures:
        folders.setdefault(folder_of(picture), []).append(split_path(picture.key)[1])
    # Nothing is below a file, so that none beside the archive is taken for one in it.
    look = _look(os.path.join(root, pictures[0].archive.path) if pictures else root, folders)
    for evidence in chain(mask_folders(look), folder_names(look), masks_beside(look)):
        return f"what is packed as {evidence.format} from folders on a disk ({evidence.seen})"
    with closing(Containers(root)) as containers:

        def read(path: bytes) -> bytes:
            # Few are read, and a table of a million would take more than to look for these.
            folder, name = split_path(path)
            picture = next(
                p for p in pictures if folder_of(p) == folder and split_path(p.key)[1] == name
            )
            kind = container(picture)
            if kind == "tgz" and picture.archive.byte_count > _STREAM_BYTES_MAX:
                raise OSError("a large compressed stream")
            try:
                data = containers.read(picture.item(kind, {}))
            except RawFileError as error:
                raise OSError(str(error)) from error
            assert isinstance(data, bytes)
            return data

        found = find_parts(read, folders)
    if found is not None:
        return f"{UNREAD['sample-parts'][0]} ({found.text})"
    named = split_names(folders)
    if named:
        return f"{UNREAD['split-names'][0]} ({shown_names(named)})"
    return ""


def _look(root: bytes, folders: dict[bytes, list[bytes]]) -> Look:
    """The folders as a look at a raw folder has them."""
    listings = {b"": Listing(b"")}
    for path, names in sorted(folders.items()):
        parts = path.split(b"/") if path else []
        above = listings[b""]
        for n, part in enumerate(parts):
            here = b"/".join(parts[: n + 1])
            if here not in listings:
                listings[here] = Listing(here)
                above.folders.append(part)
            above = listings[here]
        above.pictures = sorted(names)
    return Look(root, list(listings.values()), has_pictures=True)
