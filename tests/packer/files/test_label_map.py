"""What label maps of the common tools say about the values and colours of masks."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.files.masks import NO_COLOR
from packer.sources.masks.label_map import find_label_maps, is_label_map_name, read_label_map

NAMES = ("background", "road", "traffic light")
COLORS = ((0, 0, 0), (128, 64, 128), (250, 170, 30))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labelmap.csv", "name,r,g,b\nbackground,0,0,0\nroad,128,64,128\ntraffic light,250,170,30"),
        (
            "class_dict.csv",
            "\ufeffLabel_Name, Red, Green, Blue\r\nbackground, 0, 0, 0\r\nroad, 128, 64, 128\r\n"
            "traffic light, 250, 170, 30\r\n",
        ),
        ("label_colors.csv", "background,0,0,0\nroad,128,64,128\ntraffic light,250,170,30\n"),
        (
            "labelmap.csv",
            "id,color,class\n2,#FAAA1E,traffic light\n0,#000000,background\n1,804080,road\n",
        ),
        (
            "labelmap.txt",
            "# label:color_rgb:parts:actions\nbackground:0,0,0::\nroad:128,64,128::\n"
            "traffic light:250,170,30::\n",
        ),
        ("labelmap.txt", "background:0,0,0\n\nroad:128,64,128\ntraffic light:250,170,30"),
        ("label_colors.txt", "0 0 0\tbackground\n128 64 128\t\troad\n250 170 30 traffic light\n"),
        ("label_colors.txt", "background 0 0 0\nroad 128 64 128\ntraffic light 250 170 30\n"),
        (
            "dataset_meta.json",
            '{"label_map": {"0": "background", "1": "road", "2": "traffic light"}, '
            '"segmentation_colors": [[0, 0, 0], [128, 64, 128], [250, 170, 30]]}',
        ),
        (
            "colors.json",
            '{"background": [0, 0, 0], "road": [128, 64, 128], "traffic light": [250, 170, 30]}',
        ),
        (
            "colors.json",
            '{"0,0,0": "background", "(128, 64, 128)": "road", "250 170 30": "traffic light"}',
        ),
        (
            "label_map.json",
            '[{"id": 1, "name": "road", "color": [128, 64, 128]}, {"id": 0, "name": "background", '
            '"color": "#000000"}, {"id": 2, "name": "traffic light", "color": "250, 170, 30"}]',
        ),
    ],
)
def test_names_and_colours_are_read_from_each_way_of_writing_them(name, text, tmp_path):
    """The same three classes, in the files of CVAT, CamVid, Datumaro and others."""
    path = tmp_path / name
    path.write_text(text, "utf-8")
    label_map = read_label_map(path)
    assert (label_map.names, label_map.colors, label_map.ignore) == (NAMES, COLORS, None)
    assert label_map.place == str(path)
    assert is_label_map_name(name.upper().encode())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("codes.txt", "background\nroad\ntraffic light\n"),
        ("classes.txt", "background\nroad\ntraffic light"),
        (
            "labelmap.txt",
            "# label:color_rgb:parts:actions\nbackground:::\nroad:::\ntraffic light:::",
        ),
        ("_classes.csv", "Pixel Value, Class\n0, background\n2, traffic light\n1, road\n"),
        (
            "dataset_meta.json",
            '{"label_map": {"1": "road", "0": "background", "2": "traffic light"}}',
        ),
        ("label_map.json", '{"0": "background", "1": "road", "2": "traffic light"}'),
        ("label_map.json", '{"background": 0, "road": 1, "traffic light": 2}'),
        ("label_map.json", '["background", "road", "traffic light"]'),
    ],
)
def test_names_alone_are_read_in_the_order_of_the_values(name, text, tmp_path):
    """Masks of values need no colours."""
    path = tmp_path / name
    path.write_text(text, "utf-8")
    label_map = read_label_map(path)
    assert (label_map.names, label_map.colors) == (NAMES, ())


@pytest.mark.parametrize(
    "text",
    [
        '{"0": [0, 0, 0], "1": [128, 64, 128], "2": [250, 170, 30]}',
        '{"128,64,128": 1, "0,0,0": 0, "250,170,30": "2"}',
        "[[0, 0, 0], [128, 64, 128], [250, 170, 30]]",
    ],
)
def test_colours_alone_are_read_in_the_order_of_the_values(text, tmp_path):
    """A table from colour to number, without names."""
    path = tmp_path / "colours.json"
    path.write_text(text)
    label_map = read_label_map(path)
    assert (label_map.names, label_map.colors) == ((), COLORS)


def test_a_value_that_the_file_leaves_out_has_its_number_for_a_name_and_no_colour(tmp_path):
    """Values are what the file says, and never moved together."""
    path = tmp_path / "labelmap.csv"
    path.write_text("id,name,r,g,b\n3,tree,0,9,0\n1,road,7,7,7\n")
    label_map = read_label_map(path)
    assert label_map.names == ("0", "road", "2", "tree")
    assert label_map.colors == (NO_COLOR, (7, 7, 7), NO_COLOR, (0, 9, 0))


@pytest.mark.parametrize(
    ("rows", "name_count", "ignore"),
    [
        ("0,sky\n1,road\n255,void\n", 2, 255),
        ("0,sky\n1,road\n255,Don't care\n", 2, 255),
        ("0,background\n255,vessel\n", 256, None),
        ("0,sky\n254,void\n", 255, None),
    ],
)
def test_255_is_set_apart_only_where_its_name_says_so(rows, name_count, ignore, tmp_path):
    """A class may be called 255, as the foreground of a binary mask is."""
    path = tmp_path / "_classes.csv"
    path.write_text("Pixel Value,Class\n" + rows)
    label_map = read_label_map(path)
    assert (len(label_map.names), label_map.ignore) == (name_count, ignore)


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("labelmap.txt", "a:0,0,0::\nb:1,2::\n", ["line 2", "'1,2'"]),
        ("labelmap.txt", "a:0,0,0::\nb:1,2,256::\n", ["line 2", "[0, 256)"]),
        ("labelmap.txt", "a:0,0,0::\nb\n", ["line 2", "'b'"]),
        ("labelmap.txt", "a:0,0,0::\nb:::\n", ["line 2", "no colour"]),
        ("labelmap.txt", "a:0,0,0::\nb:0,0,0::\n", ["line 2", "(0, 0, 0)", "line 1"]),
        ("labelmap.txt", "a:0,0,0::\na:0,0,1::\n", ["line 2", "name 'a'", "line 1"]),
        ("label_colors.txt", "0 0 0 a\nb\n", ["line 2"]),
        ("labelmap.csv", "first,second\n1,2\n", ["'first', 'second'", "name, r, g and b"]),
        ("labelmap.csv", "name,r,g,b\na,0,0\n", ["line 2", "3 columns"]),
        ("labelmap.csv", "id,name\n-1,a\n", ["line 2", "'-1'"]),
        ("labelmap.csv", "id,name\n65536,a\n", ["[0, 65536)"]),
        ("labelmap.csv", "id,name\n1,a\n1,b\n", ["line 3", "value 1"]),
        ("labelmap.csv", "", ["no classes"]),
        ("labelmap.csv", "name,r,g,b\n", ["no classes"]),
        ("labelmap.csv", "name,r,g,b\n" + "a" * 200_000 + ",0,0,0\n", ["not CSV"]),
        ("colors.json", '{"\\ud800": [0, 0, 0]}', ["is not text"]),
        ("colors.json", "{", ["not JSON"]),
        ("colors.json", "3", ["expected an object or a list"]),
        ("colors.json", "[" * 100_000, ["not JSON"]),
        ("colors.json", '{"a": [0, 0, true]}', ["'a'", "three numbers"]),
        ("colors.json", '{"a": null}', ["'a'", "None"]),
        ("colors.json", "[3]", ["entry 0"]),
        (
            "dataset_meta.json",
            '{"label_map": {"0": "a", "1": "b"}, "segmentation_colors": [[0, 0, 0]]}',
            ["1 segmentation_colors", "2 labels"],
        ),
        ("codes.txt", "a\n\nb\n", ["line 2"]),
        ("codes.txt", "a\nb\na\n", ["line 3", "'a'"]),
        ("codes.txt", b"caf\xe9\n", ["not UTF-8"]),
    ],
)
def test_a_label_map_that_is_not_clear_is_an_error_that_names_the_place(
    name, text, parts, tmp_path
):
    """A wrong label map would make every mask wrong, so nothing of it is guessed."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SourceError) as caught:
        read_label_map(path)
    for part in (name, *parts):
        assert part in str(caught.value)


def written(root: Path, files: dict[str, str]) -> list[bytes]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [name.encode() for name in files]


def test_label_maps_are_found_by_name_and_those_that_say_more_come_first(tmp_path):
    """Colours with names before names alone; other files are passed over."""
    paths = written(
        tmp_path,
        {"codes.txt": "a\nb\n", "notes.txt": "no map", "x/LabelMap.txt": "a:0,0,0::\nb:1,1,1::\n"},
    )
    maps = find_label_maps(tmp_path, paths)
    assert [each.place for each in maps] == ["x/LabelMap.txt", "codes.txt"]


def test_one_label_map_in_each_split_must_be_the_same(tmp_path):
    """Roboflow writes one into each folder; of files at different depths the upper one counts."""
    same = "Pixel Value,Class\n0,a\n1,b\n"
    paths = written(tmp_path, {"train/_classes.csv": same, "valid/_classes.csv": same})
    assert [each.names for each in find_label_maps(tmp_path, paths)] == [("a", "b")]
    paths += written(tmp_path, {"valid/deep/_classes.csv": "Pixel Value,Class\n0,b\n"})
    assert len(find_label_maps(tmp_path, paths)) == 1
    written(tmp_path, {"valid/_classes.csv": "Pixel Value,Class\n0,b\n1,a\n"})
    with pytest.raises(SourceError, match=r"train/_classes\.csv and valid/_classes\.csv differ"):
        find_label_maps(tmp_path, paths)
