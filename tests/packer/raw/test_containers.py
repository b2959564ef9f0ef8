"""Each kind of file that holds many images holds the laws of all of them."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from packer.raw.containers import CONTAINERS
from packer.raw.spool import spooled_item, write_spooled
from tests.packer.conftest import picture
from tests.packer.foreign_stores import drawn, write_beton
from tests.packer.raw.container_conformance import ContainerConformance, Content, Made
from tests.packer.sources.test_cifar import drawn as cifar_pictures
from tests.packer.sources.test_cifar import dump, rows_of
from tests.packer.sources.test_idx import drawn as gray_pictures
from tests.packer.sources.test_idx import write_pair
from tests.packer.sources.test_tar_shards import write_tar
from tests.packer.sources.test_zip_archive import write_zip

COUNT = 7


def png_files() -> dict[str, bytes]:
    """Seven files of pictures, of other sizes each."""
    files = {}
    for number in range(COUNT):
        data = io.BytesIO()
        Image.fromarray(picture(str(number))).resize((20 + number, 16)).save(data, "PNG")
        files[f"{number}.png"] = data.getvalue()
    return files


def image_table() -> object:
    """A table of the pictures, as the datasets library has them."""
    pa = pytest.importorskip("pyarrow")
    rows = [{"bytes": data, "path": name} for name, data in png_files().items()]
    return pa.table({"image": pa.array(rows), "label": [0] * COUNT})


class TestRange(ContainerConformance):
    kind = "range"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        files = png_files()
        return write_tar(folder / "a.tar", files.items()), list(files.values())


class TestTgz(ContainerConformance):
    kind = "tgz"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        files = png_files()
        return write_tar(folder / "a.tgz", files.items(), "w:gz"), list(files.values())


class TestTgzOfManyMembers(ContainerConformance):
    kind = "tgz"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        files = png_files()
        path = write_tar(folder / "a.tgz", files.items())
        data = path.read_bytes()
        path.write_bytes(
            b"".join(gzip.compress(data[n : n + 999]) for n in range(0, len(data), 999))
        )
        return path, list(files.values())


class TestPixels(ContainerConformance):
    kind = "pixels"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        pixels = drawn(COUNT)
        samples = [(image, n) for n, image in enumerate(pixels)]
        path = write_beton(folder / "a.beton", {"image": "image", "label": "int"}, samples)
        return path, list(pixels)


class TestZip(ContainerConformance):
    kind = "zip"
    method = 0

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        files = png_files()
        path = write_zip(folder / "a.zip", files.items(), compression=self.method)
        return path, list(files.values())


class TestDeflatedZip(TestZip):
    method = 8


class TestArrow(ContainerConformance):
    kind = "arrow"
    form = "new_stream"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        pa = pytest.importorskip("pyarrow")
        path, table = folder / "data-00000-of-00001.arrow", image_table()
        with getattr(pa.ipc, self.form)(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        state = {"_data_files": [{"filename": path.name}], "_split": None}
        (folder / "state.json").write_text(json.dumps(state))
        (folder / "dataset_info.json").write_text("{}")
        return path, list(png_files().values())


class TestArrowFile(TestArrow):
    form = "new_file"


class TestParquet(ContainerConformance):
    kind = "parquet"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        path = folder / "a.parquet"
        pq.write_table(image_table(), path, row_group_size=3, use_dictionary=False)
        return path, list(png_files().values())


class TestIdx(ContainerConformance):
    kind = "idx"
    end = ""

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        write_pair(folder, "train", [0] * COUNT, self.end)
        return folder / f"train-images-idx3-ubyte{self.end}", list(gray_pictures(COUNT)[..., None])


class TestCompressedIdx(TestIdx):
    end = ".gz"


class TestCifar(ContainerConformance):
    kind = "cifar"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        dump(folder / "batches.meta", {b"label_names": [b"a"]})
        images = cifar_pictures(COUNT)
        dump(folder / "data_batch_1", {b"data": rows_of(images), b"labels": [0] * COUNT})
        return folder / "data_batch_1", list(images)


class TestBinaryCifar(ContainerConformance):
    kind = "cifar"

    def write(self, folder: Path) -> tuple[Path, list[Content]]:
        (folder / "batches.meta.txt").write_text("a\n")
        images = cifar_pictures(COUNT)
        records = [b"\0" + row.tobytes() for row in rows_of(images)]
        (folder / "data_batch_1.bin").write_bytes(b"".join(records))
        return folder / "data_batch_1.bin", list(images)


class TestSpool(ContainerConformance):
    """The copy of another file, here of a compressed archive."""

    kind = "spool"
    original: ContainerConformance = TestTgz()

    def make(self, folder: Path) -> Made:
        made = self.original.make(folder)
        spool, items = folder.with_name("spool"), []
        with open(spool, "wb") as file:
            for item, content in zip(made.items, made.contents, strict=True):
                items.append(spooled_item(item, spool, file.tell()))
                write_spooled(file, content)
        return Made(path=made.path, items=items, contents=made.contents, data_path=spool)


class TestSpoolOfPixels(TestSpool):
    original = TestCompressedIdx()


def test_each_kind_is_held_to_the_laws():
    """One that is added needs a class here."""
    classes = [value for value in globals().values() if isinstance(value, type)]
    kinds = {getattr(value, "kind", None) for value in classes} - {None}
    assert kinds == set(CONTAINERS)
