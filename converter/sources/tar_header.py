"""Headers of a tar: one 512-byte block each, and the records of a pax header."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

BLOCK: Final = 512

_NUMBER = re.compile(rb"[ \0]*([0-7]+)[ \0]*")
_PAX_RECORD = re.compile(rb"(\d{1,7}) ([^=\n\0]+)=")


class Header(NamedTuple):
    """What a header says: the member's name, its size in bytes and its type flag."""

    name: bytes
    size: int
    kind: str


def parse_header(block: bytes) -> Header:
    """Returns what a header says.

    Raises:
        ValueError: it is no header, or a damaged one.
    """
    if len(block) < BLOCK:
        raise ValueError("the header is cut")
    stored = _number(block[148:156])
    total = sum(block) - sum(block[148:156]) + 256
    if stored != total and stored != total - 256 * (
        sum(byte > 127 for byte in block) - sum(byte > 127 for byte in block[148:156])
    ):
        raise ValueError("the header's checksum is wrong")
    kind = chr(block[156])
    if kind == "\0":
        kind = "0"
    size = _number(block[124:136]) if kind in "07" or any(block[124:136]) else 0
    name = block[:100].split(b"\0", 1)[0]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    return Header(name, size, kind)


def _number(field: bytes) -> int:
    if field[0] == 0x80:  # GNU's base-256
        return int.from_bytes(field[1:], "big")
    match = _NUMBER.fullmatch(field)
    if match is None:
        raise ValueError("the header holds a number that is none")
    return int(match[1], 8)


def parse_pax(payload: bytes) -> dict[bytes, bytes]:
    """Returns the records of a pax header: `LENGTH KEY=VALUE` and a newline each.

    Raises:
        ValueError: it is malformed.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(payload):
        match = _PAX_RECORD.match(payload, at)
        end = at + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(payload) or payload[end - 1] != 0x0A:
            raise ValueError("a malformed pax header")
        found[match[2]] = payload[match.end() : end - 1]
        at = end
    if not re.fullmatch(rb"\+?\d{1,32}", found.get(b"size", b"0")):
        raise ValueError("a pax header whose size is no number")
    return found
