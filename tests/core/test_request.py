"""Request: seeds, the rule that ends its sequences, and what it still wants to know of its prompt."""

from octavo.core.request import FinishReason, StopRule, sample_seed, splitmix64
from octavo.core.sampling_params import SamplingParams
from octavo.core.sequence import SequenceStatus
from support.scheduling import make_request

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def rule(max_tokens: int = 10, **params: object) -> StopRule:
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    return StopRule.of(sampling, frozenset({1, 2}), max_tokens)


def test_splitmix64_is_the_published_generator() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(1234567) == 6457827717110365317


def test_each_sample_has_a_seed_of_its_own_in_64_bits() -> None:
    assert sample_seed(7, 0) == 7
    assert sample_seed(7, 3) == splitmix64(10)
    assert sample_seed(-1, 0) == 2**64 - 1
    assert sample_seed(-1, 1) == splitmix64(0)
    assert len({sample_seed(7, index) for index in range(1000)}) == 1000


def test_end_tokens_stop_without_a_reason_and_stop_tokens_are_the_reason() -> None:
    both = rule(stop_token_ids=(2, 3))
    assert both.finish_after(1, 0) == (STOP, None)
    assert both.finish_after(2, 0) == (STOP, None)
    assert both.finish_after(3, 0) == (STOP, 3)
    assert both.finish_after(4, 0) == (None, None)


def test_ignore_eos_ignores_the_models_end_tokens_only() -> None:
    ignoring = rule(ignore_eos=True, stop_token_ids=(2, 3))
    assert ignoring.finish_after(1, 0) == (None, None)
    assert ignoring.finish_after(2, 0) == (STOP, 2)
    assert ignoring.finish_after(3, 0) == (STOP, 3)


def test_length_is_reached_by_the_last_token_and_stop_comes_before_it() -> None:
    three = rule(max_tokens=3)
    assert three.finish_after(9, 1) == (None, None)
    assert three.finish_after(9, 2) == (LENGTH, None)
    assert three.finish_after(1, 2) == (STOP, None)


def test_nothing_stops_before_min_tokens_and_what_would_is_suppressed() -> None:
    patient = rule(min_tokens=2, stop_token_ids=(9, 3))
    assert patient.suppressed_token_ids == (1, 2, 3, 9)
    assert patient.finish_after(1, 1) == (None, None)  # a runner that draws it all the same
    assert patient.finish_after(3, 2) == (STOP, 3)
    assert rule(max_tokens=2, min_tokens=2).finish_after(1, 1) == (LENGTH, None)


def test_ignored_end_tokens_are_suppressed_too() -> None:
    assert rule(min_tokens=1, ignore_eos=True).suppressed_token_ids == (1, 2)


def test_max_tokens_ends_at_the_end_of_the_context() -> None:
    assert make_request(prompt=10, max_tokens=5).max_tokens(64) == 5
    assert make_request(prompt=60, max_tokens=5).max_tokens(64) == 4
    assert make_request(prompt=10, max_tokens=None).max_tokens(64) == 54


def test_an_open_request_has_n_sequences_that_follow_the_first() -> None:
    request = make_request(prompt=4, n=3, seed=5)
    request.open(20, priority=2, arrival=9, rule=rule())
    first, *followers = request.sequences
    assert [s.seq_id for s in request.sequences] == [20, 21, 22]
    assert [s.rank for s in request.sequences] == [(2, 9, 0), (2, 9, 1), (2, 9, 2)]
    assert (first.status, first.num_seats) == (SequenceStatus.UNCALLED, 3)
    assert all(s.status is SequenceStatus.FOLLOWING for s in followers)
    assert all(s.token_ids is request.prompt_token_ids for s in request.sequences)
    assert not request.is_finished


def test_the_row_of_the_prompt_is_drawn_from_once_for_each_sequence() -> None:
    request = make_request(prompt=4, n=3, seed=5, min_tokens=1)
    request.open(20, priority=0, arrival=0, rule=rule(min_tokens=1))
    first, second, _ = request.sequences
    assert [(s.seq_id, s.seed) for s in first.sampling] == [
        (20, 5),
        (21, splitmix64(6)),
        (22, splitmix64(7)),
    ]
    assert second.sampling == first.sampling[1:2]
    for sampling in first.sampling:
        assert (sampling.params, sampling.prompt_len) == (request.params, 4)
        assert [sampling.suppressed_at(index) for index in range(2)] == [(1, 2), ()]


def test_targets_are_the_next_prompt_tokens_that_are_not_known_yet() -> None:
    request = make_request(prompt=range(10, 16), prompt_logprobs=1)
    assert list(request.prompt_targets(0, 4)) == [11, 12, 13, 14]
    assert list(request.prompt_targets(4, 6)) == [15]
    assert list(request.prompt_targets(5, 6)) == []
    assert list(make_request(prompt=6).prompt_targets(0, 4)) == []
