"""vLLM's forms of arguments, files of flags, and the settings printed as one."""

from pathlib import Path

import pytest
import yaml

from octavo.cli.vllm_arguments import texts, with_joined_json, with_repeated_flags
from octavo.errors import ConfigError
from support.command import octavo

JSON_FLAGS = {"--speculative-config", "--port"}
LISTS = {"--served-model-name"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--port", "1"], ["--port", "1"]),
        (["--speculative-config.a", "1"], ["--speculative-config", '{"a": 1}']),
        (
            ["--speculative_config.a_b.c=x", "--speculative-config.a_b.d", "true", "m"],
            ["m", "--speculative-config", '{"a_b": {"c": "x", "d": true}}'],
        ),
        (["./model.gguf", "--other.flag", "1"], ["./model.gguf", "--other.flag", "1"]),
    ],
)
def test_dotted_flags_become_json(given: list[str], expected: list[str]) -> None:
    assert with_joined_json(given, JSON_FLAGS) == expected


@pytest.mark.parametrize(
    "given",
    [
        ["--speculative-config.a", "1", "--speculative-config", "{}"],
        ["--speculative-config.a", "1", "--speculative-config.a", "2"],
        ["--speculative-config.a", "1", "--speculative-config.a.b", "2"],
        ["--speculative-config.", "1"],
    ],
)
def test_dotted_flags_that_contradict_each_other(given: list[str]) -> None:
    with pytest.raises(ConfigError, match="--speculative-config"):
        with_joined_json(given, JSON_FLAGS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "m --served-model-name a b --port 1",
            "m --served-model-name a --served-model-name b --port 1",
        ),
        ("m --served_model_name a b", "m --served_model_name a --served-model-name b"),
        ("--served-model-name a m", "--served-model-name a m"),
        ("m --port 1 2", "m --port 1 2"),
    ],
)
def test_several_values_after_one_flag(given: str, expected: str) -> None:
    assert with_repeated_flags(given.split(), LISTS) == expected.split()


def test_lists_may_be_json() -> None:
    assert texts(['["*"]', "a", "[x"]) == ("*", "a", "[x")
    assert texts(None) == ()


def test_an_unknown_flag_is_refused_with_the_nearest() -> None:
    result = octavo("serve", "--max-model-length", "5")
    assert result.returncode == 2
    assert "No such option: --max-model-length" in result.stderr
    assert "--max-model-len" in result.stderr.replace("--max-model-length", "")


def printed(*arguments: str) -> dict[str, object]:
    result = octavo("serve", *arguments, "--print-config")
    assert result.returncode == 0, result.stderr
    values: dict[str, object] = yaml.safe_load(result.stdout)
    return values


def test_a_file_sets_flags_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(
        "model: from-file\nport: 8123\nmax_num_seqs: 1k\nstrict-requests: true\nserved-model-name: [a, b]\n"
        "speculative-config: {method: ngram}\nseed:\n"
    )
    values = printed("--config", str(file))
    assert (values["model"], values["port"], values["max-num-seqs"]) == ("from-file", 8123, 1000)
    assert values["strict-requests"] is True
    assert values["served-model-name"] == ["a", "b"]
    assert values["speculative-config"] == '{"method": "ngram"}'
    again = printed("mine", "--config", str(file), "--port", "9", "--no-strict-requests")
    assert (again["model"], again["port"], again["strict-requests"]) == ("mine", 9, False)


def test_what_is_printed_is_such_a_file_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "printed.yaml"
    result = octavo(
        "serve",
        "m",
        "--api-key",
        "sesame",
        "-tp",
        "1",
        "--allowed-origins",
        "http://a",
        "--print-config",
    )
    assert "sesame" not in result.stdout
    assert "# api-key: 1 given, not shown" in result.stdout
    file.write_text(result.stdout)
    assert printed("--config", str(file)) == yaml.safe_load(result.stdout)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("max-model-length: 5", "there is no flag --max-model-length; did you mean max-model-len"),
        ("port: true", "port is no switch; given: True"),
        ("strict-requests: 7", "strict-requests must be true or false; given: 7"),
        ("a: [", "--config"),
        ("- a", "it must hold names and values"),
        ("port: 1\nport_: 2", "there is no flag --port-"),
        ("max-num-seqs: 1\nmax_num_seqs: 2", "max-num-seqs is given twice"),
        ("ssl-keyfile: x", "ssl_keyfile needs ssl_certfile"),
        ("enable-lora: true", "--enable-lora is a flag of vLLM that is not supported"),
        ("temperature: 0.5", "--temperature is no setting of a server"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(content)
    result = octavo("serve", "--config", str(file))
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_is_not_there() -> None:
    result = octavo("serve", "--config", "nowhere.yaml")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "nowhere.yaml" in result.stderr
