"""Which of several processes this is."""

from __future__ import annotations

import torch.distributed


def check_ranks(rank: int | None, world_size: int | None) -> None:
    """Refuse a rank that there is not.

    Raises:
        ValueError: One is given without the other, or rank is not in [0, world_size).
    """
    if (rank is None) != (world_size is None):
        raise ValueError(
            f"rank and world_size go together; got rank={rank!r}, world_size={world_size!r}"
        )
    if rank is not None and world_size is not None and not 0 <= rank < world_size:
        raise ValueError(f"rank must be in [0, {world_size}); got {rank!r}")


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: as given, or of the process group, or those of the only process."""
    if rank is not None and world_size is not None:
        return rank, world_size
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
