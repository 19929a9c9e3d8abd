//! The compile service of one process and one tokenizer: sources in, grammars out, and the in-memory cross-grammar cache.
//!
//! Two things are kept. The *unit store* has every unit once, by digest, with its mask entries: whatever two sources have
//! in common is lowered into the same unit and masked once. The *source cache* maps a source's text to its artifact, so a
//! known text costs a look-up by content. Both go by least recent use within one byte budget; what a live grammar uses
//! stays until it goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use gramary_compiler::ebnf;
use gramary_compiler::fsm::ANY_TOKEN;
use gramary_compiler::ir;
use gramary_compiler::lower::cache::LoweringCache;
use gramary_compiler::lower::grammar::lower_with;
use gramary_compiler::program::{Artifact, Program, UnitStore};
use gramary_compiler::regex::{regex, Alphabet, Anchoring};
use gramary_compiler::schema;
use gramary_compiler::structural::format::Style;
use gramary_compiler::unit::Digest;
use gramary_compiler::vocab::TokenKind;
use gramary_compiler::{Budget, CompileError, Limits, Result};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::counted::CountedText;
use crate::grammar::{Grammar, TagMap};
use crate::structural::Skeletons;
use crate::tagging::{Frame, FrameUnit};
use crate::tokens::Tokens;

/// What a schema's text is compiled with; part of its cache key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchemaOptions {
    #[serde(skip_serializing_if = "is_default")]
    pub any_order: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub space: schema::Whitespace,
    #[serde(skip_serializing_if = "is_default")]
    pub lenient: bool,
    /// Most whitespace characters in a row.
    #[serde(skip_serializing_if = "is_default")]
    pub max_whitespace: Option<u32>,
    /// The draft, whatever `$schema` says.
    #[serde(skip_serializing_if = "is_default")]
    pub draft: Option<schema::Draft>,
    /// Other documents as one JSON object, by their URIs; empty: none.
    #[serde(skip_serializing_if = "is_default")]
    pub registry: String,
}

/// Options are written without those that have their default: a new one leaves the keys of sources as they were.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl SchemaOptions {
    fn to_front_end(&self) -> schema::Options {
        schema::Options {
            order: if self.any_order { ir::PropertyOrder::Any } else { ir::PropertyOrder::Declared },
            space: match (&self.space, self.max_whitespace) {
                (schema::Whitespace::Flexible, Some(most)) => schema::Whitespace::AtMost(most),
                (space, _) => space.clone(),
            },
            lenient: self.lenient,
            draft: self.draft,
            notation: schema::Notation::default(),
        }
    }

    /// The documents that references may lead to.
    fn documents(&self, budget: &Budget) -> Result<Vec<(String, serde_json::Value)>> {
        if self.registry.is_empty() {
            return Ok(vec![]);
        }
        match schema::parse(self.registry.as_bytes(), budget)? {
            serde_json::Value::Object(map) => Ok(map.into_iter().collect()),
            _ => Err(CompileError::invalid("", "the registry must map URIs to schemas")),
        }
    }
}

/// What a styled schema's text is compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StyledOptions {
    #[serde(skip_serializing_if = "is_default")]
    pub style: Style,
    /// Sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub excludes: Vec<String>,
    /// Texts of the style that are special tokens. Sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub tokens: Vec<(String, u32)>,
    #[serde(skip_serializing_if = "is_default")]
    pub schema: SchemaOptions,
}

/// Which front end a text belongs to, and how it is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    Schema(SchemaOptions),
    Regex,
    Ir,
    /// A JSON Schema in another way of writing, or without certain texts in its strings.
    Styled(StyledOptions),
    /// A grammar, from its rule `root` on.
    Ebnf {
        root: Box<str>,
    },
    /// A JSON array of strings.
    Choice,
}

/// A compiled source and the notes of its front end.
#[derive(Debug)]
pub struct Compiled {
    pub artifact: Arc<Artifact>,
    pub warnings: Vec<schema::Warning>,
}

#[derive(Debug)]
struct Cached {
    compiled: Arc<Compiled>,
    bytes: usize,
    used: u64,
}

#[derive(Debug, Default)]
struct Sources {
    /// Taken over ahead of their texts; moved to `by_source` when the text comes.
    ahead: FxHashMap<Digest, Cached>,
    by_source: FxHashMap<Source, HashMap<Box<[u8]>, Cached, foldhash::fast::RandomState>>,
    clock: u64,
    bytes: usize,
}

/// Dispatch units by their frame and the triggers that have no tags.
pub(crate) type Frames = FxHashMap<(Frame, Vec<u32>), Arc<FrameUnit>>;

/// Counters since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    pub sources: usize,
    pub source_hits: u64,
    pub source_misses: u64,
    pub units: usize,
    pub units_built: u64,
    pub entries: usize,
    pub entries_built: u64,
    /// Those of `entries_built` that no matcher was waiting for.
    pub entries_built_ahead: u64,
    pub entry_hits: u64,
    pub bytes: usize,
    pub evictions: u64,
    /// Entries of others that were used, and that turned out to be none.
    pub entries_offered: u64,
    pub entries_refused: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Engine {
    pub tokens: Arc<Tokens>,
    pub store: Arc<UnitStore>,
    pub model_vocab: usize,
    pub stop_tokens: Box<[u32]>,
    budget: usize,
    sources: Mutex<Sources>,
    lowered: LoweringCache,
    pub(crate) hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    /// Keeps the shared units (strings, numbers, any JSON) and their entries.
    pinned: Mutex<Vec<Arc<Compiled>>>,
    /// By frame and the triggers without tags.
    pub(crate) frames: Mutex<Frames>,
    /// Special tokens by their text; made when a structural tag first asks.
    pub(crate) markers: std::sync::OnceLock<gramary_compiler::structural::Markers>,
    pub(crate) skeletons: Skeletons,
}

impl Engine {
    /// `model_vocab`: ids of the model's logits, at least the tokenizer's. `budget`: bytes that sources, units and
    /// entries may hold together.
    pub fn new(tokens: Arc<Tokens>, model_vocab: usize, stop_tokens: Box<[u32]>, budget: usize) -> Engine {
        Engine {
            model_vocab: model_vocab.max(tokens.vocab.len()),
            tokens,
            store: Arc::default(),
            stop_tokens,
            budget,
            sources: Mutex::default(),
            lowered: LoweringCache::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            pinned: Mutex::default(),
            frames: Mutex::default(),
            markers: std::sync::OnceLock::new(),
            skeletons: Skeletons::default(),
        }
    }

    /// The artifact of a source, from the cache or compiled now.
    pub fn artifact(&self, source: &Source, text: &[u8], limits: &Limits) -> Result<Arc<Compiled>> {
        if let Some(compiled) = self.known(source, text) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(compiled);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let compiled = Arc::new(self.compile(source, text, limits)?);
        self.remember(source, text, &compiled);
        Ok(compiled)
    }

    /// What is known of a source, without compiling it.
    pub fn known(&self, source: &Source, text: &[u8]) -> Option<Arc<Compiled>> {
        self.known_among(source, [text]).pop().flatten()
    }

    /// The same of several texts, each given once.
    pub(crate) fn known_among<'t>(
        &self,
        source: &Source,
        texts: impl IntoIterator<Item = &'t [u8]>,
    ) -> Vec<Option<Arc<Compiled>>> {
        let mut sources = self.sources.lock();
        sources.clock += 1;
        let Sources { ahead, by_source, clock, bytes } = &mut *sources;
        let mut by_text = by_source.get_mut(source);
        // Hashing texts is worth it only if there may be something under their keys.
        let keys = (!ahead.is_empty()).then(|| source.keys());
        // What was taken over before its text was seen.
        let mut claimed: Vec<(&[u8], Cached)> = vec![];
        let known = texts.into_iter().map(|text| {
            if let Some(cached) = by_text.as_mut().and_then(|m| m.get_mut(text)) {
                cached.used = *clock;
                return Some(cached.compiled.clone());
            }
            let found = ahead.remove(&keys.as_ref()?.of(text))?;
            let compiled = found.compiled.clone();
            *bytes += text.len();
            claimed.push((text, Cached { bytes: found.bytes + text.len(), used: *clock, ..found }));
            Some(compiled)
        });
        let known = known.collect();
        if claimed.is_empty() {
            return known;
        }
        let claimed = claimed.into_iter().map(|(text, cached)| (text.into(), cached));
        by_source.entry(source.clone()).or_default().extend(claimed);
        let dead = self.evict(&mut sources);
        drop(sources);
        drop(dead);
        known
    }

    /// Keep a compiled source under its key until its text comes.
    pub(crate) fn remember_ahead(&self, key: Digest, compiled: Arc<Compiled>) {
        let bytes = compiled.artifact.size + 256;
        let mut sources = self.sources.lock();
        let used = sources.clock;
        sources.bytes += bytes;
        if let Some(old) = sources.ahead.insert(key, Cached { compiled, bytes, used }) {
            sources.bytes -= old.bytes;
        }
        let dead = self.evict(&mut sources);
        drop(sources);
        drop(dead);
    }

    /// Put a compiled source into the cache.
    pub(crate) fn remember(&self, source: &Source, text: &[u8], compiled: &Arc<Compiled>) {
        let bytes = compiled.artifact.size + text.len() + 256;
        let mut sources = self.sources.lock();
        let used = sources.clock;
        sources.bytes += bytes;
        let old = sources
            .by_source
            .entry(source.clone())
            .or_default()
            .insert(text.into(), Cached { compiled: compiled.clone(), bytes, used });
        // Another thread may have compiled the same; its artifact shares all units with ours.
        if let Some(old) = old {
            sources.bytes -= old.bytes;
        }
        let dead = self.evict(&mut sources);
        drop(sources);
        drop(dead);
    }

    fn compile(&self, source: &Source, text: &[u8], limits: &Limits) -> Result<Compiled> {
        let budget = Budget::new(limits.clone());
        budget.source(text.len())?;
        let utf8 = || {
            std::str::from_utf8(text).map_err(|e| {
                CompileError::invalid("", format!("the source is not UTF-8 from byte {} on", e.valid_up_to()))
            })
        };
        let (grammar, warnings) = match source {
            Source::Schema(options) => {
                let value = schema::parse(text, &budget)?;
                let registry = options.documents(&budget)?;
                let compiled = schema::compile_with(&value, &registry, &options.to_front_end(), &budget)?;
                (compiled.grammar, compiled.warnings)
            }
            Source::Regex => {
                let body = regex(utf8()?, Alphabet::Utf8, Anchoring::Full, &budget)?;
                let rules = vec![ir::Rule { name: "pattern".into(), body: ir::Body::Expr(body) }];
                (ir::Grammar { rules, root: 0 }, vec![])
            }
            Source::Styled(options) => {
                let value = schema::parse(text, &budget)?;
                let registry = options.schema.documents(&budget)?;
                let notation = schema::Notation {
                    style: options.style,
                    excludes: options.excludes.clone(),
                    tokens: options.tokens.clone(),
                };
                let front_end = schema::Options { notation, ..options.schema.to_front_end() };
                let compiled = schema::compile_with(&value, &registry, &front_end, &budget)?;
                (compiled.grammar, compiled.warnings)
            }
            Source::Ebnf { root } => {
                let compiled = ebnf::compile(utf8()?, root, &budget)?;
                (compiled.grammar, compiled.warnings)
            }
            Source::Choice => (ebnf::choice(text, &budget)?, vec![]),
            Source::Ir => {
                let grammar = serde_json::from_slice::<ir::Grammar>(text)
                    .map_err(|e| CompileError::invalid("", format!("not the JSON form of a grammar IR: {e}")))?;
                (grammar, vec![])
            }
        };
        let lowered = lower_with(&grammar, Some(&self.lowered), &budget)?;
        let artifact = Arc::new(self.store.install(lowered));
        Ok(Compiled { artifact, warnings })
    }

    /// A grammar of its own for one source.
    pub fn grammar(&self, source: &Source, text: &[u8], limits: Limits) -> Result<(Arc<Grammar>, Arc<Compiled>)> {
        self.grammar_within(source, text, limits, Bounds::NONE)
    }

    /// The same with bounds on whitespace and digits.
    pub fn grammar_within(
        &self,
        source: &Source,
        text: &[u8],
        limits: Limits,
        bounds: Bounds,
    ) -> Result<(Arc<Grammar>, Arc<Compiled>)> {
        let compiled = self.artifact(source, text, &limits)?;
        self.check_tokens(&compiled)?;
        let program = Program::of(&self.store, compiled.artifact.clone());
        Ok((self.bind(program, limits, bounds, None), compiled))
    }

    /// Whether the tokens that units name are tokens of this vocabulary.
    pub(crate) fn check_tokens(&self, compiled: &Compiled) -> Result<()> {
        if !compiled.artifact.tokens {
            return Ok(());
        }
        for &id in compiled.artifact.nodes.iter() {
            let Some(node) = self.store.node(id) else { continue };
            for e in node.unit.tokens.iter().filter(|e| e.token != ANY_TOKEN) {
                self.check_token(e.token)?;
            }
        }
        Ok(())
    }

    pub(crate) fn check_token(&self, token: u32) -> Result<()> {
        if self.tokens.vocab.kind(token) != TokenKind::Unused {
            return Ok(());
        }
        let size = self.tokens.vocab.len();
        let message = format!(
            "the tokenizer has no token {token} (it has ids below {size}); take its id from the tokenizer in use"
        );
        Err(CompileError::invalid("", message))
    }

    /// A grammar for a program put together by the caller.
    pub fn bind(&self, program: Program, limits: Limits, bounds: Bounds, tags: Option<TagMap>) -> Arc<Grammar> {
        self.bind_counting(program, limits, bounds, tags, vec![])
    }

    /// The same with texts whose tokens are counted.
    pub(crate) fn bind_counting(
        &self,
        program: Program,
        limits: Limits,
        bounds: Bounds,
        tags: Option<TagMap>,
        texts: Vec<CountedText>,
    ) -> Arc<Grammar> {
        let (tokens, stops) = (self.tokens.clone(), self.stop_tokens.clone());
        let grammar = Grammar::new(tokens, program, limits, tags, stops, self.model_vocab);
        Arc::new(grammar.within(bounds).counting(texts))
    }

    /// Makes room: sources that were used longest ago go first. What is over the budget goes and a little more, so that it is
    /// not done at every compile, and not so much that one compile pays for many. The caller drops what is returned when it
    /// holds no lock.
    fn evict(&self, sources: &mut Sources) -> Vec<Cached> {
        let mut dead = vec![];
        let entries = self.store.meter().bytes();
        let mut total = sources.bytes + entries;
        if total <= self.budget {
            return dead;
        }
        let enough = self.budget - self.budget / 32;
        // What nobody has asked for yet goes first.
        for cached in std::mem::take(&mut sources.ahead).into_values() {
            sources.bytes -= cached.bytes;
            total = total.saturating_sub(cached.bytes);
            dead.push(cached);
        }
        let all = sources.by_source.values().flat_map(|m| m.values());
        let mut order: Vec<(u64, usize)> = all.map(|c| (c.used, c.bytes)).collect();
        order.sort_unstable();
        // Entries go with their units; count them at their average share.
        let share = entries / order.len().max(1);
        let mut last = None;
        for (used, bytes) in order {
            if total <= enough {
                break;
            }
            total = total.saturating_sub(bytes + share);
            last = Some(used);
        }
        let Some(last) = last else { return dead };
        let Sources { by_source, bytes, .. } = sources;
        for texts in by_source.values_mut() {
            texts.retain(|_, cached| {
                if cached.used > last {
                    return true;
                }
                *bytes -= cached.bytes;
                dead.push(Cached { compiled: cached.compiled.clone(), ..*cached });
                self.evictions.fetch_add(1, Ordering::Relaxed);
                false
            });
        }
        dead
    }

    /// Keep a source's units for good, whatever the budget.
    pub fn pin(&self, compiled: Arc<Compiled>) {
        self.pinned.lock().push(compiled);
    }

    /// Forget every source that no live grammar uses.
    pub fn clear(&self) {
        let dead = {
            let mut sources = self.sources.lock();
            sources.bytes = 0;
            (std::mem::take(&mut sources.by_source), std::mem::take(&mut sources.ahead))
        };
        drop(dead);
    }

    pub fn stats(&self) -> EngineStats {
        let (count, bytes) = {
            let sources = self.sources.lock();
            (sources.by_source.values().map(|m| m.len()).sum(), sources.bytes)
        };
        let meter = self.store.meter();
        EngineStats {
            sources: count,
            source_hits: self.hits.load(Ordering::Relaxed),
            source_misses: self.misses.load(Ordering::Relaxed),
            units: self.store.len(),
            units_built: self.store.installed(),
            entries: meter.entries(),
            entries_built: self.tokens.builds.load(Ordering::Relaxed),
            entries_built_ahead: self.tokens.builds_ahead.load(Ordering::Relaxed),
            entry_hits: self.tokens.hits.load(Ordering::Relaxed),
            bytes: bytes + meter.bytes(),
            evictions: self.evictions.load(Ordering::Relaxed),
            entries_offered: self.tokens.offered.taken.load(Ordering::Relaxed),
            entries_refused: self.tokens.offered.refused.load(Ordering::Relaxed),
        }
    }
}
