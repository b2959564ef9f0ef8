"""`packer doctor` on a store that lies far away."""

from __future__ import annotations

import json
import re

from scripts.far_mount import Far
from tests.command import run_packer


def checks_of(path, *options):
    """The checks of a path by name, as a program reads them."""
    done = run_packer("doctor", path, "--json", *options)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_what_storage_gives_is_measured_with_few_calls(far, large):
    """The round trip is the server's; an epoch's bytes and calls are held against what is asked."""
    far.set(Far.of_delay(30))
    checks = checks_of(large.far, "--images-per-s", "1000000")
    assert checks["reading"]["figure"] == "by many reads at once, since fuse.far is a network mount"
    found = re.match(r"round trip ([\d.]+) ms .*64 samples at random", checks["storage"]["figure"])
    assert found is not None
    assert float(found[1]) >= 30
    assert checks["random_samples"]["status"] == "pass"  # One by one, which no loader does there.
    assert checks["epoch"]["status"] == "warn"
    assert "64 samples of" in checks["epoch"]["figure"]
    assert "cache_dir=" in checks["epoch"]["remedy"]
    assert far.counts().read_count < 600


def test_a_mount_that_refuses_to_map_is_no_problem(far, large):
    """It is read, as a dataset does; what is cached there is not known."""
    far.set(maps=False)
    checks = checks_of(large.far)
    assert checks["store"]["status"] == "pass"
    assert "need not be" in checks["reading"]["why"]
    assert checks["page_cache"]["status"] != "fail"
