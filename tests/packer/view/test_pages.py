"""Pages of stores and of raw data, as data: what is chosen, drawn, told, and written."""

from __future__ import annotations

import base64
import http.client
import io
import json
import shutil
import signal
import subprocess
import threading
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.errors import BuildError, SourceError, TargetExistsError
from packer.items.annotations import object_fields
from packer.recipe import Recipe
from packer.view.cards import make_card
from packer.view.make import view_raw, view_store
from packer.view.pictures import mask_uri, picture_uri
from packer.view.server import ViewServer
from packer.view.shapes import drawn_objects
from packer.view.skeletons import joined_points
from packer.view.spread import spread
from packer.view.store_view import StoreView
from readers.store.errors import SchemaMismatchError
from readers.store.manifest import manifest_bytes, read_manifest
from readers.store.reader import open_store
from readers.store.schema import Field, Schema
from readers.store.shapes.polygons import Polygons
from tests.command import run_packer
from tests.packer.view.conftest import EVIL, scene
from tests.processes import heed_keys


def pixels_of(uri):
    """The picture behind a `data:` address."""
    kind, _, data = uri.partition(";base64,")
    assert kind in ("data:image/png", "data:image/webp")
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        return np.asarray(image.convert("RGBA") if image.mode == "P" else image)


def test_two_hundred_photos_take_less_than_5_mb(tmp_path, page_data):
    """However large the pictures are, and noise compresses worse than any photo."""
    (tmp_path / "raw").mkdir()
    rng = np.random.default_rng(0)
    scenes = [scene(number, 320, 240) // 2 for number in range(10)]
    for number in range(210):
        noise = rng.integers(0, 60, (240, 320, 3), np.uint8) if number % 10 == 0 else 0
        photo = scenes[number // 10 % 10] + noise
        Image.fromarray(photo.astype(np.uint8)).save(tmp_path / "raw" / f"{number}.jpg")
    build(tmp_path / "raw", tmp_path / "out.lmdb", Recipe(image="original"), worker_count=1)
    report = view_store(tmp_path / "out.lmdb", tmp_path / "p.html")
    assert (report.shown_count, report.total_count, report.failed_count) == (200, 210, 0)
    assert (tmp_path / "p.html").stat().st_size == report.bytes < 5_000_000
    cards = page_data(tmp_path / "p.html")["samples"]
    assert len({card["i"] for card in cards}) == 200
    smallest = min(max(pixels_of(card["pic"]).shape[:2]) for card in cards)
    assert smallest >= 110


@pytest.mark.parametrize(("count", "most"), [(1, 5), (5, 5), (7, 5), (1000, 7), (10**9, 200)])
def test_drawn_positions_are_spread_over_all(count, most):
    """Each once, in order, one of each of equal parts, and the same every time."""
    found = spread(count, most)
    assert found.tolist() == sorted(set(found.tolist()))
    assert len(found) == min(count, most)
    assert found[-1] < count
    assert (found * most // count).tolist() == list(range(most)) or count <= most or count < 100
    assert np.array_equal(found, spread(count, most))


def test_no_text_of_a_store_is_markup(coco_store, tmp_path, page_data):
    """Also where it stands in JSON: the file has not one `<` that a class name brought."""
    view_store(coco_store, tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert "owned" in text
    assert "<script>document" not in text
    assert "onerror=" not in text.replace("\\u003c", "<").partition("<img src=x")[0]
    assert "<img" not in text
    assert page_data(tmp_path / "p.html")["classes"]["0"][0] == EVIL


def test_objects_are_in_pixels_of_the_stored_image(coco_store, tmp_path, page_data):
    """Box, outline, points with their visibility, runs as an outline; and the limbs by names."""
    view_store(coco_store, tmp_path / "p.html")
    data = page_data(tmp_path / "p.html")
    card = data["samples"][0]
    assert (card["w"], card["h"], card["n"]) == (160, 120, 2)
    first, crowd = card["objects"]
    assert first["b"] == [10, 10, 70, 90]
    assert first["p"] == [[10, 10, 70, 10, 70, 90, 40, 60, 10, 90]]
    assert first["k"] == [[40, 20, 2], [20, 40, 1], [60, 40, 2], 0]
    assert crowd["f"] == ["iscrowd"]
    xs, ys = crowd["p"][0][0::2], crowd["p"][0][1::2]
    assert (min(xs), max(xs), min(ys), max(ys)) == (80.5, 119.5, 0.5, 119.5)
    assert data["limbs"] == [[1, 2], [3, 1]]
    assert data["rejects"]["total"] == 1


def test_skeletons_are_joined_by_names_alone():
    """COCO's person has 19 lines; points without names are a person's only among people."""
    assert len(joined_points(None, 17, ["person"])) == 19
    assert joined_points(None, 17, ["chair"]) == []
    assert joined_points(None, 5, ["person"]) == []
    assert joined_points(["Left Hip", "left-knee"], 2, []) == [(1, 0)]
    assert joined_points(["a", "b"], 2, []) == []


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (np.full((4, 6, 1), 7, np.uint8), "L"),
        (np.full((4, 6, 2), 7, np.uint8), "RGBA"),
        (np.full((4, 6, 4), 7, np.uint8), "RGBA"),
        (np.full((400, 600, 4), 7, np.uint8), "RGBA"),
        (np.arange(400 * 600, dtype=np.uint16).reshape(400, 600, 1) % 4096, "L"),
        (np.full((4, 6, 7), 7, np.uint8), "RGB"),
        (np.array([[[0.0], [np.nan]], [[-3.0], [2.0]]], np.float32), "L"),
        (np.full((3, 4000, 3), 7, np.uint8), "RGB"),
        (np.ones((4, 6, 1), bool), "L"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.dtype}{value.shape}",
)
def test_any_kind_of_pixels_becomes_a_picture(pixels, expected):
    """Gray, with alpha, 16 bits, more channels than can be seen, numbers that are none."""
    uri, note = picture_uri(pixels, 20_000)
    shown = pixels_of(uri)
    channels = 1 if shown.ndim == 2 else shown.shape[2]
    # WebP has no gray of its own.
    assert channels == {"L": 1, "RGB": 3, "RGBA": 4}[expected] or "webp" in uri
    if pixels.dtype == np.uint16:
        assert note == "uint16: 0 shown as black, 4095 as white"
        assert shown.max() > 250


def test_a_small_picture_is_kept_pixel_for_pixel():
    """Of 28 pixels, each is seen: nothing may be smoothed."""
    pixels = np.random.default_rng(1).integers(0, 256, (28, 28, 3), np.uint8)
    assert np.array_equal(pixels_of(picture_uri(pixels, 20_000)[0]), pixels)


def test_a_mask_shows_its_ids_and_nothing_for_those_that_do_not_count():
    """Ids far apart, more of them than a palette has, and the one to ignore."""
    ids = np.zeros((600, 900), np.int32)
    ids[100:300, 100:300] = 70_000
    ids[400:500, 400:900] = 255
    uri, shares = mask_uri(ids, 255, 300)
    shown = pixels_of(uri)
    assert shown.shape == (200, 300, 4)
    assert [number for number, _ in shares] == [0, 255, 70_000]
    assert sum(share for _, share in shares) == pytest.approx(1)
    assert shown[10, 10, 3] == shown[150, 200, 3] == 0
    assert shown[60, 60, 3] == 255
    many = np.arange(900, dtype=np.int32).reshape(30, 30)
    assert len(mask_uri(many, None, 300)[1]) == 900


def test_masks_of_a_store_are_drawn_with_their_names(tmp_path, page_data):
    """Beside the picture, with the share of each class."""
    for number in range(2):
        for kind in ("images", "masks"):
            (tmp_path / "raw" / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene(number)).save(tmp_path / "raw" / "images" / f"{number}.png")
        ids = np.zeros((120, 160), np.uint8)
        ids[:60] = 1
        Image.fromarray(ids).save(tmp_path / "raw" / "masks" / f"{number}.png")
    build(tmp_path / "raw", tmp_path / "out.lmdb", worker_count=1)
    view_store(tmp_path / "out.lmdb", tmp_path / "p.html")
    (mask,) = page_data(tmp_path / "p.html")["samples"][0]["masks"]
    assert sorted((number, share) for number, *_, share in mask["legend"]) == [(0, 0.5), (1, 0.5)]


def test_turned_boxes_are_drawn_by_their_corners(tmp_path, page_data):
    """And not by the upright box around them."""
    (tmp_path / "raw" / "images").mkdir(parents=True)
    (tmp_path / "raw" / "labels").mkdir()
    Image.fromarray(scene(1)).save(tmp_path / "raw" / "images" / "a.png")
    line = "0 0.5 0.25 0.75 0.5 0.5 0.75 0.25 0.5\n"
    (tmp_path / "raw" / "labels" / "a.txt").write_text(line)
    (tmp_path / "raw" / "data.yaml").write_text("names: [ship]\ntrain: images\n")
    args = ["--task", "obb", "-o", tmp_path / "p.html"]
    assert run_packer("view", tmp_path / "raw", *args).exit_code == 0
    (one,) = page_data(tmp_path / "p.html")["samples"][0]["objects"]
    assert one["q"] == [80, 30, 120, 60, 80, 90, 40, 60]


def test_samples_are_chosen_by_split_class_and_key(store, tmp_path, page_data):
    """And an unknown name is refused with the nearest."""
    (tmp_path / "keys.txt").write_text("bee/1.png\ncat/0.png\n")
    page = tmp_path / "p.html"
    done = run_packer("view", store, "-o", page, "--classes", "bee,ant", "--limit", "3")
    assert done.exit_code == 0, done.stderr
    data = page_data(page)
    assert len(data["samples"]) == 3
    assert data["total"] == 8
    assert {data["classes"][str(card["label"])][0] for card in data["samples"]} <= {"ant", "bee"}
    run_packer("view", store, "-o", page, "--keys", tmp_path / "keys.txt")
    assert [card["key"] for card in page_data(page)["samples"]] == ["bee/1.png", "cat/0.png"]
    with pytest.raises(SchemaMismatchError, match="Did you mean 'bee'"):
        view_store(store, page, classes=["beee"])
    with pytest.raises(BuildError, match="nothing fits"):
        view_store(store, page, keys=[])


def test_a_damaged_sample_is_on_the_page_with_its_error(store, tmp_path, page_data):
    """The others are drawn; and figures come from the index, which is whole."""
    out = shutil.copytree(store, tmp_path / "out.lmdb")
    start = int(open_store(out).shard(0).offsets[5])
    data = bytearray((out / "shard-00000.lmdb").read_bytes())
    data[start + 500] ^= 1
    (out / "shard-00000.lmdb").write_bytes(data)
    report = view_store(out, tmp_path / "p.html")
    assert report.failed_count == 1
    assert "could not be read" in report.summary()
    found = page_data(tmp_path / "p.html")
    assert [card["i"] for card in found["samples"] if "error" in card] == [5]
    assert found["samples"][5]["key"] == "bee/1.png"
    assert "checksum" in found["samples"][5]["error"]
    titles = [figure["title"] for figure in found["figures"]]
    assert "Samples of each class" in titles
    assert "Width to height, stored" in titles


def test_figures_of_many_shards_are_of_some_and_say_so(shards, tmp_path, page_data, monkeypatch):
    """A store of thousands of shards is not read from end to end for a histogram."""
    monkeypatch.setattr("packer.view.figures.SHARDS_MAX", 2)
    view_store(shards, tmp_path / "p.html")
    notes = [figure["note"] for figure in page_data(tmp_path / "p.html")["figures"]]
    assert "From 2 of 4 shards: 6 of 12 samples." in notes


def test_rejects_have_their_reason_and_their_raw_picture(tmp_path, draw_tree, page_data):
    """Where it can be read; of one that cannot, why."""
    raw = draw_tree(tmp_path / "raw", [f"{n}.png" for n in range(3)])
    (raw / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    build(raw, tmp_path / "out.lmdb", worker_count=1, rejects_max=1)
    draw_tree(raw, ["bad.png"])
    page = tmp_path / "p.html"
    done = run_packer("view", tmp_path / "out.lmdb", "--rejects", "--against", raw, "-o", page)
    assert done.exit_code == 0, done.stderr
    assert "1 of 1 rejects" in done.stdout
    found = page_data(page)
    assert found["samples"] == []
    assert found["rejects"]["alone"]
    (line,) = found["rejects"]["lines"]
    assert line["path"] == "bad.png"
    assert line["raw"]["pic"].startswith("data:image/png")
    (raw / "bad.png").unlink()
    view_store(tmp_path / "out.lmdb", page, rejects=True, against=raw)
    assert "no such picture" in page_data(page)["rejects"]["lines"][0]["raw"]["error"]


def test_the_raw_picture_lies_beside_the_stored_one(tmp_path, draw_tree, picture, page_data):
    """From the folder, from an archive, and nothing from outside of either."""
    raw = draw_tree(tmp_path / "raw", ["a.png", "b.png"])
    build(raw, tmp_path / "out.lmdb", Recipe(size=8, fit="crop"), worker_count=1)
    page = tmp_path / "p.html"
    view_store(tmp_path / "out.lmdb", page, against=raw)
    card = page_data(page)["samples"][1]
    assert pixels_of(card["pic"]).shape == (8, 8, 3)
    assert np.array_equal(pixels_of(card["raw"]["pic"]), picture("b.png"))
    archive = shutil.make_archive(str(tmp_path / "raw"), "zip", raw)
    build(archive, tmp_path / "zip.lmdb", worker_count=1)
    view_store(tmp_path / "zip.lmdb", page, against=archive)
    assert np.array_equal(pixels_of(page_data(page)["samples"][1]["raw"]["pic"]), picture("b.png"))
    # A store of a stranger may have any key.
    shutil.copy(raw / "a.png", tmp_path / "secret.png")
    view = StoreView(tmp_path / "out.lmdb", against=raw)
    for key in (
        "../secret.png",
        "a.png/../../secret.png",
        str(tmp_path / "secret.png"),
        "",
        "a\0.png",
    ):
        assert "pic" not in view._raw.beside(key, 9_000), key
    with pytest.raises(SourceError, match="nothing there"):
        view_store(tmp_path / "out.lmdb", page, against=tmp_path / "nowhere")


def test_raw_data_is_shown_as_a_build_would_read_it(coco_raw, tmp_path, page_data):
    """Layout and the evidence for it, samples as they would be stored, rejects that are known."""
    report = view_raw(coco_raw, tmp_path / "p.html", limit=3)
    assert (report.shown_count, report.total_count) == (3, 4)
    data = page_data(tmp_path / "p.html")
    assert ["read as", "coco"] in data["facts"]
    assert "coco" in data["evidence"]
    assert data["samples"][0]["objects"][0]["b"] == [10, 10, 70, 90]
    assert any("no area" in why for card in data["samples"] for _, why in card.get("rejects", ()))


def test_only_a_page_is_written_over(store, tmp_path):
    """Another file stays as it is, and the folder of the page gets nothing else."""
    page = tmp_path / "p.html"
    page.write_text("<html>my thesis</html>")
    with pytest.raises(TargetExistsError, match="something else than a page"):
        view_store(store, page)
    assert page.read_text() == "<html>my thesis</html>"
    with pytest.raises(BuildError, match="there is no folder"):
        view_store(store, tmp_path / "nowhere" / "p.html")
    page.unlink()
    view_store(store, page, limit=1)
    first = page.read_bytes()
    view_store(store, page, limit=2)
    assert page.read_bytes() != first
    view_store(store, page, limit=1)
    assert page.read_bytes() == first
    assert [one.name for one in tmp_path.iterdir()] == ["p.html"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--format", "coco"], "--format is about raw data"),
        (["--root", "."], "--root is about the RAW of --against"),
        (["--port", "8000"], "--port is about --serve"),
        (["--serve", "--limit", "3"], "--limit is about a page that is written"),
    ],
)
def test_options_that_would_change_nothing_are_refused(store, options, text):
    """By name, before anything is done."""
    done = run_packer("view", store, *options)
    assert done.exit_code == 2
    assert text in done.stderr


def test_raw_data_has_nothing_to_serve(raw):
    """What is about a store is refused of raw data."""
    done = run_packer("view", raw, "--serve")
    assert done.exit_code == 2
    assert "build it first" in done.stderr


def test_the_server_answers_who_knows_its_secret(shards):
    """Not another user of the machine, nor a page of a stranger under another host's name; and
    a wrong question gets an answer."""
    with ViewServer(StoreView(shards)) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            found = urlsplit(server.url)

            def get(path, host=None):
                connection = http.client.HTTPConnection(found.hostname, found.port, timeout=60)
                headers = {"Host": host} if host else {}
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                return answer.status, body

            assert found.hostname == "127.0.0.1"
            assert get("/samples")[0] == 403
            assert get(f"/x{found.path[2:]}")[0] == 403
            assert get(found.path, "evil.example:80")[0] == 403
            assert get(found.path)[0] == 200
            assert get(f"{found.path}else")[0] == 404
            assert get(f"{found.path}samples?start=x")[0] == 400
            assert get(f"{found.path}sample?index=12")[0] == 400
            status, body = get(f"{found.path}samples?start=1&q=BEE&class=bee")
            answer = json.loads(body)
            assert status == 200
            assert [card["key"] for card in answer["samples"]] == [f"bee/{n}.png" for n in range(4)]
            assert (answer["seen"], answer["next"]) == (12, None)
            status, body = get(f"{found.path}sample?index=3")
            assert json.loads(body)["sample"]["w"] == 320
        finally:
            server.stop()
            thread.join(60)
    assert not thread.is_alive()


def test_ctrl_c_ends_the_server(store, packer_command):
    """It prints its address at once, answers there, and leaves with the status of an interrupt."""
    process = subprocess.Popen(
        [*packer_command, "view", str(store), "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_keys,
    )
    try:
        assert process.stdout is not None
        found = urlsplit(process.stdout.readline().strip())
        connection = http.client.HTTPConnection(found.hostname, found.port, timeout=60)
        connection.request("GET", found.path)
        assert b"Content-Security-Policy" in connection.getresponse().read()
        connection.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors.strip()) == (130, "")
    finally:
        process.kill()
        process.communicate()


def test_a_manifest_of_a_stranger_may_say_anything(store, tmp_path, page_data):
    """Statistics that are none are left out, and texts are shown, whatever bytes they hold."""
    out = shutil.copytree(store, tmp_path / "out.lmdb")
    manifest = read_manifest(out)
    statistics = {
        "class_counts": ["many", None],
        "channel_mean": [float("nan")],
        "channel_std": [1],
        "sizes": {"edges": [0, "x"], "stored": 7},
    }
    source = msgspec.structs.replace(manifest.source, notes=("\udcff \ud800 \u2028 </script>",))
    changed = msgspec.structs.replace(manifest, statistics=statistics, source=source)
    (out / "manifest.json").write_bytes(manifest_bytes(changed))
    view_store(out, tmp_path / "p.html")
    data = page_data(tmp_path / "p.html")
    assert data["means"] == {}
    assert len(data["samples"]) == 12
    assert [figure["title"] for figure in data["figures"]] == [
        "Width to height, stored",
        "Bytes of a record, from",
    ]
    assert "</script>" in data["notes"][0]


def test_a_crowd_is_drawn_as_far_as_it_fits_and_the_rest_is_counted():
    """Outlines get coarser first; what is not drawn is told, and a bad number draws nothing."""
    fields = object_fields(("a",), ("boxes", "labels", "masks"))
    angles = np.linspace(0, 6.2, 300)
    circle = np.stack([200 + 90 * np.cos(angles), 150 + 90 * np.sin(angles)], axis=1)
    boxes = np.tile(np.array([[110, 60, 290, 240]], np.float32), (400, 1))
    boxes[1] = np.nan
    values = {
        "boxes": boxes,
        "labels": np.zeros(400, np.int64),
        "masks": Polygons([(circle,)] * 400, 300, 400),
    }
    schema = Schema(fields)
    whole, lost = drawn_objects(values, schema, (300, 400), 10**9)
    assert (len(whole), lost) == (400, 0)
    assert "b" not in whole[1]
    assert 20 < len(whole[0]["p"][0]) < len(circle)
    some, lost = drawn_objects(values, schema, (300, 400), 20_000)
    assert len(json.dumps(some)) < 22_000
    assert lost > 0
    assert len(some) + lost == 400


def test_every_kind_of_field_has_a_text_and_every_image_a_picture():
    """What a stranger's store may hold beside what a build writes; long texts are cut."""
    schema = Schema(
        (
            Field(name="key", kind="text"),
            Field(name="image", kind="image", dtype="uint8", shape=(4, 6, 3), codec="raw"),
            Field(name="depth", kind="image", dtype="uint16", shape=(None, None, 1), codec="raw"),
            Field(name="label", kind="label", dtype="int64", names=("a", "b")),
            Field(name="weight", kind="scalar", dtype="float32"),
            Field(name="vector", kind="array", dtype="float32", shape=(None,)),
            Field(name="caption", kind="text"),
            Field(name="attributes", kind="json"),
            Field(name="blob", kind="bytes"),
        )
    )
    values = {
        "key": "caf\udce9.png",
        "image": np.zeros((4, 6, 3), np.uint8),
        "depth": np.arange(12, dtype=np.uint16).reshape(3, 4, 1),
        "label": 1,
        "weight": 0.5,
        "vector": np.arange(100, dtype=np.float32),
        "caption": "long " * 10_000,
        "attributes": {"not": "a list"},
        "blob": b"\0" * 7,
    }
    card = make_card(3, values, schema, 50_000)
    texts = {name: text for name, _, text in card["fields"]}
    assert card["key"] == r"caf\xe9.png"
    assert texts["label"] == "b (1)"
    assert texts["weight"] == "0.5"
    assert texts["vector"].startswith("[0 1 2 3 ")
    assert texts["vector"].endswith("...]  float32, 100")
    assert len(texts["caption"]) == 1_200
    assert texts["attributes"] == '{"not": "a list"}'
    assert texts["blob"] == "7 bytes"
    assert (card["w"], card["h"], card["n"]) == (6, 4, 0)
    (other,) = card["more"]
    assert (other["name"], pixels_of(other["pic"]).shape) == ("depth", (3, 4))
    assert other["note"] == "uint16: 0 shown as black, 11 as white"
    json.dumps(card, allow_nan=False)
