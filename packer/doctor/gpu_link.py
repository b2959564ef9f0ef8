"""How NVIDIA devices are attached: their PCI link, and which cores are near.

Sources: Documentation/ABI/testing/sysfs-bus-pci (link speed and width, numa_node, class) and
Documentation/admin-guide/mm/numaperf.rst of the kernel.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from packer.doctor.check import Check
from packer.wording import count_text, names_text
from readers.machine import cpu_list

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")

_TRANSFERS = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s")


@dataclass(frozen=True, kw_only=True)
class GpuLink:
    """One device on the PCI bus.

    Attributes:
        address: Its address there.
        width: Lanes that are in use.
        width_max: Lanes that it could use.
        speed: Of a lane now, in 10^9 transfers a second; lower while the device rests.
        speed_max: What it could be.
        node: NUMA node that it hangs on, or None.
    """

    address: str
    width: int
    width_max: int
    speed: float
    speed_max: float
    node: int | None


def gpu_links(root: Path = Path("/")) -> list[GpuLink]:
    """The NVIDIA devices of this machine, whether this job may use them or not."""
    links = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _text(folder / "vendor") != _NVIDIA or _text(folder / "class")[:6] not in (
            _DISPLAY_CLASSES
        ):
            continue
        node = _text(folder / "numa_node")
        links.append(
            GpuLink(
                address=folder.name,
                width=int(_text(folder / "current_link_width") or 0),
                width_max=int(_text(folder / "max_link_width") or 0),
                speed=_speed(folder / "current_link_speed"),
                speed_max=_speed(folder / "max_link_speed"),
                node=int(node) if node.isdecimal() else None,
            )
        )
    return links


def near_cores(node: int, root: Path = Path("/")) -> set[int]:
    """The cores of a NUMA node."""
    return cpu_list(_text(root / f"sys/devices/system/node/node{node}/cpulist"))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _speed(path: Path) -> float:
    found = _TRANSFERS.match(_text(path))
    return float(found[1]) if found else 0.0


def check_gpu_link(links: list[GpuLink], root: Path = Path("/")) -> Check:
    """Lanes of each device, and whether this job's cores are near one."""
    name = "gpu_link"
    figure = "; ".join(
        f"{link.address}: {link.width} of {link.width_max} lanes, up to {link.speed_max:g} GT/s"
        + ("" if link.node is None else f", NUMA node {link.node}")
        for link in links
    )
    narrow = [link.address for link in links if 0 < link.width < link.width_max]
    if narrow:
        return Check(
            name,
            "warn",
            figure,
            f"{names_text(narrow)}: fewer lanes than the device has, so copies to it are slower by "
            "as much.",
            "another slot or node; administrators: lspci -vv shows LnkCap and LnkSta",
        )
    cores = os.sched_getaffinity(0)
    nodes = {link.node for link in links if link.node is not None}
    near = set().union(*(near_cores(node, root) for node in nodes)) if nodes else set()
    if near and not near & cores:
        return Check(
            name,
            "warn",
            f"{figure}; this job's {count_text(len(cores), 'core')} are on other nodes",
            "Each copy to the device crosses from one half of the machine to the other.",
            f"numactl --cpunodebind={min(nodes)} --membind={min(nodes)}, or "
            "sbatch --gpu-bind=closest",
        )
    why = "Copies to a device run at the full width of its link."
    return Check(name, "pass", figure, why)
