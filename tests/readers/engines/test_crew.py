"""A crew does what it is given, in order, and is not woken while it is at work."""

from __future__ import annotations

import threading
import time

import pytest

from readers.engines.crew import Crew, Task

WAIT_S = 60


@pytest.fixture
def crew_of():
    """Makes crews, which are dismissed in the end; no thread is left."""
    crews = []

    def make(count):
        crews.append(Crew(count, lambda: None))
        return crews[-1]

    yield make
    for crew in crews:
        crew.dismiss(RuntimeError("over"))
    deadline = time.monotonic() + WAIT_S
    while any(thread.name.startswith("loader") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def given(crew, works):
    """Tasks of these functions, given to a crew."""
    tasks = [Task(work) for work in works]
    for task in tasks:
        crew.give(task)
    return tasks


@pytest.mark.parametrize("count", [1, 3])
def test_all_that_is_given_is_done(crew_of, count):
    """However threads and whoever gives meet: whether some wait, have just ended, or are at it."""
    crew, found = crew_of(count), []
    for burst in range(400):
        tasks = given(crew, [lambda at=at: at for at in range(burst % 7)])
        found += [task.result() for task in tasks]
        assert all(task.is_done for task in tasks)
    assert found == [at for burst in range(400) for at in range(burst % 7)]
    assert crew._idle_count <= count


def test_one_thread_begins_tasks_in_their_order(crew_of):
    """They are a queue."""
    begun = []
    tasks = given(crew_of(1), [lambda at=at: begun.append(at) for at in range(50)])
    for task in tasks:
        task.result()
    assert begun == list(range(50))


def test_threads_at_work_are_not_woken(crew_of):
    """Each is called once, and goes from task to task: that is all that an executor has to do."""
    crew, go_on, calls = crew_of(2), threading.Event(), []
    submit = crew._executor.submit
    crew._executor.submit = lambda work: calls.append(work) or submit(work)
    tasks = given(crew, [lambda: go_on.wait(WAIT_S)] * 2 + [lambda: True] * 100)
    assert len(calls) == 2
    go_on.set()
    assert all(task.result() for task in tasks)
    assert len(calls) == 2


def test_an_error_is_raised_as_it_was(crew_of):
    """To who asks for the result, and before to who only looks; the thread goes on."""

    def fail():
        raise KeyError("no such thing")

    wrong, right = given(crew_of(1), [fail, lambda: 7])
    assert right.result() == 7
    assert wrong.is_done
    for ask in (wrong.check, wrong.result):
        with pytest.raises(KeyError, match="no such thing"):
            ask()
    right.check()


def test_what_waits_fails_when_the_crew_is_dismissed(crew_of):
    """Nobody waits for what nobody will do; what was begun is finished."""
    crew, begun, go_on = crew_of(1), threading.Event(), threading.Event()
    first, *others = given(crew, [lambda: begun.set() or go_on.wait(WAIT_S)] + [lambda: 0] * 3)
    assert begun.wait(WAIT_S)
    crew.dismiss(RuntimeError("over"))
    for task in others:
        with pytest.raises(RuntimeError, match="over"):
            task.result()
    go_on.set()
    assert first.result() is True


def test_what_is_forgotten_is_not_done(crew_of):
    """But for what was begun; the rest takes its turn."""
    crew, begun, go_on, done = crew_of(1), threading.Event(), threading.Event(), []
    works = [lambda: begun.set() or go_on.wait(WAIT_S)]
    works += [lambda at=at: done.append(at) for at in range(4)]
    tasks = given(crew, works)
    assert begun.wait(WAIT_S)
    crew.forget([tasks[0], tasks[1], tasks[3]])
    go_on.set()
    tasks[4].result()
    assert done == [1, 3]


def test_a_result_is_not_kept(crew_of):
    """It is memory of a batch, which comes back when its user lets go of it."""
    crew = crew_of(1)
    (task,) = given(crew, [lambda: [1]])
    assert task.result() == [1]
    assert task._result is None
    assert task._work is None
