"""What messages and documents name is there: commands, options, modules, files."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from packer.cli import cli

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(path for name in ("packer", "readers") for path in (ROOT / name).rglob("*.py"))

# Options of other programs that are named here: containers, schedulers, Dask, Label Studio,
# exiftran, scripts/setup, examples/.
OTHERS = {
    "--cpus", "--cpus-per-task", "--gpus", "--gres", "--inplace", "--ipc", "--mem", "--memory",
    "--orientation", "--save-media", "--shm-size", "--ulimit",
    "--array", "--chdir", "--comment", "--dependency", "--job-name", "--kill-on-invalid-dep",
    "--open-mode", "--output", "--parsable", "--partition", "--requeue", "--time", "--wrap",
    "--dereference", "--hard-dereference", "--symlinks", "--strict", "--case", "--sort",
    "--bind-to", "--cpu-bind", "--gpu-bind", "--cpunodebind", "--membind",
    "--query-gpu", "--format",
    "--cpu", "--system-site-packages",
    "--nodes", "--ntasks-per-node", "--gpus-per-task", "--signal", "--tmp", "--for", "--timeout",
    "--standalone", "--nproc-per-node", "--lifetime", "--lifetime-stagger",
    "--output-file", "--pyproject",  # Of cyclonedx-py.
    "--every", "--cache-dir",  # Of examples/cluster/train.py.
}  # fmt: skip


def texts(path: Path) -> Iterator[str]:
    """All that a person may read in a file: a document as it stands, of a module its strings."""
    source = path.read_text()
    if path.suffix == ".md":
        yield source
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache
def commands() -> dict[str, click.Command]:
    """Every command, by name."""
    context = click.Context(cli)
    names = cli.list_commands(context)
    return {name: command for name in names if (command := cli.get_command(context, name))}


@functools.cache
def options() -> set[str]:
    """Every option of any command."""
    every = [cli, *commands().values()]
    found = {o for c in every for p in c.params for o in (*p.opts, *p.secondary_opts)}
    return {*found, "--help", "--version"}


@pytest.mark.parametrize("path", [*MODULES, *DOCUMENTS], ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_options_that_are_named_exist(path):
    """Advice to run a command that is not there, or to give an option that nobody takes, is worse
    than none."""
    for text in texts(path):
        named = set(re.findall(r"(?<![\w./-])(?<!from )packer ([a-z][a-z-]*)", text))
        assert not named - commands().keys(), f"no such command: {text[:200]}"
        given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])", text))
        assert not given - options() - OTHERS, f"no such option: {text[:200]}"


@pytest.mark.parametrize("path", [*MODULES, *DOCUMENTS], ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_and_files_that_are_named_exist(path):
    """A docstring leads a reader on: the module, or the name in one, is where it says."""
    for text in texts(path):
        for name in re.findall(r"`((?:packer|readers)(?:\.\w+)+)", text):
            assert is_there(name), name
        for name in re.findall(
            r"(?<![\w/])((?:packer|readers|scripts|tests|docs)/[\w/]+\.\w+)", text
        ):
            assert (ROOT / name).exists(), name


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            if importlib.util.find_spec(".".join(parts[:end])) is None:
                continue
        except ModuleNotFoundError:
            continue
        value = importlib.import_module(".".join(parts[:end]))
        for part in parts[end:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_a_command_with_a_hyphen_is_found(monkeypatch):
    """Its function has an underscore in its place."""
    import packer.cli
    import packer.cli.inspect

    monkeypatch.setitem(packer.cli._COMMANDS, "show-all", "packer.cli.inspect")
    command = packer.cli.inspect.info_command
    monkeypatch.setattr(packer.cli.inspect, "show_all_command", command, raising=False)
    assert cli.get_command(click.Context(cli), "show-all") is command
