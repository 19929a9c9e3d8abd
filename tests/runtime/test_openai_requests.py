"""OpenAI-style requests to structural tags and grammars."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gramary.compiler import Compiler, InvalidSchema, Tokenizer
from gramary.runtime.serving import grammar_for_request, structural_tag_for_request

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "is not looked at",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Oslo", "Rome"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "now", "strict": False, "parameters": {"type": "object", "x": 1}}},
]
ANSWER = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": 7}}}
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {"any": [1]}}\n</tool_call>'


@pytest.mark.parametrize(
    ("choice", "answer", "kind"),
    [
        ("auto", None, "triggered_tags"),
        ("auto", ANSWER, "or"),
        ("required", None, "tags_with_separator"),
        ("required", ANSWER, "tags_with_separator"),
        ({"type": "function", "function": {"name": "now"}}, None, "tags_with_separator"),
        ("none", ANSWER, "json_schema"),
        ("none", {"type": "json_object"}, "json_schema"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "now"}]}, None, "triggered_tags"),
    ],
)
def test_the_tag_of_a_request(choice: Any, answer: Any, kind: str) -> None:
    tag = structural_tag_for_request(TOOLS, choice, answer)
    assert tag is not None
    assert tag["format"]["type"] == kind
    json.dumps(tag)


@pytest.mark.parametrize(("tools", "choice", "answer"), [((), "auto", None), (TOOLS, "none", {"type": "text"})])
def test_free_text_has_no_tag(tools: Any, choice: str, answer: Any) -> None:
    assert structural_tag_for_request(tools, choice, answer) is None
    assert grammar_for_request(Compiler(Tokenizer.from_bytes()), tools, choice, answer) is None


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        (([{"type": "function"}],), "/tools/0"),
        (([{"name": "a", "parameters": 3}],), "/tools/0"),
        (([{"name": "a"}, {"name": "a"}],), "/tools"),
        (([{"name": "a"}], "sometimes"), "/tool_choice"),
        (([{"name": "a"}], {"function": {"name": "b"}}), "/tool_choice"),
        (([], "required"), "/tool_choice"),
        (([], "auto", {"type": "json_schema"}), "/response_format/json_schema/schema"),
        (([], "auto", {"type": "xml"}), "/response_format/type"),
    ],
)
def test_what_a_request_may_get_wrong(arguments: Any, pointer: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        structural_tag_for_request(*arguments)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("choice", "answer", "right", "wrong"),
    [
        ("auto", None, ["Hi", f"Hi {WEATHER} and {NOW}."], [WEATHER.replace("Oslo", "Bonn"), "<tool_call>no"]),
        ("auto", ANSWER, [WEATHER, f"{WEATHER}\n{NOW}", "7"], ["Hi", "8"]),
        ("required", None, [WEATHER, f"{NOW}\n{WEATHER}"], ["Hi", ""]),
        ({"type": "function", "function": {"name": "now"}}, None, [NOW], [WEATHER, f"{NOW}\n{NOW}", "Hi"]),
        ("none", ANSWER, ["7"], [NOW, "x"]),
    ],
    ids=["auto", "auto or answer", "required", "named", "none"],
)
def test_the_grammar_of_a_request(choice: Any, answer: Any, right: list[str], wrong: list[str]) -> None:
    grammar = grammar_for_request(Compiler(Tokenizer.from_bytes()), TOOLS, choice, answer)
    assert grammar is not None
    for text in right:
        matcher = grammar.matcher()
        assert matcher.accept_bytes(text), text
        assert matcher.is_complete(), text
    for text in wrong:
        matcher = grammar.matcher()
        assert not (matcher.accept_bytes(text) and matcher.is_complete()), text
