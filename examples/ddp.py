"""DistributedDataParallel under torchrun: exact evaluation, and a start that goes on in mid-epoch.

    packer build photos photos.lmdb --size 72 --fit crop
    torchrun --standalone --nproc-per-node 2 examples/ddp.py photos.lmdb checkpoint.pt

The loaders ask torch.distributed which rank they are. In training all ranks get equally many
batches; in evaluation each sample comes to one rank, once, so sums over the ranks are exact: no
DistributedSampler, which gives some samples twice. Kill it and start it again, with as many ranks
or another number that divides the samples of a step: it goes on behind the last checkpoint. Over
several nodes, with requeue: cluster/train.py.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from readers import LMDBDataset, make_loader
from readers.loader.loader import Loader


def save(path: Path, step: int, loader: Loader, **parts: nn.Module | torch.optim.Optimizer) -> None:
    """Write a checkpoint, whole or not at all."""
    state = {name: part.state_dict() for name, part in parts.items()}
    partial = path.with_suffix(".partial")
    torch.save({**state, "step": step, "loader": loader.state_dict()}, partial)
    os.replace(partial, path)


@torch.no_grad()
def evaluate(model: nn.Module, loader: Loader, device: torch.device) -> tuple[int, int]:
    """How many of all samples are right, and how many there are; on every rank the same."""
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels in loader:  # One batch more or less than on other ranks: no gradients here.
        scores = model(images.to(device).float() / 255)
        counts[0] += (scores.argmax(1) == labels.to(device)).sum()
        counts[1] += len(labels)
    dist.all_reduce(counts)
    right, count = counts.tolist()
    return right, count


def main() -> None:
    """Train, evaluate after each epoch, save every so many steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8, help="of each rank")
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--seen", type=Path, help="folder; note there which samples a step has")
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", dist.get_node_local_rank(fallback_rank=0))
        torch.cuda.set_device(device)

    names = ("image", "label")
    dataset = LMDBDataset(options.store, split="train", returns=(*names, "key"))
    loader = make_loader(dataset, options.batch_size, train=True)
    held_out = LMDBDataset(options.store, split="val", returns=names)
    validation = make_loader(held_out, options.batch_size, train=False)

    layers = nn.Sequential(
        nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.LazyLinear(len(dataset.classes))
    )
    layers(torch.zeros(1, 3, 72, 72))  # LazyLinear learns its size.
    model = DistributedDataParallel(layers.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    step = 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step = state["step"]

    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        for images, labels, keys in loader:
            step += 1
            if options.seen is not None:
                with open(options.seen / f"rank-{dist.get_rank()}.txt", "a") as file:
                    file.write(f"{epoch} {step} {' '.join(keys)}\n")
            loss = nn.functional.cross_entropy(
                model(images.to(device).float() / 255), labels.to(device)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if dist.get_rank() == 0 and step % options.every == 0:
                save(options.checkpoint, step, loader, model=model, optimizer=optimizer)
        right, count = evaluate(model.module, validation, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {right} of {count} right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
