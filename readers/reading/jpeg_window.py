"""The part of a JPEG that a crop needs, and no more.

A whole decode of a 500 x 375 photo takes 0.80 ms; the rows above a window need no transform, those
below nothing at all, and the columns beside it no transform either: 0.57 ms on average over random
crops. OpenCV and Pillow have no call for it, but Pillow's wheel brings libjpeg-turbo as a library
of its own, whose `jpeg_crop_scanline` and `jpeg_skip_scanlines` do it. It is used by ctypes, where
it is there and gives, in a trial, the same pixels as OpenCV; else whole images are decoded.

NOTE [ errors of libjpeg ]: libjpeg leaves a call on a fatal error by a jump that ctypes cannot
make; going on is not allowed. So this is used in loader workers alone, and a fatal error ends the
worker: the main process names the sample. It takes a record that passes its checksum and yet is no
JPEG, which no build of ours stores.

Source: libjpeg-turbo's libjpeg.txt and jpeglib.h (ABI 6.2, the one that Pillow's wheels hold).
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.pictures.reduction import REDUCTIONS, reduced_side

Pixels = NDArray[np.uint8]

_LIBRARY_VERSION = 62
_JCS_RGB, _JCS_YCBCR = 2, 3
_JERR_BAD_STRUCT_SIZE = 21

_MARGIN_PIXELS = 4
"""Smooth upsampling of colour looks at neighbours, which must have been decoded too."""

EXIT_STATUS = 70
"""With which a worker ends when libjpeg cannot go on: EX_SOFTWARE of sysexits(3)."""


class _ErrorManager(ctypes.Structure):
    _fields_ = (
        ("error_exit", ctypes.c_void_p),
        ("emit_message", ctypes.c_void_p),
        ("output_message", ctypes.c_void_p),
        ("format_message", ctypes.c_void_p),
        ("reset_error_mgr", ctypes.c_void_p),
        ("msg_code", ctypes.c_int),
        ("msg_parm", ctypes.c_int * 20),
        ("trace_level", ctypes.c_int),
        ("num_warnings", ctypes.c_long),
        ("jpeg_message_table", ctypes.c_void_p),
        ("last_jpeg_message", ctypes.c_int),
        ("addon_message_table", ctypes.c_void_p),
        ("first_addon_message", ctypes.c_int),
        ("last_addon_message", ctypes.c_int),
        ("spare", ctypes.c_char * 64),
    )


class _Decompressor(ctypes.Structure):
    """The head of jpeg_decompress_struct, with room for the rest."""

    _fields_ = (
        ("err", ctypes.c_void_p),
        ("mem", ctypes.c_void_p),
        ("progress", ctypes.c_void_p),
        ("client_data", ctypes.c_void_p),
        ("is_decompressor", ctypes.c_int),
        ("global_state", ctypes.c_int),
        ("src", ctypes.c_void_p),
        ("image_width", ctypes.c_uint),
        ("image_height", ctypes.c_uint),
        ("num_components", ctypes.c_int),
        ("jpeg_color_space", ctypes.c_int),
        ("out_color_space", ctypes.c_int),
        ("scale_num", ctypes.c_uint),
        ("scale_denom", ctypes.c_uint),
        ("output_gamma", ctypes.c_double),
        ("buffered_image", ctypes.c_int),
        ("raw_data_out", ctypes.c_int),
        ("dct_method", ctypes.c_int),
        ("do_fancy_upsampling", ctypes.c_int),
        ("do_block_smoothing", ctypes.c_int),
        ("quantize_colors", ctypes.c_int),
        ("dither_mode", ctypes.c_int),
        ("two_pass_quantize", ctypes.c_int),
        ("desired_number_of_colors", ctypes.c_int),
        ("enable_1pass_quant", ctypes.c_int),
        ("enable_external_quant", ctypes.c_int),
        ("enable_2pass_quant", ctypes.c_int),
        ("output_width", ctypes.c_uint),
        ("output_height", ctypes.c_uint),
        ("spare", ctypes.c_char * 1024),
    )


_ErrorExit = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Decompressor))


class WindowDecoder:
    """Decodes windows of JPEGs. One thread at a time may use it.

    Made by `load`. See NOTE [ errors of libjpeg ] for where it may be used.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.jpeg_std_error.restype = ctypes.c_void_p
        self._error = _ErrorManager()
        library.jpeg_std_error(ctypes.byref(self._error))
        self._trial_codes: list[int] | None = []
        self._on_error = _ErrorExit(self._fail)  # Kept: the library holds its address alone.
        self._error.error_exit = ctypes.cast(self._on_error, ctypes.c_void_p)
        self._struct_bytes = self._find_struct_bytes()
        self._buffer = np.empty(0, np.uint8)

    def _fail(self, decompressor: Any) -> None:
        """A fatal error: libjpeg must not be returned to, but for the trial below."""
        if self._trial_codes is not None:
            self._trial_codes.append(self._error.msg_code)
            return
        sys.stderr.write(f"libjpeg: fatal error {self._error.msg_code}\n")
        sys.stderr.flush()
        os._exit(EXIT_STATUS)

    def _find_struct_bytes(self) -> int:
        """How large the library thinks its struct is: it says so when it is given another."""
        decompressor = _Decompressor(err=ctypes.addressof(self._error))
        # All that the library does after this complaint, and after the one before it about the
        # version, is to clear and fill in the struct.
        self._create(decompressor, 1)
        size = self._error.msg_parm[0]
        self._library.jpeg_destroy_decompress(ctypes.byref(decompressor))
        codes, self._trial_codes = self._trial_codes, None
        if codes != [_JERR_BAD_STRUCT_SIZE]:
            raise OSError(f"libjpeg is none of ABI {_LIBRARY_VERSION}: errors {codes}")
        if not 512 <= size <= ctypes.sizeof(_Decompressor):
            raise OSError(f"libjpeg has a struct of {size} bytes")
        return int(size)

    def _create(self, decompressor: _Decompressor, struct_bytes: int) -> None:
        self._library.jpeg_CreateDecompress(
            ctypes.byref(decompressor), _LIBRARY_VERSION, ctypes.c_size_t(struct_bytes)
        )

    def decode(
        self,
        data: bytes,
        size: tuple[int, int],
        window: tuple[int, ...],
        reduction: int = 1,
    ) -> Pixels | None:
        """The pixels of a window.

        Args:
            data: A whole JPEG, known to decode: see NOTE [ errors of libjpeg ].
            size: (height, width) that it is known to have.
            window: (top, left, height, width), within it; of the reduced picture, where it is
                reduced.
            reduction: 1, 2, 4 or 8: what both sides are divided by.

        Returns:
            (height, width, 3) uint8, RGB: a view that is overwritten by the next call. None when
            the image is not of three colours, or not of that size.
        """
        top, left, height, width = window
        decompressor = _Decompressor(err=ctypes.addressof(self._error))
        pointer = ctypes.byref(decompressor)
        self._create(decompressor, self._struct_bytes)
        try:
            self._library.jpeg_mem_src(pointer, data, ctypes.c_ulong(len(data)))
            self._library.jpeg_read_header(pointer, 1)
            found = decompressor.image_height, decompressor.image_width
            if found != size or decompressor.jpeg_color_space != _JCS_YCBCR:
                return None
            decompressor.out_color_space = _JCS_RGB
            decompressor.scale_num, decompressor.scale_denom = 1, reduction
            self._library.jpeg_start_decompress(pointer)
            # The library moves the left edge to the border of a block.
            first = max(0, left - _MARGIN_PIXELS)
            start = ctypes.c_uint(first)
            limit = reduced_side(size[1], reduction)
            wide = ctypes.c_uint(min(limit, left + width + _MARGIN_PIXELS) - first)
            self._library.jpeg_crop_scanline(pointer, ctypes.byref(start), ctypes.byref(wide))
            if top:
                self._library.jpeg_skip_scanlines(pointer, top)
            pixels = self._read(pointer, height, decompressor.output_width)
            self._library.jpeg_abort_decompress(pointer)
        finally:
            self._library.jpeg_destroy_decompress(pointer)
        skipped = left - start.value
        return pixels[:, skipped : skipped + width]

    def _read(self, pointer: Any, height: int, width: int) -> Pixels:
        row_bytes = width * 3
        if len(self._buffer) < height * row_bytes:
            self._buffer = np.empty(height * row_bytes, np.uint8)
        address = self._buffer.ctypes.data
        addresses = range(address, address + height * row_bytes, row_bytes)
        rows = (ctypes.c_void_p * height)(*addresses)
        done = 0
        while done < height:
            done += self._library.jpeg_read_scanlines(
                pointer, ctypes.byref(rows, done * ctypes.sizeof(ctypes.c_void_p)), height - done
            )
        return self._buffer[: height * row_bytes].reshape(height, width, 3)


def load() -> WindowDecoder | None:
    """A decoder, where Pillow's libjpeg is there and agrees with OpenCV; else None."""
    import PIL

    folder = Path(PIL.__file__).parent
    for place in (folder.parent / "pillow.libs", folder / ".libs", folder / ".dylibs"):
        for path in sorted(place.glob("libjpeg*.so*")):
            try:
                decoder = WindowDecoder(ctypes.CDLL(str(path)))
            except (OSError, AttributeError):
                continue
            if _agrees(decoder):
                return decoder
    return None


def _agrees(decoder: WindowDecoder) -> bool:
    """Whether windows of a small picture are the same as OpenCV's, for the usual subsamplings."""
    import cv2

    from readers.store.pictures.decode import decode_image
    from readers.store.pictures.image_header import read_header

    noise = np.random.default_rng(0).integers(0, 256, (75, 90, 3), dtype=np.uint8)
    smooth = cv2.resize(cv2.resize(noise, (12, 10)), (90, 75))
    for sampling in (
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    ):
        options = [cv2.IMWRITE_JPEG_QUALITY, 90, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
        data = cv2.imencode(".jpg", smooth, options)[1].tobytes()
        header = read_header(data, pixels_max=smooth.size)
        for reduction in (1, *REDUCTIONS):
            whole = decode_image(data, "rgb", header, reduction=reduction)
            for window in ((0, 0, 75, 90), (13, 21, 40, 33), (70, 80, 5, 10)):
                top, left = window[0] // reduction, window[1] // reduction
                height, width = (max(side // reduction, 1) for side in window[2:])
                found = decoder.decode(data, (75, 90), (top, left, height, width), reduction)
                expected = whole[top : top + height, left : left + width]
                if found is None or not np.array_equal(found, expected):
                    return False
    return True
