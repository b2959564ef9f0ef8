"""The stock DataLoader, StatefulDataLoader, Lightning and Accelerate run over it unchanged."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from readers import BucketBatchSampler, LMDBDataset, ShuffleSampler, make_loader
from readers.collate import collate

# What these packages warn of, of each other and of torch, is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def dataset(many_shards):
    """50 samples: their keys are their numbers."""
    return LMDBDataset(many_shards, returns=("key", "label")).select(range(50))


def keys_of(batches):
    return [list(batch[0]) for batch in batches]


def expected_epochs(count, batch_size=4, drop_last=False):
    """The batches of each epoch of an exact shuffle with seed 1."""
    sampler, epochs = ShuffleSampler(50, seed=1), []
    for _ in range(count):
        keys = [f"{index:03d}" for index in sampler]
        end = 50 - 50 % batch_size if drop_last else 50
        epochs.append([keys[start : start + batch_size] for start in range(0, end, batch_size)])
    return epochs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stock_dataloader_gives_the_batches_of_ours(dataset, workers, persistent):
    """With the same sampler, epoch by epoch, on each rank; with persistent workers too."""
    expected = expected_epochs(3)
    settings = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
    loader = DataLoader(dataset, 4, sampler=ShuffleSampler(50, seed=1), **settings)
    assert len(loader) == 13
    assert [keys_of(loader) for _ in range(3)] == expected
    for rank in range(2):
        ranks = {"rank": rank, "world_size": 2}
        stock = DataLoader(
            dataset, 4, sampler=ShuffleSampler(50, seed=1, **ranks), drop_last=True, **settings
        )
        ours = make_loader(dataset, 4, train=True, seed=1, workers=workers, **ranks)
        assert [keys_of(stock) for _ in range(2)] == [keys_of(ours) for _ in range(2)]
        ours.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stock_dataloader_takes_our_batch_sampler(dataset, workers):
    """And ours takes it with any engine."""

    def sampler():
        return BucketBatchSampler([at % 3 for at in range(50)], 4, seed=2)

    stock = DataLoader(dataset, batch_sampler=sampler(), num_workers=workers, collate_fn=collate)
    expected = [keys_of(stock) for _ in range(2)]
    assert all(len({int(key) % 3 for key in batch}) == 1 for batch in expected[0])
    for engine in ("thread", "process"):
        ours = make_loader(
            dataset, train=True, batch_sampler=sampler(), engine=engine, workers=workers
        )
        assert [keys_of(ours) for _ in range(2)] == expected
        ours.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_goes_on_at_any_step(dataset, workers):
    """With batches under way; at the last one, and between epochs; into the next epoch."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader():
        return stateful(dataset, 4, sampler=ShuffleSampler(50, seed=1), num_workers=workers)

    expected = expected_epochs(3)
    whole = loader()
    assert [keys_of(whole) for _ in range(3)] == expected
    for done in (1, 6, 12, 13):
        stopped, resumed = loader(), loader()
        batches = iter(stopped)
        for _ in range(done):
            next(batches)
        resumed.load_state_dict(stopped.state_dict())
        assert keys_of(resumed) == expected[0][done:]
        assert keys_of(resumed) == expected[1]
    finished, resumed = loader(), loader()
    keys_of(finished)
    resumed.load_state_dict(finished.state_dict())
    assert [keys_of(resumed), keys_of(resumed)] == expected[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_goes_on_with_buckets(dataset, workers):
    """A batch sampler has a place of its own."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader():
        sampler = BucketBatchSampler([at % 3 for at in range(50)], 4, seed=2)
        return stateful(dataset, batch_sampler=sampler, num_workers=workers)

    whole = loader()
    expected = [keys_of(whole) for _ in range(2)]
    for done in (1, 7, len(expected[0])):
        stopped, resumed = loader(), loader()
        batches = iter(stopped)
        for _ in range(done):
            next(batches)
        resumed.load_state_dict(stopped.state_dict())
        assert keys_of(resumed) == expected[0][done:]
        assert keys_of(resumed) == expected[1]


@pytest.fixture
def lightning_module():
    """A Lightning module that keeps what it was given, and a trainer for some epochs."""
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 10)
            self.seen, self.validated = [], []

        def training_step(self, batch, _number):
            self.seen.append(list(batch[0]))
            scores = self.layer(batch[1].float()[:, None])
            return torch.nn.functional.cross_entropy(scores, batch[1])

        def validation_step(self, batch, _number):
            self.validated += batch[0]

        def predict_step(self, batch, _number):
            return list(batch[0])

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
    assert model.validated == [f"{at:03d}" for at in range(50)] * 2
    predicted = fitted.predict(model, evaluation)
    assert [key for batch in predicted for key in batch] == [f"{at:03d}" for at in range(50)]
    training.close()
    evaluation.close()


def test_lightning_goes_on_in_mid_epoch(dataset, lightning_module, tmp_path):
    """Its checkpoint keeps the loader's state, and gives it back."""
    make, trainer = lightning_module
    callbacks = pytest.importorskip("lightning.pytorch.callbacks")
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


def test_accelerate_prepares_it(dataset):
    """What it makes of our loader has the same batches, epoch by epoch."""
    accelerate = pytest.importorskip("accelerate")
    loader = make_loader(dataset, 4, train=True, seed=1, workers=0, rank=0, world_size=1)
    prepared = accelerate.Accelerator(cpu=True).prepare(loader)
    assert [keys_of(prepared) for _ in range(2)] == expected_epochs(2, drop_last=True)
    assert len(prepared) == 12
