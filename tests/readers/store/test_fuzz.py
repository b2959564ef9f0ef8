"""Changed stores are read or refused, and nothing else; and the fuzzer would find what is not."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np
import pytest

from readers.store import shard_reader
from readers.store.layout import MANIFEST_NAME
from readers.store.shard_reader import ShardReader
from scripts import fuzz_store
from scripts.fuzz_store import fuzz, make_bases, make_case, read_case


@pytest.mark.slow
def test_changed_stores_are_read_or_refused(tmp_path):
    """Some seconds of the long run: no signal, no other error, no value that was never written."""
    seed = random.SystemRandom().randrange(2**32)
    totals = fuzz(seed=seed, byte_count=60_000, limit_s=60, folder=tmp_path)
    assert totals.failures == [], f"seed {seed}"
    assert totals.byte_count >= 60_000
    assert 0 < totals.refused_count < totals.case_count
    assert totals.sample_count > totals.case_count
    assert totals.memory_bytes < 2**28


def test_a_case_is_the_same_for_the_same_seed(tmp_path):
    """What a run has found can be looked at again; other seeds and numbers are other cases."""
    bases = make_bases(tmp_path)
    cases = [make_case(bases, 7, number) for number in range(60)]
    assert [make_case(bases, 7, number).files for number in range(60)] == [c.files for c in cases]
    assert make_case(bases, 8, 5).files != cases[5].files
    assert {case.is_manifest for case in cases} == {case.is_crafted for case in cases}
    assert all(case.changed_count >= 0 for case in cases)
    assert sum(case.changed_count > 0 for case in cases) > 50
    # A manifest that agrees with its shard is not a changed byte by itself.
    for case in cases:
        if not case.is_manifest:
            case.files[MANIFEST_NAME] = b""
            assert case.changed_count == sum(
                len(data) - np.count_nonzero(
                    np.frombuffer(data, np.uint8)[: len(case.base.files[name])]
                    == np.frombuffer(case.base.files[name], np.uint8)[: len(data)]
                )
                for name, data in case.files.items() if name.endswith(".lmdb")
            )  # fmt: skip


def changed_case(tmp_path, array, value):
    """A store of which the index says something else of its sample 2."""
    base = make_bases(tmp_path)[2]
    data = bytearray(base.files["shard-00000.lmdb"])
    start, size = fuzz_store._index_of(bytes(data))[array]
    item_bytes = (size - 128) // 12
    at = start + 128 + 2 * item_bytes
    data[at : at + item_bytes] = value.to_bytes(item_bytes, "little")
    files = base.files | {"shard-00000.lmdb": bytes(data)}
    return fuzz_store.Case(base, files, is_crafted=False, is_manifest=False)


def test_a_check_that_is_missing_is_found(tmp_path, monkeypatch):
    """Records that leave their file are what a gather would read."""
    case = changed_case(tmp_path, b"offset", 2**40)
    assert read_case(case, tmp_path / "case", random.Random(0)).is_refused
    monkeypatch.setattr(shard_reader, "_check_extents", lambda *arguments: None)
    with pytest.raises(AssertionError):
        read_case(case, tmp_path / "case", random.Random(0))


def test_a_value_that_was_never_written_is_found(tmp_path, monkeypatch):
    """An offset that leads to other bytes of the file: only the checksum tells."""
    case = changed_case(tmp_path, b"offset", 4096 * 3 + 24)
    reading = read_case(case, tmp_path / "case", random.Random(0))
    assert (reading.is_refused, reading.sample_error_count) == (False, 1)
    monkeypatch.setattr(ShardReader, "check_record", lambda self, position: None)
    with pytest.raises(AssertionError):
        read_case(case, tmp_path / "case", random.Random(0))


def test_a_signal_no_end_and_too_much_memory_are_found_and_the_run_goes_on(tmp_path, monkeypatch):
    """Each names its case, and the cases that follow are read all the same."""

    def failing(case, folder, rng):
        kind = rng.randrange(60)
        if kind == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == 1:
            time.sleep(60)
        elif kind == 2:
            bytearray(2**31)
        return fuzz_store.Reading()

    monkeypatch.setattr(fuzz_store, "read_case", failing)
    monkeypatch.setattr(fuzz_store, "CASE_S", 1.0)
    failures = fuzz(seed=3, byte_count=60_000, limit_s=60, folder=tmp_path).failures
    assert any(text.endswith("signal 9") for text in failures)
    assert any(text.endswith("no end in 1.0 s") for text in failures)
    assert any("MemoryError" in text for text in failures)
    assert all(text.startswith("--seed 3 --case ") for text in failures)
