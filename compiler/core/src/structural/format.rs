//! The formats of a structural tag: JSON to a typed tree, with the pointer of every place.

use std::borrow::Cow;
use std::fmt::Write;

use smallvec::SmallVec;

use super::json::Json;
use crate::error::{CompileError, Result};
pub use crate::schema::Style;

/// A format and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<'a> {
    pub pointer: String,
    pub format: Format<'a>,
}

/// A token, by id or by text.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenRef<'a> {
    Id(u32),
    Text(Cow<'a, str>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Schema<'a> {
    pub text: Cow<'a, str>,
    pub style: Style,
    pub any_order: bool,
    pub max_whitespace: Option<u32>,
    pub excludes: Vec<Cow<'a, str>>,
}

/// What opens a tag.
#[derive(Clone, Debug, PartialEq)]
pub enum Begin<'a> {
    Text(Cow<'a, str>),
    Token(TokenRef<'a>),
}

/// What closes a tag.
#[derive(Clone, Debug, PartialEq)]
pub enum End<'a> {
    /// One of these; an empty one closes the tag without a text.
    Texts(Vec<Cow<'a, str>>),
    Token(TokenRef<'a>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tag<'a> {
    pub pointer: String,
    pub begin: Begin<'a>,
    pub content: Node<'a>,
    pub end: End<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Format<'a> {
    Const(Cow<'a, str>),
    Schema(Schema<'a>),
    Grammar(Cow<'a, str>),
    Regex(Cow<'a, str>),
    Text {
        excludes: Vec<Cow<'a, str>>,
        max_tokens: Option<u32>,
        max_chars: Option<u32>,
    },
    Token(TokenRef<'a>),
    ExcludeToken(Vec<TokenRef<'a>>),
    AnyTokens {
        excludes: Vec<TokenRef<'a>>,
        max_tokens: Option<u32>,
    },
    Sequence(Vec<Node<'a>>),
    Or(Vec<Node<'a>>),
    Repeat {
        content: Box<Node<'a>>,
        min: u32,
        max: Option<u32>,
    },
    Tag(Box<Tag<'a>>),
    Triggered {
        triggers: Vec<Cow<'a, str>>,
        tags: Vec<Tag<'a>>,
        at_least_one: bool,
        stop_after_first: bool,
        excludes: Vec<Cow<'a, str>>,
    },
    TokenTriggered {
        triggers: Vec<TokenRef<'a>>,
        tags: Vec<Tag<'a>>,
        at_least_one: bool,
        stop_after_first: bool,
        excludes: Vec<TokenRef<'a>>,
    },
    Separated {
        tags: Vec<Tag<'a>>,
        separator: Cow<'a, str>,
        at_least_one: bool,
        stop_after_first: bool,
    },
    Dispatch {
        rules: Vec<(Cow<'a, str>, Node<'a>)>,
        looped: bool,
        excludes: Vec<Cow<'a, str>>,
    },
    TokenDispatch {
        rules: Vec<(TokenRef<'a>, Node<'a>)>,
        looped: bool,
        excludes: Vec<TokenRef<'a>>,
    },
}

/// Every type, for people who misspell one.
const TYPES: &str = "const_string, json_schema, grammar, regex, any_text, token, exclude_token, any_tokens, sequence, or, \
     optional, plus, star, repeat, tag, triggered_tags, token_triggered_tags, tags_with_separator, dispatch, token_dispatch";

/// Reads a whole structural tag, in either form.
pub(super) fn read<'a>(json: &Json<'a>) -> Result<Node<'a>> {
    let at = Place { json, from: None, depth: 0 };
    at.object()?;
    if let Some(t) = json.get("type") {
        if !matches!(t, Json::Text(t) if t == "structural_tag") {
            return Err(CompileError::invalid("/type", "the type of a structural tag is \"structural_tag\""));
        }
    }
    if json.get("format").is_some() {
        return at.member("format").node();
    }
    if json.get("structures").is_some() {
        return legacy(&at);
    }
    Err(CompileError::invalid(
        "",
        "a structural tag has a member \"format\" (or, in the old form, \"structures\" and \"triggers\")",
    ))
}

/// `{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`.
fn legacy<'a>(at: &Place<'_, '_, 'a>) -> Result<Node<'a>> {
    let mut tags = vec![];
    for s in at.member("structures").list()? {
        s.object()?;
        let schema = s.member("schema");
        let text = match schema.schema()? {
            // The old form also takes a schema's text in a string.
            quoted if quoted.starts_with('"') => match serde_json::from_str::<String>(quoted) {
                Ok(text) => Cow::Owned(text),
                Err(_) => return Err(schema.wrong("a JSON Schema, or its text")),
            },
            text => Cow::Borrowed(text),
        };
        let content = Schema { text, style: Style::Json, any_order: false, max_whitespace: None, excludes: vec![] };
        tags.push(Tag {
            begin: Begin::Text(s.member("begin").text()?),
            content: Node { pointer: schema.pointer(), format: Format::Schema(content) },
            end: End::Texts(vec![s.member("end").text()?]),
            pointer: s.pointer(),
        });
    }
    let triggers = at.member("triggers").texts()?;
    let format = Format::Triggered { triggers, tags, at_least_one: false, stop_after_first: false, excludes: vec![] };
    Ok(Node { pointer: String::new(), format })
}

/// A value and where it stands. Its pointer is written only when somebody asks: most places are right.
struct Place<'p, 'j, 'a> {
    json: &'j Json<'a>,
    /// The place that it was reached from, and how.
    from: Option<(&'p Place<'p, 'j, 'a>, Step<'p>)>,
    /// Formats around.
    depth: u32,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    /// To a member; its name is one of ours and needs no escapes.
    Member(&'p str),
    Item(usize),
}

/// Formats inside one another: planning recurses along them.
const MOST_NESTED: u32 = 200;

const ABSENT: &Json<'static> = &Json::Null;

impl<'j, 'a> Place<'_, 'j, 'a> {
    fn member<'p>(&'p self, name: &'p str) -> Place<'p, 'j, 'a> {
        let json = self.json.get(name).unwrap_or(ABSENT);
        Place { json, from: Some((self, Step::Member(name))), depth: self.depth }
    }

    fn pointer(&self) -> String {
        let mut steps: SmallVec<[Step<'_>; 16]> = SmallVec::new();
        let mut at = self.from;
        while let Some((place, step)) = at {
            steps.push(step);
            at = place.from;
        }
        // Every tag has one: each is to be one allocation.
        let mut pointer = String::with_capacity(16 * steps.len());
        for step in steps.into_iter().rev() {
            // Writing to a string cannot fail.
            let _ = match step {
                Step::Member(name) => write!(pointer, "/{name}"),
                Step::Item(i) => write!(pointer, "/{i}"),
            };
        }
        pointer
    }

    fn wrong(&self, wanted: &str) -> CompileError {
        let found = match self.json {
            Json::Null => "it is missing or null".into(),
            other => format!("it is {}", other.kind()),
        };
        CompileError::invalid(self.pointer(), format!("this must be {wanted}; {found}"))
    }

    fn object(&self) -> Result<()> {
        match self.json {
            Json::Object(_) => Ok(()),
            _ => Err(self.wrong("an object")),
        }
    }

    fn list(&self) -> Result<Vec<Place<'_, 'j, 'a>>> {
        let Json::Array(items) = self.json else { return Err(self.wrong("a list")) };
        let place = |(i, json)| Place { json, from: Some((self, Step::Item(i))), depth: self.depth + 1 };
        Ok(items.iter().enumerate().map(place).collect())
    }

    fn some(&self) -> Result<Vec<Place<'_, 'j, 'a>>> {
        match self.list()? {
            items if items.is_empty() => Err(CompileError::invalid(self.pointer(), "the list must not be empty")),
            items => Ok(items),
        }
    }

    fn text(&self) -> Result<Cow<'a, str>> {
        match self.json {
            Json::Text(t) => Ok(t.clone()),
            _ => Err(self.wrong("a string")),
        }
    }

    /// A list of strings that are not empty; none if it is missing.
    fn texts(&self) -> Result<Vec<Cow<'a, str>>> {
        if *self.json == Json::Null {
            return Ok(vec![]);
        }
        let mut texts = vec![];
        for item in self.list()? {
            let text = item.text()?;
            if text.is_empty() {
                return Err(CompileError::invalid(item.pointer(), "the string must not be empty"));
            }
            texts.push(text);
        }
        Ok(texts)
    }

    fn flag(&self, default: bool) -> Result<bool> {
        match self.json {
            Json::Null => Ok(default),
            Json::Bool(b) => Ok(*b),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// A count; `None` if it is missing or null.
    fn count(&self) -> Result<Option<u32>> {
        match self.json {
            Json::Null => Ok(None),
            Json::Number(n) => match n.parse::<u32>() {
                Ok(n) if n < u32::MAX => Ok(Some(n)),
                _ => Err(CompileError::invalid(
                    self.pointer(),
                    format!("this must be a whole number from 0 to {}; it is {n}", u32::MAX - 1),
                )),
            },
            _ => Err(self.wrong("a whole number")),
        }
    }

    fn schema(&self) -> Result<&'a str> {
        match self.json {
            Json::Raw(text) => Ok(text),
            _ => Err(self.wrong("a JSON Schema")),
        }
    }

    fn token(&self) -> Result<TokenRef<'a>> {
        match self.json {
            Json::Text(t) if !t.is_empty() => Ok(TokenRef::Text(t.clone())),
            Json::Number(n) => match n.parse::<u32>() {
                Ok(id) => Ok(TokenRef::Id(id)),
                Err(_) => Err(CompileError::invalid(self.pointer(), format!("{n} is no token id"))),
            },
            _ => Err(self.wrong("a token: its id, or its text")),
        }
    }

    fn tokens(&self) -> Result<Vec<TokenRef<'a>>> {
        match self.json {
            Json::Null => Ok(vec![]),
            _ => self.list()?.iter().map(Place::token).collect(),
        }
    }

    fn nodes(&self) -> Result<Vec<Node<'a>>> {
        self.some()?.iter().map(Place::node).collect()
    }

    fn boxed(&self) -> Result<Box<Node<'a>>> {
        Ok(Box::new(Place { json: self.json, from: self.from, depth: self.depth + 1 }.node()?))
    }

    fn node(&self) -> Result<Node<'a>> {
        self.object()?;
        if self.depth > MOST_NESTED {
            let what = "the nesting of formats";
            return Err(CompileError::limit("depth", what, MOST_NESTED.into()).within(&self.pointer()));
        }
        let kind = self.member("type").text()?;
        let format = match &*kind {
            "const_string" => Format::Const(self.member("value").text()?),
            "json_schema" => Format::Schema(self.styled()?),
            "qwen_xml_parameter" => Format::Schema(Schema {
                text: Cow::Borrowed(self.member("json_schema").schema()?),
                style: Style::QwenXml,
                any_order: false,
                max_whitespace: None,
                excludes: vec![],
            }),
            "grammar" => Format::Grammar(self.grammar()?),
            "regex" => Format::Regex(self.member("pattern").text()?),
            "any_text" => Format::Text {
                excludes: self.member("excludes").texts()?,
                max_tokens: self.member("max_tokens").count()?,
                max_chars: self.member("max_chars").count()?,
            },
            "token" => Format::Token(self.member("token").token()?),
            "exclude_token" => Format::ExcludeToken(self.member("exclude_tokens").tokens()?),
            "any_tokens" => Format::AnyTokens {
                excludes: self.member("exclude_tokens").tokens()?,
                max_tokens: self.member("max_tokens").count()?,
            },
            "sequence" => Format::Sequence(self.member("elements").nodes()?),
            "or" => Format::Or(self.member("elements").nodes()?),
            "optional" => Format::Repeat { content: self.member("content").boxed()?, min: 0, max: Some(1) },
            "star" => Format::Repeat { content: self.member("content").boxed()?, min: 0, max: None },
            "plus" => Format::Repeat { content: self.member("content").boxed()?, min: 1, max: None },
            "repeat" => self.repeat()?,
            "tag" => Format::Tag(Box::new(self.tag()?)),
            "triggered_tags" => Format::Triggered {
                triggers: self.member("triggers").texts()?,
                tags: self.tags()?,
                at_least_one: self.member("at_least_one").flag(false)?,
                stop_after_first: self.member("stop_after_first").flag(false)?,
                excludes: self.member("excludes").texts()?,
            },
            "token_triggered_tags" => Format::TokenTriggered {
                triggers: self.member("trigger_tokens").tokens()?,
                tags: self.tags()?,
                at_least_one: self.member("at_least_one").flag(false)?,
                stop_after_first: self.member("stop_after_first").flag(false)?,
                excludes: self.member("exclude_tokens").tokens()?,
            },
            "tags_with_separator" => Format::Separated {
                tags: self.tags()?,
                separator: self.member("separator").text()?,
                at_least_one: self.member("at_least_one").flag(false)?,
                stop_after_first: self.member("stop_after_first").flag(false)?,
            },
            "dispatch" => Format::Dispatch {
                rules: self.rules(|p| match p.text()? {
                    t if t.is_empty() => Err(CompileError::invalid(p.pointer(), "the pattern must not be empty")),
                    t => Ok(t),
                })?,
                looped: self.member("loop").flag(true)?,
                excludes: self.member("excludes").texts()?,
            },
            "token_dispatch" => Format::TokenDispatch {
                rules: self.rules(|p| p.token())?,
                looped: self.member("loop").flag(true)?,
                excludes: self.member("exclude_tokens").tokens()?,
            },
            other => {
                let message = format!("there is no format {other:?}; there are {TYPES}");
                return Err(CompileError::invalid(format!("{}/type", self.pointer()), message));
            }
        };
        Ok(Node { pointer: self.pointer(), format })
    }

    fn styled(&self) -> Result<Schema<'a>> {
        let style = self.member("style");
        let name = if *style.json == Json::Null { "json".into() } else { style.text()? };
        let style = Style::named(&name).ok_or_else(|| {
            let names = Style::ALL.map(Style::name).join(", ");
            CompileError::invalid(style.pointer(), format!("there is no style {name:?}; there are {names}"))
        })?;
        Ok(Schema {
            text: Cow::Borrowed(self.member("json_schema").schema()?),
            style,
            any_order: self.member("any_order").flag(false)?,
            max_whitespace: self.member("max_whitespace_cnt").count()?,
            excludes: self.member("excludes").texts()?,
        })
    }

    fn grammar(&self) -> Result<Cow<'a, str>> {
        let syntax = self.member("syntax");
        match syntax.json {
            Json::Null => {}
            Json::Text(t) if t == "ebnf" => {}
            Json::Text(t) if t == "lark" => {
                return Err(CompileError::unsupported(
                    syntax.pointer(),
                    "the syntax \"lark\"",
                    "grammars are written in EBNF",
                    "Write the rules as `name ::= ...`",
                ))
            }
            _ => return Err(syntax.wrong("\"ebnf\"")),
        }
        self.member("grammar").text()
    }

    fn repeat(&self) -> Result<Format<'a>> {
        let min = self.member("min").count()?.ok_or_else(|| self.member("min").wrong("a whole number"))?;
        let max = self.member("max");
        let max = match max.json {
            Json::Number("-1") => None,
            _ => Some(max.count()?.ok_or_else(|| max.wrong("a whole number, or -1 for no bound"))?),
        };
        if max.is_some_and(|max| max < min) {
            return Err(CompileError::invalid(
                self.pointer(),
                "max is less than min; swap them, or use -1 for no bound",
            ));
        }
        Ok(Format::Repeat { content: self.member("content").boxed()?, min, max })
    }

    fn tags(&self) -> Result<Vec<Tag<'a>>> {
        self.member("tags").some()?.iter().map(Place::tag).collect()
    }

    fn tag(&self) -> Result<Tag<'a>> {
        self.object()?;
        let kind = self.member("type");
        if !matches!(kind.json, Json::Null) && !matches!(kind.json, Json::Text(t) if t == "tag") {
            return Err(CompileError::invalid(kind.pointer(), "only tags can stand here: their type is \"tag\""));
        }
        let begin = self.member("begin");
        let begin = match begin.json {
            Json::Object(_) => Begin::Token(begin.token_format()?),
            _ => Begin::Text(begin.text()?),
        };
        let end = self.member("end");
        let end = match end.json {
            Json::Object(_) => End::Token(end.token_format()?),
            Json::Array(_) => End::Texts(end.some()?.iter().map(Place::text).collect::<Result<_>>()?),
            _ => End::Texts(vec![end.text()?]),
        };
        Ok(Tag { pointer: self.pointer(), begin, content: *self.member("content").boxed()?, end })
    }

    fn token_format(&self) -> Result<TokenRef<'a>> {
        let kind = self.member("type");
        if !matches!(kind.json, Json::Null) && !matches!(kind.json, Json::Text(t) if t == "token") {
            return Err(CompileError::invalid(kind.pointer(), "this must be a string or a \"token\""));
        }
        self.member("token").token()
    }

    fn rules<T>(&self, pattern: impl Fn(&Place<'_, 'j, 'a>) -> Result<T>) -> Result<Vec<(T, Node<'a>)>> {
        let mut rules = vec![];
        for rule in self.member("rules").some()? {
            match rule.list()?.as_slice() {
                [p, node] => rules.push((pattern(p)?, node.node()?)),
                _ => return Err(CompileError::invalid(rule.pointer(), "a rule is a pair: a pattern and a format")),
            }
        }
        Ok(rules)
    }
}
