"""What the manifests of several stores say together, of settings, choices and statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.store.errors import StoreError
from readers.store.manifest import Manifest


def merged_recipe(
    recipes: Sequence[dict[str, Any]], names: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """The settings of all, where one that differs is a dict of each store's; and a note of it."""
    merged: dict[str, Any] = {}
    differing = []
    for key in dict.fromkeys(key for recipe in recipes for key in recipe):
        values = [recipe.get(key) for recipe in recipes]
        if all(value == values[0] for value in values):
            merged[key] = values[0]
        else:
            merged[key] = dict(zip(names, values, strict=True))
            differing.append(key)
    if not differing:
        return merged, []
    return merged, [f"the stores were built with another {', '.join(differing)}"]


def merged_choices(choices: Sequence[dict[str, str]], names: Sequence[str]) -> dict[str, str]:
    """What was decided, the same for all; or of each store, where they differ."""
    merged: dict[str, str] = {}
    for key in dict.fromkeys(key for part in choices for key in part):
        found = {name: part[key] for name, part in zip(names, choices, strict=True) if key in part}
        if len(found) == len(names) and len(set(found.values())) == 1:
            merged[key] = next(iter(found.values()))
        else:
            merged.update({f"{key} of {name}": value for name, value in found.items()})
    return merged


def merged_statistics(
    manifests: Sequence[Manifest], classes: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Facts about the samples of all, as far as all stores tell them; and a note of others.

    Raises:
        StoreError: Those of a store are not what the format says.
    """
    parts = [manifest.statistics for manifest in manifests]
    known = dict.fromkeys(name for part in parts for name in part)
    merged: dict[str, Any] = {}
    try:
        if "class_counts" in known:
            merged["class_counts"] = _class_counts(manifests, classes)
        counts = [manifest.sample_count for manifest in manifests]
        if all({"channel_mean", "channel_std"} <= part.keys() for part in parts):
            merged |= _channels(parts, counts)
        if all("sizes" in part for part in parts):
            merged |= _sizes([part["sizes"] for part in parts])
        if all(part.get("image_size") == parts[0].get("image_size") for part in parts):
            merged |= {"image_size": size} if (size := parts[0].get("image_size")) else {}
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise StoreError(
            f"the statistics of the stores are not what the format says: {error!r}. Verify each."
        ) from error
    lost = [name for name in known if name not in (*merged, "image_size")]
    return merged, [f"not all stores tell of {', '.join(lost)}, which are left out"] if lost else []


def _class_counts(manifests: Sequence[Manifest], classes: tuple[str, ...]) -> list[int]:
    counts = dict.fromkeys(classes, 0)
    for manifest in manifests:
        said = manifest.statistics.get("class_counts", [0] * len(manifest.classes))
        for name, count in zip(manifest.classes, said, strict=True):
            counts[name] += count
    return list(counts.values())


def _channels(parts: Sequence[dict[str, Any]], counts: Sequence[int]) -> dict[str, Any]:
    """Mean and deviation of each channel over the images of all, each of which counts alike."""
    means = np.array([part["channel_mean"] for part in parts], np.float64)
    deviations = np.array([part["channel_std"] for part in parts], np.float64)
    if means.ndim != 2 or means.shape != deviations.shape:
        return {}
    weights = np.array(counts, np.float64)[:, None] / max(1, sum(counts))
    mean = (weights * means).sum(0)
    square = (weights * (means**2 + deviations**2)).sum(0)
    return {
        "channel_mean": mean.tolist(),
        "channel_std": [math.sqrt(max(0.0, value)) for value in (square - mean**2).tolist()],
    }


def _sizes(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many pictures have a long side in each range, where all count by the same ranges."""
    if any(part.keys() != parts[0].keys() or part["edges"] != parts[0]["edges"] for part in parts):
        return {}
    added = {
        name: np.sum([part[name] for part in parts], axis=0).tolist()
        for name in parts[0]
        if name != "edges"
    }
    return {"sizes": {"edges": parts[0]["edges"], **added}}
