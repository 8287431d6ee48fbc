"""Messages that something has happened to on their way: bits flipped, parts lost, foreign parts, absurd numbers."""

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
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",  # 2^63, which is none
    b"\xff" * 12 + b"\x01",
    b"\x80\x80\x80\x80\x20",  # 2^33
)


def flip_bits(random: Random, value: bytes, _: bytes) -> bytes:
    """Flip one bit, or a few."""
    changed = bytearray(value)
    for _ in range(random.choice((1, 1, 2, 5))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(random: Random, value: bytes, _: bytes) -> bytes:
    """Lose the end, or something in the middle."""
    start = random.randrange(len(value))
    end = len(value) if random.random() < 0.5 else min(len(value), start + random.randint(1, 4))
    return value[:start] + value[end:]


def insert(random: Random, value: bytes, _: bytes) -> bytes:
    """Put random bytes somewhere."""
    at = random.randrange(len(value) + 1)
    return value[:at] + random.randbytes(random.randint(1, 6)) + value[at:]


def splice(random: Random, value: bytes, other: bytes) -> bytes:
    """Go on with the end of another message."""
    return value[: random.randrange(len(value) + 1)] + other[random.randrange(len(other)) :]


def make_huge(random: Random, value: bytes, _: bytes) -> bytes:
    """Put a number where a byte was that is near the end of its type, or beyond it."""
    at = random.randrange(len(value))
    return value[:at] + random.choice(HUGE) + value[at + 1 :]


def lengthen(random: Random, value: bytes, _: bytes) -> bytes:
    """Write a number of one byte with more bytes than it needs."""
    places = [at for at, byte in enumerate(value) if byte < 0x80]
    at = random.choice(places)
    padding = b"\x80" * random.choice((0, 0, 1, 3, 4, 8, 9))
    return value[:at] + bytes([value[at] | 0x80]) + padding + b"\x00" + value[at + 1 :]


def change_branch(random: Random, value: bytes, _: bytes) -> bytes:
    """Name another branch, of the message or of something in it."""
    at = 0 if random.random() < 0.5 else random.randrange(len(value))
    return value[:at] + bytes([random.choice((0, 1, 2, 3, 4, 6, 8, 127))]) + value[at + 1 :]


def replace_by_text(random: Random, value: bytes, _: bytes) -> bytes:
    """Send something else altogether, or behind a head that is right."""
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
    replace_by_text,
)


def mutate(random: Random, originals: Sequence[bytes], count: int) -> list[bytes]:
    """Make messages out of good ones, each kind by turns, some of them changed twice."""
    made = []
    for number in range(count):
        value = MUTATIONS[number % len(MUTATIONS)](random, random.choice(originals), random.choice(originals))
        if value and random.random() < 0.2:
            value = random.choice(MUTATIONS)(random, value, random.choice(originals))
        made.append(value)
    return made
