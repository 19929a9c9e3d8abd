//! The styles: what each writes around names and values.

use serde::{Deserialize, Serialize};

use super::Place;

/// The styles, by the names that XGrammar has for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Style {
    #[default]
    Json,
    QwenXml,
    MinimaxXml,
    MinimaxM3Xml,
    DeepseekXml,
    DeepseekV41Xml,
    GlmXml,
    KimiK3Xml,
    CohereXml,
    Gemma,
}

impl Style {
    pub const ALL: [Style; 10] = [
        Style::Json,
        Style::QwenXml,
        Style::MinimaxXml,
        Style::MinimaxM3Xml,
        Style::DeepseekXml,
        Style::DeepseekV41Xml,
        Style::GlmXml,
        Style::KimiK3Xml,
        Style::CohereXml,
        Style::Gemma,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Style::Json => "json",
            Style::QwenXml => "qwen_xml",
            Style::MinimaxXml => "minimax_xml",
            Style::MinimaxM3Xml => "minimax_m3_xml",
            Style::DeepseekXml => "deepseek_xml",
            Style::DeepseekV41Xml => "deepseek_v4_1_xml",
            Style::GlmXml => "glm_xml",
            Style::KimiK3Xml => "kimi_k3_xml",
            Style::CohereXml => "cohere_xml",
            Style::Gemma => "gemma",
        }
    }

    pub fn named(name: &str) -> Option<Style> {
        Style::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl From<Style> for &'static str {
    fn from(style: Style) -> &'static str {
        style.name()
    }
}

impl TryFrom<String> for Style {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Style, String> {
        Style::named(&name).ok_or_else(|| format!("there is no style {name:?}"))
    }
}

/// Kinds of values that styles tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

const KINDS: [Kind; 6] = [Kind::Null, Kind::Boolean, Kind::Number, Kind::String, Kind::Array, Kind::Object];

/// How a style writes a member: `name.0`, the name, `name.1`, what tells the kind, the value, `close`.
pub(super) struct Form {
    pub name: (&'static str, &'static str),
    /// Behind `name.1` and whitespace.
    pub value: &'static str,
    pub kind: Option<fn(Kind) -> &'static str>,
    /// Behind a value; for a string, what it cannot hold.
    pub close: &'static str,
    /// Behind `close`, around the name once more.
    pub again: Option<(&'static str, &'static str)>,
    /// Before and after an item of an array; `None`: what is inside a value is JSON.
    pub item: Option<(&'static str, &'static str)>,
    /// Whitespace may stand around items.
    pub spaced_items: bool,
    /// Around a string in quotes of its own. Objects and arrays then are as in JSON, names without quotes.
    pub quote: Option<&'static str>,
    /// Whitespace may stand around a string; around other values.
    pub padded: (bool, bool),
    /// Characters of names that are written otherwise.
    pub escapes: &'static [(char, &'static str)],
    /// Characters that names cannot hold, besides control characters.
    pub odd: &'static [char],
}

const ODD: &[char] = &['<', '>', '"'];

const PLAIN: Form = Form {
    name: ("", ""),
    value: "",
    kind: None,
    close: "",
    again: None,
    item: None,
    spaced_items: false,
    quote: None,
    padded: (true, true),
    escapes: &[],
    odd: ODD,
};

fn string_or_not(kind: Kind) -> &'static str {
    match kind {
        Kind::String => " string=\"true\">",
        _ => " string=\"false\">",
    }
}

fn kimi_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Null => " type=\"null\"<|sep|>",
        Kind::Boolean => " type=\"boolean\"<|sep|>",
        Kind::Number => " type=\"number\"<|sep|>",
        Kind::String => " type=\"string\"<|sep|>",
        Kind::Array => " type=\"array\"<|sep|>",
        Kind::Object => " type=\"object\"<|sep|>",
    }
}

fn cohere_type(kind: Kind) -> &'static str {
    match kind {
        Kind::String => " type=\"raw\">",
        Kind::Array => " type=\"list\">",
        Kind::Object => " type=\"dict\">",
        _ => " type=\"json\">",
    }
}

impl Style {
    pub(super) fn form(self) -> Option<Form> {
        Some(match self {
            Style::Json => return None,
            Style::QwenXml => Form { name: ("<parameter=", ">"), close: "</parameter>", ..PLAIN },
            Style::MinimaxXml => Form { name: ("<parameter name=\"", "\">"), close: "</parameter>", ..PLAIN },
            Style::DeepseekXml => Form {
                name: ("<｜DSML｜parameter name=\"", "\""),
                kind: Some(string_or_not),
                close: "</｜DSML｜parameter>",
                padded: (false, true),
                ..PLAIN
            },
            Style::DeepseekV41Xml => Form {
                name: ("<｜DSML｜ parameter name=\"", "\""),
                kind: Some(string_or_not),
                close: "</｜DSML｜ parameter>",
                padded: (false, true),
                ..PLAIN
            },
            Style::GlmXml => {
                Form { name: ("<arg_key>", "</arg_key>"), value: "<arg_value>", close: "</arg_value>", ..PLAIN }
            }
            Style::KimiK3Xml => Form {
                name: ("<|open|>argument key=\"", "\""),
                kind: Some(kimi_type),
                close: "<|close|>argument<|sep|>",
                padded: (false, true),
                escapes: &[('&', "&amp;"), ('"', "&quot;")],
                odd: &['<', '>'],
                ..PLAIN
            },
            Style::CohereXml => Form {
                name: ("<cofl:value name=\"", "\""),
                kind: Some(cohere_type),
                close: "</cofl:value>",
                item: Some(("<cofl:value", "")),
                padded: (false, true),
                escapes: &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;")],
                odd: &[],
                ..PLAIN
            },
            Style::MinimaxM3Xml => Form {
                name: ("]<]minimax[>[<", ">"),
                close: "]<]minimax[>[",
                again: Some(("</", ">")),
                item: Some(("]<]minimax[>[<item>", "</item>")),
                spaced_items: true,
                padded: (false, false),
                odd: &['<', '>', '/', '"'],
                ..PLAIN
            },
            Style::Gemma => Form {
                item: Some(("", "")),
                quote: Some("<|\"|>"),
                odd: &['<', '>', '"', ':', ',', '{', '}', '[', ']'],
                padded: (false, false),
                ..PLAIN
            },
        })
    }

    /// Every text that the style writes by itself, for the special tokens in it.
    pub fn texts(self) -> Vec<&'static str> {
        let Some(form) = self.form() else { return vec![] };
        let mut texts = vec![form.name.0, form.name.1, form.value, form.close];
        texts.extend(form.kind.iter().flat_map(|kind| KINDS.map(kind)));
        texts.extend([form.again, form.item].into_iter().flatten().flat_map(|(a, b)| [a, b]));
        texts.extend(form.quote);
        texts
    }

    /// Where the whole value stands.
    pub(in crate::schema) fn root(self) -> Place {
        match self.form() {
            None => Place::Json,
            Some(form) if form.quote.is_some() => Place::Value,
            Some(_) => Place::Members,
        }
    }
}

impl Form {
    /// A declared name as it is written; `None`: it cannot be.
    pub fn name_of(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.contains(|c: char| c.is_control() || self.odd.contains(&c)) {
            return None;
        }
        let mut text = String::new();
        for c in name.chars() {
            match self.escapes.iter().find(|e| e.0 == c) {
                Some(e) => text.push_str(e.1),
                None => text.push(c),
            }
        }
        Some(text)
    }
}
