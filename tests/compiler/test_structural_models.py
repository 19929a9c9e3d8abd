"""The Pydantic models of structural tags: every format, both forms; they compile like the JSON they stand for."""

import json

import pytest

from gramary.compiler import Compiler, Tokenizer

st = pytest.importorskip("gramary.compiler.structural_tag", reason="Pydantic is not installed")

SCHEMA = {"type": "object", "properties": {"a": {"enum": [None, 1]}, "b": {"const": None}}, "required": ["a"]}


def tag(**more: object) -> dict[str, object]:
    return {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>", **more}


FORMATS = [
    {"type": "const_string", "value": "x"},
    {"type": "json_schema", "json_schema": SCHEMA, "max_whitespace_cnt": 3, "excludes": ["no"]},
    {"type": "json_schema", "json_schema": True, "style": "qwen_xml", "any_order": True},
    {"type": "qwen_xml_parameter", "json_schema": SCHEMA},
    {"type": "grammar", "grammar": 'root ::= "a"'},
    {"type": "regex", "pattern": "a+"},
    {"type": "any_text", "excludes": ["x"], "max_chars": 5},
    {"type": "token", "token": 65},
    {"type": "exclude_token", "exclude_tokens": [65, "b"]},
    {"type": "any_tokens", "exclude_tokens": ["a"], "max_tokens": 3},
    {"type": "sequence", "elements": [{"type": "any_text"}, {"type": "token", "token": "a"}]},
    {"type": "or", "elements": [{"type": "const_string", "value": "x"}]},
    {"type": "optional", "content": {"type": "any_text"}},
    {"type": "plus", "content": {"type": "regex", "pattern": "a"}},
    {"type": "star", "content": {"type": "regex", "pattern": "a"}},
    {"type": "repeat", "min": 1, "max": -1, "content": {"type": "regex", "pattern": "a"}},
    tag(),
    tag(begin={"type": "token", "token": 1}, end=["", "b"]),
    {"type": "triggered_tags", "triggers": ["<"], "tags": [tag()], "at_least_one": True, "excludes": ["no"]},
    {"type": "token_triggered_tags", "trigger_tokens": [1], "tags": [tag(begin={"type": "token", "token": 1})]},
    {"type": "tags_with_separator", "tags": [tag()], "separator": ",", "stop_after_first": True},
    {"type": "dispatch", "rules": [["<", {"type": "regex", "pattern": "a"}]], "loop": False},
    {"type": "token_dispatch", "rules": [[1, {"type": "any_tokens"}]], "exclude_tokens": [2]},
]


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Tokenizer.from_bytes())


@pytest.mark.parametrize("node", FORMATS, ids=lambda n: n["type"])
def test_models_compile_like_their_json(compiler: Compiler, node: dict[str, object]) -> None:
    source = {"type": "structural_tag", "format": node}
    model = st.StructuralTag.from_json(json.dumps(source))
    assert type(model.format).model_fields["type"].default == node["type"]
    expected = compiler.compile_structural_tag(source)
    assert compiler.compile_structural_tag(model).digest == expected.digest
    again = st.StructuralTag.model_validate_json(model.model_dump_json())
    assert again == model
    assert compiler.compile_structural_tag(model.model_dump()).digest == expected.digest


def test_every_format_has_a_model() -> None:
    union = st.Format.__origin__.__args__
    assert {m.model_fields["type"].default for m in union} == {n["type"] for n in FORMATS}


def test_the_old_form(compiler: Compiler) -> None:
    old = {
        "type": "structural_tag",
        "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
        "triggers": ["<f"],
    }
    model = st.StructuralTag.from_json(old)
    assert compiler.compile_structural_tag(model).digest == compiler.compile_structural_tag(old).digest
    legacy = st.LegacyStructuralTag.model_validate(old)
    assert compiler.compile_structural_tag(legacy).digest == compiler.compile_structural_tag(old).digest
