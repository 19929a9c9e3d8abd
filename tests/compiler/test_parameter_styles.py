"""Parameters in tags of their own: the styles qwen_xml and deepseek_xml."""

from typing import Any

import pytest

from gramary.compiler import Compiler, InvalidGrammar, InvalidSchema, Tokenizer, UnsatisfiableSchema, UnsupportedSchema
from gramary.runtime._core import CompiledGrammar


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
    for schema, keyword in [
        ({"anyOf": [obj({"a": S})]}, "anyOf"),
        ({"type": "string"}, "type"),
        (obj({"a": S}, minProperties=1), "minProperties"),
        (obj({"a>": S}), "properties"),
        (obj({"a": S}, required=["b"]), "required"),
    ]:
        with pytest.raises(UnsupportedSchema) as caught:
            compiled(compiler, schema, "qwen_xml")
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
