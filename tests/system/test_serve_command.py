"""`octavo serve` as a user runs it: what it prints works when it is pasted, and signals end it."""

import contextlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue

import httpx
import pytest

from octavo import LLM, SamplingParams
from octavo.evaluation.processes import descendants, process_use
from support.command import environment, octavo
from support.text_model import text_model_folder, write_text_model

START_TIMEOUT_S = 60.0


class Serving:
    """A running `octavo serve`; its output is read as it comes."""

    def __init__(self, *arguments: str) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        self.errors: list[str] = []
        self._lines: Queue[str] = Queue()
        for stream, take in (
            (self.process.stdout, self._lines.put),
            (self.process.stderr, self.errors.append),
        ):
            assert stream is not None
            threading.Thread(target=lambda s=stream, t=take: [t(line) for line in s]).start()
        self.greeting: list[str] = []

    def wait_ready(self) -> str:
        """Read to the last line of the greeting; the server's address."""
        while not self.greeting or f"{sys.executable} -c " not in self.greeting[-1]:
            try:
                self.greeting.append(self._lines.get(timeout=START_TIMEOUT_S).rstrip("\n"))
            except Empty:
                raise AssertionError("".join(self.errors)) from None
        found = re.search(r"http://\S+", self.greeting[0])
        assert found is not None
        return found[0]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Serving]:
    server = Serving(*arguments)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        for stream in (server.process.stdout, server.process.stderr):
            assert stream is not None
            stream.close()


def run_line(line: str) -> str:
    """Run a line of the greeting as a shell would."""
    command = shlex.split(line)
    result = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def request_of_curl(line: str) -> httpx.Response:
    """What the printed curl command asks, asked without curl, which a new machine may lack."""
    name, url, flag, header, data_flag, body = shlex.split(line)
    assert (name, flag, data_flag) == ("curl", "-H", "-d")
    key, value = header.split(": ")
    return httpx.post(url, headers={key: value}, content=body, timeout=60)


def test_what_is_printed_works_when_it_is_pasted() -> None:
    with serving(str(text_model_folder()), "--served-model-name", "tiny") as server:
        server.wait_ready()
        curl, python = (
            line for line in server.greeting if line.startswith(("curl ", sys.executable))
        )
        answer = request_of_curl(curl)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == "tiny"
        assert answer.json()["choices"][0]["message"]["role"] == "assistant"
        run_line(python)
        assert "pages of 16" in "\n".join(server.greeting)
        assert server.end() == 0


def test_a_base_model_is_greeted_with_completions(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    write_text_model(folder)
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<bos>", "eos_token": "<eos>"}')
    with serving(str(folder)) as server:
        server.wait_ready()
        (curl,) = (line for line in server.greeting if line.startswith("curl "))
        assert "/v1/completions" in curl
        assert request_of_curl(curl).json()["choices"][0]["text"] is not None
        run_line(server.greeting[-1])
        assert server.end(signal.SIGINT) == 0


def test_flags_reach_the_engine_and_the_server() -> None:
    flags = ("--block-size", "32", "--num-gpu-blocks-override", "12", "--max-model-len", "64")
    with serving(str(text_model_folder()), *flags, "--strict-requests") as server:
        url = server.wait_ready()
        text = "\n".join(server.greeting)
        assert "12 pages of 32 = 384 tokens, 6 sequences of 64" in text
        card = httpx.get(f"{url}/v1/models").json()["data"][0]
        assert card["id"] == str(text_model_folder())
        assert card["max_model_len"] == 64
        body = {"prompt": "Hi", "max_tokens": 1, "surprise": 1}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=30).status_code == 400
        assert server.end() == 0


def test_a_seed_fixes_the_answers_to_requests_without_one() -> None:
    """The same seed and order of requests: the same tokens, by the server and offline."""
    asked = {"prompt": "Hi", "max_tokens": 12, "ignore_eos": True, "return_token_ids": True}
    with serving(str(text_model_folder()), "--seed", "5", "--num-blocks-override", "12") as server:
        url = server.wait_ready()
        answers = [httpx.post(f"{url}/v1/completions", json=asked, timeout=30) for _ in range(2)]
        first, second = (answer.json()["choices"][0]["token_ids"] for answer in answers)
        assert first != second
        assert server.end() == 0
    with LLM(text_model_folder(), seed=5, num_gpu_blocks_override=12) as llm:
        params = SamplingParams(max_tokens=12, ignore_eos=True)
        offline = [llm.generate("Hi", params, use_tqdm=False)[0].outputs[0] for _ in range(2)]
    assert [first, second] == [output.token_ids for output in offline]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "there is no model 'nothing'"),
        (("--block-size", "17"), "block_size must be one of"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
        (("--port", "80000"), "port must be from 0 to 65535; given: 80000"),
        (("--max_model_len", "99999"), "max_model_len must be at most 512"),
        (("--num-blocks-override", "1000M"), "more than the memory of this machine"),
        (("--temperature", "1"), "no setting of a server: set temperature in each request"),
        (("--ignore-eos",), "no setting of a server: set ignore_eos in each request"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    model = () if arguments == ("nothing",) else (str(text_model_folder()),)
    result = octavo("serve", *model, *arguments)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("octavo: ")
    assert message in line


def test_a_context_smaller_than_the_usual_answer_gets_a_shorter_one() -> None:
    with serving(str(text_model_folder()), "--num-blocks-override", "3") as server:
        server.wait_ready()
        text = "\n".join(server.greeting)
        assert "3 pages of 16 = 48 tokens, 1 sequence of 48\n" in text
        assert "kv cache taken as needed, at most " in text
        assert re.search(r"^  \d.* in use now by all processes$", text, re.MULTILINE)
        assert "0.00 GiB" not in text
        (curl,) = (line for line in server.greeting if line.startswith("curl "))
        assert request_of_curl(curl).status_code == 200
        assert server.end() == 0
        log = "".join(server.errors)
        assert "stopped" in log
        assert "serves no more" not in log


def test_a_port_in_use_is_named() -> None:
    with serving(str(text_model_folder())) as server:
        port = server.wait_ready().rsplit(":", 1)[1]
        result = octavo("serve", str(text_model_folder()), "--port", port)
        assert result.returncode == 2
        assert result.stderr == f"octavo: port {port} is in use; choose another with --port\n"
        assert server.end() == 0


def test_an_early_sigterm_ends_it_with_0() -> None:
    with serving(str(text_model_folder())) as server:
        pid = server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        while server.process.poll() is None and not children.read_text():
            time.sleep(0.01)  # until it has started its engine
        assert server.end() == 0


@pytest.mark.model
def test_the_default_model_answers_soon(smollm2_path: Path) -> None:
    """Under a second on an idle machine with a warm disk. On a busy one CPU time says more: about 0.6 s for each process."""
    with serving() as server:
        url = server.wait_ready()
        body = {
            "model": "smollm2",
            "prompt": "The capital of France is",
            "max_tokens": 1,
            "temperature": 0,
        }
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=30).json()
        seconds = time.perf_counter() - server.started
        assert answer["choices"][0]["text"] == " Paris"
        assert seconds < 15, "".join(server.errors)
        pids = (server.process.pid, *descendants(server.process.pid))
        cpu_s = [process_use(pid).cpu_s for pid in pids]
        assert len(cpu_s) == 2
        assert max(cpu_s) < 1.5, cpu_s
        assert server.end() == 0
