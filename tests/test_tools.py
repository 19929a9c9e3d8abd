"""Tool lists and tags: against the reference, and by hand what a list may look like and how it fails."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gramary.compiler.errors import CompileError, InvalidSchema, ToolError, UnsupportedSchema
from gramary.runtime._core import CompiledGrammar, Compiler, Matcher, Vocabulary

from . import strategies as ir
from .oracle import brute_force, compiler_for, expected, mask
from .reference import Reference
from .strategies import STOP, Tokens

BYTES = Compiler(
    Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b"</s>"], special=[256]), stop_token_ids=[256]
)

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOLS = [{"name": "weather", "parameters": CITY}, {"name": "web", "parameters": NUMBER}]
#: The dialect of no draft: `$ref` to another document cannot be followed.
BAD = {"type": "object", "properties": {"x": {"$ref": "https://example.com/nowhere.json"}}}


def fits(grammar: CompiledGrammar | Matcher, text: str) -> str:
    """ "whole", "part" or "no"."""
    matcher = grammar.matcher() if isinstance(grammar, CompiledGrammar) else grammar.fork()
    if not matcher.accept_bytes(text):
        return "no"
    return "whole" if matcher.is_complete() else "part"


# ------------------------------------------------------------------------------------------------ against the reference


@st.composite
def tag_cases(draw: Any) -> tuple[list[tuple[str, str]], list[str], dict[str, Any]]:
    """(begin, constant) tags whose begins overlap, their triggers, options."""
    text = st.text(st.sampled_from("ab<"), min_size=1, max_size=3)
    triggers = draw(st.lists(text, min_size=1, max_size=3, unique=True))
    tags = draw(
        st.lists(
            st.tuples(
                st.builds(lambda t, r: t + r, st.sampled_from(triggers), st.sampled_from(["", "c", "cb", "d"])),
                st.sampled_from(["", "a", "xy"]),
            ),
            min_size=1,
            max_size=4,
            unique_by=lambda tag: tag[0],
        )
    )
    high = draw(st.sampled_from([None, None, 1, 2]))
    options = {
        "stops": draw(st.sampled_from([[], [], ["."], ["..", "!"]])),
        "min_calls": draw(st.sampled_from([0, 0, 1])),
        "max_calls": high,
        "stop_after_last": draw(st.booleans()),
    }
    return tags, triggers, options


@settings(max_examples=60)
@given(tag_cases(), ir.vocabularies(b'ab<ab<cb"xy"</>"a"'), st.integers(0, 2**32))
def test_tags_are_a_dispatch(case: tuple[list[tuple[str, str]], list[str], Any], tokens: Tokens, seed: int) -> None:
    tags, triggers, options = case
    try:
        grammar = compiler_for(tokens).compile_tags([(b, {"const": c}, "/>") for b, c in tags], triggers, **options)
    except CompileError as e:
        event(f"refused: {type(e).__name__}")
        return
    handlers: dict[str, list[Any]] = {t: [] for t in triggers}
    for begin, constant in tags:
        longest = max((t for t in triggers if begin.startswith(t)), key=len)
        handlers[longest].append(ir.lit(begin[len(longest) :] + json.dumps(constant) + "/>"))
    rule = ir.dispatch(
        [(t, ir.alt(*h)) for t, h in handlers.items()],
        options["stops"],
        (),
        options["min_calls"],
        options["max_calls"],
        options["stop_after_last"],
        not options["stops"],
    )
    state = Reference(ir.grammar(rule)).start
    matcher, size, rng = grammar.matcher(), len(tokens.bytes_of), random.Random(seed)
    for _ in range(8):
        allowed = mask(matcher, size)
        assert allowed == brute_force(matcher, range(size))
        assert allowed == expected(state, tokens)
        ways = sorted(allowed - {STOP})
        if not ways:
            break
        token = rng.choice(ways)
        following = state.feed_all(tokens.bytes_of[token] or b"")
        assert matcher.accept_token(token)
        assert following is not None
        state = following


# ------------------------------------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    "tools",
    [
        TOOLS,
        json.dumps(TOOLS),
        json.dumps(TOOLS).encode(),
        [{"type": "function", "function": t} for t in TOOLS],
        [{**t, "description": "…", "strict": True} for t in TOOLS],
    ],
    ids=["objects", "text", "bytes", "OpenAI", "more keys"],
)
def test_forms_of_a_list(tools: Any) -> None:
    grammar = BYTES.compile_tools(tools)
    assert fits(grammar, "hello") == "whole"
    assert (
        fits(grammar, 'see <function=weather>{"city": "Rome"}</function> and <function=web>{"n":1}</function>')
        == "whole"
    )
    assert fits(grammar, "<function=we") == "part"
    assert fits(grammar, "<function=wea{") == "no"
    assert fits(grammar, '<function=web>{"city"') == "no"
    assert fits(grammar, "<function=web>{}") == "no"


def test_a_tool_without_parameters_takes_any_object() -> None:
    grammar = BYTES.compile_tools([{"name": "now"}])
    assert fits(grammar, "<function=now>{}</function>") == "whole"
    assert fits(grammar, '<function=now>{"a": [1, null]}</function>') == "whole"
    assert fits(grammar, "<function=now>[") == "no"


def test_other_frames() -> None:
    grammar = BYTES.compile_tools(TOOLS, begin='{"name": "{name}", "arguments": ', end="}", stops=["\n\n"], min_calls=1)
    call = '{"name": "web", "arguments": {"n": 4}}'
    assert fits(grammar, call + "\n\n") == "whole"
    assert fits(grammar, "text" + call + call) == "part"
    assert fits(grammar, "text\n\n") == "no"
    once = BYTES.compile_tools(TOOLS, max_calls=1, stop_after_last=True)
    assert fits(once, '<function=web>{"n": 4}</function>') == "whole"
    assert fits(once, '<function=web>{"n": 4}</function> ') == "no"
    twice = BYTES.compile_tools(TOOLS, min_calls=2, max_calls=2)
    call = '<function=web>{"n": 4}</function>'
    assert [fits(twice, call * n) for n in range(3)] == ["part", "part", "whole"]
    assert fits(twice, call * 2 + "<function") == "whole"
    assert fits(twice, call * 2 + "<function=") == "no"
    for begin in ("<function>", "{name}{name}"):
        with pytest.raises(CompileError, match="name"):
            BYTES.compile_tools(TOOLS, begin=begin)


def test_a_bad_tool_is_named() -> None:
    tools = [*TOOLS, {"name": "broken", "parameters": BAD}, {"name": "fine", "parameters": NUMBER}]
    with pytest.raises(ToolError) as error:
        BYTES.compile_tools(tools)
    assert (error.value.index, error.value.name) == (2, "broken")
    assert error.value.pointer.startswith("/2/parameters/properties/x")
    assert isinstance(error.value.cause, UnsupportedSchema | InvalidSchema)
    assert "broken" in str(error.value)


def test_a_bad_tool_may_be_dropped_or_loosened() -> None:
    tools = [TOOLS[0], {"name": "broken", "parameters": BAD}, TOOLS[1]]
    dropped = BYTES.compile_tools(tools, on_error="drop")
    assert [(d["index"], d["name"], d["offered"]) for d in dropped.dropped_tools] == [(1, "broken", False)]
    assert fits(dropped, "<function=b") == "no"
    assert fits(dropped, '<function=web>{"n": 4}</function>') == "whole"
    loose = BYTES.compile_tools(tools, on_error="any_json")
    assert [(d["index"], d["name"], d["offered"]) for d in loose.dropped_tools] == [(1, "broken", True)]
    assert fits(loose, '<function=broken>{"x": 4}</function>') == "whole"
    with pytest.raises(ValueError, match="on_error"):
        BYTES.compile_tools(tools, on_error="ignore")
    assert BYTES.compile_tools(TOOLS).dropped_tools == []


@pytest.mark.parametrize(
    "bad", ["null", "{}", "[1]", '{"name": 5}', '{"name": null}', '{"name": "\\ud800"}', '{"function": null}']
)
def test_what_is_json_but_no_tool_costs_only_itself(bad: str) -> None:
    tools = f'[{{"name": "web", "parameters": {json.dumps(NUMBER)}}}, {bad}]'
    with pytest.raises(ToolError) as caught:
        BYTES.compile_tools(tools)
    assert caught.value.index == 1
    for on_error in ("drop", "any_json"):
        grammar = BYTES.compile_tools(tools, on_error=on_error)
        assert [fault["index"] for fault in grammar.dropped_tools] == [1]
        assert fits(grammar, '<function=web>{"n": 1}</function>') == "whole"


def test_members_of_a_tool_may_be_spelled_with_escapes() -> None:
    escaped = '[{"n\\u0061me": "web", "p\\u0061rameters": ' + json.dumps(NUMBER) + "}]"
    grammar = BYTES.compile_tools(escaped)
    assert fits(grammar, '<function=web>{"n": 1}</function>') == "whole"
    assert fits(grammar, '<function=web>{"zzz"') == "no"


@pytest.mark.parametrize("on_error", ["raise", "drop", "any_json"])
def test_two_tools_of_one_name(on_error: str) -> None:
    """No option makes this right: which of the two a call would mean is not known."""
    with pytest.raises(ToolError, match="weather") as error:
        BYTES.compile_tools([*TOOLS, {"name": "weather", "parameters": NUMBER}], on_error=on_error)
    assert (error.value.index, error.value.name) == (2, "weather")


@pytest.mark.parametrize(
    "tools", ["", "{", "null", "{}", "[1]", "[{}]", '[{"name": 1}]', '[{"name": "a", "parameters": 3}]', "[[]]", "[{}"]
)
def test_lists_that_are_none(tools: str) -> None:
    with pytest.raises(CompileError):
        BYTES.compile_tools(tools)


def test_no_tools_leave_plain_text() -> None:
    grammar = BYTES.compile_tools([])
    assert fits(grammar, "anything <func") == "whole"
    assert fits(grammar, "<function=") == "no"


def test_a_trigger_without_tags_is_no_dead_end() -> None:
    grammar = BYTES.compile_tags([("<a>", {"const": 1}, "</a>")], ["<a", "<b"])
    assert fits(grammar, "<a>1</a>") == "whole"
    assert fits(grammar, "<b") == "no"


def test_names_that_are_prefixes_of_others() -> None:
    tools = [{"name": n, "parameters": NUMBER} for n in ("a", "ab", "abc", "b")]
    grammar = BYTES.compile_tools(tools)
    for name in ("a", "ab", "abc", "b"):
        assert fits(grammar, f'<function={name}>{{"n": 1}}</function>') == "whole"
    assert fits(grammar, "<function=abcd") == "no"


def test_tag_events() -> None:
    matcher = BYTES.compile_tools(TOOLS).matcher()
    text = 'x <function=web>{"n": 4}</function> y <function=weather>{"city": "R"}</function>'

    def feed(data: str) -> list[tuple[str, int, int]]:
        assert matcher.accept_tokens(list(data.encode())) == len(data.encode())
        return matcher.tag_events()

    first = text.index("</function>") + len("</function>")
    assert feed(text[:14]) == []
    assert feed(text[14:20]) == [("open", 1, text.index("{"))]
    assert feed(text[20:first]) == [("close", 1, first)]
    matcher.rollback(3)
    assert matcher.tag_events() == []
    assert feed(text[first - 3 : first]) == [("close", 1, first)]
    begin = text.index("weather>") + len("weather>")
    assert feed(text[first:]) == [("open", 0, begin), ("close", 0, len(text))]
    fork = matcher.fork()
    assert fork.accept_bytes(' <function=web>{"n"')
    assert [e[:2] for e in fork.tag_events()] == [("open", 1)]
    assert matcher.tag_events() == []


def test_the_same_tool_has_the_same_digest_in_any_company() -> None:
    def digests(tools: Any) -> set[str]:
        return {u["digest"] for u in BYTES.compile_tools(tools).units() if u["shared"]}

    one, other = digests(TOOLS[:1]), digests(TOOLS)
    assert one < other
    assert digests(list(reversed(TOOLS))) == other
    assert digests([{**t, "name": t["name"] + "x"} for t in TOOLS]) == other
