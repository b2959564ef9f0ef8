"""Record bytes from buckets and web servers are those of the files, whatever fails on the way."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from readers.store.errors import ShardError
from readers.store.place import Url
from readers.store.read_bytes import ReadBytes
from readers.store.read_policy import ReadPolicy
from readers.store.record_bytes import NO_DESCRIPTOR, FileBytes, RecordBytes, Wanted
from readers.store.remote import files_of
from readers.store.remote_shards import REMOTE_POLICY, RemoteShards
from tests.readers.store.servers import Faults, Request, Served, s3_server, web_server
from tests.readers.store.test_record_bytes import RecordBytesCases, parts_of, wanted_of

QUICK = ReadPolicy(retry_count=4, first_wait_s=0.001, gap_bytes_max=0)


class RemoteCases(RecordBytesCases):
    """What every implementation does, of files that a server has."""

    served: Served

    @pytest.fixture
    def paths(self, contents: list[bytes], tmp_path: Path) -> list[Path]:
        """Named as the files there."""
        for number, content in enumerate(contents):
            self.served.put(f"shards/shard-{number}", content)
        return [tmp_path / f"shard-{number}" for number in range(len(contents))]

    def make(self, sizes: tuple[int, ...]) -> RecordBytes:
        files = files_of(Url(f"{self.served.url}/shards", self.served.options))
        self.url = files.url
        return ReadBytes(len(sizes), REMOTE_POLICY, RemoteShards(files))

    def add(self, record_bytes: RecordBytes, number: int, path: Path) -> FileBytes:
        return record_bytes.add(number, self.url / path.name, NO_DESCRIPTOR)

    def assert_open(self, count: int) -> None:
        """But for the server's, which is in this process and closes its side a little later."""
        deadline = time.monotonic() + 20
        while len(os.listdir("/proc/self/fd")) > count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) <= count

    def test_what_is_not_a_file_is_refused(self, tmp_path: Path) -> None:
        """By its URL."""
        record_bytes = self.make((10,))
        with pytest.raises(ShardError, match=r"shards/shard-9: (404|there is no such file)"):
            self.add(record_bytes, 0, tmp_path / "shard-9")


@pytest.fixture(scope="module")
def s3() -> Iterator[Served]:
    """It stays connected: to start botocore takes half a second."""
    with s3_server() as served:
        kept = [
            files_of(Url(f"s3://bucket/{name}", served.options)) for name in ("shards", "faulty")
        ]
        yield served
        del kept


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with web_server(tmp_path / "served") as served:
        yield served


@pytest.fixture(params=["web", "s3"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """Either, without faults but those that the test asks for."""
    found: Served = request.getfixturevalue(request.param)
    found.faults.requests.clear()
    yield found
    found.faults.answer = Faults().answer


class TestWeb(RemoteCases):
    """By requests for ranges to a plain web server."""

    @pytest.fixture(autouse=True)
    def _serve(self, web: Served) -> None:
        self.served = web


class TestS3(RemoteCases):
    """By S3's GetObject."""

    @pytest.fixture(autouse=True)
    def _serve(self, s3: Served) -> None:
        self.served = s3


# --- What fails -----------------------------------------------------------------------------------

SIZE = 100_000


@pytest.fixture
def content(served: Served) -> bytes:
    """Of the one shard there."""
    content = np.random.default_rng(3).integers(0, 256, SIZE, np.uint8).tobytes()
    served.put("faulty/shard-0", content)
    return content


@pytest.fixture
def opened(served: Served, content: bytes) -> Iterator[RecordBytes]:
    files = files_of(Url(f"{served.url}/faulty", served.options))
    found = ReadBytes(1, QUICK, RemoteShards(files))
    found.add(0, files.url / "shard-0", NO_DESCRIPTOR)
    yield found
    found.close()


def wanted(offsets: list[int], length: int = 100) -> Wanted:
    return wanted_of([(0, offset, length) for offset in offsets])


def every(count: int, fault: int | str) -> Callable[[Request], int | str | None]:
    """The fault for each nth request for bytes."""
    numbers = itertools.count(1)

    def answer(request: Request) -> int | str | None:
        is_turn = request.method == "GET" and next(numbers) % count == 0
        return fault if is_turn else None

    return answer


@pytest.mark.parametrize("fault", [500, 503, 429, "cut", "drop", "slow"])
def test_a_fault_that_passes_is_not_seen(
    served: Served, opened: RecordBytes, content: bytes, fault: int | str
) -> None:
    """Whatever a server does now and then: the same bytes come, by as few more requests."""
    served.faults.answer = every(3, fault)
    places = wanted(list(range(0, SIZE - 100, 5000)))
    (pieces,) = opened.fetch([places])
    expected = [content[at : at + 100] for at in places.offsets.tolist()]
    assert parts_of(pieces, places) == expected
    assert 20 <= len(served.faults.gets("shard-0")) <= 40


@pytest.mark.parametrize(
    ("fault", "text", "attempts"),
    [
        (503, "503", QUICK.retry_count + 1),
        (403, "403.*The key may be wrong or expired", 1),
        (404, "404.*See that the URL is right", 1),
        (412, "412.*It was replaced after it was opened", 1),
    ],
)
def test_a_fault_that_stays_names_shard_and_offset(
    served: Served, opened: RecordBytes, fault: int, text: str, attempts: int
) -> None:
    """After as many attempts as the policy says; what no waiting mends is an error at once."""
    served.faults.answer = lambda request: fault
    with pytest.raises(ShardError, match=rf"faulty/shard-0: 100 bytes at offset 700: {text}"):
        opened.fetch([wanted([700])])
    assert len(served.faults.gets("shard-0")) == attempts


def test_an_expired_token_is_told(s3: Served) -> None:
    """S3 answers it with 400, as it does a wrong argument."""
    s3.put("faulty/shard-0", bytes(SIZE))
    files = files_of(Url("s3://bucket/faulty", s3.options))
    found = ReadBytes(1, QUICK, RemoteShards(files))
    found.add(0, files.url / "shard-0", NO_DESCRIPTOR)
    s3.faults.answer = lambda request: 400
    with pytest.raises(ShardError, match=r"400 ExpiredToken: So it is.*wrong or expired"):
        found.fetch([wanted([700])])
    s3.faults.answer = Faults().answer
    found.close()


@pytest.mark.parametrize("size", [SIZE, SIZE - 1])
def test_a_file_that_was_replaced_is_never_read(
    served: Served, opened: RecordBytes, size: int
) -> None:
    """Not even by one of the same size: its ETag is another."""
    served.put("faulty/shard-0", bytes(size))
    with pytest.raises(ShardError, match=r"shard-0: 100 bytes at offset 0: .*It was replaced"):
        opened.fetch([wanted([0])])


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("shifted", "the server answered with bytes 701-800, and bytes 700-799 were asked for"),
        ("packed", "the server answered in gzip, though it was asked for the bytes as they are"),
    ],
)
def test_an_answer_of_other_bytes_is_never_taken(
    web: Served, content: bytes, fault: str, text: str
) -> None:
    """As a proxy on the way may give one, of the right length."""
    web.put("faulty/shard-0", content)
    files = files_of(Url(f"{web.url}/faulty"))
    found = ReadBytes(1, QUICK, RemoteShards(files))
    found.add(0, files.url / "shard-0", NO_DESCRIPTOR)
    web.faults.answer = lambda request: fault
    with pytest.raises(ShardError, match=rf"shard-0: 100 bytes at offset 700: .*{text}"):
        found.fetch([wanted([700])])
    found.close()


def test_a_redirect_is_followed(web: Served, content: bytes) -> None:
    """With the range, as to a mirror or a signed URL."""
    web.put("faulty/shard-0", content)
    files = files_of(Url(f"{web.url}/faulty"))
    web.faults.answer = lambda request: None if request.path.startswith("/moved") else "moved"
    found = ReadBytes(1, QUICK, RemoteShards(files))
    found.add(0, files.url / "shard-0", NO_DESCRIPTOR)
    places = wanted([700])
    assert parts_of(found.fetch([places])[0], places) == [content[700:800]]
    found.close()


def test_neighbours_come_by_one_request(served: Served, content: bytes) -> None:
    """A gap costs less than another round trip."""
    files = files_of(Url(f"{served.url}/faulty", served.options))
    found = ReadBytes(1, REMOTE_POLICY, RemoteShards(files))
    found.add(0, files.url / "shard-0", NO_DESCRIPTOR)
    places = wanted([90_000, 0, 40_000])
    assert parts_of(found.fetch([places])[0], places)[0] == content[90_000:90_100]
    (only,) = served.faults.gets("shard-0")
    assert only.range == "bytes=0-90099"
    found.close()


def test_a_server_without_ranges_is_told(tmp_path: Path) -> None:
    """Before a whole shard comes for each part of one."""
    with web_server(tmp_path, has_ranges=False) as plain:
        plain.put("shard-0", bytes(SIZE))
        files = files_of(Url(plain.url))
        found = ReadBytes(1, QUICK, RemoteShards(files))
        found.add(0, files.url / "shard-0", NO_DESCRIPTOR)
        with pytest.raises(ShardError, match=r"does not answer requests for ranges.*nginx"):
            found.fetch([wanted([700])])
        assert len(plain.faults.gets("shard-0")) == 1
        found.close()


def test_reads_are_many_at_once(served: Served, opened: RecordBytes) -> None:
    """A round trip to a bucket is long, and a batch needs many."""
    in_flight, most, lock = 0, 0, threading.Lock()

    def answer(request: Request) -> None:
        nonlocal in_flight, most
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        time.sleep(0.05)
        with lock:
            in_flight -= 1

    served.faults.answer = answer
    opened.fetch([wanted(list(range(0, SIZE - 100, 2000)))])
    assert most >= 8


def test_a_child_does_not_touch_the_connections_of_its_parent(
    served: Served, opened: RecordBytes, content: bytes
) -> None:
    """It reads by its own, ends as programs end, and the parent's go on; again and again."""
    places = wanted([5, 50_000])
    expected = [content[5:105], content[50_000:50_100]]
    assert parts_of(opened.fetch([places])[0], places) == expected
    for _ in range(2):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                found = [parts_of(opened.fetch([places])[0], places) for _ in range(3)]
                gc.collect()
                status = 17 if found == [expected] * 3 else 2
            finally:
                os._exit(status)
        assert parts_of(opened.fetch([places])[0], places) == expected
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        assert parts_of(opened.fetch([places])[0], places) == expected
