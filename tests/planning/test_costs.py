"""Cost models: the roofline by hand, and a fit that finds the costs that made the steps."""

import random
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.models.spec import LayerSpec
from octavo.planning.costs import Fitted, Roofline, read_costs, write_costs
from octavo.planning.devices import DEVICES, device_named
from octavo.planning.fitting import fit_costs, relative_errors
from octavo.planning.model_numbers import published
from octavo.planning.work import AttentionSpan, StepWork

TRUE = Fitted((1, 8, 64, 512), (0.002, 0.003, 0.01, 0.1), 1e-4, 2e-8, 5e-9)


def steps(count: int, noise: float) -> list[tuple[StepWork, float]]:
    source = random.Random(1)
    made = []
    for _ in range(count):
        num_tokens = min(512, int(2 ** source.uniform(0, 9)))
        rows = source.randint(1, min(num_tokens, 64))
        keys = rows * source.randint(10, 600) * 30
        work = StepWork(num_tokens, rows, keys, keys + num_tokens * source.randint(0, 3000))
        made.append((work, TRUE.seconds(work) * (1 + noise * source.gauss(0, 1))))
    return made


def test_the_fit_finds_what_made_the_steps() -> None:
    fitted = fit_costs(steps(400, 0.0))
    assert max(map(abs, relative_errors(fitted, steps(400, 0.0)))) < 0.02
    assert fitted.key_s == pytest.approx(TRUE.key_s, rel=0.02)


def test_the_fit_bears_noise_and_steps_that_were_disturbed() -> None:
    measured = steps(600, 0.03)
    disturbed = [(work, s * (4 if i % 10 == 0 else 1)) for i, (work, s) in enumerate(measured)]
    errors = sorted(map(abs, relative_errors(fit_costs(disturbed), steps(600, 0.0))))
    assert errors[300] < 0.03
    assert errors[540] < 0.08


def test_what_waking_up_takes_is_fitted_beside() -> None:
    wakes = [(work, s + 0.0015) for work, s in steps(30, 0.0)]
    assert fit_costs(steps(400, 0.0), wakes).wake_s == pytest.approx(0.0015, rel=0.1)
    assert fit_costs(steps(400, 0.0)).wake_s == 0.0


def test_no_price_is_negative() -> None:
    fitted = fit_costs([(StepWork(i, 1, 1000 - i, 5), 0.001 * i) for i in range(1, 100)])
    assert min(*fitted.knot_seconds, fitted.row_s, fitted.key_s, fitted.pair_s) >= 0


def test_too_few_steps() -> None:
    with pytest.raises(ConfigError, match="at least 20 measured steps; given: 3"):
        fit_costs(steps(3, 0.0))


def test_costs_in_a_file(tmp_path: Path) -> None:
    write_costs(TRUE, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == TRUE


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"knots": [1], "knot_seconds": []}', '{"knots": 3, "knot_seconds": []}'],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(ConfigError, match=r"costs\.json"):
        read_costs(tmp_path / "costs.json")


def test_decoding_of_opt_13b_on_an_a100_reads_the_weights() -> None:
    model = published("opt-13b")
    assert model.token_bytes == 819_200  # as the paper says: 800 KB
    roofline = Roofline(model, 1555e9, 312e12, overhead_s=0.0)
    work = StepWork(1, 1, 40, 40)
    assert roofline.seconds(work) == pytest.approx(26e9 / 1555e9, rel=1e-3)
    prompt = StepWork(2048, 1, 40 * 2048, 40 * 2048 * 2049 // 2)
    assert roofline.seconds(prompt) > 2 * 12.7e9 * 2048 / 312e12


def test_devices_have_names() -> None:
    assert device_named("a100-40gb").memory_bytes == 40 * 1024**3
    assert all(name == device.name and device.source for name, device in DEVICES.items())
    with pytest.raises(ConfigError, match=r"cpu, v100-32gb.*given: a100$"):
        device_named("a100")


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 9), (3, 4), (5, 1), (20, 7)])
def test_keys_and_pairs_counted_one_by_one(start: int, count: int) -> None:
    window = 6
    span = AttentionSpan.of([LayerSpec(rope=0), LayerSpec(rope=0, window=window)])
    seen = [set(range(p + 1)) for p in range(start, start + count)]
    near = [set(range(max(0, p + 1 - window), p + 1)) for p in range(start, start + count)]
    assert span.pairs(start, count) == sum(map(len, seen)) + sum(map(len, near))
    assert span.keys(start, count) == len(set().union(*seen)) + len(set().union(*near))
    if count == 1:
        assert span.decode_keys([start]) == span.keys(start, 1)
