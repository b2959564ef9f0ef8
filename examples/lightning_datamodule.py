"""Lightning: a DataModule over a store; Lightning's checkpoints keep the loader's place.

packer build photos photos.lmdb --size 64 --fit crop
python examples/lightning_datamodule.py photos.lmdb
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lightning
import torch

from readers import LMDBDataset, make_loader, ops


class StoreModule(lightning.LightningDataModule):
    """Training and validation loaders of one store."""

    def __init__(self, store: Path, batch_size: int = 16) -> None:
        super().__init__()
        self.store, self.batch_size = store, batch_size

    def setup(self, stage: str) -> None:
        """Open the store; each process opens its shards when it first reads them."""
        fields = ("image", "label")
        self.train = LMDBDataset(self.store, split="train", returns=fields)
        self.val = LMDBDataset(self.store, split="val", returns=fields)

    def train_dataloader(self) -> torch.utils.data.DataLoader[tuple[torch.Tensor, ...]]:
        """Each rank gets its part by itself: neither a sampler nor `set_epoch` is needed."""
        crops = [ops.RandomResizedCrop(48), ops.RandomFlip()]
        return make_loader(self.train, self.batch_size, train=True, ops=crops)

    def val_dataloader(self) -> torch.utils.data.DataLoader[tuple[torch.Tensor, ...]]:
        """Each image once, over all ranks."""
        return make_loader(self.val, self.batch_size, train=False, ops=[ops.CenterCrop(48)])


class Linear(lightning.LightningModule):
    """As small a model as there is."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3 * 48 * 48, classes)

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        """The loss of one batch."""
        return torch.nn.functional.cross_entropy(self.layer(self._flat(batch[0])), batch[1])

    def validation_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        """Count what is right."""
        right = (self.layer(self._flat(batch[0])).argmax(1) == batch[1]).float().mean()
        self.log("right", right, batch_size=len(batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.01)

    @staticmethod
    def _flat(images: torch.Tensor) -> torch.Tensor:
        return images.float().div(255).flatten(1)


def main() -> None:
    """Train for two epochs and validate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    store = parser.parse_args().store
    classes = len(LMDBDataset(store).classes)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="auto", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Linear(classes), datamodule=StoreModule(store))
    print(f"right: {float(trainer.callback_metrics['right']):.3f}")


if __name__ == "__main__":
    main()
