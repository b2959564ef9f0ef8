"""Walks through the first hour as a new user does, and says what that user sees.

    python scripts/first_hour.py                    this checkout
    python scripts/first_hour.py --before FOLDER    another checkout of the project beside it
    python scripts/first_hour.py --json             the same for programs

A build is watched on a real terminal of 80 columns, through a pipe as a cluster's log has it, and
in a notebook (with nbclient and ipykernel, which the extra dev has). Then come the commands that a
build proposes, the Python that it prints, and mistakes that people make. Of each step the table has
the exit status, seconds to the first sign of life and to the end, lines, columns of the widest line
and of the widest bar, warnings and tracebacks.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import importlib.util
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 80
TIMEOUT_S = 600
CLASSES = ("cat", "dog")

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WARNING = re.compile(r"^.*\w*Warning\b.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a user saw of one step.

    Attributes:
        step: What was done.
        status: Exit status.
        first_s: Seconds to the first character; None when there was none.
        seconds: Seconds to the end.
        text: All that was shown, stdout and stderr together.
    """

    step: str
    status: int
    first_s: float | None
    seconds: float
    text: str

    @property
    def lines(self) -> list[str]:
        """What is left on the screen, line by line: a bar that is drawn again counts once."""
        shown = _ESCAPES.sub("", self.text).replace("\r\n", "\n").split("\n")
        return [line.rstrip("\r").split("\r")[-1].rstrip() for line in shown if line.strip()]

    @property
    def widest_bar(self) -> int:
        """Columns of the widest line that is drawn again and again: more than 80 would wrap."""
        widths = [
            len(_ESCAPES.sub("", drawn))
            for line in self.text.split("\n")
            for drawn in line.rstrip("\r").split("\r")[1:]
        ]
        return max(widths, default=0)

    @property
    def warnings(self) -> list[str]:
        """Warnings of Python and of libraries."""
        return _WARNING.findall(self.text)

    @property
    def tracebacks(self) -> int:
        """How often Python's stack was shown."""
        return self.text.count("Traceback (most recent call last)")

    def facts(self) -> dict[str, Any]:
        """What the table has, and the text."""
        return {
            **asdict(self),
            "lines": len(self.lines),
            "widest": max(map(len, self.lines), default=0),
            "widest_bar": self.widest_bar,
            "warnings": len(self.warnings),
            "tracebacks": self.tracebacks,
        }


# --- ways to watch a command ----------------------------------------------------------------------


def on_terminal(step: str, command: Sequence[str], folder: Path) -> Seen:
    """Run a command on a terminal of 80 columns, and keep what it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, COLUMNS, 0, 0))
    with subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = _watched(step, process, ours)
    os.close(ours)
    return seen


def through_a_pipe(step: str, command: Sequence[str], folder: Path) -> Seen:
    """Run a command as a job does whose output goes to a file."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        return _watched(step, process, process.stdout.fileno())


def _watched(step: str, process: subprocess.Popen[bytes], descriptor: int) -> Seen:
    started = time.monotonic()
    first: float | None = None
    shown = b""
    while time.monotonic() - started < TIMEOUT_S:
        ready, _, _ = select.select([descriptor], [], [], 1.0)
        if not ready:
            continue
        try:
            data = os.read(descriptor, 2**16)
        except OSError:  # What Linux says at the end of a terminal.
            data = b""
        if not data:
            break
        first = time.monotonic() - started if first is None else first
        shown += data
    else:
        process.kill()
    status = process.wait()
    return Seen(
        step=step,
        status=status,
        first_s=first,
        seconds=time.monotonic() - started,
        text=shown.decode("utf-8", "replace"),
    )


def in_a_notebook(step: str, cells: Sequence[str], folder: Path) -> Seen:
    """Run cells in a kernel, and keep what stands below them: text, and the text of widgets."""
    notebooks = importlib.import_module("nbformat.v4")
    nbclient = importlib.import_module("nbclient")
    errors = importlib.import_module("nbclient.exceptions")
    book = notebooks.new_notebook(cells=[notebooks.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        book,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    started = time.monotonic()
    status = 0
    try:
        client.execute()
    except errors.CellExecutionError:
        status = 1
    texts = [_output_text(output) for cell in book.cells for output in cell.get("outputs", ())]
    return Seen(
        step=step,
        status=status,
        first_s=None,
        seconds=time.monotonic() - started,
        text="".join(texts),
    )


def _output_text(output: Any) -> str:
    if output["output_type"] == "stream":
        return str(output["text"])
    if output["output_type"] == "error":
        return "\n".join(output["traceback"])
    return str(output["data"].get("text/plain", "")) + "\n"


# --- the walk -------------------------------------------------------------------------------------


def draw(raw: Path, count: int) -> None:
    """Class folders in two splits, with pictures of sizes that differ."""
    generator = np.random.default_rng(0)
    for number in range(count):
        split = "val" if number % 5 == 0 else "train"
        path = raw / split / CLASSES[number % 2] / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = generator.integers(40, 120, 2)
        pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, quality=80)


def walk(checkout: Path, folder: Path, count: int) -> list[Seen]:
    """All steps, with the project of a checkout.

    Args:
        checkout: Where `packer` and `readers` are.
        folder: An empty one to work in.
        count: Pictures.
    """
    raw, out = folder / "raw", folder / "out.lmdb"
    draw(raw, count)
    packer = [sys.executable, "-m", "packer"]  # Of the checkout, where commands run.

    def run(step: str, *arguments: str, way: Callable[..., Seen] = on_terminal) -> Seen:
        return way(step, [*packer, *arguments], checkout)

    built = run("build on a terminal", "build", str(raw), str(out))
    steps = [
        run("help", "--help"),
        run("help of build", "build", "--help"),
        run("detect", "detect", str(raw)),
        built,
        run("build into a log", "build", str(raw), str(folder / "log.lmdb"), way=through_a_pipe),
        *_notebook(raw, folder, checkout),
        run("info", "info", str(out)),
        run("verify", "verify", str(out)),
        _printed_python(built, checkout),
        run("mistake: RAW and OUT swapped", "build", str(out), str(raw)),
        run("mistake: OUT is there", "build", str(raw), str(out)),
        run("mistake: no such folder", "build", str(folder / "row"), str(folder / "new.lmdb")),
        run("mistake: option mistyped", "build", str(raw), str(folder / "b"), "--sise", "64"),
        run("mistake: fit without size", "build", str(raw), str(folder / "b"), "--fit", "crop"),
        run("mistake: info of raw data", "info", str(raw)),
        through_a_pipe(
            "mistake: raw data as a dataset",
            [sys.executable, "-c", f"import readers; readers.LMDBDataset({str(raw)!r})"],
            checkout,
        ),
    ]
    return steps


def _notebook(raw: Path, folder: Path, checkout: Path) -> list[Seen]:
    needed = ("nbclient", "nbformat", "ipykernel")
    if any(importlib.util.find_spec(name) is None for name in needed):
        return []
    call = f"report = packer.build({str(raw)!r}, {str(folder / 'book.lmdb')!r})"
    cells = ["import packer", call, "print(report.summary())"]
    return [in_a_notebook("build in a notebook", cells, checkout)]


def _printed_python(built: Seen, checkout: Path) -> Seen:
    """The lines that a build prints to be copied, run as they stand."""
    lines = built.lines
    starts = [n for n, line in enumerate(lines) if line.startswith("from readers import")]
    program = "\n".join(lines[starts[-1] :]) if starts else "raise SystemExit('none was printed')"
    return through_a_pipe("the Python that was printed", [sys.executable, "-c", program], checkout)


# --- what is printed ------------------------------------------------------------------------------

_FIGURES: tuple[tuple[str, str], ...] = (
    ("status", "exit"),
    ("first_s", "first s"),
    ("seconds", "s"),
    ("lines", "lines"),
    ("widest", "columns"),
    ("widest_bar", "bar"),
    ("warnings", "warnings"),
    ("tracebacks", "tracebacks"),
)


def table(walks: Sequence[Sequence[Seen]]) -> str:
    """A row for each step, with the figures of each walk: "before -> after" where there are two."""
    known = [{seen.step: seen.facts() for seen in one} for one in walks]
    rows = [["step", *(title for _, title in _FIGURES)]]
    for step in known[-1]:
        row = [step]
        for name, _ in _FIGURES:
            values = [_figure(one[step][name]) if step in one else "-" for one in known]
            row.append(values[0] if len(set(values)) == 1 else " -> ".join(values))
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Walk through the first hour of a new user.")
    parser.add_argument("--count", type=int, default=2000, help="Pictures. Default: 2000.")
    parser.add_argument("--before", type=Path, help="Another checkout, whose figures come first.")
    parser.add_argument("--json", action="store_true", help="All that was seen, as JSON.")
    given = parser.parse_args()
    checkouts = [*([given.before.resolve()] if given.before else []), ROOT]
    walks = []
    for checkout in checkouts:
        folder = Path(tempfile.mkdtemp(prefix="first-hour-"))
        try:
            walks.append(walk(checkout, folder, given.count))
        finally:
            shutil.rmtree(folder)
    if given.json:
        print(json.dumps([[seen.facts() for seen in one] for one in walks]))
    else:
        print(table(walks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
