"""A torch Dataset becomes a store: by its files where it has them, else pixel by pixel."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from packer.building.build import build
from packer.errors import SourceError, TooManyRejectsError
from packer.recipe import Recipe
from packer.sources import SourceOptions
from readers import LMDBDataset


class Listed(Dataset[Any]):
    """Samples out of a list."""

    def __init__(self, samples: list[Any], **facts: Any) -> None:
        self._samples = samples
        vars(self).update(facts)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        return self._samples[index]


class Folders(Dataset[Any]):
    """As torchvision's ImageFolder: it knows the files, and decodes when asked."""

    def __init__(self, root: Path, transform: Any = None) -> None:
        self.root = str(root)
        self.classes = sorted(path.name for path in root.iterdir())
        self.samples = [
            (str(path), self.classes.index(path.parent.name))
            for path in sorted(root.glob("*/*.png"))
        ]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("its images are to be taken from their files")


def noise(height: int, width: int, *channels: int, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, *channels), np.uint8)


def built(dataset: Any, tmp_path: Path, recipe: Recipe | None = None, **options: Any) -> Any:
    out = tmp_path / "out.lmdb"
    report = build(
        dataset, out, recipe, source=SourceOptions(**options), worker_count=1, rejects_max="90%"
    )
    assert sorted(path.name for path in tmp_path.glob("*packer*")) == []
    return report, LMDBDataset(out)


def test_files_of_an_image_folder_are_packed_as_they_are(raw, tmp_path, store):
    """No image is decoded by the dataset; bytes, keys, classes and labels are the folder's own."""
    report, dataset = built(Folders(raw), tmp_path)
    direct = LMDBDataset(store)
    assert (report.sample_count, dataset.classes) == (12, ["ant", "bee", "cat"])
    for at in range(12):
        one, other = dataset[at], direct[at]
        assert one["key"] == other["key"]
        assert one["label"] == other["label"]
        assert torch.equal(one["image"], other["image"])
    assert "12 images by their files, 0 as the dataset makes them" in report.notes[0]


@pytest.mark.parametrize(("other", "shape"), [((6, 9), (6, 9, 3)), ((9, 6), (None, None, 3))])
def test_equal_arrays_make_a_store_of_one_size(tmp_path, other, shape):
    """The schema says it where the dataset makes all images, and all of one size."""
    samples = [(noise(6, 9, 3), 0), (noise(*other, 3, seed=2), 1)]
    _, dataset = built(Listed(samples), tmp_path)
    assert dataset.schema["image"].shape == shape
    for at, (pixels, _) in enumerate(samples):
        assert np.array_equal(dataset[at]["image"].permute(1, 2, 0).numpy(), pixels)


def test_originals_are_not_encoded_again(raw, tmp_path):
    """Under "original" the record holds the file's own bytes."""
    report, _ = built(Folders(raw), tmp_path, Recipe(image="original"))
    sizes = sum(path.stat().st_size for path in raw.glob("*/*.png"))
    stored = b"".join(path.read_bytes() for path in (tmp_path / "out.lmdb").glob("shard-*"))
    assert (raw / "ant/0.png").read_bytes() in stored
    assert sizes < len(stored)
    assert report.sample_count == 12


def test_a_transform_that_is_not_applied_is_said(raw, tmp_path):
    """Its images are not what the dataset would give."""
    report, _ = built(Folders(raw, transform=lambda image: image), tmp_path)
    assert any("transform is not applied" in note for note in report.notes)


def test_a_subset_is_packed_alone_and_in_its_order(raw, tmp_path):
    """Also one of a subset."""
    subset = Subset(Subset(Folders(raw), [11, 3, 5, 0]), [2, 0, 1])
    _, dataset = built(subset, tmp_path)
    assert [dataset[at]["key"] for at in range(3)] == ["bee/1.png", "cat/3.png", "ant/3.png"]


@pytest.mark.parametrize("form", ["pillow", "array", "tensor", "gray array", "dict", "path"])
def test_images_of_every_form_are_kept_to_the_pixel(form, tmp_path):
    """Order of channels, height and width; gray is shown as RGB as any gray file is."""
    pixels = [noise(5, 7, 3, seed=at) for at in range(3)]
    if form == "gray array":
        pixels = [np.repeat(p[:, :, :1], 3, axis=2) for p in pixels]
    samples: list[Any] = []
    for at, p in enumerate(pixels):
        path = tmp_path / f"{at}.png"
        Image.fromarray(p).save(path)
        made: dict[str, Any] = {
            "pillow": Image.fromarray(p),
            "array": p,
            "tensor": torch.from_numpy(p).permute(2, 0, 1),
            "gray array": p[:, :, 0],
            "dict": p,
            "path": path,
        }
        image = made[form]
        samples.append({"image": image, "label": at} if form == "dict" else (image, at))
    report, dataset = built(Listed(samples), tmp_path)
    for at, p in enumerate(pixels):
        assert dataset[at]["image"].permute(1, 2, 0).numpy().tolist() == p.tolist()
        assert dataset[at]["label"] == at
    assert dataset.classes == ["0", "1", "2"]
    assert any("called by their numbers" in note for note in report.notes)
    assert dataset[1]["key"] == ("1.png" if form == "path" else "000000001")


def test_names_and_sixteen_bits_and_no_target(tmp_path):
    """Names are sorted to classes; depth is kept under "unchanged"; images may come alone."""
    deep = np.array([[[0], [65535]]], np.uint16)
    _, dataset = built(Listed([(deep, "dog"), (deep, "cat")]), tmp_path, Recipe(mode="unchanged"))
    assert dataset.classes == ["cat", "dog"]
    assert [dataset[0]["label"], dataset[1]["label"]] == [1, 0]
    assert dataset[0]["image"].dtype == torch.uint16
    (tmp_path / "alone").mkdir()
    _, alone = built(Listed([noise(3, 4, 3)]), tmp_path / "alone")
    assert alone.schema.names == ("key", "image", "original_size", "transform")


def test_targets_of_detection(tmp_path):
    """torchvision's dict of boxes and labels; the class names are the dataset's."""
    target = {"boxes": torch.tensor([[1.0, 2, 3, 4], [0, 0, 2, 2]]), "labels": torch.tensor([1, 0])}
    empty = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    image = noise(5, 7, 3)
    samples = [(image, target), (noise(6, 6, 3), empty)]
    _, dataset = built(Listed(samples, classes=["a", "b"]), tmp_path)
    assert dataset[0]["boxes"].tolist() == [[1, 2, 3, 4], [0, 0, 2, 2]]
    assert dataset[0]["labels"].tolist() == [1, 0]
    assert dataset[1]["boxes"].shape == (0, 4)
    assert dataset.classes == ["a", "b"]


def test_a_coco_dataset_is_taken_by_its_files_and_annotations(raw, tmp_path):
    """What CocoDetection holds: xywh becomes corners, sparse ids become labels in their order."""
    thing = {
        "id": 5,
        "bbox": [2, 3, 10, 4],
        "category_id": 90,
        "iscrowd": 0,
        "segmentation": [[2, 3, 12, 3, 12, 7]],
    }
    coco = SimpleNamespace(
        cats={90: {"name": "cup"}, 3: {"name": "car"}},
        imgs={7: {"file_name": "ant/0.png"}, 9: {"file_name": "bee/1.png"}},
        imgToAnns={9: [thing, {"id": 6, "category_id": 3}]},
    )
    dataset = Listed([None, None], coco=coco, ids=[7, 9], root=str(raw))
    report, found = built(dataset, tmp_path)
    assert found.classes == ["car", "cup"]
    assert [found[at]["key"] for at in range(2)] == ["ant/0.png", "bee/1.png"]
    assert found[0]["boxes"].shape == (0, 4)
    assert found[1]["boxes"].tolist() == [[2, 3, 12, 7]]
    assert found[1]["labels"].tolist() == [1]
    assert found[1]["area"].tolist() == [20]
    assert found[1]["masks"].to_masks().shape == (1, 16, 24)
    assert report.annotations == {"found": 2, "stored": 1, "rejected": 1}


def test_targets_of_voc_are_text_and_count_from_one(tmp_path):
    """As VOCDetection gives them; one object is not a list."""
    box = {"xmin": "1", "ymin": "2", "xmax": "7", "ymax": "5.5"}
    one = {"annotation": {"object": {"name": "dog", "bndbox": box, "difficult": "1"}}}
    none = {"annotation": {"filename": "b.jpg"}}
    _, dataset = built(Listed([(noise(6, 8, 3), one), (noise(3, 4, 3), none)]), tmp_path)
    assert dataset[0]["boxes"].tolist() == [[0, 1, 7, 5.5]]
    assert dataset[0]["difficult"].tolist() == [True]
    assert dataset[1]["labels"].tolist() == []


def test_masks_keep_their_ids(tmp_path):
    """Of a palette the positions, not the colours."""
    ids = np.array([[0, 3], [255, 1]], np.uint8)
    palette = Image.fromarray(ids, "L").convert("P")
    palette.putdata(ids.ravel().tolist())
    for number, mask in enumerate((ids, palette)):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, dataset = built(Listed([(noise(2, 2, 3), mask)]), folder)
        assert dataset[0]["mask"].tolist() == ids.tolist()


def test_what_cannot_be_kept_is_rejected_by_its_position(tmp_path):
    """A float image would lose values, a file may be gone, a target may be of another kind."""
    good = noise(3, 4, 3)
    samples = [
        (good, 0),
        (torch.zeros(3, 4, 4), 0),
        (tmp_path / "gone.png", 0),
        (good[:, :, 0][None, None], 0),
        ("text.png", "a"),
        (good, -1),
    ]
    report, dataset = built(Listed(samples[:4] + samples[5:]), tmp_path)
    assert (report.sample_count, report.reject_count) == (1, 4)
    rejects = (tmp_path / "out.lmdb" / "rejects.jsonl").read_text()
    assert "Listed[1]" in rejects
    assert (
        "elements are float32; expected uint8 or uint16. Build from the dataset without" in rejects
    )
    assert "No such file" in rejects
    assert "shape (1, 1, 3, 4)" in rejects
    assert "class -1 is not one of the 1 classes" in rejects
    assert len(dataset) == 1


def test_datasets_of_no_known_form_are_refused(tmp_path):
    """With what was found and what would do."""
    out = tmp_path / "out.lmdb"
    with pytest.raises(SourceError, match="the dataset is empty"):
        build(Listed([]), out)
    with pytest.raises(SourceError, match=r"'2\.5'; expected a class number"):
        build(Listed([(noise(3, 4, 3), 2.5)]), out)
    with pytest.raises(SourceError, match="3 values; expected an image and a target"):
        build(Listed([(noise(3, 4, 3), 1, 2)]), out)
    with pytest.raises(SourceError, match=r"a dict of \['pixels'\]; expected 'image'"):
        build(Listed([{"pixels": 1}]), out)
    with pytest.raises(TooManyRejectsError, match="float32"):
        build(TensorDataset(torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64)), out)
    assert os.listdir(tmp_path) in ([], ["out.lmdb.building"])


def test_an_interrupted_build_of_a_dataset_goes_on(tmp_path):
    """What the dataset makes is the same again, so finished shards are kept."""
    samples = [(noise(320, 320, 3, seed=at), at % 2) for at in range(12)]
    recipe = Recipe(shard_bytes_max=2**20)
    whole = build(Listed(samples), tmp_path / "whole.lmdb", recipe, worker_count=1)
    out = tmp_path / "out.lmdb"

    class StopError(Exception):
        pass

    def stop(step: Any) -> None:
        if step.name == "SHARD_FINISHED":
            raise StopError

    with pytest.raises(StopError):
        build(Listed(samples), out, recipe, worker_count=1, on_step=stop)
    again = build(Listed(samples), out, recipe, worker_count=1)
    assert again.kept_shard_count >= 1
    assert again.content_sha256 == whole.content_sha256
