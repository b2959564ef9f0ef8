"""A Lightning Trainer over our loaders.

with_lightning.py STORE FOLDER STRATEGY DEVICES WORKERS PHASE...
"""

from __future__ import annotations

import json
import sys

import lightning.pytorch as lightning
import torch
from common import FOLDER, loader, seen
from lightning.pytorch.callbacks import ModelCheckpoint


class Module(lightning.LightningModule):
    """Keeps what it was given, and writes it down by rank."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.layer = torch.nn.Linear(1, 1)
        self.trained, self.validated, self.tested = [], [], []

    def training_step(self, batch, _number):
        self.trained.append(seen(batch))
        return self.layer(batch[0].float()[:, None]).mean() * 0

    def validation_step(self, batch, _number):
        self.validated.append(seen(batch))

    def test_step(self, batch, _number):  # noqa: PT019
        self.tested.append(seen(batch))

    def predict_step(self, batch, _number):
        self.tested.append(seen(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def teardown(self, stage):
        facts = {"trained": self.trained, "validated": self.validated, "tested": self.tested}
        (FOLDER / f"{self.name}-{self.global_rank}.json").write_text(json.dumps(facts))


class Made(Module):
    """Its loader is made in a hook, where Lightning writes down how."""

    def train_dataloader(self):
        return loader(workers=0)


def trainer(**settings):
    return lightning.Trainer(
        accelerator="cpu",
        devices=int(sys.argv[4]),
        strategy=sys.argv[3],
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **{"enable_checkpointing": False, **settings},
    )


def main():
    phases = sys.argv[6:]
    evaluated = {"train": False, "workers": 0}
    if "fit" in phases:
        saving = ModelCheckpoint(FOLDER, "{step}", every_n_train_steps=3, save_top_k=-1)
        trainer(enable_checkpointing=True, callbacks=[saving]).fit(
            Module("whole"), loader(workers=int(sys.argv[5])), loader(**evaluated)
        )
    if "resume" in phases:  # From the third step of the second epoch on.
        checkpoint = FOLDER / f"step={50 // (4 * int(sys.argv[4])) + 3}.ckpt"
        trainer().fit(Made("resumed"), ckpt_path=checkpoint)
    if "test" in phases:
        trainer().test(Module("tested"), loader(**evaluated, pad=True), verbose=False)
    if "predict" in phases:
        padded = loader(**evaluated, pad=True)
        trainer().predict(Module("predicted"), padded, return_predictions=False)


if __name__ == "__main__":
    main()
