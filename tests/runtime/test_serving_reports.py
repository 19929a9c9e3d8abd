"""Reports of real users of serving engines, each as a test of its whole kind (issue 4).

They run on a simulated engine (`engine_simulator`), which calls the backend as vLLM does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import numpy as np
import pytest

from gramary.compiler import (
    GramaryError,
    InvalidPattern,
    InvalidSchema,
    Tokenizer,
    UnsatisfiableSchema,
)
from gramary.runtime.serving import Admission, Kind, RequestGrammar, WorkerOptions

from .engine_simulator import Engine, Request, first, preferring, random_sampler

END = 256
SPECS: list[tuple[Kind, str]] = [
    (Kind.REGEX, "[a-c]{1,4}(x|yz)?"),
    (Kind.REGEX, "(ab)*"),
    (Kind.JSON_SCHEMA, '{"enum": ["a", "ab", 1, [true]]}'),
    (
        Kind.JSON_SCHEMA,
        '{"type": "object", "properties": {"s": {"enum": ["x", "xy"]}, "n": {"enum": [1, 12]}}, "required": ["s"],'
        ' "additionalProperties": false}',
    ),
]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def vocabulary() -> Tokenizer:
    """Bytes, some longer tokens, three tokens that end a text, and a gap."""
    longer = [b"ab", b"abc", b'{"', b'":', b'": ', b'"}', b"</think>", b'</think>{"', b"<tool", b"_call>", b" {", b"  "]
    tokens: list[bytes | None] = [bytes([byte]) for byte in range(256)]
    tokens += [b"", *longer, None]
    tokens[END] = b"</s>"
    ends = {"</s>": END, "<|eot|>": len(tokens), "<|eom|>": len(tokens) + 1}
    return Tokenizer.from_bytes(tokens, special=ends, stop_token_ids=list(ends.values()))


# 1. Several stop tokens


@pytest.mark.parametrize(("kind", "spec"), SPECS)
@pytest.mark.parametrize("chosen", ["tokenizer", "request", "both", "beyond"])
def test_stop_tokens_are_allowed_exactly_where_the_structure_is_complete(kind: Kind, spec: str, chosen: str) -> None:
    """Of the generation config, of the request, and ids that no vocabulary has: at each position, all or none."""
    tokenizer = vocabulary()
    own = list(tokenizer.stop_token_ids)
    stops = {"tokenizer": set(), "request": {own[0], ord("!")}, "both": {*own, ord("!")}, "beyond": {own[1], 10**6}}
    engine = Engine(tokenizer)
    given = stops[chosen]
    expected = (given or set(own)) & set(range(engine.compiler.vocab_size))
    reference = engine.compiler.compile_regex("a").matcher()
    for seed in range(6):
        request = engine.add(Request(kind, spec, random_sampler(seed, expected), stop_token_ids=set(given)))
        engine.run()
        assert request.finish == "stop", request.error
        reference = {
            Kind.REGEX: engine.compiler.compile_regex,
            Kind.JSON_SCHEMA: engine.compiler.compile_json_schema,
        }[kind](spec).matcher()
        assert len(request.rows) == len(request.output)
        for row, token in zip(request.rows, request.output, strict=True):
            wanted = expected if reference.is_complete() else set()
            assert row & ({*own, ord("!"), *expected}) == wanted
            reference.accept_token(token)
    engine.close()


def test_a_stop_token_that_is_a_terminal_can_be_written(engine: Engine) -> None:
    """`b` ends the text and is a letter of it too: before the end it is a letter."""
    backend = engine.backend
    grammar = backend.begin(Kind.REGEX, "a+b+c", make=RequestGrammar, stop_token_ids={ord("b"), END})
    bitmask = np.zeros((1, 9), np.int32)
    grammar.fill_bitmask(bitmask, 0)
    assert engine._bitmask.shape[1] == bitmask.shape[1]
    assert grammar.accept_tokens("r", list(b"aab"))
    assert not grammar.is_terminated()
    assert grammar.accept_tokens("r", list(b"bc"))
    assert not grammar.is_terminated()
    assert grammar.validate_tokens([ord("b"), ord("a")]) == [ord("b")]
    assert grammar.accept_tokens("r", [ord("b")])
    assert grammar.is_terminated()


# 2. min_tokens beyond what the grammar can produce


@pytest.mark.parametrize(("kind", "spec"), [(Kind.REGEX, "[ab]{3}"), (Kind.JSON_SCHEMA, '{"const": "ab"}')])
@pytest.mark.parametrize("overlap", [False, True])
def test_min_tokens_beyond_the_end_ends_that_request_alone(kind: Kind, spec: str, overlap: bool) -> None:
    engine = Engine(options=WorkerOptions(threads=2, overlap_tokens=0 if overlap else 1 << 30))
    bad = Request(kind, spec, first, min_tokens=30)
    good = [Request(Kind.REGEX, "[0-9]{20}", random_sampler(i, {END})) for i in range(3)]
    engine.run([bad, *good])
    assert bad.finish == "error"
    assert "complete" in bad.error
    assert "min_tokens" in bad.error
    assert all(row for row in bad.rows), "a row was empty"
    assert [request.finish for request in good] == ["stop"] * 3
    engine.run([Request(kind, spec, first, min_tokens=2)])
    assert engine.requests[-1].finish == "stop"
    engine.close()


def test_min_tokens_beyond_every_choice_is_refused() -> None:
    admission = Admission()
    admission.check(Kind.CHOICE, '["yes", "not at all"]', min_tokens=10)
    with pytest.raises(UnsatisfiableSchema, match="min_tokens is 11, and the longest choice has 10 bytes"):
        admission.check(Kind.CHOICE, '["yes", "not at all"]', min_tokens=11)


def test_min_tokens_with_other_grammars_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission()
    for _ in range(3):
        admission.check(Kind.REGEX, "a{3}", min_tokens=5)
    assert [record.event for record in caplog.records] == ["min_tokens_with_grammar"]  # type: ignore[attr-defined]


def test_a_vocabulary_that_cannot_go_on_ends_the_request() -> None:
    """No token spells what must come next: the row is not empty, and the request ends with a reason."""
    tokenizer = Tokenizer.from_bytes([b"a", b"b", b"</s>"], special=[2], stop_token_ids=[2])
    engine = Engine(tokenizer)
    request = Request(Kind.REGEX, "ab[c-e]", first)
    engine.run([request])
    assert request.finish == "error"
    assert "no token" in request.error
    assert all(request.rows)
    engine.close()


# 3. Free text beside tool tags

TAG = {
    "begin": '<tool_call>{"name": "now", "arguments": ',
    "content": {"type": "json_schema", "json_schema": {"const": {"z": 1}}},
    "end": "}</tool_call>",
}
BY_STRING = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [{"type": "tag", **TAG}]}
INSIDE = {
    "type": "sequence",
    "elements": [
        {"type": "const_string", "value": '{"name": "now", "arguments": '},
        TAG["content"],
        {"type": "const_string", "value": "}"},
    ],
}
BY_TOKEN = {
    "type": "token_triggered_tags",
    "trigger_tokens": ["<tool_call>"],
    "tags": [
        {
            "type": "tag",
            "begin": {"type": "token", "token": "<tool_call>"},
            "content": INSIDE,
            "end": {"type": "token", "token": "</tool_call>"},
        }
    ],
}


def tool_vocabulary() -> Tokenizer:
    """Bytes, pieces of the markers, and the markers themselves as special tokens."""
    pieces = [b"<tool", b"_call>", b"<", b"tool_call", b">", b"</", b"call", b'{"', b"_", b"ol_"]
    tokens: list[bytes | None] = [bytes([byte]) for byte in range(256)]
    tokens += [b"</s>", *[piece for piece in pieces if len(piece) > 1]]
    special = {"</s>": END, "<tool_call>": len(tokens), "</tool_call>": len(tokens) + 1}
    return Tokenizer.from_bytes(tokens, special=special, stop_token_ids=[END])


def splits(tokenizer: Tokenizer, text: bytes) -> Iterator[list[int]]:
    """Every way to spell `text` with ordinary tokens."""
    if not text:
        yield []
        return
    for token in range(len(tokenizer)):
        piece = tokenizer.token_bytes(token)
        if piece and tokenizer.token_kind(token) == "text" and text.startswith(piece):
            for rest in splits(tokenizer, text[len(piece) :]):
                yield [token, *rest]


@pytest.mark.parametrize("form", [BY_TOKEN, BY_STRING], ids=["token", "string"])
def test_a_spelled_out_marker_smuggles_no_call(form: object) -> None:
    """However it is split, and whatever stands before it; text that is nearly the marker stays free."""
    tokenizer = tool_vocabulary()
    engine = Engine(tokenizer)
    marker = tokenizer.special_tokens["<tool_call>"]
    spec = json.dumps({"type": "structural_tag", "format": form})
    count = 0
    for before in (b"", b"Well, ", b"<tool", b"<<"):
        for tokens in splits(tokenizer, b"<tool_call>"):
            grammar = engine.backend.begin(Kind.STRUCTURAL_TAG, spec, make=RequestGrammar)
            assert grammar.accept_tokens("r", list(before))
            assert len(grammar.validate_tokens(tokens)) < len(tokens)
            count += 1
    assert count > 20
    for free in (b"<tool_cal", b"<tool_call", b"<tool_calls>", b"tool_call>", b"< tool_call>"):
        grammar = engine.backend.begin(Kind.STRUCTURAL_TAG, spec, make=RequestGrammar)
        assert grammar.validate_tokens([*free, END]) == [*free, END]
    grammar = engine.backend.begin(Kind.STRUCTURAL_TAG, spec, make=RequestGrammar)
    call = b'{"name": "now", "arguments": {"z": 1}}'
    assert grammar.accept_tokens("r", [*b"Now: ", marker])
    assert grammar.validate_tokens(list(b'{"name": "rm')) == list(b'{"name": "')
    assert grammar.accept_tokens("r", [*call, marker + 1, *b" Done", END])
    assert grammar.is_terminated()
    engine.close()


def test_a_marker_that_is_text_opens_a_call_however_it_is_spelled() -> None:
    """Where the model's marker is an added token that is text (Hermes, Qwen): as that token, or in any other pieces."""
    pieces = [b"<tool", b"_call>", b"tool_call", b"</", b'>{"', b"ol_"]
    tokens: list[bytes | None] = [*[bytes([byte]) for byte in range(256)], b"</s>", *pieces, b"<tool_call>"]
    marker = len(tokens) - 1
    tokenizer = Tokenizer.from_bytes(tokens, special={"</s>": END}, added=[marker], stop_token_ids=[END])
    engine = Engine(tokenizer)
    spec = json.dumps({"type": "structural_tag", "format": BY_STRING})
    call = b'{"name": "now", "arguments": {"z": 1}}</tool_call>'
    spellings = [[marker], *splits(tokenizer, b"<tool_call>")]
    assert len(spellings) > 5
    for before in (b"", b"Well, ", b"<tool", b"<<"):
        for spelled in spellings:
            grammar = engine.backend.begin(Kind.STRUCTURAL_TAG, spec, make=RequestGrammar)
            assert grammar.accept_tokens("r", [*before, *spelled])
            assert grammar.validate_tokens([END]) == []
            assert grammar.validate_tokens(list(b'{"name": "rm')) == list(b'{"name": "')
            assert grammar.accept_tokens("r", [*call, *b" ok", END])
            assert grammar.is_terminated()
    engine.close()


# 4. Loops of whitespace and digits

LOOP_SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}, "required": ["a"]},
    {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 3},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}}},
    {"enum": [[1, {"a": None}], "x"]},
]


@pytest.mark.parametrize("schema", LOOP_SCHEMAS, ids=range(len(LOOP_SCHEMAS)))
@pytest.mark.parametrize("order", [b" \n\t\r", b"\n \t", b"\t\n ", b"\r \n"], ids=repr)
def test_a_sampler_that_prefers_whitespace_comes_to_an_end(engine: Engine, schema: object, order: bytes) -> None:
    """In compact JSON at once; in flexible JSON within the bound on whitespace."""
    closed = b'}]"0123456789tfn,:'
    request = Request(Kind.JSON_SCHEMA, json.dumps(schema), preferring(order + closed), max_tokens=3000)
    engine.run([request])
    assert request.finish == "stop", request.text(engine.tokenizer)[-50:]
    json.loads(request.text(engine.tokenizer))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number"},
        {"type": "integer"},
        {"type": "integer", "minimum": 3},
        {"type": "array", "items": {"type": "number", "maximum": 7.5}, "maxItems": 2, "minItems": 1},
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False},
        {"enum": [7, 100]},
        {"const": 12.5e-7},
        {"type": "integer", "multipleOf": 5},
        {"type": "number", "multipleOf": 0.25, "minimum": -3},
        {"type": "integer", "multipleOf": 97, "exclusiveMinimum": 10**140},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-9},
        {"type": "integer", "not": {"const": 3}},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("order", [b"9876543210.e+-", b"0.123456789eE", b"e-1.0", b"-.E+01", b"999.E+01"], ids=repr)
def test_a_sampler_that_prefers_digits_comes_to_an_end(engine: Engine, schema: object, order: bytes) -> None:
    """Beyond the bound a digit must lead to something else: no zeros of `1e000`, no 999... for a multiple of 5."""
    one = Request(Kind.JSON_SCHEMA, json.dumps(schema), preferring(order + b'}]",:{[ '), max_tokens=3000)
    engine.run([one])
    assert one.finish == "stop", one.text(engine.tokenizer)[-50:]
    json.loads(one.text(engine.tokenizer))


# 5. Speculative decoding


def drafters(seed: int, target: list[int], width: int) -> list:
    """Drafts that are right, that run past the end, that hold stop tokens, that are wrong at once, and any of these."""
    draw = random.Random(seed)

    def right(history: list[int]) -> list[int]:
        return target[len(history) : len(history) + 5]

    def beyond(history: list[int]) -> list[int]:
        return [*target[len(history) :], END, ord("x"), END, 3][:8]

    def stops(history: list[int]) -> list[int]:
        return [END] * 4

    def wrong(history: list[int]) -> list[int]:
        return [draw.randrange(width) for _ in range(6)]

    def late(history: list[int]) -> list[int]:
        return [*target[len(history) : len(history) + 3], draw.randrange(width), END]

    def any_of(history: list[int]) -> list[int]:
        return draw.choice([right, beyond, stops, wrong, late])(history)

    return [right, beyond, stops, wrong, late, any_of]


@pytest.mark.parametrize(("kind", "spec"), SPECS)
@pytest.mark.parametrize("which", range(6))
def test_speculative_decoding_changes_nothing_but_the_steps(kind: Kind, spec: str, which: int) -> None:
    """The same sampler with and without drafts writes the same tokens: nothing refused, rollback exact, no livelock."""
    tokenizer = vocabulary()
    engine = Engine(tokenizer)
    stops = set(tokenizer.stop_token_ids)
    for seed in range(8):
        plain = Request(kind, spec, random_sampler(seed, stops, 0.3))
        engine.run([plain])
        assert plain.finish == "stop"
        drafter = drafters(seed, plain.output, engine.compiler.vocab_size)[which]
        drafted = Request(kind, spec, random_sampler(seed, stops, 0.3), drafter=drafter)
        engine.run([drafted])
        assert (drafted.finish, drafted.output) == ("stop", plain.output), drafted.error
        assert drafted.steps <= plain.steps
        if which == 0 and len(plain.output) > 2:
            assert drafted.steps < plain.steps
    engine.close()


def test_drafts_stop_at_the_stop_token(engine: Engine) -> None:
    grammar = engine.backend.begin(Kind.REGEX, "ab", make=RequestGrammar)
    assert grammar.validate_tokens([ord("a"), ord("b"), END, ord("a")]) == [ord("a"), ord("b"), END]
    assert grammar.accept_tokens("r", [ord("a"), ord("b"), END, ord("z")])  # what follows a stop token is no concern
    assert grammar.is_terminated()
    assert grammar.accept_tokens("r", [5, 6])  # legal after the end
    assert grammar.validate_tokens([ord("a")]) == []
    grammar.rollback(1)
    assert not grammar.is_terminated()
    grammar.rollback(2)
    assert grammar.validate_tokens([ord("a"), ord("c")]) == [ord("a")]


def test_a_rollback_beyond_what_is_held_ends_the_request_alone(engine: Engine) -> None:
    grammar = engine.backend.begin(Kind.REGEX, "a*", make=RequestGrammar)
    assert grammar.accept_tokens("r", [ord("a")] * 3)
    grammar.rollback(7)
    assert "taken back" in grammar.reason
    assert not grammar.accept_tokens("r", [ord("a")])


# 6. Malformed grammars between valid ones

BROKEN: list[tuple[Kind, str, type[GramaryError]]] = [
    (Kind.JSON_SCHEMA, '{"properties": {"p0": {"type": "objec"}}}', InvalidSchema),
    (Kind.JSON_SCHEMA, '{"type": "object", ', InvalidSchema),
    (Kind.REGEX, "(a|b", InvalidPattern),
    (Kind.JSON_SCHEMA, '{"type": "integer", "minimum": 3, "maximum": 2}', UnsatisfiableSchema),
    (Kind.REGEX, "[z-a]", InvalidPattern),
]


@pytest.mark.parametrize("overlap", [False, True])
def test_two_hundred_malformed_grammars_between_valid_ones(overlap: bool) -> None:
    """Each gets its own error, each valid one its text, and the engine stays up; drafts or not."""
    engine = Engine(options=WorkerOptions(threads=2, overlap_tokens=0 if overlap else 1 << 30))
    pairs = []
    for i in range(200):
        kind, spec, _ = BROKEN[i % len(BROKEN)]
        good = engine.add(Request(Kind.REGEX, f"id{i}", first))
        bad = engine.add(Request(kind, spec.replace("p0", f"p{i}"), first, prompt_tokens=10 + i % 3))
        pairs.append((good, bad, i))
        if i % 20 == 19:
            engine.run()
    for good, bad, i in pairs:
        assert (good.finish, good.text(engine.tokenizer)) == ("stop", f"id{i}")
        assert bad.finish == "error"
        assert bad.output == []
        if i % len(BROKEN) == 0:
            assert f"/properties/p{i}/type" in bad.error
        assert bad.error
    engine.close()


def test_admission_gives_each_malformed_grammar_its_own_error() -> None:
    admission = Admission(WorkerOptions(admission_ms=1000))
    for i in range(200):
        admission.check(Kind.REGEX, f"id{i}")
        kind, spec, error = BROKEN[i % len(BROKEN)]
        with pytest.raises(error):
            admission.check(kind, spec)
    assert admission.counts.value("requests_refused", "InvalidSchema") == 80


# 7. Reasoning


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("implicit", [False, True])
def test_the_constraint_starts_after_reasoning(drafted: bool, implicit: bool) -> None:
    """After the end marker, or with the first token of content where that ends the reasoning by itself."""
    tokenizer = vocabulary()
    marker = next(i for i in range(len(tokenizer)) if tokenizer.token_bytes(i) == b"</think>")
    opening = next(i for i in range(len(tokenizer)) if tokenizer.token_bytes(i) == b'{"')
    reasoning = list(b"so, {maybe} 17...")
    content = [opening, *b'a":1}', END]
    target = [*reasoning, *content] if implicit else [*reasoning, marker, *content]

    def sampler(allowed: np.ndarray, history: list[int]) -> int:
        return target[len(history)] if len(history) < len(target) else first(allowed, history)

    def drafter(history: list[int]) -> list[int]:
        return [*target[len(history) : len(history) + 6], 7][:6]

    engine = Engine(tokenizer)
    request = Request(
        Kind.JSON_SCHEMA,
        '{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false}',
        sampler,
        stop_token_ids={END},
        drafter=drafter if drafted else None,
        reasoning_end=marker,
        implicit_end=opening if implicit else None,
    )
    engine.run([request])
    assert request.finish == "stop", request.error
    assert request.output == target
    if not drafted:
        free = len(reasoning) + 1
        assert request.rows[:free] == [{-1}] * free
        assert all(row != {-1} for row in request.rows[free:])
    engine.close()


def test_reasoning_that_ends_inside_a_token() -> None:
    """One token holds the end marker and the first characters of the content: the grammar has seen both."""
    tokenizer = vocabulary()
    both = next(i for i in range(len(tokenizer)) if tokenizer.token_bytes(i) == b'</think>{"')
    form = {
        "type": "sequence",
        "elements": [
            {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"},
            {
                "type": "json_schema",
                "json_schema": {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": False},
            },
        ],
    }
    engine = Engine(tokenizer)
    spec = json.dumps({"type": "structural_tag", "format": form})
    grammar = engine.backend.begin(Kind.STRUCTURAL_TAG, spec, make=RequestGrammar)
    assert grammar.accept_tokens("r", [*b"<think>hm, {b}", both])
    assert grammar.validate_tokens(list(b'b":1}')) == []
    assert grammar.accept_tokens("r", [*b'a":1}', END])
    assert grammar.is_terminated()
    engine.close()
