"""What was rejected, by reason and by folder: of a store, and of a build that published nothing."""

from __future__ import annotations

import json

import pytest

import packer
from packer import Recipe, build
from packer.building.build import Step
from packer.errors import TooManyRejectsError
from packer.stores.rejects import rejects
from readers.store.errors import StoreError
from tests.command import run_packer
from tests.packer.conftest import CLASS_NAMES, draw_tree


@pytest.fixture
def spoilt(tmp_path):
    """Twelve pictures, and seven files that are none: empty, and of bytes that mean nothing."""
    raw = draw_tree(tmp_path / "raw", CLASS_NAMES)
    for number in range(5):
        (raw / "ant" / f"empty{number}.jpg").write_bytes(b"")
    (raw / "bee" / "cut.png").write_bytes((raw / "bee" / "0.png").read_bytes()[:100])
    (raw / "cat" / "cut.png").write_bytes((raw / "bee" / "0.png").read_bytes()[:90])
    return raw


def test_rejects_are_counted_by_reason_and_by_folder(spoilt, tmp_path):
    """The most frequent first, with a few of each; as JSON whole; in Python by one call."""
    out = tmp_path / "out.lmdb"
    build(spoilt, out, workers=1, max_rejects="50%", source=None)
    found = packer.rejects(out)
    assert (found.item_count, found.annotation_count, found.part_count) == (7, 0, 0)
    assert sum(one.count for one in found.reasons) == 7
    assert found.reasons[0].count == 5
    assert found.reasons[0].examples == tuple(f"ant/empty{n}.jpg" for n in range(3))
    assert found.folders == {"ant": 5, "bee": 1, "cat": 1}
    told = run_packer("rejects", out)
    assert told.exit_code == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == f"{out}: 7 raw items rejected"
    assert "by reason:" in lines
    assert "ant/empty0.jpg, ant/empty1.jpg, ant/empty2.jpg and 2 more" in told.stdout
    assert lines[lines.index("by folder:") + 1] == "  5  ant"
    assert lines[-1] == f"each is named in {out}/rejects.jsonl"
    assert json.loads(run_packer("rejects", out, "--json").stdout) == json.loads(
        json.dumps(found.as_dict())
    )


def test_reasons_that_differ_in_names_and_numbers_alone_are_one(tmp_path):
    """Else a thousand boxes outside of their pictures are a thousand reasons."""
    raw = draw_tree(tmp_path / "raw", ["0.png"])
    box = {"image_id": 1, "category_id": 1}
    boxes = [[1, 1, 4, 4], [2, 2, 0, 3], [3, 3, 0, 1], [4, 4, 0, 2]]
    coco = {
        "images": [{"id": 1, "file_name": "0.png", "width": 24, "height": 16}],
        "annotations": [{**box, "id": n, "bbox": bbox} for n, bbox in enumerate(boxes)],
        "categories": [{"id": 1, "name": "a"}],
    }
    (raw / "train.json").write_text(json.dumps(coco))
    build(raw, tmp_path / "out.lmdb", workers=1)
    found = rejects(tmp_path / "out.lmdb")
    assert (found.item_count, found.annotation_count) == (0, 3)
    (one,) = found.reasons
    assert (one.count, one.is_alike) == (3, True)
    told = found.summary()
    assert "3 annotations rejected" in told
    assert "(and alike)" in told


def test_a_build_that_published_nothing_has_rejects_too(spoilt, tmp_path):
    """Too many: all that was listed. Stopped on the way: those of the finished shards."""
    out = tmp_path / "out.lmdb"
    with pytest.raises(TooManyRejectsError):
        build(spoilt, out, workers=1)
    assert rejects(out).item_count == 7
    assert rejects(out).listed_in == f"{out}.building/rejects.jsonl"

    class StoppedError(Exception):
        pass

    def stop(step):
        if step is Step.SHARD_FINISHED:
            raise StoppedError

    half = tmp_path / "half.lmdb"
    recipe = Recipe(size=320, fit="stretch", shard_bytes_max=2**20)
    with pytest.raises(StoppedError):
        build(spoilt, half, recipe, workers=1, max_rejects="90%", on_step=stop)
    found = rejects(half)
    assert found.unfinished_count > 0
    assert found.listed_in is None
    assert "so far: " in found.summary()


def test_a_store_without_rejects_says_so_and_no_store_is_an_error(store, tmp_path):
    """Status 0 and a line; or 1 and what there is at the path."""
    assert run_packer("rejects", store).stdout == f"{store}: nothing rejected\n"
    with pytest.raises(StoreError, match="nothing there"):
        rejects(tmp_path / "none.lmdb")
    assert run_packer("rejects", tmp_path / "none.lmdb").exit_code == 1
