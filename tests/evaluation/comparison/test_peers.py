import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from octavo.checkpoints.named_models import cache_dir
from octavo.evaluation.comparison.peers import environment as environment_module
from octavo.evaluation.comparison.peers import family as family_module
from octavo.evaluation.comparison.peers.all import PEERS
from octavo.evaluation.comparison.peers.environment import Environment
from octavo.evaluation.comparison.peers.llama_batched_bench import parse_batch
from octavo.evaluation.comparison.peers.llama_cpp import (
    LlamaCppPeer,
    completion_body,
    state_of,
    tokens_of,
)
from octavo.evaluation.comparison.peers.octavo import OctavoSystem
from octavo.evaluation.comparison.peers.peer import (
    OUTPUT_RATE,
    PROMPT_RATE,
    Job,
    ModelFiles,
    PeerError,
    Run,
    ServerCommand,
    rates,
)
from octavo.evaluation.comparison.peers.program import last_words
from octavo.evaluation.comparison.peers.running_server import (
    HOST,
    RunningServer,
    free_port,
    running_server,
)
from octavo.evaluation.comparison.peers.script import INSIDE, call_script, parse_result
from octavo.evaluation.comparison.peers.transformers import TransformersPeer
from octavo.evaluation.comparison.peers.vllm import VllmPeer
from octavo.evaluation.comparison.works import FIRST_TOKEN_P50, PSS, Serving, Starting
from octavo.evaluation.processes import descendants
from octavo.evaluation.throughput import WorkItem
from octavo.progress import silent
from support.text_model import text_model_folder

ITEMS = tuple(WorkItem(f"{i}", tuple(range(10 + i, 20 + 2 * i)), 3 + i) for i in range(4))
OPENVINO_OUTPUT = """\
[INFO] chatter of a library
RESULT {"num_output_tokens": 18, "elapsed_s": 0.5, "state": {"speculation": "off", "prefix_cache": "off"}, "facts": {"max_num_batched_tokens": 256}}
"""
LLAMA_ANSWER = {
    "index": 0, "content": ", a 2", "tokens": [], "id_slot": 0, "stop": True, "tokens_predicted": 4,
    "tokens_evaluated": 8, "generation_settings": {"temperature": 0.0, "n_predict": 4, "ignore_eos": True,
    "samplers": ["penalties", "top_k", "temperature"], "speculative.types": "none"}, "truncated": False,
    "stop_type": "limit", "tokens_cached": 11, "timings": {"cache_n": 0, "prompt_n": 8, "predicted_n": 4},
}  # fmt: skip
"""Of llama-server 11434, without the settings that do not matter here."""
LLAMA_BATCH = """\
{"n_kv_max": 2048, "n_batch": 2048, "n_ubatch": 512, "flash_attn": -1, "is_pp_shared": 0, "n_gpu_layers": -1, "n_threads": 2, "n_threads_batch": 2, "pp": 16, "tg": 16, "pl": 8, "n_kv": 256, "t_pp": 3.829299, "speed_pp": 33.426483, "t_tg": 12.828020, "speed_tg": 9.978157, "t": 16.657318, "speed": 15.368621}

"""


@pytest.fixture
def job() -> Job:
    """Requests to a tiny model."""
    folder = Path(text_model_folder())
    return Job(ModelFiles(folder, folder), ITEMS, ITEMS[:1], num_threads=1)


def test_the_last_line_of_a_script_is_its_result() -> None:
    found = parse_result(OPENVINO_OUTPUT, "warnings")
    assert found["facts"] == {"max_num_batched_tokens": 256}
    assert rates(ITEMS, found["num_output_tokens"], found["elapsed_s"]) == {
        OUTPUT_RATE: 36.0,
        PROMPT_RATE: sum(10 + i for i in range(4)) / 0.5,
    }


def test_a_script_that_fails_is_told_with_its_last_words() -> None:
    said = "Traceback\n  File x\nImportError: libtorch.so: cannot open shared object file\n"
    with pytest.raises(PeerError, match=r"no result came: .*ImportError: libtorch.so"):
        parse_result("loading\n", said)
    assert last_words(" \n") == "it said nothing"


def test_a_missing_token_is_no_result() -> None:
    with pytest.raises(PeerError, match="17 tokens came of 18"):
        rates(ITEMS, 17, 1.0)


def test_a_script_gets_the_whole_job(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "echo.py"
    script.write_text("import sys\nprint('RESULT ' + open(sys.argv[1]).read())")
    found = call_script(Path(sys.executable), str(script), Path("model"), job, {"batch": "2"}, {})
    assert found["requests"] == [
        {"prompt_token_ids": list(item.prompt_token_ids), "max_tokens": item.max_tokens}
        for item in ITEMS
    ]
    assert len(found["warm_up"]) == 1
    assert (found["setting"], found["num_threads"]) == ({"batch": "2"}, 1)
    assert found["max_model_len"] == max(len(i.prompt_token_ids) + i.max_tokens for i in ITEMS)


def test_every_script_is_there_and_is_python() -> None:
    scripts = {path.name: path for path in INSIDE.glob("*.py")}
    for name, path in scripts.items():
        compile(path.read_text(), name, "exec")
    assert {"transformers_static.py", "vllm_offline.py", "openvino_batching.py"} <= set(scripts)


def test_batches_are_not_larger_than_the_requests(job: Job) -> None:
    assert TransformersPeer().settings(job) == [{"batch": "4"}]
    many = replace(job, items=ITEMS * 16)
    assert [s["batch"] for s in TransformersPeer().settings(many)] == ["8", "16", "32"]


def test_a_model_without_a_folder_is_refused(job: Job) -> None:
    bare = replace(job, model=ModelFiles(job.model.gguf, None))
    with pytest.raises(PeerError, match="no folder of bfloat16 weights"):
        TransformersPeer().run(bare, {"batch": "1"})


def test_llama_cpp_is_asked_for_exactly_these_tokens() -> None:
    body = completion_body(ITEMS[0])
    assert body["prompt"] == list(ITEMS[0].prompt_token_ids)
    assert (body["n_predict"], body["temperature"], body["ignore_eos"], body["cache_prompt"]) == (3, 0, True, False)  # fmt: skip
    assert tokens_of(LLAMA_ANSWER) == 4
    assert state_of([LLAMA_ANSWER] * 2) == {"speculation": "off", "prefix_cache": "off"}
    reused = {**LLAMA_ANSWER, "timings": {"cache_n": 5}}
    assert state_of([LLAMA_ANSWER, reused])["prefix_cache"] == "5 tokens came from it"
    with pytest.raises(PeerError, match="without tokens_predicted"):
        tokens_of({"error": {"code": 500}})


def test_each_way_to_run_llama_cpp_is_tried(job: Job) -> None:
    settings = LlamaCppPeer().settings(replace(job, items=ITEMS * 16))
    assert settings == [{"slots": "32", "weights": "as is"}, {"slots": "64", "weights": "as is"}]
    quantized = replace(job, model=ModelFiles(Path("x.Q4_1.gguf"), None), items=ITEMS[:1] * 3)
    assert LlamaCppPeer().settings(quantized) == [
        {"slots": "3", "weights": "Q4_0"}, {"slots": "3", "weights": "as is"},
        {"tool": "llama-batched-bench", "weights": "Q4_0"}, {"tool": "llama-batched-bench", "weights": "as is"},
    ]  # fmt: skip
    with pytest.raises(PeerError, match="llama-batched-bench is no server"):
        LlamaCppPeer().server(quantized, {"tool": "llama-batched-bench", "weights": "as is"}, 1)


def test_the_line_of_a_batch() -> None:
    assert parse_batch(LLAMA_BATCH, 8)["speed_tg"] == 9.978157
    with pytest.raises(PeerError, match="no line of a batch of 16 came"):
        parse_batch(LLAMA_BATCH, 16)


def test_vllm_serves_what_it_runs(job: Job) -> None:
    command = VllmPeer().server(job, {"max_num_seqs": "64"}, 4711)
    assert "--no-enable-prefix-caching" in command.arguments
    assert command.arguments[command.arguments.index("--max-num-seqs") + 1] == "64"
    assert command.state == {"speculation": "off", "prefix_cache": "off"}


class _Commands:
    """Stands for the calls of `venv` and `pip`."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []

    def __call__(self, command: list[str]) -> str:
        self.made.append(command)
        if command[1:3] == ["-m", "venv"]:
            (Path(command[3]) / "bin").mkdir(parents=True)
            (Path(command[3]) / "bin" / "python").touch()
        return json.dumps({"tiny": "1.0", "other": "2.0"})


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    commands = _Commands()
    monkeypatch.setattr(environment_module, "_call", commands)
    tiny = Environment("tiny", ("tiny==1.0",), removed=("bulky",))
    assert tiny.folder.is_relative_to(cache_dir())
    assert tiny.set_up(silent) == {"tiny": "1.0"}
    assert [command[1:4] for command in commands.made[:3]] == [
        ["-m", "venv", str(tiny.folder)], ["-m", "pip", "install"], ["-m", "pip", "uninstall"],
    ]  # fmt: skip
    commands.made.clear()
    assert tiny.set_up(silent) == {"tiny": "1.0"}
    assert len(commands.made) == 1, "only the versions are asked for"
    commands.made.clear()
    replace(tiny, requirements=("tiny==1.0", "other")).set_up(silent)
    assert [command[3] for command in commands.made[:2]] == ["install", "uninstall"]


def test_what_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    (tmp_path / "peers" / "tiny" / "bin").mkdir(parents=True)
    python = tmp_path / "peers" / "tiny" / "bin" / "python"
    python.write_text(
        "#!/bin/sh\necho 'ERROR: No matching distribution found for tiny' >&2\nexit 1\n"
    )
    python.chmod(0o755)
    with pytest.raises(PeerError, match=r"pip install.* failed: ERROR: No matching distribution"):
        Environment("tiny", ("tiny==1.0",)).set_up(silent)


def test_a_server_that_ends_is_told_with_its_last_words() -> None:
    command = ServerCommand((sys.executable, "-c", "print('no such model'); exit(1)"), {}, {})
    with (
        pytest.raises(PeerError, match="ended before it was ready: no such model"),
        running_server(command, free_port()),
    ):
        pass


CARELESS = """
import http.server, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.6: pass\\ntime.sleep(600)"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        used = sum(map(int, open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[11:13]))
        self.send_response(200 if used >= 0.5 * os.sysconf("SC_CLK_TCK") else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A server that is healthy once its child has worked for half a second, and that leaves it behind when it ends."""


def test_what_a_server_leaves_behind_is_ended_and_its_time_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(family_module, "GRACE_S", 0.1)
    port = free_port()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with running_server(
        ServerCommand((sys.executable, "-c", CARELESS, str(port)), {}, {}), port
    ) as server:
        (child,) = descendants(server.pid)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert not Path(f"/proc/{child}").exists()
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= 0.5


@pytest.fixture
def answering_port() -> Iterator[int]:
    """A server with one route that answers and one that refuses."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200 if self.path == "/completion" else 500)
            self.end_headers()
            self.wfile.write(json.dumps(LLAMA_ANSWER).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_answers_of_a_server(answering_port: int) -> None:
    server = RunningServer(answering_port, 1, 0.0)
    assert tokens_of(server.post("/completion", {})) == 4
    with pytest.raises(PeerError, match="/nothing answered 500"):
        server.post("/nothing", {})
    with pytest.raises(PeerError, match="Connection refused"):
        RunningServer(free_port(), 1, 0.0).post("/completion", {})


def test_octavo_runs_as_everybody_runs_it(job: Job) -> None:
    run = OctavoSystem().run(job, {"weights": "bf16", "--block-size": "32"})
    assert run.figures[OUTPUT_RATE] > 0
    assert run.facts["num_threads"] == 1
    run.check()


def test_octavo_refuses_a_flag_that_it_does_not_have(job: Job) -> None:
    with pytest.raises(PeerError, match=r"octavo bench throughput: .*--quantum"):
        OctavoSystem().run(job, {"weights": "bf16", "--quantum": "8"})


def test_octavo_serves_a_load(job: Job) -> None:
    run = Serving().measure(OctavoSystem(), job, {"weights": "bf16"})
    assert set(run.figures) == {OUTPUT_RATE, FIRST_TOKEN_P50, PSS}
    assert all(value > 0 for value in run.figures.values())
    assert 0 < run.facts["load_generator_cpu_share"] < 1
    run.check()


def test_octavo_starts(job: Job) -> None:
    run: Run = Starting().measure(OctavoSystem(), job, {"weights": "bf16"})
    (seconds,) = run.figures.values()
    assert 0.1 < seconds < 60


def test_all_peers_have_a_name_of_their_own() -> None:
    assert {name: peer().name for name, peer in PEERS.items()} == {name: name for name in PEERS}
