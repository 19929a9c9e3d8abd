"""Where a text stops matching, and what could have stood there, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramary.compiler import Compiler
from gramary.runtime import CompiledGrammar, Matcher, allocate_bitmask, tokens_of

_NAMES = {0x09: "tab", 0x0A: "newline", 0x0D: "carriage return", 0x20: "space"}
_FIRST_STEP = 1 << 14


@dataclass(frozen=True)
class Verdict:
    """How a text fared. `offset` counts the bytes that match; `line` and `column` (in characters) count from 1."""

    matches: bool
    stopped: bool
    offset: int
    line: int
    column: int
    before: str
    found: str
    allowed_bytes: list[str]
    allowed_tokens: int
    examples: list[str]
    may_end: bool

    def as_dict(self) -> dict[str, Any]:
        """The same, for JSON."""
        return dict(vars(self))


def judge(compiler: Compiler, grammar: CompiledGrammar, data: bytes, examples: int = 8) -> Verdict:
    """Match `data`; what is allowed is told for the place where it stops or, if it never does, for its end."""
    matcher = grammar.matcher()
    offset = accepted_prefix(matcher, data)
    stopped = offset < len(data)
    tokens = _allowed(compiler, matcher)
    text = [(token, compiler.vocabulary.token_bytes(token)) for token in tokens]
    first = sorted({spelled[0] for _, spelled in text if spelled})
    special = [token for token, spelled in text if not spelled or compiler.vocabulary.token_kind(token) == "special"]
    shown = sorted((spelled for _, spelled in text if spelled), key=lambda spelled: (len(spelled), spelled))
    head = data[:offset].decode(errors="ignore")
    return Verdict(
        matches=not stopped and matcher.is_complete(),
        stopped=stopped,
        offset=offset,
        line=head.count("\n") + 1,
        column=len(head) - (head.rfind("\n") + 1) + 1,
        before=head[-40:],
        found=data[offset : offset + 20].decode(errors="replace"),
        allowed_bytes=byte_ranges(first),
        allowed_tokens=len(tokens) - len(special),
        examples=[spelled.decode(errors="backslashreplace") for spelled in shown[-examples:]],
        may_end=matcher.is_complete(),
    )


def accepted_prefix(matcher: Matcher, data: bytes) -> int:
    """Bytes of the longest prefix that `matcher` accepts; it stands after them."""
    offset, step = 0, _FIRST_STEP
    while offset < len(data):
        if matcher.accept_bytes(data[offset : offset + step]):
            offset += step
        elif step == 1:
            break
        else:
            step //= 2
    return min(offset, len(data))


def _allowed(compiler: Compiler, matcher: Matcher) -> list[int]:
    bitmask = allocate_bitmask(1, compiler.vocab_size)
    matcher.fill_bitmask(bitmask)
    ids: list[int] = np.asarray(tokens_of(bitmask, len(compiler.vocabulary))).tolist()
    return [token for token in ids if token not in compiler.stop_token_ids]


def byte_ranges(values: list[int]) -> list[str]:
    """Bytes in words: runs of letters or digits as ranges, controls by name, bytes of longer characters together.

    >>> byte_ranges([0x0A, 0x20, 0x2C, 0x30, 0x31, 0x32, 0x61, 0xC3, 0xC4])
    ['newline', 'space', "','", "'0'-'2'", "'a'", 'characters beyond ASCII']
    """
    out: list[str] = []
    at = 0
    ascii_values = [value for value in values if value < 0x80]
    while at < len(ascii_values):
        end = at
        while end + 1 < len(ascii_values) and ascii_values[end + 1] == ascii_values[end] + 1:
            end += 1
        low, high = ascii_values[at], ascii_values[end]
        if end - at < 2 or low <= 0x20:
            out.append(_name(low))
            at += 1
        else:
            out.append(f"{_name(low)}-{_name(high)}")
            at = end + 1
    if len(ascii_values) < len(values):
        out.append("characters beyond ASCII")
    return out


def _name(value: int) -> str:
    return _NAMES.get(value) or (repr(chr(value)) if 0x20 < value < 0x7F else f"byte {value:#04x}")
