"""Pickled dicts, lists and NumPy arrays of a stranger, without running anything that is in them.

A pickle is a program. Three fences keep it from doing anything but building data:

1. Only the instructions that building data needs are let through, and no size in them may be
   larger than the file: the interpreter would take the memory first, then look for the bytes.
2. A name it asks for must be one of `_ALLOWED`, and it is not given what is called so, but a
   recorder that notes down the call.
3. Arrays are then made here from what was noted, with types and sizes checked.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

_INSTRUCTIONS = frozenset(
    b"PROTO FRAME STOP MARK POP POP_MARK DUP "
    b"NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT "
    b"STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    b"BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 "
    b"EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS "
    b"EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    b"PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    b"GLOBAL STACK_GLOBAL REDUCE BUILD".split()
)
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))

_RECONSTRUCT, _SCALAR, _FROMBUFFER = "_reconstruct", "scalar", "_frombuffer"
_ALLOWED = {
    ("_codecs", "encode"): "encode",
    ("__builtin__", "bytes"): "bytes",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    **{
        (f"numpy.{core}.multiarray", function): function
        for core in ("core", "_core")
        for function in (_RECONSTRUCT, _SCALAR)
    },
    **{(f"numpy.{core}.numeric", _FROMBUFFER): _FROMBUFFER for core in ("core", "_core")},
}

_TYPES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
_OBJECT_TYPES = frozenset(("O", "O4", "O8"))
_DEPTH_MAX = 20


class UnsafePickleError(ValueError):
    """The pickle is damaged, or asks for something that data does not need. The text says what."""


def load_pickle(data: bytes) -> Any:
    """The dicts, lists, tuples, texts, bytes, numbers and arrays in a pickle.

    Texts of Python 2 come as bytes.

    Args:
        data: The whole file.

    Raises:
        UnsafePickleError: It is damaged, or holds anything else.
    """
    _check_instructions(data)
    try:
        built = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        return _Converter().plain(built, 0)
    except UnsafePickleError:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        raise UnsafePickleError(f"damaged pickle: {error}") from error


def _check_instructions(data: bytes) -> None:
    """Let through what builds data, before anything of it is done."""
    try:
        for instruction, argument, position in pickletools.genops(io.BytesIO(data)):
            if instruction.name.encode() not in _INSTRUCTIONS:
                raise UnsafePickleError(
                    f"instruction {instruction.name} at byte {position}, which data does not need"
                )
            if instruction.name in _PUTS and not 0 <= (argument or 0) <= len(data):
                raise UnsafePickleError(f"{instruction.name} {argument} at byte {position}")
    except UnsafePickleError:
        raise
    except (ValueError, OverflowError, MemoryError, LookupError) as error:
        raise UnsafePickleError(f"damaged pickle: {error}") from error


class _Recorder:
    """Stands in for a function or class of NumPy: notes down calls, and does nothing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> _Made:
        return _Made(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        raise UnsafePickleError(f"changes {self.name}")


class _Made:
    """What a recorder was called for, with the state that it was given next."""

    __slots__ = ("arguments", "function", "state")

    def __init__(self, function: str, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Gives recorders for the few names that arrays need."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = _ALLOWED.get((module, name))
        if allowed is None:
            raise UnsafePickleError(f"asks for {module}.{name}, which data does not need")
        return _Recorder(allowed)


class _Converter:
    """Makes plain values of what was built; each object once, however often it is held."""

    def __init__(self) -> None:
        # The object is kept with its value, since ids of dead objects are given out again.
        self._done: dict[int, tuple[Any, Any]] = {}

    def plain(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value
        if isinstance(value, bytearray):
            return bytes(value)
        if depth > _DEPTH_MAX:
            raise UnsafePickleError(f"data that is more than {_DEPTH_MAX} levels deep")
        if id(value) not in self._done:
            self._done[id(value)] = (value, self._converted(value, depth + 1))
        return self._done[id(value)][1]

    def _converted(self, value: Any, depth: int) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([self.plain(entry, depth) for entry in value])
        if isinstance(value, dict):
            return {self._key(key, depth): self.plain(entry, depth) for key, entry in value.items()}
        if not isinstance(value, _Made):
            raise UnsafePickleError(f"holds {getattr(value, 'name', type(value).__name__)} itself")
        arguments = value.arguments
        if value.function == "encode" and len(arguments) == 2:
            text, encoding = arguments
            if isinstance(text, str) and encoding in ("latin1", b"latin1"):
                try:
                    return text.encode("latin1")
                except UnicodeEncodeError as error:
                    raise UnsafePickleError(f"damaged bytes: {error}") from error
        if value.function == "bytes" and not arguments:
            return b""  # How Python 3 writes no bytes for Python 2.
        state = value.state
        if value.function == _RECONSTRUCT and isinstance(state, tuple) and len(state) == 5:
            # (version, shape, dtype, is in Fortran order, bytes or list)
            _, shape, dtype, is_fortran, data = state
            return self._array(shape, dtype, "F" if is_fortran else "C", data, depth)
        if value.function == _FROMBUFFER and len(arguments) == 4:
            data, dtype, shape, order = arguments
            return self._array(shape, dtype, order, data, depth)
        if value.function == _SCALAR and len(arguments) == 2:
            return self._array((1,), arguments[0], "C", arguments[1], depth)[0].item()
        raise UnsafePickleError(f"a call of {value.function} that is not NumPy's own")

    def _key(self, key: Any, depth: int) -> Any:
        if isinstance(key, _Made):
            key = self.plain(key, depth)
        if isinstance(key, (str, bytes, int)):
            return key
        raise UnsafePickleError(f"a key of type {type(key).__name__}")

    def _array(self, shape: Any, dtype: Any, order: Any, data: Any, depth: int) -> NDArray[Any]:
        code, byte_order = _dtype(dtype)
        if (
            not isinstance(shape, tuple)
            or len(shape) > 8
            or not all(isinstance(side, int) and 0 <= side < 2**40 for side in shape)
            or order not in ("C", "F", b"C", b"F")
        ):
            raise UnsafePickleError(f"an array of shape {shape!r:.100}")
        order = "F" if order in ("F", b"F") else "C"
        count = math.prod(shape)
        if code in _OBJECT_TYPES:
            if not isinstance(data, list) or len(data) != count:
                raise UnsafePickleError(f"an array of {count:,} objects that are not there")
            objects = np.empty(count, object)
            for position, entry in enumerate(data):
                objects[position] = self.plain(entry, depth)
            return objects.reshape(shape, order=order)
        data = self.plain(data, depth)
        item_type = np.dtype(byte_order + code)
        if not isinstance(data, bytes) or len(data) != count * item_type.itemsize:
            found = f"{len(data):,} bytes" if isinstance(data, bytes) else type(data).__name__
            raise UnsafePickleError(f"an array of shape {shape} of {code} in {found}")
        return np.frombuffer(data, item_type).reshape(shape, order=order)


def _dtype(made: Any) -> tuple[str, str]:
    """(type and size, byte order) of a dtype that was asked for."""
    if isinstance(made, _Made) and made.function == "dtype" and made.arguments:
        code = made.arguments[0]
        code = code.decode("latin1") if isinstance(code, bytes) else code
        state = made.state if isinstance(made.state, tuple) and len(made.state) > 1 else (3, "|")
        byte_order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if isinstance(code, str) and byte_order in ("<", ">", "|", "="):
            code = code.lstrip("<>|=")
            if code in _TYPES or code in _OBJECT_TYPES:
                return code, byte_order
        raise UnsafePickleError(f"an array of type {code!r:.40}; expected numbers")
    raise UnsafePickleError("an array without a type")
