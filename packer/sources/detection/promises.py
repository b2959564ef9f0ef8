"""Files that are called like annotations and hold none: empty, a web page, zeros, cut short.

Nothing in them tells what they should say, so that their names are all there is to go by.
"""

from __future__ import annotations

import os
import re

import msgspec

from packer.files.start import content_problem, pointer_reason
from packer.files.xml import FILE_BYTES_MAX, read_xml
from packer.sources.detection.mentions import decoded
from packer.wording import readable_path
from readers.store.pictures.signatures import START_BYTES

_DATA_EXTENSIONS = (
    *(b".json", b".geojson", b".jsonl", b".ndjson", b".odgt", b".manifest", b".csv", b".tsv"),
    *(b".xml", b".yaml", b".yml", b".data", b".names", b".txt", b".parquet", b".arrow"),
    *(b".mat", b".pkl", b".npy", b".npz", b".h5", b".hdf5", b".xls", b".xlsx", b".ods"),
    *(b".tar", b".tgz", b".zip", b".gz", b".tfrecord", b".record", b".pbtxt", b".pts"),
)
"""What a Git LFS pointer may stand for that says something about pictures."""

_STRONG = (
    rb"(?:annotations?|annots?|annos?|labels?|instances|keypoints|captions?|panoptic|bbox(?:es)?|"
    rb"bounding[_ -]?boxes|ground[_ -]?truth|gt|masks?|coco)"
)
_WEAK = rb"(?:via|class(?:es)?|categories|metadata|train|val|valid|test|data|dataset|targets?)"
_PROMISE = re.compile(
    rb"(?:.*[^a-z])?(?:" + _STRONG + rb"|" + _WEAK + rb")(?:[^a-z].*)?\."
    rb"(?:json|geojson|jsonl|ndjson|odgt|manifest|csv|tsv|xml|ya?ml|data|names|parquet|arrow)"
    # Of text, which has many uses, only the plain names: a label file may be called test_001.txt.
    rb"|(?:" + _STRONG + rb"|" + _WEAK + rb")(?:[_-](?:train|val|valid|test))?\.txt",
    re.IGNORECASE,
)
_STRONG_NAME = re.compile(rb"(?:.*[^a-z])?" + _STRONG + rb"(?:[^a-z].*)?", re.IGNORECASE)
_OPAQUE_PROMISE = re.compile(
    rb"(?:.*[^a-z])?(?:image)?(?:annotations?|annots?|annos?|labels?|captions?|bbox(?:es)?|gt|"
    rb"ground[_ -]?truth|masks?|targets?)(?:[^a-z].*)?\."
    rb"(?:mat|pkl|pickle|npy|npz|h5|hdf5|xlsx?|ods|db|sqlite3?|feather|parquet|arrow|"
    rb"tar|tgz|tar\.gz|zip|rar|7z|json\.gz|csv\.gz|xml\.gz|gz)",
    re.IGNORECASE,
)
_JSON_EXTENSIONS = (b".json", b".geojson", b".jsonl", b".ndjson", b".odgt", b".manifest")
_JSON_BYTES_MAX = 2**26


def broken_promise(path: bytes, name: bytes) -> str:
    """What is wrong with a file that is called like one of annotations; empty where nothing is.

    Args:
        path: The file.
        name: Its name, which decides what is expected of it.
    """
    lower = name.lower()
    is_promise = _PROMISE.fullmatch(lower) is not None
    if not is_promise and not lower.endswith(_DATA_EXTENSIONS):
        return ""
    try:
        with open(path, "rb") as file:
            start = file.read(START_BYTES)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if pointer_reason(start):
        return pointer_reason(start)
    if not is_promise:
        return ""
    problem = content_problem(start)
    if problem or lower.endswith((b".parquet", b".arrow")):
        return problem
    if decoded(start) is None:
        return f"it is not text: it starts with {start[:16]!r}"
    if lower.endswith(_JSON_EXTENSIONS):
        return _json_problem(path, may_be_empty=_STRONG_NAME.fullmatch(lower) is None)
    if lower.endswith(b".xml"):
        return _xml_problem(path)
    is_list = lower.endswith((b".csv", b".tsv")) and not lower.startswith((b"class", b"categ"))
    if is_list and len(start) < START_BYTES and len(start.split()) == 1:
        return f"it holds nothing but {start.strip()[:40]!r}, cut short perhaps"
    return ""


def opaque_promise(name: bytes) -> bool:
    """Whether a file that no source reads beside pictures is called like one of annotations."""
    return _OPAQUE_PROMISE.fullmatch(name.lower()) is not None


def _json_problem(path: bytes, *, may_be_empty: bool) -> str:
    """Why a file is not JSON, nor JSON lines; empty where it is, or is too large to find out."""
    try:
        if os.path.getsize(path) > _JSON_BYTES_MAX:
            return ""
        with open(path, "rb") as file:
            data = file.read().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if b"\0" in data[:START_BYTES]:
        return ""  # UTF-16, which is looked into as text.
    if not may_be_empty and data.strip() in (b"{}", b"[]", b"null"):
        return f"it holds nothing but {data.strip().decode()}"
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        first = data.lstrip().partition(b"\n")[0]
        try:
            msgspec.json.decode(first, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if re.search(rb"\b(NaN|Infinity)\b", data):
                return ""  # Which Python writes and reads.
            return f"it is not JSON ({error}), cut short perhaps"
    return ""


def _xml_problem(path: bytes) -> str:
    """Why a file is not XML; empty where it is, or is too large to find out."""
    try:
        if os.path.getsize(path) <= FILE_BYTES_MAX:
            read_xml(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except ValueError as error:
        return f"it cannot be read: {error}"
    return ""


def promise_text(path: bytes, problem: str) -> str:
    """One sentence about such a file."""
    return f"{readable_path(path)} is called like a file of annotations, but {problem}"
