"""Names that raw data gives to splits, and what they mean. Both sides go by this table."""

from __future__ import annotations

from typing import Literal

Split = Literal["train", "val", "test"]

SPLIT_ALIASES: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "train2014": "train",
    "train2017": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "val2014": "val",
    "val2017": "val",
    "minival": "val",
    "minival2014": "val",
    "test": "test",
    "testing": "test",
    "test2014": "test",
    "test2015": "test",
    "test2017": "test",
}
"""Every name that is taken for a split, in lower case."""

SPLITS_MAX = 255
"""A sample's split is one byte."""


def canonical_split(name: str) -> Split | None:
    """Which of train, val and test a name means, whatever its case; None when it is of no split."""
    return SPLIT_ALIASES.get(name.strip().lower())
