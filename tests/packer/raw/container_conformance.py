"""What every kind of file that holds many images must hold, whoever reads it.

A kind's test class inherits `ContainerConformance`, says its `kind`, and writes such a file.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from packer.items.raw_item import RawItem
from packer.raw.container import CHANGED
from packer.raw.containers import CONTAINERS, Container, Containers
from packer.raw.files import RawFileError
from packer.sources import SourceOptions, scan_source
from readers.store.errors import ImageError

Content = bytes | NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A file of many images.

    Attributes:
        path: The raw file.
        items: Its images, in the order of the file.
        contents: What each holds.
        data_path: The file that the images are read from: the raw file, but for a copy of it.
    """

    path: Path
    items: list[RawItem]
    contents: list[Content]
    data_path: Path

    def open(self) -> Container:
        """The container of the file."""
        member = self.items[0].member
        assert member is not None
        return CONTAINERS[member.container](self.path)


def at(item: RawItem, position: int) -> RawItem:
    """An item whose image is said to lie elsewhere in its file."""
    assert item.member is not None
    return msgspec.structs.replace(
        item, member=msgspec.structs.replace(item.member, position=position)
    )


def as_file_is(item: RawItem, path: Path) -> RawItem:
    """An item as a scan of the file would stamp it that saw the file as it is now."""
    assert item.member is not None
    status = path.stat()
    member = msgspec.structs.replace(item.member, file_byte_count=status.st_size)
    return msgspec.structs.replace(item, member=member, mtime_ns=status.st_mtime_ns)


def same(found: Content, expected: Content) -> bool:
    """Whether two contents are equal, and of one type."""
    if isinstance(found, bytes) or isinstance(expected, bytes):
        return type(found) is type(expected) and found == expected
    return found.dtype == expected.dtype and np.array_equal(found, expected)


def open_descriptors(path: Path) -> int:
    """How often this process has a file open."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and os.readlink(link) == str(path) for link in links)


class ContainerConformance:
    """Laws of a container. The file has at least six images, no two alike."""

    kind: str

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        """Write a file into a folder: its path, and what it holds, in the order of the file."""
        raise NotImplementedError

    def make(self, folder: Path) -> Made:
        """A written file as its source finds it."""
        path, contents = self.write(folder)
        items = scan_source(folder, SourceOptions()).items
        items.sort(key=lambda item: -1 if item.member is None else item.member.position)
        return Made(path=path, items=items, contents=contents, data_path=path)

    @pytest.fixture
    def made(self, tmp_path: Path) -> Made:
        folder = tmp_path / "raw"
        folder.mkdir()
        made = self.make(folder)
        assert [item.member and item.member.container for item in made.items] == [self.kind] * len(
            made.contents
        )
        assert len(made.items) >= 6
        return made

    @pytest.fixture
    def opened(self, made: Made) -> Iterator[Container]:
        container = made.open()
        yield container
        container.close()

    def test_images_are_those_that_were_written(self, made, opened):
        """In the order of the file, which is the order of most builds."""
        for item, content in zip(made.items, made.contents, strict=True):
            assert same(opened.read(item), content)

    def test_an_image_does_not_depend_on_those_read_before(self, made, opened):
        """Backwards, in any order, and several times in a row."""
        order = [*reversed(range(len(made.items))), 0, 0, len(made.items) - 1]
        order += random.Random(3).choices(range(len(made.items)), k=20)
        for number in order:
            assert same(opened.read(made.items[number]), made.contents[number]), order

    @pytest.mark.parametrize("far", [10**6, 2**40, 2**62])
    def test_a_place_past_the_end_is_an_error_of_that_image_alone(self, made, opened, far):
        """It has a reason, and the next image is read as before."""
        with pytest.raises((ImageError, RawFileError)) as caught:
            opened.read(at(made.items[1], far))
        assert str(caught.value)
        assert same(opened.read(made.items[2]), made.contents[2])
        assert same(opened.read(made.items[0]), made.contents[0])

    @pytest.mark.parametrize("kept", [0, 0.02, 0.5, 0.97])
    def test_a_file_that_was_cut_short_gives_right_images_or_reasons(self, made, kept):
        """Never other bytes; and what lies behind the cut cannot be there."""
        os.truncate(made.data_path, int(made.data_path.stat().st_size * kept))
        problems = []
        for number, item in enumerate(made.items):
            try:
                with closing(made.open()) as container:
                    found = container.read(as_file_is(item, made.path))
                assert same(found, made.contents[number])
            except (ImageError, RawFileError):
                problems.append(number)
        assert problems == list(range(len(made.items)))[len(made.items) - len(problems) :]
        assert problems or kept > 0.5  # Archives end with a directory, which is not read again.
        assert open_descriptors(made.path) == open_descriptors(made.data_path) == 0

    def test_a_file_that_changed_since_the_scan_is_not_read(self, made, opened):
        """Of another time or another size: its images are not those that the plan knows."""
        assert same(opened.read(made.items[0]), made.contents[0])
        times = made.path.stat()
        os.utime(made.path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
        with pytest.raises(ImageError, match=CHANGED):
            opened.read(made.items[1])
        with open(made.path, "ab") as file:
            file.write(b"\0")
        os.utime(made.path, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(ImageError, match=CHANGED):
            opened.read(made.items[1])

    @pytest.mark.parametrize("how", ["removed", "a folder"])
    def test_a_file_that_is_not_there_any_more_is_told(self, made, how):
        """By a reason, not by an error of the system that would end the build."""
        made.path.unlink()
        if how == "a folder":
            made.path.mkdir()
        with (
            closing(Containers(os.fsencode(made.path.parent))) as containers,
            pytest.raises((ImageError, RawFileError)) as caught,
        ):
            containers.read(made.items[0])
        assert str(caught.value)

    def test_it_can_be_closed_twice_and_keeps_nothing_open(self, made):
        """Before anything was read too."""
        for count in (0, 1, len(made.items)):
            container = made.open()
            for item in made.items[:count]:
                container.read(item)
            container.close()
            container.close()
            assert open_descriptors(made.path) == open_descriptors(made.data_path) == 0

    def test_an_image_that_is_too_large_is_refused(self, made):
        """By its size in the scan, or else by what was read of it; smaller ones still come."""
        sizes = [item.byte_count for item in made.items]
        with closing(Containers(os.fsencode(made.path.parent), max(sizes))) as containers:
            for item, content in zip(made.items, made.contents, strict=True):
                assert same(containers.read(item), content)
        with closing(Containers(os.fsencode(made.path.parent), min(sizes) - 1)) as containers:
            for item in made.items:
                with pytest.raises(ImageError, match="bytes"):
                    containers.read(item)

    def test_no_more_memory_is_asked_for_than_the_file_can_fill(self, made, opened):
        """A size that a damaged file or a scan claims is not believed: 1 PiB fits nowhere."""
        huge = msgspec.structs.replace(made.items[1], byte_count=2**50)
        with contextlib.suppress(ImageError, RawFileError):
            assert same(opened.read(huge), made.contents[1])
        assert same(opened.read(made.items[2]), made.contents[2])
