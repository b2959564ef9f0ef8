"""`examples/first_steps.ipynb` is run as Jupyter would run it; its file holds no outputs."""

from __future__ import annotations

import os

import pytest

from tests.examples.conftest import EXAMPLES, ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = EXAMPLES / "first_steps.ipynb"


def shown(cell):
    """The text that a cell gave, and the kinds of its other outputs."""
    outputs = cell.get("outputs", [])
    text = "".join(each.get("text", "") for each in outputs if each.output_type == "stream")
    return text, {kind for each in outputs for kind in each.get("data", {})}


def test_the_notebook_runs_and_learns(tmp_path, monkeypatch):
    """From raw files to a network that has learned, and a loader that goes on in mid-epoch."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    text = "".join(shown(cell)[0] for cell in notebook.cells)
    assert "720 samples" in text
    assert "found 720 = 720 stored" in text
    assert "(3, 64, 64) torch.uint8 hexagon" in text
    assert "the sixth batch is the same: True" in text
    assert any("image/png" in shown(cell)[1] for cell in notebook.cells)
    accuracies = [float(line.split()[-1]) for line in text.splitlines() if "accuracy" in line]
    assert len(accuracies) == 8
    assert max(accuracies[-3:]) > 0.6  # Of three classes, chance has a third.


def test_the_file_holds_no_outputs():
    """A change of it shows what was changed."""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert not cell.metadata
