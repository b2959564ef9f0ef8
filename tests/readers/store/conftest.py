"""What tests of files need of the system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

NOBODY = 65534


@pytest.fixture
def as_nobody() -> AbstractContextManager[None]:
    """A context in which permissions count: root, for whom they do not, is somebody else in it."""

    @contextmanager
    def without_rights() -> Iterator[None]:
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(user)

    return without_rights()
