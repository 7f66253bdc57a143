"""A timer that does not measure itself: case B21 on a clock moved by hand, no GPU needed."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from codesign.errors import RunError, UsageError
from codesign.kernels.timing import CpuStopwatch, Timing, clock_step_s, measure, median_interval


class Machine:
    """A clock that only kernels move; reads are rounded down to `step_s`. Each call takes the next of `calls_s`."""

    def __init__(self, calls_s, step_s=1e-9):
        self.now, self.step_s, self.taken = 0.0, step_s, 0
        self._calls_s = calls_s if callable(calls_s) else lambda k: calls_s[min(k, len(calls_s) - 1)]

    def clock(self):
        return math.floor(self.now / self.step_s + 1e-6) * self.step_s

    def kernel(self):
        self.now += self._calls_s(self.taken)
        self.taken += 1

    def measure(self, **settings):
        watch = CpuStopwatch(self.clock, known_step_s=self.step_s)
        return measure(self.kernel, stopwatch=watch, wall=self.clock, **settings)


def made(samples, first=None):
    return Timing(tuple(samples), first, 1 if first else 0, 1, "made", "max_samples")


def test_a_first_call_that_compiles_is_kept_apart_and_warned_of():
    timing = Machine([5.2e-3, *[1.0e-3] * 20]).measure(warmup_calls=1, min_samples=9, max_samples=9)
    assert timing.median_s == pytest.approx(1.0e-3)
    assert timing.first_call_s == pytest.approx(5.2e-3)
    assert statistics.fmean([timing.first_call_s, *timing.samples_s]) == pytest.approx(1.42e-3)
    assert any(
        warning.startswith("the first call took 5.2 times the median") for warning in timing.warnings()
    )


def test_a_slow_sample_is_flagged_and_kept_and_the_median_does_not_mind():
    timing = made([5.2e-3] + [1.0e-3] * 9)
    assert timing.outliers == (0,)
    assert len(timing.samples_s) == 10
    assert timing.median_s == 1.0e-3
    assert any("1 of 10 samples lie far above" in warning for warning in timing.warnings())


def test_warm_up_is_counted_in_calls_even_when_the_first_eats_seconds():
    machine = Machine(lambda call: 30.0 if call == 0 else 2.0 if call < 4 else 1e-3)
    timing = machine.measure(warmup_calls=4, min_samples=7, max_samples=7, budget_s=1.0)
    assert timing.warmup_calls == 4
    assert set(np.round(timing.samples_s, 6)) == {1e-3}


def test_a_kernel_shorter_than_the_clock_is_batched_and_not_stored_as_zero():
    timing = Machine([4e-6], step_s=1e-4).measure(min_samples=7, max_samples=7)
    assert timing.calls_per_sample * 4e-6 >= 100 * 1e-4
    assert timing.median_s == pytest.approx(4e-6, rel=0.01)


def test_a_kernel_that_no_batch_makes_long_enough_is_refused():
    with pytest.raises(RunError, match="less than the clock can tell"):
        Machine([0.0], step_s=1e-3).measure()


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(RunError, match="the clock stands still"):
        measure(lambda: None, stopwatch=CpuStopwatch(lambda: 1.0))


def test_the_timer_adds_nothing_of_its_own():
    """A read costs time on the clock: one read a call at each end would show as 50 µs more (the thread's 51 for 4)."""
    machine = Machine([4e-6], step_s=1e-9)
    reading_s = 50e-6

    def clock():
        machine.now += reading_s
        return machine.now

    watch = CpuStopwatch(clock, known_step_s=1e-6)
    timing = measure(machine.kernel, stopwatch=watch, wall=lambda: 0.0, max_samples=7)
    assert timing.median_s == pytest.approx(4e-6 + reading_s / timing.calls_per_sample, rel=1e-3)
    assert timing.calls_per_sample > 30


def test_sampling_stops_when_the_interval_of_the_median_is_tight():
    timing = Machine([1e-3]).measure(budget_s=100.0)
    assert timing.stopped_by == "tight"
    assert len(timing.samples_s) == 7


def test_a_restless_kernel_is_sampled_until_the_budget_is_spent():
    rng = np.random.default_rng(0)
    timing = Machine(lambda _: float(rng.lognormal(sigma=0.8)) * 1e-3).measure(
        budget_s=0.1, max_samples=10_000, tightness=0.001
    )
    assert timing.stopped_by == "budget"
    assert 0.08 < sum(timing.samples_s) < 0.12
    assert any("allow more time" in warning for warning in timing.warnings())


def test_fewer_samples_than_asked_for_are_never_taken_even_over_budget():
    assert len(Machine([5.0]).measure(warmup_calls=1, min_samples=7, budget_s=1.0).samples_s) == 7


def test_a_machine_that_slows_down_is_reported_with_its_size():
    timing = made([1.0] * 5 + [1.1] * 5 + [1.3] * 5)
    assert timing.drift == pytest.approx(0.3)
    assert timing.drifted
    assert any("+30%" in warning for warning in timing.warnings())
    assert not made([1.0] * 15).drifted


def test_too_few_samples_give_no_interval_no_drift_and_no_spread():
    timing = made([1.0])
    assert (timing.interval_s, timing.drift, timing.spread) == (None, None, None)
    assert made([1.0] * 5).interval_s is None


def test_six_samples_span_the_median_with_their_whole_range():
    assert median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)


@pytest.mark.parametrize("count", [6, 9, 25, 200])
def test_the_interval_holds_the_true_median_at_least_as_often_as_it_says(count):
    rng = np.random.default_rng(count)
    held = 0
    for _ in range(600):
        low, high = median_interval(rng.exponential(size=count).tolist())
        held += low <= math.log(2) <= high
    assert held / 600 > 0.93  # three standard errors below 95.7 %, the least that discreteness allows here


def test_functions_take_turns_so_that_no_buffer_stays_in_the_cache():
    called = []
    machine = Machine([1e-3])

    def subject(name):
        return lambda: (called.append(name), machine.kernel())

    watch = CpuStopwatch(machine.clock, known_step_s=1e-9)
    measure([subject("a"), subject("b"), subject("c")], stopwatch=watch, wall=machine.clock, max_samples=9)
    assert called == [("a", "b", "c")[position % 3] for position in range(len(called))]


def test_the_step_of_a_real_clock_is_found():
    ticks = iter(np.repeat(np.arange(100.0), 3).tolist())
    assert clock_step_s(lambda: next(ticks)) == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup_calls": -1}, "warmup_calls must be at least 0, got -1"),
        ({"min_samples": 0}, "min_samples must be at least 1, got 0"),
        ({"min_samples": 9, "max_samples": 5}, "max_samples must be at least min_samples"),
        ({"budget_s": 0.0}, "budget_s must be positive, got 0"),
        ({"budget_s": math.nan}, "budget_s must be positive, got nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        measure(lambda: None, **settings)


def test_nothing_to_measure_is_refused():
    with pytest.raises(UsageError, match="the list of functions is empty"):
        measure([])


def test_what_the_kernel_raises_comes_through():
    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(broken)


def test_a_real_sleep_is_timed_right():
    import time

    timing = measure(lambda: time.sleep(2e-3), warmup_calls=1, max_samples=7)
    assert 2e-3 <= timing.best_s < 2e-2
