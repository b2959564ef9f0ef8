"""The `packer` command: exit statuses, and what goes to stdout and to stderr."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import pty
import re
import resource
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import click
import numpy as np
import pytest
from PIL import Image

import packer as packer_package
from packer.building.build import Step, build
from packer.cli import cli
from packer.cli.help_groups import HELP_GROUPS
from packer.cli.params import BYTE_SIZE
from packer.errors import NoSpaceError
from packer.stores.info import info
from packer.stores.verify import verify
from readers.store.errors import StoreIncompleteError
from readers.store.layout import FORMAT_MAJOR, FORMAT_MINOR
from readers.store.manifest import read_manifest
from tests.command import run_packer

# --- build ----------------------------------------------------------------------------------------


def test_build_prints_its_report_and_nothing_else(tmp_path, raw, packer, store, contents):
    """The summary on stdout, with the lines that read the store; on stderr what was decided."""
    done = packer("build", raw, tmp_path / "out.lmdb", "--workers", "1")
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr.splitlines()) == (0, lines[:1])
    assert lines[0].startswith("format: imagefolder")
    assert f"{tmp_path / 'out.lmdb'}: 12 samples" in lines[1]
    assert "found 12 = 12 stored + 0 rejected + 0 ignored" in lines
    assert "3 classes: ant 4, bee 4, cat 4" in lines
    assert "from readers import LMDBDataset, make_loader" in lines
    assert contents(tmp_path / "out.lmdb") == contents(store)


def test_build_json_is_one_document(tmp_path, raw, packer, many_shards, shards, contents):
    """Options reach the recipe; names that are no UTF-8 do not break the document."""
    done = packer(
        *("build", raw, tmp_path / "out.lmdb", "--json", "--quiet"),
        *("--size", "320", "--fit", "stretch", "--shard-size", "1MiB"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert (report["sample_count"], report["shard_count"], report["found_count"]) == (12, 4, 12)
    assert report["content_sha256"] == info(shards)["content_sha256"]
    assert read_manifest(tmp_path / "out.lmdb").recipe == many_shards.as_dict()
    assert contents(tmp_path / "out.lmdb") == contents(shards)


def test_a_build_says_as_much_as_it_is_asked_to(tmp_path, raw, packer):
    """Nothing but errors, or each step; not both."""
    done = packer("build", raw, tmp_path / "a.lmdb", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    done = packer("build", raw, tmp_path / "b.lmdb", "-v")
    assert done.returncode == 0
    assert "the plan and its tasks are written\na shard is in place 1\n" in done.stderr
    done = packer("build", raw, tmp_path / "c.lmdb", "-q", "-v")
    assert done.returncode == 2


def test_build_shows_its_progress_on_a_terminal(tmp_path, raw, packer_command):
    """A bar on stderr while it works; stdout stays as it is."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    arguments = [*packer_command, "build", str(raw), str(tmp_path / "out.lmdb"), "--json"]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=False)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # What Linux says at the end of a terminal.
        while data := os.read(ours, 4096):
            shown += data
    os.close(ours)
    assert done.returncode == 0
    assert json.loads(done.stdout)["sample_count"] == 12
    assert b"12/12" in shown
    assert b"images" in shown


def test_build_says_in_one_line_what_is_in_the_way(tmp_path, raw, packer, store):
    """Status 1, no traceback, nothing on stdout."""
    done = packer("build", raw, store)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {store}: a store is there already.")
    assert done.stderr.count("\n") == 1


def test_a_store_given_as_raw_data_is_told(tmp_path, raw, store):
    """Before anything is written; the arguments are swapped, as likely as not."""
    done = run_packer("build", store, tmp_path / "out.lmdb")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{store}: this is a store" in done.stderr
    assert "swapped?" in done.stderr
    assert not (tmp_path / "out.lmdb").exists()


def test_build_names_rejects_and_fails(tmp_path, packer, draw_tree):
    """Each with its reason; a name that no terminal can show is written with escapes."""
    tree = draw_tree(tmp_path / "raw", ["1.png"])
    (tree / os.fsdecode(b"caf\xe9.png")).write_bytes(b"")
    (tree / "\u732b.png").write_bytes(b"")
    done = packer("build", tree, tmp_path / "out.lmdb")
    assert (done.returncode, done.stdout) == (1, "")
    assert "  \u732b.png: " in done.stderr
    assert "  caf\\xe9.png: " in done.stderr
    with pytest.raises(StoreIncompleteError):
        read_manifest(tmp_path / "out.lmdb")


def test_output_survives_an_encoding_that_lacks_a_letter(tmp_path, packer, draw_tree):
    """A terminal of another age shows an escape; hours of work do not end with a traceback."""
    tree = draw_tree(tmp_path / "raw", ["\u732b/1.png", "b/1.png"])
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = packer("build", tree, tmp_path / "out.lmdb", env=environment)
    assert done.returncode == 0
    assert "pictures: b, \\u732b" in done.stderr
    assert "2 classes: b 1, \\u732b 1" in done.stdout


def test_a_reader_that_has_seen_enough_gets_no_traceback(packer_command, store):
    """As in `packer info | head -1`."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [*packer_command, "info", str(store)],
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build"], "Missing argument 'RAW'"),
        (["build", "raw", "out", "--fit", "fill"], "'fill' is not one of 'short', 'long'"),
        (["build", "raw", "out", "--format", "coco3"], "'coco3' is not one of"),
        (["build", "raw", "out", "--size", "0"], "--size must be in [1, 65536) pixels; got 0"),
        (["build", "raw", "out", "--size", "8", "--image", "original"], "changes the pixels"),
        (["build", "raw", "out", "--shard-size", "1"], "--shard-size must be at least"),
        (["build", "raw", "out", "--shard-size", "1 parsec"], "'1 parsec' is no size"),
        (
            ["build", "raw", "out", "--max-rejects", "few"],
            "--max-rejects must be a count or",
        ),
        (["build", "raw", "out", "--workers", "0"], "0 is not in the range"),
        (["build", "raw", "out", "--scratch", "/nowhere"], "'/nowhere' does not exist"),
        (
            ["build", "raw", "out", "--fit", "short"],
            "--fit 'short' is about size; give that",
        ),
        (["plan", "raw", "--scaling", "fast"], "is about size or --max-side; give one of them"),
        (["build", "raw", "out", "--classes", "names.txt"], "there is no file at this path"),
        (["subset", "a", "out", "--classes", "my/names"], "there is no file at this path"),
        (["info"], "Missing argument 'STORE'"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["biuld"], "Did you mean 'build'"),
        (["build", "raw", "out", "--worker", "2"], "--workers"),
    ],
)
def test_wrong_usage_has_status_2(arguments, said):
    """Before anything is looked at; with the option, the limits and the value given."""
    done = run_packer(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_no_option_that_destroys_something_is_proposed():
    """Whoever mistypes another option is not sent to it."""
    for typed in ("--overwrit", "--verwrite"):
        done = run_packer("build", "raw", "out", typed)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "No such option" in done.stderr
        assert "--overwrite" not in done.stderr


@pytest.mark.parametrize("arguments", [["-V"], ["--version"]])
def test_the_version_is_told_everywhere_alike(arguments):
    """By the command, by `python -m packer` and in Python."""
    version = packer_package.__version__
    told = run_packer(*arguments).stdout
    assert told.splitlines()[0] == f"packer, version {version}"
    module = [sys.executable, "-m", "packer", *arguments]
    done = subprocess.run(module, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == told


def test_the_versions_of_the_parts_are_told():
    """Whoever reports a fault pastes one answer: the format, Python, and each library or its
    absence."""
    told = run_packer("--version").stdout
    assert f"format of stores {FORMAT_MAJOR}.{FORMAT_MINOR}; " in told
    assert platform.python_version() in told
    for name in ("torch", "numpy", "lmdb", "pillow"):
        assert f"{name} {importlib.metadata.version(name)}" in told
    assert len(re.findall("pillow-heif", told)) == 1


@pytest.mark.parametrize(
    ("typed", "position", "found"),
    [
        ("packer bui", 1, "build"),
        ("packer build --si", 2, "--size"),
        ("packer build --fit ", 3, "crop"),
    ],
)
def test_a_shell_completes_commands_options_and_values(typed, position, found, packer_command):
    """As the lines of the README set it up: click answers the shell's questions."""
    words = ["_PACKER_COMPLETE=bash_complete", f"COMP_WORDS={typed}", f"COMP_CWORD={position}"]
    done = subprocess.run(
        ["env", *words, *packer_command], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"plain,{found}" in done.stdout.splitlines(), done.stderr


def test_help_has_every_option_of_a_build_in_one_group():
    """The commonest five come first; an option that is added later must say where it belongs."""
    command = cli.get_command(click.Context(cli), "build")
    names = [param.name for param in command.params if isinstance(param, click.Option)]
    grouped = [name for names in HELP_GROUPS.values() for name in names]
    assert len(set(grouped)) == len(grouped)
    assert set(grouped) == set(names)
    told = run_packer("build", "--help").stdout
    places = [told.index(f"\n{title}:\n") for title in HELP_GROUPS]
    assert places == sorted(places)
    first = told[places[0] : places[1]]
    for option in ("--size", "--fit", "--image", "--format", "--workers"):
        assert re.search(rf"^  (-\w, )?{option} ", first, re.MULTILINE), option
    assert "More options" not in told
    assert "\nWhat happens to bad input:\n" not in run_packer("submit", "--help").stdout


@pytest.mark.parametrize("arguments", [[], ["build"], ["info"], ["verify"], ["get"]])
def test_help_names_all_options(arguments):
    """Status 0; every command says what it does."""
    done = run_packer(*arguments, "--help")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Usage:" in done.stdout
    if not arguments:
        assert all(f"\n  {name} " in done.stdout for name in ("build", "info", "verify", "get"))


@pytest.mark.parametrize(
    ("text", "byte_count"),
    [
        ("1048576", 2**20),
        ("1MiB", 2**20),
        ("1 mib", 2**20),
        ("1.5GiB", 3 * 2**29),
        ("500MB", 500 * 10**6),
        ("2kB", 2000),
        ("7 B", 7),
        ("1TiB", 2**40),
    ],
)
def test_sizes_are_read_as_people_write_them(text, byte_count):
    """Powers of ten and of two, each by its own name."""
    assert BYTE_SIZE.convert(text, None, None) == byte_count


# --- A disk that is full --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_raw(tmp_path_factory):
    """Pictures that take 17 MB as pixels, no two in one shard, and a few KB as files."""
    folder = tmp_path_factory.mktemp("large") / "raw"
    folder.mkdir()
    Image.new("RGB", (1200, 1200), (9, 8, 7)).save(folder / "0.png")
    for number in range(1, 4):
        os.link(folder / "0.png", folder / f"{number}.png")
    return folder


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def listing(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def check_is_one_line_about(done, *words):
    assert (done.returncode, done.stdout) == (1, "")
    # Behind what was decided before the work.
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert done.stderr.count("Error") == 1
    for word in words:
        assert word in last


def test_a_store_that_will_not_fit_is_refused_before_any_work(small_disk, large_raw, packer):
    """The target, what is needed, what is free, and what to do; nothing is left on the disk."""
    before = listing(large_raw)
    done = packer("build", large_raw, small_disk / "out.lmdb")
    check_is_one_line_about(done, str(small_disk / "out.lmdb"), "take about 18,1", "4,1", "--size")
    assert listing(large_raw) == before
    assert list(small_disk.iterdir()) == []


def test_a_full_scratch_disk_is_told_in_one_line(tmp_path, small_disk, large_raw, packer):
    """Nothing is left on it; the build can go on with a larger one."""
    out = tmp_path / "out.lmdb"
    before = listing(large_raw)
    done = packer("build", large_raw, out, "--scratch", small_disk)
    check_is_one_line_about(done, str(out), str(small_disk), "No space left on device", "--scratch")
    assert listing(large_raw) == before
    assert list(small_disk.iterdir()) == []
    with pytest.raises(StoreIncompleteError):
        read_manifest(out)
    assert packer("build", large_raw, out).returncode == 0
    assert verify(out).is_good


def test_a_disk_that_fills_up_on_the_way_is_told_in_one_line(
    small_disk, raw, many_shards, shards, contents
):
    """It had room when the build began. What is finished is kept; with room again it ends well."""
    out, filler = small_disk / "out.lmdb", small_disk / "filler"

    def fill(step):
        if step is Step.SHARD_FINISHED and not filler.exists():
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as stream:
                while True:
                    stream.write(bytes(2**16))

    with pytest.raises(NoSpaceError, match=r"out\.lmdb: .*No space left on device.* are kept"):
        build(raw, out, many_shards, worker_count=1, on_step=fill)
    with pytest.raises(StoreIncompleteError):
        read_manifest(out)
    filler.unlink()
    report = build(raw, out, many_shards, worker_count=1)
    assert report.kept_shard_count == 1
    assert contents(out) == contents(shards)


def test_a_limit_on_file_sizes_is_told_in_one_line(tmp_path, large_raw, packer):
    """`ulimit -f` of a shared machine: no signal, and the limit is named."""
    out = tmp_path / "out.lmdb"
    before = listing(large_raw)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 2**20, 4 * 2**20))

    done = packer("build", large_raw, out, preexec_fn=limit)
    check_is_one_line_about(done, str(out), "File too large", "ulimit -f", "17,2")
    assert listing(large_raw) == before
    with pytest.raises(StoreIncompleteError):
        read_manifest(out)


# --- info, verify, get ----------------------------------------------------------------------------


def run_here(*arguments):
    """A command in this process; its exit status and output are those of `packer`."""
    return run_packer(*map(str, arguments))


def test_info_prints_lines_or_json(store):
    """What the library says, unchanged."""
    done = run_here("info", store)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{store}: 12 samples, ")
    done = run_here("info", store, "--json")
    assert json.loads(done.stdout) == json.loads(json.dumps(info(store)))


def test_verify_has_status_1_when_anything_is_wrong(tmp_path, store):
    """The problems on stdout, since they are its result; as JSON too."""
    done = run_here("verify", store)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{store}: 12 samples in 1 shard: all good\n"
    out = shutil.copytree(store, tmp_path / "out.lmdb")
    os.truncate(out / "shard-00000.lmdb", 4096)
    done = run_here("verify", out)
    assert (done.exit_code, done.stderr) == (1, "")
    assert "shard-00000.lmdb: 4096 bytes, expected" in done.stdout
    done = run_here("verify", out, "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["is_good"] is False
    assert len(report["problems"]) == 1


def test_get_prints_a_sample_and_writes_its_picture(tmp_path, store, picture):
    """By key or index, also a negative one, which is not an option."""
    for which in ("cat/3.png", "11", "-1"):
        done = run_here("get", store, which, "-o", tmp_path / "1.png")
        assert (done.exit_code, done.stderr) == (0, "")
        assert json.loads(done.stdout)["key"] == "cat/3.png"
        with Image.open(tmp_path / "1.png") as image:
            assert np.array_equal(np.asarray(image), picture("cat/3.png"))
        (tmp_path / "1.png").unlink()


@pytest.mark.parametrize("command", ["info", "verify", "get"])
def test_a_missing_store_is_one_line_and_status_1(tmp_path, command):
    """With what was expected there."""
    done = run_here(command, tmp_path / "none", *(["0"] if command == "get" else []))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {tmp_path / 'none'}: nothing there.")
    assert done.stderr.count("\n") == 1


def test_get_says_what_it_did_not_find(store, tmp_path):
    """Status 1 and one line; and so for a picture that cannot be written."""
    done = run_here("get", store, "ant/99.png")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no sample with the key 'ant/99.png'" in done.stderr
    done = run_here("get", store, "0", "-o", tmp_path / "no" / "folder.png")
    assert done.exit_code == 1
    assert done.stderr == f"Error: {tmp_path / 'no' / 'folder.png'}: No such file or directory\n"
