"""Shapes on images: affines, outlines, masks as runs; pure arithmetic and their bytes.

Called by codecs, by the build and by operations on images.
"""
