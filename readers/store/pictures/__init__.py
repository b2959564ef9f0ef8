"""Picture files: what they are, what they say of themselves, and their pixels.

In: the bytes of a file. Out: headers, arrays, or an error that names what is wrong.
Called by the build, and by readers for images that are stored as files.
"""
