"""Values that are nearly valid: a valid one of which a member goes, another comes, or something changes a little.

Outputs of masks say that nothing invalid is allowed. Mutants of them say the rest: each is judged, and a matcher must
accept it exactly if it is valid.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

ANYTHING: list[Any] = [None, True, False, 0, -1, 1.5, 100, "", "a", "a b", "2024-01-01", [], {}, ["a"], [1], {"a": 1}]
NO_NAMES = ["", "x-more", "A", "é"]
MOST = 10**15
"""Numbers of a size at which `json.dumps` writes neither exponents nor infinities."""


def constants_of(schema: Any) -> list[Any]:
    """Values that a schema mentions."""
    found: list[Any] = []
    work = [schema]
    while work:
        at = work.pop()
        if isinstance(at, dict):
            found += [at[keyword] for keyword in ("const", "default", "example") if keyword in at]
            for keyword in ("enum", "examples"):
                found += at[keyword][:8] if isinstance(at.get(keyword), list) else []
            work += at.values()
        elif isinstance(at, list):
            work += at
    return found


def plain(text: str | bytes | bytearray) -> Any:
    """The value of a text, with no number that is written in another way than as it stands."""
    return json.loads(text, parse_float=lambda digits: value if abs(value := float(digits)) < MOST else 1.5)


class Mutants:
    """Makes mutants, with the names and the constants of a schema above all."""

    def __init__(self, chance: random.Random, names: list[str], constants: list[Any]) -> None:
        self.chance, self.names, self.constants = chance, names, constants

    def of(self, value: Any) -> Any:
        """One mutant of a value."""
        root = [json.loads(json.dumps(value))]
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            holder, key = self.chance.choice(list(places(root)))
            holder[key] = self._other(holder[key])
        return root[0]

    def _other(self, value: Any) -> Any:
        kind = self.chance.random()
        if kind < 0.25:
            return self._anything()
        if isinstance(value, dict):
            return self._object(value, kind)
        if isinstance(value, list):
            return self._array(value, kind)
        if isinstance(value, str):
            return self.chance.choice((value + "a", value[:-1], value.upper(), f" {value}", value[::-1]))
        if isinstance(value, int | float) and not isinstance(value, bool):
            near = self.chance.choice((value + 1, value - 1, -value, value / 2, value * 10))
            return near if abs(near) < MOST else 0
        return self._anything()

    def _object(self, value: dict[str, Any], kind: float) -> dict[str, Any]:
        members = list(value.items())
        if kind < 0.5 and members:
            members.pop(self.chance.randrange(len(members)))
        elif kind < 0.9:
            known = self.names and self.chance.random() < 0.85
            members.append((self.chance.choice(self.names if known else NO_NAMES), self._anything()))
        else:
            self.chance.shuffle(members)
        return dict(members)

    def _array(self, value: list[Any], kind: float) -> list[Any]:
        items = list(value)
        if kind < 0.5 and items:
            items.pop(self.chance.randrange(len(items)))
        else:
            again = items and self.chance.random() < 0.5
            items.insert(self.chance.randint(0, len(items)), self.chance.choice(items) if again else self._anything())
        return items

    def _anything(self) -> Any:
        known = self.constants and self.chance.random() < 0.6
        return json.loads(json.dumps(self.chance.choice(self.constants if known else ANYTHING)))


def places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Every place inside of a container, however deep: the container at hand, and the key or index."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from places(holder[key])
