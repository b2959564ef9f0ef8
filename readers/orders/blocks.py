"""Block shuffle: an order that is read in large pieces, for stores that are larger than memory.

    samples   0 1 2 3 | 4 5 6 7 | 8 9 ...      blocks of neighbours, cut anew in each epoch
    blocks    5, 0 | 3, 7 | ...                in random order, some of them to a window
    order     21 2 0 23 1 ... | 13 30 ...      all samples of a window, in random order

While a window is worked on only its blocks are read, so each block comes from the disk once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from readers.chance.permutation import derived_words, permuted, permuted_in_groups
from readers.chance.streams import Purpose


def block_shuffled(
    positions: NDArray[np.int64],
    count: int,
    *,
    block_size: int,
    window: int,
    lanes: int,
    seed: int,
    epoch: int,
) -> NDArray[np.int64]:
    """What stands at some positions of a block shuffle of [0, count).

    Args:
        positions: In [0, count).
        count: How many samples.
        block_size: Neighbours that stay together.
        window: Blocks that are mixed with each other. What does not fill a window at the end of
            the epoch joins the last one.
        lanes: Windows that are open at a time, each giving every so many-th sample. With as many
            as there are ranks, or a multiple, each rank reads blocks that no other rank does.
        seed: In [0, 2**64).
        epoch: At least 0.
    """
    # Where the first block begins differs from epoch to epoch, and so does who is whose neighbour.
    rotation = int(derived_words(seed, epoch, Purpose.BLOCK_ROTATION, 1)[0] % count)
    block_count = count // block_size  # A short one at the end comes last, and has no number.
    lane_count = window * block_size
    group_count = lane_count * lanes
    groups = block_count // (window * lanes)
    if groups and groups * group_count < count:
        groups -= 1
    group, within = np.divmod(positions, group_count)
    is_last = group >= groups
    lane = np.where(is_last, 0, within % lanes)
    place = np.where(is_last, positions - groups * group_count, within // lanes)
    number = np.where(is_last, groups * lanes, group * lanes + lane)
    sizes = np.where(is_last, count - groups * group_count, lane_count)
    mixed = permuted_in_groups(
        place, sizes, number, seed=seed, epoch=epoch, purpose=Purpose.BLOCK_WINDOWS
    )
    slot = number * window + mixed // block_size
    is_whole = slot < block_count
    blocks = np.full(len(slot), block_count)
    blocks[is_whole] = permuted(
        slot[is_whole], block_count, seed=seed, epoch=epoch, purpose=Purpose.BLOCKS
    )
    result: NDArray[np.int64] = (blocks * block_size + mixed % block_size + rotation) % count
    return result
