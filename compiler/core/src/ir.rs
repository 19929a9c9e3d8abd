//! The grammar IR: what every front end lowers its source to, and the only input of lowering.
//!
//! A [`Grammar`] is a list of rules; a rule's body is an [`Expr`] over bytes, an [`ObjectRule`] (JSON objects have a
//! lowering of their own because their keys need the seen-key register), or a [`DispatchRule`]. Regular operators
//! ([`Expr::And`], [`Expr::Sub`]) are resolved on automata during lowering; their operands may hold counted repeats but
//! no rule references.
//!
//! Everything here is plain data and can be written as JSON (serde), which is how tests and tools feed the compiler
//! grammars without a front end in between.

use serde::{Deserialize, Serialize};

use crate::fsm::DEAD;

/// Index of a rule in [`Grammar::rules`].
pub type RuleId = u32;

/// A whole grammar. `rules[root]` is where matching starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grammar {
    pub rules: Vec<Rule>,
    pub root: RuleId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// For people: never part of a digest.
    pub name: String,
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    Expr(Expr),
    Object(ObjectRule),
    Dispatch(DispatchRule),
    /// The one shared unit of JSON strings: `"`, characters counted by register 0, `"`. A reference to it carries the
    /// length bounds as arguments ([`Expr::Call`]), so that strings of all bounds are one unit with one set of entries.
    JsonString,
}

/// A language of byte strings.
///
/// Nesting is bounded by the front ends (see `Limits::depth`), so recursive functions over it are bounded too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// The empty string.
    Empty,
    /// Nothing at all.
    Never,
    /// Exactly these bytes.
    Bytes(#[serde(with = "text_or_bytes")] Vec<u8>),
    /// One byte of the inclusive ranges (sorted, disjoint).
    Class(Vec<(u8, u8)>),
    /// One Unicode scalar value of the inclusive code point ranges (sorted, disjoint, no surrogates), in UTF-8.
    Chars(Vec<(u32, u32)>),
    /// One Unicode scalar value of the ranges, written as it may stand inside a JSON string: see `json_chars` in
    /// `lower` for the spellings. `free` also allows `\uXXXX` (and surrogate pairs) where nothing requires an escape.
    JsonChars {
        ranges: Vec<(u32, u32)>,
        free: bool,
    },
    Seq(Vec<Expr>),
    Alt(Vec<Expr>),
    /// `min` to `max` times (`None`: without bound).
    Repeat {
        body: Box<Expr>,
        min: u32,
        max: Option<u32>,
    },
    Rule(RuleId),
    /// A reference with arguments: counter `i` of the called rule starts as `args[i]` = (min, max).
    Call {
        rule: RuleId,
        args: Vec<(u32, Option<u32>)>,
    },
    /// A token, by id.
    Token(u32),
    /// Any one token but these (sorted, unique).
    TokenExcept(Vec<u32>),
    /// A reference that the caller of the whole grammar binds (the tags of a dispatch): the unit and its digest do not
    /// depend on what is bound.
    Hole(u32),
    /// Strings in every operand.
    And(Vec<Expr>),
    /// Strings of the first that are not strings of the second (no counted repeat in the second stays counted).
    Sub(Box<Expr>, Box<Expr>),
    /// A finished automaton over bytes, deterministic.
    Automaton(std::sync::Arc<Dfa>),
    /// Any number of tokens without some runs of them.
    Tokens(std::sync::Arc<TokenRuns>),
    /// The empty string, where the values of a container are compared: behind its opening bracket, and behind each
    /// value that must differ from the others so marked (see [`crate::fsm`]). A byte must follow within the rule.
    Distinct,
}

/// A deterministic automaton over tokens, in which every state accepts. A token that a state does not name leads to
/// state 0, the start; one that it names with [`DEAD`] must not follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenRuns {
    /// Sorted by token.
    pub states: Vec<Vec<(u32, u32)>>,
}

impl TokenRuns {
    /// The same without some tokens, wherever they stand.
    pub fn excluding(&self, tokens: &[u32]) -> TokenRuns {
        let without = |edges: &Vec<(u32, u32)>| {
            let kept = edges.iter().filter(|e| !tokens.contains(&e.0)).copied();
            let mut edges: Vec<(u32, u32)> = kept.chain(tokens.iter().map(|&t| (t, DEAD))).collect();
            edges.sort_unstable();
            edges.dedup();
            edges
        };
        TokenRuns { states: self.states.iter().map(without).collect() }
    }

    /// The tokens that must not stand at the start.
    pub fn never_first(&self) -> Vec<u32> {
        let start = self.states.first().map_or(&[][..], Vec::as_slice);
        start.iter().filter(|e| e.1 == DEAD).map(|e| e.0).collect()
    }
}

/// A deterministic automaton over bytes. State 0 is the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dfa {
    pub states: Vec<DfaState>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DfaState {
    /// Inclusive byte ranges and their target, sorted and disjoint.
    pub edges: Vec<(u8, u8, u32)>,
    pub accept: bool,
}

/// In which order the declared properties of an object may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PropertyOrder {
    /// As in the schema's text; undeclared properties come last.
    #[default]
    Declared,
    /// Any, interleaved with undeclared ones; required and unique are enforced by the seen-key register.
    Any,
}

/// A JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectRule {
    /// Declared names in declaration order, unique.
    pub properties: Vec<Property>,
    /// What a name that is not declared may be and hold: key languages (text *between* the quotes, in JSON spelling).
    /// They may overlap where `marks` differ: such a name has a value of any of them. Declared names never match here,
    /// however spelled. Empty: closed.
    pub others: Vec<OtherProperties>,
    /// No undeclared name comes twice. There must be such names without end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub distinct: bool,
    pub order: PropertyOrder,
    pub min_properties: u32,
    pub max_properties: Option<u32>,
    /// Whitespace allowed at each place where JSON allows some (usually a star of a class); never needed.
    pub space: Separators,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Property {
    pub name: String,
    /// `None`: the name is forbidden (a `false` schema); it is then neither declared nor undeclared.
    pub value: Option<Expr>,
    pub required: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherProperties {
    /// `None`: any string.
    pub keys: Option<Expr>,
    pub value: Expr,
    /// Bit `i`: such a key counts towards need `i`. The object has one key at least of every need that any alternative
    /// counts towards. A need must have keys that are not declared: without end where `distinct`, unless whichever of them
    /// is written meets it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marks: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants a reference
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The text around structural characters. Each is an expression without references.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Separators {
    /// Between a bracket and its neighbour inside.
    pub pad: Expr,
    /// Before a closing bracket, where that is something else than `pad`; brackets with nothing in them then touch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close: Option<Expr>,
    /// The item separator with its whitespace, e.g. `ws "," ws`.
    pub comma: Expr,
    /// The key separator with its whitespace, e.g. `ws ":" ws`.
    pub colon: Expr,
}

/// A token inside a pattern of a [`DispatchRule`]: `0xff`, which text never holds, and its id in bytes that text never
/// begins with.
pub fn token_in_pattern(id: u32) -> [u8; 7] {
    let part = |shift: u32| 0x80 | (id >> shift & 0x3f) as u8;
    [0xff, part(30), part(24), part(18), part(12), part(6), part(0)]
}

/// The symbols of a pattern: bytes, and tokens as 256 + id. `None` if it is not such a pattern.
pub fn pattern_symbols(pattern: &[u8]) -> Option<Vec<u64>> {
    let mut symbols = Vec::with_capacity(pattern.len());
    for (i, part) in pattern.split(|&b| b == 0xff).enumerate() {
        let text = match i {
            0 => part,
            _ => {
                let (id, text) = part.split_at_checked(6)?;
                if id.iter().any(|b| b & 0xc0 != 0x80) || id[0] & 0x3f > 3 {
                    return None;
                }
                symbols.push(256 + id.iter().fold(0u64, |id, b| id << 6 | u64::from(b & 0x3f)));
                text
            }
        };
        std::str::from_utf8(text).ok()?;
        symbols.extend(text.iter().map(|&b| u64::from(b)));
    }
    Some(symbols)
}

/// A pattern as what it matches.
pub fn pattern_expr(pattern: &[u8]) -> Expr {
    let mut items: Vec<Expr> = vec![];
    for symbol in pattern_symbols(pattern).unwrap_or_default() {
        match (symbol.checked_sub(256), items.last_mut()) {
            (Some(id), _) => items.push(Expr::Token(id as u32)),
            (None, Some(Expr::Bytes(run))) => run.push(symbol as u8),
            (None, _) => items.push(Expr::Bytes(vec![symbol as u8])),
        }
    }
    match items.len() {
        0 => Expr::Empty,
        1 => items.remove(0),
        _ => Expr::Seq(items),
    }
}

/// Free text with tags (TagDispatch). Triggers, stops and excludes are patterns: text, in which tokens may stand
/// ([`token_in_pattern`]). The automaton over triggers and stops is one shared unit; the tags that follow a
/// trigger are bound per request.
///
/// A tag opens where a trigger ends. Of triggers that end at one place the longest wins. Where a trigger ends inside a
/// longer one still in progress, a byte that continues the longer one belongs to it; every other byte starts the tags
/// of the shorter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchRule {
    /// Unique, not empty. Trigger `i` hands over to `handlers[i]`.
    pub triggers: Vec<Vec<u8>>,
    /// What follows each trigger; must not match the empty string.
    pub handlers: Vec<Expr>,
    /// Strings that end the text (the dispatch completes right after one).
    pub stops: Vec<Vec<u8>>,
    /// Strings that must not occur in the free text.
    pub excludes: Vec<Vec<u8>>,
    /// Fewest and most tags.
    pub min_tags: u32,
    pub max_tags: Option<u32>,
    /// End right after the last possible tag (with `max_tags`: "stop after the first" is `max_tags = Some(1)`).
    pub stop_after_last: bool,
    /// Whether the text may simply end, without a stop string.
    pub open_end: bool,
}

impl Expr {
    pub fn lit(s: impl AsRef<[u8]>) -> Expr {
        Expr::Bytes(s.as_ref().to_vec())
    }

    pub fn seq(v: impl IntoIterator<Item = Expr>) -> Expr {
        Expr::Seq(v.into_iter().collect())
    }

    /// One after the other, without what is empty.
    pub fn joined(items: impl IntoIterator<Item = Expr>) -> Expr {
        let mut items: Vec<Expr> = items.into_iter().filter(|e| *e != Expr::Empty).collect();
        match items.len() {
            0 => Expr::Empty,
            1 => items.remove(0),
            _ => Expr::Seq(items),
        }
    }

    pub fn alt(v: impl IntoIterator<Item = Expr>) -> Expr {
        Expr::Alt(v.into_iter().collect())
    }

    pub fn opt(self) -> Expr {
        Expr::Repeat { body: Box::new(self), min: 0, max: Some(1) }
    }

    pub fn star(self) -> Expr {
        Expr::Repeat { body: Box::new(self), min: 0, max: None }
    }

    pub fn plus(self) -> Expr {
        Expr::Repeat { body: Box::new(self), min: 1, max: None }
    }

    pub fn repeat(self, min: u32, max: Option<u32>) -> Expr {
        Expr::Repeat { body: Box::new(self), min, max }
    }

    /// A reference to the shared JSON string rule with length bounds in code points.
    pub fn json_string(rule: RuleId, min: u32, max: Option<u32>) -> Expr {
        Expr::Call { rule, args: vec![(min, max)] }
    }
}

impl ObjectRule {
    /// The needs that undeclared keys must meet, as bits.
    pub fn needs(&self) -> u32 {
        self.others.iter().fold(0, |bits, o| bits | o.marks)
    }
}

impl Separators {
    /// Any run of JSON whitespace wherever JSON allows it.
    pub fn flexible() -> Separators {
        let ws = || Expr::Class(vec![(b'\t', b'\n'), (b'\r', b'\r'), (b' ', b' ')]).star();
        Separators {
            pad: ws(),
            close: None,
            comma: Expr::seq([ws(), Expr::lit(","), ws()]),
            colon: Expr::seq([ws(), Expr::lit(":"), ws()]),
        }
    }

    /// At most this much whitespace in a row wherever JSON allows it.
    pub fn at_most(most: u32) -> Separators {
        let ws = || Expr::Class(vec![(b'\t', b'\n'), (b'\r', b'\r'), (b' ', b' ')]).repeat(0, Some(most));
        Separators {
            pad: ws(),
            close: None,
            comma: Expr::seq([ws(), Expr::lit(","), ws()]),
            colon: Expr::seq([ws(), Expr::lit(":"), ws()]),
        }
    }

    /// Between items and between key and value as given, and nothing else.
    pub fn exactly(comma: &str, colon: &str) -> Separators {
        Separators { pad: Expr::Empty, close: None, comma: Expr::lit(comma), colon: Expr::lit(colon) }
    }

    /// What stands before a closing bracket that is not empty.
    pub fn before_close(&self) -> &Expr {
        self.close.as_ref().unwrap_or(&self.pad)
    }

    /// No whitespace at all.
    pub fn compact() -> Separators {
        Separators::exactly(",", ":")
    }
}

/// Bytes as a JSON string where they are UTF-8, as a list of numbers otherwise.
mod text_or_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub fn serialize<S: Serializer>(v: &[u8], s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(v) {
            Ok(t) => s.serialize_str(t),
            Err(_) => v.serialize(s),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Either::deserialize(d)? {
            Either::Text(t) => t.into_bytes(),
            Either::Bytes(b) => b,
        })
    }
}
