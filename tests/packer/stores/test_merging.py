"""Several stores become one: every sample is there, with its own values, under its own name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from packer.building.build import build
from packer.errors import BuildError, BuildMismatchError, TargetExistsError
from packer.recipe import Recipe
from packer.stores.merge import merge
from packer.stores.verify import verify
from readers.store.errors import ChecksumError, SchemaMismatchError, StoreError
from readers.store.manifest import Manifest, SourceInfo, publish_manifest, read_manifest
from readers.store.reader import open_store
from readers.store.record import RecordReader
from readers.store.schema import Field, Schema
from tests.readers.store.making import make_manifest, write_shard

START = f"import sys; sys.path[:] = {sys.path!r}; from packer.stores.merge import merge\n"

SQUARE = Recipe(size=32, fit="stretch")


@pytest.fixture(scope="module")
def pair(tmp_path_factory, draw_tree):
    """Stores A of ant and cat, and B of bee and cat, of 32 x 32 pixels. Not to be changed."""
    folder = tmp_path_factory.mktemp("pair")
    for name, names in (
        ("a", ["ant/1.png", "ant/2.png", "cat/1.png"]),
        ("b", ["bee/1.png", "cat/7.png", "cat/8.png"]),
    ):
        build(draw_tree(folder / f"raw-{name}", names), folder / name, SQUARE, worker_count=1)
    return folder / "a", folder / "b"


def samples(path):
    """Every sample of a store by its key, labels and splits by their names."""
    store = open_store(path)
    reader = RecordReader(store.layout)
    found = {}
    for shard in store.shards():
        for position in range(len(shard.offsets)):
            shard.check_record(position)
            values = reader.unpack(shard.record(position))
            for field in store.manifest.schema.fields:
                if field.names and field.kind in ("label", "scalar", "mask"):
                    value = values[field.name]
                    numbers = np.atleast_1d(value).ravel().tolist()
                    # Ids without a name stay what they are.
                    names = [field.names[n] if n < len(field.names) else n for n in numbers]
                    values[field.name] = (np.shape(value), names)
            assert values["key"] not in found
            found[values["key"]] = {
                name: value.tobytes() if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            }
    return found


def test_samples_keep_their_values_and_labels_their_names(pair, tmp_path):
    """Class cat is 1 in both stores and stays; bee is 0 in B and gets 2, behind those of A."""
    report = merge(pair, tmp_path / "out")
    assert samples(tmp_path / "out") == samples(pair[0]) | samples(pair[1])
    manifest = read_manifest(tmp_path / "out")
    assert manifest.classes == ("ant", "cat", "bee") == manifest.schema["label"].names
    assert manifest.statistics["class_counts"] == [2, 3, 1]
    store = open_store(tmp_path / "out")
    labels = np.concatenate([shard.columns["label"] for shard in store.shards()])
    assert labels.tolist() == [0, 0, 1, 2, 1, 1]
    assert verify(tmp_path / "out", level="full").problems == []
    assert (report.sample_count, report.shard_count, report.kept_shard_count) == (6, 2, 0)
    assert report.classes == {"ant": 2, "cat": 3, "bee": 1}
    assert report.as_dict()["stores"] == [str(path) for path in pair]
    assert "6 samples" in report.summary()
    assert not (tmp_path / "out.building").exists()


def test_the_account_of_both_is_kept(pair, tmp_path):
    """Counts add up, and each store's notes stand under its name."""
    merge(pair, tmp_path / "out")
    a, b, merged = (read_manifest(path) for path in (*pair, tmp_path / "out"))
    assert merged.source.format == "merge"
    assert merged.source.found_count == 6
    assert merged.recipe == a.recipe == b.recipe
    assert merged.versions == a.versions
    assert merged.source.notes[:2] == ("merged: 3 samples of a", "merged: 3 samples of b")
    assert "b: 1 of 2 numbers of 'label' became others, by name" in merged.source.notes
    assert f"a: {a.source.notes[0]}" in merged.source.notes
    counts = np.array([a.sample_count, b.sample_count])[:, None]
    means = np.array([m.statistics["channel_mean"] for m in (a, b)])
    assert merged.statistics["channel_mean"] == pytest.approx(
        ((counts * means).sum(0) / 6).tolist()
    )
    assert sum(merged.statistics["sizes"]["stored"]) == 6


def test_the_deviation_of_all_is_that_of_one_build_of_both(tmp_path, draw_tree):
    """Means that differ between stores add to it; it is not a mean of the two."""
    names = ["a/1.png", "b/2.png"]
    for name in names:
        build(draw_tree(tmp_path / f"raw-{name[0]}", [name]), tmp_path / name[0], SQUARE)
    build(draw_tree(tmp_path / "raw", names), tmp_path / "both", SQUARE)
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    expected, found = (read_manifest(tmp_path / n).statistics for n in ("both", "out"))
    assert found.keys() == expected.keys()
    for name in ("channel_mean", "channel_std"):
        assert found[name] == pytest.approx(expected[name], abs=2e-6)
    assert found["sizes"] == expected["sizes"]


def test_shards_of_which_nothing_changes_are_kept_byte_for_byte(shards, tmp_path, draw_tree):
    """Classes of A that lead those of the union need no new number: A's files stay as they are."""
    names = [f"{name}/{at}.png" for name in ("ant", "bee", "cat") for at in (7, 8)]
    recipe = Recipe(size=320, fit="stretch", shard_bytes_max=2**20)
    build(draw_tree(tmp_path / "raw", names), tmp_path / "b", recipe, worker_count=1)
    report = merge([shards, tmp_path / "b"], tmp_path / "out")
    assert (report.shard_count, report.kept_shard_count) == (6, 6)
    for number in range(4):
        name = f"shard-0000{number}.lmdb"
        assert (tmp_path / "out" / name).read_bytes() == (shards / name).read_bytes()
    first = (tmp_path / "b" / "shard-00000.lmdb").read_bytes()
    assert (tmp_path / "out" / "shard-00004.lmdb").read_bytes() == first
    assert (tmp_path / "out" / "shard-00004.lmdb").stat().st_nlink == 1
    assert verify(tmp_path / "out").is_good
    assert samples(tmp_path / "out") == samples(shards) | samples(tmp_path / "b")


def test_shards_may_be_links(shards, tmp_path, draw_tree):
    """A published file is never written again, so two stores may share it."""
    build(draw_tree(tmp_path / "raw", ["ant/9.png", "bee/9.png", "cat/9.png"]), tmp_path / "b",
          Recipe(size=320, fit="stretch"), worker_count=1)  # fmt: skip
    shutil.copytree(shards, tmp_path / "a")
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out", links=True)
    for ours, theirs in ((4, "b/shard-00000.lmdb"), (1, "a/shard-00001.lmdb")):
        assert (tmp_path / "out" / f"shard-0000{ours}.lmdb").samefile(tmp_path / theirs)
    assert verify(tmp_path / "out").is_good


def test_a_key_of_two_stores_is_an_error_that_names_it(pair, tmp_path):
    """Which of the two somebody means could not be told."""
    with pytest.raises(StoreError, match="3 keys are in more than one") as caught:
        merge([pair[0], pair[0]], tmp_path / "out")
    assert "\n  ant/1.png\n  ant/2.png\n  cat/1.png\n" in str(caught.value)
    assert "--prefix a/ --prefix b/" in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.building").exists()


def test_a_prefix_for_each_store_tells_keys_apart(pair, tmp_path):
    """In the records, in the look-up and in the reject list; all other bytes are as they were."""
    copy = shutil.copytree(pair[1], tmp_path / "b")
    line = {"key": "bee/x.png", "path": "bee/x.png", "reason": "empty"}
    (copy / "rejects.jsonl").write_text(json.dumps(line) + "\n")
    merge([pair[1], copy], tmp_path / "out", prefixes=["", "zweites/ä "])
    found = samples(tmp_path / "out")
    for key, values in samples(pair[1]).items():
        assert found[key] == values
        assert found[f"zweites/ä {key}"] == values | {"key": f"zweites/ä {key}"}
    store = open_store(tmp_path / "out")
    assert store.find("zweites/ä cat/8.png".encode()) == 5
    assert store.find(b"cat/8.png") == 2
    rejects = (tmp_path / "out" / "rejects.jsonl").read_text()
    assert json.loads(rejects) == line | {"key": "zweites/ä bee/x.png"}
    assert read_manifest(tmp_path / "out").source.notes[1].endswith("keys begin with 'zweites/ä '")
    # The count of rejects is the manifests' own.
    assert [p for p in verify(tmp_path / "out", level="full").problems if "rejects" not in p] == []


SCHEMA = {
    "key": Field(name="key", kind="text"),
    "mask": Field(name="mask", kind="mask", dtype="uint8", shape=(2, 2), ignore=255),
    "free": Field(name="free", kind="mask", dtype="int32", shape=(None, 2)),
    "boxes": Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
    "labels": Field(name="labels", kind="label", dtype="uint8", shape=(None,)),
    "note": Field(name="note", kind="text"),
    "split": Field(name="split", kind="scalar", dtype="uint8"),
}


def object_store(folder, letter, names, splits, count=5):
    """A store of objects and masks whose classes have these names."""
    named = ("mask", "free", "labels")
    fields = [
        msgspec.structs.replace(
            field, names=names if name in named else splits if name == "split" else None
        )
        for name, field in SCHEMA.items()
    ]
    schema = Schema(tuple(fields))
    rng = np.random.default_rng(ord(letter))
    made = []
    for at in range(count):
        mask = rng.integers(0, len(names), (2, 2)).astype(np.uint8)
        mask[0, 0] = 255 if at % 2 else mask[0, 0]
        objects = at % 4
        made.append(
            (
                f"{letter}{at}".encode(),
                {
                    "key": f"{letter}{at}",
                    "mask": mask,
                    "free": rng.integers(0, len(names), (at, 2)).astype(np.int32),
                    "boxes": rng.random((objects, 4)).astype(np.float32),
                    "labels": rng.integers(0, len(names), objects).astype(np.uint8),
                    "note": "x" * at,
                    "split": at % len(splits),
                },
            )
        )
    folder.mkdir()
    shard = write_shard(folder / "shard-00000.lmdb", schema, made)
    labels = [int(n) for _, values in made for n in values["labels"]]
    numbers = [values["split"] for _, values in made]
    manifest: Manifest = make_manifest(
        schema,
        [shard],
        classes=names,
        splits={name: numbers.count(at) for at, name in enumerate(splits)},
        statistics={"class_counts": [labels.count(at) for at in range(len(names))]},
        source=SourceInfo(
            format="coco", sha256="0" * 64, found_count=count, reject_count=0, ignored={},
            annotations={"found": len(labels), "stored": len(labels), "rejected": 0},
        ),
    )  # fmt: skip
    publish_manifest(folder, manifest)
    (folder / "rejects.jsonl").write_bytes(b"")
    return folder


def test_labels_of_objects_ids_of_masks_and_splits_follow_their_names(tmp_path):
    """Fields of fixed and of variable size, beside others that must not move a byte."""
    a = object_store(tmp_path / "a", "a", ("x", "y"), ("train", "val"))
    b = object_store(tmp_path / "b", "b", ("z", "y", "w", "x"), ("val", "train", "extra"))
    merge([a, b], tmp_path / "out")
    assert samples(tmp_path / "out") == samples(a) | samples(b)
    manifest = read_manifest(tmp_path / "out")
    assert manifest.classes == ("x", "y", "z", "w")
    for name in ("mask", "free", "labels"):
        assert manifest.schema[name].names == ("x", "y", "z", "w")
    assert manifest.splits == {"train": 5, "val": 4, "extra": 1}
    ours, theirs = (read_manifest(path).statistics["class_counts"] for path in (a, b))
    assert manifest.statistics["class_counts"] == [
        ours[0] + theirs[3], ours[1] + theirs[1], theirs[0], theirs[2],
    ]  # fmt: skip
    stored = manifest.source.annotations["stored"]
    assert stored == sum(manifest.statistics["class_counts"])
    assert verify(tmp_path / "out", level="full").problems == []


def test_an_id_without_a_name_is_not_given_one_in_silence(tmp_path):
    """Pixels of id 2 mean nothing in A, and would mean 'w' in the union; 255 is ignored in both."""
    for name, names in (("a", ("x", "y")), ("b", ("x", "y", "w"))):
        mask = Field(name="mask", kind="mask", dtype="uint8", shape=(1, 2), names=names, ignore=255)
        schema = Schema((SCHEMA["key"], mask))
        (tmp_path / name).mkdir()
        values = {"key": name, "mask": np.array([[2, 255]], np.uint8)}
        shard = write_shard(tmp_path / name / "shard-00000.lmdb", schema, [(b"key", values)])
        publish_manifest(tmp_path / name, make_manifest(schema, [shard], classes=()))
        (tmp_path / name / "rejects.jsonl").write_bytes(b"")
    with pytest.raises(StoreError, match=r"sample 0 of the shard: field 'mask': 2 has no name"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_stores_that_do_not_fit_together_are_refused_by_field(pair, tmp_path, raw):
    """Another field, another size, other names under --same-classes: before anything is written."""
    build(raw, tmp_path / "free", worker_count=1)
    build(raw, tmp_path / "jpeg", Recipe(image="original"), worker_count=1)
    with pytest.raises(
        SchemaMismatchError, match=r"its field 'image' is .*null.* in .*\[32, 32, 3"
    ):
        merge([pair[0], tmp_path / "free"], tmp_path / "out")
    with pytest.raises(SchemaMismatchError, match=r"its field 'image' is .*original"):
        merge([tmp_path / "free", tmp_path / "jpeg"], tmp_path / "out")
    with pytest.raises(
        SchemaMismatchError, match=r"of its field 'label' are 'bee', 'cat'; .* are 'ant', 'cat'"
    ):
        merge(pair, tmp_path / "out", same_classes=True)
    a = object_store(tmp_path / "a", "a", ("x", "y"), ("train", "val"))
    with pytest.raises(SchemaMismatchError, match=r"its fields are key, mask, .* same fields"):
        merge([pair[0], a], tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_too_many_names_for_their_numbers_are_refused(tmp_path):
    """255 is what the mask ignores, so it cannot become the number of a class."""
    a = object_store(tmp_path / "a", "a", tuple(f"a{at}" for at in range(130)), ("train",))
    b = object_store(tmp_path / "b", "b", tuple(f"b{at}" for at in range(130)), ("train",))
    with pytest.raises(SchemaMismatchError, match=r"'mask'.*260 names are too many for uint8"):
        merge([a, b], tmp_path / "out")
    shutil.rmtree(b)
    object_store(b, "b", tuple(f"b{at}" for at in range(126)), ("train",))
    with pytest.raises(SchemaMismatchError, match=r"256 names would take the number 255"):
        merge([a, b], tmp_path / "out")


def test_damage_is_not_handed_on(pair, tmp_path):
    """A record with a new checksum would be taken for what was built."""
    copy = shutil.copytree(pair[1], tmp_path / "b")
    offset = int(open_store(copy).shard(0).offsets[1])
    with open(copy / "shard-00000.lmdb", "r+b") as stream:
        stream.seek(offset + 1000)
        stream.write(b"\xff\x00\xff")
    with pytest.raises(ChecksumError, match="sample 1 of the shard: checksum"):
        merge([pair[0], copy], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_target_that_is_taken_is_left_alone(pair, tmp_path):
    """But for --overwrite; and one of the stores is never the target."""
    merge(pair, tmp_path / "out")
    with pytest.raises(TargetExistsError, match="--overwrite"):
        merge(pair, tmp_path / "out")
    with pytest.raises(TargetExistsError):
        merge(pair, tmp_path / "out", prefixes=["a/", "b/"])
    merge(pair, tmp_path / "out", prefixes=["a/", "b/"], overwrite=True)
    assert "a/ant/1.png" in samples(tmp_path / "out")
    for target in (pair[0], pair[1] / "inside"):
        with pytest.raises(BuildError, match="which it is to be made of"):
            merge(pair, target, overwrite=True)


def test_a_merge_that_is_killed_is_no_store_and_goes_on(pair, tmp_path):
    """Whatever is left is refused by readers, and the same call makes the same bytes."""
    merge(pair, tmp_path / "whole")
    code = (
        f"{START}"
        "import os\n"
        "from packer.workspace.folder import Workspace\n"
        "write = Workspace.write_report\n"
        "def die(self, number, report):\n"
        "    write(self, number, report)\n"
        "    os._exit(9)\n"
        "Workspace.write_report = die\n"
        f"merge({[str(path) for path in pair]!r}, {str(tmp_path / 'out')!r}, workers=1)\n"
    )
    status = subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode
    assert status == 9
    with pytest.raises(StoreError):
        open_store(tmp_path / "out")
    kept = tmp_path / "out.building" / "store" / "shard-00000.lmdb"
    found = kept.stat()
    with pytest.raises(BuildMismatchError, match="other settings or data"):
        merge(pair, tmp_path / "out", prefixes=["a/", "b/"])
    merge(pair, tmp_path / "out")
    now = (tmp_path / "out" / "shard-00000.lmdb").stat()
    assert (now.st_ino, now.st_mtime_ns) == (found.st_ino, found.st_mtime_ns)
    for name in os.listdir(tmp_path / "whole"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "out.building").exists()


def test_a_merge_that_runs_out_of_room_says_so_and_goes_on(pair, tmp_path):
    """A limit on the size of files stands in for a full disk: one line, and it can go on."""
    tight = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n{START}"
    code = f"{tight}merge({[str(path) for path in pair]!r}, {str(tmp_path / 'out')!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True
    )
    assert "NoSpaceError" in done.stderr
    assert "then run the same command.\n" in done.stderr  # No shard is finished to be kept.
    assert not (tmp_path / "out").exists()
    merge(pair, tmp_path / "out")
    assert len(samples(tmp_path / "out")) == 6


def test_arguments_out_of_their_range_are_refused(pair, tmp_path):
    """By name, with the value."""
    with pytest.raises(ValueError, match="stores must be at least two; got 1"):
        merge(pair[:1], tmp_path / "out")
    with pytest.raises(ValueError, match=r"prefixes must be one for each of 2 stores; got \['a'\]"):
        merge(pair, tmp_path / "out", prefixes=["a"])


def test_the_command_merges(pair, tmp_path, packer):
    """Two stores and a target; the report as JSON; usage errors as such."""
    out = tmp_path / "out"
    done = packer("merge", *pair, out, "--prefix", "a/", "--prefix", "b/", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sample_count"] == 6
    assert "a/ant/1.png" in samples(out)
    again = packer("merge", *pair, out)
    assert again.returncode == 1
    assert "a store is there already" in again.stderr
    assert packer("merge", pair[0], out).returncode == 2
    assert packer("merge", *pair, out, "--prefix", "a/").returncode == 2
    same = packer("merge", *pair, tmp_path / "other", "--same-classes")
    assert same.returncode == 1
    assert "Without --same-classes" in same.stderr
