"""One shard, start to finish: reads its items, prepares them, writes, syncs, moves into place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import RejectedItemError
from packer.prepare import Prepared, prepare_image
from packer.recipe import Recipe
from packer.sources.items import RawItem, Reject
from packer.sources.walk import readable_path
from packer.workspace import TaskPlan, TaskReport, Workspace
from readers.store.codecs import OriginalImage
from readers.store.errors import CodecError, ImageError
from readers.store.layout import shard_name
from readers.store.manifest import sync_folder
from readers.store.record import RecordLayout
from readers.store.schema import Schema
from readers.store.shard import ShardWriter


def build_shard(
    workspace: Workspace,
    number: int,
    scratch: Path,
    on_progress: Callable[[int], None] = lambda done: None,
) -> TaskReport:
    """Make one shard of a planned build. The same items and recipe give the same bytes.

    Args:
        workspace: Of the build.
        number: Which shard.
        scratch: Folder to write it in, on a file system that may carry a live LMDB file.
        on_progress: Told how many of the items are done, after each.

    Raises:
        RejectedItemError: An item was rejected, and the plan says to stop at the first.
        OSError: The shard cannot be written.
    """
    plan = workspace.read_task_plan()
    items = workspace.read_items(number)
    recipe = Recipe(**plan.recipe)
    schema = msgspec.convert(plan.schema, Schema)
    report = TaskReport()
    path = scratch / shard_name(number)
    path.unlink(missing_ok=True)  # A build that was killed may have left it.
    writer = ShardWriter(path, RecordLayout.of(schema))
    try:
        for done, item in enumerate(items, 1):
            reason = _add(writer, item, plan, recipe, report)
            if reason is not None:
                reject = Reject(key=item.key, path=readable_path(item.path), reason=reason)
                report.rejects.append(reject)
                if plan.stops_at_reject:
                    raise RejectedItemError(f"{reject.path}: {reason}")
            on_progress(done)
        if writer.sample_count == 0:
            writer.abort()
        else:
            report.shard = writer.seal()
    except BaseException:
        writer.abort()
        raise
    if report.shard is not None:
        _move(path, workspace.store / path.name)
    workspace.write_report(number, report)
    return report


def _add(
    writer: ShardWriter, item: RawItem, plan: TaskPlan, recipe: Recipe, report: TaskReport
) -> str | None:
    """Add the sample of one item, or say why it cannot be one."""
    try:
        data = _read(os.path.join(plan.root, item.path), item)
        prepared = prepare_image(data, recipe)
        writer.add(item.key, _values(item, prepared))
    except (ImageError, CodecError) as error:
        return str(error)
    except _ReadError as error:
        return str(error)
    for name, counts in (("label", report.label_counts), ("split", report.split_counts)):
        if name in item.values:
            value = item.values[name]
            counts[value] = counts.get(value, 0) + 1
    if prepared.extra_frame_count:
        report.extra_frame_counts[item.path] = prepared.extra_frame_count
    return None


class _ReadError(Exception):
    """A raw file cannot be read, or is not the one that the plan saw."""


def _read(path: bytes, item: RawItem) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:
            found = os.fstat(stream.fileno())
            if (found.st_size, found.st_mtime_ns) != (item.byte_count, item.mtime_ns):
                raise _ReadError(
                    "the file changed while the build ran; run the build again when it is at rest"
                )
            # One byte more than there should be: a regular file is read in one call, and one that
            # grows meanwhile is noticed.
            data = stream.read(item.byte_count + 1) or b""
            while 0 < len(data) < item.byte_count and (
                more := stream.read(item.byte_count - len(data))
            ):
                data += more
    except OSError as error:
        raise _ReadError(f"cannot be read: {error.strerror}") from error
    if len(data) != item.byte_count:
        raise _ReadError(f"{len(data)} bytes could be read, expected {item.byte_count}")
    return data


def _values(item: RawItem, prepared: Prepared) -> dict[str, Any]:
    image: Any = prepared.image
    if isinstance(image, bytes):
        image = OriginalImage(image, prepared.size, prepared.dtype, prepared.orientation)
    return {
        "key": item.key,
        "image": image,
        "original_size": _int32(prepared.original_size),
        "transform": prepared.transform,
        **item.values,
    }


def _int32(values: tuple[int, ...]) -> Any:
    import numpy as np

    return np.array(values, np.int32)


def _move(path: Path, final: Path) -> None:
    """Put a sealed shard in place: a rename, or a copy that is synced before it has its name."""
    try:
        os.replace(path, final)
    except OSError:
        aside = final.with_name(final.name + ".partial")
        with open(path, "rb") as source, open(aside, "wb") as copy:
            shutil.copyfileobj(source, copy, 2**24)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(aside, final)
        path.unlink()
    sync_folder(final.parent)
