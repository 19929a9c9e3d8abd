//! Choices worked off: a conjunction as a list of alternatives without choices, for one type at a time.
//!
//! Going type by type keeps the list short: a branch about another type is no alternative at all, and a branch that
//! says nothing about this type makes its whole choice void. What remains is multiplied out, within a limit; branches
//! that contradict what is known are dropped as soon as they are added.

use std::rc::Rc;

use serde_json::Value;
use smallvec::{smallvec, SmallVec};

use super::documents::{LocId, Step};
use super::flat::*;
use super::keyword::Kw;
use super::Compiler;
use crate::error::{CompileError, Result};

/// How deep emptiness is looked for in the values of properties and items.
pub(super) const LOOK: u32 = 4;

/// So many looks are taken within each other: a glance at what a look meets, a look at the alternatives in there.
const NESTED_LOOKS: u32 = 24;

/// Work on alternatives that counts as much as a state.
const WEIGHT: usize = 16;

/// The negation of an option, where it is no choice.
fn complement<'a>(option: &[Lit<'a>]) -> Lits<'a> {
    match option {
        [Lit::Require(name), Lit::Property(n, atom)] if name == n => smallvec![Lit::Property(name, atom.flipped())],
        [Lit::Property(name, atom)] => smallvec![Lit::Require(name), Lit::Property(name, atom.flipped())],
        [Lit::Forbid(name)] => smallvec![Lit::Require(name)],
        [Lit::Atom(atom)] if atom.negated() => smallvec![Lit::Atom(atom.flipped())],
        _ => smallvec![],
    }
}

impl<'a> Compiler<'a> {
    /// The alternatives of a conjunction; `None` if there are more than `most`.
    pub(super) fn alternatives(&mut self, flat: Flat<'a>, most: usize, look: u32) -> Result<Option<Vec<Flat<'a>>>> {
        let mut out = vec![];
        let all = self.each_alternative(flat, most, look, |_, f| {
            out.push(f);
            true
        })?;
        Ok(all.then_some(out))
    }

    /// Hands over one alternative after the other for as long as `goes_on` says so. Returns whether these were all: there
    /// may be more than `most`.
    fn each_alternative(
        &mut self,
        flat: Flat<'a>,
        most: usize,
        look: u32,
        mut goes_on: impl FnMut(&mut Self, Flat<'a>) -> bool,
    ) -> Result<bool> {
        let mut found = 0;
        let mut stack = vec![flat];
        while let Some(mut f) = stack.pop() {
            self.weigh(f.weight())?;
            if f.is_dead() {
                continue;
            }
            if found + stack.len() > most {
                return Ok(false);
            }
            if f.choices.is_empty() {
                if f.object.some.is_empty() || !f.types.has(Types::OBJECT) {
                    found += 1;
                    if !goes_on(self, f) {
                        return Ok(false);
                    }
                } else {
                    self.name_some_property(&mut f)?;
                    stack.push(f);
                }
                continue;
            }
            let (choice, node) = f.choices.remove(0);
            let first = stack.len();
            self.branch(f, &choice, node, look, &mut stack)?;
            // The stack is read from its end: the first branch comes first.
            stack[first..].reverse();
        }
        Ok(true)
    }

    /// Accounts for work on alternatives. Nested choices multiply: what they cost is counted, not timed, so that they end
    /// alike everywhere.
    pub(super) fn weigh(&mut self, work: usize) -> Result<()> {
        self.weighed += work;
        if self.weighed < WEIGHT {
            return Ok(());
        }
        self.budget.states(self.weighed / WEIGHT)?;
        self.weighed %= WEIGHT;
        Ok(())
    }

    /// Add the live branches of a choice to the list.
    fn branch(
        &mut self,
        f: Flat<'a>,
        choice: &Rc<Disjunction<'a>>,
        node: u32,
        look: u32,
        out: &mut Vec<Flat<'a>>,
    ) -> Result<()> {
        if !choice.exclusive && self.some_option_holds(&f, choice)? {
            out.push(f);
            return Ok(());
        }
        let mut live: Vec<(usize, Flat<'a>)> = vec![];
        let mut before: Lits<'a> = smallvec![];
        for (i, lits) in choice.options.iter().enumerate() {
            self.weigh(f.weight())?;
            let mut g = f.clone();
            if self.apart && !choice.exclusive {
                if self.all_implied(&f, lits, &before)? {
                    out.push(f);
                    return Ok(());
                }
                self.assume(&mut g, &before, node, true)?;
                before.extend(complement(lits));
            }
            self.assume(&mut g, lits, node, true)?;
            if g.is_dead() || (look > 0 && self.contradicts(&g, look - 1)?) {
                continue;
            }
            if g.edits == f.edits && g.choices.len() == f.choices.len() && !choice.exclusive && !self.track {
                out.push(f);
                return Ok(());
            }
            live.push((i, g));
        }
        if live.len() > 1 && live.iter().all(|(_, g)| g.values.is_some() && g.choices.len() == f.choices.len()) {
            let values = self.finite_union(&f, &live, choice.exclusive)?;
            let mut g = f;
            g.edits += 1;
            g.values = Some(Rc::new(values));
            out.push(g);
            return Ok(());
        }
        if choice.exclusive && live.len() > 1 && look > 0 {
            self.exclude_each_other(choice, node, look, &mut live)?;
        }
        out.extend(live.into_iter().map(|(_, g)| g));
        Ok(())
    }

    /// Whether it shows at once that an option holds, so that nothing remains of the choice: an object that requires a
    /// name which a closed schema does not know fails that schema, whatever else may be wrong with it.
    fn some_option_holds(&mut self, f: &Flat<'a>, choice: &Disjunction<'a>) -> Result<bool> {
        if f.types != Types::OBJECT || f.object.required.is_empty() {
            return Ok(false);
        }
        for option in &choice.options {
            let [Lit::Fails(loc, kw @ Kw::AdditionalProperties)] = option[..] else { continue };
            if self.docs.get(loc, kw) != Some(&Value::Bool(false)) {
                continue;
            }
            for name in &f.object.required {
                if !self.is_named(loc, name)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether an option holds already, if `before` does (which says that the options before it do not).
    fn all_implied(&mut self, f: &Flat<'a>, lits: &[Lit<'a>], before: &[Lit<'a>]) -> Result<bool> {
        let open: Lits<'a> = lits.iter().filter(|l| !before.contains(l)).copied().collect();
        match open[..] {
            [Lit::Atom(atom)] if !self.track && f.types == Types::OBJECT => {
                self.weigh(f.weight())?;
                // What is still open would take long to be looked through, and rarely decides.
                let mut g = f.clone();
                g.choices.clear();
                match self.quietly(|c| c.assume(&mut g, &[Lit::Atom(atom.flipped())], NO_NODE, true))? {
                    Some(()) => return Ok(g.is_dead() || self.flat_empty(g, 2)?),
                    None => return Ok(false),
                }
            }
            _ => {}
        }
        match lits {
            [Lit::Require(name), Lit::Property(n, atom)] if name == n && f.object.required.contains(name) => {
                self.valid_if_there(f, name, *atom)
            }
            [Lit::Property(name, atom)] => {
                Ok(f.object.forbidden.contains(name) || self.valid_if_there(f, name, *atom)?)
            }
            [Lit::Forbid(name)] => Ok(f.object.forbidden.contains(name)),
            _ => Ok(false),
        }
    }

    /// Whether a property can have no value but those that satisfy an atom.
    fn valid_if_there(&mut self, f: &Flat<'a>, name: &'a str, atom: Atom) -> Result<bool> {
        let Some(mut atoms) = self.quietly(|c| c.name_atoms(f, name))? else { return Ok(false) };
        if atoms.contains(&atom) {
            return Ok(true);
        }
        atoms.push(atom.flipped());
        atoms.sort_unstable();
        atoms.dedup();
        self.provably_empty(&atoms, 2)
    }

    /// Exactly one branch: where two may hold at once, each is narrowed by the other's negation.
    fn exclude_each_other(
        &mut self,
        choice: &Rc<Disjunction<'a>>,
        node: u32,
        look: u32,
        live: &mut Vec<(usize, Flat<'a>)>,
    ) -> Result<()> {
        let mut negations: Vec<SmallVec<[Lit<'a>; 2]>> = vec![SmallVec::new(); live.len()];
        for a in 0..live.len() {
            for b in a + 1..live.len() {
                self.weigh(live[a].1.weight())?;
                let mut both = live[a].1.clone();
                // Not whether the schemas around the choice hold: they hold its exclusivity, which is in question.
                both.lits = choice.options[live[a].0].iter().copied().collect();
                self.assume(&mut both, &choice.options[live[b].0], node, true)?;
                if self.flat_empty(both, look)? {
                    continue;
                }
                for (x, y) in [(a, b), (b, a)] {
                    if let [Lit::Atom(other)] = choice.options[live[y].0][..] {
                        negations[x].push(Lit::Atom(other.flipped()));
                    }
                }
            }
        }
        let mut kept = vec![];
        for ((i, mut g), lits) in live.drain(..).zip(negations) {
            if !lits.is_empty() {
                match self.assume(&mut g, &lits, node, false) {
                    Err(CompileError::Unsupported { .. }) => self.ambiguous(choice.loc)?,
                    r => r?,
                }
            }
            if !g.is_dead() && !self.contradicts(&g, look - 1)? {
                kept.push((i, g));
            }
        }
        *live = kept;
        Ok(())
    }

    pub(super) fn ambiguous(&mut self, loc: LocId) -> Result<()> {
        self.unsupported(
            loc,
            Kw::OneOf,
            "an instance may satisfy two alternatives at once, and nothing regular tells them apart",
            "Use anyOf, or tell the alternatives apart by type, by a constant or by a required property; or lenient=True",
        )
    }

    /// "Some property fails this keyword" as a choice among the names that have a place of their own, and the others.
    fn name_some_property(&mut self, f: &mut Flat<'a>) -> Result<()> {
        let Some(what) = f.object.some.pop() else { return Ok(()) };
        let (loc, kw) = match what {
            Existence::Keyword(loc, kw) | Existence::Beyond(_, (loc, kw)) => (loc, kw),
        };
        let Some(v) = self.docs.get(loc, kw) else { return Ok(()) };
        if let Existence::Keyword(_, Kw::AdditionalProperties) = what {
            if v == &Value::Bool(false) {
                for name in f.object.required.clone() {
                    if !self.is_named(loc, name)? {
                        return Ok(());
                    }
                }
            }
        }
        let mut options: Vec<Lits<'a>> = vec![];
        if let Some(names) = self.failing_names(what)? {
            let options = names.into_iter().map(|n| smallvec![Lit::Require(n)]).collect();
            self.choice(f, NO_NODE, loc, kw, options);
            return Ok(());
        }
        let names = match self.closed_names(f) {
            Some(names) => names,
            None => {
                options.push(smallvec![Lit::SomeName(what)]);
                // What else must exist may give places to names that can be what is looked for here.
                let before = f.object.some_names.len();
                let rest = f.object.some.clone();
                f.object.some_names.extend(std::iter::once(what).chain(rest));
                let (names, closed) = self.declared_names(f)?;
                f.object.some_names.truncate(before);
                if closed {
                    options.clear();
                }
                names
            }
        };
        for name in names {
            match what {
                Existence::Beyond(others, _) => {
                    if !others.contains_key(name) {
                        options.push(smallvec![Lit::Require(name)]);
                    }
                }
                Existence::Keyword(_, Kw::AdditionalProperties) => {
                    if !self.is_named(loc, name)? {
                        let schema = self.docs.child(loc, v, Step::Key(kw.text()));
                        options.push(smallvec![Lit::Require(name), Lit::Property(name, Atom::isnt(schema))]);
                    }
                }
                Existence::Keyword(_, Kw::PatternProperties) => {
                    for (pattern, s) in self.map(loc, kw, v)? {
                        if self.pattern_matches(loc, kw, pattern, name)? {
                            let child = self.docs.child(loc, s, Step::In(kw.text(), pattern));
                            options.push(smallvec![Lit::Require(name), Lit::Property(name, Atom::isnt(child))]);
                        }
                    }
                }
                Existence::Keyword(..) => {
                    let schema = self.docs.child(loc, v, Step::Key(kw.text()));
                    if !self.holds(schema, &Value::String(name.to_owned()), 64)? {
                        options.push(smallvec![Lit::Require(name)]);
                    }
                }
            }
        }
        if options.is_empty() {
            f.restrict(Types::OBJECT.not());
        } else {
            self.choice(f, NO_NODE, loc, kw, options);
        }
        Ok(())
    }

    /// All names that `propertyNames` does not allow, where they are listed.
    fn failing_names(&mut self, what: Existence<'a>) -> Result<Option<Vec<&'a str>>> {
        let Existence::Keyword(loc, kw @ Kw::PropertyNames) = what else { return Ok(None) };
        let Some(v) = self.docs.get(loc, kw) else { return Ok(None) };
        let child = self.docs.child(loc, v, Step::Key(kw.text()));
        let Some(flat) = self.quietly(|c| c.flatten(&[Atom::isnt(child)], Types::STRING))? else { return Ok(None) };
        let Some(values) = flat.values.clone() else { return Ok(None) };
        let mut names = vec![];
        for v in values.iter() {
            if let Value::String(s) = v {
                if self.all_hold(&flat.lits, v)? {
                    names.push(s.as_str());
                }
            }
        }
        Ok(Some(names))
    }

    /// All names that the object can have, if a schema closes it.
    pub(super) fn closed_names(&self, f: &Flat<'a>) -> Option<Vec<&'a str>> {
        let closed = f
            .object
            .parts
            .iter()
            .find(|p| p.additional == Some(&Value::Bool(false)) && p.patterns.is_none_or(|m| m.is_empty()))?;
        Some(closed.properties.map(|m| m.keys().map(String::as_str).collect()).unwrap_or_default())
    }

    /// Whether a required property or item cannot have a value.
    fn contradicts(&mut self, f: &Flat<'a>, look: u32) -> Result<bool> {
        if look > 0 && f.types == Types::OBJECT && (f.object.parts.len() > 1 || !f.object.properties.is_empty()) {
            return self.object_empty(f, look);
        }
        Ok(false)
    }

    fn object_empty(&mut self, f: &Flat<'a>, look: u32) -> Result<bool> {
        // Long lists may hold a name twice.
        let n = f.object.required.len() as u64;
        if n < 64 && f.object.max.is_some_and(|m| m < n) {
            return Ok(true);
        }
        let mut doubtful: Vec<Conj> = vec![];
        for &name in &f.object.required {
            self.weigh(4 * f.object.parts.len())?;
            let Some(atoms) = self.quietly(|c| c.name_atoms(f, name))? else { continue };
            if atoms.len() > 1 || atoms.iter().any(|a| a.negated() || self.docs.value(a.loc()).is_boolean()) {
                doubtful.push(atoms);
            }
        }
        // A glance at each first: mostly it is a constant that settles it, beside large values that take long to look at.
        for look in [1, look] {
            for atoms in &doubtful {
                if self.provably_empty(atoms, look)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Run something whose being unsupported is no error here.
    fn quietly<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match run(self) {
            Ok(t) => Ok(Some(t)),
            Err(
                CompileError::Unsupported { .. }
                | CompileError::Invalid { .. }
                | CompileError::Limit { name: "depth", .. },
            ) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether a conjunction certainly has no instance. `false` says nothing.
    pub(super) fn provably_empty(&mut self, conj: &[Atom], look: u32) -> Result<bool> {
        if look == 0 {
            return Ok(false);
        }
        let mut key: Conj = conj.into();
        if self.quietly(|c| c.normalize(&mut key))? == Some(false) {
            return Ok(true);
        }
        // What is said twice is the same, wherever it stands.
        key.iter_mut().for_each(|a| *a = Atom::new(self.docs.alike(a.loc()), a.negated()));
        key.sort_unstable();
        key.dedup();
        if key.windows(2).any(|w| w[0].flipped() == w[1]) {
            return Ok(true);
        }
        let conj = &key.clone()[..];
        if let Some((empty, depth)) = self.emptiness.get(&key) {
            if *empty || *depth >= look {
                return Ok(*empty);
            }
        }
        if self.looking >= NESTED_LOOKS {
            return Ok(false);
        }
        // What contains itself is asked for again while this is under way; then nothing is known of it yet.
        self.emptiness.insert(key.clone(), (false, look));
        self.looking += 1;
        let empty = match self.quietly(|c| c.flatten(conj, Types::ALL)) {
            Ok(Some(flat)) => self.flat_empty(flat, look),
            Ok(None) => Ok(false),
            Err(e) => Err(e),
        };
        self.looking -= 1;
        let empty = empty?;
        self.emptiness.insert(key, (empty, look));
        Ok(empty)
    }

    /// The same for a conjunction taken apart.
    pub(super) fn flat_empty(&mut self, f: Flat<'a>, look: u32) -> Result<bool> {
        if f.is_dead() {
            return Ok(true);
        }
        if let Some(values) = f.values.clone() {
            for v in values.iter() {
                if f.types.has(Types::of(v)) && self.quietly(|c| c.all_hold_of(&f.lits, v))? != Some(false) {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for group in Types::GROUPS {
            if !f.types.has(group) {
                continue;
            }
            if f.choices.is_empty() && f.object.some.is_empty() {
                if !self.leaf_empty(&f, group, look)? {
                    return Ok(false);
                }
                continue;
            }
            let mut g = f.clone();
            g.restrict(group);
            // The first that is not empty settles it; mostly that is the first of all.
            let mut empty = Ok(true);
            let each = |c: &mut Self, alt: Flat<'a>| {
                empty = match &alt.values {
                    Some(_) => c.flat_empty(alt, look),
                    None => c.leaf_empty(&alt, group, look),
                };
                matches!(empty, Ok(true))
            };
            let all = self.quietly(|c| c.each_alternative(g, 64, look - 1, each))?;
            if !empty? || all != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leaf_empty(&mut self, f: &Flat<'a>, group: Types, look: u32) -> Result<bool> {
        match group {
            Types::NUMBER => {
                let n = &f.number;
                Ok(n.is_empty()
                    || (n.min.value.is_some()
                        && n.min.value == n.max.value
                        && n.min.value.as_ref().is_some_and(|v| n.except.contains(v))))
            }
            Types::STRING => self.quietly(|c| c.string_empty(&f.string)).map(|r| r == Some(true)),
            Types::ARRAY => {
                for i in 0..f.array.min.min(16) as usize {
                    let (atoms, _) = self.item_atoms(f, i)?;
                    if self.provably_empty(&atoms, look - 1)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Types::OBJECT => self.object_empty(f, look - 1),
            _ => Ok(false),
        }
    }
}
