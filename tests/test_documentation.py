"""The documentation builds without a warning, its drawings are sound, and the README is short."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)


def test_the_site_builds_without_a_warning(tmp_path):
    """Links between pages, references, code blocks and docstrings are sound."""
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["-d", str(tmp_path / "doctrees"), "-b", "html", str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    reference = (tmp_path / "html" / "reference" / "python.html").read_text()
    for name in ("LMDBDataset", "make_loader", "RandomResizedCrop", "packer.build"):
        assert name in reference


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    """A link to a file names one that is there, and a part of it one of its headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, part = target.partition("#")
        found = (path.parent / name) if name else path
        assert found.exists(), target
        if part:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert part in {anchor(each) for each in headings}, target


def anchor(heading: str) -> str:
    """What a heading is called in links, by GitHub's rule."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("path", sorted((DOCS / "drawings").glob("*.svg")), ids=lambda p: p.name)
def test_drawings_stand_alone(path):
    """A drawing is whole XML, says what it shows, suits the dark, and loads nothing."""
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg")
    text = path.read_text()
    assert "<title" in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r'(href|src|url\()\s*=?\s*["\']?https?:', text)


def test_every_page_is_in_the_contents():
    """A page that nobody links to is lost; Sphinx warns of those outside any table of contents."""
    linked = "\n".join(path.read_text() for path in PAGES if path.name == "index.md")
    for path in PAGES:
        name = path.relative_to(DOCS).with_suffix("").as_posix()
        assert name == "index" or name in linked or path.stem in linked, name


def test_the_readme_is_read_in_five_minutes():
    """What is longer belongs into the documentation."""
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


@pytest.mark.parametrize(
    ("english", "chinese"),
    [("README.md", "README.zh-CN.md"), ("docs/quickstart.md", "docs/zh/quickstart.md")],
)
def test_chinese_pages_are_in_step(english, chinese):
    """The same headings by level, the same code to the letter, the same links."""
    pages = [ROOT / english, ROOT / chinese]
    texts = [page.read_text() for page in pages]
    blocks = [re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL) for text in texts]
    assert blocks[0] == blocks[1]
    plain = [re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL) for text in texts]
    levels = [re.findall(r"^(#+) ", text, re.MULTILINE) for text in plain]
    assert levels[0] == levels[1]
    rows = [len(re.findall(r"^\|", text, re.MULTILINE)) for text in plain]
    assert rows[0] == rows[1]
    links = []
    for page, text in zip(pages, plain, strict=True):
        found = re.findall(r"\]\(([^)\s#]+)", text)
        links.append({(page.parent / target).resolve() for target in found} - set(pages))
    assert links[0] == links[1]
