"""The way from a clean clone: what is checked, documented and packaged."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from support.command import environment

ROOT = Path(__file__).parents[2]
APT_LINE = "apt-get install -y git make g++ python3 python3-venv python3-dev"


def preflight(tools: Path, python: str = "python3") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shutil.which("bash") or "bash", ROOT / "tools" / "preflight"],
        env={"PATH": str(tools), "PYTHON": python},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with all that is needed and nothing else."""
    for name in ("git", "make", "g++", "uname", "env", "bash", "cat"):
        found = shutil.which(name)
        assert found is not None, f"{name} is missing on this machine"
        (tmp_path / name).symlink_to(found)
    (tmp_path / "python3").symlink_to(sys.executable)
    return tmp_path


def fake(tools: Path, name: str, script: str) -> None:
    (tools / name).unlink(missing_ok=True)
    (tools / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
    (tools / name).chmod(0o755)


def test_a_machine_that_has_everything(tools: Path) -> None:
    result = preflight(tools)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("absent", "named"),
    [("git", "git"), ("g++", "g++"), ("python3", "python3 python3-venv python3-dev")],
)
def test_what_is_missing_is_named_with_the_line_that_brings_it(
    absent: str, named: str, tools: Path
) -> None:
    (tools / absent).unlink()
    result = preflight(tools)
    assert result.returncode == 1
    assert f"missing on this machine: {named}\n" in result.stderr
    assert APT_LINE in result.stderr


def test_an_old_python_is_refused(tools: Path) -> None:
    fake(tools, "python3", '[[ $1 == --version ]] && { echo "Python 3.9.2"; exit 0; }; exit 1')
    result = preflight(tools)
    assert result.returncode == 1
    assert "needs Python 3.10 or newer" in result.stderr
    assert "Python 3.9.2" in result.stderr


@pytest.mark.parametrize("system", ["Darwin arm64", "Linux riscv64", "Linux armv7l"])
def test_another_platform_is_refused(system: str, tools: Path) -> None:
    name, machine = system.split()
    fake(tools, "uname", f"[[ $1 == -s ]] && echo {name} || echo {machine}")
    result = preflight(tools)
    assert result.returncode == 1
    assert result.stderr == f"octavo: runs on Linux on x86-64 and AArch64; this is {system}\n"


def test_the_readme_has_the_same_line() -> None:
    assert APT_LINE in (ROOT / "README.md").read_text()


def test_make_knows_every_target_that_is_named() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    named = {"setup", "serve", "test", "test-long", "check", "wheel", "clean", "docs", "models"}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        named |= set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    assert named <= targets


def test_ci_calls_make_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make check", "make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("tool", ["write_reference.py", "write_fields.py", "measure_paging.py"])
def test_what_is_written_from_the_code_is_current(tool: str) -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / tool, "--check"],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def test_a_plain_install_asks_for_nothing_of_machine_learning() -> None:
    lines = requires("octavo") or []
    plain = [line for line in lines if "extra ==" not in line]
    names = {re.split(r"[<>=!~\[; ]", line)[0].lower() for line in plain}
    assert "numpy" in names
    assert not names & {"torch", "transformers", "triton", "tensorflow", "jax", "vllm", "gguf"}
    assert [line for line in lines if line.startswith("torch==2.13.0") and "test" in line]


def test_every_dependency_is_used_and_credited() -> None:
    """What a plain install brings is named in the sources, or it is dead weight; and in THIRD_PARTY.md."""
    text = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[$(.*?)^\]$", text, re.MULTILINE | re.DOTALL)
    # uvicorn finds httptools by itself.
    modules = {"pyzmq": "zmq", "prometheus-client": "prometheus_client", "httptools": "uvicorn"}
    modules["pyyaml"] = "yaml"
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    credits = (ROOT / "THIRD_PARTY.md").read_text().lower()
    names = re.findall(r'"([\w-]+)', listed)
    assert "numpy" in names
    for name in names:
        module = modules.get(name, name)
        assert re.search(
            rf"^\s*(import|from) {module}\b|[\"']{module}[\"']", sources, re.MULTILINE
        ), name
        assert re.search(rf"\b{name}\b", credits), name


def anchors(page: Path) -> set[str]:
    """The places in a page that a link can name, as GitHub derives them from headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^):]*))?\)", page.read_text()):
            path = page.parent / target if target else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert broken == []


def test_the_index_of_decisions_is_current() -> None:
    folder = ROOT / "docs" / "decisions"
    titles = {
        path.name: path.read_text().splitlines()[0].removeprefix("# ")
        for path in sorted(folder.glob("0*.md"))
    }
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [(title, name) for name, title in titles.items()] == listed


def test_docker_builds_from_what_the_wheel_needs() -> None:
    """.dockerignore lets through what pyproject.toml names, and the files of the build."""
    let_through = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    text = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^license-files = \[(.*)\]$", text, re.MULTILINE)
    needed = {"src", "csrc", "CMakeLists.txt", "pyproject.toml", "README.md"}
    assert needed | set(re.findall(r'"(.*?)"', listed)) <= let_through
