//! Patterns without automata: the language of each part, split by what it asks of its neighbours.
//!
//! A part of a pattern is the union of languages, each with a condition ([`Side`]) on the character to its left and to its
//! right. Anchors, `\b` and look-arounds for one character are empty strings with conditions. Joining two parts checks the
//! conditions of each against the characters of the other, so anchors in the middle and in alternatives come out exactly,
//! and counted repeats stay counted. A pattern without assertions has one part and is translated node by node.
//!
//! Longer look-aheads are resolved from the end: what follows them to the end of the string is intersected with, or
//! freed of, the strings that the look-ahead describes. Where none of this applies (`\b` or look-ahead in a loop, longer
//! look-behind) composing stops with [`Stop::Hard`] and `boolean` takes over.

use super::ast::Node;
use super::boolean;
use super::class::CharSet;
use super::side::{alt, anything, is_anything, nullable, repeat, restrict_seq, seq, size, trim, Side};
use super::Alphabet;
use crate::error::CompileError;
use crate::ir::Expr;
use crate::limits::Budget;

/// Why composing ended.
pub enum Stop {
    Error(CompileError),
    /// Needs an automaton.
    Hard,
}

impl From<CompileError> for Stop {
    fn from(e: CompileError) -> Self {
        Stop::Error(e)
    }
}

type Result<T> = std::result::Result<T, Stop>;

/// Copies made for conditions, in nodes, before the automaton is the better way.
const WORK: usize = 100_000;
/// Different pairs of conditions of one part.
const PARTS: usize = 64;
/// Look-aheads resolved inside each other's rest.
const LOOKS: usize = 100;
/// Sets of left neighbours to be told apart.
const SETS: usize = 6;
/// Repeats of bodies with conditions that are written out.
const UNROLL: u32 = 4;

struct Part {
    left: Side,
    right: Side,
    items: Vec<Expr>,
}

impl Part {
    fn of(items: Vec<Expr>) -> Part {
        Part { left: Side::Any, right: Side::Any, items }
    }

    fn free(&self) -> bool {
        self.left == Side::Any && self.right == Side::Any
    }

    fn nullable(&self) -> bool {
        self.items.iter().all(nullable)
    }
}

/// What is known of the character before a position.
#[derive(Clone)]
enum Before {
    Start,
    /// One of these, all of which mean the same to what follows.
    Char(CharSet),
}

impl Before {
    fn satisfies(&self, side: &Side) -> bool {
        match (self, side) {
            (_, Side::Any) => true,
            (Before::Start, side) => side.edge(),
            (Before::Char(_), Side::Edge) => false,
            (Before::Char(m), Side::Set { set, .. }) => !m.and(set).is_empty(),
        }
    }
}

pub struct Composer<'a> {
    budget: &'a Budget,
    alphabet: Alphabet,
    work: usize,
}

impl<'a> Composer<'a> {
    pub fn new(alphabet: Alphabet, budget: &'a Budget) -> Self {
        Composer { budget, alphabet, work: 0 }
    }

    /// Whole strings: matched anywhere if `search`, else from start to end.
    pub fn whole(&mut self, node: &Node, search: bool) -> Result<Expr> {
        if !node.any(&is_hard) {
            let parts = self.parts(node)?;
            return Ok(alt(parts.into_iter().map(|p| close(p, search, search)).collect()));
        }
        let mut nodes = vec![];
        if search {
            nodes.push(Node::anything());
        }
        push_flat(&mut nodes, node.clone());
        self.suffix(&nodes, &Before::Start, search, 0)
    }

    fn spend(&mut self, nodes: usize) -> Result<()> {
        self.work += nodes;
        self.budget.tick()?;
        if self.work > WORK {
            return Err(Stop::Hard);
        }
        Ok(())
    }

    fn parts(&mut self, node: &Node) -> Result<Vec<Part>> {
        let null = |left: Option<Side>, right: Option<Side>| match (left, right) {
            (Some(left), Some(right)) => Some(Part { left, right, items: vec![] }),
            _ => None,
        };
        Ok(match node {
            Node::Empty => vec![Part::of(vec![])],
            Node::Set(set) if set.is_empty() => vec![],
            Node::Set(set) => vec![Part::of(vec![Expr::Chars(set.ranges().to_vec())])],
            Node::Seq(v) => self.parts_of_seq(v)?,
            Node::Alt(v) => {
                let mut all = vec![];
                for n in v {
                    all.extend(self.parts(n)?);
                }
                merge(all)?
            }
            Node::Repeat { body, min, max } => self.parts_of_repeat(body, *min, *max)?,
            Node::Start => vec![Part { left: Side::Edge, right: Side::Any, items: vec![] }],
            Node::End => vec![Part { left: Side::Any, right: Side::Edge, items: vec![] }],
            Node::Edge { not, word } => {
                let inside = || Side::new(false, word.clone());
                let outside = || Side::new(true, word.negate());
                let pairs = if *not {
                    [null(inside(), inside()), null(outside(), outside())]
                } else {
                    [null(inside(), outside()), null(outside(), inside())]
                };
                pairs.into_iter().flatten().collect()
            }
            Node::Look { behind, not, body, .. } => {
                let Some(side) = neighbour(body, *behind) else { return Err(Stop::Hard) };
                let side = if *not { side.not() } else { Some(side) };
                let part = if *behind { null(side, Some(Side::Any)) } else { null(Some(Side::Any), side) };
                part.into_iter().collect()
            }
        })
    }

    fn parts_of_seq(&mut self, v: &[Node]) -> Result<Vec<Part>> {
        let mut acc = vec![Part::of(Vec::with_capacity(v.len()))];
        for node in v {
            let mut next = match node {
                Node::Set(set) if !set.is_empty() && acc.len() == 1 && acc[0].right == Side::Any => {
                    acc[0].items.push(Expr::Chars(set.ranges().to_vec()));
                    continue;
                }
                node => self.parts(node)?,
            };
            if acc.len() == 1 && next.len() == 1 && acc[0].right == Side::Any && next[0].left == Side::Any {
                acc[0].right = std::mem::replace(&mut next[0].right, Side::Any);
                acc[0].items.append(&mut next[0].items);
                continue;
            }
            let mut joined = Vec::with_capacity(acc.len() * next.len());
            for a in &acc {
                for b in &next {
                    self.join(a, b, &mut joined)?;
                }
            }
            acc = merge(joined)?;
        }
        Ok(acc)
    }

    /// `a` followed by `b`.
    fn join(&mut self, a: &Part, b: &Part, out: &mut Vec<Part>) -> Result<()> {
        self.spend(1 + a.items.iter().chain(&b.items).map(size).sum::<usize>())?;
        let concat = |x: Expr, y: Expr| match seq(vec![x, y]) {
            Expr::Seq(v) => v,
            e => vec![e],
        };
        if a.right == Side::Any && b.left == Side::Any {
            let items = a.items.iter().chain(&b.items).cloned().collect();
            out.push(Part { left: a.left.clone(), right: b.right.clone(), items });
            return Ok(());
        }
        let (a_null, b_null) = (a.nullable(), b.nullable());
        let a_full = filter(&a.items, &b.left, true);
        let b_full = filter(&b.items, &a.right, false);
        let left = a.left.and(&b.left);
        let right = a.right.and(&b.right);
        if !matches!(a_full, Expr::Never) && !matches!(b_full, Expr::Never) {
            let items = concat(a_full.clone(), b_full.clone());
            out.push(Part { left: a.left.clone(), right: b.right.clone(), items });
        }
        if let (true, Some(left), false) = (a_null, &left, matches!(b_full, Expr::Never)) {
            out.push(Part { left: left.clone(), right: b.right.clone(), items: vec![b_full] });
        }
        if let (true, Some(right), false) = (b_null, &right, matches!(a_full, Expr::Never)) {
            out.push(Part { left: a.left.clone(), right: right.clone(), items: vec![a_full] });
        }
        if let (true, true, Some(left), Some(right)) = (a_null, b_null, left, right) {
            out.push(Part { left, right, items: vec![] });
        }
        Ok(())
    }

    fn parts_of_repeat(&mut self, body: &Node, min: u32, max: Option<u32>) -> Result<Vec<Part>> {
        if max == Some(0) {
            return Ok(vec![Part::of(vec![])]);
        }
        let mut parts = self.parts(body)?;
        if parts.iter().all(Part::free) {
            let body = alt(parts.into_iter().map(|p| seq(p.items)).collect());
            return Ok(match repeat(body, min, max) {
                Expr::Never => vec![],
                e => vec![Part::of(vec![e])],
            });
        }
        if min == 0 && max == Some(1) {
            parts.push(Part::of(vec![]));
            return merge(parts);
        }
        let anchored = |s: &Side| matches!(s, Side::Any | Side::Edge);
        if parts.iter().all(|p| anchored(&p.left) && anchored(&p.right)) {
            return self.anchored_loop(parts, min, max);
        }
        match max {
            Some(max) if max <= UNROLL => {
                let copies = (0..max).map(|i| match i < min {
                    true => body.clone(),
                    false => Node::Repeat { body: Box::new(body.clone()), min: 0, max: Some(1) },
                });
                self.parts_of_seq(&copies.collect::<Vec<_>>())
            }
            _ => Err(Stop::Hard),
        }
    }

    /// A loop whose body may be bound to the start or the end of the string. Before an iteration at the start stand only
    /// empty ones, after one at the end too; and empty iterations with a condition may stand for any number of others.
    fn anchored_loop(&mut self, parts: Vec<Part>, min: u32, max: Option<u32>) -> Result<Vec<Part>> {
        self.spend(8 * parts.iter().flat_map(|p| &p.items).map(size).sum::<usize>())?;
        let pick = |left: Side, right: Side| {
            let found = parts.iter().filter(|p| p.left == left && p.right == right);
            alt(found.map(|p| seq(p.items.clone())).collect())
        };
        let middle = pick(Side::Any, Side::Any);
        let first = pick(Side::Edge, Side::Any);
        let last = pick(Side::Any, Side::Edge);
        let only = pick(Side::Edge, Side::Edge);
        let never = |e: &Expr| matches!(e, Expr::Never);
        // `used` iterations are written down, `filled` tells whether the rest of the minimum may be empty ones.
        let around = |before: Option<&Expr>, after: Option<&Expr>, filled: bool| {
            let used = u32::from(before.is_some()) + u32::from(after.is_some());
            if before.is_some_and(never) || after.is_some_and(never) || max.is_some_and(|m| m < used) {
                return Expr::Never;
            }
            let min = if filled { 0 } else { min.saturating_sub(used) };
            let inner = repeat(middle.clone(), min, max.map(|m| m - used));
            seq(before.into_iter().cloned().chain([inner]).chain(after.into_iter().cloned()).collect())
        };
        let (f, l, o) = (nullable(&first), nullable(&last), nullable(&only));
        let mut out = vec![];
        let mut push = |left: Side, right: Side, e: Expr| {
            if !never(&e) {
                out.push(Part { left, right, items: vec![e] });
            }
        };
        push(Side::Any, Side::Any, around(None, None, false));
        push(Side::Edge, Side::Any, around(Some(&first), None, f));
        push(Side::Any, Side::Edge, around(None, Some(&last), l));
        push(Side::Edge, Side::Edge, around(Some(&first), Some(&last), f || l));
        // Beside an iteration that is the whole string stand only empty ones; an empty one of its own kind is the whole
        // string too, so it stands beside other empty ones only.
        if min <= 1 || f || l || nullable(&middle) {
            push(Side::Edge, Side::Edge, only);
        } else if o {
            push(Side::Edge, Side::Edge, Expr::Empty);
        }
        merge(out)
    }

    /// What may follow a position to the end of the string (or, if `open`, be followed by anything).
    fn suffix(&mut self, nodes: &[Node], before: &Before, open: bool, depth: usize) -> Result<Expr> {
        if depth > LOOKS {
            return Err(Stop::Hard);
        }
        self.spend(nodes.len())?;
        let Some(i) = nodes.iter().position(|n| n.any(&is_hard)) else {
            let parts = self.parts_of_seq(nodes)?;
            let fits = parts.into_iter().filter(|p| before.satisfies(&p.left));
            return Ok(alt(fits.map(|p| close(Part { left: Side::Edge, ..p }, false, open)).collect()));
        };
        let prefix = self.parts_of_seq(&nodes[..i])?;
        let rest = &nodes[i..];
        let mut sets: Vec<&CharSet> = vec![];
        let mut sensitive = false;
        for n in rest {
            sensitive |= left_sets(n, &mut sets);
        }
        let free = if sensitive { None } else { Some(self.hard_suffix(rest, before, open, depth, true)?) };
        if sets.len() > SETS {
            return Err(Stop::Hard);
        }
        let classes = minterms(&sets);
        let mut out = vec![];
        for p in prefix {
            if !before.satisfies(&p.left) {
                continue;
            }
            if let Some(k) = &free {
                self.spend(size(k))?;
                out.push(seq(p.items.into_iter().chain([beside(k.clone(), &p.right)]).collect()));
                continue;
            }
            if p.nullable() {
                let k = self.hard_suffix(rest, before, open, depth, false)?;
                out.push(beside(k, &p.right));
            }
            for class in &classes {
                let head = restrict_seq(&p.items, Some(class), true);
                if matches!(head, Expr::Never) {
                    continue;
                }
                let k = self.hard_suffix(rest, &Before::Char(class.clone()), open, depth, false)?;
                out.push(seq(vec![head, beside(k, &p.right)]));
            }
        }
        Ok(alt(out))
    }

    /// `suffix` where the first node is hard. `free`: nothing in it looks to the left.
    fn hard_suffix(&mut self, nodes: &[Node], before: &Before, open: bool, depth: usize, free: bool) -> Result<Expr> {
        let (head, rest) = (&nodes[0], &nodes[1..]);
        let with = |n: &Node| {
            let mut list = Vec::with_capacity(nodes.len());
            push_flat(&mut list, n.clone());
            list.extend_from_slice(rest);
            list
        };
        match head {
            Node::Look { behind: false, not, body, .. } => {
                let k = self.suffix(rest, before, open, depth + 1)?;
                let mut list = vec![];
                push_flat(&mut list, (**body).clone());
                let x = self.suffix(&list, before, true, depth + 1)?;
                Ok(if *not { without(k, x) } else { both(k, x) })
            }
            Node::Alt(v) => {
                let mut out = vec![];
                for n in v {
                    out.push(self.suffix(&with(n), before, open, depth + 1)?);
                }
                Ok(alt(out))
            }
            Node::Seq(_) => self.suffix(&with(head), before, open, depth + 1),
            Node::Repeat { body, min: 0, max: Some(1) } => {
                let taken = self.suffix(&with(body), before, open, depth + 1)?;
                let skipped = self.suffix(rest, before, open, depth + 1)?;
                Ok(alt(vec![taken, skipped]))
            }
            _ if free => {
                let dfa = boolean::automaton(&Node::Seq(nodes.to_vec()), false, open, self.alphabet, self.budget)?;
                Ok(Expr::Automaton(std::sync::Arc::new(dfa)))
            }
            _ => Err(Stop::Hard),
        }
    }
}

/// A look-around that is not about one neighbouring character.
fn is_hard(n: &Node) -> bool {
    matches!(n, Node::Look { behind, body, .. } if neighbour(body, *behind).is_none())
}

/// The condition that a look-around's body is, if it is about one neighbour.
fn neighbour(body: &Node, behind: bool) -> Option<Side> {
    match body {
        Node::Set(set) => Side::new(false, set.clone()),
        Node::End if !behind => Some(Side::Edge),
        Node::Start if behind => Some(Side::Edge),
        Node::Alt(v) => {
            let mut sides = v.iter().map(|n| neighbour(n, behind));
            let first = sides.next()??;
            sides.try_fold(first, |acc, s| Some(acc.or(&s?)))
        }
        _ => None,
    }
}

fn push_flat(list: &mut Vec<Node>, n: Node) {
    match n {
        Node::Seq(v) => list.extend(v),
        Node::Empty => {}
        n => list.push(n),
    }
}

/// Collect the sets that tell left neighbours apart; whether the node looks to the left at all.
fn left_sets<'n>(n: &'n Node, sets: &mut Vec<&'n CharSet>) -> bool {
    match n {
        Node::Start => true,
        Node::Edge { word, .. } => {
            sets.push(word);
            true
        }
        Node::Look { behind: true, body, .. } => {
            collect_sets(body, sets);
            true
        }
        Node::Look { body, .. } | Node::Repeat { body, .. } => left_sets(body, sets),
        Node::Seq(v) | Node::Alt(v) => {
            let mut looks = false;
            for n in v {
                looks |= left_sets(n, sets);
            }
            looks
        }
        _ => false,
    }
}

fn collect_sets<'n>(n: &'n Node, sets: &mut Vec<&'n CharSet>) {
    match n {
        Node::Set(set) => sets.push(set),
        Node::Seq(v) | Node::Alt(v) => v.iter().for_each(|n| collect_sets(n, sets)),
        Node::Repeat { body, .. } | Node::Look { body, .. } => collect_sets(body, sets),
        _ => {}
    }
}

/// The coarsest classes that no set divides.
fn minterms(sets: &[&CharSet]) -> Vec<CharSet> {
    let mut classes = vec![CharSet::any()];
    for set in sets {
        let outside = set.negate();
        classes = classes.iter().flat_map(|c| [c.and(set), c.and(&outside)]).filter(|c| !c.is_empty()).collect();
    }
    classes
}

/// One part for each pair of conditions.
fn merge(parts: Vec<Part>) -> Result<Vec<Part>> {
    if parts.len() < 2 {
        return Ok(parts);
    }
    let mut groups: Vec<(Side, Side, Vec<Expr>)> = vec![];
    for p in parts {
        let e = seq(p.items);
        match groups.iter_mut().find(|g| g.0 == p.left && g.1 == p.right) {
            Some(g) => g.2.push(e),
            None => groups.push((p.left, p.right, vec![e])),
        }
        if groups.len() > PARTS {
            return Err(Stop::Hard);
        }
    }
    let merged = groups.into_iter().map(|(left, right, v)| {
        let items = match alt(v) {
            Expr::Seq(v) => v,
            Expr::Empty => vec![],
            e => vec![e],
        };
        Part { left, right, items }
    });
    Ok(merged.collect())
}

/// The non-empty strings that satisfy a condition on their last (`at_end`) or first character.
fn filter(items: &[Expr], side: &Side, at_end: bool) -> Expr {
    match side {
        Side::Any => restrict_seq(items, None, at_end),
        Side::Edge => Expr::Never,
        Side::Set { set, .. } => restrict_seq(items, Some(set), at_end),
    }
}

/// The whole strings of a part: anything may stand before it if `open_left`, after it if `open_right`.
fn close(p: Part, open_left: bool, open_right: bool) -> Expr {
    let Part { left, right, mut items } = p;
    if (!open_left && !left.edge()) || (!open_right && !right.edge()) {
        return Expr::Never;
    }
    let chars = |set: &CharSet| Expr::Chars(set.ranges().to_vec());
    let optional = |edge: bool, e: Expr| if edge { e.opt() } else { e };
    if open_right && right == Side::Any {
        trim(&mut items, true);
    }
    if open_left && left == Side::Any {
        trim(&mut items, false);
    }
    let free = items.is_empty() && open_left && open_right && left == Side::Any && right == Side::Any;
    let mut out = vec![];
    match (open_left, left) {
        (false, _) | (_, Side::Edge) => {}
        (true, Side::Any) => out.push(anything()),
        (true, Side::Set { edge, set }) => out.push(optional(edge, seq(vec![anything(), chars(&set)]))),
    }
    if free {
        return seq(out);
    }
    out.append(&mut items);
    match (open_right, right) {
        (false, _) | (_, Side::Edge) => {}
        (true, Side::Any) => out.push(anything()),
        (true, Side::Set { edge, set }) => out.push(optional(edge, seq(vec![chars(&set), anything()]))),
    }
    seq(out)
}

/// What of `k` follows a position with this condition to its right.
fn beside(k: Expr, side: &Side) -> Expr {
    match side {
        Side::Any => k,
        Side::Edge => both(k, Expr::Empty),
        Side::Set { edge, set } => {
            let some = seq(vec![Expr::Chars(set.ranges().to_vec()), anything()]);
            both(k, if *edge { some.opt() } else { some })
        }
    }
}

fn both(k: Expr, x: Expr) -> Expr {
    match (k, x) {
        (Expr::Never, _) | (_, Expr::Never) => Expr::Never,
        (k, x) if is_anything(&x) => k,
        (k, x) if is_anything(&k) => x,
        (Expr::And(mut v), x) => {
            v.push(x);
            Expr::And(v)
        }
        (k, x) => Expr::And(vec![k, x]),
    }
}

fn without(k: Expr, x: Expr) -> Expr {
    match (k, x) {
        (Expr::Never, _) => Expr::Never,
        (k, Expr::Never) => k,
        (_, x) if is_anything(&x) => Expr::Never,
        (Expr::Sub(k, y), x) => Expr::Sub(k, Box::new(alt(vec![*y, x]))),
        (k, x) => Expr::Sub(Box::new(k), Box::new(x)),
    }
}
