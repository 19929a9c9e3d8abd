"""What the writer knows about what is stored: sizes, last uses, pins; and what to evict.

What is evicted together is a *group* (`layout.group_of`): the shard of a unit and a tokenizer, or one unit, manifest or
tokenizer. Rules:

* A manifest that is stored pins its units and their shards. A tokenizer is pinned by its shards.
* What was used longest ago goes first; what was dear to build, for its size, counts as used more recently: every
  doubling of the build time per KiB is worth `cost_bonus_s` seconds. What this node keeps for the others (`owned`)
  counts as used `owned_bonus_s` later than a copy of what others keep, which can be fetched instead of compiled.
* A victim is marked first, and removed when the grace period has passed and nobody has used it meanwhile, so that who
  has just read a manifest still finds its units.

Nothing here touches a disk or a clock: times are given, in whole seconds of the store's clock, so that a simulation can
drive it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gramary.cluster.records import Kind

_ORDER: dict[int, int] = {Kind.MANIFEST: 0, Kind.UNIT: 1, Kind.ENTRY: 1, Kind.TOKENIZER: 2}
"""What is removed before what: nothing that is there names what is gone."""


@dataclass(slots=True)
class Group:
    """Figures of what is evicted together."""

    last_use: int
    size: int = 0
    """Bytes of LMDB pages, roughly: what removing it gives back."""
    cost_ns: int = 0
    count: int = 0
    """Values in it."""


class Ledger:
    """Groups by their keys; see the module's text for the rules."""

    def __init__(self, cost_bonus_s: float = 600.0, owned_bonus_s: float = 6 * 3600.0) -> None:
        self.cost_bonus_s = cost_bonus_s
        self.owned_bonus_s = owned_bonus_s
        self.owned: Callable[[bytes], bool] = lambda digest: False
        """Whether this node is among those that keep what a digest names; whoever knows the cluster sets it."""
        self.groups: dict[bytes, Group] = {}
        self.marked: dict[bytes, int] = {}
        """Victims and when they were marked."""
        self._children: dict[bytes, tuple[bytes, ...]] = {}
        self._pins: Counter[bytes] = Counter()
        self._shards: dict[bytes, set[bytes]] = {}  # of a unit, in any tokenizer
        self._uses: Counter[bytes] = Counter()  # shards of a tokenizer

    def load(self, group: bytes, figures: Group) -> None:
        """Take over a group as it was persisted."""
        self._entered(group)
        self.groups[group] = figures

    def add(self, group: bytes, size: int, cost_ns: int, now: int) -> None:
        """A value was stored."""
        figures = self.groups.get(group)
        if figures is None:
            self._entered(group)
            figures = self.groups[group] = Group(now)
        figures.size += size
        figures.cost_ns += cost_ns
        figures.count += 1
        self.touch(group, now)

    def drop(self, group: bytes, size: int, cost_ns: int) -> None:
        """A value was removed; the group is forgotten with its last one."""
        figures = self.groups.get(group)
        if figures is None:
            return
        figures.size -= size
        figures.cost_ns -= cost_ns
        figures.count -= 1
        if figures.count <= 0:
            self.forget(group)

    def forget(self, group: bytes) -> None:
        """Nothing of a group is stored any more."""
        if self.groups.pop(group, None) is not None:
            self._left(group)

    def _entered(self, group: bytes) -> None:
        if group[0] == Kind.ENTRY and group not in self.groups:
            self._shards.setdefault(_unit_of(group), set()).add(group)
            self._uses[_tokenizer_of(group)] += 1

    def _left(self, group: bytes) -> None:
        self.marked.pop(group, None)
        if group[0] == Kind.ENTRY:
            shards = self._shards.get(_unit_of(group), set())
            shards.discard(group)
            if not shards:
                self._shards.pop(_unit_of(group), None)
            self._uses[_tokenizer_of(group)] -= 1
            if self._uses[_tokenizer_of(group)] <= 0:
                del self._uses[_tokenizer_of(group)]
        elif group[0] == Kind.MANIFEST:
            self.unpin(group)

    def touch(self, group: bytes, now: int) -> bool:
        """The group was used: it is no victim any more. Whether its last use changed."""
        figures = self.groups.get(group)
        if figures is None:
            return False
        self.marked.pop(group, None)
        changed = figures.last_use < now
        figures.last_use = max(figures.last_use, now)
        return changed

    def pin(self, manifest: bytes, units: Iterable[bytes]) -> None:
        """A manifest (its group) needs these units (their digests, of the manifest's own format version)."""
        self.unpin(manifest)
        children = tuple({manifest[1:5] + unit for unit in units})
        self._children[manifest] = children
        self._pins.update(children)

    def unpin(self, manifest: bytes) -> None:
        """A manifest needs nothing any more."""
        for unit in self._children.pop(manifest, ()):
            self._pins[unit] -= 1
            if self._pins[unit] <= 0:
                del self._pins[unit]

    def is_pinned(self, group: bytes) -> bool:
        """Whether something that is stored needs it."""
        return _is_held(group, self._pins, self._uses)

    def _rank(self, group: bytes) -> float:
        figures = self.groups[group]
        per_kib = figures.cost_ns / 1e3 / max(figures.size / 1024, 1.0)
        rank = figures.last_use + self.cost_bonus_s * math.log2(1 + max(per_kib, 0.0))
        return rank + self.owned_bonus_s if self.owned(_unit_of(group)[4:]) else rank

    def mark(self, needed: int, now: int) -> None:
        """Mark victims until removing all that is marked gives `needed` bytes back, or nothing more may go."""
        needed -= sum(self.groups[group].size for group in self.marked)
        if needed <= 0:
            return
        pins, uses = self._pins.copy(), self._uses.copy()
        for group in self.marked:
            self._release(group, pins, uses)
        heap = [
            (self._rank(group), group)
            for group in self.groups
            if group not in self.marked and not _is_held(group, pins, uses)
        ]
        heapq.heapify(heap)
        while heap and needed > 0:
            _, group = heapq.heappop(heap)
            self.marked[group] = now
            needed -= self.groups[group].size
            for one in self._release(group, pins, uses):
                if one in self.groups and one not in self.marked:
                    heapq.heappush(heap, (self._rank(one), one))

    def _release(self, group: bytes, pins: Counter[bytes], uses: Counter[bytes]) -> list[bytes]:
        """Take a group out of these counts; the groups that nothing holds any more then."""
        free: list[bytes] = []
        for unit in _subtract(pins, self._children.get(group, ())):
            free.extend((bytes([Kind.UNIT]) + unit, *self._shards.get(unit, ())))
        if group[0] == Kind.ENTRY:
            free.extend(bytes([Kind.TOKENIZER]) + one for one in _subtract(uses, (_tokenizer_of(group),)))
        return free

    def due(self, now: int, grace_s: int) -> Iterator[bytes]:
        """Marked groups whose grace period is over: manifests, what they pinned, then tokenizers.

        Those that are pinned again lose their mark.
        """
        ripe = [group for group, since in self.marked.items() if now - since >= grace_s]
        ripe.sort(key=lambda group: (_ORDER[group[0]], self.marked[group], self._rank(group)))
        for group in ripe:
            if group not in self.marked:
                continue
            if self.is_pinned(group):
                del self.marked[group]
            else:
                yield group


def _is_held(group: bytes, pins: Counter[bytes], uses: Counter[bytes]) -> bool:
    if group[0] == Kind.TOKENIZER:
        return group[1:] in uses
    return group[0] != Kind.MANIFEST and _unit_of(group) in pins


def _subtract(pins: Counter[bytes], units: Iterable[bytes]) -> list[bytes]:
    """One pin less for each; those that none is left of."""
    free = []
    for unit in units:
        pins[unit] -= 1
        if pins[unit] <= 0:
            del pins[unit]
            free.append(unit)
    return free


def _unit_of(group: bytes) -> bytes:
    """Format version and digest of the unit that a unit's or a shard's group is of."""
    return group[1:5] + group[37:69] if group[0] == Kind.ENTRY else group[1:37]


def _tokenizer_of(group: bytes) -> bytes:
    return group[1:37]
