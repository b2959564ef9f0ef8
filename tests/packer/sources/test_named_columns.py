"""Lists whose columns the user names: `--path-column id --label-column breed`."""

from __future__ import annotations

import json

import pytest

from packer import build
from packer.errors import SourceError
from packer.sources import SourceOptions, scan_source
from readers.store.manifest import read_manifest
from tests.command import run_packer
from tests.packer.conftest import draw_tree

STEMS = [f"img{n}" for n in range(4)]
KINDS = ["pug", "boxer", "pug", "boxer"]


def write_csv(folder, header, rows, name="list.csv"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join([header, *rows]) + "\n")
    return folder / name


def labels_of(found):
    return [(i.key.decode(), found.classes[i.values["label"]]) for i in found.items]


@pytest.mark.parametrize("below", ["", "pictures/"])
@pytest.mark.parametrize("ending", ["", ".png"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_named_columns_are_taken_whatever_they_are_called(tmp_path, below, ending, delimiter):
    """By stem or name, beside the list or in a folder below it; the others are not read."""
    draw_tree(tmp_path, [f"{below}{stem}.png" for stem in STEMS])
    rows = [
        delimiter.join([stem + ending, "x.jpg", str(n), kind])
        for n, (stem, kind) in enumerate(zip(STEMS, KINDS, strict=True))
    ]
    header = delimiter.join(["Bild", "file", "label", "Rasse"])
    path = write_csv(tmp_path, header, rows, "list.tsv" if delimiter == "\t" else "list.csv")
    options = SourceOptions(path_column="Bild", label_column="Rasse")
    for raw in (tmp_path, path):
        found = scan_source(raw, options)
        expected = [(f"{below}{s}.png", k) for s, k in zip(STEMS, KINDS, strict=True)]
        assert (found.format, labels_of(found), found.rejects) == ("csv", expected, [])
        assert found.classes == ("boxer", "pug")
        assert "columns not read: 'file', 'label'" in found.notes


def test_a_label_column_alone_is_enough_and_so_is_a_path_column(tmp_path):
    """What is not named is found as ever: `path`, `label`, or the only other column."""
    draw_tree(tmp_path, [f"{stem}.png" for stem in STEMS])
    pairs = list(zip(STEMS, KINDS, strict=True))
    expected = [(f"{stem}.png", kind) for stem, kind in pairs]
    path = write_csv(tmp_path, "path,label,breed", [f"{s}.png,7,{k}" for s, k in pairs])
    assert labels_of(scan_source(path, SourceOptions(label_column="breed"))) == expected
    path = write_csv(tmp_path, "path,id,label", [f"none.png,{s},{k}" for s, k in pairs])
    assert labels_of(scan_source(path, SourceOptions(path_column="id"))) == expected
    path = write_csv(tmp_path, "who,breed", [f"{s}.png,{k}" for s, k in pairs])
    assert labels_of(scan_source(path, SourceOptions(path_column="who"))) == expected


def test_json_lines_have_named_columns_too(tmp_path):
    """Also keys of records inside; a named column of lists has several labels a picture."""
    draw_tree(tmp_path, [f"{stem}.png" for stem in STEMS])
    lines = [
        {"meta": {"who": stem}, "text": kind, "tags": [kind, "dog"]}
        for stem, kind in zip(STEMS, KINDS, strict=True)
    ]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for raw in (tmp_path, tmp_path / "list.jsonl"):
        named = SourceOptions(format="jsonl", path_column="meta.who", label_column="text")
        found = scan_source(raw, named)
        assert [field.name for field in found.fields] == ["label"]  # No caption, which `text` is.
        assert [kind for _, kind in labels_of(found)] == KINDS
    tags = SourceOptions(path_column="meta.who", label_column="tags")
    found = scan_source(tmp_path / "list.jsonl", tags)
    named = [[found.classes[n] for n in item.values["labels"]] for item in found.items]
    assert named == [[kind, "dog"] for kind in KINDS]


def test_parquet_lists_have_named_columns_too(tmp_path):
    """They name pictures by path; what the names of the columns say gives way."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    draw_tree(tmp_path, [f"{stem}.png" for stem in STEMS])
    table = pyarrow.table({"who": STEMS, "label": ["a", "b", "c", "d"], "breed": KINDS})
    parquet.write_table(table, tmp_path / "list.parquet")
    options = SourceOptions(path_column="who", label_column="breed")
    found = scan_source(tmp_path / "list.parquet", options)
    assert found.format == "parquet"
    assert [kind for _, kind in labels_of(found)] == KINDS


def test_a_named_label_is_that_of_boxes(tmp_path):
    """Rows of boxes: their class is the column that was named."""
    draw_tree(tmp_path, ["img0.png"])
    rows = ["img0,1,2,9,9,a,pug", "img0,3,4,9,9,b,boxer"]
    path = write_csv(tmp_path, "photo,xmin,ymin,xmax,ymax,class,breed", rows)
    found = scan_source(path, SourceOptions(path_column="photo", label_column="breed"))
    assert [field.name for field in found.fields][:2] == ["boxes", "labels"]
    assert found.classes == ("boxer", "pug")


def test_a_named_label_is_that_of_boxes_in_records(tmp_path):
    """Also where the records have a label of their own by name."""
    draw_tree(tmp_path, ["img0.png"])
    boxes = [
        {"bbox": [1, 2, 5, 5], "category": "a", "breed": "pug"},
        {"bbox": [3, 4, 5, 5], "category": "b", "breed": "boxer"},
    ]
    line = {"file_name": "img0.png", "objects": boxes}
    (tmp_path / "list.jsonl").write_text(json.dumps(line) + "\n")
    named = SourceOptions(label_column="objects.breed")
    for options, classes in ((SourceOptions(), ("a", "b")), (named, ("boxer", "pug"))):
        assert scan_source(tmp_path / "list.jsonl", options).classes == classes


def test_a_column_that_is_not_there_is_told_with_the_nearest(tmp_path):
    """By its option and what there is instead; whole layouts without columns refuse both."""
    draw_tree(tmp_path, [f"{stem}.png" for stem in STEMS])
    path = write_csv(tmp_path, "path,breed", [f"{s}.png,a" for s in STEMS])
    for raw in (path, tmp_path):
        options = SourceOptions(format="csv", label_column="bred")
        with pytest.raises(SourceError, match=r"no column 'bred', which --label-column .*'breed'"):
            scan_source(raw, options)
    with pytest.raises(SourceError, match="no column 'id', which --path-column names"):
        scan_source(path, SourceOptions(path_column="id"))
    with pytest.raises(ValueError, match=r"path_column='id' and label_column='id' are one column"):
        SourceOptions(path_column="id", label_column="id")
    path.unlink()
    with pytest.raises(SourceError, match=r"--path-column id is the column of a list"):
        scan_source(tmp_path, SourceOptions(format="flat", path_column="id"))


def test_the_command_line_names_columns(tmp_path):
    """`detect` and `build` take them; the manifest keeps them, so that a store can be held against
    its raw data."""
    raw, out = tmp_path / "raw", tmp_path / "out.lmdb"
    draw_tree(raw, [f"train/{stem}.png" for stem in STEMS])
    pairs = zip(STEMS, KINDS, strict=True)
    write_csv(raw, "id,note,breed", [f"{s},n{n},{k}" for n, (s, k) in enumerate(pairs)])
    named = ["--path-column", "id", "--label-column", "breed"]
    assert run_packer("detect", raw).exit_code != 0
    found = run_packer("detect", raw, *named)
    assert found.exit_code == 0, found.stdout + found.stderr
    done = run_packer("build", raw, out, *named, "-j", "1")
    assert done.exit_code == 0, done.stderr
    options = read_manifest(out).source.options
    assert options == {"path_column": "id", "label_column": "breed"}
    assert run_packer("verify", out, "--against", raw).exit_code == 0
    same = SourceOptions(path_column="id", label_column="breed")
    build(raw, out, source=same, workers=1, update=True)
    done = run_packer("build", raw, out, "--path-column", "id", "--label-column", "id")
    assert done.exit_code == 2
    assert "--path-column 'id' and --label-column 'id' are one column" in done.stderr
