"""Lightning in this process: fits, goes on at any step, and keeps the indices that it predicts."""

from __future__ import annotations

import pytest
import torch

from readers import LMDBDataset, ShuffleSampler, make_loader

lightning = pytest.importorskip("lightning.pytorch")
callbacks = pytest.importorskip("lightning.pytorch.callbacks")

# What these packages warn of, of each other and of torch, is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def dataset(store):
    """50 samples with their numbers."""
    return LMDBDataset(store, returns=("number", "image"))


def expected_epochs(count, batch_size=4, drop_last=False):
    """The batches of each epoch of an exact shuffle with seed 1."""
    sampler, epochs = ShuffleSampler(50, seed=1), []
    for _ in range(count):
        numbers = list(sampler)
        end = 50 - 50 % batch_size if drop_last else 50
        epochs.append([numbers[start : start + batch_size] for start in range(0, end, batch_size)])
    return epochs


@pytest.fixture
def lightning_module():
    """A Lightning module that keeps what it was given, and a trainer for some epochs."""

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen, self.validated = [], []

        def training_step(self, batch, _number):
            self.seen.append(batch[0].tolist())
            scores = self.layer(batch[0].float()[:, None])
            return scores.mean()

        def validation_step(self, batch, _number):
            self.validated += batch[0].tolist()

        def predict_step(self, batch, _number):
            return batch[0].tolist()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trainer(epochs, **settings):
        return lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            **{"enable_checkpointing": False, **settings},
        )

    return Module, trainer


@pytest.mark.parametrize("workers", [0, 2])
def test_lightning_fits_validates_and_predicts(dataset, lightning_module, workers):
    """Epoch by epoch in our order; each sample is validated and predicted once."""
    make, trainer = lightning_module
    model, fitted = make(), trainer(2)
    training = make_loader(dataset, 4, train=True, seed=1, workers=workers)
    evaluation = make_loader(dataset, 4, train=False, workers=workers)
    fitted.fit(model, training, evaluation)
    assert model.seen == [batch for epoch in expected_epochs(2, drop_last=True) for batch in epoch]
    assert model.validated == [*range(50), *range(50)]
    predicted = fitted.predict(model, evaluation)
    assert [number for batch in predicted for number in batch] == list(range(50))
    training.close()
    evaluation.close()


def test_lightning_goes_on_in_mid_epoch(dataset, lightning_module, tmp_path):
    """Its checkpoint keeps the loader's state, and gives it back."""
    make, trainer = lightning_module
    saving = callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=5, save_top_k=-1)
    expected = [batch for epoch in expected_epochs(3, drop_last=True) for batch in epoch]
    whole, first = make(), trainer(3, enable_checkpointing=True, callbacks=[saving])
    loader = make_loader(dataset, 4, train=True, seed=1, workers=2)
    first.fit(whole, loader)
    loader.close()
    assert whole.seen == expected
    for step in (5, 20):
        resumed, second = make(), trainer(3)
        loader = make_loader(dataset, 4, train=True, seed=1, workers=1)
        second.fit(resumed, loader, ckpt_path=tmp_path / f"step={step}.ckpt")
        loader.close()
        assert resumed.seen == expected[step:]
