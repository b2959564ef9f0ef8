"""Raw items -> shards, before any pixel is decoded: a pure function of the data and the recipe."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.items.raw_item import RawItem, Scan
from packer.pictures.geometry import known_size
from packer.plan.arrange import arranged
from packer.plan.cuts import cut_items, shard_bytes_limit
from packer.plan.estimate import CHANNEL_COUNTS, Estimator, recipe_for_target, store_bytes
from packer.policies import POLICIES
from packer.recipe import Recipe
from readers.store.layout import shard_name
from readers.store.schema import Field, ImageCodec, Schema

_DIGESTED_TOGETHER = 1024


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """What a build will do.

    Attributes:
        recipe: The settings.
        scan: What the source found.
        schema: The fields of a sample.
        cuts: (first, end) of each shard's items.
        names: File name of each shard.
        record_bytes: Estimated size of each item's record, int64.
        shard_bytes: A shard is cut before it is estimated to grow past this.
        byte_count: Estimated size of the store.
        source_sha256: Digest over key, size and values of every raw item, in hex.
        state_sha256: The same with the times of their last change: whether a build can go on.
    """

    recipe: Recipe
    scan: Scan
    schema: Schema
    cuts: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    record_bytes: NDArray[np.int64]
    shard_bytes: int
    byte_count: int
    source_sha256: str
    state_sha256: str

    def facts(self) -> dict[str, Any]:
        """What must be the same for an unfinished build to be finished by this one, by name."""
        return {
            "recipe": self.recipe.as_dict(),
            "format": self.scan.format,
            "raw data": self.state_sha256,
            "schema": self.schema.as_builtins(),
            "library versions": library_versions(),
            "shards": [[name, *cut] for name, cut in zip(self.names, self.cuts, strict=True)],
        }


def library_versions() -> dict[str, str]:
    """Versions of the libraries whose pixels and bytes end up in a store, by name."""
    return {
        "lmdb": version("lmdb"),
        "numpy": version("numpy"),
        "opencv-python-headless": _opencv_version(),
        "pillow": version("pillow"),
    }


def _opencv_version() -> str:
    """Of its wheel, which says which libjpeg is in it; else, of another build, its own."""
    try:
        return version("opencv-python-headless")
    except PackageNotFoundError:
        import cv2

        return str(cv2.__version__)


def make_schema(scan: Scan, recipe: Recipe) -> Schema:
    """The fields of a sample of a build."""
    channel_count = CHANNEL_COUNTS[recipe.mode]
    sides = known_size(scan.image_size, recipe)
    image = Field(
        name="image",
        kind="image",
        dtype=None if recipe.mode == "unchanged" else "uint8",
        shape=(*sides, channel_count),
        codec=POLICIES[recipe.image].codec,
        mode=None if recipe.image == "raw" else recipe.mode,
    )
    return Schema(
        (
            Field(name="key", kind="text"),
            image,
            *(_stored_field(field, sides, recipe) for field in scan.fields),
            Field(name="original_size", kind="array", dtype="int32", shape=(2,)),
            Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
        )
    )


def _stored_field(field: Field, sides: tuple[int | None, int | None], recipe: Recipe) -> Field:
    """A source's field as it is stored: a mask has the images' size, and loses no id."""
    if field.kind != "mask":
        return field
    codec: ImageCodec | None = None if recipe.image == "raw" else "png"
    return msgspec.structs.replace(field, shape=sides, codec=codec)


def make_plan(scan: Scan, recipe: Recipe) -> BuildPlan:
    """Cut the items of a scan into shards.

    Raises:
        SourceError: Nothing is left of what the recipe chooses, or it cannot be split.
        BuildError: Nothing fits into the recipe's budget.
    """
    scan = arranged(scan, recipe)
    estimator = Estimator(scan)
    recipe = recipe_for_target(scan, recipe, lambda one: store_bytes(estimator.record_bytes(one)))
    sizes = estimator.record_bytes(recipe)
    limit = shard_bytes_limit(int(sizes.sum()), recipe.shard_bytes_max)
    cuts = cut_items(sizes, limit)
    state, source = _digests(scan.items)
    return BuildPlan(
        recipe=recipe,
        scan=scan,
        schema=make_schema(scan, recipe),
        cuts=cuts,
        names=tuple(map(shard_name, range(len(cuts)))),
        record_bytes=sizes,
        shard_bytes=limit,
        byte_count=store_bytes(sizes),
        source_sha256=source,
        state_sha256=state,
    )


def _digests(items: Sequence[RawItem]) -> tuple[str, str]:
    """(with times, without) digest over all items, in hex."""
    state, source = hashlib.sha256(), hashlib.sha256()
    encode = msgspec.msgpack.Encoder().encode
    masks: dict[str, int] = {}
    times: dict[str, tuple[bytes, int]] = {}
    # A digest takes longer to call than to make of so few bytes.
    for at in range(0, len(items), _DIGESTED_TOGETHER):
        facts, states = [], []
        for item in items[at : at + _DIGESTED_TOGETHER]:
            if item.masks or masks:
                masks = {name: file.byte_count for name, file in item.masks.items()}
                times = {name: (file.path, file.mtime_ns) for name, file in item.masks.items()}
            fact = encode((item.key, item.byte_count, item.values, item.annotations, masks))
            facts.append(fact)
            states.append(fact)
            states.append(encode((item.path, item.mtime_ns, item.member, times)))
        source.update(b"".join(facts))
        state.update(b"".join(states))
    return state.hexdigest(), source.hexdigest()
