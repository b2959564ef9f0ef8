"""The command line: parses, calls one library function, prints."""

from __future__ import annotations

import io
import signal
import sys
from typing import Any

import click

from packer.errors import AmbiguousFormatError, BuildError
from readers.store.errors import StoreError

_COMMANDS = {
    "build": "packer.cli.build",
    "plan": "packer.cli.plan",
    "submit": "packer.cli.cluster",
    "work": "packer.cli.cluster",
    "publish": "packer.cli.cluster",
    "status": "packer.cli.cluster",
    "detect": "packer.cli.detect",
    "info": "packer.cli.inspect",
    "verify": "packer.cli.inspect",
    "get": "packer.cli.inspect",
    "merge": "packer.cli.stores",
    "subset": "packer.cli.stores",
    "diff": "packer.cli.stores",
    "stage": "packer.cli.stage",
    "doctor": "packer.cli.doctor",
}

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

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an expected error becomes one message and status 1, or 2 for usage."""
        try:
            return super().invoke(ctx)
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


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lmdb-packer", prog_name="packer")
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
