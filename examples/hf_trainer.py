"""The Hugging Face Trainer over a store: it resumes in mid-epoch by itself.

    packer build photos photos.lmdb --size 64 --fit crop
    python examples/hf_trainer.py photos.lmdb --out runs

The Trainer makes loaders of its own from a dataset; ours keep operations, order and engine.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from readers import LMDBDataset, make_loader, ops


class StoreTrainer(Trainer):
    """A Trainer whose batches come from stores."""

    def get_train_dataloader(self) -> Any:
        """Batches of training images, prepared as the Trainer's own are."""
        crops = [ops.RandomResizedCrop(48), ops.RandomFlip()]
        size = self.args.per_device_train_batch_size
        return self.accelerator.prepare(
            make_loader(self.train_dataset, size, train=True, ops=crops)
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Batches of validation images."""
        dataset = eval_dataset or self.eval_dataset
        size = self.args.per_device_eval_batch_size
        return self.accelerator.prepare(
            make_loader(dataset, size, train=False, ops=[ops.CenterCrop(48)])
        )

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Batches are dicts of the store's fields; the model wants floats by its own names."""
        found = model(pixel_values=inputs["image"].float() / 255, labels=inputs["label"])
        return (found.loss, found) if return_outputs else found.loss

    def prediction_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        """Loss, scores and labels of a batch."""
        with torch.no_grad():
            loss, found = self.compute_loss(
                model, self._prepare_inputs(inputs), return_outputs=True
            )
        return loss, found.logits, inputs["label"]


def main() -> None:
    """Train a small vision transformer for two epochs and evaluate it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints")
    options = parser.parse_args()
    fields = ("image", "label")
    train = LMDBDataset(options.store, fields=fields, split="train")
    config = ViTConfig(
        image_size=48, patch_size=16, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, num_labels=len(train.classes),
    )  # fmt: skip
    trainer = StoreTrainer(
        ViTForImageClassification(config),
        TrainingArguments(
            output_dir=str(options.out), num_train_epochs=2, per_device_train_batch_size=16,
            per_device_eval_batch_size=16, remove_unused_columns=False, report_to=[],
            disable_tqdm=True, save_strategy="epoch", use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=train,
        eval_dataset=LMDBDataset(options.store, fields=fields, split="val"),
    )  # fmt: skip
    trainer.train()
    print(f"eval loss: {trainer.evaluate()['eval_loss']:.3f}")


if __name__ == "__main__":
    main()
