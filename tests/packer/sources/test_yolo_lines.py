"""One label file of YOLO -> objects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.sources.yolo.lines import LabelFile, LineRules, read_label_file

RULES = LineRules(task=None, class_names=("ant", "bee"), labels={b"0": 0, b"1": 1})
POSE = replace(RULES, task="pose", keypoint_shape=(2, 3))


def read(text: str | bytes, rules: LineRules = RULES) -> LabelFile:
    data = text if isinstance(text, bytes) else text.encode()
    return read_label_file(data, "labels/1.txt", rules)


def reason(line: str | bytes, rules: LineRules = RULES) -> str:
    """Why the only line of a file is rejected."""
    found = read(line, rules)
    assert not found.objects
    assert [number for number, _ in found.rejects] == [1]
    return found.rejects[0][1]


def points(data: bytes, dtype: str = "<f8") -> list[float]:
    return np.frombuffer(data, dtype).tolist()


def test_five_numbers_are_a_box_about_its_centre():
    """Centre and size become corners; blanks, tabs, a BOM, CRLF and empty lines change nothing."""
    found = read(b"\xef\xbb\xbf1 0.5 0.25 0.25 0.5\r\n\r\n  0\t0.5  0.5 1.0 1 \n")
    assert [(o.label, o.box, o.place) for o in found.objects] == [
        (1, (0.375, 0.0, 0.625, 0.5), "labels/1.txt, line 1"),
        (0, (0.0, 0.0, 1.0, 1.0), "labels/1.txt, line 3"),
    ]
    assert found.rejects == []
    assert found.widths == {5: (1, "1 0.5 0.25 0.25 0.5")}


@pytest.mark.parametrize("token", ["1", "1.0", "1.", "01", "+1", "1e0", "1.000000e+00"])
def test_a_whole_number_is_a_class_however_it_is_spelled(token):
    """Tools that write all numbers alike write classes as floats."""
    assert [o.label for o in read(f"{token} 0.5 0.5 0.1 0.1").objects] == [1]


@pytest.mark.parametrize("token", ["0.5", "-1", "fly", "nan", "1e-1", "0x1", "1_0", "é"])
def test_a_class_that_is_no_whole_number_is_rejected(token):
    """The reason names what stands there."""
    assert "is not a whole number" in reason(f"{token} 0.5 0.5 0.1 0.1")


def test_a_class_past_the_list_is_rejected():
    """With its number and those that there are, also when the number is huge."""
    text = reason("2 0.5 0.5 0.1 0.1")
    assert text == "class 2 is not known; there are 2 classes, 0 to 1"
    assert "is not a whole number" in reason("9" * 5000 + " 0.5 0.5 0.1 0.1")


def test_classes_that_were_not_asked_for_are_rejected_by_name():
    """The numbers in the files are those of the data's own list, whatever is asked for."""
    rules = LineRules(task=None, class_names=("ant", "bee"), labels={b"1": 0})
    found = read("0 0.5 0.5 0.1 0.1\n1 0.5 0.5 0.1 0.1", rules)
    assert [o.label for o in found.objects] == [0]
    assert found.rejects == [(1, "class 'ant' is not one of --classes")]


def test_without_a_list_a_class_is_any_number_below_a_limit():
    """One stray number must not make a million classes."""
    rules = LineRules(task=None, class_names=None, labels={b"9999": 9999})
    assert [o.label for o in read("9999 0.5 0.5 0.1 0.1", rules).objects] == [9999]
    assert "class 10000 is not known; no list names the classes" in reason(
        "10000 0.5 0.5 0.1 0.1", rules
    )


def test_a_hair_over_one_is_rounding():
    """Up to 1.01 a number is kept as written, since what is outside is cut off later."""
    found = read("0 0.7500001 0.5 0.5000002 0.5\n0 1.01 -0.01 0.1 0.1")
    assert found.objects[0].box == pytest.approx((0.5, 0.25, 1.0000002, 0.75), abs=1e-12)
    assert len(found.objects) == 2
    assert not found.rejects


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("1.4033 0.5 0.2 0.2", "x centre is 1.4033"),
        ("0.5 1.011 0.2 0.2", "y centre is 1.011"),
        ("320 240 64 48", "x centre is 320.0"),
        ("0.5 0.5 64 0.2", "width is 64.0"),
        ("0.5 0.5 0.2 inf", "height is inf"),
    ],
)
def test_numbers_over_one_look_like_pixels(values, words):
    """The first of them is named with its value, and what to do about pixels."""
    text = reason(f"0 {values}")
    assert text.startswith(f"{words}; expected a share of the picture's side, in [0, 1]")
    assert "look like pixels" in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("0.5 0.5 -0.2 0.2", "width is -0.2; expected a share of the picture's width, over 0"),
        ("0.5 0.5 0.2 -0.001", "height is -0.001"),
        ("-0.02 0.5 0.2 0.2", "x centre is -0.02"),
        ("nan 0.5 0.2 0.2", "x centre is nan"),
        ("0.5 0.5 0.2 nan", "height is nan"),
        ("-inf inf 0.2 0.2", "x centre is -inf"),
        ("0.5 0.5 0.2 1,5", "value 5 is '1,5'; expected a number"),
    ],
)
def test_what_is_no_share_is_rejected(values, words):
    """Negative sizes, places left of the picture, NaN and text; the value is named."""
    text = reason(f"0 {values}")
    assert text.startswith(words)
    assert "pixels" not in text


def test_a_box_of_no_width_is_left_to_those_who_know_the_picture():
    """Degenerate boxes are rejected with the picture, for all formats alike."""
    assert read("0 0.5 0.5 0 0").objects[0].box == (0.5, 0.5, 0.5, 0.5)


@pytest.mark.parametrize("count", [1, 2, 4, 6, 8, 10, 56])
def test_other_numbers_of_values_are_rejected(count):
    """The count and the line are named, and what a line of that many may be."""
    line = " ".join(["0"] + ["0.5"] * (count - 1))
    text = reason(line)
    assert text.startswith(f"{count} value")
    assert line[:50] in text
    assert ("is a prediction" in text) == (count == 6)
    assert ("kpt_shape" in text) == (count > 6)


def test_an_odd_count_from_seven_on_is_an_outline():
    """Without a task, outlines are kept beside boxes; their bounds are taken later."""
    found = read("1 0.5 0.25 0.9375 0.25 0.71875 0.875\n0 0.5 0.5 0.1 0.1")
    outline, box = found.objects
    assert [points(p) for p in outline.polygons] == [[0.5, 0.25, 0.9375, 0.25, 0.71875, 0.875]]
    assert (outline.box, box.polygons) == (None, ())
    assert list(found.widths) == [7, 5]
    assert "y of point 3 is 1.5" in reason("0 0 0 1 0 1 1.5")
    assert "x of point 2 is nan" in reason("0 0 0 nan 0 1 1")


def test_detect_takes_the_bounds_of_outlines():
    """Also of four points, which may as well be a turned box."""
    rules = replace(RULES, task="detect")
    found = read("1 0.5 0.25 0.9375 0.25 0.71875 0.875\n0 .1 .2 .3 .1 .4 .6 .2 .7", rules)
    assert [o.box for o in found.objects] == [(0.5, 0.25, 0.9375, 0.875), (0.1, 0.1, 0.4, 0.7)]
    assert all(o.polygons == () for o in found.objects)


def test_segment_rejects_a_box_alone():
    """It has no outline, and none is made up."""
    rules = replace(RULES, task="segment")
    assert "a box without an outline" in reason("0 0.5 0.5 0.1 0.1", rules)
    found = read("0 .1 .2 .3 .1 .4 .6 .2 .7", rules)
    assert points(found.objects[0].polygons[0]) == [0.1, 0.2, 0.3, 0.1, 0.4, 0.6, 0.2, 0.7]


def test_obb_takes_four_corners_and_nothing_else():
    """As points in the order of the line."""
    rules = replace(RULES, task="obb")
    made = read("1 .125 .25 .375 .125 .5 .625 .25 .75", rules).objects[0]
    assert points(made.keypoints, "<f4") == [0.125, 0.25, 0.375, 0.125, 0.5, 0.625, 0.25, 0.75]
    assert (made.box, made.polygons) == (None, ())
    assert "expected 9 for task 'obb'" in reason("0 .1 .2 .3 .1 .4 .6", rules)
    assert read("0 0.5 0.5 0.5 0.5", rules).objects[0].box == (0.25, 0.25, 0.75, 0.75)
    assert "x of point 4 is 7.0" in reason("0 .1 .2 .3 .1 .4 .6 7 .7", rules)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0,0.5,0.5,0.2,0.2", "the numbers are separated by commas; expected blanks"),
        ("0, 0.5, 0.5, 0.2, 0.2", "the numbers are separated by commas; expected blanks"),
        ("0;0,5;0,5;0,2;0,2", "the numbers are separated by semicolons; expected blanks"),
        ("0;0.5;0.5;0.2;0.2", "the numbers are separated by semicolons; expected blanks"),
        ("0|0.5|0.5|0.2|0.2", "the numbers are separated by bars; expected blanks"),
        ("0 0.5,0.5,0.2,0.2", "the numbers are separated by commas; expected blanks"),
        ("ant,0.5,0.5,0.2,0.2", "the numbers are separated by commas; expected blanks"),
        ("0 0,5 0,5 0,2 0,2", "value 2 is '0,5'; expected a number with a point, not a comma: 0.5"),
        ("0 50% 0.5 0.2 0.2", "value 2 is '50%'; expected a number without a percent sign"),
        ("ant 0.5 0.5 0.2 0.2", "a class by name; expected its number (ant is 0)"),
        ("'bee' 0.5 0.5 0.2 0.2", "a class by name; expected its number (bee is 1)"),
        ("fly 0.5 0.5 0.2 0.2", "class 'fly' is not a whole number from 0; expected the number"),
        ("0.5 0.5 0.2 0.2 1", "the class seems to be the last value"),
        ("9 9 19 9 19 19 9 19 ant 0", "Give --format dota"),
        ("0 0.5 0.5 0.2", "1 of class, x centre, y centre, width and height missing"),
    ],
)
def test_a_line_of_another_form_says_which_and_what_is_expected(line, words):
    """A separator, a comma in numbers, a name for a number, an order: the cause and the remedy."""
    assert words in reason(line)


def test_a_class_of_several_words_is_known_by_its_name():
    """Blanks in it make several values of it."""
    rules = LineRules(task=None, class_names=("traffic light",), labels={b"0": 0})
    assert "(traffic light is 0)" in reason("traffic light 0.5 0.5 0.2 0.2", rules)


def test_tabs_are_blanks():
    """However many."""
    assert read("0\t0.5\t0.5 \t0.5\t0.5").objects[0].box == (0.25, 0.25, 0.75, 0.75)


def test_pose_has_a_box_and_the_points_that_it_says():
    """A visibility is not a share of anything, so that 2 is fine there and nowhere else."""
    made = read("0 0.5 0.5 0.5 0.5 .25 .5 2 0 0 0", POSE).objects[0]
    assert made.box == (0.25, 0.25, 0.75, 0.75)
    assert points(made.keypoints, "<f4") == [0.25, 0.5, 2, 0, 0, 0]
    assert "5 values; expected 11: class, box and 2 keypoints of 3" in reason("0 .5 .5 .5 .5", POSE)
    flat = replace(POSE, keypoint_shape=(2, 2))
    made = read("0 0.5 0.5 0.5 0.5 .25 .5 1 0", flat).objects[0]
    assert points(made.keypoints, "<f4") == [0.25, 0.5, 1, 0]


def test_detect_leaves_the_points_of_a_pose_aside():
    """Its outline would be made of keypoints otherwise."""
    rules = replace(POSE, task="detect", keypoint_shape=(2, 2))
    found = read("0 0.5 0.5 0.5 0.5 0 0 1 1\n0 0.5 0.5 0.25 0.25", rules)
    assert [o.box for o in found.objects] == [
        (0.25, 0.25, 0.75, 0.75),
        (0.375, 0.375, 0.625, 0.625),
    ]
    assert found.objects[0].keypoints == b""


@given(st.binary(max_size=200) | st.text("01.5-e nax\n\t", max_size=80).map(str.encode))
def test_no_bytes_break_it(data):
    """Every line that holds anything is an object or a reject with a reason."""
    found = read(data)
    lines = sum(bool(line.split()) for line in data.removeprefix(b"\xef\xbb\xbf").splitlines())
    assert len(found.objects) + len(found.rejects) == lines
    assert all(text for _, text in found.rejects)
