"""The far file system of the tests does what tests and benchmarks rely on."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import threading
import time

import pytest

from readers.machine import mount_of
from scripts.far_mount import Fault, mounted

SIZE = 300_000


@pytest.fixture
def content(tmp_path, far):
    """Bytes of a file of 300,000, and where it is seen through a mount of its own."""
    source = tmp_path / "source"
    source.mkdir()
    content = os.urandom(SIZE)
    (source / "file").write_bytes(content)
    with mounted(source, tmp_path / "mount") as mount:
        yield content, source / "file", mount


def test_it_shows_files_and_counts_calls(content):
    """Bytes, sizes and names are those of the folder; it is a network mount to us."""
    expected, _, mount = content
    assert os.listdir(mount.path) == ["file"]
    assert (mount.path / "file").stat().st_size == SIZE
    mount.reset()
    assert (mount.path / "file").read_bytes() == expected
    counts = mount.counts()
    assert counts.open_count == 1
    assert counts.read_bytes == SIZE
    assert counts.paths["read"] == {"/file": counts.read_count}
    found = mount_of(mount.path / "file")
    assert (found.folder, found.type, found.is_network) == (mount.path, "fuse.far", True)
    with pytest.raises(OSError, match="Read-only file system"):
        (mount.path / "new").write_bytes(b"")


def test_calls_take_their_time_side_by_side(content):
    """Eight reads of 200 ms each, under way at once, are not 1.6 s."""
    _, _, mount = content
    with open(mount.path / "file", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        mount.reset()
        mount.set(read_ms=200)
        readers = [
            threading.Thread(target=os.pread, args=(file.fileno(), 100, 32_768 * at))
            for at in range(8)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert mount.counts().in_flight_max == 8


def test_requests_are_no_larger_than_the_mount_takes(content, tmp_path):
    """128 KiB, as the kernel has it, or less."""
    expected, path, mount = content
    with open(mount.path / "file", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        mount.reset()
        assert os.pread(file.fileno(), SIZE, 0) == expected
    assert mount.counts().read_count == 3
    with mounted(path.parent, tmp_path / "narrow", read_bytes_max=16_384) as narrow:
        assert (narrow.path / "file").read_bytes() == expected
        assert narrow.counts().read_count == -(-SIZE // 16_384)


def test_calls_fail_in_their_turn(content):
    """Every second open, twice; then all is well."""
    expected, _, mount = content
    mount.set(faults=(Fault(call="open", error="ESTALE", every=2, times=1),))
    path = mount.path / "file"
    assert path.read_bytes() == expected
    # The kernel looks a stale name up and opens it once more, as it does on NFS.
    assert path.read_bytes() == expected
    mount.set(faults=(Fault(call="read", error="EIO", match="*le"),))
    with pytest.raises(OSError, match="Input/output error"):
        path.read_bytes()
    mount.set(faults=(Fault(call="read", error="EIO", match="other"),))
    assert path.read_bytes() == expected
    mount.set(faults=(Fault(call="stat", error="EIO", after=10**6),))
    assert path.stat().st_size == SIZE
    assert mount.counts().fault_count >= 2


def test_a_server_may_be_away(content):
    """Calls wait for it, or fail."""
    expected, _, mount = content
    path = mount.path / "file"
    mount.set(away="ETIMEDOUT")
    with pytest.raises(TimeoutError):
        path.read_bytes()
    mount.set(away="silent")
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    time.sleep(0.2)
    assert not found
    mount.set(away="")
    reader.join()
    assert found == [expected]


def test_a_replaced_file_is_stale(content):
    """To those who have the old one open; whoever opens it anew has the new one."""
    _, source, mount = content
    with open(mount.path / "file", "rb", buffering=0) as file:
        other = source.with_name("other")
        other.write_bytes(bytes(SIZE))
        os.replace(other, source)
        with pytest.raises(OSError, match="Stale file handle") as error:
            os.pread(file.fileno(), 100, 0)
        assert error.value.errno == errno.ESTALE


def test_mapping_may_be_refused(content):
    """As on some file systems of clusters; reading goes on."""
    expected, _, mount = content
    with open(mount.path / "file", "rb") as file:
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ).close()
    mount.set(maps=False)
    with open(mount.path / "file", "rb") as file:
        with pytest.raises(OSError, match="No such device"):
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        assert file.read() == expected


def test_it_is_gone_with_its_context(tmp_path, far):
    """No mount and no process is left, also when a file is open still."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"content")
    with mounted(source, tmp_path / "mount") as mount:
        file = open(mount.path / "file", "rb")  # noqa: SIM115
    assert not os.path.ismount(tmp_path / "mount")
    with pytest.raises(OSError, match="not connected"):
        file.close()
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in found.stdout
