//! The unit store of one process, and programs: what a machine runs.
//!
//! The store holds every node that some artifact (one compiled source) needs, once, by digest. An [`Artifact`] pins the
//! nodes that are reachable from its root; the last artifact to go frees them with their mask entries. A [`Program`] is
//! an artifact's root, or a few request-local nodes (the choice of tags, the root) over many artifacts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::fsm::{Callee, Fsm};
use crate::lower::grammar::LoweredGrammar;
use crate::mask_cache::Meter;
use crate::tails::{self, Alias, Opening};
use crate::unit::{Digest, Link, Node, Unit};

/// All shared nodes of a process, by digest.
#[derive(Debug, Default)]
pub struct UnitStore {
    slots: RwLock<Slots>,
    installed: AtomicU64,
    meter: Arc<Meter>,
}

#[derive(Debug, Default)]
struct Slots {
    nodes: Vec<Option<Arc<Node>>>,
    pins: Vec<u32>,
    free: Vec<u32>,
    by_digest: FxHashMap<Digest, u32>,
    /// Nodes whose unit has holes, by its digest: others may bind them to other things.
    frames: FxHashMap<Digest, Vec<u32>>,
}

impl Slots {
    /// A place for a node with this digest.
    fn reserve(&mut self, digest: Digest) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.pins.push(0);
            self.nodes.len() as u32 - 1
        });
        self.by_digest.insert(digest, id);
        id
    }

    fn put(&mut self, id: u32, node: Node, meter: &Arc<Meter>) {
        node.unit.cache.join(meter);
        if !node.holes.is_empty() {
            self.frames.entry(node.unit.digest).or_default().push(id);
        }
        self.nodes[id as usize] = Some(Arc::new(node));
    }

    fn take(&mut self, id: u32) -> Option<Arc<Node>> {
        let node = self.nodes[id as usize].take()?;
        self.by_digest.remove(&node.digest);
        node.unit.cache.leave();
        if let Some(ids) = self.frames.get_mut(&node.unit.digest) {
            ids.retain(|&i| i != id);
            if ids.is_empty() {
                self.frames.remove(&node.unit.digest);
            }
        }
        Some(node)
    }

    /// The unit with holes that has this digest.
    fn frame(&self, digest: &Digest) -> Option<Arc<Unit>> {
        let id = *self.frames.get(digest)?.first()?;
        self.nodes[id as usize].as_ref().map(|n| n.unit.clone())
    }
}

/// One compiled source: a root and the nodes it needs, pinned in the store.
#[derive(Debug)]
pub struct Artifact {
    store: Arc<UnitStore>,
    pub root: u32,
    pub nullable: bool,
    /// Every node reachable from the root.
    pub nodes: Box<[u32]>,
    /// Bytes of the nodes that were new when it was installed.
    pub size: usize,
    /// Some node has states that are marked `distinct`.
    pub distinct: bool,
    /// Some node takes tokens as tokens.
    pub tokens: bool,
}

impl Drop for Artifact {
    fn drop(&mut self) {
        self.store.release(&self.nodes);
    }
}

impl UnitStore {
    pub fn node(&self, id: u32) -> Option<Arc<Node>> {
        self.slots.read().nodes.get(id as usize).cloned().flatten()
    }

    /// All nodes, with their numbers.
    pub fn nodes(&self) -> Vec<(u32, Arc<Node>)> {
        let slots = self.slots.read();
        slots.nodes.iter().enumerate().filter_map(|(i, n)| Some((i as u32, n.clone()?))).collect()
    }

    /// Nodes held now.
    pub fn len(&self) -> usize {
        self.slots.read().by_digest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the mask-cache entries of all units hold.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Nodes ever built; those found by digest are not counted.
    pub fn installed(&self) -> u64 {
        self.installed.load(Ordering::Relaxed)
    }

    pub fn id_of(&self, digest: &Digest) -> Option<u32> {
        self.slots.read().by_digest.get(digest).copied()
    }

    pub fn by_digest(&self, digest: &Digest) -> Option<Arc<Node>> {
        let slots = self.slots.read();
        slots.by_digest.get(digest).and_then(|&id| slots.nodes[id as usize].clone())
    }

    /// Put a lowered grammar's rules into the store: known digests are shared, the others are frozen into units.
    pub fn install(self: &Arc<Self>, lowered: LoweredGrammar) -> Artifact {
        match self.install_beside(lowered, &FxHashSet::default()) {
            Ok(artifact) => artifact,
            // Only a stub can be missing.
            Err(_) => unreachable!("every rule has its FSM"),
        }
    }

    /// The same, where some rules are *stubs*: what is known of them is their digest and what their first state refers to. If
    /// the store has one of them no more, its digest is the error, and nothing has changed.
    pub(crate) fn install_beside(
        self: &Arc<Self>,
        lowered: LoweredGrammar,
        stubs: &FxHashSet<u32>,
    ) -> Result<Artifact, Digest> {
        let left = LeftRecursion::of(&lowered);
        let LoweredGrammar { rules, root, root_nullable: nullable, digests } = lowered;
        let root = root as usize;
        let mut slots = self.slots.write();
        if let Some(&gone) = stubs.iter().find(|&&r| !slots.by_digest.contains_key(&digests.node[r as usize])) {
            return Err(digests.node[gone as usize]);
        }
        let mut fresh = vec![];
        let ids: Vec<u32> = digests
            .node
            .iter()
            .enumerate()
            .map(|(rule, digest)| {
                if let Some(&id) = slots.by_digest.get(digest) {
                    return id;
                }
                let id = slots.reserve(*digest);
                fresh.push((rule, id));
                id
            })
            .collect();
        // A component's label must be unlike every other's in the process: its lowest fresh slot, or a member's label.
        let mut labels: FxHashMap<u32, u32> = FxHashMap::default();
        for (rule, &id) in ids.iter().enumerate() {
            if let (c @ 1.., Some(node)) = (left.component[rule], &slots.nodes[id as usize]) {
                labels.insert(c, node.component);
            }
        }
        for &(rule, id) in &fresh {
            if left.component[rule] != 0 {
                labels.entry(left.component[rule]).or_insert(id + 1);
            }
        }
        let mut size = 0;
        let rule_of: FxHashMap<u32, usize> = ids.iter().enumerate().map(|(rule, &id)| (id, rule)).collect();
        let mut rules: Vec<_> = rules.into_iter().map(Some).collect();
        for (rule, id) in fresh {
            let Some(r) = rules[rule].take() else { continue };
            let mut links = links_of(&r.fsm, &r.holes, &ids);
            let known = if r.holes.is_empty() { None } else { slots.frame(&digests.unit[rule]) };
            let unit = known.unwrap_or_else(|| {
                let mut aliases: Vec<(u32, Alias)> = vec![];
                let mut openings: Vec<Opening> = vec![];
                for tail in tails::find(&r.fsm) {
                    let callee = tail.callee.map(|c| links[c as usize]);
                    let of_callee = |l: Link| match l {
                        Link::Store(id) => rule_of.get(&id).map(|&rule| digests.node[rule]),
                        Link::Local(_) => None,
                    };
                    let digest = tails::digest(&tail.fsm, callee.and_then(of_callee).as_ref());
                    let id = slots.by_digest.get(&digest).copied().unwrap_or_else(|| {
                        let id = slots.reserve(digest);
                        let name = if tail.key { "rest of a key" } else { "rest of a pair" };
                        let unit = Arc::new(Unit::tail(name, digest, tail.fsm));
                        size += unit.size() + 160;
                        let links = callee.into_iter().collect();
                        let (holes, exported) = (Box::default(), OnceLock::new());
                        let node = Node { unit, links, holes, digest, component: 0, height: 0, exported };
                        slots.put(id, node, &self.meter);
                        id
                    });
                    let link = links.len() as u32;
                    aliases.extend((0u32..).zip(tail.states).map(|(at, state)| {
                        (state, Alias { link, act: tail.act, target: tail.target, at, key: tail.key })
                    }));
                    links.push(Link::Store(id));
                    openings.extend(tail.openings);
                }
                openings.sort_unstable_by_key(|o| o.state);
                // Where a stretch begins it is that, even in the middle of another.
                aliases.sort_by_key(|(state, alias)| (*state, alias.at));
                aliases.dedup_by_key(|(state, _)| *state);
                Arc::new(Unit::with_tails(&r.name, digests.unit[rule], r.fsm, aliases.into(), openings.into()))
            });
            let links: Box<[Link]> = links.into();
            size += unit.size() + 160;
            let component = labels.get(&left.component[rule]).copied().unwrap_or(0);
            let holes = r.holes.iter().map(|&h| ids[h as usize]).collect();
            let (digest, height) = (digests.node[rule], left.height[rule]);
            let exported = OnceLock::new();
            slots.put(id, Node { unit, links, holes, digest, component, height, exported }, &self.meter);
            self.installed.fetch_add(1, Ordering::Relaxed);
        }
        // Tails of units that were there before hang on those units' nodes.
        let mut nodes = ids.clone();
        for id in ids.iter() {
            if let Some(node) = &slots.nodes[*id as usize] {
                nodes.extend(node.links.iter().filter_map(|l| match l {
                    Link::Store(id) => Some(*id),
                    Link::Local(_) => None,
                }));
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        let mut artifact = self.pin(&mut slots, ids[root], nullable, nodes);
        artifact.size = size;
        Ok(artifact)
    }

    /// A node that is in the store, whatever it is, with all that it refers to.
    pub fn hold(self: &Arc<Self>, digest: &Digest) -> Option<Artifact> {
        let mut slots = self.slots.write();
        let root = *slots.by_digest.get(digest)?;
        let (mut nodes, mut at) = (vec![root], 0);
        let mut seen = FxHashSet::from_iter([root]);
        while let Some(&id) = nodes.get(at) {
            at += 1;
            let Some(node) = &slots.nodes[id as usize] else { continue };
            let links = node.links.iter().filter_map(|l| match l {
                Link::Store(id) => Some(*id),
                Link::Local(_) => None,
            });
            nodes.extend(links.chain(node.holes.iter().copied()).filter(|&id| seen.insert(id)));
        }
        Some(self.pin(&mut slots, root, false, nodes))
    }

    /// An artifact of `nodes`, each of them named once, none of which is new.
    fn pin(self: &Arc<Self>, slots: &mut Slots, root: u32, nullable: bool, nodes: Vec<u32>) -> Artifact {
        let (mut distinct, mut tokens) = (false, false);
        for &id in &nodes {
            slots.pins[id as usize] += 1;
            if let Some(node) = &slots.nodes[id as usize] {
                distinct |= !node.unit.distinct.is_empty();
                tokens |= !node.unit.tokens.is_empty();
            }
        }
        Artifact { store: self.clone(), root, nullable, nodes: nodes.into(), size: 0, distinct, tokens }
    }

    fn release(&self, nodes: &[u32]) {
        // Dropped after the lock is gone: freeing a unit with its entries takes a while.
        let mut dead = vec![];
        let mut slots = self.slots.write();
        for &id in nodes {
            slots.pins[id as usize] -= 1;
            if slots.pins[id as usize] == 0 {
                dead.extend(slots.take(id));
                slots.free.push(id);
            }
        }
        drop(slots);
    }
}

fn links_of(fsm: &Fsm, holes: &[u32], ids: &[u32]) -> Vec<Link> {
    let rule_of = |c: &Callee| match *c {
        Callee::Rule(r) => r,
        Callee::Hole(h) => holes[h as usize],
    };
    fsm.callees.iter().map(|c| Link::Store(ids[rule_of(c) as usize])).collect()
}

/// Which rules are left-recursive together, and how high each stands over what it predicts.
struct LeftRecursion {
    /// 0: not left-recursive; else equal for the members of one component.
    component: Vec<u32>,
    height: Vec<u32>,
}

impl LeftRecursion {
    fn of(g: &LoweredGrammar) -> LeftRecursion {
        let n = g.rules.len();
        let leftmost: Vec<Vec<u32>> = g
            .rules
            .iter()
            .map(|r| {
                let start = r.fsm.states.first().map_or(&[][..], |s| &s.refs);
                let mut v: Vec<u32> = start
                    .iter()
                    .map(|e| match r.fsm.callees[e.callee as usize] {
                        Callee::Rule(x) => x,
                        Callee::Hole(h) => r.holes[h as usize],
                    })
                    .collect();
                v.sort_unstable();
                v.dedup();
                v
            })
            .collect();
        let mut out = LeftRecursion { component: vec![0; n], height: vec![0; n] };
        // Tarjan without recursion; components come out callees first, so heights are ready when they are needed.
        const NEW: u32 = u32::MAX;
        let (mut index, mut low, mut on_stack) = (vec![NEW; n], vec![0u32; n], vec![false; n]);
        let (mut stack, mut counter) = (vec![], 0u32);
        for root in 0..n {
            if index[root] != NEW {
                continue;
            }
            let mut calls: Vec<(usize, usize)> = vec![(root, 0)];
            while let Some(&(v, at)) = calls.last() {
                if at == 0 {
                    index[v] = counter;
                    low[v] = counter;
                    counter += 1;
                    stack.push(v);
                    on_stack[v] = true;
                }
                if let Some(&w) = leftmost[v].get(at) {
                    let w = w as usize;
                    if let Some(call) = calls.last_mut() {
                        call.1 += 1;
                    }
                    if index[w] == NEW {
                        calls.push((w, 0));
                    } else if on_stack[w] {
                        low[v] = low[v].min(index[w]);
                    }
                    continue;
                }
                calls.pop();
                if let Some(&(parent, _)) = calls.last() {
                    low[parent] = low[parent].min(low[v]);
                }
                if low[v] == index[v] {
                    let at = stack.iter().rposition(|&x| x == v).unwrap_or(0);
                    let members = stack.split_off(at);
                    members.iter().for_each(|&m| on_stack[m] = false);
                    let recursive = members.len() > 1 || leftmost[v].contains(&(v as u32));
                    let height = members
                        .iter()
                        .flat_map(|&m| &leftmost[m])
                        .filter(|&&w| !members.contains(&(w as usize)))
                        .map(|&w| out.height[w as usize] + 1)
                        .max()
                        .unwrap_or(0);
                    for &m in &members {
                        out.height[m] = height;
                        out.component[m] = if recursive { v as u32 + 1 } else { 0 };
                    }
                }
            }
        }
        out
    }
}

/// What a machine runs: a root, request-local nodes, and the artifacts they use.
#[derive(Debug)]
pub struct Program {
    pub store: Arc<UnitStore>,
    pub local: Vec<Arc<Node>>,
    pub root: Link,
    /// The empty text is a word of the grammar.
    pub nullable: bool,
    /// Keeps the store's nodes alive.
    pub pins: Vec<Arc<Artifact>>,
}

impl Program {
    pub fn of(store: &Arc<UnitStore>, artifact: Arc<Artifact>) -> Program {
        Program {
            store: store.clone(),
            local: vec![],
            root: Link::Store(artifact.root),
            nullable: artifact.nullable,
            pins: vec![artifact],
        }
    }

    /// Whether some state is marked `distinct`. Request-local units have none.
    pub fn is_distinct(&self) -> bool {
        self.pins.iter().any(|a| a.distinct)
    }

    /// The node behind a link.
    ///
    /// # Panics
    /// If the link belongs to another program: pinned artifacts keep every node that a link of theirs names.
    pub fn node(&self, link: Link) -> Arc<Node> {
        match link {
            Link::Local(i) => self.local[i as usize].clone(),
            Link::Store(id) => self.store.node(id).expect("a pinned artifact keeps its nodes in the store"),
        }
    }
}
