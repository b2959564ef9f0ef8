"""What holds for every test: reproducible random tests, and GPU tests only beside a GPU."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples in every run, so that a failure is there again when somebody looks; more and
# other ones when asked for: pytest --hypothesis-profile=search. No deadline: cores are shared.
settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where there is no CUDA device."""
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch  # Takes a second; a run without GPU tests need not wait for it.

    if not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
