"""One shard, start to finish: reads its items, prepares them, writes, syncs, moves into place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from packer.counts import count_values
from packer.errors import RejectedItemError
from packer.files.sizes import picture_bytes_max
from packer.items.annotations import unpack_annotations
from packer.items.raw_item import RawItem, Reject, item_place
from packer.pictures.sample_maker import SampleMaker
from packer.pictures.statistics import PixelCounter
from packer.raw.containers import Containers
from packer.raw.files import RawFileError
from packer.raw.read_ahead import Files, ReadAhead, content_digest
from packer.recipe import Recipe
from packer.workspace.folder import TaskReport, Workspace
from packer.workspace.place import fresh_name, move_into_place
from readers.store.errors import CodecError, ImageError
from readers.store.record import RecordLayout
from readers.store.schema import Schema
from readers.store.shard import ShardWriter


def build_shard(
    workspace: Workspace,
    number: int,
    scratch: Path,
    on_progress: Callable[[int], None] = lambda done: None,
    lost: Mapping[int, str] = MappingProxyType({}),
    containers: Containers | None = None,
) -> TaskReport:
    """Make one shard of a planned build. The same items and recipe give the same bytes.

    Args:
        workspace: The build's workspace.
        number: Which shard.
        scratch: Folder to write it in, on a file system that may carry a live LMDB file.
        on_progress: Told how many of the items are done, after each.
        lost: Items that are not to be touched, by position, and why they are rejects.
        containers: Reads items of files that hold many, and stays open for the next shard: one that
            can only be read forward then goes on where this shard ended. None opens its own.

    Raises:
        RejectedItemError: An item was rejected, and the plan says to stop at the first.
        OSError: The shard cannot be written.
    """
    plan = workspace.read_task_plan()
    task = workspace.read_task(number)
    items = task.items
    schema = msgspec.convert(plan.schema, Schema)
    recipe = Recipe(**plan.recipe)
    maker = SampleMaker(plan.root, schema, recipe, plan.mask_colors, containers)
    bytes_max = picture_bytes_max(recipe.pixels_max)
    report = TaskReport(may_pass=bool(lost))
    counter = PixelCounter(report.tally)
    contents = bytearray()
    path = scratch / task.name
    path.unlink(missing_ok=True)  # A build that was killed may have left it.
    writer = ShardWriter(path, RecordLayout.of(schema))
    try:
        with maker, ReadAhead(plan.root, items, lost, bytes_max=bytes_max) as reader:
            for done, item in enumerate(items, 1):
                reason = lost.get(done - 1)
                files: Files = {}
                if reason is None:
                    files = reader.files(done - 1)
                    reason = _add(writer, item, files, maker, report, counter)
                contents += content_digest(files)
                if reason is not None:
                    if item.annotations:
                        objects = unpack_annotations(item.annotations).objects
                        report.lost_object_count += len(objects)
                    reject = Reject(key=item.key, path=item_place(item), reason=reason)
                    report.rejects.append(reject)
                if plan.stops_at_reject:
                    _stop_at_first(report)
                on_progress(done)
        counter.flush()
        report.contents = bytes(contents)
        if writer.sample_count == 0:
            writer.abort()
        else:
            report.shard = writer.seal()
    except BaseException:
        writer.abort()
        raise
    attempt = ""
    if report.shard is not None:
        if plan.is_shared:
            attempt = fresh_name(path.name)
        move_into_place(
            path, workspace.placed / attempt if attempt else workspace.store / path.name
        )
    workspace.write_report(number, report, plan_id=plan.id, attempt=attempt)
    return report


def _stop_at_first(report: TaskReport) -> None:
    for reject in (*report.rejects, *report.annotation_rejects):
        raise RejectedItemError(f"{reject.path}: {reject.reason}")


def _add(
    writer: ShardWriter,
    item: RawItem,
    files: Files,
    maker: SampleMaker,
    report: TaskReport,
    counter: PixelCounter,
) -> str | None:
    """Add the sample of one item, or say why it cannot be one."""
    try:
        sample = maker.make(item, files)
        writer.add(item.key, sample.values)
    except (ImageError, CodecError) as error:
        report.may_pass |= isinstance(error.__cause__, MemoryError)
        return str(error)
    except RawFileError as error:
        report.may_pass |= error.may_pass
        return str(error)
    for place, reason in sample.objects.rejects:
        shown = f"{item_place(item)}: {place}"
        report.annotation_rejects.append(Reject(key=item.key, path=shown, reason=reason))
    for place, part, reason in sample.objects.lost_parts:
        shown = f"{item_place(item)}: {place}, {part}"
        reject = Reject(key=item.key, path=shown, reason=reason, part=part)
        report.annotation_rejects.append(reject)
    report.overhang_count += sample.objects.overhang_count
    report.object_count += len(sample.values.get("boxes", ()))
    for name, counts in (
        ("label", report.label_counts),
        ("labels", report.label_counts),
        ("split", report.split_counts),
    ):
        if name in sample.values:
            count_values(counts, sample.values[name])
    image = sample.image
    counter.add(image.pixels, image.original_size)
    if image.extra_frame_count:
        report.extra_frame_counts[item.path] = image.extra_frame_count
    return None
