"""Vector registers that a compiled loop keeps on the stack, found in the object code."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>.+)>:$")
_INSTRUCTION = re.compile(r"^\s*(?P<address>[0-9a-f]+):\t(?P<text>.+)$")
_JUMP = re.compile(r"^j\w+\s+(?P<target>[0-9a-f]+) <")
_WHOLE_REGISTER = re.compile(r"%[yz]mm\d")
_ONE_NUMBER = re.compile(r"\{1to\d+\}|^v\w*broadcast|^vp?insert|^vmov[sdq]s?\s")


@dataclass(frozen=True, slots=True)
class Spill:
    """An instruction of an innermost loop that moves a whole vector to or from a fixed place of the stack."""

    function: str
    address: int
    text: str


@dataclass(frozen=True, slots=True)
class _Instruction:
    address: int
    text: str


def find_spills(object_file: Path) -> list[Spill]:
    """All spills of an object file. Raises CalledProcessError if objdump cannot read it."""
    listing = subprocess.run(
        ["objdump", "-d", "-C", "--no-show-raw-insn", str(object_file)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found: list[Spill] = []
    for name, body in _functions(listing):
        stack = _stack_operand(body)
        for first, last in _innermost_loops(body):
            found += [
                Spill(name, i.address, i.text)
                for i in body
                if first <= i.address <= last
                and _WHOLE_REGISTER.search(i.text)
                and stack.search(i.text)
                and not _ONE_NUMBER.search(i.text)
            ]
    return found


def _functions(listing: str) -> list[tuple[str, list[_Instruction]]]:
    functions: list[tuple[str, list[_Instruction]]] = []
    for line in listing.splitlines():
        if header := _FUNCTION.match(line):
            functions.append((header["name"], []))
        elif functions and (match := _INSTRUCTION.match(line)):
            functions[-1][1].append(_Instruction(int(match["address"], 16), match["text"].strip()))
    return functions


def _stack_operand(body: list[_Instruction]) -> re.Pattern[str]:
    """A place on the stack, without an index: an index would make it an array. rbp may hold anything else."""
    has_frame = any(re.match(r"mov\s+%rsp,%rbp", i.text) for i in body[:16])
    registers = "rsp|rbp" if has_frame else "rsp"
    return re.compile(rf"\(%({registers})\)")


def _innermost_loops(body: list[_Instruction]) -> list[tuple[int, int]]:
    """(first, last) address of each backward jump's range that holds no other such range."""
    start = body[0].address if body else 0
    loops = set()
    for i in body:
        jump = _JUMP.match(i.text)
        if jump and start <= int(jump["target"], 16) <= i.address:
            loops.add((int(jump["target"], 16), i.address))
    return [
        (first, last)
        for first, last in loops
        if not any(
            (first, last) != other and first <= other[0] and other[1] <= last for other in loops
        )
    ]
