"""Images of files that can only be read forward, where the order of a build jumps among them.

`--shuffle` is such an order. An image in the middle of a .tgz costs all that is compressed before
it, one of a Parquet file its whole row group. So these files are read once, forward, and their
images copied into one file on a local disk, the spool, which the tasks read in any order. Only the
tasks know of it: the plan, its facts, the rejects and `update-cache` are about the raw files, and
the samples are the same to the byte. In the order of the raw data nothing is copied.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer.errors import BuildError, NoSpaceError
from packer.files.sizes import picture_bytes_max
from packer.items.item_columns import are_plain_files
from packer.items.raw_item import RawItem
from packer.plan.estimate import store_bytes
from packer.plan.shards import BuildPlan
from packer.raw.containers import Containers, is_forward_only
from packer.raw.files import RawFileError
from packer.raw.spool import SPOOLED_OVERHEAD_BYTES, spooled_item, write_spooled
from packer.wording import count_text, names_text, readable_path, size_text
from packer.workspace.folder import Workspace
from packer.workspace.scratch import member_spool_folder, spool_base
from packer.workspace.space import missing_room
from readers.store.errors import ImageError


@contextlib.contextmanager
def spooled(
    workspace: Workspace,
    plan: BuildPlan,
    numbers: Sequence[int],
    scratch: str | Path | None,
    on_notice: Callable[[str], None],
) -> Iterator[None]:
    """Have tasks read copies of the images that their order jumps to, as long as the context lasts.

    Args:
        workspace: Of the build; its tasks are written anew where images are copied.
        plan: The build's plan.
        numbers: The shards that are to be made.
        scratch: Folder that the user gave for what is written on the way.
        on_notice: Told what is copied, before it takes its time.

    Raises:
        NoSpaceError: There is no room for the copies.
        OSError: They cannot be written.
    """
    with member_spool_folder(workspace, scratch) as folder:
        jumped = _jumped_files(plan, numbers)
        if jumped:
            _check_space(workspace, plan, numbers, scratch, jumped)
            count = sum(map(len, jumped.values()))
            on_notice(
                f"{_these(jumped)} can only be read forward, and the store has another order: "
                f"{count_text(count, 'image')} of {size_text(_spool_bytes(plan, jumped))} are "
                f"copied to {folder} first."
            )
            folder.mkdir()
            path = folder / "images"
            places = _copy(plan, jumped, path)
            workspace.write_tasks(
                (
                    [_item(plan, at, path, places) for at in range(first, end)]
                    for first, end in plan.cuts
                ),
                plan.names,
            )
        yield


def check_spool_space(
    workspace: Workspace, plan: BuildPlan, numbers: Sequence[int], scratch: str | Path | None
) -> None:
    """See that there is room for what `spooled` will copy, before a build is begun.

    Raises:
        NoSpaceError: There is none.
    """
    jumped = _jumped_files(plan, numbers)
    if jumped:
        with member_spool_folder(workspace, scratch):  # What a killed build left is no room taken.
            _check_space(workspace, plan, numbers, scratch, jumped)


def check_forward(plan: BuildPlan) -> None:
    """Refuse a build that would need copies, where several nodes are to make its shards.

    Raises:
        BuildError: It would.
    """
    jumped = _jumped_files(plan, range(len(plan.cuts)))
    if jumped:
        raise BuildError(
            f"{plan.scan.root}: {_these(jumped)} can only be read forward, and the store has "
            "another order: each node would have to read all of it. Leave out --shuffle (training "
            "shuffles as it reads), unpack the file, or build on one machine."
        )


def _jumped_files(plan: BuildPlan, numbers: Sequence[int]) -> dict[bytes, list[int]]:
    """Positions of the items of each file that can only be read forward, and is not."""
    if are_plain_files(plan.scan.items):
        return {}
    root = os.path.abspath(plan.scan.root)
    found: dict[bytes, list[int]] = {}
    is_forward: dict[bytes, bool] = {}
    jumped: set[bytes] = set()
    last = b""  # The file that a build worker would have open.
    for at in _positions(plan, numbers):
        item = plan.scan.items[at]
        member, path = item.member, item.path
        if member is None:
            continue
        if path not in is_forward:
            is_forward[path] = is_forward_only(Path(root, os.fsdecode(path)), member)
        if is_forward[path]:
            places = found.setdefault(path, [])
            if places and path not in jumped:
                before = plan.scan.items[places[-1]].member
                assert before is not None
                if path != last or member.position < before.position:
                    jumped.add(path)
            places.append(at)
        last = path
    return {path: found[path] for path in sorted(jumped)}


def _positions(plan: BuildPlan, numbers: Sequence[int]) -> Iterator[int]:
    for number in numbers:
        yield from range(*plan.cuts[number])


def _copy(plan: BuildPlan, jumped: dict[bytes, list[int]], path: Path) -> NDArray[np.int64]:
    """Copy images to a spool. Where that of each item lies, or -1 when it is not there."""
    items = plan.scan.items
    places = np.full(len(items), -1, np.int64)
    root = os.fsencode(os.path.abspath(plan.scan.root))
    containers = Containers(root, picture_bytes_max(plan.recipe.pixels_max))
    found: bytes | NDArray[np.uint8] | ImageError
    end = 0
    try:
        with contextlib.closing(containers), open(path, "wb") as spool:
            for positions in jumped.values():
                for at in sorted(positions, key=lambda at: _place(items[at])):
                    try:
                        found = containers.read(items[at])
                    except ImageError as error:
                        found = error
                    except RawFileError:
                        continue  # It may be past when the task tries.
                    places[at] = end
                    end += write_spooled(spool, found)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    return places


def _place(item: RawItem) -> int:
    assert item.member is not None
    return item.member.position


def _item(plan: BuildPlan, at: int, path: Path, places: NDArray[np.int64]) -> RawItem:
    item, place = plan.scan.items[at], int(places[at])
    return item if place < 0 else spooled_item(item, path, place)


def _spool_bytes(plan: BuildPlan, jumped: dict[bytes, list[int]]) -> int:
    return sum(
        plan.scan.items[at].byte_count + SPOOLED_OVERHEAD_BYTES
        for positions in jumped.values()
        for at in positions
    )


def _check_space(
    workspace: Workspace,
    plan: BuildPlan,
    numbers: Sequence[int],
    scratch: str | Path | None,
    jumped: dict[bytes, list[int]],
) -> None:
    base = spool_base(workspace, scratch)
    need = spool = _spool_bytes(plan, jumped)
    beside = ""
    if os.stat(base).st_dev == os.stat(workspace.folder).st_dev:
        sizes = [plan.record_bytes[slice(*plan.cuts[number])] for number in numbers]
        store = store_bytes(np.concatenate(sizes))
        need += store
        beside = f", beside {store:,} of the store"
    reason = missing_room(
        base,
        need,
        folder=base,
        what=(
            f"{_these(jumped)} can only be read forward, so to store the images in another order "
            f"they are copied first. That takes {spool:,} bytes there{beside}"
        ),
        remedy=lambda free: (
            "Free some, name a folder on another disk with --scratch, or leave out --shuffle: "
            "training shuffles as it reads."
        ),
    )
    if reason is not None:
        raise NoSpaceError(reason)


def _these(jumped: dict[bytes, list[int]]) -> str:
    return names_text(map(readable_path, jumped))
