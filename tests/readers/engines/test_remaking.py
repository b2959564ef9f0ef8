"""Engines are pickled and copied as what they were made of."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from readers.engines.processes import ProcessEngine
from readers.engines.threads import ThreadEngine
from tests.readers.engines.engine_conformance import RowFiller, Rows, parts_of, values_of

ENGINES = {
    "threads": lambda: ThreadEngine(RowFiller(Rows()), 2, 3, group_count=2, is_pinned=False),
    "processes": lambda: ProcessEngine(RowFiller(Rows()), 1, 3, seed=5, start_method="fork"),
}


def sent(engine):
    return pickle.loads(pickle.dumps(engine))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, sent])
@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_in_use_is_copied_as_one_that_was_not_started(kind, copied):
    """With every setting; each works on without the other."""
    engine = ENGINES[kind]()
    try:
        running = engine.batches(parts_of(4), 0)
        assert values_of(next(running)) == [0]
        twin = copied(engine)
        for name in inspect.signature(type(engine)).parameters.keys() - {"filler", "stats"}:
            assert getattr(twin, f"_{name}") == getattr(engine, f"_{name}"), name
        try:
            assert [values_of(batch) for batch in twin.batches(parts_of(2), 0)] == [[0], [1]]
        finally:
            twin.close()
        assert [values_of(batch) for batch in running] == [[1], [2], [3]]
    finally:
        engine.close()
