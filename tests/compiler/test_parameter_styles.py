"""Parameters in tags of their own: the styles of `json_schema`."""

import json
import random
from typing import Any

import pytest

from gramary.compiler import (
    CompileError,
    Compiler,
    InvalidGrammar,
    InvalidSchema,
    Tokenizer,
    UnsatisfiableSchema,
    UnsupportedSchema,
    Vocabulary,
)
from gramary.runtime._core import CompiledGrammar
from tests import parameter_styles as reference
from tests.parameter_styles import STYLES, Pairs, write


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Tokenizer.from_bytes())


def compiled(compiler: Compiler, schema: Any, style: str, **more: Any) -> CompiledGrammar:
    node = {"type": "json_schema", "json_schema": schema, "style": style, **more}
    return compiler.compile_structural_tag({"type": "structural_tag", "format": node})


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


def qwen(name: str, value: str) -> str:
    return f"<parameter={name}>{value}</parameter>"


BAR = "\N{FULLWIDTH VERTICAL LINE}"


def deepseek(name: str, string: bool, value: str) -> str:
    mark = f"{BAR}DSML{BAR}parameter"
    return f'<{mark} name="{name}" string="{str(string).lower()}">{value}</{mark}>'


def obj(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


S, N = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        (
            obj({"a": S}, required=["a"]),
            [
                qwen("a", "x"),
                "\n" + qwen("a", "\nx\ny\n") + "\n",
                qwen("a", ""),
                qwen("a", "</param"),
                qwen("a", '"x"'),
            ],
            ["", qwen("a", "b</parameter>c"), qwen("b", "x"), qwen("a", "x") * 2],
        ),
        (obj({"a": N}, required=["a"]), [qwen("a", "1"), qwen("a", "\n-12\n")], [qwen("a", "x"), qwen("a", "")]),
        (
            obj({"a": N, "b": S}),
            ["", qwen("a", "1"), qwen("b", "1"), qwen("a", "1") + "\n" + qwen("b", "z")],
            [qwen("b", "1") + qwen("a", "1"), qwen("c", "1")],
        ),
        (
            obj({"a": N}, additionalProperties=N),
            [qwen("c", "1"), qwen("a", "1") + qwen("c", "2") + qwen("d", "3")],
            [qwen("c", "x"), qwen("a", "x"), qwen("c", "1") + qwen("a", "1")],
        ),
        (obj({"a": N}, additionalProperties=True), [qwen("c", "any text"), qwen("c", '{"a": 1}')], [qwen("a", "z")]),
        (True, ["", qwen("c", "1") + qwen("d", "x")], ["{}", "x"]),
        ({"type": "object"}, ["", qwen("c", "x")], ["{}"]),
        (
            obj({"a": {"enum": ["x y", 1, None]}}, required=["a"]),
            [qwen("a", v) for v in ("x y", "1", "null")],
            [qwen("a", "z")],
        ),
        (obj({"a": {"type": ["string", "integer"]}}), [qwen("a", "1"), qwen("a", "x")], []),
        (obj({"a": {"type": "string", "minLength": 2, "maxLength": 3}}), [qwen("a", "é\n")], [qwen("a", "abcd")]),
        (obj({"a": {"type": "string", "pattern": "^[a-z]+$"}}), [qwen("a", "abc")], [qwen("a", "aBc")]),
        (obj({"a": {"type": "array", "items": S}}), [qwen("a", '["x", "y"]')], [qwen("a", "[x]"), qwen("a", "x")]),
        (
            obj({"a": {"$ref": "#/$defs/T"}}, **{"$defs": {"T": obj({"n": {"$ref": "#/$defs/T"}, "s": S})}}),
            [qwen("a", '{"n": {"s": "x"}}')],
            [qwen("a", '{"n": 1}'), qwen("a", "x")],
        ),
        ({"$ref": "#/$defs/P", "$defs": {"P": obj({"a": N})}}, [qwen("a", "1")], [qwen("a", "x")]),
        (obj({"a": False, "b": N}), ["", qwen("b", "1")], [qwen("a", "1")]),
    ],
)
def test_qwen(compiler: Compiler, schema: Any, yes: list[str], no: list[str]) -> None:
    grammar = compiled(compiler, schema, "qwen_xml")
    for text in yes:
        assert accepts(grammar, text), text
    for text in no:
        assert not accepts(grammar, text), text


def test_deepseek_tells_strings_from_other_values(compiler: Compiler) -> None:
    schema = obj({"a": S, "b": N, "c": {"enum": ["x", 1]}, "d": {}}, required=["a", "b"])
    grammar = compiled(compiler, schema, "deepseek_xml")
    ab = deepseek("a", True, "x <b>") + "\n" + deepseek("b", False, " 1 ")
    assert accepts(grammar, ab)
    assert accepts(grammar, "\n" + ab + deepseek("c", True, "x") + deepseek("d", False, '{"k": [1]}') + "\n")
    assert accepts(grammar, ab + deepseek("c", False, "1") + deepseek("d", True, "1"))
    for wrong in [
        deepseek("a", False, '"x"') + deepseek("b", False, "1"),
        deepseek("a", True, "x") + deepseek("b", True, "1"),
        ab + deepseek("c", True, "1"),
        ab + deepseek("d", False, '"x"'),
        deepseek("b", False, "1") + deepseek("a", True, "x"),
    ]:
        assert not accepts(grammar, wrong), wrong


def test_any_order(compiler: Compiler) -> None:
    grammar = compiled(compiler, obj({"a": N, "b": S}, required=["a"]), "qwen_xml", any_order=True)
    assert accepts(grammar, qwen("b", "x") + qwen("a", "1"))
    assert not accepts(grammar, qwen("b", "x") + qwen("c", "1"))


def test_the_old_name_and_excluded_texts(compiler: Compiler) -> None:
    old = {"type": "qwen_xml_parameter", "json_schema": obj({"a": S})}
    new = compiled(compiler, obj({"a": S}), "qwen_xml")
    assert compiler.compile_structural_tag({"type": "structural_tag", "format": old}).digest == new.digest
    narrow = compiled(compiler, obj({"a": S, "b": {"type": "array", "items": S}}), "qwen_xml", excludes=["<|"])
    assert accepts(narrow, qwen("a", "< |") + qwen("b", '["x"]'))
    assert not accepts(narrow, qwen("a", "x<|"))
    assert not accepts(narrow, qwen("b", '["x<|"]'))


def test_whitespace_can_be_bounded(compiler: Compiler) -> None:
    grammar = compiled(compiler, obj({"a": N}), "qwen_xml", max_whitespace_cnt=1)
    assert accepts(grammar, qwen("a", "\n1\n"))
    assert not accepts(grammar, qwen("a", "\n\n1"))


def test_what_cannot_be_written_as_parameters(compiler: Compiler) -> None:
    for schema, keyword, style in [
        ({"type": "string"}, "type", "qwen_xml"),
        ({"anyOf": [obj({"a": S}), {"type": "null"}]}, "type", "qwen_xml"),
        (obj({"a": S}, minProperties=1), "minProperties", "qwen_xml"),
        (obj({"a": S, "b": S}, maxProperties=1), "maxProperties", "gemma"),
        (obj({"a>": S}), "properties", "qwen_xml"),
        (obj({"a:b": S}), "properties", "gemma"),
        (obj({"a": {"type": "array", "items": S, "uniqueItems": True}}), "uniqueItems", "cohere_xml"),
        (obj({"a": S}, additionalProperties=S), "additionalProperties", "minimax_m3_xml"),
        (obj({"a": {}}), "additionalProperties", "minimax_m3_xml"),
        (
            obj({"a": S}, **{"not": obj({}, additionalProperties=S)}, additionalProperties=True),
            "additionalProperties",
            "qwen_xml",
        ),
    ]:
        with pytest.raises(UnsupportedSchema) as caught:
            compiled(compiler, schema, style)
        assert caught.value.keyword == keyword
        assert caught.value.pointer.startswith("/format/json_schema")
    with pytest.raises(UnsatisfiableSchema):
        compiled(compiler, obj({"a": False}, required=["a"]), "qwen_xml")
    with pytest.raises((InvalidSchema, InvalidGrammar)) as invalid:
        compiled(compiler, obj({"a": {"type": "string", "minLength": "x"}}), "qwen_xml")
    assert invalid.value.pointer == "/format/json_schema/properties/a/minLength"


def test_a_source_of_its_own() -> None:
    node = {"type": "json_schema", "json_schema": obj({"a": S}), "style": "qwen_xml"}
    _, _, (source,) = Compiler(Tokenizer.from_bytes()).core.structural_tag_if_known({"format": node})
    assert source.kind == "styled_schema"
    again = type(source).from_parts(source.kind, source.options, source.text)
    assert again.key == source.key


def test_keywords_compose_as_elsewhere(compiler: Compiler) -> None:
    choice = {"anyOf": [obj({"a": N}, required=["a"]), obj({"b": S}, required=["b"])]}
    both = {"allOf": [obj({"a": N}, additionalProperties=True), obj({"a": {"minimum": 5}, "b": S}, required=["a"])]}
    patterned = obj({"a": N}, patternProperties={"^x": {"enum": ["v"]}}, additionalProperties=False)
    for schema, yes, no in [
        (choice, [qwen("a", "1"), qwen("b", "x")], [qwen("a", "1") + qwen("b", "x"), ""]),
        (both, [qwen("a", "7") + qwen("b", "x")], [qwen("a", "1"), qwen("b", "x")]),
        (patterned, [qwen("a", "7"), qwen("xy", "v")], [qwen("xy", "w"), qwen("y", "v")]),
        (obj({"a": N}, required=["a", "b"]), [qwen("a", "1") + qwen("b", "x")], [qwen("a", "1")]),
    ]:
        grammar = compiled(compiler, schema, "qwen_xml")
        assert [accepts(grammar, t) for t in yes + no] == [True] * len(yes) + [False] * len(no), schema


NS, Q = reference.NS, reference.QUOTE


def kimi(name: str, kind: str, value: str) -> str:
    return f'<|open|>argument key="{name}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'


def cohere(name: str | None, kind: str, value: str) -> str:
    named = "" if name is None else f' name="{name}"'
    return f'<cofl:value{named} type="{kind}">{value}</cofl:value>'


def m3(name: str, value: str) -> str:
    return f"{NS}<{name}>{value}{NS}</{name}>"


RICH = obj({"s": S, "n": N, "l": {"type": "array", "items": S}, "o": obj({"x": S}, required=["x"])}, required=["s"])


@pytest.mark.parametrize(
    ("style", "yes", "no"),
    [
        (
            "minimax_xml",
            ['<parameter name="s">a b</parameter>\n<parameter name="l">["x"]</parameter>'],
            ['<parameter name="s">a</parameter', "<parameter=s>a</parameter>", '<parameter name="n">1</parameter>'],
        ),
        (
            "glm_xml",
            [
                "<arg_key>s</arg_key><arg_value>a</arg_value>",
                "\n<arg_key>s</arg_key>\n<arg_value>a\n</arg_value>\n<arg_key>n</arg_key>\n<arg_value> 1 </arg_value>",
            ],
            ["<arg_key>s</arg_key>x<arg_value>a</arg_value>", "<arg_key> s</arg_key><arg_value>a</arg_value>"],
        ),
        (
            "deepseek_v4_1_xml",
            [f'<{BAR}DSML{BAR} parameter name="s" string="true">a</{BAR}DSML{BAR} parameter>'],
            [deepseek("s", True, "a")],
        ),
        (
            "kimi_k3_xml",
            [
                kimi("s", "string", 'a "b" <|close|>'),
                kimi("s", "string", "") + kimi("n", "number", "-1") + kimi("l", "array", '["x"]'),
                kimi("s", "string", "") + "\n" + kimi("o", "object", '{"x": "y"}'),
            ],
            [
                kimi("s", "number", "a"),
                kimi("s", "string", "") + kimi("n", "integer", "1"),
                kimi("s", "string", "") + kimi("n", "string", "1"),
            ],
        ),
        (
            "cohere_xml",
            [
                cohere("s", "raw", "<b>"),
                cohere("s", "raw", "") + "\n" + cohere("n", "json", " 1 "),
                cohere("s", "raw", "") + cohere("l", "list", cohere(None, "raw", "x") + cohere(None, "raw", "")),
                cohere("s", "raw", "") + cohere("l", "list", "") + cohere("o", "dict", cohere("x", "raw", "y") + "\n"),
            ],
            [
                cohere("s", "json", '"x"'),
                cohere("s", "raw", "") + cohere("l", "list", cohere(None, "json", "1")),
                cohere("s", "raw", "") + cohere("l", "json", '["x"]'),
                cohere("s", "raw", "") + cohere("o", "dict", ""),
            ],
        ),
        (
            "minimax_m3_xml",
            [
                m3("s", "a <b>"),
                "\n" + m3("s", "") + "\n" + m3("n", "1") + m3("l", m3("item", "x") + "\n" + m3("item", "y")) + "\n",
                m3("s", "") + m3("l", "") + m3("o", "\n" + m3("x", "y") + "\n"),
            ],
            [m3("s", NS), m3("s", "") + m3("n", " 1"), m3("s", "") + m3("l", "x"), f"{NS}<s>a{NS}</n>"],
        ),
        (
            "gemma",
            [
                f'{{s:{Q}a "b" {{{Q}}}',
                f"{{ s : {Q}{Q} , n : 1 , l : [ {Q}x{Q} , {Q}{Q} ] , o : {{x:{Q}y{Q}}} }}",
                f"{{s:{Q}{Q},l:[]}}",
            ],
            ['{"s":"a"}', "{s:a}", "{}", f"{{s:{Q}{Q},}}", f"{{s:{Q}{Q},o:{{}}}}", f'{{s:"a{Q}}}', f"s:{Q}{Q}"],
        ),
    ],
)
def test_further_styles(compiler: Compiler, style: str, yes: list[str], no: list[str]) -> None:
    grammar = compiled(compiler, RICH, style)
    for text in yes:
        assert accepts(grammar, text), text
    for text in no:
        assert not accepts(grammar, text), text


def test_names_are_escaped_where_the_style_does(compiler: Compiler) -> None:
    name = 'a&"'
    assert accepts(compiled(compiler, obj({name: S}), "kimi_k3_xml"), kimi("a&amp;&quot;", "string", "x"))
    grammar = compiled(compiler, obj({name + "<": S}, additionalProperties=N), "cohere_xml")
    assert accepts(grammar, cohere("a&amp;&quot;&lt;", "raw", "x") + cohere("b&gt; c", "json", "1"))
    assert not accepts(grammar, cohere("a&amp;&quot;&lt;", "json", "1"))
    assert not accepts(grammar, cohere("b> c", "json", "1"))


def test_recursive_schemas_in_nested_styles(compiler: Compiler) -> None:
    schema = {
        "$ref": "#/$defs/T",
        "$defs": {"T": obj({"v": N, "t": {"type": "array", "items": {"$ref": "#/$defs/T"}}})},
    }
    value = Pairs([("v", 1), ("t", [Pairs([("t", [Pairs([("v", 2)])])]), Pairs()])])
    wrong = Pairs([("t", [Pairs([("v", "x")])])])
    for style in reference.NESTED:
        grammar = compiled(compiler, schema, style)
        assert accepts(grammar, write(style, value)), style
        assert not accepts(grammar, write(style, wrong)), style


def test_constants_and_free_values(compiler: Compiler) -> None:
    const: Any = {"x": ["a", 1], "y": {"z": None}}
    value = Pairs([("c", Pairs([("x", ["a", 1]), ("y", Pairs([("z", None)]))]))])
    other = Pairs([("c", Pairs([("x", ["a", 2]), ("y", Pairs([("z", None)]))]))])
    for style in STYLES:
        grammar = compiled(compiler, obj({"c": {"const": const}}), style)
        assert accepts(grammar, write(style, value)), style
        assert not accepts(grammar, write(style, other)), style
        if style != "minimax_m3_xml":
            free = compiled(compiler, True, style)
            assert accepts(free, write(style, value)), style
            assert accepts(free, write(style, other)), style


@pytest.mark.parametrize("style", STYLES)
def test_against_the_slow_reader(compiler: Compiler, style: str) -> None:
    rng = random.Random(style)
    seen = {True: 0, False: 0}
    for _ in range(60):
        schema = reference.schema(rng)
        if style == "minimax_m3_xml":
            # It cannot write names that are not declared.
            schema = reference.without(schema, "additionalProperties")
        grammar = compiled(compiler, schema, style)
        for _ in range(6):
            value = reference.instance(rng, schema)
            text = write(style, value if isinstance(value, Pairs) else Pairs())
            for tried in (text, reference.mutated(rng, text)):
                right = reference.matches(style, schema, tried)
                assert accepts(grammar, tried) == right, (json.dumps(schema), tried)
                seen[right] += 1
    assert min(seen.values()) > 50


def test_any_order_in_gemma(compiler: Compiler) -> None:
    grammar = compiled(compiler, obj({"a": N, "b": S}, additionalProperties=N), "gemma", any_order=True)
    for text in ["{}", f"{{b:{Q}{Q},a:1}}", f"{{c:1,b:{Q}{Q}}}"]:
        assert accepts(grammar, text), text
    for text in [f"{{c:{Q}{Q}}}", "{a:1,}", "{,a:1}"]:
        assert not accepts(grammar, text), text


def test_excluded_texts_in_every_style(compiler: Compiler) -> None:
    schema = obj({"s": S, "l": {"type": "array", "items": S}}, additionalProperties=False)
    for style in STYLES:
        grammar = compiled(compiler, schema, style, excludes=["no"])
        assert accepts(grammar, write(style, Pairs([("s", "n o"), ("l", ["n", "o"])]))), style
        assert not accepts(grammar, write(style, Pairs([("s", "xno")]))), style
        assert not accepts(grammar, write(style, Pairs([("l", ["nox"])]))), style


def test_marks_of_a_style_are_tokens_where_the_vocabulary_has_them() -> None:
    """`<|"|>` is one special token of Gemma's tokenizers, `<|open|>` and its like are of Kimi's."""
    marks = ['<|"|>', "<|open|>", "<|close|>", "<|sep|>"]
    words = [bytes([i]) for i in range(256)] + [m.encode() for m in marks] + [b"</s>"]
    vocabulary = Vocabulary.from_tokens(words, special=list(range(256, 261)))
    compiler = Compiler(vocabulary, stop_token_ids=[260])

    def takes(grammar: CompiledGrammar, text: str) -> bool:
        """The text as its tokens, marks as special ones."""
        matcher = grammar.matcher()
        rest = text
        while rest:
            mark = next((i for i, m in enumerate(marks) if rest.startswith(m)), None)
            token = rest.encode()[0] if mark is None else 256 + mark
            if not matcher.accept_token(token):
                return False
            rest = rest.encode()[1:].decode() if mark is None else rest[len(marks[mark]) :]
        return matcher.is_complete()

    schema = obj({"s": S, "n": N}, required=["s"])
    for style in ("gemma", "kimi_k3_xml"):
        grammar = compiled(compiler, schema, style)
        text = write(style, Pairs([("s", "x y"), ("n", 1)]))
        assert takes(grammar, text), style
        # Spelled out they are no marks, and must not be written in a string either.
        assert not accepts(grammar, text), style
        assert not takes(grammar, write(style, Pairs([("n", 1)]))), style
        spelled = grammar.matcher()
        head = [256] if style == "gemma" else []
        prefix = list(b"{s:") if style == "gemma" else [257, *b'argument key="s" type="string"', 259]
        assert all(spelled.accept_token(t) for t in prefix + head), style
        assert not spelled.accept_bytes(marks[0] if style == "gemma" else "<|close|>"), style


def test_unknown_styles(compiler: Compiler) -> None:
    with pytest.raises(CompileError, match="there is no style") as caught:
        compiled(compiler, True, "yaml")
    assert caught.value.pointer == "/format/style"
