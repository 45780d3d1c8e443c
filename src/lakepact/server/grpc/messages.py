"""The size of a message's structure, checked on its bytes before it is parsed.

A parsed message takes many times the memory of its bytes if it consists of many small fields.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from lakepact.limits import MESSAGE_FIELDS, LimitExceeded


def check_message(data: bytes, name: str) -> None:
    """Refuse a message with too many top-level fields. Their content is skipped."""
    position = fields = 0
    while position < len(data):
        fields += 1
        if fields > MESSAGE_FIELDS.most:
            raise LimitExceeded(MESSAGE_FIELDS, None, f"the message of {name}")
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                _, position = _varint(data, position)
            case 1:
                position += 8
            case 2:
                length, position = _varint(data, position)
                position += length
            case 5:
                position += 4
            case other:
                raise DecodeError(f"there is no wire type {other}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise DecodeError("the message ends inside of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a number has more than 10 bytes")
