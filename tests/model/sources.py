"""Random sources of keyed records: a log for each partition, and ticks that read it."""

from __future__ import annotations

from random import Random

from tidelake.model.positioned import PositionedStatement

COLUMNS = 3


KEYS = "wxyz"


def random_source(rng: Random, partitions: int, length: int) -> list[list[PositionedStatement]]:
    """The statements of a source, by partition and in order; ticks set the times later.

    A key stays in its partition. There are two kinds of barriers: a truncate, which comes without rows, and the end of
    a snapshot, whose position is just below those of the snapshot's rows.
    """
    logs: list[list[PositionedStatement]] = [[] for _ in range(partitions)]
    for place in range(1, length + 1):
        choice = rng.random()
        if choice < 0.05:
            logs[0].append(PositionedStatement(None, (), (place,), 0, 0))
        elif choice < 0.1:
            for key in rng.sample(KEYS, rng.randint(0, len(KEYS))):
                logs[KEYS.index(key) % partitions].append(_value(rng, key, (place, 0)))
            logs[-1].append(PositionedStatement(None, (), (place,), 0, 0))
        else:
            key = rng.choice(KEYS)
            log = logs[KEYS.index(key) % partitions]
            if choice < 0.3:
                log.append(PositionedStatement(key, (None,) * COLUMNS, (place, 1), 0, -1))
            elif choice < 0.4:
                log.append(PositionedStatement(key, (None,) * COLUMNS, (place, 1), 0, 1, error="not a number"))
            else:
                log.append(_value(rng, key, (place, 1)))
    return logs


def _value(rng: Random, key: str, position: tuple[int, ...]) -> PositionedStatement:
    gone = frozenset(place for place in range(COLUMNS) if rng.random() < 0.3)
    values = tuple(None if place in gone else rng.choice("abc") for place in range(COLUMNS))
    return PositionedStatement(key, values, position, 0, 1, gone)


class Ticks:
    """Ticks that read random parts of a source's partitions, each in order, and sometimes read a part again."""

    def __init__(self, rng: Random, logs: list[list[PositionedStatement]], resent_within: int) -> None:
        self.rng, self.logs, self.resent_within = rng, logs, resent_within
        self.time = 0
        self.next = [0] * len(logs)
        self.first_read: list[list[int]] = [[] for _ in logs]

    @property
    def done(self) -> bool:
        """Whether everything has been read."""
        return all(place == len(log) for place, log in zip(self.next, self.logs, strict=True))

    def tick(self) -> list[PositionedStatement]:
        """Read further, at a time later than that of the last tick."""
        self.time += self.rng.randint(1, 3)
        read: list[PositionedStatement] = []
        for partition, log in enumerate(self.logs):
            again = [
                place
                for place, time in enumerate(self.first_read[partition][: self.next[partition]])
                if self.time - time <= self.resent_within
            ]
            if again and self.rng.random() < 0.3:
                self.next[partition] = self.rng.choice(again)
            # A partition that is sent again is read at least as far as before, so nothing is left out.
            end = max(self.next[partition] + self.rng.randint(0, 3), len(self.first_read[partition]))
            end = min(end, len(log))
            read += [statement._replace(time=self.time) for statement in log[self.next[partition] : end]]
            self.first_read[partition] += [self.time] * (end - len(self.first_read[partition]))
            self.next[partition] = end
        return read
