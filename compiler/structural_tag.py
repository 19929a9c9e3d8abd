"""Pydantic models of structural tags, with the field names of XGrammar 0.2.9: JSON of either side reads on the other.

    from gramary.compiler import structural_tag as st

    tag = st.StructuralTag(format=st.TriggeredTagsFormat(triggers=["<f"], tags=[
        st.TagFormat(begin="<f>", content=st.JSONSchemaFormat(json_schema=schema), end="</f>")]))
    grammar = compiler.compile_structural_tag(tag)

They need Pydantic; the compiler itself does not, it takes JSON text and dicts, too. What a format means is in
`docs/structural-tags.md`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TokenRef = int | str
"""A token, by id or by text."""

Style = Literal[
    "json",
    "qwen_xml",
    "minimax_xml",
    "minimax_m3_xml",
    "deepseek_xml",
    "glm_xml",
    "cohere_xml",
    "kimi_k3_xml",
    "deepseek_v4_1_xml",
    "gemma",
]
"""How a `json_schema` is written."""

_Count = Annotated[int, Field(ge=0, le=2_147_483_647)]


class ConstStringFormat(BaseModel):
    """Exactly `value`."""

    type: Literal["const_string"] = "const_string"
    value: str


class JSONSchemaFormat(BaseModel):
    """What a JSON Schema allows."""

    type: Literal["json_schema"] = "json_schema"
    json_schema: bool | dict[str, Any]
    style: Style = "json"
    any_order: bool = False
    max_whitespace_cnt: _Count | None = None
    excludes: list[str] = []


class QwenXMLParameterFormat(BaseModel):
    """The old form of `JSONSchemaFormat(style="qwen_xml")`."""

    type: Literal["qwen_xml_parameter"] = "qwen_xml_parameter"
    json_schema: bool | dict[str, Any]


class GrammarFormat(BaseModel):
    """What an EBNF grammar allows."""

    type: Literal["grammar"] = "grammar"
    grammar: str
    syntax: Literal["ebnf", "lark"] = "ebnf"


class RegexFormat(BaseModel):
    """What a pattern matches as a whole."""

    type: Literal["regex"] = "regex"
    pattern: str


class AnyTextFormat(BaseModel):
    """Any text without the strings of `excludes` and without the end of a tag around it.

    It has at most `max_chars` characters, or at most `max_tokens` tokens begin in it.
    """

    type: Literal["any_text"] = "any_text"
    excludes: list[str] = []
    max_tokens: _Count | None = None
    max_chars: _Count | None = None


class TokenFormat(BaseModel):
    """One token."""

    type: Literal["token"] = "token"
    token: TokenRef


class ExcludeTokenFormat(BaseModel):
    """Any one token but these and those that end the text."""

    type: Literal["exclude_token"] = "exclude_token"
    exclude_tokens: list[TokenRef] = []


class AnyTokensFormat(BaseModel):
    """Any tokens but these and those that end the text."""

    type: Literal["any_tokens"] = "any_tokens"
    exclude_tokens: list[TokenRef] = []
    max_tokens: _Count | None = None


class SequenceFormat(BaseModel):
    """One after the other."""

    type: Literal["sequence"] = "sequence"
    elements: list[Format]


class OrFormat(BaseModel):
    """One of these."""

    type: Literal["or"] = "or"
    elements: list[Format]


class OptionalFormat(BaseModel):
    """Once or not at all."""

    type: Literal["optional"] = "optional"
    content: Format


class PlusFormat(BaseModel):
    """Once or more."""

    type: Literal["plus"] = "plus"
    content: Format


class StarFormat(BaseModel):
    """Any number of times."""

    type: Literal["star"] = "star"
    content: Format


class RepeatFormat(BaseModel):
    """From `min` to `max` times; -1 is no bound."""

    type: Literal["repeat"] = "repeat"
    min: int
    max: int
    content: Format


class TagFormat(BaseModel):
    """`begin`, `content`, and one of the ends."""

    type: Literal["tag"] = "tag"
    begin: str | TokenFormat
    content: Format
    end: str | list[str] | TokenFormat


class TriggeredTagsFormat(BaseModel):
    """Free text; where a trigger has been written, one of the tags follows that begin with it."""

    type: Literal["triggered_tags"] = "triggered_tags"
    triggers: list[str]
    tags: list[TagFormat]
    at_least_one: bool = False
    stop_after_first: bool = False
    excludes: list[str] = []


class TokenTriggeredTagsFormat(BaseModel):
    """The same on tokens: tags begin with one of the trigger tokens."""

    type: Literal["token_triggered_tags"] = "token_triggered_tags"
    trigger_tokens: list[TokenRef]
    tags: list[TagFormat]
    exclude_tokens: list[TokenRef] = []
    at_least_one: bool = False
    stop_after_first: bool = False


class TagsWithSeparatorFormat(BaseModel):
    """Tags and nothing but the separator between them."""

    type: Literal["tags_with_separator"] = "tags_with_separator"
    tags: list[TagFormat]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


class DispatchFormat(BaseModel):
    """Free text; where a pattern has been written, its format follows."""

    type: Literal["dispatch"] = "dispatch"
    rules: list[tuple[str, Format]]
    loop: bool = True
    excludes: list[str] = []


class TokenDispatchFormat(BaseModel):
    """Free tokens; after a pattern token its format follows."""

    type: Literal["token_dispatch"] = "token_dispatch"
    rules: list[tuple[TokenRef, Format]]
    loop: bool = True
    exclude_tokens: list[TokenRef] = []


Format = Annotated[
    ConstStringFormat
    | JSONSchemaFormat
    | QwenXMLParameterFormat
    | GrammarFormat
    | RegexFormat
    | AnyTextFormat
    | TokenFormat
    | ExcludeTokenFormat
    | AnyTokensFormat
    | SequenceFormat
    | OrFormat
    | OptionalFormat
    | PlusFormat
    | StarFormat
    | RepeatFormat
    | TagFormat
    | TriggeredTagsFormat
    | TokenTriggeredTagsFormat
    | TagsWithSeparatorFormat
    | DispatchFormat
    | TokenDispatchFormat,
    Field(discriminator="type"),
]
"""Any format."""

for _model in (
    SequenceFormat,
    OrFormat,
    OptionalFormat,
    PlusFormat,
    StarFormat,
    RepeatFormat,
    TagFormat,
    TriggeredTagsFormat,
    TokenTriggeredTagsFormat,
    TagsWithSeparatorFormat,
    DispatchFormat,
    TokenDispatchFormat,
):
    _model.model_rebuild()


class StructuralTagItem(BaseModel):
    """A tag of the old form."""

    model_config = ConfigDict(populate_by_name=True)

    begin: str
    schema_: bool | str | dict[str, Any] = Field(alias="schema")
    end: str


class LegacyStructuralTag(BaseModel):
    """The old form: tags with JSON Schemas in free text."""

    type: Literal["structural_tag"] = "structural_tag"
    structures: list[StructuralTagItem]
    triggers: list[str]


class StructuralTag(BaseModel):
    """A whole structural tag."""

    type: Literal["structural_tag"] = "structural_tag"
    format: Format

    @classmethod
    def from_json(cls, source: str | bytes | dict[str, Any]) -> StructuralTag:
        """From JSON text or a dict, in either form."""
        data = source if isinstance(source, dict) else json.loads(source)
        if isinstance(data, dict) and "structures" in data:
            return cls.from_legacy(LegacyStructuralTag.model_validate(data))
        return cls.model_validate(data)

    @classmethod
    def from_legacy(cls, tag: LegacyStructuralTag) -> StructuralTag:
        """The old form as `triggered_tags`."""
        tags = []
        for item in tag.structures:
            schema = json.loads(item.schema_) if isinstance(item.schema_, str) else item.schema_
            tags.append(TagFormat(begin=item.begin, content=JSONSchemaFormat(json_schema=schema), end=item.end))
        return cls(format=TriggeredTagsFormat(triggers=tag.triggers, tags=tags))
