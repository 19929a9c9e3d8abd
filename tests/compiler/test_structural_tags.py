"""Structural tags: golden cases, errors, reuse of contents, and random formats against a slow reference."""

import json
import random
from typing import Any

import pytest

from gramary.compiler import (
    Compiler,
    InvalidGrammar,
    InvalidSchema,
    LimitExceeded,
    Tokenizer,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from gramary.runtime._core import CompiledGrammar
from tests.structural_tags import Format, Generator, derive, matches, mutated, random_texts


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Tokenizer.from_bytes())


def compiled(compiler: Compiler, node: Format) -> CompiledGrammar:
    return compiler.compile_structural_tag({"type": "structural_tag", "format": node})


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


ANY = {"type": "any_text"}


def const(value: str) -> Format:
    return {"type": "const_string", "value": value}


def tag(begin: str, content: Format, end: Any) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def triggered(triggers: list[str], tags: list[Format], **more: Any) -> Format:
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags, **more}


X = tag("<a>", const("x"), "</a>")


@pytest.mark.parametrize(
    ("node", "yes", "no"),
    [
        (triggered(["<a"], [X]), ["", "z<a>x</a>z<a>x</a>", "<"], ["<a", "<a>y", "<a>x"]),
        (triggered(["<a"], [X], at_least_one=True), ["<a>x</a>", "<a>x</a>z<a>x</a>"], ["", "z<a>x</a>"]),
        (triggered(["<a"], [X], stop_after_first=True), ["", "z", "z<a>x</a>"], ["<a>x</a>z"]),
        (triggered(["<a"], [X], at_least_one=True, stop_after_first=True), ["<a>x</a>"], ["", "z", "<a>x</a>z"]),
        # The first tag may follow any of several triggers, be no more than its trigger, or have none.
        (
            triggered(["<a", "[", "!"], [X, tag("[", const(""), ""), tag("[b", const("y"), "]")], at_least_one=True),
            ["<a>x</a>", "[", "[by]", "[z<a>x</a>[by]z", "[["],
            ["", "<a", "!", "z[", "<a>x</a>!"],
        ),
        # A begin that extends several triggers.
        (triggered(["<", "<a", "<a>"], [X, tag("<b>", const("y"), "")]), ["<a>x</a><b>y"], ["<", "<c", "<a>y"]),
        # A trigger inside another; free text holds none of them.
        (
            triggered(["bc", "abcde"], [tag("bc", const("Z"), ""), tag("abcde", const("!"), "")]),
            ["abcZ", "abcde!", "ab"],
            ["abc", "abcd", "abcdx", "abcdeZ"],
        ),
        (tag("<t>", ANY, "</t>"), ["<t></t>", "<t></</t>"], ["<t></t></t>", "<t>"]),
        (tag("<", ANY, "aa"), ["<aa", "<baa"], ["<aaa", "<a"]),
        (tag("<t>", {"type": "any_text", "excludes": ["<"]}, "</t>"), ["<t>x</t>"], ["<t><</t>", "<t><b</t>"]),
        # Ends are known through sequences, alternatives and repeats, and on every level.
        (tag("<t>", sequence(const("q"), ANY), "</t>"), ["<t>qx</t>"], ["<t>q</t></t>"]),
        (tag("<t>", {"type": "star", "content": ANY}, "</t>"), ["<t>x</t>"], ["<t></t></t>"]),
        (tag("<t>", sequence(ANY, {"type": "plus", "content": ANY}), "</t>"), ["<t>x</t>"], ["<t></t></t>"]),
        (tag("<t>", tag("<b>", ANY, ""), "</t>"), ["<t><b>x</t>"], ["<t><b></t></t>", "<t><b>"]),
        (tag("<t>", tag("<b>", ANY, "</b>"), "</t>"), ["<t><b>x</b></t>"], ["<t><b></t></b></t>"]),
        (tag("<t>", {"type": "dispatch", "rules": [["!", const("y")]]}, "</t>"), ["<t>a!yb</t>"], ["<t></t></t>"]),
        (tag("<t>", triggered(["<a"], [X]), "</t>"), ["<t>z<a>x</a>z</t>"], ["<t></t></t>", "<t><a>x</t>"]),
        (tag("<t>", triggered(["<a"], [X], stop_after_first=True), "</t>"), ["<t>z<a>x</a></t>"], ["<t><a>x</a>z</t>"]),
        (tag("<t>", ANY, ["</t>", "</u>"]), ["<t>x</u>", "<t>x</t>"], ["<t></u></t>"]),
        (tag("<t>", ANY, ["", "</u>"]), ["<t>x", "<t>x</u>"], ["<t></u></u>"]),
        (tag("<t>", {"type": "any_text", "max_chars": 2}, ">"), ["<t>>", "<t>éé>"], ["<t>abc>", "<t>a>b>"]),
        (tag("<t>", {"type": "any_text", "max_chars": 9}, "aa"), ["<t>baa"], ["<t>aaa"]),
        (
            {"type": "tags_with_separator", "tags": [X, tag("<b>", const("y"), "")], "separator": ", "},
            ["", "<a>x</a>", "<b>y, <a>x</a>"],
            [",", "<b>y<b>y", "<b>y, "],
        ),
        ({"type": "dispatch", "rules": [["<", const("")], ["!", const("y")]]}, ["<<", "a<b!yc"], ["!", "!z"]),
        ({"type": "dispatch", "rules": [["<", const("y")]], "loop": False}, ["z", "z<y"], ["<yz"]),
        ({"type": "repeat", "min": 2, "max": 3, "content": const("ab")}, ["abab", "ababab"], ["ab", "abababab"]),
        ({"type": "grammar", "grammar": 'root ::= "(" root ")" | ""'}, ["", "(())"], ["("]),
        (sequence({"type": "regex", "pattern": "a*"}, const("b")), ["b", "aab"], ["a"]),
        ({"type": "json_schema", "json_schema": {"type": "integer"}}, ["12"], ["x"]),
        ({"type": "json_schema", "json_schema": True}, ["12", '{"a": []}'], ["x"]),
        (triggered(["]"], [tag("]a", const("x"), "")]), ["]ax"], ["]"]),
        (tag("[", triggered(["]"], [tag("]a", const("x"), "")]), "]"), ["[]", "[z]"], ["[]ax]"]),
    ],
)
def test_what_formats_mean(compiler: Compiler, node: Format, yes: list[str], no: list[str]) -> None:
    grammar = compiled(compiler, node)
    for text in yes:
        assert accepts(grammar, text), text
    for text in no:
        assert not accepts(grammar, text), text


def test_the_old_form(compiler: Compiler) -> None:
    old = {
        "type": "structural_tag",
        "structures": [{"begin": "<f=g>", "schema": {"type": "integer"}, "end": "</f>"}],
        "triggers": ["<f="],
    }
    grammar = compiler.compile_structural_tag(old)
    assert accepts(grammar, "Well, <f=g>12</f> it is")
    assert not accepts(grammar, "<f=h>")
    old["structures"] = [{"begin": "<f=g>", "schema": '{"type": "integer"}', "end": "</f>"}]
    assert compiler.compile_structural_tag(json.dumps(old)).digest == grammar.digest


@pytest.mark.parametrize(
    ("node", "pointer", "says"),
    [
        ({"type": "any_txt"}, "/format/type", "there is no format"),
        (sequence(), "/format/elements", "must not be empty"),
        (sequence(const("a"), {"type": "const_string"}), "/format/elements/1/value", "missing"),
        (tag("a", {"type": "regex", "pattern": "("}, ""), "/format/content/pattern", "("),
        (triggered(["<b"], [X]), "/format/tags/0/begin", "start with one of the triggers"),
        (triggered([], [X]), "/format/triggers", "at least one trigger"),
        (triggered([""], [X]), "/format/triggers/0", "must not be empty"),
        ({"type": "repeat", "min": 3, "max": 2, "content": ANY}, "/format", "swap"),
        ({"type": "any_text", "max_chars": -1}, "/format/max_chars", "whole number"),
        ({"type": "token", "token": 99999}, "/format", "no token 99999"),
        ({"type": "token", "token": "no such token"}, "/format", "no token of the tokenizer"),
        (tag("a", ANY, []), "/format/end", "must not be empty"),
        ({"type": "dispatch", "rules": [["a"]]}, "/format/rules/0", "pair"),
    ],
)
def test_errors_point_into_the_tag(compiler: Compiler, node: Format, pointer: str, says: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        compiled(compiler, node)
    assert caught.value.pointer.startswith(pointer)
    assert says in str(caught.value)


def test_errors_of_contents_point_into_them(compiler: Compiler) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": "x"}}}
    with pytest.raises((InvalidSchema, InvalidGrammar)) as caught:
        compiled(compiler, tag("a", {"type": "json_schema", "json_schema": schema}, ""))
    assert caught.value.pointer == "/format/content/json_schema/properties/a/minLength"
    with pytest.raises(InvalidGrammar) as caught:
        compiled(compiler, tag("a", {"type": "grammar", "grammar": "root ::= [a"}, ""))
    assert caught.value.pointer == "/format/content/grammar: line 1, column 10"
    with pytest.raises(UnsupportedSchema) as unsupported:
        compiled(compiler, {"type": "json_schema", "json_schema": {"type": "null"}, "style": "qwen_xml"})
    assert unsupported.value.pointer == "/format/json_schema/type"
    with pytest.raises(UnsatisfiableSchema):
        compiled(compiler, {"type": "json_schema", "json_schema": False})


@pytest.mark.parametrize(
    "text", ["", "[", "{}", '{"type": "structural_tag"}', '{"format": {"type": "any_text"}', "nul"]
)
def test_what_is_no_structural_tag(compiler: Compiler, text: str) -> None:
    with pytest.raises(InvalidGrammar):
        compiler.compile_structural_tag(text)


def test_deep_nesting_meets_its_limit(compiler: Compiler) -> None:
    node: Format = ANY
    for _ in range(150):
        node = tag("<", node, ">")
    assert compiled(compiler, node)
    for _ in range(100):
        node = sequence(node)
    with pytest.raises(LimitExceeded):
        compiled(compiler, node)
    with pytest.raises(LimitExceeded):
        compiler.compile_structural_tag('{"format":' + "[" * 100_000)


def test_a_schema_seen_before_is_not_compiled_again() -> None:
    compiler = Compiler(Tokenizer.from_bytes())
    schemas = [
        {"type": "object", "properties": {f"p{i}": {"type": "integer"}}, "required": [f"p{i}"]} for i in range(20)
    ]

    def call(numbers: list[int]) -> Format:
        tags = [tag(f"<f{i}>", {"type": "json_schema", "json_schema": schemas[i]}, "</f>") for i in numbers]
        return triggered(["<f"], tags)

    compiled(compiler, call(list(range(20))))
    before = compiler.stats()
    grammar = compiled(compiler, sequence(tag("<think>", ANY, "</think>"), call([7, 3, 12])))
    after = compiler.stats()
    assert after["source_misses"] == before["source_misses"]
    assert after["units_built"] == before["units_built"]
    assert accepts(grammar, '<think>so</think>now <f12>{"p12": 1}</f>')
    fresh = Compiler(Tokenizer.from_bytes()).core
    _, _, sources = fresh.structural_tag_if_known(json.dumps({"format": call([3, 3, 5])}))
    assert [s.kind for s in sources] == ["json_schema"] * 2
    assert json.loads(sources[0].text) == schemas[3]


def test_a_tag_is_compiled_if_all_of_its_sources_are_known(compiler: Compiler) -> None:
    def call(pattern: str) -> Format:
        content: Format = {"type": "regex", "pattern": pattern}
        tags = [tag("<a>", content, "</a>"), tag("<b>", content, "</b>"), tag("<c>", ANY, "</c>")]
        return triggered(["<"], tags)

    text = json.dumps({"type": "structural_tag", "format": call("if known: [0-9]+")})
    grammar, number, missing = compiler._core.structural_tag_if_known(text)
    assert (grammar, number, [source.kind for source in missing]) == (None, 1, ["regex"])
    compiled(compiler, call("if known: [0-9]+"))
    grammar, number, missing = compiler._core.structural_tag_if_known(text)
    assert grammar is not None
    assert (number, missing) == (1, [])
    assert accepts(grammar, "say <b>if known: 12</b>")
    assert not accepts(grammar, "say <b>if known: x</b>")
    with pytest.raises(InvalidGrammar):
        compiler._core.structural_tag_if_known('{"type": "structural_tag"}')


def test_tag_events(compiler: Compiler) -> None:
    grammar = compiled(compiler, triggered(["<a", "<b"], [X, tag("<b>", ANY, "</b>")]))
    matcher = grammar.matcher()
    matcher.accept_bytes("z<a>x</a>..<b>hi</b>")
    assert matcher.tag_events() == [("open", 0, 4), ("close", 0, 9), ("open", 1, 14), ("close", 1, 20)]


def test_tag_events_of_a_tag_that_must_come_first(compiler: Compiler) -> None:
    tags = [X, tag("[b]", const("y"), "[/b]")]
    matcher = compiled(compiler, triggered(["<a", "["], tags, at_least_one=True)).matcher()
    assert matcher.accept_bytes("[b]y[/b]z<a>x</a>")
    assert matcher.tag_events() == [("open", 1, 3), ("close", 1, 8), ("open", 0, 12), ("close", 0, 17)]


@pytest.mark.parametrize("seed", range(6))
def test_random_formats(compiler: Compiler, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(70):
        node = Generator(rng).format()
        texts = [derive(rng, node) for _ in range(12)]
        texts += [mutated(rng, t) for t in texts] + random_texts(rng, 10)
        texts = sorted({t for t in texts if len(t) < 30})
        expected = {t: matches(node, t) for t in texts}
        try:
            grammar = compiled(compiler, node)
        except UnsatisfiableSchema:
            assert not any(expected.values()), node
            continue
        for text in texts:
            assert accepts(grammar, text) == expected[text], (json.dumps(node), text)


def test_whitespace_in_json_ends_and_elsewhere_need_not(compiler: Compiler) -> None:
    tags = [
        tag("<j>", {"type": "json_schema", "json_schema": {"type": "array"}}, "</j>"),
        tag("<t>", ANY, "</t>"),
        tag("<r>", {"type": "regex", "pattern": "[ 0-9]*"}, "</r>"),
    ]
    grammar = compiled(compiler, triggered(["<"], tags))
    spaces = " " * 200
    assert accepts(grammar, f"{spaces}<j>[ 1 ]</j>{spaces}<t>{spaces}</t><r>{spaces}{'1' * 200}</r>")
    assert not accepts(grammar, f"<j>[{spaces}]</j>")
