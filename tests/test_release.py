"""What is published: a wheel of two packages alone, a source archive that builds, one version."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
BACKEND = "from setuptools import build_meta; print(build_meta.build_{kind}({folder!r}))"


def built(kind: str, source: Path, folder: Path) -> Path:
    """What the build backend makes of a source tree: the file's path."""
    program = BACKEND.format(kind=kind, folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The source archive, made from what git has, so that nothing else gets into it."""
    source = tmp_path_factory.mktemp("source")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached"], cwd=ROOT, capture_output=True, check=False
    )
    if names.returncode:
        pytest.skip("git: not there, or this is not a checkout")
    for name in names.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    return built("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(archive, tmp_path_factory):
    """The wheel, made from the source archive: whatever it needs is in there."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    with zipfile.ZipFile(built("wheel", source, tmp_path_factory.mktemp("out"))) as opened:
        yield opened


def test_the_wheel_has_the_two_packages_and_no_more(wheel):
    """With their types and the specification; neither tests nor scripts."""
    names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names} == {
        "packer", "readers", f"lmdb_packer-{version()}.dist-info",
    }  # fmt: skip
    assert {"packer/py.typed", "readers/py.typed", "readers/store/FORMAT.md"} <= names
    assert {f"packer/view/page.{kind}" for kind in ("html", "css", "js")} <= names
    modules = {
        str(path.relative_to(ROOT))
        for package in ("packer", "readers")
        for path in (ROOT / package).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == modules


def test_the_source_archive_has_no_part_of_the_tests(archive):
    """Which would not run without the rest of them."""
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    assert any(name.endswith("/readers/store/FORMAT.md") for name in names)
    assert not any("/tests" in name for name in names)


def test_the_metadata_says_what_an_index_shows(wheel):
    """README as its description, licence, Python versions, commands."""
    folder = f"lmdb_packer-{version()}.dist-info"
    text = wheel.read(f"{folder}/METADATA").decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "License-Expression: MIT" in text
    assert "Requires-Python: >=3.10" in text
    assert "packer = packer.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    # As an index checks it when a release is uploaded, and twine before.
    metadata = Metadata.from_email(text, validate=True)
    assert metadata.summary
    assert len(metadata.classifiers or []) > 8


def test_installed_packages_agree():
    """What CI has installed is what all of it asks for: `pip check`."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    if "No module named pip" in done.stderr:
        pytest.skip("pip: not in this environment")
    broken = [line for line in done.stdout.splitlines() if line.startswith("lmdb-packer ")]
    assert broken == []


def version() -> str:
    """The version of the project."""
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_all_files_that_state_the_version_agree():
    """A release changes it in one commit, wherever it stands."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == version()
    assert re.search(rf"\b{re.escape(version())}\b", (ROOT / "CHANGELOG.md").read_text())


def test_every_dependency_of_users_is_listed_with_its_licence():
    """The page has a row for each, the extra that asks for it, and the licence that it states."""
    text = (ROOT / "pyproject.toml").read_text()
    lists = dict(re.findall(r"^(\w+) = \[([^\]]*)\]", text, re.MULTILINE))
    extras = ("dask", "remote", "parquet", "heif", "scientific", "demo")
    asked = {
        (name, "always" if extra == "dependencies" else f"`{extra}`")
        for extra in ("dependencies", *extras)
        for name in re.findall(r'"([a-z][\w-]*)>=', lists[extra])
    }
    page = (ROOT / "docs/reference/dependencies.md").read_text()
    row = re.compile(r"^\| ([a-z][\w-]*) \| (always|`\w+`) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
    rows = row.findall(page)
    assert {(name, extra) for name, extra, _ in rows} == asked
    for name, _, licence in rows:
        try:
            stated = importlib.metadata.metadata(name).get("License-Expression", "")
        except importlib.metadata.PackageNotFoundError:
            continue
        for word in re.findall(r"[\w.-]+", licence)[:1]:
            assert not stated or word in stated, f"{name}: {stated}"


def test_the_forms_are_what_they_should_be():
    """Issue templates have the parts that the site wants; container files name what is there."""
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.name != "config.yml":
            assert {"name", "description", "body"} <= form.keys()
            assert all(part["type"] in ("textarea", "input", "markdown") for part in form["body"])
    dockerfile = (ROOT / "examples/cluster/Dockerfile").read_text()
    recipe = (ROOT / "examples/cluster/lmdb-packer.def").read_text()
    needed = {"pyproject.toml", "README.md", "LICENSE", "packer", "readers"}
    copied = {
        word for line in re.findall(r"^COPY (.*) \S+$", dockerfile, re.M) for word in line.split()
    }
    assert copied == needed
    assert set(re.findall(r"^    (\S+) /src/", recipe, re.M)) == needed
    assert all((ROOT / name).exists() for name in needed)
