//! Units between stores: out of one process's store as bytes, and from bytes into another's.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::digest::{circles, Circle, Digests};
use crate::flat::{callee_order, write_node, FlatUnit, Manifest, What};
use crate::fsm::{Callee, Fsm, RefEdge, State, NONE, PLAIN};
use crate::limits::{Budget, Limits};
use crate::lower::grammar::{LoweredGrammar, LoweredRule};
use crate::program::{Artifact, UnitStore};
use crate::unit::{Digest, Link, Node};

/// A unit's digest and its bytes.
pub type Exported = (Digest, Arc<[u8]>);

/// Why a manifest's units could not be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeOver {
    #[error("unit {} is neither given nor in memory", hex(.0))]
    Missing(Digest),
    #[error("unit {}: {why}", hex(.unit))]
    Malformed { unit: Digest, why: &'static str },
}

pub fn hex(d: &Digest) -> String {
    d.iter().map(|b| format!("{b:02x}")).collect()
}

impl UnitStore {
    /// The nodes of an artifact, callees before callers where they do not go in circles; and whether any that was not
    /// exported before is in one. (Whoever is in a circle is exported with all of it, and kept for as long.)
    fn ordered(&self, artifact: &Artifact) -> (Vec<(u32, Arc<Node>)>, bool) {
        let mut circular = false;
        let mut done: FxHashSet<u32> = FxHashSet::default();
        let mut open: FxHashSet<u32> = FxHashSet::default();
        let mut order = vec![];
        let mut work = vec![(artifact.root, false)];
        while let Some((id, left)) = work.pop() {
            if left {
                if done.insert(id) {
                    order.extend(self.node(id).map(|n| (id, n)));
                }
                continue;
            }
            if !open.insert(id) {
                continue;
            }
            work.push((id, true));
            let Some(node) = self.node(id) else { continue };
            // In the order in which edges name them, whatever the order of the table; tails come behind. Bindings of holes
            // that no edge names belong to the node all the same.
            let links = callee_order(&node.unit).into_iter().chain(node.unit.callees.len()..node.links.len());
            let links = links.filter_map(|i| match node.links[i] {
                Link::Store(id) => Some(id),
                Link::Local(_) => None,
            });
            for id in links.chain(node.holes.iter().copied()) {
                if !open.contains(&id) {
                    work.push((id, false));
                } else if !done.contains(&id) {
                    // It is on the way from the root to here.
                    circular |= self.node(id).is_some_and(|n| n.exported.get().is_none());
                }
            }
        }
        (order, circular)
    }

    /// Digests of everything that an artifact consists of, in the order of a manifest.
    pub fn digests(&self, artifact: &Artifact) -> Vec<Digest> {
        self.ordered(artifact).0.into_iter().map(|(_, n)| n.digest).collect()
    }

    /// An artifact as its manifest (without warnings) and the bytes of its units.
    pub fn export(&self, artifact: &Artifact) -> (Manifest, Vec<Exported>) {
        let (nodes, circular) = self.ordered(artifact);
        let digest_of = |id: u32| self.node(id).map(|n| n.digest);
        let circles = if circular { self.circles(&nodes) } else { FxHashMap::default() };
        let write = |n: &Arc<Node>| {
            if n.exported.get().is_none() {
                let bytes = write_node(n, digest_of, circles.get(&n.digest))?;
                let _ = n.exported.set(bytes.into()); // another thread may have been quicker: the bytes are the same
            }
            Some((n.digest, n.exported.get()?.clone()))
        };
        let units: Vec<Exported> = nodes.iter().filter_map(|(_, n)| write(n)).collect();
        let manifest = Manifest {
            root: self.node(artifact.root).map(|n| n.digest).unwrap_or_default(),
            nullable: artifact.nullable,
            units: nodes.iter().map(|(_, n)| n.digest).collect(),
            names: nodes.iter().map(|(_, n)| n.unit.name.clone()).collect(),
            warnings: vec![],
        };
        (manifest, units)
    }

    /// The circles of those nodes that are in one.
    fn circles(&self, nodes: &[(u32, Arc<Node>)]) -> FxHashMap<Digest, Circle> {
        let number: FxHashMap<u32, u32> = (0u32..).zip(nodes).map(|(i, (id, _))| (*id, i)).collect();
        let rule = |(_, node): &(u32, Arc<Node>)| {
            let of = |id: &u32| number.get(id).copied();
            // A tail leads where its object leads: it is in no circle of its own.
            let references = |l: &Link| matches!(l, Link::Store(id) if !node.unit.tail && of(id).is_some());
            if !node.links.iter().any(references) {
                return Some(LoweredRule { name: String::new(), fsm: Fsm::default(), holes: vec![] });
            }
            let flat = FlatUnit::parse(&write_node(node, |id| self.node(id).map(|n| n.digest), None)?).ok()?;
            let mut fsm = flat.fsm;
            let order = callee_order(&node.unit);
            let mut rules = order.iter().filter(|&&c| matches!(node.unit.callees[c], Callee::Rule(_)));
            for c in &mut fsm.callees {
                if let Callee::Rule(r) = c {
                    let Link::Store(id) = node.links[*rules.next()?] else { return None };
                    *r = of(&id)?;
                }
            }
            Some(LoweredRule { name: String::new(), fsm, holes: node.holes.iter().filter_map(of).collect() })
        };
        let Some(rules) = nodes.iter().map(rule).collect::<Option<Vec<_>>>() else { return FxHashMap::default() };
        let digests: Vec<Digest> = nodes.iter().map(|(_, n)| n.digest).collect();
        let found = circles(&rules, &digests, &Budget::new(Limits::default())).unwrap_or_default();
        digests.into_iter().zip(found).filter_map(|(d, circle)| Some((d, circle?))).collect()
    }

    /// Put a manifest's units into the store: from `units`, or as they are in memory.
    ///
    /// Structure is checked here; that a unit is what its digest says was checked by [`crate::flat::verify`] when it came
    /// from outside. All or nothing.
    pub fn take_over(
        self: &Arc<Self>,
        manifest: &Manifest,
        units: &FxHashMap<Digest, &[u8]>,
    ) -> Result<Artifact, TakeOver> {
        let mut number: FxHashMap<Digest, u32> = FxHashMap::default();
        let mut parts: Vec<(Digest, Part)> = vec![];
        let mut names: Vec<&str> = vec![];
        for (place, digest) in manifest.units.iter().enumerate() {
            if number.contains_key(digest) {
                continue;
            }
            let part = match (self.by_digest(digest), units.get(digest)) {
                (Some(node), _) if node.unit.tail => continue,
                (Some(node), _) => Part::Known(node),
                (None, None) => return Err(TakeOver::Missing(*digest)),
                (None, Some(bytes)) => {
                    let flat = FlatUnit::parse(bytes).map_err(|e| TakeOver::Malformed { unit: *digest, why: e.0 })?;
                    // Tails are found in their objects again.
                    if flat.what == What::Tail {
                        continue;
                    }
                    Part::New(Box::new(flat))
                }
            };
            number.insert(*digest, parts.len() as u32);
            parts.push((*digest, part));
            names.push(manifest.names.get(place).map_or("unit", |name| name));
        }
        let root = *number.get(&manifest.root).ok_or(TakeOver::Missing(manifest.root))?;
        let counters: Vec<usize> = parts.iter().map(|(_, p)| p.counters()).collect();
        let mut rules = Vec::with_capacity(parts.len());
        let mut digests = Digests::default();
        let mut stubs = FxHashSet::default();
        let rule_of = |d: &Digest| number.get(d).copied().ok_or(TakeOver::Missing(*d));
        for (i, (digest, part)) in parts.into_iter().enumerate() {
            match part {
                Part::New(flat) => {
                    let FlatUnit { unit, mut fsm, callees, holes, .. } = *flat;
                    for c in &mut fsm.callees {
                        if let Callee::Rule(r) = c {
                            *r = rule_of(&callees[*r as usize])?;
                        }
                    }
                    let holes = holes.iter().map(rule_of).collect::<Result<Vec<_>, _>>()?;
                    check_arguments(&fsm, &holes, &counters)
                        .map_err(|why| TakeOver::Malformed { unit: digest, why })?;
                    rules.push(LoweredRule { name: names[i].to_owned(), fsm, holes });
                    digests.unit.push(unit);
                }
                Part::Known(node) => {
                    // All that it refers to must be named, or the artifact would not keep it alive.
                    let callees = self.callees(&node)?;
                    let mut fsm = Fsm { states: vec![State::default()], ..Fsm::default() };
                    for d in &callees {
                        fsm.callees.push(Callee::Rule(rule_of(d)?));
                    }
                    for r in node.unit.own_refs(0) {
                        fsm.states[0].refs.push(RefEdge { callee: r.callee, args: NONE, act: PLAIN, target: 0 });
                    }
                    rules.push(LoweredRule { name: String::new(), fsm, holes: vec![] });
                    digests.unit.push(node.unit.digest);
                    stubs.insert(i as u32);
                }
            }
            digests.node.push(digest);
        }
        let lowered = LoweredGrammar { rules, root, root_nullable: manifest.nullable, digests };
        self.install_beside(lowered, &stubs).map_err(TakeOver::Missing)
    }

    /// Digests of what a node's links name, in their order; of tails, what those refer to in their place (one at most), and
    /// then what holes are bound to.
    fn callees(&self, node: &Node) -> Result<Vec<Digest>, TakeOver> {
        let of = |id: u32| self.node(id).ok_or(TakeOver::Missing(node.digest));
        let mut found = vec![];
        for link in &node.links {
            let Link::Store(id) = *link else { continue };
            let callee = of(id)?;
            match callee.links.first() {
                Some(Link::Store(below)) if callee.unit.tail => found.push(of(*below)?.digest),
                // A tail without callee names nothing; its caller stands in for it.
                _ if callee.unit.tail => found.push(node.digest),
                _ => found.push(callee.digest),
            }
        }
        for &hole in &node.holes {
            found.push(of(hole)?.digest);
        }
        Ok(found)
    }
}

enum Part {
    Known(Arc<Node>),
    New(Box<FlatUnit>),
}

impl Part {
    fn counters(&self) -> usize {
        match self {
            Part::Known(node) => node.unit.layout.counters as usize,
            Part::New(flat) => flat.fsm.counters as usize,
        }
    }
}

/// Whether every callee has the counters that it is called with.
fn check_arguments(fsm: &Fsm, holes: &[u32], counters: &[usize]) -> Result<(), &'static str> {
    for e in fsm.states.iter().flat_map(|s| &s.refs).filter(|e| e.args != NONE) {
        let callee = match fsm.callees[e.callee as usize] {
            Callee::Rule(r) => r,
            Callee::Hole(h) => holes[h as usize],
        };
        if fsm.args[e.args as usize].len() > counters[callee as usize] {
            return Err("it calls a unit with more arguments than that takes");
        }
    }
    Ok(())
}
