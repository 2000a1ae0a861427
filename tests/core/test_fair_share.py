"""Tenants who wait get equally many tokens."""

from collections import Counter
from typing import Any

import pytest

from octavo.config import SchedulingPolicy
from octavo.core import fair_share
from octavo.core.fair_share import OUTPUT_WEIGHT, FairShare
from octavo.core.request import Request
from support.scheduling import Rig, make_request


def small_rig(**options: object) -> Rig:
    defaults: dict[str, object] = {"max_num_seqs": 2, "num_blocks": 60, "prefix_caching": False}
    return Rig(**(defaults | options))  # type: ignore[arg-type]


def ends(rig: Rig) -> list[str]:
    """Ids of requests in the order in which they end."""
    order: list[str] = []
    while rig.scheduler.has_work:
        before = set(rig.scheduler._open.requests)
        rig.step()
        order += [name for name in sorted(before) if name not in rig.scheduler._open.requests]
    return order


def add(rig: Rig, tenant: str, count: int, **params: object) -> list[Request]:
    options: dict[str, Any] = {"max_tokens": 4, "ignore_eos": True} | params
    requests = [
        make_request(
            f"{tenant}{i:02}", [1 + i, 2, 3, ord(tenant[0]) % 50], tenant=tenant, **options
        )
        for i in range(count)
    ]
    for request in requests:
        rig.scheduler.add(request)
    return requests


def test_one_tenant_is_first_come_first_served() -> None:
    rig = small_rig(max_num_seqs=1)
    add(rig, "a", 6)
    assert ends(rig) == [f"a{i:02}" for i in range(6)]


def test_who_sends_more_gets_no_more() -> None:
    rig = small_rig()
    add(rig, "a", 20)
    add(rig, "b", 5)
    order = ends(rig)
    # B came last, and takes turns with A from then on.
    assert {name[0] for name in order[2:4]} == {"a", "b"} or {name[0] for name in order[:2]} == {
        "a",
        "b",
    }
    last_of_b = max(place for place, name in enumerate(order) if name[0] == "b")
    assert last_of_b <= 11
    assert [name for name in order if name[0] == "a"] == [f"a{i:02}" for i in range(20)]


def test_shares_are_of_tokens_not_of_requests() -> None:
    rig = small_rig(max_num_seqs=1, max_model_len=64)
    requests = add(rig, "a", 30, max_tokens=30) + add(rig, "b", 90, max_tokens=4)
    for _ in range(400):
        rig.step()
    served: Counter[str] = Counter()
    for request in requests:
        num_outputs = sum(s.num_outputs for s in request.sequences)
        if num_outputs:
            served[request.tenant] += request.prompt_len + OUTPUT_WEIGHT * num_outputs
    assert rig.scheduler.num_waiting and served["a"] > 200
    assert 0.8 < served["a"] / served["b"] < 1.25


def test_nobody_saves_up_what_was_not_used() -> None:
    rig = small_rig(max_num_seqs=1)
    add(rig, "b", 1)
    add(rig, "a", 20)
    for _ in range(60):
        rig.step()
    add(rig, "c", 20)  # new, while A has been served for long
    order = ends(rig)
    assert {name[0] for name in order[:6]} == {"a", "c"}
    assert 2 <= sum(name[0] == "a" for name in order[:6]) <= 4


def test_a_better_priority_goes_before_shares() -> None:
    rig = small_rig(policy=SchedulingPolicy.PRIORITY, max_num_seqs=1)
    add(rig, "a", 6)
    rig.step()
    urgent = make_request("z", [9, 9], priority=-1, tenant="a", max_tokens=2, ignore_eos=True)
    rig.scheduler.add(urgent)
    assert ends(rig)[0] == "z"
    rig.check_answer(urgent)


def test_who_is_preempted_keeps_its_turn() -> None:
    rig = small_rig(num_blocks=12, max_num_seqs=8)
    requests = add(rig, "a", 4, max_tokens=20) + add(rig, "b", 4, max_tokens=20)
    rig.run()
    assert sum(request.num_preemptions for request in requests) > 0
    for request in requests:
        rig.check_answer(request)


def test_an_abort_before_the_turn_leaves_nothing() -> None:
    rig = small_rig(max_num_seqs=1)
    add(rig, "a", 3)
    add(rig, "b", 3)
    rig.step()
    for name in ("a02", "b01", "b02", "b00"):
        rig.abort(name)
        rig.check()
    assert ends(rig) == ["a00", "a01"]


def test_tenants_that_want_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_share, "MOST_IDLE_TENANTS", 8)
    rig = small_rig(max_num_seqs=1)
    line = rig.scheduler._uncalled
    for i in range(200):
        rig.scheduler.add(make_request(f"r{i}", [1 + i % 40, 2], tenant=f"t{i}", max_tokens=1))
        if i > 3:  # so many always wait
            rig.step()
    assert len(line) >= 3 and len(line._tenants) <= 16
    rig.run()
    rig.scheduler.add(make_request("last", [1, 2], tenant="last", max_tokens=1))
    assert len(line._tenants) == 1  # nobody waited: all began again
    rig.run()


def test_the_next_is_found_among_many_that_wait() -> None:
    line = FairShare()
    rig = small_rig(max_num_seqs=1)
    add(rig, "a", 1)
    for i in range(50):
        rig.scheduler.add(make_request(f"r{i}", [1, 2, i % 50], tenant=f"t{i % 5}", max_tokens=1))
    assert len(line) == 0 and rig.scheduler.num_waiting == 51
    rig.run()
    assert rig.scheduler.num_waiting == 0
