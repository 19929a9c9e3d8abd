//! What all tables of one tokenizer share: its vocabulary, and where mask entries come from.
//!
//! An entry is in its unit's cache, or was read from disk, or was offered by others, or is built now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gramary_compiler::entry::{build, diff, Entry, Family, VocabMasks};
use gramary_compiler::machine::{Machine, Spare};
use gramary_compiler::unit::{Digest, EntryKey, Unit};
use gramary_compiler::vocab::Vocabulary;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bounds;
use crate::exchange::{Offers, Recorder, Slot};

/// The vocabulary with what masks need of it; one per tokenizer.
#[derive(Debug)]
pub struct Tokens {
    pub vocab: Vocabulary,
    pub masks: VocabMasks,
    /// What bounds look at.
    pub bounded: bounds::Runs,
    /// What grammars with distinct strings look at, once there is one.
    quoted: OnceLock<crate::distinct::Quoted>,
    pub hits: AtomicU64,
    pub builds: AtomicU64,
    /// Those of `builds` that no matcher was waiting for.
    pub builds_ahead: AtomicU64,
    /// What was read from disk, until a unit asks for it.
    pub loaded: RwLock<Loaded>,
    /// Entries that others built, as bytes, until they are needed.
    pub offered: Offers,
    /// Names of entries built here, for whoever shares them.
    pub recorded: Recorder,
    /// Memory of tables that are gone.
    spare: Mutex<Vec<Spare>>,
}

/// Tables kept for their memory, and how large one may be.
const MOST_SPARE: usize = 32;
const MOST_SPARE_BYTES: usize = 4 << 20;

/// Entries and families by their unit's digest and their key.
#[derive(Debug, Default)]
pub struct Loaded {
    pub entries: FxHashMap<(Digest, EntryKey), Arc<Entry>>,
    pub families: FxHashMap<(Digest, u32), Arc<Family>>,
}

impl Tokens {
    pub fn new(vocab: Vocabulary) -> Tokens {
        let masks = VocabMasks::of(&vocab);
        let bounded = bounds::Runs::of(&vocab);
        Tokens {
            bounded,
            quoted: OnceLock::new(),
            vocab,
            masks,
            hits: AtomicU64::new(0),
            builds: AtomicU64::new(0),
            builds_ahead: AtomicU64::new(0),
            loaded: RwLock::default(),
            offered: Offers::default(),
            recorded: Recorder::default(),
            spare: Mutex::default(),
        }
    }

    pub(crate) fn quoted(&self) -> &crate::distinct::Quoted {
        self.quoted.get_or_init(|| crate::distinct::Quoted::of(&self.vocab))
    }

    /// Memory of a table that is gone, if there is some.
    pub(crate) fn take_spare(&self) -> Spare {
        self.spare.lock().pop().unwrap_or_default()
    }

    /// Keep a machine's memory for the next one.
    pub(crate) fn keep_spare(&self, machine: &mut Machine) {
        if machine.size() > MOST_SPARE_BYTES {
            return;
        }
        let mut spare = self.spare.lock();
        if spare.len() < MOST_SPARE {
            spare.push(machine.take_spare());
        }
    }

    /// Longest token in bytes: how far one token can move a counter.
    pub fn reach(&self) -> u32 {
        self.vocab.max_token_len() as u32
    }

    /// The entry of a state and register class, if it is there.
    pub fn known(&self, unit: &Unit, state: u32, regs: &[u32]) -> Option<Arc<Entry>> {
        let found = unit.cache.entries().get(&(state, SmallVec::from_slice(regs))).cloned();
        if found.is_some() {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The entry of an item, from the unit's cache or built now. The item's registers must be clamped.
    pub fn entry(&self, machine: &mut Machine, node: u32, state: u32, regs: u32) -> Arc<Entry> {
        self.known_or_built(machine, node, state, regs).0
    }

    /// The same before anybody needs it.
    pub fn entry_ahead(&self, machine: &mut Machine, node: u32, state: u32, regs: u32) {
        if self.known_or_built(machine, node, state, regs).1 {
            self.builds_ahead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An entry, and whether it was built now.
    fn known_or_built(&self, machine: &mut Machine, node: u32, state: u32, regs: u32) -> (Arc<Entry>, bool) {
        let unit = machine.unit(node).clone();
        if let Some(entry) = self.known(&unit, state, machine.regs(regs)) {
            return (entry, false);
        }
        let key = (state, SmallVec::<[u32; 4]>::from_slice(machine.regs(regs)));
        if let Some(entry) = unit.cache.alike(&unit.layout, &key) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            self.recorded.note(&unit, Slot::Entry(state, key.1));
            return (entry, false);
        }
        let loaded = match unit.local {
            true => None,
            false => self.loaded.read().entries.get(&(unit.digest, key.clone())).cloned(),
        };
        let loaded = loaded.filter(|e| e.fits(&unit)).or_else(|| self.offered.entry(self, &unit, state, &key.1));
        let built = loaded.is_none();
        let entry = match loaded {
            Some(entry) => entry,
            None => {
                self.recorded.note(&unit, Slot::Entry(state, key.1.clone()));
                self.builds.fetch_add(1, Ordering::Relaxed);
                match self.family(&unit, state) {
                    Some(family) => {
                        Arc::new(family.entry(key.1.first().copied().unwrap_or(0), key.1.get(1).copied().unwrap_or(0)))
                    }
                    None => {
                        machine.watch(node, regs);
                        let entry = Arc::new(self.build(machine, node, state, regs));
                        if let Some(looked) = machine.looked().filter(|_| !entry.tells_registers()) {
                            unit.cache.note_built(&key, looked, &entry);
                        }
                        entry
                    }
                }
            }
        };
        (unit.cache.keep_entry(key, entry), built)
    }

    /// Build an entry that no family has.
    pub(crate) fn build(&self, machine: &mut Machine, node: u32, state: u32, regs: u32) -> Entry {
        let base = machine.unit(node).base_of(state);
        base.and_then(|b| diff::build(machine, &self.vocab, &self.masks, node, state, regs, b))
            .unwrap_or_else(|| build::build(machine, &self.vocab, &self.masks, node, state, regs))
    }

    /// The state's family, if one applies.
    pub fn family(&self, unit: &Arc<Unit>, state: u32) -> Option<Arc<Family>> {
        if unit.layout.counters != 1 {
            return None;
        }
        if let Some(known) = unit.cache.families().get(&state) {
            return known.clone();
        }
        let loaded = self.loaded.read().families.get(&(unit.digest, state)).cloned();
        let loaded = loaded.or_else(|| self.offered.family(self, unit, state));
        let family = loaded.or_else(|| {
            let built = Family::build(unit, state, &self.vocab, &self.masks).map(Arc::new);
            built.inspect(|_| self.recorded.note(unit, Slot::Family(state)))
        });
        unit.cache.keep_family(state, family)
    }
}
