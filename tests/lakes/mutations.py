"""Damaged messages: with flipped bits, lost parts, foreign parts, or absurd numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

TEXTS = (
    b"",
    b"null",
    b'{"data": {"id": 1}, "time": 4, "diff": 1}',
    b"<html><body>502 Bad Gateway</body></html>",
    "höchst wahrscheinlich kein Avro\n".encode(),
    b"\xff\xfe\x00\x00",
)
HUGE = (
    b"\xfe\xff\xff\xff\x0f",  # 2^31 - 1
    b"\xff\xff\xff\xff\x0f",  # -2^31
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 2^63 - 1
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # -2^63
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",  # 2^63, which no int64 can hold
    b"\xff" * 12 + b"\x01",
    b"\x80\x80\x80\x80\x20",  # 2^32
)


def flip_bits(random: Random, value: bytes, other: bytes) -> bytes:
    """Flip a few bits."""
    changed = bytearray(value)
    for _ in range(random.choice((1, 1, 2, 5))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(random: Random, value: bytes, _: bytes) -> bytes:
    """Cut off the end, or cut out a part."""
    start = random.randrange(len(value))
    end = len(value) if random.random() < 0.5 else min(len(value), start + random.randint(1, 4))
    return value[:start] + value[end:]


def insert(random: Random, value: bytes, _: bytes) -> bytes:
    """Insert random bytes."""
    at = random.randrange(len(value) + 1)
    return value[:at] + random.randbytes(random.randint(1, 6)) + value[at:]


def splice(random: Random, value: bytes, other: bytes) -> bytes:
    """Continue with the end of another message."""
    return value[: random.randrange(len(value) + 1)] + other[random.randrange(len(other)) :]


def make_huge(random: Random, value: bytes, _: bytes) -> bytes:
    """Replace a byte with a number near the limit of an integer type, or beyond it."""
    at = random.randrange(len(value))
    return value[:at] + random.choice(HUGE) + value[at + 1 :]


def lengthen(random: Random, value: bytes, _: bytes) -> bytes:
    """Write a one-byte number as a non-canonical varint."""
    places = [at for at, byte in enumerate(value) if byte < 0x80]
    at = random.choice(places)
    padding = b"\x80" * random.choice((0, 0, 1, 3, 4, 8, 9))
    return value[:at] + bytes([value[at] | 0x80]) + padding + b"\x00" + value[at + 1 :]


def change_branch(random: Random, value: bytes, _: bytes) -> bytes:
    """Change the branch of a union."""
    at = 0 if random.random() < 0.5 else random.randrange(len(value))
    return value[:at] + bytes([random.choice((0, 1, 2, 3, 4, 6, 8, 127))]) + value[at + 1 :]


def replace_with_text(random: Random, value: bytes, _: bytes) -> bytes:
    """Replace the message, or what follows a valid prefix, with text."""
    head = value[: random.choice((0, 0, 1, 2, 5))]
    return head + random.choice(TEXTS)


MUTATIONS: tuple[Callable[[Random, bytes, bytes], bytes], ...] = (
    flip_bits,
    cut,
    insert,
    splice,
    make_huge,
    lengthen,
    change_branch,
    replace_with_text,
)


def mutate(random: Random, originals: Sequence[bytes], count: int) -> list[bytes]:
    """Make `count` damaged messages, with each mutation in turn; some messages are damaged twice."""
    made = []
    for number in range(count):
        value = MUTATIONS[number % len(MUTATIONS)](random, random.choice(originals), random.choice(originals))
        if value and random.random() < 0.2:
            value = random.choice(MUTATIONS)(random, value, random.choice(originals))
        made.append(value)
    return made
