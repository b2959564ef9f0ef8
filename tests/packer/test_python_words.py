"""What Python raises speaks of arguments, what the command line prints of options."""

from __future__ import annotations

import inspect

import pytest
from PIL import Image

import packer
from packer.building.build import build
from packer.errors import TargetExistsError, TooManyRejectsError
from packer.python_words import in_arguments
from tests.command import run_packer
from tests.packer.conftest import draw_tree


@pytest.mark.parametrize(
    ("told", "python"),
    [
        ("Replace it with --overwrite.", "Replace it with overwrite=True."),
        ("give --format voc to", "give SourceOptions(format='voc') to"),
        ("give the folder as --root.", "give the folder as SourceOptions(root=...)."),
        ("choose another --format or --root", "choose another SourceOptions(format=...) or "
         "SourceOptions(root=...)"),
        ("--max-rejects 12 or more", "max_rejects=12 or more"),
        ("--max-rejects 1% allows", "max_rejects='1%' allows"),
        ("leave it out with --on-error reject.", "leave it out with on_error='reject'."),
        ("--target-size 500 chooses how, --image jpeg takes", "target_bytes=500 chooses how, "
         "image='jpeg' takes"),
        ("raise it with --max-pixels", "raise it with pixels_max=..."),
        ("keep shards as links: --link.", "keep shards as links: links=True."),
        ("datum convert -f coco -- --save-media", "datum convert -f coco -- --save-media"),
        ("packer status out --watch", "packer status out --watch"),
    ],
)  # fmt: skip
def test_an_option_becomes_its_argument(told, python):
    """With its value, where the word behind it is one; what is no argument stays."""
    assert in_arguments(told) == python


def test_one_fault_is_told_in_the_words_of_who_asks(tmp_path, raw, store):
    """`packer.build` and `packer build` raise the same, each with the remedy that can be typed."""
    with pytest.raises(TargetExistsError, match="overwrite=True") as caught:
        packer.build(raw, store, size=8)
    assert "--" not in str(caught.value)
    assert "--overwrite" in run_packer("build", raw, store, "--size", "8").stderr
    spoilt = draw_tree(tmp_path / "raw", ["a/1.png", "a/2.png"])
    (spoilt / "a" / "3.png").write_bytes(b"")
    with pytest.raises(TooManyRejectsError, match=r"max_rejects='1%' allows none") as caught:
        packer.build(spoilt, tmp_path / "out.lmdb", workers=1)
    assert "max_rejects=1 or more" in str(caught.value)


def test_notes_of_reports_name_arguments(tmp_path):
    """As those that the command line prints name options."""
    raw = tmp_path / "raw" / "a"
    raw.mkdir(parents=True)
    Image.new("L", (8, 8)).save(raw / "1.png")
    report = packer.build(raw.parent, tmp_path / "python.lmdb", workers=1, size=8)
    notes = report.notes
    assert any("mode='gray' takes a third" in note for note in notes)
    assert not any("--" in note for note in notes)
    assert str(report).startswith("\n".join(notes))
    assert "found 1 = 1 stored + 0 rejected + 0 ignored" in str(report)
    printed = run_packer("build", raw.parent, tmp_path / "shell.lmdb", "--size", "8")
    assert "--mode gray takes a third" in printed.stdout + printed.stderr


def test_an_option_of_the_source_says_where_it_goes(tmp_path):
    """All options are in one list on the command line, and in two objects in Python."""
    with pytest.raises(TypeError, match=r"source=SourceOptions\(format='coco'\)"):
        packer.build(tmp_path, tmp_path / "out.lmdb", format="coco")


def test_the_functions_of_packer_are_those_of_its_modules():
    """With their signatures and docstrings: `help(packer.build)` says what it takes."""
    assert inspect.signature(packer.build) == inspect.signature(build)
    assert packer.build.__doc__ == build.__doc__
    assert isinstance(packer.Recipe, type)
