"""The oracle: a slow recogniser of the grammar IR, in plain Python, that shares nothing with the kernel.

It reads the JSON form of ``ir::Grammar`` and answers, for every sequence of bytes and special tokens, whether some word
of the language starts with it (*viable*) and whether it is a word (*complete*).

How it works, in three steps:

* An expression is an immutable, interned tree (`trees`), so equal trees are the same object. `language` reads a grammar
  into them; `objects` and `dispatch` are trees that unfold, one pair or one byte at a time, into ordinary ones.
* `derivatives` gives the trees that describe what may follow once a tree has read a symbol, and the references that it
  may make first, each with the tree that follows.
* Recursion is left to a textbook Earley recogniser (`recogniser`).

Trees that cannot lead to any word are dropped (`productivity`). What remains at a position is therefore never a dead
end, so that *viable* means "is the start of a word", which is more than the kernel's stepping promises by itself:
a dead end in the kernel's automata shows up as a difference.

That strings are distinct is enforced beside it (`distinct`).
"""

from .recogniser import Reference, State
from .trees import Special

__all__ = ["Reference", "Special", "State"]
