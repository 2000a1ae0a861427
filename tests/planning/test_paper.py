"""The paper's tables, on short traces. What must hold of the whole hour is in the long test."""

import os
from dataclasses import replace

import pytest

from octavo.cli.simulation.paper import print_tables
from octavo.planning import paper
from octavo.planning.beams import BeamModel, share_saved
from octavo.planning.capacity import MadeUpLoad
from octavo.planning.figures import figures_of
from octavo.planning.paper import SYSTEMS, Assumptions, PaperRow
from octavo.planning.paper_notes import Note
from octavo.planning.paper_runs import BLOCK_SIZES, WIDTHS, Runs, samples_saved, saturated
from octavo.planning.paper_tables import (
    BATCH,
    HELD,
    SAVED_BEAMS,
    SAVED_PARALLEL,
    rows_of,
    variations,
)
from octavo.planning.requests import SimRequest
from octavo.planning.setups import Policy

SHORT = Assumptions(seconds=900.0)


def test_memory_and_batches_with_a_full_queue() -> None:
    figures = {policy: saturated(SHORT, policy) for policy in SYSTEMS}
    for policy, held in HELD.items():
        assert figures[policy].memory.tokens == pytest.approx(held, abs=0.06), policy
    paged = figures[Policy.PAGED].mean_batch
    assert paged / figures[Policy.ORACLE].mean_batch == pytest.approx(2.2, abs=0.4)
    assert paged / figures[Policy.MAX].mean_batch == pytest.approx(4.3, abs=0.8)
    # Seven pieces of 2,048 slots fit into 12 GiB, whatever comes.
    assert figures[Policy.MAX].mean_batch == pytest.approx(BATCH["sharegpt"][Policy.MAX], abs=0.05)


def test_samples_share_what_the_paper_says() -> None:
    for kind in ("alpaca", "sharegpt"):
        saved = [samples_saved(SHORT, kind, n) for n in WIDTHS]
        assert saved == sorted(saved)
        for n, share in zip(WIDTHS, saved, strict=True):
            assert row("", SAVED_PARALLEL[kind][n], share) == pytest.approx(0, abs=0.05), (kind, n)


def test_beams_share_what_the_paper_says() -> None:
    """Set on width 2 of Alpaca alone."""
    for kind in ("alpaca", "sharegpt"):
        saved = [paper.beams_saved(SHORT, kind, width) for width in WIDTHS]
        assert saved == sorted(saved)
        for width, share in zip(WIDTHS, saved, strict=True):
            assert row("", SAVED_BEAMS[kind][width], share) == pytest.approx(0, abs=0.1)


def test_small_blocks_are_bad_to_swap_and_all_the_same_to_compute_again() -> None:
    ratios = [paper.recompute_by_swap(SHORT, size) for size in BLOCK_SIZES]
    assert ratios == sorted(ratios)
    assert ratios[0] < 0.2 and ratios[BLOCK_SIZES.index(16)] == pytest.approx(1, abs=0.2)


def test_pages_sustain_a_rate_of_beginnings_in_common_that_nobody_else_does() -> None:
    crowd = paper.translators(SHORT, 341)
    latency = {}
    for policy in (Policy.PAGED, Policy.ORACLE):
        machine = paper.translation_setup(SHORT, policy)
        figures = figures_of([machine.run(MadeUpLoad(crowd, 60.0, paper.MAX_LEN).at(25.0))])
        assert figures.normalized_latency_s is not None
        latency[policy] = figures.normalized_latency_s.mean
        assert (figures.cached_share > 0.8) == (policy is Policy.PAGED)
    assert 5 * latency[Policy.PAGED] < SHORT.latency_limit_s < latency[Policy.ORACLE]


def row(what: str, published: tuple[float, ...], simulated: float) -> float:
    return PaperRow("15", what, published, simulated).difference


def test_beams_that_never_switch_share_the_prompt_only() -> None:
    lengths = [(160, 100)]
    never = share_saved(BeamModel(0.0), 4, lengths)
    always = share_saved(BeamModel(1.0), 4, lengths)
    full = 160 // 16
    expected = sum(3 * full / (4 * -(-(160 + k) // 16)) for k in range(1, 100)) / 99
    assert never == pytest.approx(expected, rel=0.02)
    assert never < always < 0.75


def known_results() -> Runs:
    """As if all had been computed: every run the same figures, and twice the rate for pages."""
    figures = figures_of([paper.setup(SHORT, Policy.PAGED).run(some_requests())])
    runs = Runs(SHORT)
    for key, function, _ in runs.wanted():
        if function in (paper.sustained, paper.translating):
            runs.results[key] = 2.0 if Policy.PAGED in key else 1.0
        else:
            saves = function in (samples_saved, paper.beams_saved)
            runs.results[key] = 0.25 if saves else figures
    return runs


def some_requests() -> list[SimRequest]:
    return MadeUpLoad(paper.people(SHORT, "alpaca"), 10.0, paper.MAX_LEN).at(2.0)


def test_every_row_has_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    runs = known_results()
    rows = rows_of(runs)
    assert {row.figure for row in rows} == {"2", "12", "13a", "13b", "14", "15", "16", "17", "19"}
    assert all(r.simulated == 2.0 for r in rows if r.figure in ("12", "14", "16", "17"))
    assert {r.difference for r in rows if r.figure == "17"} == {0.0}
    assert {r.note for r in rows} == {None, *Note}
    found = variations(runs)
    assert found["overhead 25 ms"].rates == {Policy.ORACLE: 2.0, Policy.MAX: 2.0}
    assert not found["overhead 25 ms"].saved and len(found["another seed"].saved) == 12
    print_tables(runs)
    shown = capsys.readouterr().out
    for text in (
        "prompts of 768",
        "341 tokens in common",
        "sigma 1.3 and 1.1",
        "beam switch",
        "Not reproduced",
        "a  The paper's steps were slower",
        "overhead 25 ms",
    ):
        assert text in shown


@pytest.mark.long
def test_the_whole_tables() -> None:
    runs = Runs(replace(Assumptions(), seconds=1800.0))
    runs.compute(os.cpu_count() or 1)
    rows = rows_of(runs)
    assert len(rows) > 40
    assert all(r.simulated > 1 for r in rows if r.figure in ("12", "14", "16", "17"))
    found = variations(runs)
    assert found["as assumed"].held.keys() == set(SYSTEMS)
    # Longer tails: more is reserved that nobody uses, and more of the blocks are a prompt's.
    spread = [found[f"sigma {s}"] for s in ("0.9 and 0.7", "1.3 and 1.1")]
    assert all(v.batch[Policy.PAGED] > 3 * v.batch[Policy.MAX] for v in spread)
    assert all(len(v.saved) == 12 for v in spread)
