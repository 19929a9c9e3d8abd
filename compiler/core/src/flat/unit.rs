//! One unit as bytes.

use rustc_hash::FxHashMap;

use super::{Malformed, Read, Reader, Writer};
use crate::digest::{Circle, CircleMember};
use crate::fsm::{
    Callee, Edge, Fsm, KeyRegister, Op, RefEdge, State, TokenEdge, ANY_TOKEN, DEAD, NONE, NO_COUNTER, PLAIN, REJECT,
};
use crate::ir::PropertyOrder;
use crate::unit::{Digest, Node, Unit};

const MAGIC: &[u8; 8] = b"gramUNIT";

/// Bounds that no lowering reaches; they keep what a hostile unit can claim small.
const MOST_STATES: usize = 1 << 22;
const MOST_COUNTERS: u32 = 64;
const MOST_KEYS: u32 = 1 << 20;
/// Set in a state's number of token edges: it is marked `distinct`.
const MARKED: u32 = 1 << 31;

/// What kind of unit it is, which decides how its digest is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A rule of a grammar.
    Rule,
    /// A stretch of an object: see [`crate::tails`].
    Tail,
}

/// A unit that has been read: its FSM, in which `Callee::Rule(i)` is `callees[i]` and `Callee::Hole(h)` is `holes[h]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatUnit {
    pub what: What,
    /// With holes left open.
    pub unit: Digest,
    pub fsm: Fsm,
    pub callees: Vec<Digest>,
    pub holes: Vec<Digest>,
    /// Of a unit that refers to itself, be it through others.
    pub circle: Option<Circle>,
}

/// The bytes of a node of the store. `digest_of` resolves the numbers of store nodes.
pub fn write_node(node: &Node, digest_of: impl Fn(u32) -> Option<Digest>, circle: Option<&Circle>) -> Option<Vec<u8>> {
    let unit = &node.unit;
    if unit.local {
        return None;
    }
    let order = Order::of(unit);
    let mut callees: Vec<Digest> = vec![];
    let mut numbers: Vec<Callee> = vec![];
    for &c in &order.callees.used {
        let crate::unit::Link::Store(id) = *node.links.get(c as usize)? else { return None };
        match unit.callees[c as usize] {
            Callee::Rule(_) => {
                numbers.push(Callee::Rule(callees.len() as u32));
                callees.push(digest_of(id)?);
            }
            Callee::Hole(h) => numbers.push(Callee::Hole(h)),
        }
    }
    let mut w = Writer::new(MAGIC);
    w.word(unit.tail as u32);
    w.digest(&unit.digest);
    w.word(unit.layout.counters as u32);
    w.len(callees.len());
    callees.iter().for_each(|d| w.digest(d));
    w.len(node.holes.len());
    for &hole in node.holes.iter() {
        w.digest(&digest_of(hole)?);
    }
    w.len(circle.map_or(0, |c| c.members.len()));
    if let Some(circle) = circle {
        w.word(circle.class);
        for member in &circle.members {
            w.digest(&member.shape);
            w.word(member.holes as u32);
            w.len(member.inside.len());
            member.inside.iter().for_each(|&class| w.word(class));
        }
    }
    w.len(numbers.len());
    for c in numbers {
        match c {
            Callee::Rule(r) => w.word(r << 1),
            Callee::Hole(h) => w.word(h << 1 | 1),
        }
    }
    w.len(unit.states());
    for q in 0..unit.states() as u32 {
        let (edges, refs, tokens) = (unit.own_edges(q), unit.own_refs(q), unit.own_tokens(q));
        w.len(edges.len());
        w.len(refs.len());
        w.word(tokens.len() as u32 | if unit.is_marked(q) { MARKED } else { 0 });
        w.word(unit.fallback[q as usize]);
        let accept = unit.accept[q as usize];
        w.word(if accept == REJECT { REJECT as u32 } else { order.acts.of(accept as u32) });
        for e in edges {
            w.word(e.lo as u32 | (e.hi as u32) << 8 | order.acts.of(e.act as u32) << 16);
            w.word(e.target);
        }
        for e in refs {
            let args = if e.args == NONE { NONE } else { order.args.of(e.args) };
            [order.callees.of(e.callee), args, order.acts.of(e.act as u32), e.target]
                .into_iter()
                .for_each(|x| w.word(x));
        }
        for e in tokens {
            [e.token, order.acts.of(e.act as u32), e.target].into_iter().for_each(|x| w.word(x));
        }
    }
    w.len(order.args.used.len());
    for list in order.args.used.iter().map(|&a| &unit.args[a as usize]) {
        w.len(list.len());
        for &(min, max) in list.iter() {
            w.word(min);
            w.word(max);
        }
    }
    w.len(order.acts.used.len());
    for ops in order.acts.used.iter().map(|&a| &unit.acts[a as usize]) {
        w.len(ops.len());
        ops.iter().for_each(|&op| write_op(&mut w, op, &order.masks));
    }
    match &unit.layout.keys {
        None => w.word(0),
        Some(k) => {
            w.word(if k.order == PropertyOrder::Declared { 1 } else { 2 });
            w.word(k.count);
            w.word(k.open as u32);
            let list = |w: &mut Writer, list: &[u32]| {
                w.len(list.len());
                list.iter().for_each(|&x| w.word(x));
            };
            list(&mut w, &k.required);
            w.len(order.masks.used.len());
            order.masks.used.iter().for_each(|&mask| list(&mut w, &k.masks[mask as usize]));
        }
    }
    Some(w.0)
}

/// The entries of a table in order of first use: what is not used is left out, and units that differ only in the order of
/// their tables are equal bytes.
#[derive(Default)]
struct FirstUse {
    used: Vec<u32>,
    number: FxHashMap<u32, u32>,
}

impl FirstUse {
    fn meet(&mut self, i: u32) {
        let next = self.used.len() as u32;
        if *self.number.entry(i).or_insert(next) == next {
            self.used.push(i);
        }
    }

    fn of(&self, i: u32) -> u32 {
        self.number.get(&i).copied().unwrap_or(NONE)
    }
}

/// Numbers of a unit's callees in order of first use, then those that are not used.
pub fn callee_order(unit: &Unit) -> Vec<usize> {
    let mut order = FirstUse::default();
    for q in 0..unit.states() as u32 {
        unit.own_refs(q).iter().for_each(|e| order.meet(e.callee));
    }
    (0..unit.callees.len() as u32).for_each(|c| order.meet(c));
    order.used.into_iter().map(|c| c as usize).collect()
}

struct Order {
    acts: FirstUse,
    args: FirstUse,
    callees: FirstUse,
    masks: FirstUse,
}

impl Order {
    fn of(unit: &Unit) -> Order {
        let mut o = Order {
            acts: FirstUse::default(),
            args: FirstUse::default(),
            callees: FirstUse::default(),
            masks: FirstUse::default(),
        };
        // The empty act is always there, and first.
        o.acts.meet(PLAIN as u32);
        for q in 0..unit.states() as u32 {
            if unit.accepts(q) {
                o.acts.meet(unit.accept[q as usize] as u32);
            }
            unit.own_edges(q).iter().for_each(|e| o.acts.meet(e.act as u32));
            for e in unit.own_refs(q) {
                o.callees.meet(e.callee);
                if e.args != NONE {
                    o.args.meet(e.args);
                }
                o.acts.meet(e.act as u32);
            }
            unit.own_tokens(q).iter().for_each(|e| o.acts.meet(e.act as u32));
        }
        for &a in &o.acts.used {
            for op in unit.acts[a as usize].iter() {
                if let Op::Avail { mask } | Op::Viable { mask, .. } = *op {
                    o.masks.meet(mask);
                }
            }
        }
        o
    }
}

fn write_op(w: &mut Writer, op: Op, masks: &FirstUse) {
    let [tag, a, b, c] = match op {
        Op::Load { r, min, max } => [0, r as u32, min, max],
        Op::Tick { r } => [1, r as u32, 0, 0],
        Op::Exit { r } => [2, r as u32, 0, 0],
        Op::Room { r } => [3, r as u32, 0, 0],
        Op::Spare { r } => [4, r as u32, 0, 0],
        Op::Take { key } => [5, key, 0, 0],
        Op::Avail { mask } => [6, masks.of(mask), 0, 0],
        Op::Viable { r, mask, other } => [7, r as u32, masks.of(mask), other as u32],
        Op::Other => [8, 0, 0, 0],
        Op::More => [9, 0, 0, 0],
        Op::Close => [10, 0, 0, 0],
    };
    [tag, a, b, c].into_iter().for_each(|x| w.word(x));
}

/// What operations may name.
struct Registers<'a> {
    counters: u32,
    keys: Option<&'a KeyRegister>,
}

impl Registers<'_> {
    fn counter(&self, r: u32) -> Read<u8> {
        if r < self.counters {
            Ok(r as u8)
        } else {
            Err(Malformed("an operation names a counter that the unit does not have"))
        }
    }

    fn keys(&self) -> Read<&KeyRegister> {
        self.keys.ok_or(Malformed("an operation needs a key register"))
    }

    fn mask(&self, mask: u32) -> Read<u32> {
        if (mask as usize) < self.keys()?.masks.len() {
            Ok(mask)
        } else {
            Err(Malformed("an operation names a mask that the unit does not have"))
        }
    }

    fn op(&self, [tag, a, b, c]: [u32; 4]) -> Read<Op> {
        // Words that an operation has no use for are zero: bytes that differ are different units.
        let used = [3, 1, 1, 1, 1, 1, 1, 3, 0, 0, 0].get(tag as usize).copied().unwrap_or(0);
        if [a, b, c][used..].iter().any(|&w| w != 0) {
            return Err(Malformed("an operation has operands that it does not know"));
        }
        let op = match tag {
            0 => Op::Load { r: self.counter(a)?, min: b, max: c },
            1 => Op::Tick { r: self.counter(a)? },
            2 => Op::Exit { r: self.counter(a)? },
            3 => Op::Room { r: self.counter(a)? },
            4 => {
                self.keys()?;
                Op::Spare { r: self.counter(a)? }
            }
            5 if a < self.keys()?.keys => Op::Take { key: a },
            6 => Op::Avail { mask: self.mask(a)? },
            7 if c <= 1 => {
                let r = if a == NO_COUNTER as u32 { NO_COUNTER } else { self.counter(a)? };
                Op::Viable { r, mask: self.mask(b)?, other: c != 0 }
            }
            8..=10 => {
                self.keys()?;
                [Op::Other, Op::More, Op::Close][tag as usize - 8]
            }
            _ => return Err(Malformed("an operation of an unknown kind")),
        };
        Ok(op)
    }
}

impl FlatUnit {
    /// Read and check a unit's bytes.
    pub fn parse(bytes: &[u8]) -> Read<FlatUnit> {
        let mut r = Reader::new(bytes, MAGIC)?;
        let what = match r.word()? {
            0 => What::Rule,
            1 => What::Tail,
            _ => return Err(Malformed("a unit of an unknown kind")),
        };
        let unit = r.digest()?;
        let counters = r.word()?;
        if counters > MOST_COUNTERS {
            return Err(Malformed("it has too many counters"));
        }
        let digests = |r: &mut Reader<'_>| -> Read<Vec<Digest>> { (0..r.len(32)?).map(|_| r.digest()).collect() };
        let callees = digests(&mut r)?;
        let holes = digests(&mut r)?;
        let circle = read_circle(&mut r)?;
        let mut numbers = vec![];
        for _ in 0..r.len(4)? {
            let word = r.word()?;
            let (n, hole) = (word >> 1, word & 1 == 1);
            if n as usize >= if hole { holes.len() } else { callees.len() } {
                return Err(Malformed("a callee does not exist"));
            }
            numbers.push(if hole { Callee::Hole(n) } else { Callee::Rule(n) });
        }
        if what == What::Tail && (!holes.is_empty() || callees.len() > 1 || counters > 0) {
            return Err(Malformed("it is not a tail"));
        }
        let mut fsm = Fsm { counters: counters as u8, callees: numbers, ..Fsm::default() };
        let n = r.len(20)?;
        if n == 0 || n > MOST_STATES {
            return Err(Malformed("it has no states, or too many"));
        }
        fsm.states.reserve_exact(n);
        for _ in 0..n {
            fsm.states.push(read_state(&mut r)?);
        }
        for _ in 0..r.len(4)? {
            let n = r.len(8)?;
            fsm.args.push((0..n).map(|_| Ok((r.word()?, r.word()?))).collect::<Read<_>>()?);
        }
        let mut acts = vec![];
        for _ in 0..r.len(4)? {
            let n = r.len(16)?;
            let ops: Vec<[u32; 4]> =
                (0..n).map(|_| Ok([r.word()?, r.word()?, r.word()?, r.word()?])).collect::<Read<_>>()?;
            acts.push(ops);
        }
        fsm.keys = read_keys(&mut r)?;
        r.end()?;
        let registers = Registers { counters, keys: fsm.keys.as_ref() };
        fsm.acts = acts
            .into_iter()
            .map(|ops| ops.into_iter().map(|op| registers.op(op)).collect())
            .collect::<Read<Vec<Vec<Op>>>>()?;
        let flat = FlatUnit { what, unit, fsm, callees, holes, circle };
        flat.check()?;
        Ok(flat)
    }

    /// Whether everything that is indexed by is in bounds, and the form is the one that the machine relies on.
    fn check(&self) -> Read<()> {
        let fsm = &self.fsm;
        let n = fsm.states.len() as u32;
        let acts = fsm.acts.len();
        if fsm.acts.first().is_none_or(|a| !a.is_empty()) || acts > REJECT as usize {
            return Err(Malformed("its acts do not begin with the empty one, or are too many"));
        }
        if fsm.states[0].accept != REJECT {
            return Err(Malformed("it matches the empty text"));
        }
        let act = |a: u16| (a as usize) < acts;
        for s in &fsm.states {
            let mut from = 0;
            for e in &s.edges {
                // Blocking bytes makes sense only over a fallback that would take them.
                let blocks = e.target == DEAD && s.fallback != NONE;
                if e.lo > e.hi || e.lo < from || !act(e.act) || (e.target >= n && !blocks) {
                    return Err(Malformed("a byte edge is out of order or leads nowhere"));
                }
                from = e.lo;
            }
            for e in &s.refs {
                let known = (e.callee as usize) < fsm.callees.len()
                    && (e.args == NONE || (e.args as usize) < fsm.args.len())
                    && act(e.act)
                    && e.target < n;
                if !known {
                    return Err(Malformed("a reference leads nowhere"));
                }
            }
            let blocks = |e: &TokenEdge| e.target == DEAD && e.token != ANY_TOKEN;
            if s.tokens.iter().any(|e| !act(e.act) || e.target >= n && !blocks(e)) {
                return Err(Malformed("a token edge leads nowhere"));
            }
            let fallback =
                s.fallback == NONE || fsm.states.get(s.fallback as usize).is_some_and(|f: &State| f.fallback == NONE);
            if !fallback || !(s.accept == REJECT || act(s.accept)) {
                return Err(Malformed("a state falls back or accepts in a way that does not exist"));
            }
            if s.distinct && s.accept != REJECT {
                return Err(Malformed("a state that is marked distinct accepts"));
            }
        }
        if fsm.args.iter().any(|list| list.len() > MOST_COUNTERS as usize) {
            return Err(Malformed("a list of arguments is too long"));
        }
        Ok(())
    }
}

fn read_circle(r: &mut Reader<'_>) -> Read<Option<Circle>> {
    let n = r.len(40)?;
    if n == 0 {
        return Ok(None);
    }
    let class = r.word()?;
    let mut members = Vec::with_capacity(n);
    for _ in 0..n {
        let shape = r.digest()?;
        let holes = match r.word()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("a flag is neither 0 nor 1")),
        };
        let references = r.len(4)?;
        members.push(CircleMember { shape, inside: r.words(references)?.collect(), holes });
    }
    Ok(Some(Circle { members, class }))
}

fn read_state(r: &mut Reader<'_>) -> Read<State> {
    let (edges, refs) = (r.len(1)?, r.len(1)?);
    let (tokens, distinct) = r.marked_len(1, MARKED)?;
    let fallback = r.word()?;
    let narrow = |x: u32| u16::try_from(x).map_err(|_| Malformed("the number of an act is too large"));
    let accept = narrow(r.word()?)?;
    let mut s = State { fallback, accept, distinct, ..State::default() };
    let mut words = r.words(edges.checked_mul(2).ok_or(Malformed("a length overflows"))?)?;
    s.edges.reserve_exact(edges);
    while let (Some(e), Some(target)) = (words.next(), words.next()) {
        s.edges.push(Edge { lo: e as u8, hi: (e >> 8) as u8, act: (e >> 16) as u16, target });
    }
    for _ in 0..refs {
        let (callee, args, act, target) = (r.word()?, r.word()?, narrow(r.word()?)?, r.word()?);
        s.refs.push(RefEdge { callee, args, act, target });
    }
    for _ in 0..tokens {
        let (token, act, target) = (r.word()?, narrow(r.word()?)?, r.word()?);
        s.tokens.push(TokenEdge { token, act, target });
    }
    Ok(s)
}

fn read_keys(r: &mut Reader<'_>) -> Read<Option<KeyRegister>> {
    let order = match r.word()? {
        0 => return Ok(None),
        1 => PropertyOrder::Declared,
        2 => PropertyOrder::Any,
        _ => return Err(Malformed("an unknown order of properties")),
    };
    let keys = r.word()?;
    if keys > MOST_KEYS {
        return Err(Malformed("it has too many keys"));
    }
    let open = match r.word()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed("a flag is neither 0 nor 1")),
    };
    let list = |r: &mut Reader<'_>| -> Read<Vec<u32>> {
        let n = r.len(4)?;
        let v: Vec<u32> = r.words(n)?.collect();
        if v.windows(2).any(|w| w[0] >= w[1]) || v.last().is_some_and(|&k| k >= keys) {
            return Err(Malformed("a list of keys is not sorted, or names one that does not exist"));
        }
        Ok(v)
    };
    let required = list(r)?;
    let masks = (0..r.len(4)?).map(|_| list(r)).collect::<Read<Vec<_>>>()?;
    Ok(Some(KeyRegister { order, keys, required, open, masks }))
}

/// Edges of a tail carry no acts: its digest does not cover them.
pub(super) fn is_plain(fsm: &Fsm) -> bool {
    fsm.keys.is_none()
        && fsm.acts.len() == 1
        && fsm.states.iter().all(|s| {
            s.fallback == NONE
                && s.tokens.is_empty()
                && (s.accept == REJECT || s.accept == PLAIN)
                && s.edges.iter().all(|e| e.act == PLAIN)
                && s.refs.iter().all(|e| e.act == PLAIN)
        })
}
