"""One word for a thing, in all functions and commands."""

from __future__ import annotations

import inspect
import re

import click
import pytest

import packer
from packer.cli import cli
from tests.command import run_packer

FUNCTIONS = sorted(name for name in packer.__all__ if not isinstance(getattr(packer, name), type))
OLDER = {"worker_count": "workers", "rejects_max": "max_rejects", "shows_progress": "progress"}

COMMANDS = {
    "verify": ["{a}"],
    "diff": ["{a}", "{b}"],
    "merge": ["{a}", "{b}", "{out}", "--prefix", "a/", "--prefix", "b/"],
    "subset": ["{a}", "{out}", "--limit", "3"],
    "stage": ["{a}", "{out}"],
}
"""Arguments of commands that take their time, and show it."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_workers_max_rejects_and_progress(name):
    """Whatever takes an older word, as `build` does, takes the one that all others take."""
    names = inspect.signature(getattr(packer, name)).parameters
    for older, word in OLDER.items():
        assert older not in names or (name == "build" and word in names)


def test_options_are_called_like_the_arguments():
    """-j and -q stand for one thing each, and their values have the names of arguments."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        for param in command.params:
            if "-j" in param.opts and name != "doctor":  # Its workers are a loader's.
                assert (param.name, "--workers" in param.opts) == ("workers", True), name
            if "-q" in param.opts:
                assert (param.name, "--quiet" in param.opts) == ("is_quiet", True), name
            assert param.name not in OLDER or name == "doctor", name


def test_commands_that_say_how_far_they_are_can_be_quiet():
    """All of them, not those alone that take long."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.callback is not None
        source = inspect.getsource(command.callback)
        if re.search(r"\b(shows=|progress=|say\()", source):
            assert any("-q" in param.opts for param in command.params), name


@pytest.mark.parametrize("name", COMMANDS)
def test_long_work_shows_how_far_it_is_where_it_is_asked_to(name, store, tmp_path, capfd):
    """The command draws on stderr unless it is quiet; the function does so with `progress=True`."""
    values = {"a": str(store), "b": str(store)}
    for number, quiet in enumerate((["-q"], [])):
        typed = [one.format(out=tmp_path / str(number), **values) for one in COMMANDS[name]]
        done = run_packer(name, *typed, *quiet)
        assert done.exit_code == 0, done.stderr
        assert done.stderr == ""  # Not a terminal, and done within 30 s.
    function = getattr(packer, name)
    assert inspect.signature(function).parameters["progress"].default is None
    out = tmp_path / "called"
    calls = {
        "verify": (store,),
        "diff": (store, store),
        "merge": ([store, store], out),
        "subset": (store, out),
        "stage": ([store], out),
    }
    prefixes = {"prefixes": ["a/", "b/"]} if name == "merge" else {}
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packer.progress.sys.stderr.isatty", lambda: True, raising=False)
        function(*calls[name], progress=True, **prefixes)
    shown = capfd.readouterr().err
    assert "samples" in shown or "MiB" in shown, shown
