"""Engines that are pickled and copied: of what they were made, not of what they have started."""

from __future__ import annotations

import inspect
from typing import Any


def remade(engine: Any) -> tuple[Any, ...]:
    """For `__reduce__`: the same engine, not started yet.

    Threads, workers and the memory that they share neither travel nor need to.

    Args:
        engine: It keeps each argument that it was made with as an attribute, `depth` as `_depth`.
    """
    names = inspect.signature(type(engine)).parameters
    return _made, (type(engine), {name: getattr(engine, f"_{name}") for name in names})


def _made(kind: type, arguments: dict[str, Any]) -> Any:
    return kind(**arguments)
