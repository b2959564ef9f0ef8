"""Raw folders of files that are only looked at: names, and the start of some files."""

from __future__ import annotations

import json
from pathlib import Path

COCO = json.dumps(
    {"info": {}, "images": [{"file_name": "1.png"}], "annotations": [], "categories": []}
)
VOC = "<annotation><size><width>4</width></size><object><name>a</name></object></annotation>"
YOLO = "0 0.5 0.5 0.25 0.25\n"


def write_files(root: Path, *names: str) -> Path:
    """Files of as many bytes as their name has letters; a name with a slash last is a folder."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"x" * len(name))
    return root


def write_texts(root: Path, texts: dict[str, str]) -> Path:
    """Text files by their names."""
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
