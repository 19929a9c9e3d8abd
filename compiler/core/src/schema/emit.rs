//! From flat constraints to expressions and rules.

use serde_json::Value;

use super::alternatives::LOOK;
use super::documents::{LocId, Step};
use super::flat::*;
use super::keyword::Kw;
use super::notation::{Kind, Place};
use super::{Compiler, Memo, Pending, Stand, EXACT_LEVELS};
use crate::error::{CompileError, Result};
use crate::ir::{Body, Expr, ObjectRule};

/// Constants in one place that are written out there; more get a rule of their own.
const INLINE: usize = 16;
/// Combinations of alternatives that are taken as they come; for more, branches are made to exclude each other.
const FEW: usize = 128;
/// How far the types of alternatives are looked for.
const TYPE_LOOK: u32 = 6;

/// Alternatives of one conjunction on their way into a rule.
#[derive(Default)]
pub(super) struct Emitted {
    pub exprs: Vec<Expr>,
    objects: Vec<ObjectRule>,
    /// Whether it is too large to be written where it is used.
    large: bool,
}

impl<'a> Compiler<'a> {
    /// Bring a conjunction into its normal form: references followed, what says nothing dropped, sorted. `false` if
    /// nothing can match.
    pub(super) fn normalize(&mut self, conj: &mut Conj) -> Result<bool> {
        let mut out = Conj::new();
        let mut work: Conj = std::mem::take(conj);
        let mut steps = 0usize;
        while let Some(a) = work.pop() {
            steps += 1;
            if steps > 1_000 {
                // A loop, or many ways to few places: flattening tells them apart.
                out.push(a);
                continue;
            }
            match self.docs.value(a.loc()) {
                Value::Bool(b) => {
                    if *b == a.negated() {
                        return Ok(false);
                    }
                    continue;
                }
                Value::Object(_) => {}
                _ => return Err(self.invalid(a.loc(), "a schema is an object or a boolean")),
            }
            let range = self.docs.open(a.loc());
            if range.is_empty() {
                if a.negated() {
                    return Ok(false);
                }
                continue;
            }
            if range.len() == 1 && !a.negated() {
                let (kw, v) = self.docs.keyword(range.start);
                match kw {
                    Kw::Ref => {
                        let target = self.reference(a.loc(), kw, v)?;
                        work.push(Atom::is(target));
                        continue;
                    }
                    Kw::AllOf => {
                        for (i, s) in self.list(a.loc(), kw, v)?.iter().enumerate().rev() {
                            work.push(Atom::is(self.docs.child(a.loc(), s, Step::Nth(kw.text(), i))));
                        }
                        continue;
                    }
                    Kw::Not => {
                        work.push(Atom::isnt(self.docs.child(a.loc(), v, Step::Key(kw.text()))));
                        continue;
                    }
                    _ => {}
                }
            }
            out.push(a);
        }
        out.sort_unstable();
        out.dedup();
        if out.windows(2).any(|w| w[0].flipped() == w[1]) {
            return Ok(false);
        }
        *conj = out;
        Ok(true)
    }

    /// Whether a location certainly says nothing.
    pub(super) fn is_trivial(&mut self, loc: LocId) -> bool {
        match self.docs.value(loc) {
            Value::Bool(b) => *b,
            Value::Object(_) => self.docs.open(loc).is_empty(),
            _ => false,
        }
    }

    /// The expression that matches a conjunction, to be used where a value stands; `None` if nothing can match.
    /// Whatever may hold objects or arrays becomes a rule, compiled later: nothing here recurses into children.
    pub(super) fn value(&mut self, mut conj: Conj) -> Result<Option<Expr>> {
        if !self.normalize(&mut conj)? {
            return Ok(None);
        }
        if conj.is_empty() {
            return self.any_value().map(Some);
        }
        if let Some(memo) = self.memo.get(&(conj.clone(), self.at)) {
            return Ok(match memo {
                Memo::Never => None,
                Memo::Is(e) => Some(e.clone()),
            });
        }
        let containers = Types(Types::ARRAY.0 | Types::OBJECT.0);
        if let Some((loc, kw, types)) = self.pure_choice(&conj)? {
            if types.has(containers) {
                return self.later(conj, Pending::Choice(loc, kw)).map(Some);
            }
            let mut e = Emitted::default();
            self.emit_choice(loc, kw, &mut e)?;
            return self.finish(conj, e);
        }
        let flat = self.flatten(&conj, Types::ALL)?;
        if flat.types.has(containers) && flat.values.is_none() {
            return self.later(conj, Pending::Flat(Box::new(flat))).map(Some);
        }
        let mut e = Emitted::default();
        self.emit(flat, &mut e)?;
        self.finish(conj, e)
    }

    /// Where further values stand, and what separates things there.
    pub(super) fn stand_at(&mut self, at: Stand) {
        let at = Stand { level: at.level.min(EXACT_LEVELS), ..at };
        if at != self.at {
            self.at = at;
            self.space = self.separators(at.level);
        }
    }

    /// Stands where the members and items of the array or object at hand do; gives where to go back to.
    pub(super) fn enter(&mut self) -> Stand {
        let (outer, place) = (self.at, self.place_inside());
        let level = if place == outer.place { outer.level } else { 0 };
        self.stand_at(Stand { level, place });
        outer
    }

    /// The expression of a conjunction for a value inside of the array or object at hand.
    pub(super) fn inner(&mut self, conj: Conj) -> Result<Option<Expr>> {
        if !self.options.space.has_levels() {
            return self.value(conj);
        }
        let at = self.at;
        self.stand_at(Stand { level: at.level + 1, ..at });
        let result = self.value(conj);
        self.stand_at(at);
        result
    }

    fn finish(&mut self, conj: Conj, e: Emitted) -> Result<Option<Expr>> {
        let result = match self.body(e)? {
            None => None,
            Some((Body::Expr(e), false)) => Some(e),
            Some((body, _)) => {
                let name = self.docs.label(conj[0].loc());
                Some(Expr::Rule(self.add_rule(name, body)?))
            }
        };
        self.memo.insert(
            (conj, self.at),
            match &result {
                None => Memo::Never,
                Some(e) => Memo::Is(e.clone()),
            },
        );
        Ok(result)
    }

    fn later(&mut self, conj: Conj, what: Pending<'a>) -> Result<Expr> {
        let name = self.docs.label(conj[0].loc());
        let rule = self.add_rule(name, Body::Expr(Expr::Never))?;
        self.queue.push_back((rule, self.at, what));
        self.memo.insert((conj, self.at), Memo::Is(Expr::Rule(rule)));
        Ok(Expr::Rule(rule))
    }

    /// Compile what was put off.
    pub(super) fn work_off(&mut self) -> Result<()> {
        while let Some((rule, at, pending)) = self.queue.pop_front() {
            self.budget.tick()?;
            self.stand_at(at);
            self.blame = None;
            let mut e = Emitted::default();
            let at = match pending {
                Pending::Flat(flat) => {
                    let at = flat.nodes.first().map(|n| n.loc);
                    self.emit(*flat, &mut e)?;
                    at
                }
                Pending::Choice(loc, kw) => {
                    self.emit_choice(loc, kw, &mut e)?;
                    Some(loc)
                }
            };
            match self.body(e)? {
                Some((body, _)) => self.rules[rule as usize].body = body,
                None => {
                    let contradiction = || at.map(|at| (at, "its keywords contradict each other".to_owned()));
                    if let Some(why) = self.blame.take().or_else(contradiction) {
                        self.dead.insert(rule, why);
                    }
                }
            }
        }
        Ok(())
    }

    /// One body from alternatives, and whether it deserves a rule.
    pub(super) fn body(&mut self, mut e: Emitted) -> Result<Option<(Body, bool)>> {
        if e.exprs.is_empty() && e.objects.len() == 1 {
            return Ok(e.objects.pop().map(|o| (Body::Object(o), true)));
        }
        for o in e.objects {
            let rule = self.add_rule("object".into(), Body::Object(o))?;
            e.exprs.push(Expr::Rule(rule));
        }
        Ok(match e.exprs.len() {
            0 => None,
            1 => e.exprs.pop().map(|x| (Body::Expr(x), e.large)),
            _ => Some((Body::Expr(Expr::Alt(e.exprs)), e.large)),
        })
    }

    /// A conjunction that is nothing but a choice between schemas (and a type that all of them have anyway): its
    /// alternatives are rules of their own, shared with other uses. Gives the types that they may have.
    fn pure_choice(&mut self, conj: &Conj) -> Result<Option<(LocId, Kw, Types)>> {
        let [a] = conj[..] else { return Ok(None) };
        if a.negated() {
            return Ok(None);
        }
        let loc = a.loc();
        let range = self.docs.open(loc);
        if range.len() > 2 {
            return Ok(None);
        }
        let mut choice = None;
        let mut types = Types::ALL;
        for i in range {
            match self.docs.keyword(i) {
                (kw @ (Kw::AnyOf | Kw::OneOf), v) if choice.is_none() => choice = Some((kw, v)),
                (Kw::Type, v) => types = self.types(loc, v)?,
                _ => return Ok(None),
            }
        }
        let Some((kw, v)) = choice else { return Ok(None) };
        let possible = self.branch_types(loc, kw, v, TYPE_LOOK)?;
        if possible.and(types) != possible {
            return Ok(None);
        }
        Ok(Some((loc, kw, possible)))
    }

    fn branch_types(&mut self, loc: LocId, kw: Kw, v: &'a Value, look: u32) -> Result<Types> {
        let mut types = Types::NONE;
        for (i, s) in self.list(loc, kw, v)?.iter().enumerate() {
            let child = self.docs.child(loc, s, Step::Nth(kw.text(), i));
            types.0 |= self.likely_types(child, look)?.0;
        }
        Ok(types)
    }

    /// The types that a location allows, or more.
    fn likely_types(&mut self, loc: LocId, look: u32) -> Result<Types> {
        let mut types = match self.docs.value(loc) {
            Value::Bool(false) => return Ok(Types::NONE),
            _ => Types::ALL,
        };
        if look == 0 {
            return Ok(types);
        }
        if let Some(known) = self.likely.get(&(loc, look)) {
            return Ok(*known);
        }
        for i in self.docs.open(loc) {
            let (kw, v) = self.docs.keyword(i);
            let more = match kw {
                Kw::Type => self.types(loc, v)?,
                Kw::Const => Types::of(v),
                Kw::Enum => Types(self.list(loc, kw, v)?.iter().fold(0, |t, v| t | Types::of(v).0)),
                Kw::Ref => {
                    let target = self.reference(loc, kw, v)?;
                    self.likely_types(target, look - 1)?
                }
                Kw::AnyOf | Kw::OneOf => self.branch_types(loc, kw, v, look - 1)?,
                _ => continue,
            };
            types = types.and(more);
        }
        self.likely.insert((loc, look), types);
        Ok(types)
    }

    fn emit_choice(&mut self, loc: LocId, kw: Kw, e: &mut Emitted) -> Result<()> {
        let Some(list) = self.docs.get(loc, kw).and_then(Value::as_array) else { return Ok(()) };
        let branches: Vec<LocId> =
            list.iter().enumerate().map(|(i, s)| self.docs.child(loc, s, Step::Nth(kw.text(), i))).collect();
        let mut conjs: Vec<Conj> = branches.iter().map(|b| Conj::from_slice(&[Atom::is(*b)])).collect();
        if kw == Kw::OneOf && branches.len() > 1 {
            // Constants and scalars are counted, not compared in pairs.
            let types: Vec<Types> = branches.iter().map(|b| self.likely_types(*b, TYPE_LOOK)).collect::<Result<_>>()?;
            let containers = Types(Types::ARRAY.0 | Types::OBJECT.0);
            if !types.iter().any(|t| t.has(containers)) {
                let flat = self.flatten(&[Atom::is(loc)], Types::ALL)?;
                return self.emit(flat, e);
            }
            for a in 0..branches.len() {
                for b in a + 1..branches.len() {
                    if types[a].and(types[b]).is_empty()
                        || self.provably_empty(&[Atom::is(branches[a]), Atom::is(branches[b])], LOOK)?
                    {
                        continue;
                    }
                    conjs[a].push(Atom::isnt(branches[b]));
                    conjs[b].push(Atom::isnt(branches[a]));
                }
            }
        }
        for conj in conjs {
            match self.value(conj) {
                Ok(Some(x)) => {
                    if !e.exprs.contains(&x) {
                        e.exprs.push(x);
                    }
                }
                Ok(None) => {}
                Err(CompileError::Unsupported { .. }) if kw == Kw::OneOf && self.options.lenient => {
                    self.ambiguous(loc)?;
                }
                Err(err) => return Err(err),
            }
        }
        e.large = e.exprs.len() > INLINE;
        Ok(())
    }

    /// All of a conjunction, type by type.
    pub(super) fn emit(&mut self, f: Flat<'a>, e: &mut Emitted) -> Result<()> {
        if f.is_dead() {
            return Ok(());
        }
        if f.values.is_some() {
            return self.emit_values(&f, e);
        }
        if self.at.place == Place::Members && !f.types.has(Types::OBJECT) {
            let at = f.nodes.first().map_or(0, |n| n.loc);
            const REMEDY: &str = "Give a schema of type object";
            return self.unsupported(at, Kw::Type, "parameters are the members of an object", REMEDY);
        }
        let raw = self.raw_is_all(&f);
        for group in Types::GROUPS {
            if !f.types.has(group) || raw && group != Types::STRING {
                continue;
            }
            if f.choices.is_empty() && f.object.some.is_empty() {
                self.emit_type(&f, group, e)?;
                continue;
            }
            let mut g = f.clone();
            g.restrict(group);
            let most = self.budget.limits.items_per_set;
            let mut list = self.alternatives(g.clone(), most.min(FEW), LOOK)?;
            if list.is_none() {
                // More work for each branch, fewer branches.
                self.apart = true;
                let again = self.alternatives(g, most, LOOK);
                self.apart = false;
                list = again?;
            }
            let Some(list) = list else {
                let at = f.nodes.first().map_or(0, |n| n.loc);
                return Err(CompileError::limit(
                    "items_per_set",
                    "the number of combinations of alternatives",
                    most as u64,
                )
                .within(&self.docs.pointer(at)));
            };
            self.emit_alternatives(list, group, e)?;
        }
        Ok(())
    }

    fn emit_alternatives(&mut self, list: Vec<Flat<'a>>, group: Types, e: &mut Emitted) -> Result<()> {
        if group == Types::NULL || group == Types::BOOLEAN {
            let mut all: Option<Flat<'a>> = None;
            for mut f in list {
                if let Some(values) = f.values.take() {
                    let mut types = Types::NONE;
                    for v in values.iter() {
                        if f.types.has(Types::of(v)) && self.all_hold_of(&f.lits, v)? {
                            types.0 |= Types::of(v).0;
                        }
                    }
                    f.types = types;
                }
                match &mut all {
                    Some(a) => a.types.0 |= f.types.0,
                    None => all = Some(f),
                }
            }
            if let Some(f) = all {
                self.emit_type(&f, group, e)?;
            }
            return Ok(());
        }
        let mut strings: Vec<Strings<'a>> = vec![];
        let mut numbers: Vec<(Types, Numbers<'a>)> = vec![];
        for f in list {
            if f.values.is_some() {
                self.emit_values(&f, e)?;
                continue;
            }
            if group == Types::STRING {
                let same = |s: &Strings<'a>| Strings { at: 0, ..s.clone() } == Strings { at: 0, ..f.string.own() };
                if strings.iter().any(same) {
                    continue;
                }
                strings.push(f.string.own());
            }
            if group == Types::NUMBER {
                let key = (f.types, f.number.own());
                if numbers.contains(&key) {
                    continue;
                }
                numbers.push(key);
            }
            self.emit_type(&f, group, e)?;
        }
        Ok(())
    }

    pub(super) fn emit_type(&mut self, f: &Flat<'a>, group: Types, e: &mut Emitted) -> Result<()> {
        if self.at.place == Place::Members && group != Types::OBJECT {
            return Ok(());
        }
        match group {
            Types::NULL => e.exprs.push(self.written(Kind::Null, Expr::lit("null"))),
            Types::BOOLEAN => {
                if f.types.has(Types::TRUE) {
                    e.exprs.push(self.written(Kind::Boolean, Expr::lit("true")));
                }
                if f.types.has(Types::FALSE) {
                    e.exprs.push(self.written(Kind::Boolean, Expr::lit("false")));
                }
            }
            Types::NUMBER => {
                if let Some(x) = self.number_expr(f)? {
                    e.exprs.push(self.written(Kind::Number, x));
                }
            }
            Types::STRING => {
                let made = if self.in_json() { self.string_expr(&f.string)? } else { self.raw_string(&f.string)? };
                e.exprs.extend(made);
            }
            Types::ARRAY => {
                let a = &f.array;
                let free =
                    a.parts.is_empty() && a.items.is_empty() && a.contains.is_empty() && a.unevaluated.is_empty();
                let free = free && a.min == 0 && a.max.is_none() && a.unique.is_none();
                let outer = self.enter();
                let made = if free { self.any_array().map(|r| Some(Expr::Rule(r))) } else { self.array(f) };
                self.stand_at(outer);
                if let Some(x) = made? {
                    e.large |= !free;
                    e.exprs.push(self.written(Kind::Array, x));
                }
            }
            _ => {
                let outer = self.enter();
                let made = self.emit_object(f);
                let inside = self.at;
                self.stand_at(outer);
                match made? {
                    None => {}
                    Some(Body::Object(rule)) if outer == inside && e.objects.contains(&rule) => {}
                    Some(Body::Object(rule)) if outer == inside => e.objects.push(rule),
                    Some(Body::Expr(x)) => e.exprs.push(self.written(Kind::Object, x)),
                    Some(body) => {
                        let rule = self.add_rule("object".into(), body)?;
                        e.exprs.push(self.written(Kind::Object, Expr::Rule(rule)));
                    }
                }
                e.large |= outer.place != Place::Json;
            }
        }
        Ok(())
    }

    fn emit_object(&mut self, f: &Flat<'a>) -> Result<Option<Body>> {
        let o = &f.object;
        let free = o.parts.is_empty()
            && o.required.is_empty()
            && o.forbidden.is_empty()
            && o.properties.is_empty()
            && o.names.is_empty()
            && o.unevaluated.is_empty()
            && o.some_names.is_empty();
        if free && o.min == 0 && o.max.is_none() {
            return self.any_object().map(|rule| Some(Body::Expr(Expr::Rule(rule))));
        }
        let Some(rule) = self.object(f)? else { return Ok(None) };
        match self.in_json() {
            true => Ok(Some(Body::Object(rule))),
            false => self.members(Some(f), rule).map(|e| Some(Body::Expr(e))),
        }
    }

    /// Finitely many values: those that are valid, spelled out.
    fn emit_values(&mut self, f: &Flat<'a>, e: &mut Emitted) -> Result<()> {
        let Some(values) = f.values.clone() else { return Ok(()) };
        let sure = f.choices.is_empty() && f.denied.is_empty() && f.lits.iter().all(|l| matches!(l, Lit::Atom(_)));
        let plain = |v: &Value| match v {
            Value::String(_) => *f.string == Strings { at: f.string.at, ..Strings::default() },
            Value::Number(_) => *f.number == Numbers::default(),
            Value::Null | Value::Bool(_) => true,
            _ => false,
        };
        let mut spelled = vec![];
        for v in values.iter() {
            self.budget.tick()?;
            if f.types.has(Types::of(v)) && ((sure && plain(v)) || self.all_hold_of(&f.lits, v)?) {
                spelled.push(*v);
            }
        }
        if spelled.len() > INLINE || spelled.iter().any(|v| v.is_object() || v.is_array()) {
            e.large = true;
        }
        for v in spelled {
            if self.at.place != Place::Members || v.is_object() {
                let x = self.constant(v, 0)?;
                e.exprs.push(x);
            }
        }
        Ok(())
    }
}
