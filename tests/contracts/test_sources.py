"""Rules that every source file keeps."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 50
SOURCE_SUFFIXES = {".py", ".cc", ".h", ".pyi"}
PROSE_SUFFIXES = {".md", ".toml", ".yml", ".yaml", ".txt", ""}
"""Of everything else that people read: documents, settings, scripts without a suffix."""
GENERATED = {"src/octavo/_C.pyi"}
MACHINE_PATHS = re.compile(
    # Written so that this file does not match itself.
    "|".join(
        ("/wor[k]/", "/roo[t]/", "/tmp/model[s]", "/hom[e]/(?!octavo|someone)", r"C:\\User[s]")
    )
)


def files() -> list[Path]:
    """Files that are or would be in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    paths = [Path(name) for name in listed.splitlines()]
    assert paths
    return [path for path in paths if (ROOT / path).is_file()]


def sources(*folders: str) -> list[Path]:
    """Source files in these top folders; none: in all."""
    return [
        path
        for path in files()
        if path.suffix in SOURCE_SUFFIXES
        and str(path) not in GENERATED
        and (not folders or path.parts[0] in folders)
    ]


def definitions(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Classes and functions of a module with their dotted names; those inside functions are left out."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[ast.AST, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{prefix}{child.name}"
                yield child, name
                if isinstance(child, ast.ClassDef):
                    yield from walk(child, f"{name}.")

    yield from walk(ast.parse((ROOT / path).read_text()), "")


def test_a_file_is_about_one_noun() -> None:
    texts = [*sources(), *(path for path in files() if path.suffix in {".md", ".svg", ".sh", ""})]
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in texts}
    assert {name: n for name, n in lengths.items() if n > MOST_FILE_LINES} == {}


def test_a_function_fits_a_screen() -> None:
    long = {}
    for path in sources("src"):
        for node, name in definitions(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > MOST_FUNCTION_LINES:
                    long[f"{path}:{node.lineno} {name}"] = length
    assert long == {}


def test_what_is_public_says_what_it_is() -> None:
    silent = []
    for path in sources("src"):
        if (
            not ast.get_docstring(ast.parse((ROOT / path).read_text()))
            and path.name != "__init__.py"
        ):
            silent.append(str(path))
        for node, name in definitions(path):
            assert isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            if not any(part.startswith("_") for part in name.split(".")) and not ast.get_docstring(
                node
            ):
                silent.append(f"{path}:{node.lineno} {name}")
    assert silent == []


def test_no_file_names_a_place_on_one_machine() -> None:
    found = []
    for path in files():
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue  # not text
        found += [
            f"{path}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), 1)
            if MACHINE_PATHS.search(line)
        ]
    assert found == []


def test_packages_are_empty_files() -> None:
    packages = [path for path in sources() if path.name == "__init__.py"]
    filled = [str(path) for path in packages if (ROOT / path).stat().st_size]
    assert filled == ["src/octavo/__init__.py"]
    folders = {path.parent for path in sources("src") if path.suffix == ".py"}
    assert {path.parent for path in packages} == folders, "a folder without __init__.py"


def test_no_file_speaks_of_how_it_was_written() -> None:
    """A reader has the repository and nothing else: no numbers of issues, no plans that lie elsewhere."""
    words = re.compile(
        # Written so that this file does not match itself.
        "|".join((r"\bissue[s] #?\d", r"\bissu[e] #?\d", r"\bphas[e] \d", "known-failure[s]", r"design[.]md",
                  r"\.\./share[d]/", "by the lea[d]", "other enginee[r]", "this sessio[n]", "co-authore[d]")),
        re.IGNORECASE,
    )  # fmt: skip
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in files()
        if path.suffix in SOURCE_SUFFIXES | PROSE_SUFFIXES and path.parts[:2] != ("tests", "data")
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("marker", ["TODO", "FIXME", "XXX", "HACK"])
def test_nothing_is_left_for_later(marker: str) -> None:
    pattern = re.compile(rf"\b{marker}\b")
    own = Path(__file__).relative_to(ROOT)
    found = [
        str(path)
        for path in files()
        if path.suffix in SOURCE_SUFFIXES | PROSE_SUFFIXES
        and path != own
        and pattern.search((ROOT / path).read_text())
    ]
    assert found == []


def test_sleepers_are_woken_by_one_function() -> None:
    """The standard library's notify may overlook who falls asleep just then (csrc/plan/thread_pool.h)."""
    found = [
        (str(path), line.strip())
        for path in sources("csrc")
        for line in (ROOT / path).read_text().splitlines()
        if re.search(r"\.notify_(all|one)\(", line)
    ]
    assert found == [("csrc/plan/thread_pool.h", "word.notify_all();")]
