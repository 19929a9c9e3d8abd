//! TagDispatch: free text in which triggers hand over to tags.
//!
//! The automaton is Aho and Corasick's over triggers, stop strings and excluded strings, *closed over outputs*: what ends
//! at a node includes what ends at the nodes that its suffixes reach, so a pattern that lies inside another is found.
//! Most bytes do at a node what they do at the root; a node therefore has edges only for the bytes that continue a pattern
//! and falls back to the root for the rest.
//!
//! Free text is valid UTF-8. Patterns are too, so a pattern begins at the beginning of a character; the nodes inside a
//! character know what may follow, and where no pattern is under way a handful of states stand for the characters begun.
//!
//! # Where a tag opens
//!
//! After a trigger the tags of its hole follow, then the text begins anew. Of triggers that end at one place the longest
//! counts. Where a longer pattern is still under way, a byte that continues it belongs to it; the tags of the shorter
//! trigger must begin with another byte, so their hole is bound to a variant of the handler without those beginnings.
//! Once a trigger is passed by for a longer pattern, that pattern (or one that goes on from it) must be completed: free
//! text holds no trigger. Excluded strings bind the free text only: one that reaches into a stop string does not count,
//! if that stop is then completed. A stop string that ends together with a trigger or an excluded string wins. A handler
//! may match the empty string: then the text may also go on right after the trigger, with any byte that continues no
//! longer pattern.
//!
//! A state is thus a node of the automaton and what is *owed*: nothing, or a pattern of at least so many of the last
//! bytes, perhaps a stop. A pattern that holds tokens is owed from the first of them on: free text holds none.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Register programs, and the state that each leads on to.
type Ways = SmallVec<[(Vec<Op>, u32); 2]>;

use crate::automata::acts::Acts;
use crate::error::{CompileError, Result};
use crate::fsm::{Callee, Edge, Fsm, Op, RefEdge, State, TokenEdge, DEAD, NONE, PLAIN, REJECT, UNBOUNDED};
use crate::ir::{pattern_symbols, DispatchRule, Expr, Rule};
use crate::limits::Budget;

use super::minimize;

mod restrict;

/// A lowered dispatch: hole `i` of `fsm` is to be bound to `bindings[i]`.
#[derive(Clone, Debug)]
pub struct LoweredDispatch {
    pub fsm: Fsm,
    pub bindings: Vec<Expr>,
    /// What each hole is.
    pub holes: Vec<HoleSpec>,
}

/// What is to follow at a hole: the tags of a trigger, except those that begin with a byte that continues a longer
/// pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoleSpec {
    pub trigger: u32,
    /// First bytes that belong to a longer pattern.
    pub taken: Vec<u8>,
}

/// The automaton of a dispatch whose handlers are bound later: `rule.handlers` is not looked at. Nothing will follow the
/// triggers of which `untagged` holds the numbers, so they cannot be written; what follows those of `optional` may be empty.
pub fn shape(rule: &DispatchRule, untagged: &[u32], optional: &[u32], budget: &Budget) -> Result<LoweredDispatch> {
    let some = Expr::Class(vec![(0, 255)]);
    let mut handlers = vec![some.clone(); rule.triggers.len()];
    for (list, e) in [(untagged, Expr::Never), (optional, some.opt())] {
        for &t in list {
            if let Some(handler) = handlers.get_mut(t as usize) {
                *handler = e.clone();
            }
        }
    }
    lower_dispatch(&DispatchRule { handlers, ..rule.clone() }, &[], &[], budget)
}

/// Whether the text may be empty.
pub fn nullable(rule: &DispatchRule) -> bool {
    rule.open_end && rule.min_tags == 0
}

/// Lowers a dispatch; as everywhere, without the empty string. `rules` are those that its handlers refer to.
pub fn lower_dispatch(
    rule: &DispatchRule,
    rules: &[Rule],
    rule_nullable: &[bool],
    budget: &Budget,
) -> Result<LoweredDispatch> {
    check(rule)?;
    let trie = Trie::new(rule, budget)?;
    let mut b = Build {
        rule,
        rules,
        rule_nullable,
        budget,
        trie,
        asm: Assembly::default(),
        at_node: FxHashMap::default(),
        middle: [NONE; MIDDLES],
        bare: FxHashMap::default(),
        holes: FxHashMap::default(),
        bindings: vec![],
        specs: vec![],
        work: vec![],
        counting: Counting::of(rule),
        empties: vec![],
    };
    let fsm = b.build()?;
    if b.bindings.is_empty() && b.empties.is_empty() && rule.min_tags > 0
        || rule.max_tags.is_some_and(|max| max < rule.min_tags)
    {
        // More tags are needed than allowed, or longer patterns leave no tag a beginning: nothing matches.
        let nothing = Fsm { states: vec![State::default()], acts: vec![vec![]], ..Fsm::default() };
        return Ok(LoweredDispatch { fsm: nothing, bindings: vec![], holes: vec![] });
    }
    Ok(LoweredDispatch { fsm: minimize(fsm), bindings: b.bindings, holes: b.specs })
}

fn check(rule: &DispatchRule) -> Result<()> {
    if rule.handlers.len() != rule.triggers.len() {
        return Err(CompileError::invalid("", "each trigger needs one handler"));
    }
    let patterns = || rule.triggers.iter().chain(&rule.stops).chain(&rule.excludes);
    if patterns().any(|p| p.is_empty()) {
        return Err(CompileError::invalid("", "triggers, stop strings and excluded strings must not be empty"));
    }
    if let Some(p) = patterns().find(|p| pattern_symbols(p).is_none()) {
        let text = String::from_utf8_lossy(p);
        return Err(CompileError::invalid(
            "",
            format!("the pattern {text:?} is not valid UTF-8, as free text must be"),
        ));
    }
    for t in &rule.triggers {
        if let Some(p) = rule.stops.iter().chain(&rule.excludes).find(|p| memchr::memmem::find(t, p).is_some()) {
            let (t, p) = (String::from_utf8_lossy(t), String::from_utf8_lossy(p));
            return Err(CompileError::invalid(
                "",
                format!("the trigger {t:?} can never be written, since it contains {p:?}, a stop or excluded string"),
            ));
        }
    }
    Ok(())
}

/// How tags are counted.
#[derive(Clone, Copy)]
struct Counting {
    /// Register 0 holds how many tags are still needed and possible.
    tags: Option<(u32, u32)>,
    /// The text ends with the last tag: register 0 (if `needed`) or else 1 still needs something until then.
    last: Last,
    /// Before the first tag the text must not end (and there is no second).
    first_ends: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// Text goes on after every tag.
    No,
    /// The only tag is the last.
    Only,
    /// The counter tells.
    Counter(u8),
}

impl Counting {
    fn of(rule: &DispatchRule) -> Counting {
        let max = rule.max_tags.unwrap_or(UNBOUNDED);
        if rule.stop_after_last && max == 1 {
            return Counting { tags: None, last: Last::Only, first_ends: rule.min_tags > 0 };
        }
        let last = match rule.stop_after_last && max != UNBOUNDED {
            true if rule.min_tags == max => Last::Counter(0),
            true => Last::Counter(1),
            false => Last::No,
        };
        let counted = rule.min_tags > 0 || max != UNBOUNDED;
        Counting { tags: counted.then_some((rule.min_tags, max)), last, first_ends: false }
    }

    fn bounded(&self) -> bool {
        self.tags.is_some_and(|t| t.1 != UNBOUNDED)
    }
}

/// What a node's text ends with.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    Nothing,
    Excluded,
    /// The length of the longest stop string.
    Stop(u32),
    Trigger(u32),
}

/// What must still be completed: one of the patterns under way that began at least this many bytes ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Owed {
    /// 0: nothing is.
    length: u32,
    /// Only a stop string will do.
    stop: bool,
}

impl Owed {
    const NOTHING: Owed = Owed { length: 0, stop: false };

    /// After one more byte.
    fn longer(self) -> Owed {
        match self.length {
            0 => self,
            length => Owed { length: length + 1, ..self },
        }
    }
}

struct Node {
    /// Sorted by symbol.
    children: SmallVec<[(u64, u32); 2]>,
    /// The longest proper suffix of the node's text that is a node.
    suffix: u32,
    depth: u32,
    /// The character begun here: [`NONE`] at the end of one, else an index into [`MIDDLE`].
    middle: u32,
    ends: Ends,
    /// A stop string goes through here.
    to_stop: bool,
}

struct Trie {
    nodes: Vec<Node>,
    /// Symbols of each trigger.
    lengths: Vec<u32>,
}

impl Trie {
    fn new(rule: &DispatchRule, budget: &Budget) -> Result<Trie> {
        let root =
            Node { children: SmallVec::new(), suffix: 0, depth: 0, middle: NONE, ends: Ends::Nothing, to_stop: false };
        let mut trie = Trie { nodes: vec![root], lengths: vec![] };
        let blocked = rule.max_tags == Some(0);
        for (i, t) in rule.triggers.iter().enumerate() {
            let ends = if blocked { Ends::Excluded } else { Ends::Trigger(i as u32) };
            let at = trie.insert(t, budget)?;
            let length = trie.nodes[at as usize].depth;
            trie.lengths.push(length);
            match trie.nodes[at as usize].ends {
                Ends::Trigger(_) => {
                    let t = String::from_utf8_lossy(t);
                    return Err(CompileError::invalid("", format!("the trigger {t:?} stands twice")));
                }
                _ => trie.nodes[at as usize].ends = ends,
            }
        }
        let ends_early = rule.stop_after_last && rule.max_tags == Some(1) && rule.min_tags > 0;
        for stop in &rule.stops {
            let at = trie.insert(stop, budget)?;
            if ends_early {
                trie.nodes[at as usize].ends = Ends::Excluded;
                continue;
            }
            trie.nodes[at as usize].ends = Ends::Stop(trie.nodes[at as usize].depth);
            let mut at = 0;
            for b in pattern_symbols(stop).unwrap_or_default() {
                at = trie.child(at, b).unwrap_or(0);
                trie.nodes[at as usize].to_stop = true;
            }
        }
        for text in &rule.excludes {
            let at = trie.insert(text, budget)?;
            let ends = &mut trie.nodes[at as usize].ends;
            if !matches!(ends, Ends::Stop(_)) {
                *ends = Ends::Excluded;
            }
        }
        trie.link();
        Ok(trie)
    }

    fn insert(&mut self, text: &[u8], budget: &Budget) -> Result<u32> {
        let mut at = 0u32;
        for b in pattern_symbols(text).unwrap_or_default() {
            at = match self.nodes[at as usize].children.binary_search_by_key(&b, |c| c.0) {
                Ok(i) => self.nodes[at as usize].children[i].1,
                Err(i) => {
                    budget.states(1)?;
                    let to = self.nodes.len() as u32;
                    let from = &self.nodes[at as usize];
                    let (depth, middle) = (from.depth + 1, next_middle(from.middle, b));
                    let ends = Ends::Nothing;
                    self.nodes.push(Node { children: SmallVec::new(), suffix: 0, depth, middle, ends, to_stop: false });
                    self.nodes[at as usize].children.insert(i, (b, to));
                    to
                }
            };
        }
        Ok(at)
    }

    /// Suffix links, and what ends at each node by way of them, breadth-first.
    fn link(&mut self) {
        let mut queue = vec![0u32];
        let mut next = 0;
        while let Some(&at) = queue.get(next) {
            next += 1;
            for (b, child) in self.nodes[at as usize].children.clone() {
                queue.push(child);
                let mut suffix = 0;
                if at != 0 {
                    let mut s = self.nodes[at as usize].suffix;
                    suffix = loop {
                        if let Some(to) = self.child(s, b) {
                            break to;
                        }
                        if s == 0 {
                            break 0;
                        }
                        s = self.nodes[s as usize].suffix;
                    };
                }
                let below = self.nodes[suffix as usize].ends;
                let node = &mut self.nodes[child as usize];
                node.suffix = suffix;
                // Stop before excluded before trigger; of stops and triggers the longer, which is the node's own.
                node.ends = match (node.ends, below) {
                    (Ends::Stop(n), _) | (_, Ends::Stop(n)) => Ends::Stop(n),
                    (Ends::Excluded, _) | (_, Ends::Excluded) => Ends::Excluded,
                    (Ends::Trigger(t), _) => Ends::Trigger(t),
                    (Ends::Nothing, below) => below,
                };
            }
        }
    }

    fn child(&self, at: u32, symbol: u64) -> Option<u32> {
        let children = &self.nodes[at as usize].children;
        children.binary_search_by_key(&symbol, |c| c.0).ok().map(|i| children[i].1)
    }

    /// Where bytes lead that continue a pattern under way at `at` of which at least `least` bytes are read; with `stop`,
    /// a stop string.
    fn continuations(&self, at: u32, least: u32, stop: bool) -> Vec<(u64, u32)> {
        let mut found: Vec<(u64, u32)> = Vec::new();
        let mut s = at;
        while s != 0 && self.nodes[s as usize].depth >= least {
            let children = self.nodes[s as usize].children.iter();
            found.extend(children.filter(|c| !stop || self.nodes[c.1 as usize].to_stop));
            s = self.nodes[s as usize].suffix;
        }
        // The sort keeps the longest pattern first.
        found.sort_by_key(|f| f.0);
        found.dedup_by_key(|f| f.0);
        found
    }
}

const MIDDLES: usize = 7;
/// Characters begun: the bytes that may follow, and what is begun then.
const MIDDLE: [(u8, u8, u32); MIDDLES] = [
    (0x80, 0xbf, NONE), // one more byte
    (0x80, 0xbf, 0),    // two more
    (0x80, 0xbf, 1),    // three more
    (0xa0, 0xbf, 0),    // after E0
    (0x80, 0x9f, 0),    // after ED
    (0x90, 0xbf, 1),    // after F0
    (0x80, 0x8f, 1),    // after F4
];
/// First bytes of characters, and what they begin.
const LEAD: [(u8, u8, u32); 9] = [
    (0x00, 0x7f, NONE),
    (0xc2, 0xdf, 0),
    (0xe0, 0xe0, 3),
    (0xe1, 0xec, 1),
    (0xed, 0xed, 4),
    (0xee, 0xef, 1),
    (0xf0, 0xf0, 5),
    (0xf1, 0xf3, 2),
    (0xf4, 0xf4, 6),
];

/// What is begun after one more symbol of a pattern.
fn next_middle(middle: u32, symbol: u64) -> u32 {
    let Ok(byte) = u8::try_from(symbol) else { return NONE };
    match MIDDLE.get(middle as usize) {
        Some(m) => m.2,
        None => LEAD.iter().find(|l| l.0 <= byte && byte <= l.1).map_or(NONE, |l| l.2),
    }
}

#[derive(Default)]
struct Assembly {
    states: Vec<State>,
    acts: Acts,
}

struct Build<'a> {
    rule: &'a DispatchRule,
    rules: &'a [Rule],
    rule_nullable: &'a [bool],
    budget: &'a Budget,
    trie: Trie,
    asm: Assembly,
    at_node: FxHashMap<(u32, Owed), u32>,
    /// States in which a character has begun and no pattern is under way.
    middle: [u32; MIDDLES],
    /// States after a trigger with no longer pattern under way, by trigger.
    bare: FxHashMap<u32, u32>,
    /// By trigger and the first bytes that its tags must not have.
    holes: FxHashMap<(u32, Vec<u8>), Option<u32>>,
    bindings: Vec<Expr>,
    specs: Vec<HoleSpec>,
    /// Nodes whose states are still to be filled.
    work: Vec<(u32, Owed)>,
    counting: Counting,
    /// States of triggers after which the tag may be empty, and the bytes that longer patterns take.
    empties: Vec<(u32, Vec<u8>)>,
}

/// The state that the text ends in.
const END: u32 = 1;

impl Build<'_> {
    fn build(&mut self) -> Result<Fsm> {
        let start = self.state()?;
        let end = self.state()?;
        debug_assert_eq!((start, end), (0, END));
        self.asm.states[END as usize].accept = PLAIN;
        let root = self.node(0, Owed::NOTHING)?;
        while let Some((node, owed)) = self.work.pop() {
            self.fill(node, owed)?;
        }
        self.skip_tags(root)?;
        match self.counting.tags {
            // The text begins like after a tag; only it must not be empty here.
            None => {
                let tokens = self.asm.states[root as usize].tokens.clone();
                let state = &mut self.asm.states[start as usize];
                (state.tokens, state.fallback) = (tokens, root);
            }
            Some((min, max)) => {
                let mut ops = vec![Op::Load { r: 0, min, max }];
                if self.counting.last == Last::Counter(1) {
                    ops.push(Op::Load { r: 1, min: max, max });
                }
                let load = self.asm.acts.intern(&ops)?;
                let State { mut edges, mut tokens, .. } = self.asm.states[root as usize].clone();
                for act in edges.iter_mut().map(|e| &mut e.act).chain(tokens.iter_mut().map(|e| &mut e.act)) {
                    *act = self.asm.acts.compose(load, *act)?;
                }
                let state = &mut self.asm.states[start as usize];
                (state.edges, state.tokens) = (edges, tokens);
            }
        }
        let counters = match (self.counting.tags, self.counting.last) {
            (None, _) => 0,
            (_, Last::Counter(1)) => 2,
            _ => 1,
        };
        let acts = std::mem::take(&mut self.asm.acts).into_list();
        let callees = (0..self.bindings.len() as u32).map(Callee::Hole).collect();
        Ok(Fsm { states: std::mem::take(&mut self.asm.states), acts, callees, counters, ..Fsm::default() })
    }

    fn state(&mut self) -> Result<u32> {
        self.budget.states(1)?;
        self.asm.states.push(State::default());
        Ok(self.asm.states.len() as u32 - 1)
    }

    /// The act of ending the text.
    fn exit(&mut self) -> Result<u16> {
        match self.counting.tags {
            Some(_) => self.asm.acts.intern(&[Op::Exit { r: 0 }]),
            None => Ok(PLAIN),
        }
    }

    /// The state of a node.
    fn node(&mut self, node: u32, owed: Owed) -> Result<u32> {
        if let Some(&s) = self.at_node.get(&(node, owed)) {
            return Ok(s);
        }
        let s = self.state()?;
        self.at_node.insert((node, owed), s);
        self.work.push((node, owed));
        Ok(s)
    }

    /// The edge into a node, where `owed` must be completed: its act and target.
    fn into(&mut self, node: u32, owed: Owed) -> Result<(u16, u32)> {
        match self.trie.nodes[node as usize].ends {
            Ends::Stop(length) if length >= owed.length => Ok((self.exit()?, END)),
            // What ends here lies inside of what is owed.
            Ends::Stop(_) => Ok((PLAIN, DEAD)),
            Ends::Excluded => {
                let owed = Owed { length: owed.length.max(1), stop: true };
                match self.trie.continuations(node, owed.length, true).is_empty() {
                    true => Ok((PLAIN, DEAD)),
                    false => Ok((PLAIN, self.node(node, owed)?)),
                }
            }
            Ends::Trigger(t) if !owed.stop && self.trie.lengths[t as usize] >= owed.length => {
                let act = if self.counting.bounded() { self.asm.acts.intern(&[Op::Room { r: 0 }])? } else { PLAIN };
                let length = self.trie.lengths[t as usize];
                if self.trie.continuations(node, length, false).is_empty() {
                    if let Some(&s) = self.bare.get(&t) {
                        return Ok((act, s));
                    }
                    let s = self.state()?;
                    self.bare.insert(t, s);
                    self.hand_over(s, t, vec![])?;
                    return Ok((act, s));
                }
                Ok((act, self.node(node, owed)?))
            }
            Ends::Nothing | Ends::Trigger(_) => Ok((PLAIN, self.node(node, owed)?)),
        }
    }

    /// The edges along a trie: those of tokens, which nothing inherits, and those of bytes.
    fn edges(&mut self, list: &[(u64, u32)], owed: Owed) -> Result<(Vec<Edge>, Vec<TokenEdge>)> {
        let (mut edges, mut tokens) = (Vec::with_capacity(list.len()), vec![]);
        for &(symbol, to) in list {
            // Text holds no token but those of patterns: one that is begun with a token, or goes on with it, is owed.
            let least = u32::from(symbol >= 256);
            let (act, target) = self.into(to, Owed { length: owed.length.max(least), ..owed })?;
            match u8::try_from(symbol) {
                Ok(b) => edges.push(Edge { lo: b, hi: b, act, target }),
                Err(_) if target == DEAD => {}
                Err(_) => tokens.push(TokenEdge { token: (symbol - 256) as u32, act, target }),
            }
        }
        Ok((edges, tokens))
    }

    fn fill(&mut self, node: u32, owed: Owed) -> Result<()> {
        let state = self.at_node[&(node, owed)];
        let (ends, middle) = (self.trie.nodes[node as usize].ends, self.trie.nodes[node as usize].middle);
        let opens = match ends {
            Ends::Trigger(t) if !owed.stop => Some((t, self.trie.lengths[t as usize])).filter(|t| t.1 >= owed.length),
            _ => None,
        };
        if let Some((t, length)) = opens {
            let list = self.trie.continuations(node, length, false);
            self.hand_over(state, t, list.iter().filter_map(|l| u8::try_from(l.0).ok()).collect())?;
            let (mut edges, tokens) = self.edges(&list, Owed { length, stop: false }.longer())?;
            edges.retain(|e| e.target != DEAD);
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens) = (edges, tokens);
            return Ok(());
        }
        if owed != Owed::NOTHING {
            let list = self.trie.continuations(node, owed.length, owed.stop);
            let (mut edges, tokens) = self.edges(&list, owed.longer())?;
            edges.retain(|e| e.target != DEAD);
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens) = (edges, tokens);
            return Ok(());
        }
        if node == 0 {
            let own = self.trie.nodes[0].children.clone();
            let (mut edges, tokens) = self.edges(&own, Owed::NOTHING)?;
            for (lo, hi, middle) in LEAD {
                // The gaps between the bytes that begin a pattern.
                let mut from = lo as u16;
                let bytes = own.iter().map(|c| c.0).filter(|&b| u64::from(lo) <= b && b <= u64::from(hi));
                for b in bytes.map(|b| b as u16).chain([hi as u16 + 1]).collect::<SmallVec<[u16; 8]>>() {
                    if from < b {
                        let target = self.inside(middle)?;
                        edges.push(Edge { lo: from as u8, hi: (b - 1) as u8, act: PLAIN, target });
                    }
                    from = b + 1;
                }
            }
            edges.retain(|e| e.target != DEAD);
            edges.sort_unstable();
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens) = (edges, tokens);
        } else {
            let mut list = self.trie.continuations(node, 1, false);
            if middle == NONE {
                // What tokens begin at the root, they begin here.
                let begun = self.trie.nodes[0].children.iter().filter(|c| c.0 >= 256);
                let more: Vec<(u64, u32)> = begun.filter(|c| !list.iter().any(|l| l.0 == c.0)).copied().collect();
                list.extend(more);
            }
            let (edges, tokens) = self.edges(&list, Owed::NOTHING)?;
            let fallback = self.inside(middle)?;
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens, state.fallback) = (edges, tokens, fallback);
        }
        if middle == NONE && self.rule.open_end && !self.counting.first_ends {
            let exit = self.exit()?;
            self.asm.states[state as usize].accept = exit;
        }
        debug_assert!(self.asm.states[END as usize].accept != REJECT);
        Ok(())
    }

    /// The state in which no pattern is under way and a character has begun (or none).
    fn inside(&mut self, middle: u32) -> Result<u32> {
        let Some(&(lo, hi, next)) = MIDDLE.get(middle as usize) else { return self.node(0, Owed::NOTHING) };
        if self.middle[middle as usize] == NONE {
            let s = self.state()?;
            self.middle[middle as usize] = s;
            let target = self.inside(next)?;
            self.asm.states[s as usize].edges.push(Edge { lo, hi, act: PLAIN, target });
        }
        Ok(self.middle[middle as usize])
    }

    /// The hole of a trigger, whose tags must not begin with `taken`, at `state`.
    fn hand_over(&mut self, state: u32, trigger: u32, taken: Vec<u8>) -> Result<()> {
        if super::nullable(&self.rule.handlers[trigger as usize], self.rule_nullable) {
            self.empties.push((state, taken.clone()));
        }
        let key = (trigger, taken);
        let hole = match self.holes.get(&key) {
            Some(&h) => h,
            None => {
                let handler = &self.rule.handlers[trigger as usize];
                let bound = if matches!(handler, Expr::Never | Expr::Empty) {
                    // The state leads nowhere (unless a longer pattern goes on, or the tag is empty) and is dropped.
                    None
                } else if key.1.is_empty() {
                    Some(handler.clone())
                } else {
                    restrict::without_first(handler, &key.1, self.rules, self.rule_nullable, self.budget)
                        .map_err(|()| self.ambiguous(trigger, &key.1))?
                };
                let hole = bound.map(|e| {
                    self.bindings.push(e);
                    self.specs.push(HoleSpec { trigger, taken: key.1.clone() });
                    self.bindings.len() as u32 - 1
                });
                self.holes.insert(key, hole);
                hole
            }
        };
        let Some(hole) = hole else { return Ok(()) };
        for (ops, target) in self.ways_on()? {
            let act = self.asm.acts.intern(&ops)?;
            self.asm.states[state as usize].refs.push(RefEdge { callee: hole, args: NONE, act, target });
        }
        Ok(())
    }

    /// How the text goes on with a tag: what is counted, and the state after it.
    fn ways_on(&mut self) -> Result<Ways> {
        let tick: &[Op] = if self.counting.tags.is_some() { &[Op::Tick { r: 0 }] } else { &[] };
        Ok(match self.counting.last {
            Last::No => [(tick.to_vec(), self.node(0, Owed::NOTHING)?)].into_iter().collect(),
            Last::Only => [(vec![], END)].into_iter().collect(),
            Last::Counter(r) => {
                let mut ops = tick.to_vec();
                if r != 0 {
                    ops.push(Op::Tick { r });
                }
                let (on, end) =
                    ([ops.as_slice(), &[Op::Room { r }]].concat(), [ops.as_slice(), &[Op::Exit { r }]].concat());
                [(on, self.node(0, Owed::NOTHING)?), (end, END)].into_iter().collect()
            }
        })
    }

    /// A tag without text: the state of its trigger also does what the root does, but for bytes that a longer pattern takes.
    fn skip_tags(&mut self, root: u32) -> Result<()> {
        for (state, taken) in self.empties.clone() {
            let mut edges = std::mem::take(&mut self.asm.states[state as usize].edges);
            let mut tokens = std::mem::take(&mut self.asm.states[state as usize].tokens);
            let mut accept = REJECT;
            for (ops, target) in self.ways_on()? {
                let act = self.asm.acts.intern(&ops)?;
                let to = &self.asm.states[target as usize];
                if to.accept != REJECT && (accept == REJECT || target == root) {
                    // Where both ways may end, the text may go on, and that it may end is all that is left to ask.
                    accept = match self.counting.last {
                        Last::Counter(_) if target == root => {
                            self.asm.acts.intern(&[Op::Tick { r: 0 }, Op::Exit { r: 0 }])?
                        }
                        _ => self.asm.acts.compose(act, to.accept)?,
                    };
                }
                for e in self.asm.states[target as usize].tokens.clone() {
                    if !tokens.iter().any(|t| t.token == e.token) {
                        tokens.push(TokenEdge { act: self.asm.acts.compose(act, e.act)?, ..e });
                    }
                }
                for e in self.asm.states[target as usize].edges.clone() {
                    let act = self.asm.acts.compose(act, e.act)?;
                    let mut lo = e.lo as u16;
                    let stops = taken.iter().filter(|&&b| e.lo <= b && b <= e.hi).map(|&b| b as u16);
                    for stop in stops.chain([e.hi as u16 + 1]).collect::<SmallVec<[u16; 8]>>() {
                        if lo < stop {
                            edges.push(Edge { lo: lo as u8, hi: (stop - 1) as u8, act, ..e });
                        }
                        lo = stop + 1;
                    }
                }
            }
            edges.sort_unstable();
            let s = &mut self.asm.states[state as usize];
            (s.edges, s.tokens, s.accept) = (edges, tokens, accept);
        }
        Ok(())
    }

    fn ambiguous(&self, trigger: u32, taken: &[u8]) -> CompileError {
        let t = String::from_utf8_lossy(&self.rule.triggers[trigger as usize]);
        let longer = self.rule.triggers.iter().chain(&self.rule.stops).chain(&self.rule.excludes);
        let longer = longer.filter(|p| p.len() > t.len() && memchr::memmem::find(p, t.as_bytes()).is_some());
        let longer: Vec<_> = longer.map(|p| format!("{:?}", String::from_utf8_lossy(p))).collect();
        CompileError::invalid(
            "",
            format!(
                "the trigger {t:?} lies inside {}, and what follows it may begin with {:?}, which belongs to the longer \
                 one; let the tags begin with a literal that differs, or change the triggers",
                longer.join(", "),
                String::from_utf8_lossy(taken),
            ),
        )
    }
}

#[cfg(test)]
mod tests;
