"""Every source makes its scan of one account, so that nothing is lost between several."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import packer.sources

FOLDER = Path(packer.sources.__file__).parent


def _scans_by_hand(text: str) -> Iterator[int]:
    """Lines where a `Scan` is made by its name, or a class has annotation rejects of its own."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "Scan":
                yield node.lineno
        elif isinstance(node, ast.AnnAssign):
            target = getattr(node.target, "id", getattr(node.target, "attr", ""))
            if target == "annotation_rejects":
                yield node.lineno


def test_the_walk_sees_what_it_looks_for():
    """A call of `Scan`, and a list of annotation rejects in a class or in `self`."""
    text = "\n".join(
        (
            "def scan(raw): return Scan(format='x', root=raw)",
            "class Found:",
            "    annotation_rejects: list[Reject] = []",
            "    def __init__(self): self.annotation_rejects: list[Reject] = []",
            "def others(found) -> Scan: return found.as_scan('x', found.annotation_rejects)",
        )
    )
    assert sorted(_scans_by_hand(text)) == [1, 3, 4]


def test_no_source_makes_its_scan_by_hand():
    """`Findings.as_scan` is the one place that does."""
    modules = sorted(FOLDER.rglob("*.py"))
    by_hand = [
        f"{path.relative_to(FOLDER)}:{line}"
        for path in modules
        for line in _scans_by_hand(path.read_text())
    ]
    assert len(modules) > 100
    assert by_hand == []
