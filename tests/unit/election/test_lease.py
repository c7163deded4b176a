"""The arithmetic of leases: silence is never counted too long, trust never lasts too long."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.election.lease import (
    GAP_SHARE,
    Hold,
    Observed,
    Renew,
    Take,
    Timing,
    Wait,
    keep,
    observe,
    seek,
    silent,
    trusted,
    worker_lease,
)

TIMING = Timing(4.0)
HELD = Observed(lease_version=5, heartbeat_version=6, holder="a", term=3)


def look(
    before: Observed | None, now: Observed, at_s: float, answered_s: float | None = None
) -> Observed:
    return observe(
        before,
        now,
        requested_s=at_s,
        answered_s=at_s if answered_s is None else answered_s,
        timing=TIMING,
    )


def looks(now: Observed, *times: float) -> Observed:
    observed = None
    for at_s in times:
        observed = look(observed, now, at_s)
    assert observed is not None
    return observed


def test_a_vacant_lease_is_taken_at_the_first_poll_with_a_higher_term() -> None:
    assert seek(look(None, Observed(heartbeat_version=9, term=7), 100.0), TIMING) == Take(8)
    assert seek(look(None, Observed(), 100.0), TIMING) == Take(1)


def test_a_term_is_above_the_one_that_the_candidate_held_itself_when_the_store_has_forgotten_it() -> (
    None
):
    assert seek(look(None, Observed(), 100.0), TIMING, term_min=4) == Take(5)


def test_a_held_lease_is_not_taken_at_the_first_poll() -> None:
    assert seek(look(None, HELD, 100.0), TIMING) == Wait(104.0)


def test_a_lease_is_taken_after_a_whole_lease_of_silence_and_not_before() -> None:
    almost = looks(HELD, 100.0, 101.0, 102.0, 103.0, 103.99)
    assert seek(almost, TIMING) == Wait(104.0)
    assert seek(look(almost, HELD, 104.0), TIMING) == Take(4)


def test_a_heartbeat_restarts_the_count() -> None:
    observed = looks(HELD, 100.0, 101.0, 102.0, 103.0, 103.9)
    observed = look(observed, replace(HELD, heartbeat_version=7), 104.0)
    assert (observed.unchanged_s, seek(observed, TIMING)) == (0.0, Wait(108.0))


def test_another_holder_restarts_the_count() -> None:
    observed = looks(HELD, 100.0, 101.0, 102.0, 103.0, 103.9)
    assert look(observed, replace(HELD, lease_version=8), 104.0).unchanged_s == 0.0


def test_a_slow_first_answer_counts_from_when_it_came() -> None:
    first = look(None, HELD, 100.0, answered_s=103.0)
    assert look(first, HELD, 103.5).unchanged_s == 0.5


def test_a_slow_second_answer_counts_up_to_when_it_was_asked_for() -> None:
    first = look(None, HELD, 100.0)
    assert look(first, HELD, 100.5, answered_s=101.0).unchanged_s == 0.5


def test_an_hour_without_polls_counts_only_as_the_maximum_gap() -> None:
    observed = look(looks(HELD, 100.0, 100.5), HELD, 3700.5)
    assert observed.unchanged_s == 0.5 + TIMING.gap_s
    assert isinstance(seek(observed, TIMING), Wait)


def test_after_a_gap_the_rest_of_the_lease_is_observed() -> None:
    observed = look(looks(HELD, 100.0, 101.0), HELD, 201.0)
    for at_s in (202.0, 202.9):
        observed = look(observed, HELD, at_s)
    assert not silent(observed, TIMING)
    assert silent(look(observed, HELD, 203.0), TIMING)


def test_a_vacant_lease_is_never_silent() -> None:
    assert not silent(
        looks(Observed(heartbeat_version=2, term=1), *(100.0 + n for n in range(10))), TIMING
    )


def test_a_holder_renews_when_a_quarter_of_the_lease_is_over() -> None:
    assert TIMING.renew_s == 1.0
    assert (keep(100.9, 101.0), keep(101.0, 101.0)) == (Hold(), Renew())


def test_a_holder_trusts_itself_for_nine_tenths_of_a_lease_from_the_beginning_of_its_renewal() -> (
    None
):
    assert trusted(103.59, 100.0, TIMING)
    assert not trusted(103.6, 100.0, TIMING)


@given(st.floats(0.95, 1.05), st.floats(0.95, 1.05), st.floats(0.1, 3600.0))
def test_no_candidate_takes_over_while_a_holder_trusts_itself_if_both_clocks_are_within_five_percent(
    holder: float, candidate: float, lease_s: float
) -> None:
    timing = Timing(lease_s)
    trusted_for_real_s = timing.trust_s / holder
    silent_for_real_s = timing.lease_s / candidate
    assert trusted_for_real_s < silent_for_real_s


@given(
    st.lists(
        st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 5.0), st.booleans()), min_size=1, max_size=40
    )
)
def test_silence_is_never_counted_longer_than_it_was_nor_longer_than_it_was_watched(
    turns: list[tuple[float, float, bool]],
) -> None:
    observed, now, at_s, changed_s, glances = None, HELD, 0.0, 0.0, 0
    for pause_s, answer_s, beat in turns:
        at_s += pause_s
        if beat:
            now, changed_s, glances = (
                replace(now, heartbeat_version=now.heartbeat_version + 1),
                at_s,
                0,
            )
        observed = look(observed, now, at_s, answered_s=at_s + answer_s)
        assert observed.unchanged_s <= at_s - changed_s + 1e-9
        assert observed.unchanged_s <= glances * TIMING.lease_s * GAP_SHARE + 1e-9
        at_s, glances = at_s + answer_s, glances + 1


def test_workers_have_leases_of_their_own() -> None:
    assert worker_lease("host-1") == "worker/host-1"
