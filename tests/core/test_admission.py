"""What is refused at the door, and what a waiting sequence lacks."""

from array import array

import pytest

from octavo.core.admission import (
    Demand,
    Limits,
    Shortage,
    check_request,
    shortage_of,
    tokens_left_for,
)
from octavo.core.block_tables import BlockTables
from octavo.core.request import Request
from octavo.core.sequence import Rank, RankedSequences, Sequence
from octavo.errors import (
    CapacityError,
    ContextLengthError,
    InvalidParameterError,
    PromptError,
    UserError,
)
from support.scheduling import Rig, make_request

LIMITS = Limits(max_num_batched_tokens=32, max_num_seqs=4, max_model_len=64)


def refused(request: Request, num_blocks: int = 100) -> UserError:
    with pytest.raises(UserError) as raised:
        check_request(request, LIMITS, BlockTables(num_blocks, 4))
    return raised.value


def test_an_empty_prompt() -> None:
    error = refused(make_request(prompt=0))
    assert isinstance(error, PromptError)
    assert error.parameter == "prompt"


@pytest.mark.parametrize("prompt_len", [64, 65, 640])
def test_a_prompt_that_fills_the_context(prompt_len: int) -> None:
    error = refused(make_request(prompt=prompt_len, max_tokens=5))
    assert isinstance(error, ContextLengthError)
    assert str(error) == (
        "This model's maximum context length is 64 tokens. However, you requested "
        f"{prompt_len + 5} tokens ({prompt_len} in the messages, 5 in the completion). "
        "Please reduce the length of the messages or completion."
    )
    assert (error.parameter, error.value) == ("prompt", prompt_len)


def test_the_longest_prompt_leaves_one_token() -> None:
    check_request(make_request(prompt=63, max_tokens=None), LIMITS, BlockTables(16, 4))


def test_more_samples_than_seats() -> None:
    error = refused(make_request(n=5))
    assert isinstance(error, InvalidParameterError)
    assert str(error) == "n must be at most 4 (--max-num-seqs); given: 5"
    check_request(make_request(n=4), LIMITS, BlockTables(100, 4))


def test_a_sequence_that_could_never_fit() -> None:
    error = refused(make_request(prompt=9, max_tokens=13), num_blocks=5)
    assert isinstance(error, CapacityError)
    assert str(error) == (
        "a sequence of this request may need 21 slots (9 for the prompt, 13 for new tokens, less the "
        "last), but the whole block pool has 20 (5 blocks of 4); reduce the prompt or max_tokens"
    )
    check_request(make_request(prompt=9, max_tokens=12), LIMITS, BlockTables(5, 4))


def test_capacity_is_asked_for_what_the_context_lets_grow() -> None:
    check_request(make_request(prompt=9, max_tokens=1000), LIMITS, BlockTables(16, 4))
    assert isinstance(
        refused(make_request(prompt=9, max_tokens=None), num_blocks=15), CapacityError
    )


def test_a_refused_request_leaves_no_trace() -> None:
    rig = Rig(num_blocks=5)
    for request in (
        make_request(prompt=0),
        make_request(prompt=64),
        make_request(n=9),
        make_request(prompt=30),
    ):
        with pytest.raises(UserError):
            rig.scheduler.add(request)
        assert request.sequences == ()
    assert not rig.scheduler.has_work
    rig.check()
    rig.scheduler.add(make_request(prompt=4))  # the id was not taken
    rig.run()


def test_request_ids_are_unique_among_open_requests() -> None:
    rig = Rig()
    rig.scheduler.add(make_request("a"))
    with pytest.raises(InvalidParameterError, match="given: a") as raised:
        rig.scheduler.add(make_request("a"))
    assert raised.value.parameter == "request_id"
    rig.run()
    rig.scheduler.add(make_request("a"))


def sequence(arrival: int, known: int, *, priority: int = 0, num_seats: int = 1) -> Sequence:
    return Sequence(
        seq_id=arrival,
        request_id=f"r{arrival}",
        rank=Rank(priority, arrival, 0),
        token_ids=array("i", range(known)),
        num_seats=num_seats,
    )


def running(tables: BlockTables, arrival: int, known: int, computed: int, **rest: int) -> Sequence:
    seq = sequence(arrival, known, **rest)
    tables.grow(seq.seq_id, computed)
    seq.num_computed = computed
    return seq


def test_a_lone_sequence_lacks_nothing() -> None:
    assert shortage_of(sequence(0, 40), [], BlockTables(10, 4), LIMITS) == Shortage(-3, 0)


def test_running_sequences_keep_what_they_know_and_one_block_more() -> None:
    tables = BlockTables(20, 4)
    decoding = running(tables, 0, known=9, computed=8)  # 2 blocks, will need a third
    prompt = running(tables, 1, known=30, computed=16, num_seats=2)  # 4 blocks, will need 8
    candidate = sequence(2, known=13)  # 4 blocks
    free = 20 - 2 - 4
    needed = 4 + (1 + 4) + (1 + 2)
    assert shortage_of(candidate, [decoding, prompt], tables, LIMITS) == Shortage(0, needed - free)


def test_decoding_sequences_and_better_ranks_go_first_in_the_budget() -> None:
    tables = BlockTables(100, 4)
    members = [
        running(tables, 0, known=9, computed=8, priority=1),
        running(tables, 1, known=20, computed=16, priority=0),
        running(tables, 2, known=30, computed=16, priority=1),
    ]
    ranked = RankedSequences()
    for member in members:
        ranked.add(member)
    demand = Demand.of(ranked)
    for priority, left in ((0, 32 - 1 - 4), (1, 32 - 1 - 4 - 14)):
        assert tokens_left_for(sequence(3, 5, priority=priority), ranked, demand, LIMITS) == left
