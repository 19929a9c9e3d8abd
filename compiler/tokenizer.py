"""`Tokenizer`: what masking needs to know of a tokenizer, read from whatever form it comes in.

That is the bytes and kind of every token (a `Vocabulary` of the kernel, which keeps and maps them), the tokens that end
a text, and how wide the model's logits are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from gramary.compiler.errors import TokenizerError
from gramary.runtime._core import FORMAT_VERSION, Vocabulary

PathLike = str | os.PathLike[str]
_T = TypeVar("_T")
TokenKind = Literal["text", "added", "special", "unused"]

# Names under which special tokens end a text, used only where nothing else says which do.
_END_NAMES = (
    "</s>",
    "<eos>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|end_of_sentence|>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001  # DeepSeek spells it with these characters
)

# What a folder's tokenizer may be called, best first.
_FILE_NAMES = ("tokenizer.json", "tekken.json", "tekken*.json", "*.tiktoken", "tiktoken.model", "tokenizer.model")

_RANK_LINE = re.compile(rb"\s*[A-Za-z0-9+/]+={0,2} \d+\s*(\n|$)")
_PREPARED = b"GRMVOCAB"


class Tokenizer:
    """A tokenizer prepared for masking. Make one with a `from_...` method.

    Every one of those takes `stop_token_ids`, the tokens that end a text, and `model_vocab_size`, the width of the
    model's logits. Both are found out where the source tells; give them where it does not.

    >>> tokenizer = Tokenizer.from_bytes([b"a", b"b", None, b"</s>"], special=[3])
    >>> tokenizer.vocab_size, tokenizer.stop_token_ids
    (4, (3,))
    >>> [tokenizer.token_kind(token) for token in range(4)]
    ['text', 'text', 'unused', 'special']
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
    ) -> None:
        """`stop_token_ids=None` takes the special tokens whose names are known to end a text."""
        self.vocabulary = vocabulary
        size = len(vocabulary)
        self.model_vocab_size = size if model_vocab_size is None else max(size, model_vocab_size)
        if stop_token_ids is None:
            names = vocabulary.special_tokens()
            stop_token_ids = [names[name] for name in _END_NAMES if name in names]
        self.stop_token_ids = tuple(sorted(set(stop_token_ids)))
        for token in self.stop_token_ids:
            if not 0 <= token < self.model_vocab_size:
                raise TokenizerError(f"stop token {token} lies beyond the {self.model_vocab_size} tokens of the model")

    @property
    def vocab_size(self) -> int:
        """Number of token ids of the tokenizer, holes included. The model may have more: `model_vocab_size`."""
        return len(self.vocabulary)

    @property
    def fingerprint(self) -> str:
        """BLAKE3 over id -> (bytes, kind), in hexadecimal: equal for tokenizers that share everything computed."""
        return self.vocabulary.fingerprint.hex()

    @property
    def special_tokens(self) -> dict[str, int]:
        """Text of every added token, special or not -> id."""
        return self.vocabulary.special_tokens()

    def token_bytes(self, token: int) -> bytes:
        """What the token writes; the name of a special token; nothing for a hole."""
        return self.vocabulary.token_bytes(token)

    def token_kind(self, token: int) -> TokenKind:
        """ "text"; "added" (text, added later); "special" (never matches text); "unused" (no such token)."""
        return cast(TokenKind, self.vocabulary.token_kind(token))

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, stop {list(self.stop_token_ids)}, {self.fingerprint[:16]})"

    @classmethod
    def from_file(
        cls,
        path: PathLike,
        *,
        special_tokens: Mapping[str, int] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
        cache_dir: PathLike | None = None,
    ) -> Tokenizer:
        """From a model's folder or one of its files: `tokenizer.json`, a tekken file, a tiktoken rank file, or a
        vocabulary written by `save`. What the file is is told by its content.

        Stop tokens and the model's size come from `generation_config.json`, `config.json` and `tokenizer_config.json`
        beside it. `special_tokens` are those of a rank file, which lists none itself; by default those of
        `tokenizer_config.json`.

        With `cache_dir` the prepared vocabulary is kept there under the hash of the file's content, and mapped the next
        time: what is left to do is to hash the file, and all processes share the memory.
        """
        file = _find(Path(path))
        data = _read(file)
        beside = _Beside(file.parent)
        if data.startswith(_PREPARED):
            return cls.open(file, stop_token_ids=stop_token_ids, model_vocab_size=model_vocab_size)
        names = beside.special_tokens() if special_tokens is None else special_tokens
        read = _reader(file, data, names)
        vocabulary = read() if cache_dir is None else _cached(Path(cache_dir), data, names, read)
        return cls._beside(vocabulary, beside, stop_token_ids, model_vocab_size)

    @classmethod
    def from_huggingface(
        cls,
        source: PathLike | bytes,
        *,
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
    ) -> Tokenizer:
        """From a `tokenizer.json`: its path, the path of its folder, or its text."""
        if isinstance(source, str) and source.lstrip().startswith("{"):
            source = source.encode()
        if isinstance(source, bytes):
            vocabulary = Vocabulary.from_huggingface(source)
            return cls(vocabulary, stop_token_ids=stop_token_ids, model_vocab_size=model_vocab_size)
        file = Path(source)
        file = file / "tokenizer.json" if file.is_dir() else file
        vocabulary = _placed(file, lambda: Vocabulary.from_huggingface(_read(file)))
        return cls._beside(vocabulary, _Beside(file.parent), stop_token_ids, model_vocab_size)

    @classmethod
    def from_tiktoken(
        cls,
        path: PathLike,
        special_tokens: Mapping[str, int],
        *,
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
    ) -> Tokenizer:
        """From a tiktoken rank file and its special tokens, which are not in the file."""
        file = Path(path)
        vocabulary = _placed(file, lambda: Vocabulary.from_tiktoken(_read(file), dict(special_tokens)))
        return cls(vocabulary, stop_token_ids=stop_token_ids, model_vocab_size=model_vocab_size)

    @classmethod
    def from_tekken(
        cls,
        path: PathLike,
        *,
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
    ) -> Tokenizer:
        """From Mistral's tekken JSON."""
        file = Path(path)
        vocabulary = _placed(file, lambda: Vocabulary.from_tekken(_read(file)))
        return cls(vocabulary, stop_token_ids=stop_token_ids, model_vocab_size=model_vocab_size)

    @classmethod
    def from_transformers(
        cls,
        tokenizer: Any,
        *,
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
    ) -> Tokenizer:
        """From a tokenizer object of `transformers` (fast, slow, based on tiktoken or on `mistral_common`), a
        `tokenizers.Tokenizer`, or a `tiktoken.Encoding`.
        """
        if stop_token_ids is None:
            end = getattr(tokenizer, "eos_token_id", None)
            stop_token_ids = _ids(end) or None
        return cls(_vocabulary_of(tokenizer), stop_token_ids=stop_token_ids, model_vocab_size=model_vocab_size)

    @classmethod
    def from_bytes(
        cls,
        tokens: Sequence[bytes | None] | None = None,
        *,
        special: Mapping[str, int] | Sequence[int] = (),
        added: Sequence[int] = (),
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
    ) -> Tokenizer:
        """From the bytes of each token in id order; `None` where no token has the id.

        `special` tokens never match text: their ids, or names and ids, which then need not be in `tokens`. `added`
        tokens are text that goes by its name as well. Without `tokens`: the 256 bytes and an end token.

        >>> Tokenizer.from_bytes().token_bytes(65), Tokenizer.from_bytes().stop_token_ids
        (b'A', (256,))
        """
        if tokens is None:
            tokens, special = [bytes([byte]) for byte in range(256)], special or {"</s>": 256}
        pieces = list(tokens)
        if isinstance(special, Mapping):
            for name, token in special.items():
                if token < 0:
                    raise TokenizerError(f"special token {name!r} has the id {token}")
                pieces.extend([None] * (token + 1 - len(pieces)))
                if pieces[token] not in (None, name.encode()):
                    raise TokenizerError(f"special token {name!r} has the id of another token, {token}")
                pieces[token] = name.encode()
            special = list(special.values())
        vocabulary = Vocabulary.from_tokens(pieces, special=list(special), added=list(added))
        return cls(vocabulary, stop_token_ids=stop_token_ids, model_vocab_size=model_vocab_size)

    @classmethod
    def open(
        cls,
        path: PathLike,
        *,
        stop_token_ids: Sequence[int] | None = None,
        model_vocab_size: int | None = None,
    ) -> Tokenizer:
        """Map what `save` wrote. It is checked whole, in about a millisecond."""
        file = Path(path)
        vocabulary = _placed(file, lambda: Vocabulary.open(os.fspath(file)))
        facts = _json(_facts_of(file))
        if stop_token_ids is None:
            stop_token_ids = _ids(facts.get("stop_token_ids")) if "stop_token_ids" in facts else None
        size = facts.get("model_vocab_size") if model_vocab_size is None else model_vocab_size
        return cls(vocabulary, stop_token_ids=stop_token_ids, model_vocab_size=size if isinstance(size, int) else None)

    def save(self, path: PathLike) -> None:
        """Write the prepared vocabulary to `path`, and what is the model's (stop tokens, size of its logits), which is
        no part of a vocabulary, to `path` with `.json` added. Each file is replaced as a whole.
        """
        file = Path(path)
        _placed(file, lambda: self.vocabulary.save(os.fspath(file)))
        facts = {"stop_token_ids": list(self.stop_token_ids), "model_vocab_size": self.model_vocab_size}
        _write(_facts_of(file), json.dumps(facts).encode())

    @classmethod
    def _beside(
        cls,
        vocabulary: Vocabulary,
        beside: _Beside,
        stop_token_ids: Sequence[int] | None,
        model_vocab_size: int | None,
    ) -> Tokenizer:
        """With what the files beside the tokenizer's say, where the caller said nothing."""
        size = beside.vocab_size() if model_vocab_size is None else model_vocab_size
        if stop_token_ids is None:
            width = max(len(vocabulary), size or 0)
            known = beside.stop_token_ids(vocabulary.special_tokens())
            stop_token_ids = [token for token in known if token < width] or None
        return cls(vocabulary, stop_token_ids=stop_token_ids, model_vocab_size=size)


class _Beside:
    """The configuration files in a tokenizer's folder. What is missing, broken or of another shape says nothing."""

    def __init__(self, folder: Path) -> None:
        self._generation = _json(folder / "generation_config.json")
        self._model = _json(folder / "config.json")
        self._tokenizer = _json(folder / "tokenizer_config.json")

    def stop_token_ids(self, names: Mapping[str, int]) -> list[int]:
        """All that any of the files names as the end of a text; a model often has several."""
        found = _ids(self._generation.get("eos_token_id")) or _ids(self._text_model("eos_token_id"))
        end = self._tokenizer.get("eos_token")
        name = end.get("content") if isinstance(end, dict) else end
        if isinstance(name, str) and name in names:
            found.append(names[name])
        return found

    def vocab_size(self) -> int | None:
        """Width of the model's logits."""
        size = self._text_model("vocab_size")
        return size if isinstance(size, int) and size > 0 else None

    def special_tokens(self) -> dict[str, int]:
        """Those that `tokenizer_config.json` lists, for rank files."""
        listed = self._tokenizer.get("added_tokens_decoder")
        items = listed.items() if isinstance(listed, dict) else ()
        return {
            token["content"]: int(key)
            for key, token in items
            if key.isdecimal() and isinstance(token, dict) and isinstance(token.get("content"), str)
        }

    def _text_model(self, key: str) -> Any:
        """Models of several modalities keep the language model's configuration one level down."""
        inner = self._model.get("text_config")
        value = self._model.get(key)
        return inner.get(key) if value is None and isinstance(inner, dict) else value


def _find(path: Path) -> Path:
    """The tokenizer's file: `path`, or the best in the folder `path`."""
    if not path.is_dir():
        return path
    for pattern in _FILE_NAMES:
        for file in sorted(path.glob(pattern)):
            return file
    raise TokenizerError(f"{path} holds no tokenizer: none of {', '.join(_FILE_NAMES)}", path=str(path))


def _reader(file: Path, data: bytes, special_tokens: Mapping[str, int]) -> Callable[[], Vocabulary]:
    """How to read `data`, judged by what it looks like."""
    if data[:64].lstrip()[:1] == b"{":
        if b'"default_num_special_tokens"' in data and b'"token_bytes"' in data:
            return lambda: _placed(file, lambda: Vocabulary.from_tekken(data))
        return lambda: _placed(file, lambda: Vocabulary.from_huggingface(data))
    if _RANK_LINE.match(data):
        return lambda: _placed(file, lambda: Vocabulary.from_tiktoken(data, dict(special_tokens)))
    if data.startswith(b"\n"):
        raise TokenizerError(
            f"{file} looks like a SentencePiece model, which is not read; convert it: "
            "transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes a tokenizer.json",
            path=str(file),
        )
    raise TokenizerError(
        f"{file} is no tokenizer that is known: neither a tokenizer.json, nor a tekken file, nor tiktoken ranks",
        path=str(file),
    )


def _cached(
    folder: Path,
    data: bytes,
    special_tokens: Mapping[str, int],
    read: Callable[[], Vocabulary],
) -> Vocabulary:
    """The vocabulary of `data` from the cache, or read and put there. A damaged file in the cache is replaced; a cache
    that cannot be written does no harm.
    """
    key = hashlib.blake2b(data, digest_size=20)
    key.update(json.dumps([FORMAT_VERSION, sorted(special_tokens.items())]).encode())
    file = folder / f"{key.hexdigest()}.vocab"
    if file.exists():
        try:
            return Vocabulary.open(os.fspath(file))
        except TokenizerError:
            pass
    vocabulary = read()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary.save(os.fspath(file))
        return Vocabulary.open(os.fspath(file))  # mapped: its memory is shared with other processes
    except (OSError, TokenizerError):
        return vocabulary


def _vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer object, told by what it offers."""
    fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if callable(getattr(fast, "to_str", None)):
        return Vocabulary.from_huggingface(fast.to_str().encode())

    # tiktoken: an Encoding, or an object that holds one or its parts (the first Qwen, Kimi).
    holders = [tokenizer, *(getattr(tokenizer, name, None) for name in ("tokenizer", "encoding", "model", "encoder"))]
    for holder in holders:
        for ranks, special in (("_mergeable_ranks", "_special_tokens"), ("mergeable_ranks", "special_tokens")):
            table, names = getattr(holder, ranks, None), getattr(holder, special, None)
            if isinstance(table, Mapping) and isinstance(names, Mapping):
                pieces = _by_id((rank, token) for token, rank in table.items())
                return Tokenizer.from_bytes(pieces, special=names, stop_token_ids=()).vocabulary

    # mistral_common: a Tekkenizer, or an object that holds one further down. Its file has the bytes.
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    inner = getattr(getattr(inner, "instruct_tokenizer", inner), "tokenizer", inner)
    if isinstance(file := getattr(inner, "file_path", None), Path) and (data := _read(file)).lstrip().startswith(b"{"):
        return _placed(file, lambda: Vocabulary.from_tekken(data))

    decoder: dict[str, Any]
    if hasattr(tokenizer, "byte_decoder"):
        decoder = {"type": "ByteLevel"}
    elif hasattr(tokenizer, "sp_model"):
        marks = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
        decoder = {"type": "Sequence", "decoders": [marks, {"type": "ByteFallback"}]}
    else:
        name = f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"
        raise TokenizerError(f"{name} does not tell the bytes of its tokens; give them with Tokenizer.from_bytes")
    content = json.dumps(_slow_tokenizer_json(tokenizer, decoder))
    return Vocabulary.from_huggingface(content.encode())


def _slow_tokenizer_json(tokenizer: Any, decoder: dict[str, Any]) -> dict[str, Any]:
    """What `tokenizer.json` would say of a tokenizer written in Python: its pieces, and how they are spelt."""
    control = set(tokenizer.all_special_ids)
    vocab: dict[str, int] = tokenizer.get_vocab()
    added = {token: (piece, True) for piece, token in vocab.items() if token in control}
    for token, text in tokenizer.added_tokens_decoder.items():
        added[int(token)] = (str(text), token in control or bool(getattr(text, "special", False)))
    return {
        "model": {"vocab": {piece: token for piece, token in vocab.items() if token not in added}},
        "added_tokens": [{"id": token, "content": text, "special": is_} for token, (text, is_) in added.items()],
        "decoder": decoder,
    }


def _by_id(tokens: Iterable[tuple[int, bytes]]) -> list[bytes | None]:
    pieces: list[bytes | None] = []
    for token, piece in sorted(tokens):
        pieces.extend([None] * (token + 1 - len(pieces)))
        pieces[token] = piece
    return pieces


def _ids(value: Any) -> list[int]:
    """Token ids from a configuration: one, several or none."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [token for token in values if isinstance(token, int) and not isinstance(token, bool) and token >= 0]


def _placed(path: Path, read: Callable[[], _T]) -> _T:
    """What `read` gives; its errors name the file."""
    try:
        return read()
    except TokenizerError as error:
        if error.path is not None or str(path) in str(error):
            raise
        raise TokenizerError(f"{path}: {error}", path=str(path)) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror or error}", path=str(path)) from error


def _json(path: Path) -> dict[str, Any]:
    """The object in a configuration file; empty if there is none."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _facts_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _write(path: Path, data: bytes) -> None:
    """Replace a file as a whole."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise TokenizerError(f"cannot write {path}: {error.strerror or error}", path=str(path)) from error
