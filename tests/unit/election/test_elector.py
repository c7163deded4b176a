"""One lease, seen by its candidates: take, renew, lose, resign, and lost responses."""

import threading

import pytest

from tidegate.election import Elector, Leader, NotLeader
from tidegate.model.records import HEARTBEATS, LEASES
from tidegate.store import Check, Conflict, Delete, Put, Store, StoreClosed
from tidegate.testing.faulty_store import Fault, StoreCall, faulty_store, scripted

LEASE_S = 4.0
POLL_S = LEASE_S / 10


def candidate(store: Store, clock, me: str = "a", office: str = "coordinator") -> Elector:
    return Elector(store, office, me, f"http://{me}", int(LEASE_S * 1000), clock)


def leading(standing: Leader | NotLeader) -> Leader:
    assert isinstance(standing, Leader), standing
    return standing


def watch_for(elector: Elector, clock, seconds: float) -> None:
    """Steps at the usual pace, for so long."""
    for _ in range(round(seconds / POLL_S)):
        clock.turn(POLL_S)
        elector.step()


def writes(store: Store) -> int:
    return store.revision()


def test_the_first_candidate_leads_and_the_next_one_follows_and_knows_where_the_leader_is(
    store: Store, clock
) -> None:
    first, second = candidate(store, clock, "a"), candidate(store, clock, "b")
    assert leading(first.step()).term == 1
    assert second.step() == NotLeader("a", 1, "http://a")
    assert (first.leadership(), second.leadership()) == (first.step(), second.step())


def test_a_holder_writes_one_heartbeat_every_quarter_of_a_lease(store: Store, clock) -> None:
    elector = candidate(store, clock)
    elector.step()
    before = writes(store)
    watch_for(elector, clock, LEASE_S * 10)
    assert (
        30 <= writes(store) - before <= 40
    )  # a look every tenth of a lease meets a quarter of it late
    lease, beat = store.get(LEASES, "coordinator"), store.get(HEARTBEATS, "coordinator")
    assert lease is not None
    assert beat is not None
    assert lease.version == before
    assert beat.value["number"] == writes(store) - before


def test_a_live_holder_keeps_its_lease(store: Store, clock) -> None:
    holder, other = candidate(store, clock, "a"), candidate(store, clock, "b")
    term = leading(holder.step()).term
    for _ in range(200):
        clock.turn(POLL_S)
        holder.step()
        other.step()
    assert leading(holder.leadership()).term == term
    assert leading(holder.leadership()).trusted()


def test_a_dead_holder_is_replaced_within_a_lease_and_a_poll(store: Store, clock) -> None:
    candidate(store, clock, "a").step()
    other = candidate(store, clock, "b")
    other.step()
    watch_for(other, clock, LEASE_S - POLL_S)
    assert isinstance(other.leadership(), NotLeader)
    watch_for(other, clock, 2 * POLL_S)
    assert leading(other.leadership()).term == 2


def test_a_paused_holder_writes_nothing_and_follows_when_it_wakes(store: Store, clock) -> None:
    paused, other = candidate(store, clock, "a"), candidate(store, clock, "b")
    old = leading(paused.step())
    other.step()
    watch_for(other, clock, LEASE_S + POLL_S)
    assert not old.trusted()
    with pytest.raises(Conflict):
        store.transact([old.check()], [Put("work", "x", {})])
    assert paused.step() == NotLeader("b", 2, "http://b")
    assert store.list("work") == []


def test_a_holder_that_renews_during_a_take_keeps_its_lease(store: Store, clock) -> None:
    holder = candidate(store, clock, "a")
    standing = leading(holder.step())
    slow, _ = faulty_store(store, scripted({StoreCall.APPLY: [Fault.SLOW]}), pause=holder.step)
    other = candidate(slow, clock, "b")
    other.step()
    watch_for(other, clock, LEASE_S)
    assert other.leadership() == NotLeader("a", 1, "http://a")
    assert (holder.step(), standing.trusted()) == (standing, True)


def test_a_holder_that_was_not_replaced_keeps_its_term_after_a_long_pause(
    store: Store, clock
) -> None:
    elector = candidate(store, clock)
    standing = leading(elector.step())
    clock.turn(LEASE_S * 100)
    assert not standing.trusted()
    assert leading(elector.step()).term == standing.term
    assert standing.trusted()


def test_trust_starts_at_the_beginning_of_the_renewal(store: Store, clock) -> None:
    slow, _ = faulty_store(
        store, scripted({StoreCall.APPLY: [Fault.NONE, Fault.SLOW]}), pause=lambda: clock.turn(3.0)
    )
    elector = candidate(slow, clock)
    standing = leading(elector.step())
    clock.turn(LEASE_S / 4)
    elector.step()  # takes 3 s
    assert standing.trusted()
    clock.turn(LEASE_S * 0.9 - 3.0)
    assert not standing.trusted()


def test_a_lost_lease_ends_trust_for_every_leader_value(store: Store, clock) -> None:
    elector = candidate(store, clock)
    old = leading(elector.step())
    store.transact(writes=[Delete(LEASES, "coordinator")])
    assert old.trusted()
    clock.turn(LEASE_S / 4)
    new = leading(elector.step())
    assert (old.trusted(), new.trusted(), old.term, new.term) == (False, True, 1, 2)
    with pytest.raises(Conflict):
        store.transact([old.check()], [Put("work", "x", {})])
    store.transact([new.check()], [Put("work", "x", {})])


def test_a_leader_that_resigns_is_replaced_at_the_next_poll(store: Store, clock) -> None:
    first, second = candidate(store, clock, "a"), candidate(store, clock, "b")
    old = leading(first.step())
    second.step()
    first.resign()
    assert not old.trusted()
    assert leading(second.step()).term == 2
    watch_for(first, clock, LEASE_S * 2)
    assert isinstance(first.leadership(), NotLeader)


def test_resigning_after_somebody_took_over_leaves_the_new_holder_alone(
    store: Store, clock
) -> None:
    first, second = candidate(store, clock, "a"), candidate(store, clock, "b")
    first.step()
    second.step()
    watch_for(second, clock, LEASE_S + POLL_S)
    first.resign()
    assert leading(second.step()).term == 2
    lease = store.get(LEASES, "coordinator")
    assert lease is not None
    assert lease.value["holder"] == "b"


def test_resigning_without_a_lease_or_a_store_does_nothing(store: Store, clock) -> None:
    candidate(store, clock).resign()
    broken, _ = faulty_store(store, scripted({StoreCall.APPLY: [Fault.NONE, Fault.UNAVAILABLE]}))
    elector = candidate(broken, clock)
    elector.step()
    elector.resign()
    assert elector.leadership() == NotLeader(term=1)
    assert "unavailable" in elector.trouble
    assert len(store.list(LEASES)) == 1


def test_a_claim_does_not_wait_for_the_silence_of_an_earlier_process_of_the_same_name(
    store: Store, clock
) -> None:
    old = candidate(store, clock, "w1", "worker/w1")
    before = leading(old.claim())
    new = candidate(store, clock, "w1", "worker/w1")
    assert leading(new.claim()).term == 2
    clock.turn(LEASE_S / 4)
    assert old.step() == NotLeader("w1", 2, "http://w1")
    assert not before.trusted()
    assert leading(new.step()).term == 2


def test_a_claim_of_what_is_held_already_changes_nothing(store: Store, clock) -> None:
    elector = candidate(store, clock)
    standing = leading(elector.claim())
    assert elector.claim() == standing
    assert writes(store) == standing.version


def test_a_worker_whose_documents_were_deleted_returns_with_a_new_term(store: Store, clock) -> None:
    elector = candidate(store, clock, "w1", "worker/w1")
    assert leading(elector.claim()).term == 1
    store.transact(writes=[Delete(LEASES, "worker/w1"), Delete(HEARTBEATS, "worker/w1")])
    clock.turn(LEASE_S / 4)
    assert leading(elector.step()).term == 2


def test_a_leader_without_a_store_loses_trust_until_the_store_is_back(store: Store, clock) -> None:
    faults = [Fault.NONE] + [Fault.UNAVAILABLE] * 12
    broken, _ = faulty_store(store, scripted({StoreCall.APPLY: faults}))
    elector = candidate(broken, clock)
    standing = leading(elector.step())
    watch_for(elector, clock, LEASE_S)
    assert (elector.leadership(), standing.trusted(), elector.trouble) == (
        standing,
        False,
        "unavailable on purpose",
    )
    watch_for(elector, clock, LEASE_S)
    assert (elector.leadership(), standing.trusted(), elector.trouble) == (standing, True, "")


def test_after_an_outage_the_holder_has_time_to_renew(store: Store, clock) -> None:
    holder = candidate(store, clock, "a")
    holder.step()
    cut_off, _ = faulty_store(
        store, scripted({StoreCall.READ: [Fault.NONE] * 2 + [Fault.UNAVAILABLE] * 100})
    )
    other = candidate(cut_off, clock, "b")
    other.step()
    watch_for(other, clock, POLL_S * 100)
    other.step()
    assert other.step() == NotLeader("a", 1, "http://a")
    holder.step()
    watch_for(other, clock, LEASE_S - POLL_S)
    assert isinstance(other.leadership(), NotLeader)


def test_a_take_that_was_written_while_its_answer_was_lost_is_found_out_and_held(
    store: Store, clock
) -> None:
    faults = {StoreCall.APPLY: [Fault.ANSWER_LOST], StoreCall.SETTLE: [Fault.UNAVAILABLE] * 6}
    forgetful, _ = faulty_store(store, scripted(faults))
    elector = candidate(forgetful, clock)
    assert elector.step() == NotLeader()
    assert len(store.list(LEASES)) == 1
    clock.turn(POLL_S)
    standing = leading(elector.step())
    assert (standing.term, standing.trusted(), len(store.list(LEASES))) == (1, True, 1)


def test_a_take_that_was_held_back_is_made_void_and_cannot_arrive_later(
    store: Store, clock
) -> None:
    faults = {StoreCall.APPLY: [Fault.HELD_BACK], StoreCall.SETTLE: [Fault.UNAVAILABLE] * 6}
    lossy, network = faulty_store(store, scripted(faults))
    elector, other = candidate(lossy, clock, "a"), candidate(store, clock, "b")
    assert elector.step() == NotLeader()
    assert leading(elector.step()).term == 1
    elector.resign()
    assert network.deliver() == []
    assert leading(other.step()).term == 2


def test_a_take_whose_outcome_is_found_out_after_somebody_else_took_over_is_not_held(
    store: Store, clock
) -> None:
    faults = {StoreCall.APPLY: [Fault.ANSWER_LOST], StoreCall.SETTLE: [Fault.UNAVAILABLE] * 6}
    forgetful, _ = faulty_store(store, scripted(faults))
    elector, other = candidate(forgetful, clock, "a"), candidate(store, clock, "b")
    elector.step()
    other.step()
    watch_for(other, clock, LEASE_S + POLL_S)
    assert elector.step() == NotLeader("b", 2, "http://b")


def test_an_unresolved_take_is_dropped_after_a_lease(store: Store, clock) -> None:
    faults = {StoreCall.APPLY: [Fault.ANSWER_LOST], StoreCall.SETTLE: [Fault.UNAVAILABLE] * 6 * 12}
    forgetful, _ = faulty_store(store, scripted(faults))
    elector = candidate(forgetful, clock)
    elector.step()
    watch_for(elector, clock, LEASE_S + 2 * POLL_S)
    assert elector.leadership() == NotLeader("a", 1, "http://a")
    watch_for(elector, clock, LEASE_S + POLL_S)
    assert leading(elector.leadership()).term == 2


def test_a_renewal_whose_outcome_is_unknown_gives_no_trust_and_is_made_again(
    store: Store, clock
) -> None:
    faults = {
        StoreCall.APPLY: [Fault.NONE, Fault.ANSWER_LOST, Fault.UNAVAILABLE],
        StoreCall.SETTLE: [Fault.UNAVAILABLE] * 6,
    }
    forgetful, _ = faulty_store(store, scripted(faults))
    elector = candidate(forgetful, clock)
    standing = leading(elector.step())
    clock.turn(LEASE_S / 2)
    assert elector.step() == standing
    clock.turn(LEASE_S * 0.4)
    assert not standing.trusted()
    elector.step()
    assert not standing.trusted()
    elector.step()
    assert standing.trusted()


def test_a_permanent_error_is_not_treated_as_transient(store: Store, clock) -> None:
    elector = candidate(store, clock)
    store.close()
    with pytest.raises(StoreClosed):
        elector.step()


def test_trouble_is_logged_when_it_begins_and_ends(
    store: Store, clock, caplog: pytest.LogCaptureFixture
) -> None:
    broken, _ = faulty_store(store, scripted({StoreCall.READ: [Fault.UNAVAILABLE] * 10}))
    elector = candidate(broken, clock)
    watch_for(elector, clock, POLL_S * 20)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "lease_step_failed",
        "lease_step_recovered",
    ]


def test_leadership_can_be_read_while_a_step_hangs(store: Store, clock) -> None:
    hanging, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        assert go_on.wait(30)

    slow, _ = faulty_store(store, scripted({StoreCall.APPLY: [Fault.NONE, Fault.SLOW]}), pause=hang)
    elector = candidate(slow, clock)
    standing = leading(elector.step())
    clock.turn(LEASE_S / 2)
    turn = threading.Thread(target=elector.step)
    turn.start()
    assert hanging.wait(30)
    assert elector.leadership() == standing
    assert standing.trusted()
    clock.turn(LEASE_S)
    assert not leading(elector.leadership()).trusted()
    go_on.set()
    turn.join(30)
    assert not turn.is_alive()


def test_the_check_of_a_holder_is_its_lease_at_its_version(store: Store, clock) -> None:
    standing = leading(candidate(store, clock).step())
    lease = store.get(LEASES, "coordinator")
    assert lease is not None
    assert standing.check() == Check(LEASES, "coordinator", lease.version)
