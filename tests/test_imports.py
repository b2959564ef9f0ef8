"""What an import loads, seen in a fresh process: a static check cannot see what code does when run.

`import readers.store` must suit a build worker, and `packer --help` a login node: neither may wait
seconds for torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "click", "cv2", "PIL", "packer", "fsspec", "aiohttp")


def run_fresh(code):
    """Run `code` in a new interpreter, and return what it printed last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def loaded_after(code, modules):
    """Those of `modules` that are loaded once `code` has run in a new interpreter."""
    return run_fresh(
        f"{code}\nimport json, sys\nprint(json.dumps([m for m in {modules!r} if m in sys.modules]))"
    )


def test_the_format_is_imported_without_torch_click_decoders_or_packer():
    """Readers of the format get by with numpy, msgspec and lmdb."""
    assert loaded_after("import readers.store", HEAVY) == []


def test_no_module_of_the_format_loads_them_either():
    """Nor do the modules that `readers.store` itself need not import, such as the codecs."""
    names = sorted(path.stem for path in (ROOT / "readers" / "store").glob("[!_]*.py"))
    assert {"layout", "codecs", "manifest", "shard"} <= set(names)
    code = "\n".join(f"import readers.store.{name}" for name in names)
    assert loaded_after(code, HEAVY) == []


def test_readers_is_imported_without_them_and_loads_its_names_on_first_use():
    """A name costs what it needs when it is used, not when the package is imported."""
    assert loaded_after("import readers", HEAVY) == []
    assert loaded_after("from readers import LMDBDataset", ("torch", "packer", "click")) == [
        "torch"
    ]


def test_packer_is_imported_without_what_only_some_of_its_names_need():
    """A build worker, which starts with it, needs neither `merge` nor `build` itself."""
    modules = ("numpy", "click", "torch", "packer.building.build", "packer.stores.merge")
    assert loaded_after("import packer", modules) == []
    assert loaded_after("from packer import build", modules) == ["numpy", "packer.building.build"]


@pytest.mark.parametrize("package", ["packer", "readers"])
def test_every_public_name_is_there_and_listed(package):
    """No name in `__all__` fails to load, nor does `dir` hide it from a prompt."""
    missing = run_fresh(
        f"import json, {package} as package\n"
        "listed = dir(package)\n"
        "print(json.dumps([n for n in package.__all__\n"
        "                  if n not in listed or getattr(package, n, None) is None]))"
    )
    assert missing == []


@pytest.mark.parametrize("package", ["packer", "readers"])
def test_a_mistyped_name_is_an_attribute_error(package):
    """Loading on first use must not hide a typing error, nor turn it into another exception."""
    assert run_fresh(
        f"import json, {package} as package\n"
        "try:\n"
        "    package.LMDBDatset\n"
        "except AttributeError as error:\n"
        "    print(json.dumps('LMDBDatset' in str(error)))"
    )


def test_the_command_line_prints_its_help_without_torch():
    """`packer --help` answers at once, also where torch takes seconds to load."""
    code = (
        "import sys\n"
        "sys.argv = ['packer', '--help']\n"
        "from packer.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
    )
    assert loaded_after(code, ("torch", "click")) == ["click"]


@pytest.mark.parametrize("module", ["readers", "readers.store", "packer.cli"])
def test_importing_has_no_effects(module):
    """No thread, no logging set-up and no file left open: those are for the program to decide."""
    code = (
        "import json, logging, os, threading\n"
        "files = set(os.listdir('/proc/self/fd'))\n"
        f"import {module}\n"
        "print(json.dumps([threading.active_count(), len(logging.root.handlers),\n"
        "                  sorted(set(os.listdir('/proc/self/fd')) - files)]))"
    )
    assert run_fresh(code) == [1, 0, []]


@pytest.mark.parametrize("package", ["packer", "readers"])
def test_public_names_are_what_they_name_whatever_was_imported_before(package):
    """A module of the same name as a function must not take its place."""
    code = f"""
import importlib, pkgutil, types
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if "__main__" not in module.name:
        importlib.import_module(module.name)
for name in package.__all__:
    assert not isinstance(getattr(package, name), types.ModuleType), name
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_dataset_does_not_load_opencv():
    """Stored pixels need no decoder: a training process that has no use for it starts sooner."""
    code = (
        "import sys; from readers import LMDBDataset, make_loader; assert 'cv2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_dataset_loads_little_beside_torch():
    """Of other packages msgspec alone: no decoder, no lmdb, no file system of a bucket."""
    packages = run_fresh(
        "import json, sys, torch, torch.utils.data\n"
        "def packages(): return {name.partition('.')[0] for name in sys.modules}\n"
        "before = packages()\n"
        "from readers import LMDBDataset\n"
        "print(json.dumps(sorted(packages() - before - sys.stdlib_module_names)))"
    )
    assert packages == ["msgspec", "readers"]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_readers_of_the_users_own_are_told(kind, tmp_path):
    """A folder or file of that name comes first on Python's path: the error names it."""
    theirs = tmp_path / ("readers" if kind == "folder" else "readers.py")
    if kind == "folder":
        theirs.mkdir()
        (theirs / "__init__.py").touch()
    else:
        theirs.touch()
    done = subprocess.run(
        ["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", "import packer"],
        cwd=tmp_path,  # Where -c looks first.
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"and found {theirs}" in done.stderr.splitlines()[-1]
    assert "Rename it" in done.stderr
