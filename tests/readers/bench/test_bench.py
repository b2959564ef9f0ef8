"""A bench of a small store: structure and sums, never how fast anything is."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import statistics
import xml.etree.ElementTree as ElementTree

import msgspec
import numpy as np
import pytest
from PIL import Image

from readers.bench import bench
from readers.bench.chart import draw_chart
from readers.bench.pass_measure import Pass, measure_pass
from readers.bench.process_tree import tree_cpu_s, tree_memory_bytes
from readers.bench.report import Setting, Step, Tried, best_of
from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.loader.tuned import MachineFacts
from readers.machine import core_count
from readers.store.errors import StoreNotFoundError
from readers.store.schema import Field

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Five pictures in two folders, and a file that is none."""
    folder = tmp_path_factory.mktemp("raw")
    for number in range(5):
        path = folder / f"class-{number % 2}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 9, 3), number, np.uint8)).save(path)
    (folder / "notes.txt").write_text("not a picture")
    return folder


@pytest.fixture(scope="module")
def report(shapes, raw):
    """Of 12 samples, with all that can be asked for."""
    return bench(str(shapes.path), str(raw), batch_size=4, workers=1, seconds=0.5, step_ms=1)


def tried(engine, workers, rate, prefetch=2):
    one = Pass(
        images_per_s=rate, first_batch_s=0.1, used_cores=1, memory_bytes=1, waiting_share=0.5
    )
    return Tried.of(Setting(engine, workers, prefetch, 4), [one], is_default=False, cores=2)


def test_figures_add_up(report, shapes):
    """Medians lie among the rates, the best among what was tried, and settings come once each."""
    for one in (*report.tried, *report.batch_sizes, report.raw):
        assert one.images_per_s == statistics.median(one.rates) > 0
        assert one.images_per_s_least == min(one.rates)
        assert one.images_per_s_most == max(one.rates)
        assert one.cpu_share == pytest.approx(one.used_cores / core_count())
        assert one.first_batch_s > 0
        assert one.memory_bytes > 2**20
    settings = [one.setting for one in report.tried]
    assert len({*settings}) == len(settings)
    assert {one.engine for one in settings} == {"thread", "process"}
    assert {(one.workers, one.batch_size) for one in settings} == {(1, 4)}
    assert [one.is_default for one in report.tried].count(True) == 1
    assert report.best in report.tried
    assert report.best is best_of([one for one in report.tried if len(one.rates) > 1])
    assert [one.setting.batch_size for one in report.batch_sizes][:2] == [2, 4]
    assert report.raw.setting.engine == "stock"
    with LMDBDataset(shapes.path) as dataset:
        assert report.identity == dataset.view.identity.hex()
    assert report.sample_count == 12
    assert report.fields == ("image", "label")
    assert report.work == ""
    assert not report.limits.is_decoded
    assert report.limits.copied_images_per_s > report.limits.whole_images_per_s > 0
    assert not multiprocessing.active_children()


def test_json_says_what_the_report_says(report):
    """It survives JSON, with names for the parts of a setting; the text names each of them."""
    facts = json.loads(json.dumps(report.as_dict()))
    assert facts["best"] in facts["tried"]
    assert facts["best"]["setting"] == report.best.setting._asdict()
    assert facts["machine"] == msgspec.to_builtins(MachineFacts.read())
    assert facts["step"]["needed_images_per_s"] == 4000
    text = report.summary()
    for one in (*report.tried, report.raw):
        assert one.setting.name() in text
    assert "(best" in text
    assert "default)" in text
    assert f"The {report.step.bottleneck} is the bottleneck" in text
    assert "An epoch is 3 batches here" in text


def test_the_best_settings_reach_a_loader(report, shapes, tmp_path):
    """Written to a file, they are what make_loader takes."""
    path = tmp_path / "tuned.json"
    report.best_settings().write(path)
    with LMDBDataset(shapes.path, returns=("image", "label")) as dataset:
        loader = make_loader(dataset, 4, train=True, tuned=path)
        best = report.best.setting
        assert loader.config.workers == best.workers
        assert loader.config.prefetch_factor == best.prefetch_factor
        assert loader.stats()["engine"] == best.engine


def test_the_chart_is_xml_that_stands_alone(report):
    """A bar and a text for each setting, whatever the store is called; no link, no script."""
    named = dataclasses.replace(report, store="<a & \x00\udcff>")
    root = ElementTree.fromstring(draw_chart(named))
    rows = len(report.tried) + 1
    assert root.tag == f"{SVG}svg"
    assert len(root.findall(f"{SVG}rect")) == rows + 1
    assert len(root.findall(f"{SVG}rect[@class='best']")) == 1
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert all(any(one.setting.name() in text for text in texts) for one in report.tried)
    assert "prefers-color-scheme: dark" in root.find(f"{SVG}style").text
    assert not any("href" in name for part in root.iter() for name in part.attrib)


def test_the_best_is_the_least_of_those_that_are_as_fast():
    """A worker more for nothing is none; the loop itself is best only where it is alone."""
    alone, one, two = tried("thread", 0, 200), tried("thread", 1, 98), tried("thread", 2, 100)
    assert best_of([alone, two, one]) is one
    assert best_of([alone, two, tried("thread", 1, 90)]) is two
    assert best_of([alone]) is alone
    short, long = tried("process", 2, 99), tried("process", 2, 100, prefetch=4)
    assert best_of([long, short]) is short


def test_what_may_be_chance_is_called_so(report):
    """A gain over the default counts only where the two do not overlap."""
    default = dataclasses.replace(tried("process", 1, 100), is_default=True)
    for rate, is_chance in ((100, True), (101, False)):
        best = tried("thread", 1, rate)
        text = dataclasses.replace(report, tried=[default, best], best=best).summary()
        assert ("it may be chance" in text) == is_chance


def test_a_step_says_who_waits():
    """A loop that hardly waits for batches has a model that is slower than the loader."""
    found = Pass(
        images_per_s=100, first_batch_s=1, used_cores=1, memory_bytes=1, waiting_share=0.02
    )
    assert Step.of(40, 4, found).bottleneck == "model"
    slow = Step.of(40, 4, dataclasses.replace(found, waiting_share=0.5))
    assert slow.bottleneck == "loader"
    assert "take 100 images/s and got 100" in slow.text()


def test_a_pass_counts_the_images_of_its_batches_and_closes_its_loader():
    """Over as many epochs as it takes, each batch once; time in steps is not waited for."""

    class Three:
        closed = taken = 0

        def __iter__(self):
            for _ in range(3):
                self.taken += 1
                yield self.taken

        def close(self):
            self.closed += 1

    loader = Three()
    found = measure_pass(lambda: loader, 10, 0.2, step_s=0.01)
    assert loader.closed == 1
    assert loader.taken > 3
    assert 0 < found.images_per_s <= 10 / 0.01
    assert found.waiting_share < 1


def test_the_tree_is_this_process_and_its_children(run_python):
    """A child's memory counts as long as it runs."""
    alone = tree_memory_bytes()
    facts = run_python(
        "import json, subprocess, sys\n"
        "from readers.bench.process_tree import tree_memory_bytes\n"
        "alone = tree_memory_bytes()\n"
        "code = 'data = bytes(b\"1\" * 2**26); print(1, flush=True); input()'\n"
        "with subprocess.Popen([sys.executable, '-c', code], stdin=-1, stdout=-1) as child:\n"
        "    child.stdout.readline()\n"
        "    both = tree_memory_bytes()\n"
        "    child.communicate(b'\\n')\n"
        "print(json.dumps([alone, both]))"
    )
    assert facts[1] - facts[0] > 2**26
    assert alone > 2**20
    assert tree_cpu_s() > 0


def test_images_that_differ_in_size_are_cropped_to_one(write_store, tmp_path, raw):
    """Each at the side that was asked for, or 224; the raw pictures too."""
    fields = [
        Field(name="key", kind="text"),
        Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw"),
    ]
    samples = [
        {"key": f"{side}", "image": np.zeros((side, side + 1, 3), np.uint8)} for side in (5, 6, 7)
    ]
    path = write_store(tmp_path / "sizes.lmdb", fields, samples)
    found = bench(str(path), str(raw), batch_size=2, workers=0, seconds=0.2)
    assert found.work == "RandomResizedCrop 224x224"
    assert found.best_settings().has_work
    assert found.step is None
    assert [one.setting.workers for one in found.tried] == [0]
    assert bench(str(path), batch_size=64, workers=0, seconds=0.2, crop=4).best.setting[-1] == 3


def test_what_cannot_be_measured_is_refused(shapes, tmp_path, raw):
    """Arguments out of their range, no store, a raw folder without pictures: each by name."""
    for wrong in ({"batch_size": 0}, {"workers": -1}, {"seconds": 0}, {"step_ms": 0}, {"crop": 0}):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"{name} must be"):
            bench(str(shapes.path), **wrong)
    with pytest.raises(StoreNotFoundError):
        bench(str(tmp_path / "none.lmdb"))
    settings = {"batch_size": 4, "workers": 0, "seconds": 0.1}
    with pytest.raises(ValueError, match="there is no picture"):
        bench(str(shapes.path), str(tmp_path), **settings)
    with pytest.raises(ValueError, match="is not a folder"):
        bench(str(shapes.path), str(tmp_path / "none"), **settings)
