"""Pickles of strangers: data is read, and nothing runs."""

from __future__ import annotations

import builtins
import os
import pickle
import pickletools
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.files.safe_pickle import UnsafePickleError, load_pickle

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Calls:
    """Pickles as a call of a function with arguments."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


@given(PLAIN, st.integers(2, 5))
def test_plain_data_comes_back(value, protocol):
    """Dicts, lists, texts, bytes and numbers are what they were, in every protocol in use."""
    assert load_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["uint8", ">i4", "int64", "float32", "bool"])
def test_arrays_come_back(protocol, dtype):
    """Whatever the type, the order in memory and the protocol."""
    for array in (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))):
        loaded = load_pickle(pickle.dumps({"data": array.astype(dtype)}, protocol))["data"]
        assert loaded.dtype == np.dtype(dtype)
        assert np.array_equal(loaded, array.astype(dtype))


def test_arrays_of_arrays_and_numpy_numbers_come_back():
    """Images of several sizes are an array of objects; labels may be NumPy's numbers."""
    data = np.empty(2, object)
    data[:] = [np.arange(3, dtype=np.uint8), np.arange(5, dtype=np.uint8)]
    loaded = load_pickle(pickle.dumps({"data": data, "label": np.int64(7)}))
    assert loaded["label"] == 7
    assert [row.tolist() for row in loaded["data"]] == [[0, 1, 2], [0, 1, 2, 3, 4]]


def test_a_pickle_of_python_2_is_read():
    """CIFAR is published as protocol 2 of Python 2: its texts come as bytes."""
    data = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
        b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x02\x85cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x02\x07\xfftbu."
    )
    loaded = load_pickle(data)
    assert loaded[b"data"].tolist() == [7, 255]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (os.system, ("touch {0}",)),
        (builtins.eval, ("open({0!r}, 'w')",)),
        (builtins.exec, ("open({0!r}, 'w')",)),
        (builtins.open, ("{0}", "w")),
        (getattr, ("text", "upper")),
        (np.fromfile, ("/etc/passwd",)),
        (np.load, ("{0}",)),
        (np.zeros, (10,)),
        (bytearray, (10,)),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_no_function_is_called(tmp_path, function, arguments, protocol):
    """The name that is asked for stands in the message, and its effect does not come."""
    target = tmp_path / "done"
    arguments = tuple(a.format(str(target)) if isinstance(a, str) else a for a in arguments)
    data = pickle.dumps({"data": Calls(function, *arguments)}, protocol)
    with pytest.raises(UnsafePickleError, match=rf"asks for .*\.{function.__name__}, which data"):
        load_pickle(data)
    assert not target.exists()


def test_nothing_of_numpy_is_reached_through_what_is_allowed():
    """The names that arrays need give recorders: attributes, state and odd calls do not work."""
    for data, message in (
        (b"cnumpy\ndtype\n(S'O'\ntR.", "a call of dtype"),
        (b"cnumpy\nndarray\n((I9\nI9\ntS'u1'\ntR.", "a call of ndarray"),
        (b"cnumpy\ndtype\n}S'x'\nI1\nsb.", "changes dtype"),
        (b"cnumpy\ndtype\n.", "holds dtype itself"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.", "asks for numpy.ndarray.dumps"),
        (b"c__builtin__\nbytes\n(I9999999999999\ntR.", "a call of bytes"),
        (b"c_codecs\nencode\n(S'a'\nS'rot13'\ntR.", "a call of encode"),
    ):
        with pytest.raises(UnsafePickleError, match=message):
            load_pickle(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "asks for os.system"),
        (b"(S'true'\nios\nsystem\n.", "instruction INST"),
        (b"\x80\x02cos\nsystem\n)\x81.", "instruction NEWOBJ"),
        (b"Pid\n.", "instruction PERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"", "damaged pickle"),
        (b"\x80\x04", "damaged pickle"),
        (b"\x80\xff}.", "damaged pickle"),
        (b"}]NNs.", "damaged pickle"),
        (b"h\x07.", "damaged pickle"),
    ],
)
def test_other_instructions_and_damage_are_named(data, message):
    """Only what builds data is let through, and a broken pickle is an error, not a crash."""
    with pytest.raises(UnsafePickleError, match=message):
        load_pickle(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",  # BINBYTES8
        b"\x80\x02B" + struct.pack("<I", 2**32 - 1) + b"x.",  # BINBYTES
        b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",  # LONG4
        b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b".",  # LONG_BINPUT
        b"Np4294967295\n.",  # PUT
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",  # FRAME
        b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"x.",  # BYTEARRAY8
    ],
)
def test_huge_sizes_take_no_memory(data):
    """A size is looked at before anything of that size is asked for."""
    with pytest.raises(UnsafePickleError):
        load_pickle(data)


@pytest.mark.parametrize("shape", ["(I1099511627776\nt", "(I-1\nt", "(I2\nI2\nt", "S'x'\n"])
def test_an_array_is_only_as_large_as_its_bytes(shape):
    """A shape that its bytes do not fill is refused before memory is taken for it."""
    data = (
        "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        f"(I1\n{shape}cnumpy\ndtype\n(S'u1'\nI0\nI1\ntRI00\nS'ab'\ntb."
    )
    with pytest.raises(UnsafePickleError, match="an array of shape"):
        load_pickle(data.encode())


def test_structured_and_text_arrays_are_refused():
    """Types that may hold anything at any place are not needed for pixels and labels."""
    for array in (np.zeros(2, [("a", "u1"), ("b", object)]), np.array(["a"]), np.zeros(1, "c8")):
        with pytest.raises(UnsafePickleError):
            load_pickle(pickle.dumps(array))


def test_data_that_grows_or_turns_in_circles_is_refused():
    """Lists of lists of the same lists are not unfolded, and a list in itself has an end."""
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(UnsafePickleError, match="levels deep"):
        load_pickle(pickle.dumps(circle))
    laughs: Any = ["ha"]
    for _ in range(18):
        laughs = [laughs] * 10
    loaded = load_pickle(pickle.dumps(laughs))
    assert loaded[0] is loaded[9]


def test_every_instruction_that_is_let_through_exists():
    """A misspelled name would shut out good files."""
    from packer.files.safe_pickle import _INSTRUCTIONS

    assert {name.decode() for name in _INSTRUCTIONS} <= {o.name for o in pickletools.opcodes}
