//! JSON Schema (drafts 4 to 2020-12) to grammar IR.
//!
//! A rule stands for a *conjunction*: a set of schema locations that must all hold (or must not: see `flat::Atom`).
//! Expanding it reads the keywords of each location ([`gather`]), follows references, and leaves flat constraints per
//! JSON type plus a list of open choices (`anyOf`, `oneOf`, `if`, what `not` turned into), which [`alternatives`]
//! multiplies out type by type. The values of properties and the items of arrays are conjunctions again, so that
//! `allOf`, siblings of `$ref` and overlapping `patternProperties` compose exactly; a conjunction met before is a
//! reference to its rule, so recursion ends. Conjunctions wait in a queue: nothing recurses along the schema's nesting.
//!
//! What cannot be enforced is an error that names the keyword, or a warning under `lenient`.

mod alternatives;
mod array;
mod count;
mod decimal;
mod documents;
mod emit;
mod excludes;
mod flat;
pub mod formats;
mod gather;
mod keyword;
mod leaf;
mod listed;
mod metaschemas;
pub mod naive;
mod names;
mod negate;
pub mod notation;
pub mod numbers;
mod object;
mod others;
mod parse;
mod prune;
pub mod strings;
#[cfg(test)]
mod tests;
mod unique;
mod uri;
mod validate;
mod values;

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::ir::PropertyOrder;
pub use keyword::Draft;
pub use notation::{Notation, Style};
pub use parse::parse;

use crate::error::{CompileError, Result};
use crate::ir::{Body, Expr, Grammar, Rule, RuleId, Separators};
use crate::limits::Budget;
use documents::{Documents, LocId};
use flat::{Atom, Conj, Flat, Strings};
use keyword::Kw;
use names::Names;
use notation::Place;

/// Whitespace around structural characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whitespace {
    /// Wherever JSON allows some.
    #[default]
    Flexible,
    /// The same, so many characters in a row.
    AtMost(u32),
    /// None.
    Compact,
    /// These separators of items, and of keys and values, and no other whitespace.
    Separators(String, String),
    /// A new line for every item and property, indented by so many spaces a level; separators without the newline.
    Indent(u32, String, String),
}

/// Levels that are indented exactly; further inside, any multiple of the indent will do.
pub const EXACT_LEVELS: u32 = 8;

impl Whitespace {
    /// Whether it depends on how deep a value stands.
    fn has_levels(&self) -> bool {
        matches!(self, Whitespace::Indent(..))
    }

    /// The separators of an array or object at a level, the root's being 0.
    fn at(&self, level: u32) -> Separators {
        match self {
            Whitespace::Flexible => Separators::flexible(),
            Whitespace::AtMost(most) => Separators::at_most(*most),
            Whitespace::Compact => Separators::compact(),
            Whitespace::Separators(comma, colon) => Separators::exactly(comma, colon),
            Whitespace::Indent(by, comma, colon) => {
                let line = |level: u32| {
                    let width = *by as usize;
                    if level <= EXACT_LEVELS {
                        Expr::lit(format!("\n{}", " ".repeat(width * level as usize)))
                    } else {
                        Expr::seq([Expr::lit("\n"), Expr::lit(" ".repeat(width)).star()])
                    }
                };
                let inside = if level < EXACT_LEVELS { level + 1 } else { EXACT_LEVELS + 1 };
                let close = if level < EXACT_LEVELS { level } else { EXACT_LEVELS + 1 };
                Separators {
                    pad: line(inside),
                    close: Some(line(close)),
                    comma: Expr::seq([Expr::lit(comma), line(inside)]),
                    colon: Expr::lit(colon),
                }
            }
        }
    }
}

impl Whitespace {
    /// Whitespace between what is no JSON.
    pub fn outer(&self) -> Expr {
        match self {
            Whitespace::Flexible | Whitespace::Indent(..) => Separators::flexible().pad,
            Whitespace::AtMost(most) => Separators::at_most(*most).pad,
            Whitespace::Compact | Whitespace::Separators(..) => Expr::Empty,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    pub order: PropertyOrder,
    pub space: Whitespace,
    /// The draft, whatever `$schema` says; `None`: by `$schema`, 2020-12 without one.
    pub draft: Option<Draft>,
    /// What cannot be enforced becomes a warning instead of an error.
    pub lenient: bool,
    /// How values are written.
    pub notation: Notation,
}

/// Something that the grammar does not enforce, or that the specification has it ignore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub pointer: String,
    pub keyword: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    pub grammar: Grammar,
    pub warnings: Vec<Warning>,
}

/// Compile a schema that needs no other documents.
pub fn compile(source: &Value, options: &Options, budget: &Budget) -> Result<Compiled> {
    compile_with(source, &[], options, budget)
}

/// Compile a schema; references to other documents are looked up in `registry` by URI.
pub fn compile_with(
    source: &Value,
    registry: &[(String, Value)],
    options: &Options,
    budget: &Budget,
) -> Result<Compiled> {
    parse::check_depth(source, budget)?;
    for (_, v) in registry {
        parse::check_depth(v, budget)?;
    }
    let names = Names::default();
    // Dynamic scopes and annotations cost; they are kept only once something asks for them.
    let (mut track, mut dynamic) = (false, false);
    loop {
        let mut c = Compiler::new(source, registry, options, (budget, &names), track, dynamic);
        let result = c.run();
        if (c.need_track && !track) || (c.need_dynamic && !dynamic) {
            track |= c.need_track;
            dynamic |= c.need_dynamic;
            continue;
        }
        return result;
    }
}

/// What is known about a conjunction that was asked for.
enum Memo {
    Never,
    Is(Expr),
}

/// A conjunction whose rule is still to be made.
enum Pending<'a> {
    Flat(Box<Flat<'a>>),
    /// The alternatives of a keyword.
    Choice(LocId, Kw),
}

/// Where a value stands: how deep, where that matters, and how it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Stand {
    level: u32,
    place: Place,
}

/// Rules that all values written in one way share.
#[derive(Clone, Copy, Default)]
struct Shared {
    string: Option<RuleId>,
    value: Option<RuleId>,
    array: Option<RuleId>,
    object: Option<RuleId>,
}

struct Compiler<'a> {
    docs: Documents<'a>,
    options: &'a Options,
    budget: &'a Budget,
    /// Names that stand in no document.
    names: &'a Names,
    /// Separators of arrays and objects there.
    space: Separators,
    track: bool,
    need_track: bool,
    need_dynamic: bool,
    rules: Vec<Rule>,
    memo: FxHashMap<(Conj, Stand), Memo>,
    queue: VecDeque<(RuleId, Stand, Pending<'a>)>,
    /// Where the value stands that is being compiled.
    at: Stand,
    /// By place.
    shared: FxHashMap<Place, Shared>,
    emptiness: FxHashMap<Conj, (bool, u32)>,
    /// Looks for emptiness that are under way.
    looking: u32,
    /// Types that a location may have, seen from so far.
    likely: FxHashMap<(LocId, u32), flat::Types>,
    /// The strings of long lists of values, by the location of the `enum`.
    listed: FxHashMap<LocId, FxHashSet<&'a str>>,
    /// Alternatives that are lists of values, by the location of their `anyOf`: all of these values.
    lists: FxHashMap<LocId, Option<Rc<Vec<&'a Value>>>>,
    /// Whether values of the documents, by address, are valid at locations.
    valid: FxHashMap<(LocId, usize), bool>,
    /// Work on alternatives that is not yet accounted for.
    weighed: usize,
    /// Whether branches of a choice exclude the ones before them.
    apart: bool,
    leaves: leaf::Leaves<'a>,
    /// Strings that are written raw, by constraint.
    raw_strings: FxHashMap<Strings<'a>, Option<Expr>>,
    warnings: Vec<Warning>,
    warned: FxHashSet<(LocId, Kw)>,
    /// Why nothing matches what is being compiled, as far as anybody knows.
    blame: Option<(LocId, String)>,
    /// The same of rules that nothing matches.
    dead: FxHashMap<RuleId, (LocId, String)>,
}

impl<'a> Compiler<'a> {
    fn new(
        source: &'a Value,
        registry: &'a [(String, Value)],
        options: &'a Options,
        (budget, names): (&'a Budget, &'a Names),
        track: bool,
        dynamic: bool,
    ) -> Compiler<'a> {
        Compiler {
            docs: Documents::new(source, registry, options.draft, dynamic),
            options,
            budget,
            names,
            at: Stand { level: 0, place: options.notation.style.root() },
            space: options.space.at(0),
            track,
            need_track: false,
            need_dynamic: false,
            rules: vec![],
            memo: FxHashMap::default(),
            queue: VecDeque::new(),
            shared: FxHashMap::default(),
            emptiness: FxHashMap::default(),
            looking: 0,
            likely: FxHashMap::default(),
            listed: FxHashMap::default(),
            lists: FxHashMap::default(),
            valid: FxHashMap::default(),
            weighed: 0,
            apart: false,
            leaves: leaf::Leaves::default(),
            raw_strings: FxHashMap::default(),
            warnings: vec![],
            warned: FxHashSet::default(),
            blame: None,
            dead: FxHashMap::default(),
        }
    }

    fn run(&mut self) -> Result<Compiled> {
        let root = self.docs.root();
        let Some(value) = self.value(Conj::from_slice(&[Atom::is(root)]))? else { return Err(self.nothing(None)) };
        self.work_off()?;
        let root = match value {
            Expr::Rule(r) => r,
            e => self.add_rule("root".into(), Body::Expr(e))?,
        };
        let mut grammar = Grammar { rules: std::mem::take(&mut self.rules), root };
        excludes::exclude(&mut grammar, &self.options.notation.excludes);
        if !prune::prune(&mut grammar) {
            return Err(self.nothing(Some(&grammar)));
        }
        for (pointer, dialect) in std::mem::take(&mut self.docs.unknown_dialects) {
            self.warnings.push(Warning {
                pointer: format!("{pointer}/$schema"),
                keyword: "$schema".into(),
                reason: format!("{dialect:?} is not a draft known here; read as 2020-12"),
            });
        }
        for (loc, reference) in std::mem::take(&mut self.docs.astray) {
            let reason = match reference {
                "#/" => "it names a property without a name, which is not there; read as \"#\"".into(),
                _ => format!("{reference:?} leads nowhere from the `$id` around it; read from the document's root"),
            };
            self.note(loc, Kw::Ref, reason);
        }
        for loc in std::mem::take(&mut self.docs.ignored_siblings) {
            self.note(loc, Kw::Ref, "up to draft 7, what stands beside it is ignored".into());
        }
        Ok(Compiled { grammar, warnings: std::mem::take(&mut self.warnings) })
    }

    /// That no value satisfies the schema, and why, if a rule that the root needs knows.
    fn nothing(&self, grammar: Option<&Grammar>) -> CompileError {
        let cause = grammar.and_then(|g| prune::needed(g).find_map(|rule| self.dead.get(&rule)));
        match cause {
            Some((loc, why)) => CompileError::unsatisfiable(self.docs.pointer(*loc), why),
            None => CompileError::unsatisfiable("", "no JSON value satisfies the schema"),
        }
    }

    fn add_rule(&mut self, name: String, body: Body) -> Result<RuleId> {
        self.budget.states(1)?;
        self.rules.push(Rule { name, body });
        Ok(self.rules.len() as RuleId - 1)
    }

    fn place(&self, loc: LocId, kw: Kw) -> String {
        let mut p = self.docs.pointer(loc);
        uri::push_token(&mut p, kw.text());
        p
    }

    /// The keyword cannot be enforced: an error, or under `lenient` a warning and no constraint.
    fn unsupported(&mut self, loc: LocId, kw: Kw, reason: &str, remedy: &str) -> Result<()> {
        if self.options.lenient {
            self.note(loc, kw, format!("not enforced: {reason}"));
            return Ok(());
        }
        Err(CompileError::unsupported(self.place(loc, kw), kw.text(), reason, remedy))
    }

    fn note(&mut self, loc: LocId, kw: Kw, reason: String) {
        if self.warned.insert((loc, kw)) {
            let w = Warning { pointer: self.place(loc, kw), keyword: kw.text().into(), reason };
            self.warnings.push(w);
        }
    }

    fn invalid(&self, loc: LocId, message: &str) -> CompileError {
        CompileError::invalid(self.docs.pointer(loc), message)
    }

    fn invalid_kw(&self, loc: LocId, kw: Kw, message: &str) -> CompileError {
        CompileError::invalid(self.place(loc, kw), format!("{}: {message}", kw.text()))
    }
}
