"""Real processes of torch.distributed (gloo) share an epoch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import json, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from readers import LMDBDataset, make_loader

rank, world_size, meeting, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dataset = LMDBDataset(store, returns=("key", "image", "label")).select(range(50))
settings = {"workers": 2 if rank == 0 else 0, "engine": "process"}
# Made before there is a process group, as a Lightning user does.
training = make_loader(dataset, 12 // world_size, train=True, seed=4, **settings)
evaluation = make_loader(dataset, 4, train=False, **settings)
padded = make_loader(dataset, 4, train=False, pad=True, **settings)
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world_size)

def gathered(value):
    values = [None] * world_size
    dist.all_gather_object(values, value)
    return values

torch.manual_seed(0)
model = torch.nn.Linear(12, 10).double()
if world_size > 1:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen, states = [], []
for epoch in range(2):
    keys = []
    for key, images, labels in training:
        loss = torch.nn.functional.cross_entropy(model(images.flatten(1).double() / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keys.append(list(key))
        if len(keys) == 2:
            states.append(gathered(training.state_dict()))
    seen.append(gathered(keys))

evaluated = gathered([list(key) for key, _, _ in evaluation])
correct = torch.zeros(2, dtype=torch.int64)
with torch.no_grad():
    # Each step has a forward of DDP's on all ranks: equally many batches, or it hangs.
    for _, images, labels, valid in padded:
        right = model(images.flatten(1).double() / 255).argmax(1) == labels
        correct += torch.tensor([int(right[valid].sum()), int(valid.sum())])
dist.all_reduce(correct)
resumed = make_loader(dataset, 12 // world_size, train=True, seed=4, workers=0)
resumed.load_state_dict(states[1][0])
rest = gathered([list(key) for key, _, _ in resumed])
facts = {
    "batch_counts": gathered([len(training), len(evaluation), len(padded)]),
    "seen": seen,
    "states": states,
    "evaluated": evaluated,
    "correct": correct.tolist(),
    "weights": [parameter.flatten().tolist() for parameter in model.parameters()],
    "rest": rest,
}
for loader in (training, evaluation, padded):
    loader.close()
del model, optimizer
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    print(json.dumps(facts))
"""


def run(world_size, folder, store):
    """What rank 0 says of a run on so many ranks."""
    meeting = folder / f"meeting-{world_size}"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(world_size), meeting, store],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [rank.communicate(timeout=100) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, (_, errors) in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, errors
    return json.loads(outputs[0][0].splitlines()[-1])


@pytest.fixture(scope="module")
def alone(tmp_path_factory, many_shards):
    """The run of one process."""
    return run(1, tmp_path_factory.mktemp("alone"), many_shards)


def steps_of(ranks):
    """The samples of each step over all ranks, in order."""
    return [
        [key for turn in zip(*step, strict=True) for key in turn]
        for step in zip(*ranks, strict=True)
    ]


@pytest.mark.parametrize("world_size", [2, 3])
def test_training_and_evaluation_do_not_depend_on_the_number_of_ranks(
    world_size, alone, tmp_path, many_shards
):
    """The same steps, so the same weights; the same samples evaluated, so the same accuracy; and
    one state for all, from which any number of them goes on."""
    found = run(world_size, tmp_path, many_shards)
    assert [steps_of(ranks) for ranks in found["seen"]] == [
        steps_of(ranks) for ranks in alone["seen"]
    ]
    assert found["seen"][0] != found["seen"][1]
    for ours, theirs in zip(found["weights"], alone["weights"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)
    keys = [key for batches in found["evaluated"] for batch in batches for key in batch]
    assert sorted(keys) == [f"{at:03d}" for at in range(50)]
    assert found["correct"] == alone["correct"]
    assert found["correct"][1] == 50
    counts = found["batch_counts"]
    assert {tuple(count[::2]) for count in counts} == {(4, -(-50 // (4 * world_size)))}
    for states, expected in zip(found["states"], alone["states"], strict=True):
        assert all(state == expected[0] for state in states)
    assert steps_of(found["rest"]) == steps_of(alone["seen"][1])[2:]
