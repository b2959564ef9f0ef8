"""LMDB maps of other tools, written as the tools' own scripts do, by LMDB."""

from __future__ import annotations

import io
import os
import pickle
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from packer.building.build import build
from packer.errors import BuildError, SourceError
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.sources.detection.detect import examine
from readers import LMDBDataset
from readers.store.errors import ImageError
from tests.packer.foreign_stores import caffe_pixels, datum, drawn, encoded, write_lmdb

AUTO = SourceOptions()


def contents(found: Scan) -> list[Any]:
    """What each item's image is read as."""
    with closing(Containers(os.fsencode(found.root))) as containers:
        return [containers.read(item) for item in found.items]


def keys_and_values(found: Scan) -> list[tuple[str, dict[str, Any]]]:
    return [(item.key.decode(), item.values) for item in found.items]


def stored_images(raw: Path, out: Path) -> list[np.ndarray[Any, Any]]:
    """Pixels of a store that is built of the raw path."""
    build(raw, out, Recipe(), worker_count=1)
    with LMDBDataset(out, image_as="numpy") as dataset:
        return [sample["image"] for sample in dataset]


def npy(array: np.ndarray[Any, Any]) -> bytes:
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def as_numbered(images: list[bytes]) -> dict[bytes, bytes]:
    """`0`, `1`, ... and how many: with the keys pickled, as folder2lmdb and its kin do."""
    keys = [str(n).encode() for n in range(len(images))]
    about = {b"__keys__": pickle.dumps(keys), b"__len__": pickle.dumps(len(keys))}
    return {**dict(zip(keys, images, strict=True)), **about}


def test_numbered_images_come_in_the_order_of_their_numbers(tmp_path):
    """A map sorts `10` before `9`; what is about all images is no image, pickled or not."""
    images = [encoded(pixels) for pixels in drawn(12)]
    found = scan_source(write_lmdb(tmp_path / "old.lmdb", as_numbered(images)), AUTO)
    assert (found.format, found.fields, found.rejects) == ("lmdb", (), [])
    assert [item.key for item in found.items] == [str(n).encode() for n in range(12)]
    assert contents(found) == images
    assert any(note.startswith("unlabelled") for note in found.notes)


@pytest.mark.parametrize(
    ("image_key", "label_key"),
    [
        ("image-{:05d}", "label-{:05d}"),
        ("{}", "{}_label"),
        ("img_{}", "lbl_{}"),
        ("X_{:03d}", "y_{:03d}"),
        ("data/{}.png", "labels/{}.txt"),
        ("{:08d}", "target-{:08d}"),
    ],
)
@pytest.mark.parametrize("write", [str, lambda n: struct.pack("<q", n), pickle.dumps, "text"])
def test_a_label_under_a_second_key_is_that_of_its_image(image_key, label_key, write, tmp_path):
    """Whatever word names it, and as text, number of bytes or pickled number."""
    names = ["cat", "dog", "cat", "eel", "dog"]
    labels = [0, 1, 0, 2, 1]
    entries: dict[bytes, bytes] = {b"num-samples": b"5"}
    for n, pixels in enumerate(drawn(5)):
        value = names[n] if write == "text" else write(labels[n])
        entries[image_key.format(n).encode()] = encoded(pixels)
        entries[label_key.format(n).encode()] = value.encode() if isinstance(value, str) else value
    found = scan_source(write_lmdb(tmp_path / "old.lmdb", entries), AUTO)
    assert [item.values for item in found.items] == [{"label": n} for n in labels]
    assert [item.key.decode() for item in found.items] == [image_key.format(n) for n in range(5)]
    assert found.classes == (("cat", "dog", "eel") if write == "text" else ("0", "1", "2"))
    assert found.rejects == []


def test_scene_text_recognition_keeps_its_texts(tmp_path):
    """image-%09d, label-%09d, num-samples: the label is what is written in the image."""
    images = [encoded(pixels, "JPEG") for pixels in drawn(3)]
    entries = {b"image-%09d" % n: image for n, image in enumerate(images, 1)}
    entries |= {b"label-%09d" % n: t.encode() for n, t in enumerate(("Straße", "EXIT", "7"), 1)}
    raw = write_lmdb(tmp_path / "ST", {**entries, b"num-samples": b"3"})
    found = scan_source(raw, AUTO)
    assert [item.values for item in found.items] == [
        {"text": "Straße"},
        {"text": "EXIT"},
        {"text": "7"},
    ]
    assert [field.kind for field in found.fields] == ["text"]
    assert contents(found) == images
    as_classes = scan_source(raw, SourceOptions(classes=("7", "EXIT")))
    assert [item.values for item in as_classes.items] == [{"label": 1}, {"label": 0}]
    assert "'Straße' is not one of --classes" in as_classes.rejects[0].reason


def test_a_sample_that_lacks_what_others_have_is_rejected(tmp_path):
    """An image without a label, a label without an image, a label that says nothing, a count."""
    image = encoded(drawn(1)[0])
    entries = {b"image-1": image, b"image-2": image, b"label-1": b"0", b"label-3": b"1"}
    entries |= {b"image-4": image, b"label-4": b"\xff\xfe\xfd", b"length": b"9"}
    found = scan_source(write_lmdb(tmp_path / "old.lmdb", entries), AUTO)
    assert keys_and_values(found) == [("image-1", {"label": 0})]
    reasons = {reject.key: reject.reason for reject in found.rejects}
    assert reasons.keys() == {b"label-3", b"label-4", b"image-2", b"image-4"}
    assert "without an image" in reasons[b"label-3"]
    assert "no label" in reasons[b"label-4"]
    assert "no label, which other images here have" in reasons[b"image-2"]
    assert any("length says 9, and there are 3 images" in note for note in found.notes)


def test_class_names_of_the_map_name_its_labels(tmp_path):
    """As a list, in JSON or pickled."""
    image = encoded(drawn(1)[0])
    entries = {b"image-0": image, b"label-0": b"1", b"__classes__": b'["ant", "bee"]'}
    found = scan_source(write_lmdb(tmp_path / "a.lmdb", entries), AUTO)
    assert (found.classes, found.items[0].values) == (("ant", "bee"), {"label": 1})


def test_caffe_datums_are_read_as_pixels_and_as_files(tmp_path):
    """Planes of blue, green and red; encoded ones are picture files. Labels are in the message."""
    pixels = drawn(3, 5, 7)
    entries = {b"%08d_a.jpg" % n: caffe_pixels(p, 2 - n) for n, p in enumerate(pixels)}
    raw = write_lmdb(tmp_path / "train_lmdb", entries)
    found = scan_source(raw, AUTO)
    assert [item.values for item in found.items] == [{"label": 2}, {"label": 1}, {"label": 0}]
    assert all(map(np.array_equal, contents(found), pixels))
    assert all(map(np.array_equal, stored_images(raw, tmp_path / "out.lmdb"), pixels))
    png = encoded(pixels[0])
    gray = datum(pixels[0][..., 0].tobytes(), (1, 5, 7), 0)
    found = scan_source(
        write_lmdb(tmp_path / "b", {b"0": datum(png, label=3, encoded=True), b"1": gray}), AUTO
    )
    assert [item.values for item in found.items] == [{"label": 3}, {"label": 0}]
    assert contents(found)[0] == png
    assert np.array_equal(contents(found)[1], pixels[0][..., :1])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (datum(bytes(12), (2, 2, 3), 0), "3 channels of 2|2 channels; expected 1 or 3"),
        (datum(bytes(11), (3, 2, 2), 0), "but with 11 bytes"),
        (b"\x08\x01\x10\x02\x18\x01\x35\0\0\0\0\x35\0\0\0\0\x28\x01", "a Datum of floats"),
        (datum(bytes(12), (3, 2, 2), -1), "the mark of no label"),
        (datum(bytes(12), (3, 2, 2)), "no label, which other images"),
        (b"\x08\x03\x10\x02", "not an image: neither pictures"),
    ],
)
def test_a_datum_that_is_no_image_is_rejected_alone(message, reason, tmp_path):
    """With why; the others are packed."""
    entries = {b"%d" % n: caffe_pixels(p, n) for n, p in enumerate(drawn(2))}
    found = scan_source(write_lmdb(tmp_path / "a", {**entries, b"2": message}), AUTO)
    assert [item.key for item in found.items] == [b"0", b"1"]
    (reject,) = found.rejects
    assert any(part in reject.reason for part in reason.split("|")), reject.reason


def test_arrays_with_a_header_and_bare_ones_with_a_shape(tmp_path):
    """np.save says what it is; tobytes() needs a key for the shape, of all or of each."""
    pixels = drawn(2, 5, 7)
    entries = {b"0": npy(pixels[0]), b"1": npy(pixels[1].transpose(2, 0, 1).copy())}
    found = scan_source(write_lmdb(tmp_path / "npy", entries), AUTO)
    assert all(map(np.array_equal, contents(found), pixels))
    shape = struct.pack("<3q", 5, 7, 3)
    for number, about in enumerate(
        (
            {b"shape": b"5 7 3"},
            {b"0_shape": b"(5, 7, 3)", b"1_shape": shape},
            {b"0_shape": pickle.dumps((5, 7, 3)), b"1_shape": b"5x7x3"},
        )
    ):
        entries = {b"%d" % n: p.tobytes() for n, p in enumerate(pixels)}
        found = scan_source(write_lmdb(tmp_path / str(number), {**entries, **about}), AUTO)
        assert [item.key for item in found.items] == [b"0", b"1"]
        assert all(map(np.array_equal, contents(found), pixels))
        assert any("red, green and blue" in note for note in found.notes)


def test_arrays_of_one_name_each_with_a_shape_of_all(tmp_path):
    """images_0_data, images_shape and labels beside: arrays kept row by row."""
    pixels = drawn(3, 4, 4)
    entries = {b"images_%d_data" % n: p.tobytes() for n, p in enumerate(pixels)}
    entries |= {b"labels_%d_data" % n: struct.pack("<q", n % 2) for n in range(3)}
    entries |= {b"images_shape": b"3 4 4 3", b"labels_shape": b"3"}
    found = scan_source(write_lmdb(tmp_path / "a", entries), AUTO)
    assert [item.values["label"] for item in found.items] == [0, 1, 0]
    assert all(map(np.array_equal, contents(found), pixels))


@pytest.mark.parametrize("way", ["pickle", "class", "arrow", "msgpack", "torch", "bare"])
def test_what_only_its_own_code_could_read_is_refused(way, tmp_path):
    """With what it is, why not, and the way through Python; a pickle is never run."""
    pixels = drawn(2)
    marker = tmp_path / "ran"
    value: bytes = {
        "pickle": pickle.dumps((encoded(pixels[0]), 3)),
        "class": pickle.dumps(Evil(str(marker))),
        "arrow": bytes(12) + b"\xff\xff\xff\xff\x78\x01\0\0\x10\0\0\0" + bytes(60),
        "msgpack": b"\x92\xc5\0\x05hello\x03",
        "torch": b"PK\x03\x04" + bytes(60),
        "bare": pixels[0].tobytes(),
    }[way]
    raw = write_lmdb(tmp_path / "a.lmdb", as_numbered([value, value]))
    with pytest.raises(SourceError) as caught:
        scan_source(raw, AUTO)
    message = str(caught.value)
    assert "packer.build(dataset, out)" in message
    said = {"pickle": "pickle.dumps", "class": "pickle.dumps", "arrow": "pyarrow.serialize"}
    said |= {"msgpack": "tensorpack", "torch": "torch.save", "bare": "neither pictures, arrays"}
    assert said[way] in message
    assert not marker.exists()


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


def test_masks_in_a_map_are_refused(tmp_path):
    """Labels that are pictures would be lost, or packed as samples of their own."""
    png = encoded(drawn(1)[0])
    raw = write_lmdb(tmp_path / "a.lmdb", {b"image-1": png, b"label-1": png})
    with pytest.raises(SourceError, match="labels that are pictures themselves"):
        scan_source(raw, AUTO)


def test_basicsr_is_held_against_its_list(tmp_path):
    """meta_info.txt names the keys: what is not there is a reject, what is not named a note."""
    raw = tmp_path / "DIV2K_HR_sub.lmdb"
    images = {b"0801_s00%d" % n: encoded(p) for n, p in enumerate(drawn(4))}
    write_lmdb(raw, images)
    lines = [f"0801_s00{n}.png (6,8,3) 1" for n in (0, 1, 2, 7)]
    (raw / "meta_info.txt").write_text("\n".join(lines) + "\n")
    found = scan_source(raw, AUTO)
    assert [item.key for item in found.items] == sorted(images)
    assert [(r.key, r.path) for r in found.rejects] == [(b"0801_s007", "meta_info.txt, line 4")]
    assert any("does not name 1 image of its map" in note for note in found.notes)
    assert examine(raw).format == "lmdb"


def test_file_names_as_keys_are_read_as_paths(tmp_path):
    """mmcv's keys are paths: folders in them are classes and splits, as in an archive."""
    images = {
        f"{split}/{name}/{n}.jpg".encode(): encoded(pixels, "JPEG")
        for split in ("train", "val")
        for name in ("ant", "bee")
        for n, pixels in enumerate(drawn(2))
    }
    found = scan_source(write_lmdb(tmp_path / "raw" / "old.lmdb", images), AUTO)
    assert (found.classes, found.splits) == (("ant", "bee"), ("train", "val"))
    assert [item.values for item in found.items] == [
        {"label": label, "split": split} for split in (0, 1) for label in (0, 0, 1, 1)
    ]


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (["0000_cat", "0001_dog", "0002_cat", "0003_dog"], ["cat", "dog", "cat", "dog"]),
        (["cat-7.jpg", "dog-8.jpg", "cat-9.jpg", "dog-10.jpg"], ["cat", "cat", "dog", "dog"]),
        (["10_1", "11_0", "12_1", "13_0"], ["1", "0", "1", "0"]),
        (["0_left", "0_right", "1_left", "1_right"], None),
        (["0_a", "1_b", "2_c", "3_d"], None),
        (["0_train", "1_val", "2_train", "3_val"], None),
        (["0801_001", "0801_002", "0802_001", "0802_002"], None),
        (["256-0", "256-1", "256-2", "256-3"], None),
    ],
)
def test_a_word_in_each_key_may_be_the_label(keys, labels, tmp_path):
    """Where it can be nothing else: parts of one sample, crops and sizes are no classes."""
    image = encoded(drawn(1)[0])
    raw = write_lmdb(tmp_path / "a.lmdb", dict.fromkeys((key.encode() for key in keys), image))
    found = scan_source(raw, AUTO)
    assert len(found.items) == 4
    named = [found.classes[item.values["label"]] for item in found.items if item.values]
    assert named == (labels or [])
    assert any("words in the keys" in note for note in found.notes) == bool(labels)


def test_lsun_maps_are_a_class_and_a_split_each(tmp_path):
    """The names of the folders say both; keys are hashes, values WebP."""
    folders = ("bedroom_train_lmdb", "bedroom_val_lmdb", "church_outdoor_train_lmdb", "test_lmdb")
    for number, folder in enumerate(folders):
        keys = [b"%040x" % (2**150 * number + n) for n in range(2)]
        write_lmdb(
            tmp_path / "lsun" / folder,
            dict(zip(keys, [encoded(p, "WEBP") for p in drawn(2)], strict=True)),
        )
    found = scan_source(tmp_path / "lsun", AUTO)
    assert (found.classes, found.splits) == (("bedroom", "church_outdoor"), ("train", "val"))
    assert [tuple(item.values.values()) for item in found.items] == [
        *[(0, 0)] * 2,
        *[(0, 1)] * 2,
        *[(1, 0)] * 2,
    ]


def test_files_and_folders_of_any_name_are_told(tmp_path):
    """data.mdb in a folder, a file of subdir=False, and one without any extension."""
    images = {b"0": encoded(drawn(1)[0])}
    folder = write_lmdb(tmp_path / "a" / "data_folder", images)
    file = write_lmdb(tmp_path / "b" / "train.lmdb", images, subdir=False)
    bare = write_lmdb(tmp_path / "c" / "imagenet", images, subdir=False)
    for raw, key in (
        (folder, b"0"),
        (folder / "data.mdb", b"0"),
        (folder.parent, b"data_folder/0"),
        (file, b"train/0"),
        (file.parent, b"train/0"),
        (bare, b"imagenet/0"),
    ):
        found = scan_source(raw, AUTO)
        assert (found.format, [item.key for item in found.items]) == ("lmdb", [key])
        assert found.rejects == []


def test_named_databases_are_read_with_their_names(tmp_path):
    """Images in one database and labels in another belong together."""
    raw = tmp_path / "a.lmdb"
    write_lmdb(raw, {b"1": encoded(drawn(1)[0])}, database=b"images")
    write_lmdb(raw, {b"1": b"3"}, database=b"labels")
    found = scan_source(raw, AUTO)
    assert keys_and_values(found) == [("images/1", {"label": 3})]


def test_the_map_is_neither_written_nor_locked(tmp_path):
    """A read-only folder is enough: the build opens no file of it for writing, and makes none."""
    raw = write_lmdb(tmp_path / "a.lmdb", as_numbered([encoded(p) for p in drawn(3)]))
    (raw / "lock.mdb").unlink()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in raw.iterdir()}
    raw.chmod(0o555)
    try:
        images = stored_images(raw, tmp_path / "out.lmdb")
    finally:
        raw.chmod(0o755)
    assert all(map(np.array_equal, images, drawn(3)))
    assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in raw.iterdir()}


# --- files that lie -------------------------------------------------------------------------------


def made(tmp_path: Path) -> Path:
    """A map of many pages, of values in pages of their own and of small ones."""
    entries = {b"%06d" % n: encoded(drawn(1, 16, 24)[0]) for n in range(60)}
    entries |= {b"label-%06d" % n: b"1" for n in range(60)}
    return write_lmdb(tmp_path / "a.lmdb", entries) / "data.mdb"


def reason_of(path: Path) -> str:
    """Why nothing of a map is packed."""
    found = scan_source(path, AUTO)
    assert not found.items
    return found.rejects[0].reason


def test_a_file_that_is_cut_short_or_damaged_is_named(tmp_path):
    """At any place: never a crash, nor an image that is none of it."""
    path = made(tmp_path)
    whole = path.read_bytes()
    for kept in (100, 5000, len(whole) // 2, len(whole) - 5000):
        path.write_bytes(whole[:kept])
        assert "mdb_copy" in reason_of(path)
    path.write_bytes(bytes(len(whole)))
    assert "nothing but zeros" in reason_of(path)
    rng = np.random.default_rng(3)
    for _ in range(60):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 40):
            damaged[at] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            found = scan_source(path, AUTO)
        except SourceError:
            continue
        assert all(len(content) <= len(whole) for content in contents(found))


@pytest.mark.parametrize(
    ("magic_at", "order", "word"), [(12, "little", "32-bit"), (16, "big", "byte order")]
)
def test_files_of_other_machines_are_told(magic_at, order, word, tmp_path):
    """With how to bring them over."""
    path = tmp_path / "data.mdb"
    data = bytearray(8192)
    data[magic_at : magic_at + 4] = 0xBEEFC0DE.to_bytes(4, order)
    path.write_bytes(data)
    reason = reason_of(path)
    assert word in reason
    assert "mdb_load" in reason


@pytest.mark.parametrize("page_bytes", [512, 16384, 65536])
def test_pages_of_any_size_are_read(page_bytes, tmp_path):
    """Apple's machines have pages of 16 KiB; LMDB takes those of the machine that writes."""
    value = encoded(drawn(1, 2, 2)[0])
    key = b"image-1"

    def header(number: int, flags: int, lower: int = 0, upper: int = 0) -> bytes:
        return struct.pack("<QHHHH", number, 0, flags, lower, upper)

    def database(root: int, count: int) -> bytes:
        return struct.pack("<IHHQQQQQ", page_bytes, 0, count and 1, 0, count, 0, count, root)

    metas = b""
    for number in range(2):
        body = header(number, 8) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 2**20)
        body += database(2**64 - 1, 0) + database(2, 1) + struct.pack("<QQ", 2, number)
        metas += body.ljust(page_bytes, b"\0")
    node = struct.pack("<HHHH", len(value), 0, 0, len(key)) + key + value
    node += bytes(len(node) % 2)
    at = page_bytes - len(node)
    leaf = header(2, 2, 18, at) + struct.pack("<H", at)
    path = tmp_path / "data.mdb"
    path.write_bytes(metas + leaf.ljust(at, b"\0") + node)
    found = scan_source(path, AUTO)
    assert contents(found) == [value]


def test_several_values_of_a_key_are_refused(tmp_path):
    """A map of dupsort holds what its keys alone do not name."""
    env = lmdb.open(str(tmp_path / "a.lmdb"), max_dbs=1)
    handle = env.open_db(b"images", dupsort=True)
    with env.begin(write=True, db=handle) as transaction:
        transaction.put(b"0", b"a")
        transaction.put(b"0", b"b")
    env.close()
    assert "several values of one key" in reason_of(tmp_path / "a.lmdb")


def test_a_map_that_is_written_meanwhile_is_told(tmp_path, monkeypatch):
    """In the scan, and in the build that follows it."""
    from packer.files.blocks import FileBlocks

    path = made(tmp_path)
    found = scan_source(path.parent, AUTO)
    write_lmdb(path.parent, {b"new": b"x"})
    with pytest.raises(ImageError, match="changed while the build ran"):
        contents(found)
    states = iter(range(100))
    monkeypatch.setattr(FileBlocks, "state", lambda self: (next(states), 0))
    assert "a program writes to it" in reason_of(path)


def test_our_own_store_is_told_as_one(tmp_path, store):
    """Given as raw data, whole or a shard of it."""
    with pytest.raises(SourceError, match="this is a store"):
        scan_source(store, AUTO)
    shard = next(store.glob("shard-*.lmdb"))
    with pytest.raises(SourceError, match="this is a shard of a store"):
        scan_source(shard, AUTO)
    with pytest.raises(SourceError, match="this is a shard of a store"):
        scan_source(store.parent, SourceOptions(format="lmdb"))


def test_a_build_of_a_map_gives_the_images_and_labels(tmp_path):
    """End to end by build workers, with stray values rejected by their keys."""
    entries = {b"image-%d" % n: encoded(p) for n, p in enumerate(drawn(4))}
    entries |= {b"label-%d" % n: b"%d" % (n % 2) for n in range(5)}
    raw = write_lmdb(tmp_path / "a.lmdb", {**entries, b"image-4": b"not a picture"})
    out = tmp_path / "out.lmdb"
    report = build(raw, out, max_rejects=5, worker_count=2)
    assert report.reject_count == 1
    with LMDBDataset(out, image_as="numpy") as dataset:
        samples = list(dataset)
    assert [int(sample["label"]) for sample in samples] == [0, 1, 0, 1]
    for sample, pixels in zip(samples, drawn(4), strict=True):
        assert np.array_equal(sample["image"], pixels)


def test_pickled_values_end_a_build_with_its_remedy(tmp_path):
    """As the command shows it: one message."""
    raw = write_lmdb(tmp_path / "a.lmdb", as_numbered([pickle.dumps((b"x", 1))] * 3))
    with pytest.raises(BuildError, match=r"packer\.build\(dataset, out\)"):
        build(raw, tmp_path / "out.lmdb", worker_count=1)
