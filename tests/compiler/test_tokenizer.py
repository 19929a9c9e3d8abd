"""Tokenizers in every form they come in."""

import base64
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gramary.compiler.errors import TokenizerError
from gramary.compiler.tokenizer import Tokenizer

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
RANKS = b"YQ== 0\nYg== 1\nIGE= 3\n"
TEKKEN = {
    "config": {
        "pattern": "",
        "num_vocab_tokens": 3,
        "default_vocab_size": 5,
        "default_num_special_tokens": 3,
        "version": "v3",
    },
    "vocab": [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate([b"a", b"\xff", b"never"])
    ],
    "special_tokens": None,
}


def tokenizer_json(**changes: Any) -> dict[str, Any]:
    added = [
        {"id": 3, "content": "<|im_end|>", "special": True},
        {"id": 4, "content": "<tool>", "special": False},
        {"id": 6, "content": "<|endoftext|>", "special": True},
    ]
    model = {"type": "BPE", "vocab": {"a": 0, "Ġa": 1, "Ã": 2}, "merges": []}
    return {"version": "1.0", "added_tokens": added, "decoder": BYTE_LEVEL, "model": model} | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    return tmp_path


def contents(tokenizer: Tokenizer) -> list[tuple[str, bytes]]:
    return [(tokenizer.token_kind(token), tokenizer.token_bytes(token)) for token in range(len(tokenizer))]


def test_huggingface_file_has_bytes_and_kinds(folder: Path) -> None:
    want = [
        ("text", b"a"),
        ("text", b" a"),
        ("text", b"\xc3"),
        ("special", b"<|im_end|>"),
        ("added", b"<tool>"),
        ("unused", b""),
        ("special", b"<|endoftext|>"),
    ]
    text = json.dumps(tokenizer_json())
    readings = [
        Tokenizer.from_file(folder),
        Tokenizer.from_file(str(folder / "tokenizer.json")),
        Tokenizer.from_huggingface(folder),
        Tokenizer.from_huggingface(folder / "tokenizer.json"),
        Tokenizer.from_huggingface(text),
        Tokenizer.from_huggingface(text.encode()),
    ]
    assert {reading.fingerprint for reading in readings} == {readings[0].fingerprint}
    assert all(contents(reading) == want for reading in readings)
    assert readings[0].special_tokens == {"<|im_end|>": 3, "<tool>": 4, "<|endoftext|>": 6}
    assert len(readings[0].fingerprint) == 64


def test_stop_tokens_come_from_all_that_names_them(folder: Path) -> None:
    assert Tokenizer.from_file(folder).stop_token_ids == (3, 6), "by name, where nothing else tells"
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>"}}))
    assert Tokenizer.from_file(folder).stop_token_ids == (3,)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 6, "vocab_size": 64}))
    assert Tokenizer.from_file(folder).stop_token_ids == (3, 6)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 5]}))
    assert Tokenizer.from_file(folder).stop_token_ids == (3, 4, 5), "the generation's over the model's"
    assert Tokenizer.from_file(folder, stop_token_ids=[0]).stop_token_ids == (0,)
    assert Tokenizer.from_file(folder, stop_token_ids=[]).stop_token_ids == ()


def test_models_may_be_wider_than_their_tokenizer(folder: Path) -> None:
    assert Tokenizer.from_file(folder).model_vocab_size == 7
    (folder / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 64, "eos_token_id": [63]}}))
    tokenizer = Tokenizer.from_file(folder)
    assert (tokenizer.vocab_size, tokenizer.model_vocab_size, tokenizer.stop_token_ids) == (7, 64, (63,))
    assert Tokenizer.from_file(folder, model_vocab_size=128).model_vocab_size == 128
    (folder / "config.json").write_text(json.dumps({"vocab_size": 2}))
    assert Tokenizer.from_file(folder).model_vocab_size == 7, "never narrower than the tokenizer"


@pytest.mark.parametrize("content", ["{", "[]", "", '{"eos_token_id": "x", "vocab_size": -1}', "[" * 100_000])
def test_broken_configurations_say_nothing(folder: Path, content: str) -> None:
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        (folder / name).write_text(content)
    tokenizer = Tokenizer.from_file(folder)
    assert (tokenizer.stop_token_ids, tokenizer.model_vocab_size) == ((3, 6), 7)


def test_tiktoken(tmp_path: Path) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes(RANKS)
    tokenizer = Tokenizer.from_tiktoken(path, {"<|endoftext|>": 4})
    want = [("text", b"a"), ("text", b"b"), ("unused", b""), ("text", b" a"), ("special", b"<|endoftext|>")]
    assert contents(tokenizer) == want
    assert tokenizer.stop_token_ids == (4,)
    assert len(Tokenizer.from_file(path)) == 4
    assert contents(Tokenizer.from_file(path, special_tokens={"<|endoftext|>": 4})) == want
    config = {"added_tokens_decoder": {"4": {"content": "<|endoftext|>"}, "x": 0}, "eos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert contents(Tokenizer.from_file(tmp_path)) == want
    path.rename(tmp_path / "tokenizer.model")
    assert contents(Tokenizer.from_file(tmp_path)) == want


def test_tekken(tmp_path: Path) -> None:
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(TEKKEN))
    for tokenizer in (Tokenizer.from_tekken(path), Tokenizer.from_file(path), Tokenizer.from_file(tmp_path)):
        special = [("special", b"<unk>"), ("special", b"<s>"), ("special", b"</s>")]
        assert contents(tokenizer) == [*special, ("text", b"a"), ("text", b"\xff")]
        assert tokenizer.stop_token_ids == (2,)


def test_plain_bytes() -> None:
    tokenizer = Tokenizer.from_bytes([b"a", None, b"<t>", b""], special={"</s>": 5}, added=[2])
    kinds = [kind for kind, _ in contents(tokenizer)]
    assert kinds == ["text", "unused", "added", "unused", "unused", "special"]
    assert (tokenizer.special_tokens, tokenizer.stop_token_ids) == ({"<t>": 2, "</s>": 5}, (5,))
    assert len(Tokenizer.from_bytes()) == 257
    for special in ({"x": 0}, {"x": -1}, [9]):
        with pytest.raises(TokenizerError):
            Tokenizer.from_bytes([b"a"], special=special)
    with pytest.raises(TokenizerError, match="stop token 1"):
        Tokenizer.from_bytes([b"a"], stop_token_ids=[1])


def test_save_and_open(folder: Path) -> None:
    path = folder / "kept.vocab"
    tokenizer = Tokenizer.from_file(folder, model_vocab_size=64, stop_token_ids=[1, 3])
    tokenizer.save(path)
    for opened in (Tokenizer.open(path), Tokenizer.from_file(path)):
        assert contents(opened) == contents(tokenizer)
        assert (opened.stop_token_ids, opened.model_vocab_size) == ((1, 3), 64)
        assert opened.fingerprint == tokenizer.fingerprint
    assert Tokenizer.open(path, stop_token_ids=[0], model_vocab_size=8).stop_token_ids == (0,)
    path.with_name("kept.vocab.json").unlink()
    assert Tokenizer.open(path).stop_token_ids == (3, 6)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TokenizerError, match="damaged") as caught:
        Tokenizer.open(path)
    assert caught.value.path == str(path)


def test_cache(folder: Path) -> None:
    cache = folder / "cache" / "below"
    first = Tokenizer.from_file(folder, cache_dir=cache)
    (kept,) = cache.iterdir()
    stamp = kept.stat().st_mtime_ns
    second = Tokenizer.from_file(folder, cache_dir=cache)
    assert (contents(first), first.stop_token_ids) == (contents(second), second.stop_token_ids)
    assert kept.stat().st_mtime_ns == stamp, "read, not written again"

    kept.unlink()  # a file that is mapped is replaced, never written into
    kept.write_bytes(b"GRMVOCAB damaged")
    assert contents(Tokenizer.from_file(folder, cache_dir=cache)) == contents(first)
    assert kept.stat().st_size > 100, "replaced"

    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(added_tokens=[])))
    assert len(Tokenizer.from_file(folder, cache_dir=cache)) == 3
    assert len(list(cache.iterdir())) == 2


def test_a_cache_that_cannot_be_written_does_no_harm(folder: Path) -> None:
    (folder / "file").write_text("")
    assert len(Tokenizer.from_file(folder, cache_dir=folder / "file" / "below")) == 7


def test_special_tokens_are_part_of_the_cache_key(tmp_path: Path) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes(RANKS)
    sizes = [len(Tokenizer.from_file(path, special_tokens={"<x>": n}, cache_dir=tmp_path)) for n in (4, 9)]
    assert sizes == [5, 10]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{", "tokenizer.json"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 0}}, "decoder": {"type": "CTC"}}', "from_bytes"),
        ("tekken.json", b'{"default_num_special_tokens": 0, "token_bytes": ""}', "tekken"),
        ("x.tiktoken", b"YQ== 0\nYg== 0\n", "used twice"),
        ("tokenizer.model", b"\n\x0e\n\x05<unk>", "save_pretrained"),
        ("tokenizer.model", b"\x00\x01", "no tokenizer that is known"),
        ("other.txt", b"", "holds no tokenizer"),
    ],
)
def test_errors_name_the_file_and_the_remedy(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.from_file(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.path is not None


def test_missing_files_are_tokenizer_errors(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    for read in (Tokenizer.from_file, Tokenizer.from_huggingface, Tokenizer.from_tekken, Tokenizer.open):
        with pytest.raises(TokenizerError, match=r"none\.json"):
            read(missing)
    with pytest.raises(TokenizerError, match="cannot write"):
        Tokenizer.from_bytes().save(os.devnull + "/x")


def test_transformers_objects_of_each_kind(tmp_path: Path) -> None:
    text = json.dumps(tokenizer_json())
    fast = SimpleNamespace(backend_tokenizer=SimpleNamespace(to_str=lambda: text), eos_token_id=3)
    tokenizer = Tokenizer.from_transformers(fast)
    assert (len(tokenizer), tokenizer.stop_token_ids) == (7, (3,))
    assert len(Tokenizer.from_transformers(fast.backend_tokenizer)) == 7

    encoding = SimpleNamespace(_mergeable_ranks={b"a": 0, b"\xff": 2}, _special_tokens={"<|endoftext|>": 3})
    for tiktoken in (encoding, SimpleNamespace(tokenizer=encoding), SimpleNamespace(model=encoding)):
        want = [("text", b"a"), ("unused", b""), ("text", b"\xff"), ("special", b"<|endoftext|>")]
        assert contents(Tokenizer.from_transformers(tiktoken)) == want

    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(TEKKEN))
    tekkenizer = SimpleNamespace(file_path=path)
    mistral = SimpleNamespace(instruct_tokenizer=SimpleNamespace(tokenizer=tekkenizer))
    for held in (tekkenizer, mistral, SimpleNamespace(tokenizer=mistral, eos_token_id=2)):
        assert len(Tokenizer.from_transformers(held)) == 5

    slow = SimpleNamespace(
        get_vocab=lambda: {"<s>": 0, "▁a": 1, "<0x0A>": 2, "<t>": 3},
        all_special_ids=[0],
        added_tokens_decoder={3: "<t>"},
        sp_model=None,
    )
    want = [("special", b"<s>"), ("text", b" a"), ("text", b"\n"), ("added", b"<t>")]
    assert contents(Tokenizer.from_transformers(slow)) == want
    del slow.sp_model
    with pytest.raises(TokenizerError, match="from_bytes"):
        Tokenizer.from_transformers(slow)
    slow.byte_decoder = {}
    assert Tokenizer.from_transformers(slow).token_bytes(1) == "▁a".encode()
