"""Small stores that the tools themselves wrote: FFCV 1.0.2 and mosaicml-streaming 0.13.0.

Their images are those of `drawn`; what lies beside them is in the tests.
"""

from __future__ import annotations

import gzip
import io
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from packer.files.mds import MdsShard
from packer.items.raw_item import Scan
from packer.raw.containers import Containers
from packer.sources import SourceOptions, scan_source
from tests.packer.foreign_stores import drawn

HERE = Path(__file__).parent / "written_elsewhere"


def contents(found: Scan) -> list[Any]:
    with closing(Containers(os.fsencode(found.root))) as containers:
        return [containers.read(item) for item in found.items]


def test_a_beton_of_ffcv_is_read(tmp_path):
    """Written with write_mode="proportion": one image is a JPEG, the others pixels."""
    path = tmp_path / "train.beton"
    path.write_bytes(gzip.decompress((HERE / "ffcv-1.0.2.beton.gz").read_bytes()))
    found = scan_source(path, SourceOptions())
    assert (found.rejects, found.splits) == ([], ("train",))
    assert [item.values for item in found.items] == [
        {"label": n % 3, "score": n / 4, "facts": {"n": [n, "é"]}, "split": 0} for n in range(6)
    ]
    assert "columns not read: 'blob', 'emb'" in found.notes
    for number, (content, pixels) in enumerate(zip(contents(found), drawn(6), strict=True)):
        if number == 2:
            shown = np.asarray(Image.open(io.BytesIO(content)))
            # Noise is the worst for JPEG; red and blue exchanged would be further off.
            assert abs(shown.astype(int) - pixels).mean() < abs(shown[..., ::-1] - pixels).mean()
        else:
            assert np.array_equal(content, pixels)


def test_shards_of_mosaicml_streaming_are_read():
    """Of each encoding of images, over two shards."""
    found = scan_source(HERE / "mds", SourceOptions())
    assert found.rejects == []
    assert [item.values for item in found.items] == [
        {"label": n % 3, "caption": f"é{n}", "score": n / 4, "facts": {"n": [n]}} for n in range(5)
    ]
    images = [np.asarray(Image.open(io.BytesIO(content))) for content in contents(found)]
    assert all(map(np.array_equal, images, drawn(5)))
    with closing(MdsShard(HERE / "mds" / "shard.00000.mds")) as shard:
        for number in range(shard.sample_count):
            cells = dict(zip(shard.columns, shard.cells(number), strict=True))
            read = 0
            for column, cell in cells.items():
                if column.name in ("raw", "arr", "fix"):
                    shape, position = shard.pixels(column, cell)
                    data = (HERE / "mds" / "shard.00000.mds").read_bytes()
                    pixels = shape.pixels(data[position : position + shape.byte_count])
                    assert np.array_equal(pixels, drawn(5)[number])
                    read += 1
            assert read == 3
