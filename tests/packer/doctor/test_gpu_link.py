"""Links of devices are read as the kernel tells them, and a narrow or far one is named."""

from __future__ import annotations

import os

import pytest

from packer.doctor.gpu_link import check_gpu_link, gpu_links


@pytest.fixture
def device(tmp_path):
    """Draws a device of the PCI bus in a tree of its own."""

    def draw(address="0000:17:00.0", vendor="0x10de", kind="0x030200", width=16, node=0, cores=""):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        texts = {
            **{"vendor": vendor, "class": kind, "numa_node": str(node)},
            **{"current_link_width": str(width), "max_link_width": "16"},
            **{"current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"},
        }
        for name, text in texts.items():
            (folder / name).write_text(f"{text}\n")
        if node >= 0:
            of_node = tmp_path / f"sys/devices/system/node/node{node}"
            of_node.mkdir(parents=True, exist_ok=True)
            (of_node / "cpulist").write_text(f"{cores}\n")
        return tmp_path

    return draw


HERE = ",".join(str(core) for core in os.sched_getaffinity(0))


def test_devices_of_others_are_none_of_ours(device):
    """Another vendor's, and an NVIDIA sound device, are left aside."""
    device("0000:00:02.0", vendor="0x8086", kind="0x030000")
    assert gpu_links(device("0000:17:00.1", kind="0x040300")) == []


@pytest.mark.parametrize(
    ("drawn", "status", "said"),
    [
        ({"cores": HERE}, "pass", "16 of 16 lanes, up to 32 GT/s, NUMA node 0"),
        ({"cores": HERE, "width": 4}, "warn", "4 of 16 lanes"),
        ({"cores": "4000-4007", "node": 1}, "warn", "on other nodes"),
        ({"node": -1}, "pass", "16 of 16 lanes, up to 32 GT/s"),
    ],
)
def test_a_narrow_or_far_link_is_named(device, drawn, status, said):
    """Fewer lanes than it has, or none of the job's cores on its node."""
    root = device(**drawn)
    check = check_gpu_link(gpu_links(root), root)
    assert check.status == status
    assert said in check.figure
