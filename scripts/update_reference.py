"""Keeps the documented command reference equal to what the commands' `--help` prints.

    python scripts/update_reference.py            rewrites docs/reference/commands.md
    python scripts/update_reference.py --check    shows the differences; exit status 1 if any

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

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "commands.md"

WIDTH = 88
"""Columns of the help texts."""

HEAD = """\
# Commands

<!-- Written by scripts/update_reference.py -->

What `packer --help` prints, and the help of each command. Tab completes commands, options and their
values with one of these lines in the shell's start-up file:

```bash
eval "$(_PACKER_COMPLETE=bash_source packer)"       # ~/.bashrc
eval "$(_PACKER_COMPLETE=zsh_source packer)"        # ~/.zshrc
_PACKER_COMPLETE=fish_source packer | source        # ~/.config/fish/config.fish
```
"""


def command_reference() -> str:
    """The page: the help of `packer` and of each command, in the order of `packer --help`."""
    parts = [HEAD]
    for name, context in _commands(packer.cli.cli, "packer", None):
        parts.append(f"## `{name}`\n\n```text\n{context.get_help().rstrip()}\n```\n")
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


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Write the documented command reference.")
    parser.add_argument("--check", action="store_true", help="Change nothing; fail if it differs.")
    only_check = parser.parse_args().check
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    expected = command_reference()
    if found == expected:
        return 0
    if not only_check:
        PAGE.write_text(expected, encoding="utf-8")
        print(f"{PAGE.name}: rewritten")
        return 0
    lines = difflib.unified_diff(
        found.splitlines(), expected.splitlines(), PAGE.name, "packer --help", lineterm=""
    )
    print("\n".join(lines))
    print(f"{PAGE} is out of date. Rewrite it with: python scripts/update_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
