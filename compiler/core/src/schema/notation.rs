//! How values are written where that is not JSON: the ways of models that write a tool's parameters in tags of their own.
//!
//! ```text
//! qwen_xml           <parameter=city>Oslo</parameter>
//! minimax_xml        <parameter name="city">Oslo</parameter>
//! deepseek_xml       <｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>
//! deepseek_v4_1_xml  <｜DSML｜ parameter name="city" string="true">Oslo</｜DSML｜ parameter>
//! glm_xml            <arg_key>city</arg_key><arg_value>Oslo</arg_value>
//! kimi_k3_xml        <|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>
//! cohere_xml         <cofl:value name="cities" type="list"><cofl:value type="raw">Oslo</cofl:value></cofl:value>
//! minimax_m3_xml     ]<]minimax[>[<cities>]<]minimax[>[<item>Oslo]<]minimax[>[</item>]<]minimax[>[</cities>
//! gemma              {cities:[<|"|>Oslo<|"|>]}
//! ```
//!
//! A string is written raw, up to what closes it, which it cannot hold; what a schema says of it (length, pattern, values)
//! holds for the raw text. Other scalars are JSON. In the last three styles arrays and objects are written in the style,
//! too; in the others they are JSON.
//!
//! So how a value is written depends on its [`Place`]. Where the style is not JSON, the members of an object become an
//! expression ([`Compiler::members`]): in the order of `properties`, undeclared ones last; with `any_order` in any, and how
//! often is not counted. Where a schema has `properties` and does not speak of others, there are no others.
//!
//! Texts of a style that are tokens of the vocabulary ([`Notation::tokens`]) are these tokens. A new style is one more
//! `Form`.

mod forms;

pub(super) use forms::Kind;
pub use forms::Style;

use forms::Form;

use super::excludes::without;
use super::flat::{Existence, Flat, ObjectPart, Strings, Types};
use super::keyword::Kw;
use super::Compiler;
use crate::error::{CompileError, Result};
use crate::ir::{Body, Expr, ObjectRule, PropertyOrder, Separators};
use crate::regex::Alphabet;

/// A style with what it needs to know of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notation {
    pub style: Style,
    /// Texts that no raw string and no undeclared name may hold.
    pub excludes: Vec<String>,
    /// Texts of the style that are special tokens.
    pub tokens: Vec<(String, u32)>,
}

/// Where a value stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In JSON.
    #[default]
    Json,
    /// It is an object, and only its members are written.
    Members,
    /// Under a name of the style, or in an array of it.
    Value,
}

impl Notation {
    /// A text of the style.
    fn lit(&self, text: &str) -> Expr {
        let mut items: Vec<Expr> = vec![];
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let found = self.tokens.iter().filter(|t| rest.starts_with(&t.0)).max_by_key(|t| t.0.len());
            let taken = found.map_or(c.len_utf8(), |t| t.0.len());
            let (now, later) = rest.split_at(taken.max(c.len_utf8()));
            match (found, items.last_mut()) {
                (Some((_, id)), _) => items.push(Expr::Token(*id)),
                (None, Some(Expr::Bytes(run))) => run.extend(now.bytes()),
                (None, _) => items.push(Expr::lit(now)),
            }
            rest = later;
        }
        Expr::joined(items)
    }
}

impl<'a> Compiler<'a> {
    fn form(&self) -> Option<Form> {
        match self.at.place {
            Place::Json => None,
            _ => self.options.notation.style.form(),
        }
    }

    /// Whether values that stand where it compiles are JSON.
    pub(super) fn in_json(&self) -> bool {
        self.at.place == Place::Json
    }

    /// Where the members and items of the object or array at hand stand.
    pub(super) fn place_inside(&self) -> Place {
        match self.form() {
            None => Place::Json,
            Some(_) if self.at.place == Place::Members => Place::Value,
            Some(form) if form.item.is_some() => Place::Value,
            Some(_) => Place::Json,
        }
    }

    /// Whether raw text takes all that a value may be, so that nothing else need be said.
    pub(super) fn raw_is_all(&self, f: &Flat<'a>) -> bool {
        let free = || *f.string == Strings { at: f.string.at, ..Strings::default() };
        let all = |form: Form| form.kind.is_none() && form.item.is_none();
        let text = self.at.place == Place::Value && f.types.has(Types::STRING) && f.values.is_none();
        text && free() && self.form().is_some_and(all)
    }

    /// A value that is no string, with what stands before and after it.
    pub(super) fn written(&self, kind: Kind, e: Expr) -> Expr {
        let Some(form) = self.form().filter(|_| self.at.place == Place::Value) else { return e };
        // Members have space around them.
        let members = kind == Kind::Object && form.item.is_some();
        let pad = || if form.padded.1 && !members { self.outer_space() } else { Expr::Empty };
        Expr::joined([self.tell(&form, kind), pad(), e, pad(), self.options.notation.lit(form.close)])
    }

    fn tell(&self, form: &Form, kind: Kind) -> Expr {
        form.kind.map_or(Expr::Empty, |text| self.options.notation.lit(text(kind)))
    }

    /// The separators of arrays and objects that stand here, at a level.
    pub(super) fn separators(&self, level: u32) -> Separators {
        match self.form() {
            Some(form) if form.quote.is_none() => {
                let space = if form.spaced_items { self.outer_space() } else { Expr::Empty };
                Separators { pad: space.clone(), close: None, comma: space, colon: Expr::Empty }
            }
            _ => self.options.space.at(level),
        }
    }

    fn outer_space(&self) -> Expr {
        self.options.space.outer()
    }

    /// A string of the style, of `text`.
    fn raw(&mut self, text: Expr, constant: bool) -> Result<Expr> {
        let Some(form) = self.form() else { return Ok(text) };
        let notation = &self.options.notation;
        let pad = || if form.padded.0 { self.outer_space() } else { Expr::Empty };
        let (open, close) = match form.quote {
            Some(quote) => (notation.lit(quote), notation.lit(quote)),
            None => (self.tell(&form, Kind::String), notation.lit(form.close)),
        };
        let mut barred = vec![form.quote.unwrap_or(form.close).to_owned()];
        barred.extend(notation.excludes.iter().cloned());
        let text = without(text, &barred);
        // With what closes it, the text is a unit of its own, which all strings like it share.
        let body = Expr::joined([text, pad(), close]);
        let before = Expr::joined([open, pad()]);
        let body = match constant {
            true => body,
            false => Expr::Rule(self.add_rule("text".into(), Body::Expr(body))?),
        };
        Ok(Expr::joined([before, body]))
    }

    /// The strings of a constraint; `None` if there are none.
    pub(super) fn raw_string(&mut self, s: &Strings<'a>) -> Result<Option<Expr>> {
        if s.max.is_some_and(|m| m < s.min) || s.min > u32::MAX as u64 {
            return Ok(None);
        }
        let key = Strings { at: 0, ..s.clone() };
        if let Some(e) = self.raw_strings.get(&key) {
            return Ok(e.clone());
        }
        let result = match self.text_expr(s, Alphabet::Utf8)? {
            Expr::Never => None,
            text => Some(self.raw(text, false)?),
        };
        self.raw_strings.insert(key, result.clone());
        Ok(result)
    }

    pub(super) fn raw_constant(&mut self, s: &str) -> Result<Expr> {
        self.raw(Expr::lit(s), true)
    }

    /// An item of an array.
    pub(super) fn as_item(&self, e: Expr) -> Expr {
        match self.form().and_then(|form| form.item) {
            Some((before, after)) => {
                Expr::joined([self.options.notation.lit(before), e, self.options.notation.lit(after)])
            }
            None => e,
        }
    }

    /// What opens and closes an array.
    pub(super) fn array_brackets(&self) -> (Expr, Expr) {
        match self.form() {
            Some(form) if form.quote.is_none() => (Expr::Empty, Expr::Empty),
            _ => (Expr::lit("["), Expr::lit("]")),
        }
    }

    /// Whether members that the schema does not speak of are none: where it has `properties`.
    pub(super) fn closed_by_default(&self, f: &Flat<'a>) -> bool {
        let o = &f.object;
        let declares = |p: &ObjectPart<'a>| p.properties.is_some();
        let open = |p: &ObjectPart<'a>| p.additional.is_some() || p.patterns.is_some();
        !self.in_json() && o.parts.iter().any(declares) && !o.parts.iter().any(open) && o.unevaluated.is_empty()
    }

    /// What names may be that are not declared.
    fn any_name(&self, form: &Form) -> Expr {
        if form.escapes.len() < 4 {
            let start = Expr::Class(vec![(b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]);
            let next = Expr::Class(vec![(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]);
            return Expr::joined([start, next.star()]);
        }
        let mut ways = vec![Expr::Chars(unescaped())];
        ways.extend(form.escapes.iter().map(|e| Expr::lit(e.1)));
        Expr::Alt(ways).plus()
    }

    /// Bounds on members, and needs of them, which nothing counts here.
    fn check_members(&mut self, f: &Flat<'a>, rule: &ObjectRule) -> Result<()> {
        const REASON: &str = "members that are not written in JSON are not counted";
        const REMEDY: &str = "Say with required which there must be, or use the style \"json\"";
        if let (true, Some(&(Existence::Keyword(at, kw) | Existence::Beyond(_, (at, kw))))) =
            (rule.needs() != 0, f.object.some_names.first())
        {
            return self.unsupported(at, kw, REASON, REMEDY);
        }
        let possible = rule.properties.iter().filter(|p| p.value.is_some()).count() as u64;
        let room = |m: u32| !rule.others.is_empty() || u64::from(m) < possible;
        if rule.max_properties.is_some_and(room) {
            let at = f.nodes.iter().map(|n| n.loc).find(|l| self.docs.get(*l, Kw::MaxProperties).is_some());
            self.unsupported(at.unwrap_or_default(), Kw::MaxProperties, REASON, REMEDY)?;
        }
        if rule.min_properties > 0 {
            let at = f.nodes.iter().map(|n| n.loc).find(|l| self.docs.get(*l, Kw::MinProperties).is_some());
            self.unsupported(at.unwrap_or_default(), Kw::MinProperties, REASON, REMEDY)?;
        }
        Ok(())
    }

    /// The members of an object, and what stands around them.
    pub(super) fn members(&mut self, f: Option<&Flat<'a>>, rule: ObjectRule) -> Result<Expr> {
        let Some(form) = self.form() else { return Ok(Expr::Never) };
        if let Some(f) = f {
            self.check_members(f, &rule)?;
        }
        let mut items: Vec<(Expr, bool)> = vec![];
        let mut declared = vec![];
        for p in rule.properties {
            let name = match (form.name_of(&p.name), &p.value) {
                (Some(name), _) => name,
                // It cannot be written, and need not.
                (None, None) => continue,
                (None, Some(_)) => {
                    let at = f.and_then(|f| f.nodes.first()).map_or(0, |n| n.loc);
                    return Err(CompileError::unsupported(
                        self.place(at, Kw::Properties),
                        Kw::Properties.text(),
                        format!("{:?} cannot be the name of a parameter in this style", p.name),
                        "Rename it, or use the style \"json\"",
                    ));
                }
            };
            declared.push(Expr::lit(&name));
            let Some(value) = p.value else { continue };
            let again = form.again.map(|(a, b)| format!("{a}{name}{b}"));
            let member = self.member(&form, Expr::lit(&name), value, again.as_deref());
            let member = Expr::Rule(self.add_rule(format!("member {name}"), Body::Expr(member))?);
            items.push((member, p.required));
        }
        let mut others = vec![];
        for o in rule.others {
            if form.again.is_some() {
                self.unsupported(
                    f.and_then(|f| f.nodes.first()).map_or(0, |n| n.loc),
                    Kw::AdditionalProperties,
                    "a name that is not declared would have to be written twice, the second time like the first",
                    "Declare the properties, or set additionalProperties to false",
                )?;
                continue;
            }
            let mut name = self.any_name(&form);
            if let Some(keys) = o.keys {
                let plain = Expr::Chars(unescaped()).plus();
                name = Expr::And(vec![name, plain, keys]);
            }
            let mut barred: Vec<Expr> = declared.clone();
            let any = || Expr::Class(vec![(0, 255)]).star();
            let excludes = &self.options.notation.excludes;
            barred.extend(excludes.iter().map(|x| Expr::seq([any(), Expr::lit(x), any()])));
            if !barred.is_empty() {
                name = Expr::Sub(Box::new(name), Box::new(Expr::Alt(barred)));
            }
            let member = self.member(&form, name, o.value, None);
            others.push(Expr::Rule(self.add_rule("another member".into(), Body::Expr(member))?));
        }
        let space = self.outer_space();
        if form.quote.is_some() {
            let list = self.comma_list(items, others, rule.order)?;
            let pad = self.space.pad.clone();
            return Ok(Expr::joined([Expr::lit("{"), pad.clone(), list, pad, Expr::lit("}")]));
        }
        let members = match rule.order {
            PropertyOrder::Any => Expr::Alt(items.into_iter().map(|i| i.0).chain(others).collect()).star(),
            PropertyOrder::Declared => {
                let items = items.into_iter().map(|(e, required)| if required { e } else { e.opt() });
                let others = (!others.is_empty()).then(|| Expr::Alt(others).star());
                Expr::joined(items.chain(others))
            }
        };
        Ok(Expr::joined([members, space]))
    }

    /// A member, and the space before it.
    fn member(&self, form: &Form, name: Expr, value: Expr, again: Option<&str>) -> Expr {
        let notation = &self.options.notation;
        if form.quote.is_some() {
            return Expr::joined([name, self.space.colon.clone(), value]);
        }
        let space = self.outer_space();
        let inner =
            if form.value.is_empty() { Expr::Empty } else { Expr::joined([space.clone(), notation.lit(form.value)]) };
        let again = again.map_or(Expr::Empty, |text| notation.lit(text));
        Expr::joined([space, notation.lit(form.name.0), name, notation.lit(form.name.1), inner, value, again])
    }

    /// Members with commas between them; true: it must be there.
    fn comma_list(&mut self, items: Vec<(Expr, bool)>, others: Vec<Expr>, order: PropertyOrder) -> Result<Expr> {
        let comma = self.space.comma.clone();
        let list = |one: Expr| Expr::joined([one.clone(), Expr::joined([comma.clone(), one]).star()]).opt();
        if order == PropertyOrder::Any {
            return Ok(list(Expr::Alt(items.into_iter().map(|i| i.0).chain(others).collect())));
        }
        // From the back: what may follow once something has been written, and the ways to begin.
        let mut after = Expr::Empty;
        let mut begins = vec![Expr::Empty];
        if !others.is_empty() {
            let other = Expr::Alt(others);
            after = Expr::joined([comma.clone(), other.clone()]).star();
            begins.push(Expr::joined([other, after.clone()]));
        }
        for (item, required) in items.into_iter().rev() {
            if required {
                begins.clear();
            }
            begins.push(Expr::joined([item.clone(), after.clone()]));
            let next = Expr::joined([comma.clone(), item]);
            let body = Expr::joined([if required { next } else { next.opt() }, after]);
            after = Expr::Rule(self.add_rule("more members".into(), Body::Expr(body))?);
        }
        Ok(Expr::Alt(begins))
    }
}

/// The characters of names that are never written otherwise.
fn unescaped() -> Vec<(u32, u32)> {
    let odd = ['"', '&', '<', '>'].map(u32::from);
    let mut ranges = vec![];
    let mut from = 0x20;
    for c in odd {
        ranges.push((from, c - 1));
        from = c + 1;
    }
    ranges.extend([(from, 0x7e), (0x80, 0xd7ff), (0xe000, 0x10ffff)]);
    ranges.retain(|r| r.0 <= r.1);
    ranges
}
