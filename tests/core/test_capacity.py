"""R13: a pool smaller than the context. What can never fit is refused at once; all else finishes."""

import pytest

from octavo.core.request import FinishReason
from octavo.errors import CapacityError
from support.scheduling import Rig, make_request

NUM_SLOTS = 5 * 4


def small_rig() -> Rig:
    return Rig(num_blocks=5, block_size=4, max_model_len=64)


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens"),
    [(NUM_SLOTS + 1, 1), (NUM_SLOTS + 1, None), (NUM_SLOTS - 3, 50), (NUM_SLOTS, 2)],
)
def test_what_can_never_fit_is_refused_and_blocks_nobody(
    prompt_len: int, max_tokens: int | None
) -> None:
    rig = small_rig()
    with pytest.raises(CapacityError, match="the whole block pool has 20"):
        rig.scheduler.add(make_request("big", prompt=prompt_len, max_tokens=max_tokens))
    for number in range(5):
        rig.scheduler.add(make_request(f"{number}", prompt=3, max_tokens=3))
    rig.run()
    assert sorted(rig.log.ended) == list("01234")


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens"), [(NUM_SLOTS, 1), (NUM_SLOTS - 1, 1), (NUM_SLOTS - 3, 4), (1, 20)]
)
def test_what_just_fits_runs_among_others(prompt_len: int, max_tokens: int) -> None:
    rig = small_rig()
    requests = [make_request("before", prompt=5, max_tokens=9, ignore_eos=True)]
    requests.append(make_request("big", prompt=prompt_len, max_tokens=max_tokens, ignore_eos=True))
    requests += [
        make_request(f"{number}", prompt=3, max_tokens=3, seed=number) for number in range(5)
    ]
    for request in requests:
        rig.scheduler.add(request)
    rig.run()
    assert rig.log["big"].finish_reasons == {0: FinishReason.LENGTH}
    for request in requests:
        rig.check_answer(request)


def test_a_big_request_is_not_overtaken_for_ever() -> None:
    rig = small_rig()
    for number in range(40):
        rig.scheduler.add(make_request(f"{number}", prompt=3, max_tokens=3, seed=number))
        if number == 10:
            rig.scheduler.add(make_request("big", prompt=NUM_SLOTS, max_tokens=1))
    rig.run()
    assert rig.log.ended.index("big") == 11
