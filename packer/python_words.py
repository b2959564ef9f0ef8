"""Errors of a build in the words of Python. Messages are written for the command line.

`packer.build` and the other functions of `packer` tell `overwrite=True` where the command tells
`--overwrite`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, ParamSpec, TypeVar, get_args

from packer.errors import BuildError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_FLAGS = (
    *("overwrite", "update", "rehash", "retry-rejects", "clip-boxes", "stratify"),
    *("label-is-index", "link", "same-classes"),
)
_NAMES = {
    "target-size": "target_bytes",
    "shard-size": "shard_bytes_max",
    "max-pixels": "pixels_max",
    "prefix": "prefixes",
    "link": "links",
}
"""Arguments that are not called like their options."""

_ARGUMENTS = ("workers", "scratch", "engine", "scheduler", "on-error", "max-rejects", "prefix")
"""Of functions, beside the settings of recipes."""

_SPOKEN = re.compile(
    r"(?<![\w-])--([a-z][a-z-]*[a-z])(?![\w-])(?: (\S+)(?= (?:is|names) the )| ([\w.%]+))?"
)
"""An option, and the word behind it: surely its value, or whatever it is."""


@functools.cache
def in_python(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, whose errors of builds and notes in reports speak of arguments."""

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return _told(function(*args, **kwargs))
        except BuildError as error:
            error.args = tuple(map(in_arguments, error.args))
            raise

    called.__module__ = "packer"  # Where it is found, by pickle as well.
    return called


def _told(report: _R) -> _R:
    """A report whose notes speak of arguments. Reasons of rejects stay as they are in the store."""
    if not is_dataclass(report) or not hasattr(report, "notes"):
        return report
    notes = [in_arguments(note) for note in report.notes]
    return replace(report, notes=notes)  # type: ignore[type-var]


def in_arguments(text: Any) -> Any:
    """A message about options as one about the arguments of `packer.build` and its like.

    >>> in_arguments("Replace it with --overwrite, or give --format voc.")
    "Replace it with overwrite=True, or give SourceOptions(format='voc')."
    """
    if not isinstance(text, str) or "--" not in text:
        return text
    return _SPOKEN.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    option, given, word = found.groups()
    name = _NAMES.get(option, option.replace("-", "_"))
    kinds = _choices()
    if option not in _FLAGS and name not in kinds:
        return found[0]  # Of a command that has no function, such as packer submit.
    is_source, choices = kinds.get(name, (False, frozenset()))
    if option in _FLAGS:
        value, rest = "True", "".join(f" {text}" for text in (given, word) if text)
    elif given is not None:
        value, rest = repr(given), ""
    else:
        value, rest = _value_and_rest(word or "", choices)
    return f"SourceOptions({name}={value}){rest}" if is_source else f"{name}={value}{rest}"


def _value_and_rest(word: str, choices: frozenset[str]) -> tuple[str, str]:
    """The value that the word behind an option is, as Python has it, and what is left of it."""
    bare = word.rstrip(".")
    rest = word[len(bare) :]
    if bare in choices or re.fullmatch(r"[0-9.]+%", bare):
        return repr(bare), rest
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", bare):
        return bare, rest
    return "...", f" {word}" if word else ""


@functools.cache
def _choices() -> dict[str, tuple[bool, frozenset[str]]]:
    """Argument -> (whether it is one of `SourceOptions`, the words that it may be)."""
    from packer.policies import ImagePolicy
    from packer.recipe import ColorMode, Fit, Recipe, Scaling
    from packer.sources import LAYOUTS, SourceOptions
    from packer.sources.source import AUTO_FORMAT, Task, VocOrigin

    known = {
        "format": (AUTO_FORMAT, *LAYOUTS),
        "task": get_args(Task),
        "voc_origin": get_args(VocOrigin),
        "fit": get_args(Fit),
        "scaling": get_args(Scaling),
        "image": get_args(ImagePolicy),
        "mode": get_args(ColorMode),
        "engine": ("local", "dask"),
        "on_error": ("reject", "fail"),
    }
    found = {_NAMES.get(name, name.replace("-", "_")): False for name in _ARGUMENTS}
    found |= dict.fromkeys((field.name for field in fields(Recipe)), False)
    found |= dict.fromkeys((field.name for field in fields(SourceOptions)), True)
    return {name: (is_source, frozenset(known.get(name, ()))) for name, is_source in found.items()}
