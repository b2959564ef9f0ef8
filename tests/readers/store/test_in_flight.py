"""The number of reads under way goes where throughput stops rising, and stays there."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest

from readers.store.in_flight import InFlight

READ_BYTES = 270_000


def run(in_flight, rate_of, seconds, noise=0.0, seed=0):
    """A server that gives so many reads a second to a number of readers; the numbers, over time."""
    rng, now, limits = random.Random(seed), 0.0, []
    while now < seconds:
        now += rng.uniform(1 - noise, 1 + noise) / rate_of(in_flight.limit)
        in_flight.done(READ_BYTES, now, is_busy=True)
        limits.append(in_flight.limit)
    return limits


def at_most(best, round_trip_s):
    """A server with places for so many reads, and a round trip of so long."""
    return lambda count: min(count, best) / round_trip_s


@pytest.mark.parametrize("round_trip_s", [0.0005, 0.002, 0.01])
@pytest.mark.parametrize("best", [6, 16, 32, 64, 500])
def test_it_finds_the_number_that_is_enough(best, round_trip_s):
    """Within 2 s: no throughput is lost but what a step of it is worth, and no more are used."""
    limits = run(InFlight(64), at_most(best, round_trip_s), 6, noise=0.3)
    settled = limits[int(len(limits) * 0.4) :]
    rates = [min(limit, best) for limit in settled]
    assert sum(rates) / len(rates) > 0.85 * min(best, 64)
    assert sum(settled) / len(settled) < 1.6 * max(best, 4)


def test_it_goes_down_where_more_readers_are_a_burden():
    """Threads that take the core of the one that decodes, a server that seeks to and fro."""
    limits = run(InFlight(64), lambda count: 2000 / (1 + abs(count - 8) / 8), 10)
    assert 5 <= limits[-1] <= 12


def test_it_follows_a_server_that_changes():
    """What was found is looked at again after some time, up and down."""
    in_flight = InFlight(64)
    assert run(in_flight, at_most(12, 0.002), 8)[-1] <= 16
    assert max(run(in_flight, at_most(64, 0.01), 20)) == 64


def test_one_slow_measurement_does_not_end_the_climb():
    """Something else ran on this machine: the measurement is repeated before a step is undone."""
    seconds_at = Counter()

    def rate_of(limit):
        is_disturbed = seconds_at[limit] < 0.25 and limit > 16
        rate = limit / 0.002 * (0.4 if is_disturbed else 1)
        seconds_at[limit] += 1 / rate
        return rate

    assert max(run(InFlight(64), rate_of, 3)) == 64


def test_it_says_nothing_while_nothing_waits():
    """A reader that is never behind shows its own speed, not the server's."""
    in_flight = InFlight(64)
    for at in range(10_000):
        in_flight.done(READ_BYTES, at * 0.01, is_busy=False)
    assert in_flight.limit == InFlight(64).limit


@pytest.mark.parametrize("most", [1, 2, 5])
def test_it_keeps_the_limit_that_it_was_given(most):
    """Be it less than what it begins with, or than it would ever use."""
    limits = run(InFlight(most), at_most(500, 0.002), 3)
    assert max(limits) <= most
    assert min(limits) >= 1


class Fixed:
    """A number that does not look for itself."""

    def __init__(self, limit):
        self.limit = limit

    def done(self, byte_count, now, *, is_busy):
        pass


def bytes_per_s(in_flight, round_trip_s, line_bytes_per_s, seconds=6.0, seed=0):
    """What comes from a server: reads share a line, one after the other, and then take a round trip
    each, side by side. The line is busier the more of them there are, as cores are with threads.
    """
    rng, now, free, ends, byte_count = random.Random(seed), 0.0, 0.0, [], 0
    while now < seconds:
        while len(ends) < in_flight.limit:
            burden = 1 + 0.003 * max(0, len(ends) - 8)
            free = max(free, now) + READ_BYTES / line_bytes_per_s * burden
            heapq.heappush(ends, free + round_trip_s * rng.uniform(0.7, 1.3))
        now = heapq.heappop(ends)
        byte_count += READ_BYTES
        in_flight.done(READ_BYTES, now, is_busy=True)
    return byte_count / now


@pytest.mark.parametrize("round_trip_s", [0.0005, 0.002, 0.01, 0.05])
@pytest.mark.parametrize("line_bytes_per_s", [60e6, 250e6, 1e9])
def test_what_it_finds_is_nearly_the_best_fixed_number(round_trip_s, line_bytes_per_s):
    """From the first read on, with all that it tries on the way, over 6 s."""
    server = round_trip_s, line_bytes_per_s
    best = max(bytes_per_s(Fixed(count), *server) for count in (4, 8, 16, 24, 32, 48, 64))
    found = [bytes_per_s(InFlight(64), *server, seed=seed) for seed in (1, 2)]
    assert sum(found) / len(found) > 0.9 * best
