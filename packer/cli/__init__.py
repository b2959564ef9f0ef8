"""The command line: parses, calls one library function, prints."""

from __future__ import annotations

import io
import re
import signal
import sys
from typing import Any

import click

from packer.errors import AmbiguousFormatError, BuildError
from readers.store.errors import StoreError
from readers.store.wording import did_you_mean

_COMMANDS = {
    "build": "packer.cli.build",
    "plan": "packer.cli.plan",
    "submit": "packer.cli.cluster",
    "work": "packer.cli.cluster",
    "publish": "packer.cli.cluster",
    "status": "packer.cli.cluster",
    "detect": "packer.cli.detect",
    "info": "packer.cli.inspect",
    "rejects": "packer.cli.inspect",
    "verify": "packer.cli.inspect",
    "get": "packer.cli.inspect",
    "view": "packer.cli.view",
    "merge": "packer.cli.stores",
    "subset": "packer.cli.stores",
    "diff": "packer.cli.stores",
    "export": "packer.cli.export",
    "stage": "packer.cli.stage",
    "doctor": "packer.cli.doctor",
    "bench": "packer.cli.bench",
}

_NOT_PROPOSED = ("--overwrite",)
"""Options that nobody may take for what they meant to type: they destroy something."""

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class Terminated(BaseException):
    """SIGTERM, as an exception, so that everything open is closed on the way out."""


class LazyGroup(click.Group):
    """Commands whose modules are imported when they are called, and errors told in one place."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of `--help`."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them, imported now."""
        import importlib

        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name])
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for; where there is none, the nearest is proposed."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # Newer versions of click propose one themselves.
            hint = did_you_mean(args[0], _COMMANDS)
            if not hint or "Did you mean" in error.format_message():
                raise
            raise click.UsageError(error.format_message() + hint, error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an expected error becomes one message and status 1, or 2 for usage."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            near = [name for name in error.possibilities or () if name not in _NOT_PROPOSED]
            raise click.NoSuchOption(error.option_name, error.message, near, error.ctx) from error
        except AmbiguousFormatError as error:
            raise click.UsageError(printable(str(error))) from error
        except (BuildError, StoreError) as error:
            raise click.ClickException(printable(str(error))) from error
        except OSError as error:
            # Who reads our output has seen enough, as `head` does: click ends silently.
            if error.errno is None or isinstance(error, BrokenPipeError):
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(printable(f"{where}{error.strerror}")) from error


def printable(text: str) -> str:
    """The text with what no terminal can show (names that are no UTF-8) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def in_options(text: str) -> str:
    """An error about arguments of Python, as one about the options of the command that runs."""
    # (height, width) of Python is WIDTHxHEIGHT of the command line.
    text = re.sub(r"\bsize=\((\d+), (\d+)\)", r"size=\2x\1", text)
    for param in click.get_current_context().command.params:
        if not isinstance(param, click.Option) or not param.name:
            continue
        option = max(param.opts, key=len)
        name = re.escape(param.name)
        text = re.sub(rf"\b{name}=True\b", option, text)
        text = re.sub(rf"\b{name}=(?=\S)", f"{option} ", text)
        # A name of one word is a word of English as well, but at the beginning.
        text = re.sub(rf"\b{name}\b" if "_" in param.name else rf"^{name}\b", option, text)
    return text


def _tell_versions(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if not is_asked or ctx.resilient_parsing:
        return
    from packer.cli.versions import version_lines

    click.echo("\n".join(version_lines()))
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_tell_versions,
    help="Show the version, and those of what it works with, and exit.",
)
def cli() -> None:
    """Compile trees of images into LMDB stores for training, and look after them.

    Exit status: 0 done, 1 the work failed, 2 wrong usage, 130 or 143 stopped by a signal.
    """


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def main() -> None:
    """What the `packer` command runs."""
    signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks is no reason to fail after hours of work.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(prog_name="packer", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = EXIT_INTERRUPTED
    except Terminated:
        status = EXIT_TERMINATED
    sys.exit(status)
