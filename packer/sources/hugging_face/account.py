"""What is met while the rows of Hugging Face tables are read, and the notes that say it."""

from __future__ import annotations

from dataclasses import dataclass, field

from packer.sources.container_files import ContainerFiles
from packer.sources.hugging_face.columns import Columns
from packer.sources.hugging_face.labels import Labels
from packer.sources.source import SourceOptions
from packer.sources.turned_boxes import angle_note
from packer.wording import count_text, names_text


@dataclass
class Account:
    """What was met while rows were read, beside the items that they gave.

    Attributes:
        found: The tables and the files beside them; what rows lose is added to its findings.
        columns: Of all tables.
        options: What the source was asked for.
        used_pictures: Paths of pictures that are not in the tables.
        empty_texts: How many rows have no text, by column.
        box_count: How many boxes were taken.
        corner_like_count: How many of them read as two corners as well.
        angle_column: Name of a column of angles of boxes, which is not read.
        angle_count: How many boxes have one there.
        unread_parts: How many objects have each part that is not read, by its column.
    """

    found: ContainerFiles
    columns: Columns
    options: SourceOptions
    used_pictures: set[bytes] = field(default_factory=set)
    empty_texts: dict[str, int] = field(default_factory=dict)
    box_count: int = 0
    corner_like_count: int = 0
    angle_column: str = ""
    angle_count: int = 0
    unread_parts: dict[str, int] = field(default_factory=dict)


def account_notes(account: Account, labels: list[Labels]) -> list[str]:
    """What was read and what not, and what was taken for granted."""
    columns = account.columns
    notes = [f"columns read: {names_text([columns.image, *columns.read])}"]
    if columns.unread:
        notes.append(f"columns not read: {names_text(columns.unread)}")
    renamed = [
        f"{column!r} as {field_name}"
        for column, field_name, *_ in (*columns.texts, *columns.numbers)
        if column != field_name
    ]
    if renamed:
        notes.append(f"columns stored under another name: {', '.join(renamed)}")
    for column, count in account.empty_texts.items():
        notes.append(f"{count_text(count, 'row')} without {column!r} (null): stored as empty text")
    if columns.objects is not None:
        note = (
            f"boxes in {columns.objects.column}.{columns.objects.boxes} taken as x, y, width, "
            "height, as is the convention of Hugging Face: the data does not say"
        )
        if account.box_count > 20 and account.corner_like_count == account.box_count:
            note += (
                f"; but in all {account.box_count} of them the third and fourth number are larger "
                "than the first and second, as in x0, y0, x1, y1. Look at some: packer get STORE 0"
            )
        notes += [
            f"{path!r} of {count_text(count, 'object')} not read, not packed"
            for path, count in account.unread_parts.items()
            if count
        ]
        notes += [note, *angle_note(account.angle_column, account.angle_count)]
    for each in labels:
        notes += each.notes
    return notes
