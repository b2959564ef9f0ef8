"""The keys of a JSON file, from its first bytes: enough to tell whose format it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packer.sources.detection.look import HEAD_BYTES

# A string, with the colon after it when it is a key; or a bracket. Numbers and words do not matter.
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|([\[\]{}])')
_TAIL_KEY = re.compile(r'"(images|annotations|categories|items)"\s*:\s*\[')


@dataclass(frozen=True)
class JsonOutline:
    """Keys of a JSON document.

    Attributes:
        is_list: Whether it is a list at the top.
        keys: Keys of the document, or of the objects in it when it is a list.
        inner_keys: Keys of everything inside these.
    """

    is_list: bool
    keys: frozenset[str]
    inner_keys: frozenset[str]


def read_json_outline(path: bytes) -> JsonOutline:
    """Keys in the first 64 kB of a file and, for longer ones, names of lists in the last 64 kB.

    A file that cannot be read, or that is not JSON, has no keys.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
            size = file.seek(0, 2)
            file.seek(max(HEAD_BYTES, size - HEAD_BYTES))
            tail = file.read()
    except OSError:
        return JsonOutline(False, frozenset(), frozenset())
    text = head.decode("utf-8-sig", "replace").lstrip()
    is_list = text.startswith("[")
    key_depth = 2 if is_list else 1
    keys: set[str] = set()
    inner: set[str] = set()
    depth = 0
    for string, colon, bracket in _TOKEN.findall(text):
        if bracket in ("{", "["):
            depth += 1
        elif bracket:
            depth -= 1
        elif colon:
            (keys if depth == key_depth else inner).add(string)
    # The list of images of a large COCO file fills the head, and the keys after it are far away.
    if tail and not is_list:
        keys.update(_TAIL_KEY.findall(tail.decode("utf-8", "replace")))
    return JsonOutline(is_list, frozenset(keys), frozenset(inner))
