//! The parse table of one compiled grammar: the machine's sets and, per mask class, the recipe of its mask.
//!
//! A recipe is a few entries and the extra tokens that their remainders yield in this context (R8). Recipes with equal
//! parts are one; those that are dear to put together keep the finished mask. A repeat visit costs a copy.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use gramary_compiler::entry::{onward, Entry, Exit, ExitTo, TokenSet};
use gramary_compiler::machine::{Item, Machine, DONE, LEFT, TOP};
use gramary_compiler::program::Program;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bounds;
use crate::counted::CountedText;
use crate::distinct::{Endings, Spot};
use crate::tokens::Tokens;

impl Drop for Table {
    fn drop(&mut self) {
        self.tokens.keep_spare(&mut self.machine);
        self.tokens.keep_spare(&mut self.scratch);
    }
}

/// How the mask of a class is put together.
#[derive(Debug)]
struct Recipe {
    /// Begin with this recipe's mask, without the tokens that the (then only) entry removes.
    base: Option<u32>,
    entries: SmallVec<[u32; 2]>,
    extras: Box<[u32]>,
    /// The finished mask, where composing it costs more than a copy.
    mask: Option<Box<[u32]>>,
}

/// What a recipe is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Parts {
    base: Option<u32>,
    entries: SmallVec<[u32; 2]>,
    extras: Vec<u32>,
}

/// More single bits than this to set, and the finished mask is kept.
const KEEP_ABOVE: usize = 800;
const UNKNOWN: u32 = u32::MAX;

/// The table that all matchers of one grammar share.
#[derive(Debug)]
pub struct Table {
    pub machine: Machine,
    /// Where entries are built. Its sets are of no use to the requests' own, and there are many.
    scratch: Machine,
    tokens: Arc<Tokens>,
    recipes: Vec<Recipe>,
    by_parts: FxHashMap<Parts, u32>,
    recipe_of: Vec<u32>,
    entries: Vec<Arc<Entry>>,
    entry_of: FxHashMap<(u32, u32, u32), u32>,
    /// By node and a remainder's address; the entries whose exits have those are in `entries`.
    onward_of: FxHashMap<(u32, usize), u32>,
    bytes: usize,
    /// Where each set stands among tags, as the matcher encodes it; [`UNKNOWN`] until somebody asks.
    places: Vec<AtomicU32>,
    /// How far sets beyond a bound are from a way out; see [`bounds::way_out`]. By set, and whether the kind is digits.
    ways_out: FxHashMap<(u32, bool), Option<u32>>,
    /// Sets whose items in some text have been moved to its end, by set and number of the text.
    closed: FxHashMap<(u32, u8), u32>,
    endings: Endings,
}

impl Table {
    pub fn new(program: Arc<Program>, tokens: Arc<Tokens>, items_per_set: usize) -> Table {
        let machine = Machine::reusing(tokens.take_spare(), program.clone(), items_per_set, tokens.reach());
        let scratch = Machine::reusing(tokens.take_spare(), program, items_per_set, tokens.reach());
        Table {
            machine,
            scratch,
            tokens,
            recipes: vec![],
            by_parts: FxHashMap::default(),
            recipe_of: vec![],
            entries: vec![],
            entry_of: FxHashMap::default(),
            onward_of: FxHashMap::default(),
            bytes: 0,
            places: vec![],
            ways_out: FxHashMap::default(),
            closed: FxHashMap::default(),
            endings: Endings::default(),
        }
    }

    /// The known recipe of a set.
    #[inline]
    pub fn recipe(&self, set: u32) -> Option<u32> {
        self.recipe_of.get(set as usize).copied().filter(|&r| r != UNKNOWN)
    }

    /// The recipe of a set, worked out if need be.
    pub fn find_recipe(&mut self, set: u32) -> u32 {
        if let Some(r) = self.recipe(set) {
            return r;
        }
        let class = self.machine.class_of(set);
        let recipe = match self.recipe(class) {
            Some(r) => r,
            None => {
                let r = self.work_out(class);
                self.note(class, r);
                r
            }
        };
        self.note(set, recipe);
        recipe
    }

    fn note(&mut self, set: u32, recipe: u32) {
        let at = set as usize;
        if self.recipe_of.len() <= at {
            let len = (at + 1).max(self.machine.len());
            self.recipe_of.resize(len, UNKNOWN);
        }
        self.recipe_of[at] = recipe;
    }

    fn work_out(&mut self, class: u32) -> u32 {
        let mut work: SmallVec<[Item; 8]> = self.machine.kernel(class).iter().copied().collect();
        work.retain(|i| *i != DONE && *i != LEFT);
        let mut parts = Parts::default();
        // Items whose mask is a difference are worked out each by itself.
        let mut differences: SmallVec<[u32; 2]> = SmallVec::new();
        let mut at = 0;
        while at < work.len() {
            let item = work[at];
            at += 1;
            if self.machine.at_hole(item) {
                for mut start in self.machine.hole_starts(item) {
                    start.regs = self.machine.clamp_regs(start.node, start.regs);
                    if !work.contains(&start) {
                        work.push(start);
                    }
                }
            }
            let id = self.entry(item);
            match self.entries[id as usize].base {
                None => self.add(item, id, &mut parts),
                Some(base) => {
                    let based = self.machine.based(item, base);
                    let mut difference = Parts { base: Some(self.find_recipe(based)), ..Parts::default() };
                    self.add(item, id, &mut difference);
                    differences.push(self.recipe_for(difference));
                }
            }
        }
        match differences.as_slice() {
            [] => self.recipe_for(parts),
            &[only] if parts.entries.is_empty() => only,
            _ => {
                let rest = self.recipe_for(parts);
                let mut mask = vec![0u32; self.tokens.masks.words].into_boxed_slice();
                self.write(rest, &mut mask);
                let mut one = mask.clone();
                for d in differences {
                    self.write(d, &mut one);
                    mask.iter_mut().zip(one.iter()).for_each(|(m, o)| *m |= o);
                }
                self.bytes += 120 + mask.len() * 4;
                let (entries, extras) = (SmallVec::new(), Box::default());
                self.recipes.push(Recipe { base: None, entries, extras, mask: Some(mask) });
                self.recipes.len() as u32 - 1
            }
        }
    }

    /// Add an item's entry and what its remainders yield here.
    fn add(&mut self, item: Item, id: u32, parts: &mut Parts) {
        if !parts.entries.contains(&id) {
            parts.entries.push(id);
        }
        let entry = self.entries[id as usize].clone();
        parts.extras.extend_from_slice(&entry.special);
        for exit in &entry.exits {
            let from = match &exit.to {
                // Nothing follows the root.
                ExitTo::Return if item.ret == TOP => continue,
                ExitTo::Return => self.machine.leave(item),
                ExitTo::Hole { state, regs } => {
                    let regs = self.machine.intern_regs(regs);
                    self.machine.set_of(Item { state: *state, regs, ..item })
                }
            };
            match self.onward(exit, from) {
                Some((item, id)) => self.add(item, id, parts),
                None => self.walk(exit, entry.bounds, from, &mut parts.extras),
            }
        }
    }

    /// The recipe of these parts: one that is known, or a new one.
    fn recipe_for(&mut self, mut parts: Parts) -> u32 {
        parts.entries.sort_unstable();
        parts.extras.sort_unstable();
        parts.extras.dedup();
        if let Some(&known) = self.by_parts.get(&parts) {
            return known;
        }
        let loose = parts.extras.len()
            + parts
                .entries
                .iter()
                .map(|&e| {
                    let entry = &self.entries[e as usize];
                    entry.removed.len()
                        + match &entry.accepted {
                            TokenSet::Accepted(v) | TokenSet::Rejected(v) | TokenSet::Shared(_, v) => v.len(),
                            TokenSet::Dense(_) => 0,
                        }
                })
                .sum::<usize>()
            // A base is composed, too, unless it is kept.
            + parts.base.map_or(0, |b| self.recipes[b as usize].extras.len());
        let mut recipe = Recipe {
            base: parts.base,
            entries: parts.entries.clone(),
            extras: parts.extras.as_slice().into(),
            mask: None,
        };
        self.bytes += 160 + 8 * recipe.extras.len();
        if loose > KEEP_ABOVE {
            let mut mask = vec![0u32; self.tokens.masks.words].into_boxed_slice();
            self.compose(&recipe, &mut mask);
            self.bytes += mask.len() * 4;
            recipe.mask = Some(mask);
        }
        self.recipes.push(recipe);
        let id = self.recipes.len() as u32 - 1;
        self.by_parts.insert(parts, id);
        id
    }

    fn entry(&mut self, item: Item) -> u32 {
        let key = (item.node, item.state, item.regs);
        if let Some(&id) = self.entry_of.get(&key) {
            return id;
        }
        let unit = self.machine.unit(item.node).clone();
        let entry = match self.tokens.known(&unit, item.state, self.machine.regs(item.regs)) {
            Some(entry) => entry,
            None => {
                let link = self.machine.link(item.node);
                let node = link.map_or(item.node, |link| self.scratch.bind(link));
                let regs = self.scratch.intern_regs(self.machine.regs(item.regs));
                let entry = self.tokens.entry(&mut self.scratch, node, item.state, regs);
                self.scratch.clear();
                entry
            }
        };
        self.entries.push(entry);
        let id = self.entries.len() as u32 - 1;
        self.entry_of.insert(key, id);
        id
    }

    /// Collect the tokens whose remainder the context takes.
    fn walk(&mut self, exit: &Exit, bounds: Option<(u32, u32)>, from: u32, extras: &mut Vec<u32>) {
        let rest = &*exit.rest;
        rest.walk(&mut self.machine, from, |_, i, _| match bounds {
            Some((need, room)) if !rest.ticks.is_empty() => {
                extras.extend(rest.own(i).filter_map(|k| {
                    let ticks = rest.ticks[k] as u32;
                    (need <= ticks && ticks <= room).then_some(rest.tokens[k])
                }));
            }
            _ => extras.extend_from_slice(&rest.tokens[rest.own(i)]),
        });
    }

    /// The entry of what a tail takes of an exit's tokens, if the exit leads to the beginning of one and nothing else, and
    /// the item there.
    fn onward(&mut self, exit: &Exit, from: u32) -> Option<(Item, u32)> {
        let &[item] = self.machine.kernel(from) else { return None };
        self.machine.plain_return(item)?;
        if item.state != 0 || item.regs != 0 || !exit.rest.ticks.is_empty() {
            return None;
        }
        let key = (item.node, Arc::as_ptr(&exit.rest) as usize);
        if let Some(&id) = self.onward_of.get(&key) {
            return Some((item, id));
        }
        let unit = self.machine.unit(item.node).clone();
        let link = self.machine.link(item.node).filter(|_| unit.tail)?;
        let entry = unit.cache.onward(&exit.rest, || {
            let node = self.scratch.bind(link);
            let entry = onward::build(&mut self.scratch, &self.tokens.vocab, node, &exit.rest);
            self.scratch.clear();
            entry
        })?;
        self.entries.push(entry);
        let id = self.entries.len() as u32 - 1;
        self.onward_of.insert(key, id);
        Some((item, id))
    }

    /// Write a recipe's mask over the vocabulary's words; the rest of `out` (padding of the model) becomes 0.
    #[inline]
    pub fn write(&self, recipe: u32, out: &mut [u32]) {
        let words = self.tokens.masks.words.min(out.len());
        let (head, tail) = out.split_at_mut(words);
        tail.fill(0);
        let recipe = &self.recipes[recipe as usize];
        match &recipe.mask {
            Some(mask) => head.copy_from_slice(&mask[..words]),
            None => self.compose(recipe, head),
        }
    }

    fn compose(&self, recipe: &Recipe, out: &mut [u32]) {
        let mut begun = false;
        if let Some(base) = recipe.base {
            self.write(base, out);
            for &e in &recipe.entries {
                let removed = &self.entries[e as usize].removed;
                removed.iter().for_each(|&t| out[t as usize / 32] &= !(1 << (t % 32)));
            }
            begun = true;
        }
        for &e in &recipe.entries {
            let entry = &self.entries[e as usize];
            match &entry.accepted {
                TokenSet::Dense(words) if begun => out.iter_mut().zip(words.iter()).for_each(|(o, w)| *o |= w),
                TokenSet::Dense(words) => out.copy_from_slice(&words[..out.len()]),
                TokenSet::Shared(words, _) if begun => out.iter_mut().zip(words.iter()).for_each(|(o, w)| *o |= w),
                TokenSet::Shared(words, _) => out.copy_from_slice(&words[..out.len()]),
                TokenSet::Rejected(ids) if begun => {
                    // Everything but the rejected tokens is allowed; those stay as they are.
                    let kept: SmallVec<[bool; 64]> =
                        ids.iter().map(|&t| out[t as usize / 32] >> (t % 32) & 1 == 1).collect();
                    out.iter_mut().zip(self.tokens.masks.text.iter()).for_each(|(o, w)| *o |= w);
                    for (&t, _) in ids.iter().zip(kept).filter(|(_, kept)| !kept) {
                        out[t as usize / 32] &= !(1 << (t % 32));
                    }
                }
                TokenSet::Rejected(ids) => {
                    out.copy_from_slice(&self.tokens.masks.text[..out.len()]);
                    ids.iter().for_each(|&t| out[t as usize / 32] &= !(1 << (t % 32)));
                }
                TokenSet::Accepted(_) => continue,
            }
            begun = true;
        }
        if !begun {
            out.fill(0);
        }
        for &e in &recipe.entries {
            if let TokenSet::Accepted(ids) | TokenSet::Shared(_, ids) = &self.entries[e as usize].accepted {
                ids.iter().for_each(|&t| out[t as usize / 32] |= 1 << (t % 32));
            }
        }
        recipe.extras.iter().for_each(|&t| out[t as usize / 32] |= 1 << (t % 32));
    }

    /// The place of a set, worked out by `find` on the first call for it. Works under the read lock: whoever races
    /// finds the same.
    #[inline]
    pub fn place(&self, set: u32, find: impl FnOnce() -> u32) -> u32 {
        let Some(slot) = self.places.get(set as usize) else { return find() };
        match slot.load(Ordering::Relaxed) {
            UNKNOWN => {
                let place = find();
                slot.store(place, Ordering::Relaxed);
                place
            }
            known => known,
        }
    }

    /// Make room for the places of all sets there are now.
    pub fn extend_places(&mut self) {
        self.places.resize_with(self.machine.len(), || AtomicU32::new(UNKNOWN));
    }

    /// Bytes held, entries (which belong to their units) not counted.
    pub fn size(&self) -> usize {
        self.machine.size()
            + self.scratch.size()
            + self.bytes
            + self.recipe_of.len() * 4
            + (self.entry_of.len() + self.onward_of.len()) * 24
            + self.places.len() * 4
            + self.ways_out.len() * 16
            + self.closed.len() * 16
            + self.endings.len() * 20
    }

    pub fn counts(&self) -> (usize, usize) {
        (self.recipes.len(), self.entries.len())
    }

    /// Start a new generation with only the given sets; see [`Machine::flush`].
    pub fn flush<'a>(&mut self, live: impl IntoIterator<Item = &'a mut u32>) {
        self.machine.flush(live);
        self.recipes = vec![];
        self.by_parts = FxHashMap::default();
        self.recipe_of = vec![];
        self.entries = vec![];
        self.entry_of = FxHashMap::default();
        self.onward_of = FxHashMap::default();
        self.bytes = 0;
        self.places = vec![];
        self.ways_out = FxHashMap::default();
        self.closed = FxHashMap::default();
        self.endings = Endings::default();
    }

    /// The set in which text `number` must end, if it is known.
    pub(crate) fn closed(&self, set: u32, number: u8) -> Option<u32> {
        self.closed.get(&(set, number)).copied()
    }

    /// The same, looking if need be.
    pub(crate) fn find_closed(&mut self, set: u32, number: u8, text: &CountedText) -> u32 {
        if let Some(known) = self.closed(set, number) {
            return known;
        }
        let found = self.machine.moved(set, text.link, &text.closing);
        self.closed.insert((set, number), found);
        found
    }

    /// The next byte on a short way to the end of an item, if it is known; inner `None`: it is too far.
    pub(crate) fn known_ending(&self, spot: Spot) -> Option<Option<u8>> {
        self.endings.known(spot)
    }

    /// The same, looking if need be.
    pub(crate) fn find_ending(&mut self, spot: Spot) -> Option<u8> {
        self.endings.find(&mut self.machine, spot)
    }

    /// How many bytes of a kind a set is away from something else; see [`bounds::way_out`].
    pub(crate) fn way_out(&mut self, set: u32, kind: fn(u8) -> bool) -> Option<u32> {
        let key = (set, kind(b'0'));
        if let Some(&known) = self.ways_out.get(&key) {
            return known;
        }
        let found = bounds::way_out(&mut self.machine, set, kind);
        self.ways_out.insert(key, found);
        found
    }
}
