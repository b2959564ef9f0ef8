"""The `packer` command, run in this process."""

from __future__ import annotations

import inspect
import os
from typing import Any

from click.testing import CliRunner

from packer.cli import cli

# Until 8.2, click mixed stderr into stdout unless it was told not to.
_SETTINGS: dict[str, Any] = (
    {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
)


def run_packer(*arguments: object) -> Any:
    """A command's result: `exit_code`, `stdout`, `stderr` and `exception`, as `packer` has them."""
    texts = [
        argument if isinstance(argument, str) else os.fspath(argument)  # type: ignore[call-overload]
        for argument in arguments
    ]
    return CliRunner(**_SETTINGS).invoke(cli, texts)
