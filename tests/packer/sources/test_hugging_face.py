"""Hugging Face data sets on disk: Parquet, and what save_to_disk writes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from packer.errors import SourceError
from packer.items.annotations import Annotations, unpack_annotations
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
from packer.sources.hugging_face.scan import scan
from packer.sources.source import SourceOptions
from readers.store.errors import ImageError
from readers.store.schema import Field

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IMAGE = {"_type": "Image"}
IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def class_label(*names: str) -> dict[str, Any]:
    return {"names": list(names), "_type": "ClassLabel"}


def table_of(
    columns: dict[str, list[Any]],
    features: dict[str, Any] | None = None,
    types: dict[str, Any] | None = None,
) -> Any:
    """A table whose column `image` is of the bytes and paths given as pairs, or of bytes."""
    arrays = {}
    for name, values in columns.items():
        if name == "image":
            pairs = [v if isinstance(v, tuple) or v is None else (v, None) for v in values]
            rows = [None if p is None else {"bytes": p[0], "path": p[1]} for p in pairs]
            arrays[name] = pa.array(rows, IMAGE_TYPE)
        else:
            arrays[name] = pa.array(values, (types or {}).get(name))
    table = pa.table(arrays)
    if features is not None:
        metadata = json.dumps({"info": {"features": {"image": IMAGE, **features}}})
        table = table.replace_schema_metadata({"huggingface": metadata})
    return table


def write_parquet(path: Path, table: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def save_to_disk(folder: Path, table: Any, shards: int = 1, form: str = "stream") -> None:
    """What `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True)
    names = [f"data-{n:05}-of-{shards:05}.arrow" for n in range(shards)]
    rows = -(-table.num_rows // shards)
    for number, name in enumerate(names):
        piece = table.slice(number * rows, rows)
        opened = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
        with opened(str(folder / name), table.schema) as writer:
            writer.write_table(piece, max_chunksize=2)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def contents(found: Scan) -> list[Any]:
    with closing(Containers(bytes(found.root))) as containers:
        return [containers.read(item) for item in found.items if item.member is not None]


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def objects_of(found: Scan, position: int) -> Annotations:
    return unpack_annotations(found.items[position].annotations)


def test_parquet_with_class_labels(tmp_path):
    """Names come from the features, splits from the files, bytes from the rows, in their order."""
    for split, images in (("train", [b"1", b"22", b"333"]), ("test", [b"4"])):
        table = table_of(
            {"image": images, "label": [1, 0, 1][: len(images)]}, {"label": class_label("b", "a")}
        )
        path = tmp_path / "data" / f"{split}-00000-of-00001.parquet"
        write_parquet(path, table, row_group_size=2)
    found = scan(tmp_path, SourceOptions())
    assert [(item.key.decode(), item.values) for item in found.items] == [
        ("data/test-00000-of-00001/00000", {"split": 1, "label": 1}),
        ("data/train-00000-of-00001/00000", {"split": 0, "label": 1}),
        ("data/train-00000-of-00001/00001", {"split": 0, "label": 0}),
        ("data/train-00000-of-00001/00002", {"split": 0, "label": 1}),
    ]
    assert (found.classes, found.splits) == (("b", "a"), ("train", "test"))
    assert contents(found) == [b"4", b"1", b"22", b"333"]
    label = Field(name="label", kind="label", dtype="int64", names=("b", "a"))
    assert found.fields[0] == label


def objects_table() -> Any:
    objects = [
        {"bbox": [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], "category": [1, 0], "id": [7, 8]},
        {"bbox": [], "category": [], "id": []},
        {
            "bbox": [[0.0, 0.0, 1.0, float("nan")], [0.0, 0.0, 1.0, 1.0]],
            "category": [0, 5],
            "id": [9, 9],
        },
    ]
    features = {
        "image_id": {"dtype": "int64", "_type": "Value"},
        "objects": {
            "bbox": {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"},
            "category": {"feature": class_label("cat", "dog"), "_type": "List"},
        },
        "Caption (en)": {"dtype": "string", "_type": "Value"},
    }
    columns = {
        "image": [b"1", b"22", b"333"],
        "image_id": [30, 10, 20],
        "objects": objects,
        "Caption (en)": ["a", None, "c"],
        "score": [0.5, 0.5, 0.5],
    }
    return table_of(columns, features)


@pytest.mark.parametrize("form", ["stream", "file", "parquet"])
def test_objects_become_boxes(tmp_path, form):
    """xywh becomes corners, bad boxes are named, and text and ids are kept; all forms agree."""
    if form == "parquet":
        write_parquet(tmp_path / "train-00000-of-00001.parquet", objects_table())
    else:
        save_to_disk(tmp_path / "train", objects_table(), form=form)
        (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    found = scan(tmp_path, SourceOptions())
    assert [(o.label, o.box) for o in objects_of(found, 0).objects] == [
        (1, (1.0, 2.0, 4.0, 6.0)),
        (0, (5.0, 6.0, 12.0, 14.0)),
    ]
    assert objects_of(found, 1) == Annotations()
    assert objects_of(found, 2) == Annotations()
    assert found.items[1].values == {"split": 0, "image_id": 10, "caption_en": ""}
    assert [(r.path[-15:], r.reason) for r in found.annotation_rejects] == [
        (
            "row 2, object 0",
            "box [0.0, 0.0, 1.0, nan]; expected 4 finite numbers: x, y, width, height",
        ),
        ("row 2, object 1", "label 5 is not in [0, 2)"),
    ]
    assert [f.name for f in found.fields] == ["boxes", "labels", "image_id", "caption_en", "split"]
    assert (found.classes, found.splits) == (("cat", "dog"), ("train",))
    assert found.choices == {"bbox_format": "xywh"}
    notes = "\n".join(found.notes)
    assert "columns not read: 'score', 'objects.id'" in notes
    assert "'Caption (en)' as caption_en" in notes
    assert "1 row without 'Caption (en)' (null)" in notes
    assert "taken as x, y, width, height" in notes
    assert contents(found) == [b"1", b"22", b"333"]


def test_parts_of_objects_do_not_take_their_boxes_along(tmp_path):
    """A bad area or too few of them is left out; what is not read of objects is counted."""
    objects = [
        {"bbox": [[1.0, 2, 3, 4], [5.0, 6, 7, 8]], "category": [0, 0], "area": [-1.0, 9.0]},
        {"bbox": [[1.0, 2, 3, 4], [5.0, 6, 7, 8]], "category": [0, 0], "area": [9.0]},
    ]
    more = {"rotation": [30.0, 0.0], "segmentation": [[1.0], []]}
    table = table_of({"image": [b"1", b"22"], "objects": [{**o, **more} for o in objects]})
    write_parquet(tmp_path / "a.parquet", table)
    found = scan(tmp_path / "a.parquet", SourceOptions())
    areas = [[o.area for o in objects_of(found, row).objects] for row in range(2)]
    assert areas == [[None, 9.0], [None, None]]
    assert [(r.part, r.path[-21:]) for r in found.annotation_rejects] == [
        ("area", "row 0, object 0, area"),
        ("area", "a.parquet, row 1, area"[-21:]),
    ]
    notes = "\n".join(found.notes)
    assert "2 boxes with an angle in 'objects.rotation', which is not read" in notes
    assert "'objects.segmentation' of 2 objects not read, not packed" in notes


def test_given_classes_reorder_labels(tmp_path):
    """--classes decides the numbers; a class that is not among them is rejected."""
    write_parquet(tmp_path / "a.parquet", objects_table())
    found = scan(tmp_path / "a.parquet", SourceOptions(classes=("dog",)))
    assert [o.label for o in objects_of(found, 0).objects] == [0]
    assert found.annotation_rejects[0].reason == "class 'cat' is not one of --classes"


def test_shards_come_in_the_order_of_state_json(tmp_path):
    """Rows are numbered in each shard; sizes are exact in Arrow; rows can be read backward."""
    table = table_of(
        {"image": [bytes([n]) * (n + 1) for n in range(7)], "label": [0] * 7},
        {"label": class_label("x")},
    )
    save_to_disk(tmp_path / "set", table, shards=2)
    found = scan(tmp_path / "set", SourceOptions())
    assert [item.byte_count for item in found.items] == [1, 2, 3, 4, 5, 6, 7]
    assert found.items[4].key == b"data-00001-of-00002/00000"
    assert found.splits == ()
    with closing(Containers(bytes(found.root))) as containers:
        backward = [containers.read(item) for item in reversed(found.items)]
    assert backward == [bytes([n]) * (n + 1) for n in reversed(range(7))]


def test_many_rows_without_other_columns(tmp_path):
    """More rows than are read at once, and nothing but images."""
    images = [str(n).encode() for n in range(2500)]
    save_to_disk(tmp_path / "a", table_of({"image": images}))
    write_parquet(tmp_path / "b" / "b.parquet", table_of({"image": images}), row_group_size=1100)
    for folder in ("a", "b"):
        found = scan(tmp_path / folder, SourceOptions())
        assert contents(found) == images
        assert found.fields == ()


def test_rows_without_labels_or_images_are_rejected(tmp_path):
    """-1 is the mark of no label; null is none either; the row is named."""
    table = table_of(
        {"image": [b"1", b"2", None, (None, None), b"5"], "label": [-1, None, 0, 0, 0]},
        {"label": class_label("x")},
    )
    found = scan(write_parquet(tmp_path / "a.parquet", table), SourceOptions())
    assert [item.key for item in found.items] == [b"a/00004"]
    assert reasons(found) == {
        "a.parquet, row 0": "label -1 is not in [0, 1), the mark of no label",
        "a.parquet, row 1": "no label (null)",
        "a.parquet, row 2": "no image: neither bytes nor a path",
        "a.parquet, row 3": "no image: neither bytes nor a path",
    }
    assert contents(found) == [b"5"]


def test_images_that_are_only_paths_lie_beside_the_table(tmp_path):
    """Inside of the raw folder, or under the root; others are named, and so are lost ones."""
    raw, root = tmp_path / "raw", tmp_path / "root"
    for path in (raw / "images" / "1.jpg", root / "2.jpg", tmp_path / "secret.jpg"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"picture")
    (raw / "unused.jpg").write_bytes(b"?")
    paths = ["images/1.jpg", "2.jpg", "../secret.jpg", "/etc/passwd", "lost.jpg"]
    table = table_of({"image": [(None, path) for path in paths], "label": list("abaaa")})
    write_parquet(raw / "t.parquet", table)
    found = scan(raw, SourceOptions(root=root))
    assert [(item.path, item.byte_count, item.member) for item in found.items] == [
        (b"images/1.jpg", 7, None),
        (bytes(root / "2.jpg"), 7, None),
    ]
    assert found.classes == ("a", "b")
    found_reasons = list(reasons(found).values())
    assert "'../secret.jpg' leads out of the raw folder" in found_reasons[0]
    assert "'/etc/passwd' leads out of the raw folder" in found_reasons[1]
    assert "its file is not there" in found_reasons[2]
    assert found.ignored.total == 1


def test_a_list_of_structs_is_the_same_as_a_struct_of_lists(tmp_path):
    """Both ways of writing objects are in use, with names as text as well."""
    objects = [[{"bbox": [1, 2, 3, 4], "category": "cat", "iscrowd": 1, "area": 5.0}], []]
    found = scan(
        write_parquet(
            tmp_path / "a.parquet", table_of({"image": [b"1", b"2"], "objects": objects})
        ),
        SourceOptions(),
    )
    (one,) = objects_of(found, 0).objects
    assert (one.label, one.box, one.iscrowd, one.area) == (0, (1.0, 2.0, 4.0, 6.0), True, 5.0)
    assert found.classes == ("cat",)
    assert [f.name for f in found.fields] == ["boxes", "labels", "area", "iscrowd"]


def test_tables_of_different_columns_are_refused(tmp_path):
    """Two configurations in one folder are two data sets."""
    write_parquet(tmp_path / "a.parquet", table_of({"image": [b"1"], "label": [0]}))
    write_parquet(tmp_path / "b.parquet", table_of({"image": [b"1"], "text": ["x"]}))
    with pytest.raises(SourceError, match=r"b\.parquet has other columns .* than a\.parquet"):
        scan(tmp_path, SourceOptions())


def test_a_table_without_images_is_refused(tmp_path):
    """The message names its columns."""
    write_parquet(tmp_path / "a.parquet", pa.table({"x": [1]}))
    with pytest.raises(SourceError, match=r"the columns are 'x'; expected one of images"):
        scan(tmp_path, SourceOptions())


def test_files_that_state_json_promises_are_missed(tmp_path):
    """A lost shard, a lost split and a name that leads out are rejects."""
    save_to_disk(tmp_path / "train", table_of({"image": [b"1"] * 4}), shards=2)
    (tmp_path / "train" / "data-00001-of-00002.arrow").unlink()
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    found = scan(tmp_path, SourceOptions())
    assert len(found.items) == 2
    assert "data-00001-of-00002.arrow" in reasons(found)["train/state.json"]
    assert "names split 'test'" in reasons(found)["dataset_dict.json"]


def test_damaged_tables_are_rejected_and_others_read(tmp_path):
    """A file that is not a Parquet, and Arrow offsets that lead out of the data."""
    write_parquet(tmp_path / "p" / "b.parquet", table_of({"image": [b"1"]}))
    (tmp_path / "p" / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    found = scan(tmp_path / "p", SourceOptions())
    assert contents(found) == [b"1"]
    assert "cannot be read as Parquet" in reasons(found)["a.parquet"]

    save_to_disk(tmp_path / "s", table_of({"image": [b"first image", b"second"]}))
    path = tmp_path / "s" / "data-00000-of-00001.arrow"
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 11, 17))
    data = path.read_bytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, offsets[:8] + (2**30).to_bytes(4, "little")))
    found = scan(tmp_path / "s", SourceOptions())
    assert found.items == []
    assert "damaged after row -1" in reasons(found)["data-00000-of-00001.arrow"]


def test_a_table_that_changed_is_not_read(tmp_path):
    """Its rows may be others now."""
    path = write_parquet(tmp_path / "a.parquet", table_of({"image": [b"1"]}))
    found = scan(path, SourceOptions())
    write_parquet(path, table_of({"image": [b"1", b"2"]}))
    with pytest.raises(ImageError, match="changed while the build ran"):
        contents(found)
