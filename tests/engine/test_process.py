"""The life and the deaths of engine processes."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from octavo.config import Backend
from octavo.core.sampling_params import SamplingParams
from octavo.engine.client import EngineClient
from octavo.engine.messages import RequestEnd, SequenceOutput
from octavo.engine.process import MODULE as MODULE_AS_SHIPPED
from octavo.engine.process import ORPHAN_EXIT_CODE, EngineProcess, start_engine_process
from octavo.errors import EngineDeadError
from support.engine_process import connected, engine_config, generated, is_alive, until
from support.fake_engine import MODULE, Order

LONG = SamplingParams(temperature=0.0, max_tokens=500, ignore_eos=True)


def pid_of(client: EngineClient) -> int:
    return client._process.pid


def state_of(client: EngineClient) -> str:
    return client.state


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def read_to_error(client: EngineClient, request_id: str) -> str:
    """Read a long request; the text of the EngineDeadError that must end it."""
    with pytest.raises(EngineDeadError) as caught:
        async with client.generate(request_id, [Order.DAWDLE, 1], LONG) as stream:
            async for _ in stream:
                pass
    return str(caught.value)


async def test_killed_engine_fails_everything_and_every_later_request() -> None:
    async with connected(engine_config(max_num_seqs=3)) as client:
        await client.wait_ready()
        readers = [asyncio.create_task(read_to_error(client, f"r{i}")) for i in range(6)]
        await until(lambda: client.stats.num_running == 3 and client.stats.num_waiting == 3)
        os.kill(pid_of(client), signal.SIGKILL)
        errors = await asyncio.wait_for(asyncio.gather(*readers), 5)
        assert all("SIGKILL" in error for error in errors)
        assert client.state == "dead"
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            await generated(client, "late", [1])


async def test_a_step_that_raises_ends_the_engine_with_a_reason() -> None:
    async with connected() as client:
        await client.wait_ready()
        reader = asyncio.create_task(read_to_error(client, "bystander"))
        await until(lambda: client.stats.num_running == 1)
        with pytest.raises(EngineDeadError, match="the step was told to fail"):
            await generated(client, "cause", [Order.RAISE])
        assert "the step was told to fail" in await reader
        await until(lambda: client.state == "dead" and not is_alive(pid_of(client)))
        assert client._process.wait() == 1


async def test_a_frozen_process_is_dead_within_the_bound_and_may_recover() -> None:
    async with connected(freeze_timeout_s=2.0) as client:
        await client.wait_ready()
        reader = asyncio.create_task(read_to_error(client, "open"))
        await until(lambda: client.stats.num_running == 1)
        os.kill(pid_of(client), signal.SIGSTOP)
        stopped = time.monotonic()
        assert "has not shown life" in await reader
        assert time.monotonic() - stopped < 2.0 + 2 * 1.0
        assert client.state == "dead"
        with pytest.raises(EngineDeadError):
            await generated(client, "refused", [1])
        os.kill(pid_of(client), signal.SIGCONT)
        await until(lambda: client.state == "ready")
        await until(lambda: client.stats.num_running == 0)
        assert len(await generated(client, "again", [1])) == 8


async def test_a_frozen_idle_process_is_noticed_too() -> None:
    async with connected(freeze_timeout_s=2.0) as client:
        await client.wait_ready()
        os.kill(pid_of(client), signal.SIGSTOP)
        await until(lambda: client.state == "dead")


async def test_a_pause_of_both_processes_is_no_death() -> None:
    """A container that is paused: the front end must not take its own pause for the engine's."""
    async with connected(freeze_timeout_s=2.0) as client:
        await client.wait_ready()
        os.kill(pid_of(client), signal.SIGSTOP)
        time.sleep(5)  # of the front end too: nothing else runs in this thread
        await asyncio.sleep(0.1)  # the first check afterwards
        assert client.state == "ready"
        os.kill(pid_of(client), signal.SIGCONT)
        assert len(await generated(client, "afterwards", [1])) == 8


async def test_a_step_that_never_ends_is_noticed() -> None:
    async with connected(step_timeout_s=1.0) as client:
        await client.wait_ready()
        with pytest.raises(EngineDeadError, match="has not finished a step"):
            await asyncio.wait_for(generated(client, "blocked", [Order.BLOCK]), 5)
        assert client.state == "dead"
    assert not is_alive(pid_of(client))


async def test_drain_finishes_what_is_open_and_takes_nothing_new() -> None:
    async with connected() as client:
        await client.wait_ready()
        open_request = asyncio.create_task(
            generated(client, "open", [Order.DAWDLE], dataclasses.replace(LONG, max_tokens=60))
        )
        await until(lambda: client.stats.num_running == 1)
        drain = asyncio.create_task(client.drain(20.0))
        await asyncio.sleep(0)
        assert state_of(client) == "draining"
        with pytest.raises(EngineDeadError, match="shutting down"):
            await generated(client, "late", [1])
        assert await drain is True
        assert len(await open_request) == 60
        assert state_of(client) == "dead"


async def test_drain_aborts_what_does_not_finish_in_time() -> None:
    async with connected() as client:
        await client.wait_ready()
        items = []

        async def read() -> None:
            async with client.generate("long", [Order.DAWDLE], LONG) as stream:
                async for item in stream:
                    items.append(item)

        reader = asyncio.create_task(read())
        await until(lambda: client.stats.num_running == 1)
        assert await client.drain(0.2) is True
        await reader
        last = [item for item in items if isinstance(item, SequenceOutput)][-1]
        assert last.finish_reason == "abort"
        assert isinstance(items[-1], RequestEnd)


async def test_close_ends_a_process_that_is_still_loading() -> None:
    async with connected() as client:
        pid = pid_of(client)
    assert not is_alive(pid)
    await client.close()


async def test_a_process_that_may_not_be_bound_serves_all_the_same(
    capfd: pytest.CaptureFixture[str],
) -> None:
    absent = 8191  # no machine has so many CPUs; a container that forbids it is told likewise
    async with connected(dataclasses.replace(engine_config(), cpus=(absent,))) as client:
        await client.wait_ready()
        assert await generated(client, "a", [1])
    assert f"could not be bound to CPUs ({absent},)" in capfd.readouterr().err


async def test_an_idle_engine_uses_no_time() -> None:
    async with connected() as client:
        await client.wait_ready()
        await generated(client, "warm", [1])
        spent = []
        for _ in range(4):  # the clock ticks in 10 ms, and a loaded machine makes waking up dearer
            before = cpu_seconds(pid_of(client))
            await asyncio.sleep(1.5)
            spent.append(cpu_seconds(pid_of(client)) - before)
            if spent[-1] <= 0.03:
                return
        pytest.fail(f"an idle engine used {spent} of 1.5 seconds")


async def test_signals_to_the_group_are_left_to_the_front_end() -> None:
    async with connected() as client:
        await client.wait_ready()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid_of(client), number)
        assert len(await generated(client, "after", [1])) == 8
        assert os.getpgid(pid_of(client)) != os.getpgid(0)


async def test_nothing_is_left_on_disk() -> None:
    async with connected() as client:
        await client.wait_ready()
        directory = client._process.endpoint.directory
        assert not directory.exists()
        os.kill(pid_of(client), signal.SIGKILL)
        await until(lambda: client.state == "dead")


def test_the_folder_is_private_until_it_is_gone() -> None:
    process = start_engine_process(engine_config(), module=MODULE)
    try:
        directory = process.endpoint.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        assert (directory / "pulse").stat().st_mode & 0o777 == 0o600
    finally:
        process.kill()
    assert not directory.exists()


def environment_here(**changes: str) -> dict[str, str]:
    """For processes that find the same modules as this one."""
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **changes)


PARENT = """
    import sys, threading, time
    from support.engine_process import engine_config
    from support.fake_engine import MODULE
    from octavo.engine.process import start_engine_process

    def start():
        print(start_engine_process(engine_config(), module=MODULE).pid, flush=True)

    if sys.argv[1] == "thread":
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
    else:
        start()
    time.sleep(60)
"""


@pytest.mark.parametrize("starter", ["main", "thread"])
def test_an_engine_does_not_outlive_its_parent(starter: str, tmp_path: Path) -> None:
    environment = environment_here(TMPDIR=str(tmp_path))
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), starter],
        stdout=subprocess.PIPE,
        env=environment,
    )
    with parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            time.sleep(
                1.5
            )  # also an engine that is past its start, whose starting thread has ended
            assert is_alive(pid)
        finally:
            parent.kill()
    deadline = time.monotonic() + 5
    while is_alive(pid):
        assert time.monotonic() < deadline, "the engine outlives its parent"
        time.sleep(0.05)


def test_an_engine_whose_parent_is_gone_at_once_ends() -> None:
    code = "from octavo.engine.process import _end_if_orphaned; _end_if_orphaned(1 << 22)"
    environment = environment_here()
    result = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert result.returncode == ORPHAN_EXIT_CODE


def test_starting_imports_little() -> None:
    code = (
        "import sys; import octavo.engine.process;"
        "print(sorted({'zmq', 'numpy', 'fastapi', 'pydantic', 'asyncio'} & set(sys.modules)))"
    )
    environment = environment_here()
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert output.stdout.strip() == "[]"


def test_the_engine_process_imports_no_server(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import sys
        import octavo.engine.build, octavo.engine.service, octavo.engine.channel
        names = {"fastapi", "pydantic", "jinja2", "uvicorn", "torch", "transformers", "tokenizers", "asyncio"}
        print(sorted(names & set(sys.modules)))
    """)
    environment = environment_here()
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert output.stdout.strip() == "[]"


async def test_close_without_connect_ends_the_process() -> None:
    process = start_engine_process(engine_config(), module=MODULE)
    client = EngineClient(process)
    await client.close()
    await client.close()
    assert not is_alive(process.pid)
    assert not process.endpoint.directory.exists()


def test_a_loop_that_ends_first_is_no_error() -> None:
    """The thread that waits for the process may outlive the event loop."""
    process = start_engine_process(engine_config(), module=MODULE)
    asyncio.run(_connect_and_leave(process))
    process.kill()
    time.sleep(0.3)  # an exception in the thread would fail the test
    assert "octavo-engine-exit" not in {thread.name for thread in threading.enumerate()}


async def _connect_and_leave(process: EngineProcess) -> None:
    client = EngineClient(process)
    await client.connect()
    await client.wait_ready()
    asyncio.get_running_loop().remove_reader(client._channel.fileno())
    client._check_timer.cancel()
    client._channel.close()
    client._pulse.close()


async def test_leaving_and_asking_just_after_a_kill_is_no_strange_error() -> None:
    """The process is gone, but the client has not been told yet."""
    async with connected() as client:
        await client.wait_ready()
        async with client.generate("open", [Order.DAWDLE], LONG) as stream:
            await anext(stream)
            client._process.stop()
            while is_alive(pid_of(client)):
                time.sleep(0.01)  # the event loop must not run here
        assert client.state == "ready"
        with pytest.raises(EngineDeadError):
            await generated(client, "late", [1])


@pytest.mark.parametrize("backend", list(Backend))
async def test_the_shipped_process_serves_both_backends(backend: Backend) -> None:
    config = dataclasses.replace(engine_config(), backend=backend)
    async with connected(config, module=MODULE_AS_SHIPPED) as client:
        ready = await client.wait_ready()
        assert (ready.isa == "numpy") == (backend is Backend.REFERENCE)
        assert len(await generated(client, "a", [5, 6, 7])) == 8
        assert await client.drain(5.0) is True
