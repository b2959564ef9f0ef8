"""transformers.Trainer over our loaders trains, evaluates, and goes on in a later epoch."""

from __future__ import annotations

import os

import torch
from common import FOLDER, OPS, STORE, answer, dataset, seen
from transformers import Trainer, TrainingArguments

from readers import LMDBDataset, make_loader


class Model(torch.nn.Module):
    """Keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.trained, self.evaluated = [], []

    def forward(self, number=None, image=None):
        found = seen((number, image))
        (self.trained if self.training else self.evaluated).append(found)
        scores = self.layer(number.float()[:, None])
        return {"loss": scores.mean() * 0, "scores": scores.detach(), "number": number}


class Prepared(Trainer):
    """Has accelerate prepare our loaders."""

    def ours(self, **settings):
        source = LMDBDataset(STORE, fields=("number", "image"))
        return make_loader(source, 4, **{"ops": OPS, "seed": 3, "workers": 0, **settings})

    def get_train_dataloader(self):
        return self.accelerator.prepare(self.ours(train=True))

    def get_eval_dataloader(self, eval_dataset=None):
        return self.accelerator.prepare(self.ours(train=False))


class Plain(Prepared):
    """Takes our loader as it is."""

    def get_train_dataloader(self):
        return self.ours(train=True)


def trainer_of(kind, folder, model):
    return kind(
        model=model,
        args=TrainingArguments(
            output_dir=str(FOLDER / folder),
            num_train_epochs=3,
            save_strategy="steps",
            save_steps=SAVED,
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
            label_names=["number"],
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
        ),
        train_dataset=dataset(),
        eval_dataset=dataset(),
    )


# The second step of the second epoch.
SAVED = 50 // (4 * int(os.environ.get("WORLD_SIZE", "1"))) + 2

facts = {}
for name, kind in (("prepared", Prepared), ("plain", Plain)):
    model = Model()
    trainer = trainer_of(kind, name, model)
    trainer.train()
    facts[name] = model.trained
    found = trainer.evaluation_loop(
        trainer.get_eval_dataloader(), "evaluation", prediction_loss_only=False
    )
    facts[f"{name}, evaluated"] = found.label_ids.tolist()
    model = Model()
    resumed = trainer_of(kind, f"{name} again", model)
    resumed.train(resume_from_checkpoint=str(FOLDER / name / f"checkpoint-{SAVED}"))
    facts[f"{name}, resumed"] = model.trained
answer(facts)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
