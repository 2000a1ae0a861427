"""Vector registers that a compiled loop keeps on the stack, found in the object code."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>.+)>:$")
_INSTRUCTION = re.compile(r"^\s*(?P<address>[0-9a-f]+):\t(?P<text>.+)$")


@dataclass(frozen=True, slots=True)
class _Assembly:
    """How an architecture's instructions are written."""

    objdump: str
    jump: re.Pattern[str]
    """With the group `target`."""
    whole_register: re.Pattern[str]
    one_number: re.Pattern[str]
    """Instructions that name a whole register and move one number."""
    stack: re.Pattern[str]
    """A place on the stack, without an index: an index would make it an array."""
    frame: re.Pattern[str]
    """Makes the frame pointer one; else it may hold anything."""
    stack_or_frame: re.Pattern[str]


_X86_64 = _Assembly(
    objdump="objdump",
    jump=re.compile(r"^j\w+\s+(?P<target>[0-9a-f]+) <"),
    whole_register=re.compile(r"%[yz]mm\d"),
    one_number=re.compile(r"\{1to\d+\}|^v\w*broadcast|^vp?insert|^vmov[sdq]s?\s"),
    stack=re.compile(r"\(%rsp\)"),
    frame=re.compile(r"mov\s+%rsp,%rbp"),
    stack_or_frame=re.compile(r"\(%(rsp|rbp)\)"),
)
_AARCH64 = _Assembly(
    objdump="aarch64-linux-gnu-objdump",
    jump=re.compile(r"^(b(\.\w+)?|cbn?z\s.*,|tbn?z\s.*,)\s+(?P<target>[0-9a-f]+) <"),
    whole_register=re.compile(r"^(ldu?r|stu?r|ldp|stp)\s+q\d|^(ld|st)1\s+\{v\d"),
    one_number=re.compile(r"^(ld|st)1\s+\{v[^}]*\}\["),
    stack=re.compile(r"\[sp(, #-?\d+)?\]"),
    frame=re.compile(r"(mov\s+x29, sp|add\s+x29, sp, )"),
    stack_or_frame=re.compile(r"\[(sp|x29)(, #-?\d+)?\]"),
)
_BY_MACHINE = {62: _X86_64, 183: _AARCH64}
"""By e_machine of the ELF header."""


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
    """All spills of an object file of x86-64 or AArch64. Raises CalledProcessError if objdump cannot read it."""
    assembly = _BY_MACHINE[int.from_bytes(object_file.read_bytes()[18:20], "little")]
    listing = subprocess.run(
        [assembly.objdump, "-d", "-C", "--no-show-raw-insn", str(object_file)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found: list[Spill] = []
    for name, body in _functions(listing):
        has_frame = any(assembly.frame.match(i.text) for i in body[:16])
        stack = assembly.stack_or_frame if has_frame else assembly.stack
        for first, last in _innermost_loops(body, assembly.jump):
            found += [
                Spill(name, i.address, i.text)
                for i in body
                if first <= i.address <= last
                and assembly.whole_register.search(i.text)
                and stack.search(i.text)
                and not assembly.one_number.search(i.text)
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


def _innermost_loops(body: list[_Instruction], jump: re.Pattern[str]) -> list[tuple[int, int]]:
    """(first, last) address of each backward jump's range that holds no other such range."""
    start = body[0].address if body else 0
    loops = set()
    for i in body:
        found = jump.match(i.text)
        if found and start <= int(found["target"], 16) <= i.address:
            loops.add((int(found["target"], 16), i.address))
    return [
        (first, last)
        for first, last in loops
        if not any(
            (first, last) != other and first <= other[0] and other[1] <= last for other in loops
        )
    ]
