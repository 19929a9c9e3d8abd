//! Warmth: the entries of the units that every schema shares, and entries on disk.
//!
//! An entries file holds the mask entries and families of shared units for one tokenizer. Header: magic, format version,
//! the tokenizer's fingerprint, BLAKE3 of what follows. Then records: a kind, the unit's digest, its state, the register
//! class, the value. A file of another tokenizer or version, or a damaged one, is refused whole.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gramary_compiler::entry::codec::{Damaged, Reader, Writer};
use gramary_compiler::entry::{Entry, Family};
use gramary_compiler::machine::Machine;
use gramary_compiler::program::Program;
use gramary_compiler::unit::Digest;
use gramary_compiler::{CompileError, Limits, FORMAT_VERSION};
use smallvec::SmallVec;

use crate::ahead;
use crate::engine::{Engine, SchemaOptions, Source};
use crate::tokens::Loaded;

const MAGIC: &[u8; 8] = b"gramENT\0";

/// Schemas whose units nearly every other schema uses: plain values, and properties that hold them.
const COMMON: [&[u8]; 4] = [
    b"{}",
    br#"{"type":"object"}"#,
    br#"{"properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"number"},"d":{"type":"boolean"},
        "e":{"type":"array","items":{"type":"string"}},"f":{"type":"object"},"g":{"type":"array"},"h":{}},
        "additionalProperties":{"type":"string"}}"#,
    br#"{"properties":{"a":{"type":"string"}}}"#,
];

/// Formats that schemas name most; their automata and entries are the dearest of all.
const FORMATS: [&str; 10] =
    ["date-time", "date", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uuid"];

impl Engine {
    /// Build the entries of the shared units and keep them for good; returns how many there are.
    pub fn prewarm(&self) -> Result<usize, CompileError> {
        // Starts the threads.
        ahead::spawn(|| ());
        let limits = Limits::default();
        let mut built = 0;
        let formats: Vec<String> = FORMATS.iter().map(|f| format!(r#"{{"type":"string","format":"{f}"}}"#)).collect();
        for any_order in [false, true] {
            let formats = formats.iter().map(|f| f.as_bytes()).filter(|_| !any_order);
            for text in COMMON.into_iter().chain(formats) {
                let source = Source::Schema(SchemaOptions { any_order, ..SchemaOptions::default() });
                let compiled = self.artifact(&source, text, &limits)?;
                let program = Arc::new(Program::of(&self.store, compiled.artifact.clone()));
                let mut machine = Machine::new(program, limits.items_per_set, self.tokens.reach());
                for &id in &compiled.artifact.nodes {
                    built += self.build_node(&mut machine, id);
                }
                self.pin(compiled);
            }
        }
        Ok(built)
    }

    /// Write the entries of all shared units; returns how many.
    pub fn save_entries(&self, path: &Path) -> io::Result<usize> {
        let mut w = Writer::naming(&self.tokens.masks.runs);
        let mut count = 0;
        let mut record = |w: &mut Writer, kind: u32, digest: &Digest, state: u32, regs: &[u32]| {
            w.u32(kind);
            w.0.extend_from_slice(digest);
            w.u32(state);
            w.words(regs);
            count += 1;
        };
        for (_, node) in self.store.nodes() {
            let unit = &node.unit;
            for ((state, regs), entry) in unit.cache.entries().iter() {
                // Entries of a family are read off it in microseconds.
                if entry.bounds.is_none() {
                    record(&mut w, 0, &unit.digest, *state, regs);
                    entry.write(&mut w);
                }
            }
            for (state, family) in unit.cache.families().iter() {
                if let Some(family) = family {
                    record(&mut w, 1, &unit.digest, *state, &[]);
                    family.write(&mut w);
                }
            }
        }
        let mut file = Vec::with_capacity(w.0.len() + 80);
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        file.extend_from_slice(&self.tokens.vocab.fingerprint());
        file.extend_from_slice(blake3_of(&w.0).as_slice());
        file.extend_from_slice(&w.0);
        // At any moment there is the old file or the whole new one.
        let temporary = path.with_extension(format!("tmp{}", std::process::id()));
        std::fs::write(&temporary, &file)?;
        std::fs::rename(&temporary, path).inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })?;
        Ok(count)
    }

    /// Read entries written by [`Engine::save_entries`]; returns how many.
    pub fn load_entries(&self, path: &Path) -> io::Result<usize> {
        let file = std::fs::read(path)?;
        let loaded = self.parse_entries(&file).map_err(|Damaged(why)| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} is not an entries file for this tokenizer: {why}; delete it", path.display()),
            )
        })?;
        let count = loaded.entries.len() + loaded.families.len();
        let mut all = self.tokens.loaded.write();
        all.entries.extend(loaded.entries);
        all.families.extend(loaded.families);
        Ok(count)
    }

    /// Check and decode the bytes of an entries file.
    pub fn parse_entries(&self, file: &[u8]) -> Result<Loaded, Damaged> {
        let vocab = &self.tokens.vocab;
        let mut r = Reader::naming(file, &self.tokens.masks.runs, vocab);
        if r.take(8)? != MAGIC {
            return Err(Damaged("it does not begin like one"));
        }
        if r.u32()? != FORMAT_VERSION {
            return Err(Damaged("it was written by another version"));
        }
        if r.take(32)? != vocab.fingerprint() {
            return Err(Damaged("it belongs to another tokenizer"));
        }
        let checksum = r.take(32)?;
        if checksum != blake3_of(&file[76..]).as_slice() {
            return Err(Damaged("its checksum does not match"));
        }
        let mut loaded = Loaded::default();
        while !r.is_empty() {
            let kind = r.u32()?;
            let digest: Digest = r.take(32)?.try_into().map_err(|_| Damaged("a digest has the wrong length"))?;
            let state = r.u32()?;
            let regs = SmallVec::from_vec(r.words()?);
            match kind {
                0 => {
                    loaded.entries.insert((digest, (state, regs)), Arc::new(Entry::read(&mut r)?));
                }
                1 => {
                    loaded.families.insert((digest, state), Arc::new(Family::read(&mut r)?));
                }
                _ => return Err(Damaged("a record of an unknown kind")),
            }
        }
        Ok(loaded)
    }
}

fn blake3_of(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}
