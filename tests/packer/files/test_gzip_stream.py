"""A gzip file by places in what it unpacks to, whole and damaged."""

from __future__ import annotations

import errno
import gzip
import io
import random

from packer.files.gzip_stream import GzipDamageError, GzipStream, is_compressed

CONTENT = random.Random(0).randbytes(300_000)


def damaged(whole_count: int = 200_000) -> bytes:
    """Two gzip members, of which the second begins with what is none."""
    second = bytearray(gzip.compress(CONTENT[whole_count:]))
    second[:2] = b"no"
    return gzip.compress(CONTENT[:whole_count]) + second


def outcome(stream: GzipStream, position: int, byte_count: int) -> bytes | str:
    try:
        return stream.read(position, byte_count)
    except GzipDamageError as error:
        return str(error)


def test_any_places_in_any_order_are_those_of_the_content():
    """Forward, backward, overlapping, of no length, and past the end, where there is less."""
    stream = GzipStream(io.BytesIO(gzip.compress(CONTENT)))
    draw = random.Random(1)
    places = [(draw.randrange(310_000), draw.choice((0, 1, 5_000, 150_000))) for _ in range(40)]
    for position, byte_count in [*places, (0, 300_000), (299_999, 2), (300_000, 1)]:
        assert stream.read(position, byte_count) == CONTENT[position : position + byte_count]
    assert stream.end == 300_000


def test_reading_forward_unpacks_each_byte_once(unpacked):
    """With gaps and neighbours, and no more than is asked for; going back starts over."""
    stream = GzipStream(io.BytesIO(gzip.compress(CONTENT)))
    for position in range(0, 100_000, 1000):
        stream.read(position, 900)
    assert 99_900 <= sum(unpacked) == stream.end < 100_000 + 2**16
    stream.read(250_000, 50_000)
    assert sum(unpacked) == 300_000
    stream.read(0, 10)
    assert sum(unpacked) == 300_000 + stream.end


def test_what_can_be_read_of_a_damaged_stream_does_not_depend_on_what_was_read_before():
    """Else two build workers would not store the same images."""
    draw = random.Random(2)
    places = [(draw.randrange(250_000), draw.randrange(1, 40_000)) for _ in range(60)]
    places += [(199_000, 1_000), (199_000, 1_001), (150_000, 50_000), (0, 200_000)]
    stream = GzipStream(io.BytesIO(damaged()))
    for position, byte_count in places:
        found = outcome(stream, position, byte_count)
        assert found == outcome(GzipStream(io.BytesIO(damaged())), position, byte_count)
        if position + byte_count <= 200_000:
            assert found == CONTENT[position : position + byte_count]
        else:
            assert found == "Not a gzipped file (b'no')"


def test_damage_is_looked_for_once(unpacked):
    """A million images behind it do not each unpack all before it; those before it can be read."""
    stream = GzipStream(io.BytesIO(damaged()))
    for position in range(210_000, 220_000, 100):
        assert "Not a gzipped file" in str(outcome(stream, position, 100))
    assert sum(unpacked) == 200_000
    assert stream.read(0, 100) == CONTENT[:100]


def test_a_cut_stream_gives_all_that_comes_before_the_cut():
    """To the byte, as far as the compressed bytes that are there go."""
    cut = gzip.compress(CONTENT, 0)[:150_000]
    stream = GzipStream(io.BytesIO(cut))
    assert "ended before the end-of-stream" in str(outcome(stream, 0, 300_000))
    assert stream.end > 149_000
    assert stream.read(0, stream.end) == CONTENT[: stream.end]


def test_a_file_server_that_failed_is_asked_again():
    """It is not a damage of the stream."""

    class FailsOnce(io.BytesIO):
        fails = True

        def read(self, size=-1):
            if self.fails and self.tell() > 100_000:
                self.fails = False
                raise OSError(errno.EIO, "Input/output error")
            return super().read(size)

    stream = GzipStream(FailsOnce(gzip.compress(CONTENT)))
    assert "Input/output error" in str(outcome(stream, 0, 300_000))
    assert stream.read(0, 300_000) == CONTENT


def test_a_compressed_file_is_known_by_its_first_bytes(tmp_path):
    """Not by its name; what cannot be read is none."""
    (tmp_path / "a").write_bytes(gzip.compress(b""))
    (tmp_path / "b.gz").write_bytes(b"\x1f")
    assert [is_compressed(tmp_path / name) for name in ("a", "b.gz", "c.gz")] == [
        True,
        False,
        False,
    ]
