//! Arrays: items by position, counts, and `contains`. Unique items are in [`super::unique`].

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::documents::Step;
use super::flat::*;
use super::keyword::Kw;
use super::unique::Unique;
use super::Compiler;
use crate::error::{CompileError, Result};
use crate::ir::{Body, Expr, RuleId, Separators};

/// Positions that are told apart one by one where items must be counted by rules.
const POSITIONS: u64 = 256;
/// Counts of matching items that are kept beside each other: each set of them is told apart.
const MOST_CONTAINS: usize = 6;
/// Optional items in a row that are nested in one expression; more get rules of their own.
const NESTED: usize = 16;

/// The rest of an array after some items: how many there were (as far as it matters), and how many matched each
/// `contains` (as far as it matters).
type Progress = (u64, SmallVec<[u64; 2]>);

impl<'a> Compiler<'a> {
    /// What holds for an item, and what must hold besides if no `contains` has evaluated it.
    pub(super) fn item_atoms(&mut self, f: &Flat<'a>, i: usize) -> Result<(Conj, Vec<(u32, Atom)>)> {
        let mut atoms = Conj::new();
        let a = &f.array;
        for part in &a.parts {
            let place = match part.prefix {
                Some((kw, list)) if i < list.len() => Some((&list[i], Step::Nth(kw, i))),
                _ => part.rest.map(|(kw, v)| (v, Step::Key(kw))),
            };
            if let Some((schema, step)) = place {
                atoms.push(Atom::is(self.docs.child(part.loc, schema, step)));
            }
        }
        atoms.extend(a.items.iter().filter(|(at, _)| *at == i).map(|(_, atom)| *atom));
        let mut rest = vec![];
        for (node, schema) in &a.unevaluated {
            let by_part = a.parts.iter().any(|p| {
                f.under(p.node, *node) && (p.rest.is_some() || p.prefix.is_some_and(|(_, list)| i < list.len()))
            });
            let inside = a.unevaluated.iter().any(|(n, _)| n != node && f.under(*n, *node));
            if !by_part && !inside {
                rest.push((*node, Atom::is(*schema)));
            }
        }
        Ok((atoms, rest))
    }

    /// The first position from which on all items are alike.
    pub(super) fn alike_from(&self, f: &Flat<'a>) -> usize {
        let prefix = f.array.parts.iter().filter_map(|p| p.prefix).map(|(_, l)| l.len()).max().unwrap_or(0);
        let lits = f.array.items.iter().map(|(i, _)| i + 1).max().unwrap_or(0);
        let contains = f.array.contains.iter().map(|c| c.from).max().unwrap_or(0);
        prefix.max(lits).max(contains)
    }

    /// An array; `None` if nothing can match.
    pub(super) fn array(&mut self, f: &Flat<'a>) -> Result<Option<Expr>> {
        if f.array.min > u32::MAX as u64 {
            return Ok(None);
        }
        let mut max = f.array.max;
        let mut distinct = false;
        if let Some(loc) = f.array.unique.filter(|_| max.is_none_or(|m| m > 1)) {
            match self.unique(f)? {
                Unique::Distinct(_) if !self.in_json() => self.unsupported(
                    loc,
                    Kw::UniqueItems,
                    "items that are not written in JSON are not compared",
                    "Use the style \"json\", or leave it out (lenient=True) and check afterwards",
                )?,
                Unique::Listed(e) => return Ok(e),
                Unique::Distinct(most) => (max, distinct) = (most, true),
                Unique::Given => {}
                Unique::Unknown => self.unsupported(
                    loc,
                    Kw::UniqueItems,
                    "items are not compared beside `contains`, nor where it is not certain that there are always more of them",
                    "Leave one of the two out, or list the items in an enum; or lenient=True, and check afterwards",
                )?,
            }
        }
        if !f.array.contains.is_empty() {
            return self.array_with_contains(f);
        }
        let alike = self.alike_from(f);
        let item = |c: &mut Self, i: usize| if distinct { c.distinct_item(f, i) } else { c.item(f, i) };
        let most = max.filter(|m| *m < u32::MAX as u64);
        let positions = most.map_or(alike, |m| alike.min(m as usize));
        let mut items = Vec::with_capacity(positions);
        for i in 0..positions {
            let item = item(self, i)?;
            let never = item.is_none();
            items.push(item);
            if never {
                break;
            }
        }
        // An impossible item ends the array before it.
        let mut most = most;
        let rest = if items.last().is_some_and(Option::is_none) {
            items.pop();
            most = Some(items.len() as u64);
            None
        } else if most.is_some_and(|m| m <= items.len() as u64) {
            None
        } else {
            let rest = item(self, alike)?;
            if rest.is_none() {
                most = Some(items.len() as u64);
            }
            rest
        };
        let min = f.array.min;
        if most.is_some_and(|m| m < min) {
            return Ok(None);
        }
        if most == Some(0) {
            return Ok(Some(self.brackets(None, true, false)));
        }
        let items: Vec<Expr> = items.into_iter().flatten().collect();
        let first = match (items.first(), &rest) {
            (Some(first), _) => first.clone(),
            (None, Some(rest)) => rest.clone(),
            (None, None) => return Ok(Some(self.brackets(None, true, false))),
        };
        // What follows the last item that has a place of its own.
        let used = items.len().max(1) as u64;
        let mut tail = match rest {
            Some(rest) if most.is_none_or(|m| m > used) => {
                let more = Expr::seq([self.space.comma.clone(), rest]);
                let bound = |n: u64| n.saturating_sub(used).min(u32::MAX as u64) as u32;
                Some(more.repeat(bound(min), most.map(bound)))
            }
            _ => None,
        };
        // Items that may be missing nest, the others follow each other; both from the back.
        let mut required: Vec<Expr> = vec![];
        let mut nested = 0;
        for (i, item) in items.into_iter().enumerate().skip(1).rev() {
            let comma = self.space.comma.clone();
            if (i as u64) < min {
                required.push(item);
                required.push(comma);
            } else {
                let inner = Expr::Seq([comma, item].into_iter().chain(tail.take()).collect());
                nested += 1;
                tail = Some(if nested % NESTED == 0 {
                    let rule = self.add_rule("items".into(), Body::Expr(inner))?;
                    Expr::Rule(rule).opt()
                } else {
                    inner.opt()
                });
            }
        }
        let mut body = vec![first];
        body.extend(required.into_iter().rev());
        body.extend(tail);
        let body = if body.len() == 1 { body.remove(0) } else { Expr::Seq(body) };
        Ok(Some(self.brackets(Some(body), min == 0, distinct)))
    }

    pub(super) fn brackets(&self, body: Option<Expr>, may_be_empty: bool, distinct: bool) -> Expr {
        brackets(self.array_brackets(), &self.space, body, may_be_empty, distinct)
    }

    // Rules that begin behind the opening bracket. Where the brackets of an empty array touch, what pads it belongs to
    // the first item.

    pub(super) fn opening(&self, rest: RuleId) -> Expr {
        match self.space.close {
            None => Expr::seq([self.array_brackets().0, self.space.pad.clone(), Expr::Rule(rest)]),
            Some(_) => Expr::seq([self.array_brackets().0, Expr::Rule(rest)]),
        }
    }

    pub(super) fn before_item(&self, first: bool) -> Option<Expr> {
        match (first, &self.space.close) {
            (false, _) => Some(self.space.comma.clone()),
            (true, Some(_)) => Some(self.space.pad.clone()),
            (true, None) => None,
        }
    }

    pub(super) fn closing(&self, empty: bool) -> Expr {
        if empty {
            return self.array_brackets().1;
        }
        Expr::seq([self.space.before_close().clone(), self.array_brackets().1])
    }

    pub(super) fn item(&mut self, f: &Flat<'a>, i: usize) -> Result<Option<Expr>> {
        let (mut atoms, rest) = self.item_atoms(f, i)?;
        atoms.extend(rest.into_iter().map(|(_, a)| a));
        self.item_of(atoms)
    }

    fn item_of(&mut self, atoms: Conj) -> Result<Option<Expr>> {
        Ok(self.inner(atoms)?.map(|e| self.as_item(e)))
    }

    /// Arrays whose items are counted by what they match: one rule for each state of progress.
    fn array_with_contains(&mut self, f: &Flat<'a>) -> Result<Option<Expr>> {
        let alike = self.alike_from(f) as u64;
        let total: u64 = f.array.contains.iter().map(|c| c.min.max(c.max.map_or(0, |m| m + 1))).sum();
        // A minimum that follows from `contains` alone needs no counting of its own.
        let implied = f.array.contains.iter().map(|c| c.min + c.from as u64).max().unwrap_or(0);
        let min = if f.array.min <= implied && f.array.contains.len() == 1 && f.array.contains[0].from == 0 {
            0
        } else {
            f.array.min
        };
        let last = alike.max(min).max(f.array.max.map_or(0, |m| m.saturating_add(1))).max(1);
        if last > POSITIONS || total > POSITIONS || f.array.contains.len() > MOST_CONTAINS {
            let c = f.array.contains[0].atom.loc();
            self.unsupported(
                c,
                Kw::Contains,
                "its counts, together with the other bounds on items, are too large to be told apart",
                "Use smaller bounds, or leave out minItems / maxItems",
            )?;
            let mut g = f.clone();
            g.array.contains.clear();
            return self.array(&g);
        }
        let zero: Progress = (0, f.array.contains.iter().map(|_| 0).collect());
        let mut rules: FxHashMap<Progress, RuleId> = FxHashMap::default();
        let mut work = vec![zero.clone()];
        let root = self.add_rule("items".into(), Body::Expr(Expr::Never))?;
        rules.insert(zero, root);
        while let Some(state) = work.pop() {
            let body = self.next_item(f, &state, (min, last), &mut rules, &mut work)?;
            let rule = rules[&state];
            self.rules[rule as usize].body = Body::Expr(body);
        }
        Ok(Some(self.opening(root)))
    }

    fn next_item(
        &mut self,
        f: &Flat<'a>,
        (at, counts): &Progress,
        (min, last): (u64, u64),
        rules: &mut FxHashMap<Progress, RuleId>,
        work: &mut Vec<Progress>,
    ) -> Result<Expr> {
        let mut options = vec![];
        let contains = &f.array.contains;
        if *at >= min && contains.iter().zip(counts).all(|(c, n)| *n >= c.min) {
            options.push(self.closing(*at == 0));
        }
        if f.array.max.is_none_or(|m| *at < m) {
            let (atoms, rest) = self.item_atoms(f, *at as usize)?;
            for set in 0..1u32 << contains.len() {
                self.weigh(8)?;
                let mut atoms = atoms.clone();
                let mut next = counts.clone();
                let mut evaluated: SmallVec<[u32; 2]> = SmallVec::new();
                let mut possible = true;
                for (i, c) in contains.iter().enumerate() {
                    let applies = *at as usize >= c.from;
                    if set >> i & 1 == 1 {
                        let full = c.max.map_or(c.min, |m| m);
                        // Counting on is pointless once there are enough, unless there can be too many.
                        if !applies
                            || (c.max.is_none() && next[i] >= c.min && !c.evaluates)
                            || (c.max.is_some() && next[i] >= full)
                        {
                            possible = false;
                            break;
                        }
                        atoms.push(c.atom);
                        next[i] = (next[i] + 1).min(c.max.unwrap_or(c.min));
                        if c.evaluates {
                            evaluated.push(c.node);
                        }
                    } else if c.max.is_some() && applies {
                        atoms.push(c.atom.flipped());
                    }
                }
                if !possible {
                    continue;
                }
                atoms.extend(
                    rest.iter().filter(|(node, _)| !evaluated.iter().any(|e| f.under(*e, *node))).map(|(_, a)| *a),
                );
                let Some(value) = self.item_of(atoms)? else { continue };
                let state: Progress = ((at + 1).min(last), next);
                let rule = match rules.get(&state) {
                    Some(r) => *r,
                    None => {
                        if rules.len() > 10_000 {
                            return Err(CompileError::limit("fsm_states", "the number of states of an array", 10_000));
                        }
                        let r = self.add_rule("items".into(), Body::Expr(Expr::Never))?;
                        rules.insert(state.clone(), r);
                        work.push(state);
                        r
                    }
                };
                options
                    .push(Expr::Seq(self.before_item(*at == 0).into_iter().chain([value, Expr::Rule(rule)]).collect()));
            }
        }
        Ok(Expr::Alt(options))
    }
}

/// `[`, items, `]`, or what stands for these; whether strings that are so marked differ from each other.
pub(super) fn brackets(
    (mut open, close): (Expr, Expr),
    space: &Separators,
    body: Option<Expr>,
    may_be_empty: bool,
    distinct: bool,
) -> Expr {
    let pad = || space.pad.clone();
    if distinct {
        open = Expr::seq([open, Expr::Distinct]);
    }
    let touching = space.close.is_some();
    match (body, may_be_empty) {
        (None, _) if touching => Expr::seq([open, close]),
        (None, _) => Expr::seq([open, pad(), close]),
        (Some(b), false) => Expr::seq([open, pad(), b, space.before_close().clone(), close]),
        (Some(b), true) if touching => {
            Expr::seq([open, Expr::alt([close.clone(), Expr::seq([pad(), b, space.before_close().clone(), close])])])
        }
        (Some(b), true) => Expr::seq([open, pad(), Expr::alt([close.clone(), Expr::seq([b, pad(), close])])]),
    }
}
