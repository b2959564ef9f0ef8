"""Objects land where their image does, and what cannot be kept is rejected with its reason."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from packer.items.annotations import (
    Annotations,
    RawObject,
    keypoint_field,
    object_fields,
    pack_annotations,
    pack_points,
    pack_runs,
    unpack_annotations,
)
from packer.pictures.objects import PlacedObjects, place_objects
from packer.pictures.prepare import Prepared, prepare_image
from packer.recipe import Recipe
from readers.store.errors import ImageError
from readers.store.shapes.affine import invert, map_boxes
from readers.store.shapes.polygons import Runs

WIDTH, HEIGHT = 40, 24

FIELDS = (
    *object_fields(
        ("ant", "bee"),
        ("boxes", "labels", "area", "iscrowd", "difficult", "truncated", "masks", "attributes"),
        keypoints=keypoint_field(2),
    ),
)


def prepared(orientation: int = 1, **settings: Any) -> Prepared:
    """A picture of WIDTH x HEIGHT pixels, as stored in its file, prepared by a recipe."""
    image = Image.new("RGB", (WIDTH, HEIGHT), (10, 20, 30))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    image.save(stream, "PNG", exif=exif)
    return prepare_image(stream.getvalue(), Recipe(**settings))


def thing(**settings: Any) -> RawObject:
    return RawObject(**{"place": "line 1", "label": 0, "box": (4.0, 6.0, 14.0, 18.0), **settings})


def placed(
    *objects: RawObject,
    size: tuple[int, int] | None = None,
    is_relative: bool = False,
    image: Prepared | None = None,
    clips_boxes: bool = False,
) -> PlacedObjects:
    annotations = Annotations(objects=objects, size=size, is_relative=is_relative)
    annotations = unpack_annotations(pack_annotations(annotations))
    return place_objects(annotations, image or prepared(), FIELDS, clips_boxes=clips_boxes)


def test_an_object_has_a_value_in_each_field():
    """One entry an object, in the order of the file, with the types of the schema."""
    outline = [[4, 6], [14, 6], [14, 18], [4, 18]]
    result = placed(
        thing(
            polygons=(pack_points(outline),),
            keypoints=pack_points([[5, 7, 2], [0, 0, 0]], "<f4"),
            area=100.0,
            truncated=True,
            attributes={"pose": "left"},
        ),
        thing(label=1, box=(0.0, 0.0, 2.0, 4.0), iscrowd=True, difficult=True),
    )
    values = result.values
    assert values["boxes"].dtype == np.float32
    assert values["boxes"].tolist() == [[4, 6, 14, 18], [0, 0, 2, 4]]
    assert values["labels"].dtype == np.int64
    assert values["labels"].tolist() == [0, 1]
    assert values["area"].tolist() == [100, 8]
    assert values["iscrowd"].tolist() == [False, True]
    assert values["difficult"].tolist() == [False, True]
    assert values["truncated"].tolist() == [True, False]
    assert values["attributes"] == [{"pose": "left"}, {}]
    assert values["keypoints"].tolist() == [[[5, 7, 2], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]
    masks = values["masks"].to_masks()
    assert masks.sum(axis=(1, 2)).tolist() == [120, 0]
    assert (masks.shape[1:], result.rejects) == ((HEIGHT, WIDTH), [])


def test_no_object_is_an_empty_value_of_each_field():
    """Shape (0, 4) and so on: an image without objects is not one without annotations."""
    values = placed().values
    assert values["boxes"].shape == (0, 4)
    assert values["boxes"].dtype == np.float32
    assert (values["labels"].shape, values["labels"].dtype) == ((0,), np.int64)
    assert values["keypoints"].shape == (0, 2, 3)
    assert (len(values["masks"]), values["attributes"]) == (0, [])


@pytest.mark.parametrize(
    ("settings", "box", "scale"),
    [
        ({"size": 12, "fit": "short"}, [2, 3, 7, 9], 0.25),
        ({"size": 20, "fit": "long"}, [2, 3, 7, 9], 0.25),
        ({"size": 20, "fit": "letterbox"}, [2, 7, 7, 13], 0.25),  # 20 x 12 in the middle of 20.
        ({"size": 48, "fit": "stretch"}, [4.8, 12, 16.8, 36], 2.4),
        ({"size": 24, "fit": "crop"}, [0, 6, 6, 18], None),  # 8 columns are cut from the left.
    ],
)
def test_objects_are_scaled_padded_and_cut_with_the_image(settings, box, scale):
    """Boxes, points, outlines and areas follow the same affine; what is cut off is not a box."""
    outline = [[4, 6], [14, 6], [14, 18], [4, 18]]
    image = prepared(**settings)
    values = placed(
        thing(
            polygons=(pack_points(outline),), keypoints=pack_points([[4, 6, 1], [0, 0, 0]], "<f4")
        ),
        image=image,
    ).values
    assert values["boxes"][0].tolist() == pytest.approx(box, abs=1e-5)
    affine = image.transform.astype(np.float64)
    corner = affine @ [4, 6, 1]
    assert values["keypoints"][0, 0].tolist() == pytest.approx([*corner, 1], abs=1e-4)
    assert values["keypoints"][0, 1].tolist() == [0, 0, 0]
    assert values["masks"][0][0][0].tolist() == pytest.approx(corner, abs=1e-5)
    expected = 120 * scale if scale else 6 * 12
    assert values["area"].tolist() == pytest.approx([expected])
    assert (values["masks"].height, values["masks"].width) == image.size[:2]


def test_an_area_is_scaled_as_the_file_says_where_nothing_is_cut():
    """Also above that of the box, which float32 rounds: only a crop makes it less."""
    rng = np.random.default_rng(5)
    corners = rng.uniform((0, 0, 20, 12), (19, 11, 40, 24), (200, 4))
    objects = [
        thing(place=f"line {n}", box=tuple(box), area=5000.0)
        for n, box in enumerate(corners.tolist())
    ]
    image = prepared(size=37, fit="long")
    areas = placed(*objects, image=image).values["area"]
    scale = abs(float(np.linalg.det(image.transform[:, :2].astype(np.float64))))
    assert areas == pytest.approx(np.full(200, 5000 * scale), rel=1e-5)


def test_what_a_crop_leaves_nothing_of_is_rejected():
    """By name: the object is in the raw data and not in the store."""
    gone = thing(place="line 2", box=(0.0, 0.0, 8.0, 24.0))
    result = placed(thing(), gone, image=prepared(size=24, fit="crop"))
    assert result.values["boxes"].tolist() == [[0, 6, 6, 18]]
    assert [place for place, _ in result.rejects] == ["line 2"]
    assert "nothing of its box is left" in result.rejects[0][1]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_coordinates_of_the_unturned_file_are_turned_with_it(orientation):
    """The declared size tells which frame they are in; equal sizes mean the upright picture."""
    image = prepared(orientation)
    values = placed(thing(), size=(WIDTH, HEIGHT), image=image).values
    if orientation >= 5:
        expected = map_boxes([[4, 6, 14, 18]], image.transform)[0]
        assert values["boxes"][0].tolist() == pytest.approx(expected)
        assert expected.tolist() != [4, 6, 14, 18]
        upright = placed(thing(), size=(HEIGHT, WIDTH), image=image).values
        assert upright["boxes"].tolist() == [[4, 6, 14, 18]]
    else:
        assert values["boxes"].tolist() == [[4, 6, 14, 18]]


def test_annotations_of_another_picture_are_an_error_of_the_image():
    """Neither stored nor upright size: nobody can say where the objects are."""
    with pytest.raises(ImageError, match="picture of 80x24 pixels; the file has 40x24"):
        placed(thing(), size=(80, HEIGHT))
    with pytest.raises(ImageError, match=r"file has 40x24 \(24x40 upright\)"):
        placed(thing(), size=(80, HEIGHT), image=prepared(6))


def test_shares_of_the_sides_become_pixels_of_the_upright_picture():
    """YOLO's numbers are drawn on the picture as people see it."""
    objects = (
        thing(box=(0.25, 0.5, 0.75, 1.0)),
        thing(box=None, polygons=(pack_points([[0, 0], [0.5, 0], [0.5, 0.25]]),)),
    )
    assert placed(*objects, is_relative=True).values["boxes"].tolist() == [
        [10, 12, 30, 24],
        [0, 0, 20, 6],
    ]
    turned = placed(*objects, is_relative=True, image=prepared(8)).values
    assert turned["boxes"].tolist() == [[6, 20, 18, 40], [0, 0, 12, 10]]
    assert turned["area"].tolist() == [240, 60]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"box": (4.0, 6.0, 4.0, 18.0)}, "has no area: 0 wide and 12 high"),
        ({"box": (4.0, 6.0, 14.0, 2.0)}, "has no area: 10 wide and -4 high"),
        ({"box": (40.0, 6.0, 50.0, 18.0)}, "outside of the picture of 40x24 pixels"),
        ({"box": (-9.0, 6.0, 0.0, 18.0)}, "outside of the picture"),
        ({"box": (4.0, 24.0, 14.0, 30.0)}, "outside of the picture"),
        ({"box": (4.0, float("nan"), 14.0, 18.0)}, "is not four numbers"),
        ({"box": (4.0, 6.0, float("inf"), 18.0)}, "is not four numbers"),
        ({"box": (4.0, 6.0, 1e9, 18.0)}, "beyond any picture"),
        ({"box": None}, "is not four numbers"),
        ({"box": None, "polygons": (pack_points([[1, 1], [5, 1]]),)}, "has no area: 4 wide and 0"),
        ({"box": None, "runs": pack_runs([900])}, "over 900 pixels; the picture has 40x24 = 960"),
    ],
)
def test_an_object_that_cannot_be_kept_is_rejected_with_the_reason(change, reason):
    """It is never repaired, and the others stay."""
    result = placed(thing(place="line 8", **change), thing(label=1))
    assert result.values["labels"].tolist() == [1]
    assert [place for place, _ in result.rejects] == ["line 8"]
    assert reason in result.rejects[0][1]


def test_the_same_object_twice_is_kept_once():
    """Label and coordinates alike; another outline in the same box is another object."""
    outline = pack_points([[4, 6], [14, 6], [14, 18]])
    result = placed(
        thing(),
        thing(place="line 2"),
        thing(place="line 3", polygons=(outline,)),
        thing(place="line 4", label=1),
    )
    assert result.values["labels"].tolist() == [0, 0, 1]
    assert result.rejects == [
        ("line 2", "the same as line 1: label and coordinates are equal"),
    ]


def test_overhang_is_kept_and_counted_unless_it_is_rounding():
    """A hair over the edge is the edge; more is what somebody drew, cut off only when asked."""
    objects = (
        thing(box=(30.0, 6.0, 40.004, 18.0)),
        thing(box=(-3.0, 6.0, 14.0, 29.0)),
    )
    kept = placed(*objects)
    assert kept.values["boxes"].tolist() == [[30, 6, 40, 18], [-3, 6, 14, 29]]
    assert kept.overhang_count == 1
    cut = placed(*objects, clips_boxes=True)
    assert cut.values["boxes"].tolist() == [[30, 6, 40, 18], [0, 6, 14, 24]]


def test_runs_are_moved_with_the_pixels():
    """A crowd's runs lie on the stored image: as they are, halved, and turned."""
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[6:18, 4:14] = 1
    runs = np.diff(np.flatnonzero(np.diff(mask.T.ravel(), prepend=0)), prepend=0)
    runs = np.append(runs, WIDTH * HEIGHT - runs.sum())
    crowd = thing(box=None, runs=pack_runs(runs), iscrowd=True)
    size = (WIDTH, HEIGHT)

    same = placed(crowd, size=size).values
    assert isinstance(same["masks"][0], Runs)
    assert same["masks"][0].counts.tolist() == runs.tolist()
    assert same["boxes"].tolist() == [[4, 6, 14, 18]]
    assert same["area"].tolist() == [120]
    half = placed(crowd, size=size, image=prepared(size=12)).values
    assert np.argwhere(half["masks"].to_masks()[0]).min(axis=0).tolist() == [3, 2]
    assert half["masks"].to_masks().sum() == 30
    turned = placed(crowd, size=size, image=prepared(6)).values
    assert turned["masks"].to_masks()[0].tolist() == np.rot90(mask, -1).tolist()


@given(
    st.integers(1, 8),
    st.sampled_from(
        [{}, *({"size": 37, "fit": f} for f in ("short", "long", "letterbox", "stretch"))]
    ),
    st.tuples(st.floats(0, 19), st.floats(0, 11), st.floats(1, 5), st.floats(1, 5)),
)
def test_a_stored_box_leads_back_to_the_raw_pixels(orientation, settings, numbers):
    """Through the inverse of the sample's own transform, within a hundredth of a pixel."""
    x, y, w, h = numbers
    image = prepared(orientation, **settings)
    turned = orientation >= 5
    size = (HEIGHT, WIDTH) if turned else (WIDTH, HEIGHT)
    box = (x, y, x + w, y + h)
    stored = placed(thing(box=box), size=size, image=image).values["boxes"]
    back = map_boxes(stored, invert(image.transform))
    upright = prepared(orientation)
    expected = map_boxes([box], invert(upright.transform))
    assert np.abs(back - expected).max() < 0.01
