//! Sharing with other processes: compiled sources and mask entries go out as bytes and come in as bytes.
//!
//! What comes in is never trusted further than it can be checked. Units are checked in structure whenever they are read,
//! and were checked against their digests by whoever took them from outside. Entries are only *offered*: they lie as bytes
//! until their state is reached, and are then decoded with every number checked; one that is damaged or does not fit its
//! unit is dropped, counted, and built here instead.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use gramary_compiler::entry::codec::{Damaged, Reader, Writer};
use gramary_compiler::entry::{Entry, Family, TokenSet, VocabMasks};
use gramary_compiler::exchange::{Exported, TakeOver};
use gramary_compiler::flat::{FlatUnit, Malformed, Manifest, What};
use gramary_compiler::fsm::UNBOUNDED;
use gramary_compiler::machine::Machine;
use gramary_compiler::program::Program;
use gramary_compiler::unit::{Digest, EntryKey, Link, Unit};
use gramary_compiler::Limits;
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::engine::{Compiled, Engine, Source};
use crate::tokens::Tokens;

/// Which entry of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Of a state and register class.
    Entry(u32, SmallVec<[u32; 4]>),
    /// Of a state, for all values of its counter.
    Family(u32),
}

/// Slots longer than this are not shared: a register class of some hundred keys is seldom met twice.
const MOST_SLOT: usize = 64;

impl Slot {
    /// Kind, state, register words; at most 64 bytes.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let (kind, state, regs) = match self {
            Slot::Entry(state, regs) => (0, *state, &regs[..]),
            Slot::Family(state) => (1, *state, &[][..]),
        };
        let mut out = vec![kind];
        // Big-endian, so that a unit's slots sort by state.
        out.extend(state.to_be_bytes());
        regs.iter().for_each(|r| out.extend(r.to_be_bytes()));
        (out.len() <= MOST_SLOT).then_some(out)
    }

    pub fn parse(bytes: &[u8]) -> Option<Slot> {
        let (&kind, rest) = bytes.split_first()?;
        if bytes.len() > MOST_SLOT || rest.len() % 4 != 0 {
            return None;
        }
        let mut words = rest.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        let state = words.next()?;
        match (kind, rest.len()) {
            (0, _) => Some(Slot::Entry(state, words.collect())),
            (1, 4) => Some(Slot::Family(state)),
            _ => None,
        }
    }
}

/// An entry on its way to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Digest of the unit.
    pub unit: Digest,
    pub slot: Vec<u8>,
    pub data: Vec<u8>,
    /// Nanoseconds that building it took; 0 if it was not built here.
    pub cost: u64,
}

/// The entries of one unit, as bytes.
type Shard = FxHashMap<Slot, Box<[u8]>>;

/// Entries offered by others.
#[derive(Debug, Default)]
pub struct Offers {
    by_unit: RwLock<FxHashMap<Digest, Shard>>,
    bytes: AtomicUsize,
    pub taken: AtomicU64,
    pub refused: AtomicU64,
}

/// Bytes of offers kept; beyond, all are dropped, and what is needed is built.
const MOST_OFFERED: usize = 512 << 20;

impl Offers {
    /// Keep an entry until it is needed; `false` if its slot is none.
    pub fn put(&self, unit: Digest, slot: &[u8], data: &[u8]) -> bool {
        let Some(slot) = Slot::parse(slot) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let mut by_unit = self.by_unit.write();
        if self.bytes.load(Ordering::Relaxed) + data.len() > MOST_OFFERED {
            by_unit.clear();
            self.bytes.store(0, Ordering::Relaxed);
        }
        self.bytes.fetch_add(data.len() + 160, Ordering::Relaxed);
        if let Some(old) = by_unit.entry(unit).or_default().insert(slot, data.into()) {
            self.bytes.fetch_sub(old.len() + 160, Ordering::Relaxed);
        }
        true
    }

    fn take(&self, unit: &Digest, slot: &Slot) -> Option<Box<[u8]>> {
        self.by_unit.read().get(unit)?.get(slot)?;
        let mut by_unit = self.by_unit.write();
        let offers = by_unit.get_mut(unit)?;
        let data = offers.remove(slot)?;
        if offers.is_empty() {
            by_unit.remove(unit);
        }
        self.bytes.fetch_sub(data.len() + 160, Ordering::Relaxed);
        Some(data)
    }

    fn judge<T>(&self, read: Option<T>) -> Option<Arc<T>> {
        let counter = if read.is_some() { &self.taken } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        read.map(Arc::new)
    }

    pub(crate) fn entry(
        &self,
        tokens: &Tokens,
        unit: &Unit,
        state: u32,
        regs: &SmallVec<[u32; 4]>,
    ) -> Option<Arc<Entry>> {
        let data = self.take(&unit.digest, &Slot::Entry(state, regs.clone()))?;
        self.judge(read_entry(tokens, unit, &data).ok())
    }

    pub(crate) fn family(&self, tokens: &Tokens, unit: &Unit, state: u32) -> Option<Arc<Family>> {
        let data = self.take(&unit.digest, &Slot::Family(state))?;
        self.judge(read_family(tokens, &data).ok())
    }
}

fn read_entry(tokens: &Tokens, unit: &Unit, data: &[u8]) -> Result<Entry, Damaged> {
    let mut r = Reader::naming(data, &tokens.masks.runs, &tokens.vocab);
    let entry = Entry::read(&mut r)?;
    // Entries of a family are read off it and never shared.
    if !r.is_empty() || entry.bounds.is_some() || !entry.fits(unit) {
        return Err(Damaged("it does not fit its unit"));
    }
    Ok(entry)
}

fn read_family(tokens: &Tokens, data: &[u8]) -> Result<Family, Damaged> {
    let mut r = Reader::naming(data, &tokens.masks.runs, &tokens.vocab);
    let family = Family::read(&mut r)?;
    if r.is_empty() {
        Ok(family)
    } else {
        Err(Damaged("something follows its end"))
    }
}

/// Names of entries that were built in this process.
#[derive(Debug, Default)]
pub struct Recorder {
    most: AtomicUsize,
    list: Mutex<VecDeque<(Weak<Unit>, Slot)>>,
}

impl Recorder {
    pub fn keep(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.list.lock().truncate(most);
    }

    pub(crate) fn note(&self, unit: &Arc<Unit>, slot: Slot) {
        let most = self.most.load(Ordering::Relaxed);
        if most == 0 || unit.local {
            return;
        }
        let mut list = self.list.lock();
        // What nobody fetches is forgotten, oldest first.
        while list.len() >= most {
            list.pop_front();
        }
        list.push_back((Arc::downgrade(unit), slot));
    }

    fn take(&self) -> Vec<(Weak<Unit>, Slot)> {
        self.list.lock().drain(..).collect()
    }
}

impl Tokens {
    /// An entry of a unit's cache as bytes.
    fn write(&self, unit: &Unit, slot: &Slot) -> Option<Shared> {
        let mut w = Writer::naming(&self.masks.runs);
        let cost = match slot {
            Slot::Entry(state, regs) => {
                let key: EntryKey = (*state, regs.clone());
                let entry = unit.cache.entries().get(&key).cloned().filter(|e| e.bounds.is_none())?;
                entry.write(&mut w);
                entry.cost
            }
            Slot::Family(state) => {
                let family = unit.cache.families().get(state).cloned().flatten()?;
                family.write(&mut w);
                family.cost
            }
        };
        Some(Shared { unit: unit.digest, slot: slot.to_bytes()?, data: w.0, cost })
    }

    /// Every entry of a unit's cache.
    fn write_all(&self, unit: &Unit) -> Vec<Shared> {
        let entries: Vec<Slot> = unit.cache.entries().keys().map(|(q, regs)| Slot::Entry(*q, regs.clone())).collect();
        let families: Vec<Slot> = unit.cache.families().keys().map(|&q| Slot::Family(q)).collect();
        let mut all: Vec<Shared> = entries.iter().chain(&families).filter_map(|slot| self.write(unit, slot)).collect();
        all.sort_by(|a, b| a.slot.cmp(&b.slot));
        all
    }

    /// Take the entries built since the last call.
    pub fn take_recorded(&self) -> Vec<Shared> {
        let built = self.recorded.take();
        built.iter().filter_map(|(unit, slot)| self.write(unit.upgrade()?.as_ref(), slot)).collect()
    }
}

/// Why a compiled source could not be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    #[error("manifest: {0}")]
    Manifest(#[from] Malformed),
    #[error(transparent)]
    Units(#[from] TakeOver),
}

impl Engine {
    /// Manifest and units of a source in memory.
    pub fn export(&self, compiled: &Compiled) -> (Manifest, Vec<Exported>) {
        let (mut manifest, units) = self.store.export(&compiled.artifact);
        manifest.warnings = compiled.warnings.clone();
        (manifest, units)
    }

    /// Digests of the units of these manifests that are not in memory.
    pub fn missing_units(&self, manifests: &[Manifest]) -> Vec<Digest> {
        let mut seen = FxHashSet::default();
        let all = manifests.iter().flat_map(|m| &m.units);
        all.filter(|d| seen.insert(**d) && self.store.by_digest(d).is_none()).copied().collect()
    }

    /// Take over a compiled source.
    pub fn install(
        &self,
        source: &Source,
        text: &[u8],
        manifest: &Manifest,
        units: &FxHashMap<Digest, &[u8]>,
    ) -> Result<Arc<Compiled>, InstallError> {
        let artifact = Arc::new(self.store.take_over(manifest, units)?);
        let compiled = Arc::new(Compiled { artifact, warnings: manifest.warnings.clone() });
        self.remember(source, text, &compiled);
        Ok(compiled)
    }

    /// Take over a compiled source whose text is not known yet, only its key: a process that starts has yesterday's sources
    /// at hand this way.
    pub fn install_ahead(
        &self,
        key: Digest,
        manifest: &Manifest,
        units: &FxHashMap<Digest, &[u8]>,
    ) -> Result<(), InstallError> {
        let artifact = Arc::new(self.store.take_over(manifest, units)?);
        self.remember_ahead(key, Arc::new(Compiled { artifact, warnings: manifest.warnings.clone() }));
        Ok(())
    }

    /// Entries in memory of the units with these digests, by unit and slot.
    pub fn export_entries(&self, units: &[Digest]) -> Vec<Shared> {
        units.iter().filter_map(|d| self.store.by_digest(d)).flat_map(|n| self.tokens.write_all(&n.unit)).collect()
    }

    /// Build the entries of the units `wanted`, given with all that they refer to, and return those that took at least
    /// `min_cost` nanoseconds (families always). What is in memory already is not built again, but returned.
    ///
    /// States of units with key registers are left out: which classes occur depends on documents.
    pub fn build_entries(
        &self,
        closure: &FxHashMap<Digest, &[u8]>,
        wanted: &[Digest],
        min_cost: u64,
        limits: &Limits,
    ) -> Result<Vec<Shared>, InstallError> {
        let manifest = self.closure(closure.keys().chain(wanted), closure);
        let artifact = Arc::new(self.store.take_over(&manifest, closure)?);
        let program = Arc::new(Program::of(&self.store, artifact));
        let mut machine = Machine::new(program, limits.items_per_set, self.tokens.reach());
        let mut all = vec![];
        for digest in wanted {
            // A tail whose object is not given has nothing to be found in.
            let Some(id) = self.store.id_of(digest) else { continue };
            self.build_node(&mut machine, id);
            machine.clear();
            all.extend(self.export_entries(&[*digest]).into_iter().filter(|s| s.cost >= min_cost || s.slot[0] == 1));
        }
        Ok(all)
    }

    /// Build the entries of a node's states whose class is known.
    pub(crate) fn build_node(&self, machine: &mut Machine, id: u32) -> usize {
        let node = machine.bind(Link::Store(id));
        let unit = machine.unit(node).clone();
        let mut built = 0;
        for state in 0..unit.states() as u32 {
            if unit.layout.words() == 0 {
                self.tokens.entry_ahead(machine, node, state, 0);
                built += 1;
            } else if self.tokens.family(&unit, state).is_some() {
                // Without bounds: the class of nearly every string.
                let regs = machine.intern_regs(&[0, UNBOUNDED]);
                self.tokens.entry_ahead(machine, node, state, regs);
                built += 1;
            }
        }
        built
    }

    /// Build an entry again and compare what it allows; `None` if its unit is not in memory.
    pub fn verify_entry(&self, unit: &Digest, slot: &[u8], data: &[u8]) -> Option<bool> {
        let node = self.store.by_digest(unit)?;
        let Some(slot) = Slot::parse(slot) else { return Some(false) };
        let unit = &node.unit;
        match slot {
            Slot::Family(state) => {
                if state as usize >= unit.states() {
                    return Some(false);
                }
                let Ok(given) = read_family(&self.tokens, data) else { return Some(false) };
                let built = Family::build(unit, state, &self.tokens.vocab, &self.tokens.masks);
                Some(built.is_some_and(|mut b| {
                    b.cost = 0;
                    b == given
                }))
            }
            Slot::Entry(state, regs) => {
                if state as usize >= unit.states() || (!regs.is_empty() && regs.len() != unit.layout.words()) {
                    return Some(false);
                }
                let Ok(given) = read_entry(&self.tokens, unit, data) else { return Some(false) };
                let artifact = Arc::new(self.store.hold(&node.digest)?);
                let link = Link::Store(self.store.id_of(&node.digest)?);
                let program = Arc::new(Program::of(&self.store, artifact));
                let mut machine = Machine::new(program, Limits::default().items_per_set, self.tokens.reach());
                let bound = machine.bind(link);
                let regs = machine.intern_regs(&regs);
                let built = self.tokens.build(&mut machine, bound, state, regs);
                Some(same(&built, &given, &self.tokens.masks))
            }
        }
    }

    /// The same for a unit that is given with all that it refers to, as far as memory has it not. The unit is in memory
    /// no longer than this takes.
    pub fn verify_entry_of(
        &self,
        closure: &FxHashMap<Digest, &[u8]>,
        unit: &Digest,
        slot: &[u8],
        data: &[u8],
    ) -> Option<bool> {
        // A tail that refers to nothing cannot be taken over by itself, but may be here.
        let held = self.store.hold(unit).or_else(|| {
            let manifest = self.closure(std::iter::once(unit), closure);
            self.store.take_over(&manifest, closure).ok()
        })?;
        let verdict = self.verify_entry(unit, slot, data);
        drop(held);
        verdict
    }

    /// A manifest of everything that `roots` reach: as it is given, or else as it is in memory.
    fn closure<'a>(&self, roots: impl Iterator<Item = &'a Digest>, given: &FxHashMap<Digest, &[u8]>) -> Manifest {
        let mut units = vec![];
        let mut root = None;
        let mut seen = FxHashSet::default();
        let mut work: Vec<Digest> = roots.copied().collect();
        work.sort_unstable();
        while let Some(d) = work.pop() {
            if !seen.insert(d) {
                continue;
            }
            units.push(d);
            if let Some(node) = self.store.by_digest(&d) {
                root = root.or(Some(d).filter(|_| !node.unit.tail));
                let links = node.links.iter().filter_map(|l| match l {
                    Link::Store(id) => Some(*id),
                    Link::Local(_) => None,
                });
                work.extend(links.chain(node.holes.iter().copied()).filter_map(|id| Some(self.store.node(id)?.digest)));
            } else if let Some(flat) = given.get(&d).and_then(|b| FlatUnit::parse(b).ok()) {
                root = root.or(Some(d).filter(|_| flat.what == What::Rule));
                work.extend(flat.callees);
                work.extend(flat.holes);
            }
        }
        Manifest { root: root.unwrap_or_default(), units, ..Manifest::default() }
    }
}

/// Whether two entries allow the same, whatever the form of their token sets.
fn same(a: &Entry, b: &Entry, masks: &VocabMasks) -> bool {
    let words = |s: &TokenSet| s.to_words(masks);
    let sorted = |v: &[u32]| {
        let mut v = v.to_vec();
        v.sort_unstable();
        v
    };
    a.base == b.base
        && sorted(&a.removed) == sorted(&b.removed)
        && sorted(&a.special) == sorted(&b.special)
        && a.exits == b.exits
        && a.bounds == b.bounds
        && words(&a.accepted) == words(&b.accepted)
}
