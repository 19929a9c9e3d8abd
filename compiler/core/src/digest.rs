//! Digests: the identity of units.
//!
//! The digest of a unit is a hierarchical structural hash: its FSM is written out byte by byte, and where it refers to
//! another rule that rule's digest stands in for the reference. So equal sub-grammars have equal digests in whatever
//! grammar they occur, whatever their rules are called and however they are numbered.
//!
//! Rules that refer to each other in a circle (a strongly connected component) have no bottom to start from. Their
//! members are told apart by *partition refinement* instead: first by their shape, in which a reference inside the
//! component is a placeholder; then, round by round, by the classes of the members they refer to, until no class splits
//! any more, which takes at most as many rounds as there are members. Classes are numbered by sorting, so isomorphic
//! components number them alike. The component is then hashed class by class, and a member's digest is the component's
//! hash with the number of its class. Members that cannot be told apart get one digest: they are one unit.
//!
//! A unit with holes (a dispatch) is hashed with its holes left open, so that all requests share it. The rule that binds
//! the holes has a *node digest* besides, of the unit's digest and those of the bindings; references to the rule use it.

use rustc_hash::FxHashMap;

use crate::automata::minimize;
use crate::error::Result;
use crate::fsm::{Callee, Fsm, NONE};
use crate::limits::Budget;
use crate::lower::grammar::LoweredRule;
use crate::FORMAT_VERSION;
use graph::Graph;
use write::*;

mod graph;
mod order;
mod write;

pub type Digest = [u8; 32];

/// Digests of all rules of a grammar, by rule number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Of the unit, holes left open.
    pub unit: Vec<Digest>,
    /// Of the rule with its holes bound; the unit's own where there are none.
    pub node: Vec<Digest>,
}

/// What a digest is of; the first byte hashed, so that none can be taken for another.
#[derive(Clone, Copy)]
enum Kind {
    /// An FSM whose references all have digests.
    Unit = 1,
    /// An FSM with placeholders for the references inside its component.
    Shape = 2,
    /// A whole component.
    Component = 3,
    /// One class of members of a component, as a unit.
    Member = 4,
    /// A unit and what its holes are bound to.
    Node = 5,
    /// One class of members of a component, with its holes bound.
    MemberNode = 6,
}

/// Digests of every rule.
pub fn digests(rules: &[LoweredRule], budget: &Budget) -> Result<Digests> {
    let graph = Graph::new(rules);
    let mut hashing = Hashing::new(rules.len());
    graph.components(|members| hashing.component(rules, &graph, members, budget))?;
    Ok(hashing.digests)
}

/// Digests of every rule, once the references of each state have been put in an order that does not depend on how rules
/// are numbered, and the states are numbered accordingly (see [`order`]). Rules of one component that are alike in everything
/// become one; the first rule stays where it is.
pub fn canonicalize(rules: &mut Vec<LoweredRule>, budget: &Budget) -> Result<Digests> {
    loop {
        let graph = Graph::new(rules);
        let mut hashing = Hashing::new(rules.len());
        let mut alike: Vec<(u32, u32)> = vec![];
        graph.components(|members| {
            hashing.enter(members);
            let ordered = order::references(rules, members, &hashing.digests.node, &hashing.local, &mut alike, budget);
            hashing.leave(members);
            ordered?;
            hashing.component(rules, &graph, members, budget)
        })?;
        if alike.is_empty() {
            return Ok(hashing.digests);
        }
        unite(rules, &alike);
    }
}

/// Puts the second rule of each pair in the place of the first, and leaves out what the first rule of all does not reach any more.
fn unite(rules: &mut Vec<LoweredRule>, alike: &[(u32, u32)]) {
    let mut place: Vec<u32> = (0..rules.len() as u32).collect();
    alike.iter().for_each(|&(rule, by)| place[rule as usize] = by);
    redirect(rules, &place);
    for rule in rules.iter_mut() {
        let callees = &rule.fsm.callees;
        if (1..callees.len()).any(|i| callees[..i].contains(&callees[i])) {
            rule.fsm = minimize(std::mem::take(&mut rule.fsm));
        }
    }
    let graph = Graph::new(rules);
    let mut reached = vec![false; rules.len()];
    let mut work = vec![0];
    while let Some(r) = work.pop() {
        if !std::mem::replace(&mut reached[r as usize], true) {
            work.extend(graph.targets(r));
        }
    }
    let mut next = 0;
    for (place, &reached) in place.iter_mut().zip(&reached) {
        *place = next;
        next += u32::from(reached);
    }
    let mut keep = reached.iter().copied();
    rules.retain(|_| keep.next().unwrap_or(true));
    redirect(rules, &place);
}

fn redirect(rules: &mut [LoweredRule], place: &[u32]) {
    for rule in rules {
        for callee in &mut rule.fsm.callees {
            if let Callee::Rule(r) = callee {
                *r = place[*r as usize];
            }
        }
        rule.holes.iter_mut().for_each(|r| *r = place[*r as usize]);
    }
}

/// Digests under way: components are hashed after those that they refer to.
struct Hashing {
    digests: Digests,
    /// Numbers of the members of the component at hand.
    local: Vec<u32>,
    writer: Writer,
}

impl Hashing {
    fn new(n: usize) -> Hashing {
        Hashing {
            digests: Digests { unit: vec![[0; 32]; n], node: vec![[0; 32]; n] },
            local: vec![NONE; n],
            writer: Writer::default(),
        }
    }

    fn enter(&mut self, members: &[u32]) {
        (0u32..).zip(members).for_each(|(i, &m)| self.local[m as usize] = i);
    }

    fn leave(&mut self, members: &[u32]) {
        members.iter().for_each(|&m| self.local[m as usize] = NONE);
    }

    fn component(&mut self, rules: &[LoweredRule], graph: &Graph, members: &[u32], budget: &Budget) -> Result<()> {
        budget.tick()?;
        let d = &mut self.digests;
        match members {
            &[r] if !graph.targets(r).contains(&r) => {
                let rule = &rules[r as usize];
                let unit = self.writer.unit(Kind::Unit, &rule.fsm, &d.node, &[]).0;
                d.unit[r as usize] = unit;
                d.node[r as usize] = node_digest(unit, rule.holes.iter().map(|&h| d.node[h as usize]));
                Ok(())
            }
            _ => {
                self.enter(members);
                let result = component(rules, members, &self.local, &mut self.digests, &mut self.writer, budget);
                self.leave(members);
                result.map(|_| ())
            }
        }
    }
}

/// The digest of a unit whose holes are bound.
pub fn node_digest(unit: Digest, bindings: impl ExactSizeIterator<Item = Digest>) -> Digest {
    if bindings.len() == 0 {
        return unit;
    }
    let mut out = Vec::with_capacity(64 + 32 * bindings.len());
    header(&mut out, Kind::Node);
    out.extend(unit);
    word(&mut out, bindings.len() as u32);
    bindings.for_each(|b| out.extend(b));
    *blake3::hash(&out).as_bytes()
}

/// One member of a component while its classes are refined.
struct Member {
    shape: Digest,
    /// Members that the placeholders of the shape stand for, in order; then those that its holes are bound to.
    inside: Vec<u32>,
    /// How many of `inside` belong to the FSM.
    references: usize,
}

/// The digests of a strongly connected component. `local` numbers its members.
fn component(
    rules: &[LoweredRule],
    members: &[u32],
    local: &[u32],
    d: &mut Digests,
    writer: &mut Writer,
    budget: &Budget,
) -> Result<(Vec<CircleMember>, Vec<u32>)> {
    let mut info = Vec::with_capacity(members.len());
    for &m in members {
        budget.tick()?;
        let rule = &rules[m as usize];
        let (shape, mut inside) = writer.unit(Kind::Shape, &rule.fsm, &d.node, local);
        let references = inside.len();
        let shape = bound_shape(shape, &rule.holes, &d.node, local, &mut inside);
        info.push(Member { shape, inside, references });
    }
    let shapes: Vec<Digest> = info.iter().map(|m| m.shape).collect();
    let class = refine(&shapes, info.iter().map(|m| &m.inside[..]), true, budget)?;
    let count = class.iter().max().map_or(0, |&c| c as usize + 1);

    let mut seen = vec![false; count];
    let mut order: Vec<usize> =
        (0..info.len()).filter(|&i| !std::mem::replace(&mut seen[class[i] as usize], true)).collect();
    order.sort_unstable_by_key(|&i| class[i]);
    let circle: Vec<CircleMember> = order
        .into_iter()
        .map(|i| CircleMember {
            shape: info[i].shape,
            inside: info[i].inside.iter().map(|&t| class[t as usize]).collect(),
            holes: !rules[members[i] as usize].holes.is_empty(),
        })
        .collect();
    let whole = circle_digest(&circle);

    for (i, &m) in members.iter().enumerate() {
        let rule = &rules[m as usize];
        let member = |kind: Kind| member_digest(kind, &whole, class[i]);
        if rule.holes.is_empty() {
            d.unit[m as usize] = member(Kind::Member);
            d.node[m as usize] = d.unit[m as usize];
        } else {
            d.node[m as usize] = member(Kind::MemberNode);
            // The circle runs through the bindings alone: the unit stands outside of it and is the one that others share.
            d.unit[m as usize] = match info[i].references {
                0 => writer.unit(Kind::Unit, &rule.fsm, &d.node, &[]).0,
                _ => member(Kind::Member),
            };
        }
    }
    Ok((circle, class))
}

/// The shape of a member with its bindings: those from outside belong to the shape, those from inside are placeholders.
fn bound_shape(shape: Digest, holes: &[u32], node: &[Digest], local: &[u32], inside: &mut Vec<u32>) -> Digest {
    let mut bound = Vec::with_capacity(40 + 33 * holes.len());
    header(&mut bound, Kind::Shape);
    bound.extend(shape);
    for &h in holes {
        let l = local[h as usize];
        if l == NONE {
            bound.push(1);
            bound.extend(node[h as usize]);
        } else {
            bound.push(0);
            inside.push(l);
        }
    }
    *blake3::hash(&bound).as_bytes()
}

fn circle_digest(circle: &[CircleMember]) -> Digest {
    let mut out = Vec::new();
    header(&mut out, Kind::Component);
    word(&mut out, circle.len() as u32);
    for member in circle {
        out.extend(member.shape);
        word(&mut out, member.inside.len() as u32);
        member.inside.iter().for_each(|&t| word(&mut out, t));
    }
    *blake3::hash(&out).as_bytes()
}

fn member_digest(kind: Kind, whole: &Digest, class: u32) -> Digest {
    let mut out = Vec::with_capacity(64);
    header(&mut out, kind);
    out.extend(whole);
    word(&mut out, class);
    *blake3::hash(&out).as_bytes()
}

/// One class of members of a strongly connected component, as much of it as the digests of all members follow from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircleMember {
    pub shape: Digest,
    /// Classes of the members that the placeholders of the shape stand for.
    pub inside: Vec<u32>,
    /// Whether it has holes.
    pub holes: bool,
}

/// A component, and which class of it some rule is: with it the rule's digest follows from the rule alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    pub members: Vec<CircleMember>,
    pub class: u32,
}

/// For each rule its circle, if it is in one. `node`: the digests of all rules.
pub fn circles(rules: &[LoweredRule], node: &[Digest], budget: &Budget) -> Result<Vec<Option<Circle>>> {
    let graph = Graph::new(rules);
    let mut hashing = Hashing::new(rules.len());
    hashing.digests.node.copy_from_slice(node);
    let mut found = vec![None; rules.len()];
    graph.components(|members| {
        if members.len() == 1 && !graph.targets(members[0]).contains(&members[0]) {
            return Ok(());
        }
        hashing.enter(members);
        let made = component(rules, members, &hashing.local, &mut hashing.digests, &mut hashing.writer, budget);
        hashing.leave(members);
        let (circle, class) = made?;
        for (&m, class) in members.iter().zip(class) {
            found[m as usize] = Some(Circle { members: circle.clone(), class });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Unit and node digest of one rule by itself: `Callee::Rule(i)` of its FSM has the digest `callees[i]`, its holes are bound to
/// `holes`. `None` if it is not the member of its circle that it is said to be.
pub fn derive(fsm: &Fsm, callees: &[Digest], holes: &[Digest], circle: Option<&Circle>) -> Option<(Digest, Digest)> {
    let mut writer = Writer::default();
    let Some(circle) = circle else {
        let unit = writer.unit(Kind::Unit, fsm, callees, &[]).0;
        return Some((unit, node_digest(unit, holes.iter().copied())));
    };
    let whole = circle_digest(&circle.members);
    let class_of: FxHashMap<Digest, u32> = (0u32..)
        .zip(&circle.members)
        .map(|(class, m)| (member_digest(if m.holes { Kind::MemberNode } else { Kind::Member }, &whole, class), class))
        .collect();
    // Callees first, then what holes are bound to; members of the circle by their classes.
    let node: Vec<Digest> = callees.iter().chain(holes).copied().collect();
    let local: Vec<u32> = node.iter().map(|d| class_of.get(d).copied().unwrap_or(NONE)).collect();
    let bound: Vec<u32> = (callees.len() as u32..node.len() as u32).collect();
    let (shape, mut inside) = writer.unit(Kind::Shape, fsm, &node, &local);
    let references = inside.len();
    let shape = bound_shape(shape, &bound, &node, &local, &mut inside);
    let me = circle.members.get(circle.class as usize)?;
    if me.shape != shape || me.inside != inside || me.holes == holes.is_empty() {
        return None;
    }
    let member = |kind: Kind| member_digest(kind, &whole, circle.class);
    Some(match (holes.is_empty(), references) {
        (true, _) => (member(Kind::Member), member(Kind::Member)),
        (false, 0) => (writer.unit(Kind::Unit, fsm, &node, &[]).0, member(Kind::MemberNode)),
        (false, _) => (member(Kind::Member), member(Kind::MemberNode)),
    })
}

/// Classes of members that cannot be told apart, numbered independently of the members' order. `inside` is what each refers
/// to, whose order counts if `ordered`.
fn refine<'m>(
    shapes: &[Digest],
    inside: impl Iterator<Item = &'m [u32]> + Clone,
    ordered: bool,
    budget: &Budget,
) -> Result<Vec<u32>> {
    let n = shapes.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_unstable_by_key(|&i| shapes[i]);
    let mut class = vec![0u32; n];
    let mut count = number(&order, &mut class, |a, b| shapes[a] == shapes[b]);
    let mut signature: Vec<Vec<u32>> = vec![Vec::new(); n];
    while count < n {
        for ((i, s), inside) in signature.iter_mut().enumerate().zip(inside.clone()) {
            budget.tick()?;
            s.clear();
            s.extend(inside.iter().map(|&t| class[t as usize]));
            if !ordered {
                s.sort_unstable();
            }
            s.push(class[i]);
            // Classes only split: the old one comes first in the comparison.
            s.rotate_right(1);
        }
        order.sort_by(|&a, &b| signature[a].cmp(&signature[b]));
        let finer = number(&order, &mut class, |a, b| signature[a] == signature[b]);
        if finer == count {
            break;
        }
        count = finer;
    }
    Ok(class)
}

/// Number the runs of equal members of a sorted order; returns how many there are.
fn number(order: &[usize], class: &mut [u32], same: impl Fn(usize, usize) -> bool) -> usize {
    let mut next = 0u32;
    for (k, &i) in order.iter().enumerate() {
        if k > 0 && !same(order[k - 1], i) {
            next += 1;
        }
        class[i] = next;
    }
    next as usize + 1
}

fn header(out: &mut Vec<u8>, kind: Kind) {
    out.push(kind as u8);
    word(out, FORMAT_VERSION);
}

#[cfg(test)]
mod tests;
