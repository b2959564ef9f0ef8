"""Training on several nodes that goes on in mid-epoch, however often it is stopped.

    sbatch train.sbatch train.py STORE CHECKPOINT              # several nodes of a Slurm cluster
    torchrun --nproc-per-node 4 train.py STORE CHECKPOINT      # one node

At SIGUSR1, which train.sbatch asks for some minutes before the end, and at SIGTERM, all ranks stop
behind the same step. The checkpoint says where the loader was, so the next start goes on with the
next batch, on another number of ranks as well, as long as that divides the samples of a step.
Whatever ends it without notice costs the steps since the last checkpoint, as `--every` has them.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from readers import LMDBDataset, make_loader
from readers.loader.loader import Loader

STOPPED = 75
"""The exit status of a training that is to go on: EX_TEMPFAIL of sysexits.h."""


def main() -> int:
    """Train until the last epoch, or until asked to stop; the exit status."""
    options = parsed()
    is_asked = threading.Event()
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda *_: is_asked.set())

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", dist.get_node_local_rank(fallback_rank=0))
        torch.cuda.set_device(device)

    dataset = LMDBDataset(
        options.store, returns=("image", "label", "key"), cache_dir=options.cache_dir
    )
    loader = make_loader(dataset, options.batch_size, train=True, seed=options.seed)
    model = DistributedDataParallel(small_model(len(dataset.classes)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if options.checkpoint.exists():
        resume(options.checkpoint, model, optimizer, loader, device)

    step = 0
    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        for images, labels, keys in loader:
            logits = model(images.to(device).float() / 255)
            loss = nn.functional.cross_entropy(logits, labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if options.seen is not None:
                position = loader.state_dict()["position"]
                note(options.seen / f"rank-{rank}.txt", f"{epoch} {position} {' '.join(keys)}")
            time.sleep(options.step_seconds)
            is_stopping = is_any(is_asked.is_set(), device)
            if rank == 0 and (is_stopping or step % options.every == 0):
                save(options.checkpoint, model, optimizer, loader)
            if is_stopping:
                dist.barrier()  # Nobody leaves before it is saved.
                dist.destroy_process_group()
                print(f"rank {rank}: stopped in epoch {epoch}, to be gone on with", flush=True)
                return STOPPED
    if rank == 0:
        save(options.checkpoint, model, optimizer, loader)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank}: done", flush=True)
    return 0


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", help="what `packer build` has written")
    parser.add_argument("checkpoint", type=Path, help="file that all nodes see")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank; default: 64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1000, help="steps between checkpoints")
    parser.add_argument("--cache-dir", help="folder on the node's own disk to copy shards to")
    parser.add_argument("--seen", type=Path, help="folder; note there which samples a step had")
    parser.add_argument("--step-seconds", type=float, default=0, help="wait so long in each step")
    return parser.parse_args()


def small_model(class_count: int) -> nn.Module:
    """In place of yours: one layer on a picture of 8 x 8."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(3 * 8 * 8, class_count))


def is_any(is_asked: bool, device: torch.device) -> bool:
    """Whether some rank was asked to stop: they hear of it at different times."""
    asked = torch.tensor(int(is_asked), device=device)
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    return bool(asked)


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: Loader) -> None:
    """Write a checkpoint that is there whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "loader": loader.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def resume(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
    device: torch.device,
) -> None:
    """Go on where a checkpoint was taken."""
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    loader.load_state_dict(state["loader"])


def note(path: Path, line: str) -> None:
    """Write one line, which another node sees once the file is closed."""
    with open(path, "a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
