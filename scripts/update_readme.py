"""Keeps the README's command reference equal to what the commands' `--help` prints.

    python scripts/update_readme.py            rewrites it
    python scripts/update_readme.py --check    shows the differences; exit status 1 if there are any

The help is laid out for one width, so that no terminal changes it.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import packer.cli

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN = "<!-- commands: written by scripts/update_readme.py -->"
END = "<!-- end of commands -->"

WIDTH = 88
"""Columns of the help texts."""


def command_reference() -> str:
    """The help of `packer` and of each of its commands, in the order of `packer --help`."""
    parts = []
    for name, context in _commands(packer.cli.cli, "packer", None):
        parts.append(f"### `{name}`\n\n```text\n{context.get_help().rstrip()}\n```\n")
    return "\n".join(parts)


def _commands(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[str, click.Context]]:
    """A command's full name and context, then those of the commands below it."""
    settings = {
        **command.context_settings,
        "terminal_width": WIDTH,
        "max_content_width": WIDTH,
    }
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context.command_path, context
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from _commands(child, child_name, context)


def updated(text: str) -> str:
    """`text` with the part between the two markers written anew.

    Raises:
        ValueError: The markers are not there once each, in their order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(
            f"{README.name} must have the lines {BEGIN!r} and {END!r} once each, in this order"
        )
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n\n{command_reference()}\n{END}{tail}"


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Write the README's command reference.")
    parser.add_argument("--check", action="store_true", help="Change nothing; fail if it differs.")
    only_check = parser.parse_args().check
    found = README.read_text(encoding="utf-8")
    expected = updated(found)
    if found == expected:
        return 0
    if not only_check:
        README.write_text(expected, encoding="utf-8")
        print(f"{README.name}: command reference rewritten")
        return 0
    lines = difflib.unified_diff(
        found.splitlines(), expected.splitlines(), "README.md", "packer --help", lineterm=""
    )
    print("\n".join(lines))
    print("README.md is out of date. Rewrite it with: python scripts/update_readme.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
