//! Structural tags to grammars: contents looked up by their text, skeletons known by their shape, choices built anew.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use gramary_compiler::digest::digests;
use gramary_compiler::fsm::{Callee, Fsm, NONE, PLAIN, REJECT};
use gramary_compiler::ir::{self, Body, Expr};
use gramary_compiler::lower::grammar::{lower_with, LoweredRule};
use gramary_compiler::program::Program;
use gramary_compiler::schema::Warning;
use gramary_compiler::structural::format::Style;
use gramary_compiler::structural::{plan, Content, Markers, Options, Part, Plan};
use gramary_compiler::tools::{choose, Tag};
use gramary_compiler::unit::{Digest, Link, Node, Unit};
use gramary_compiler::{Budget, CompileError, Limits, Result};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::bounds::{Bounds, Lexer};
use crate::counted::{Closing, CountedText, MOST_COUNTED};
use crate::engine::{Compiled, Engine, SchemaOptions, Source, StyledOptions};
use crate::grammar::{Grammar, TagMap, TagStates};

/// How the contents of a structural tag are compiled.
#[derive(Clone, Debug, Default)]
pub struct StructuralOptions {
    /// For every schema.
    pub schema: SchemaOptions,
    /// Let free text spell out special tokens that the tag uses as markers.
    pub allow_spelled_markers: bool,
    /// For the JSON inside of tags.
    pub bounds: Bounds,
}

/// A structural tag, compiled.
#[derive(Debug)]
pub struct CompiledStructure {
    pub grammar: Arc<Grammar>,
    pub warnings: Vec<Warning>,
}

/// What [`Engine::structural_tag_if_known`] finds.
#[derive(Debug)]
pub enum IfKnown {
    Grammar(CompiledStructure),
    /// The sources that are not in memory.
    Missing(Vec<(Source, Box<[u8]>)>),
}

/// What is remembered of structures: skeletons by their grammar, and their units by digest.
#[derive(Debug, Default)]
pub(crate) struct Skeletons {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    skeletons: FxHashMap<Digest, Arc<Skeleton>>,
    units: FxHashMap<Digest, Arc<Unit>>,
    texts: FxHashMap<Digest, Arc<Closing>>,
}

/// Skeletons and units kept; a client that invents structures is not to grow the process.
const MOST_SKELETONS: usize = 1024;

/// A lowered skeleton: every reference of its units is a hole.
#[derive(Debug)]
struct Skeleton {
    units: Vec<(Arc<Unit>, Vec<Target>)>,
    nullable: bool,
}

/// What a hole of a skeleton's unit is bound to.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// A unit of the same skeleton.
    Own(u32),
    /// A part of the plan.
    Part(u32),
}

/// A part that has been compiled.
#[derive(Clone, Copy, Debug)]
struct Bound {
    link: Link,
    nullable: bool,
}

/// A program being put together.
#[derive(Default)]
struct Assembly {
    local: Vec<Arc<Node>>,
    pins: Vec<Arc<gramary_compiler::program::Artifact>>,
    tags: TagMap,
    texts: Vec<CountedText>,
    warnings: Vec<Warning>,
}

impl Engine {
    /// The grammar of a structural tag, given as JSON text.
    pub fn structural_tag(
        &self,
        text: &[u8],
        options: &StructuralOptions,
        limits: Limits,
    ) -> Result<CompiledStructure> {
        let budget = Budget::new(limits.clone());
        let plan = self.plan(text, options, &budget)?;
        let source =
            |content: &Content, text: &str| self.artifact(&source_of(content, options), text.as_bytes(), &limits);
        self.assemble(&plan, options, &limits, &budget, source)
    }

    /// The same if all of its sources are in memory, and how many there are; otherwise those that are not.
    pub fn structural_tag_if_known(
        &self,
        text: &[u8],
        options: &StructuralOptions,
        limits: Limits,
    ) -> Result<(usize, IfKnown)> {
        let budget = Budget::new(limits.clone());
        let plan = self.plan(text, options, &budget)?;
        // Those of one content are looked up together, each once.
        let mut wanted: Vec<(&Content, Vec<&str>)> = vec![];
        let mut places: FxHashMap<(&Content, &str), (usize, usize)> = FxHashMap::default();
        for part in &plan.parts {
            let Part::Source { content, text, .. } = part else { continue };
            places.entry((content, text)).or_insert_with(|| {
                let at = wanted.iter().position(|w| w.0 == content).unwrap_or_else(|| {
                    wanted.push((content, vec![]));
                    wanted.len() - 1
                });
                wanted[at].1.push(text);
                (at, wanted[at].1.len() - 1)
            });
        }
        let mut missing = vec![];
        let mut found: Vec<Vec<Option<Arc<Compiled>>>> = Vec::with_capacity(wanted.len());
        for (content, texts) in &wanted {
            let source = source_of(content, options);
            let known = self.known_among(&source, texts.iter().map(|text| text.as_bytes()));
            let lacking = texts.iter().zip(&known).filter(|(_, known)| known.is_none());
            missing.extend(lacking.map(|(text, _)| (source.clone(), Box::from(text.as_bytes()))));
            found.push(known);
        }
        let number = places.len();
        if !missing.is_empty() {
            return Ok((number, IfKnown::Missing(missing)));
        }
        let source = |content: &Content, text: &str| {
            let known = places.get(&(content, text)).and_then(|&(content, text)| found[content][text].clone());
            match known {
                Some(compiled) => {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    Ok(compiled)
                }
                None => self.artifact(&source_of(content, options), text.as_bytes(), &limits),
            }
        };
        Ok((number, IfKnown::Grammar(self.assemble(&plan, options, &limits, &budget, source)?)))
    }

    /// `source`: the artifact of a part, by its content and text.
    fn assemble(
        &self,
        plan: &Plan<'_>,
        options: &StructuralOptions,
        limits: &Limits,
        budget: &Budget,
        source: impl Fn(&Content, &str) -> Result<Arc<Compiled>>,
    ) -> Result<CompiledStructure> {
        let mut assembly = Assembly { pins: Vec::with_capacity(plan.parts.len()), ..Assembly::default() };
        let mut parts: Vec<Bound> = Vec::with_capacity(plan.parts.len());
        for (pointer, keyword, reason) in &plan.notes {
            let (pointer, keyword, reason) = (pointer.clone(), (*keyword).into(), reason.clone());
            assembly.warnings.push(Warning { pointer, keyword, reason });
        }
        // The local nodes made for each part.
        let mut made: Vec<std::ops::Range<u32>> = Vec::with_capacity(plan.parts.len());
        for part in &plan.parts {
            budget.tick()?;
            let first = assembly.local.len() as u32;
            let bound = match part {
                Part::Source { content, text, pointer } => {
                    let within = |e: CompileError| match content {
                        // Their places are lines and columns.
                        Content::Ebnf => e.within(": ").within(pointer),
                        _ => e.within(pointer),
                    };
                    let compiled = source(content, text).map_err(within)?;
                    self.check_tokens(&compiled).map_err(within)?;
                    assembly.warnings.extend(
                        compiled
                            .warnings
                            .iter()
                            .map(|w| Warning { pointer: format!("{pointer}{}", w.pointer), ..w.clone() }),
                    );
                    let artifact = compiled.artifact.clone();
                    let bound = Bound { link: Link::Store(artifact.root), nullable: artifact.nullable };
                    assembly.pins.push(artifact);
                    bound
                }
                Part::Choice { tags, outer } => {
                    let chosen: Vec<Tag<'_>> = tags
                        .iter()
                        .map(|t| {
                            let content = parts[t.content as usize];
                            let rest = Cow::Borrowed(t.rest.as_slice());
                            Tag { rest, content: content.link, optional: content.nullable, end: &t.end }
                        })
                        .collect();
                    let choice = choose(&chosen);
                    let (nullable, inner) = (choice.nullable, choice.inner);
                    let link = self.place(&mut assembly, Arc::new(choice.unit), choice.links);
                    if *outer {
                        for t in tags.iter() {
                            let inside = made[t.content as usize].clone().map(|n| (Link::Local(n), t.number));
                            assembly.tags.inside.extend(inside);
                            if !is_json(&plan.parts, t.content) {
                                assembly.tags.other.insert(t.number);
                            }
                        }
                        let tags = tags.iter().map(|t| t.number).collect();
                        assembly.tags.choices.insert(link, TagStates { tags, inner });
                    }
                    Bound { link, nullable }
                }
                Part::Text { grammar, most, pointer } => {
                    let text = self.counted_text(grammar, budget).map_err(|e| e.within(pointer))?;
                    let link = self.place(&mut assembly, text.unit.clone(), Box::default());
                    if assembly.texts.len() == MOST_COUNTED {
                        return Err(CompileError::unsupported(
                            format!("{pointer}/max_tokens"),
                            "max_tokens",
                            format!("no more than {MOST_COUNTED} texts of a structure are counted"),
                            "Bound the others with max_chars",
                        ));
                    }
                    assembly.texts.push(CountedText { link, most: *most, closing: text.closing.clone() });
                    Bound { link, nullable: text.nullable }
                }
                Part::Skeleton { grammar, pointer } => {
                    let skeleton = self.skeleton(grammar, &parts, budget).map_err(|e| e.within(pointer))?;
                    self.bind_skeleton(&skeleton, &parts, &mut assembly)
                }
            };
            parts.push(bound);
            made.push(first..assembly.local.len() as u32);
        }
        let Assembly { local, mut pins, tags, texts, warnings } = assembly;
        pins.sort_unstable_by_key(Arc::as_ptr);
        pins.dedup_by_key(|p| Arc::as_ptr(p));
        let root = parts[plan.root as usize];
        let program = Program { store: self.store.clone(), local, root: root.link, nullable: root.nullable, pins };
        let tags = (!tags.choices.is_empty()).then_some(tags);
        // Without tags there is no telling what of the text is JSON.
        let bounds = if tags.is_some() { options.bounds } else { Bounds::NONE };
        Ok(CompiledStructure { grammar: self.bind_counting(program, limits.clone(), bounds, tags, texts), warnings })
    }

    fn plan<'a>(&self, text: &'a [u8], options: &StructuralOptions, budget: &Budget) -> Result<Plan<'a>> {
        budget.source(text.len())?;
        let text = std::str::from_utf8(text).map_err(|e| {
            CompileError::invalid("", format!("the structural tag is not UTF-8 from byte {} on", e.valid_up_to()))
        })?;
        let markers = self.markers.get_or_init(|| Markers::of(&self.tokens.vocab));
        let options = Options { forbid_spelled_markers: !options.allow_spelled_markers };
        plan(text, &self.tokens.vocab, markers, options, budget)
    }

    /// Adds a request-local node; its callees must be there.
    fn place(&self, assembly: &mut Assembly, unit: Arc<Unit>, links: Box<[Link]>) -> Link {
        let height = |l: &Link| match *l {
            Link::Store(id) => self.store.node(id).map_or(0, |n| n.height + 1),
            Link::Local(i) => assembly.local[i as usize].height + 1,
        };
        let height = links.iter().map(height).max().unwrap_or(0);
        assembly.local.push(Arc::new(Node::local(unit, links, height)));
        Link::Local(assembly.local.len() as u32 - 1)
    }

    fn bind_skeleton(&self, skeleton: &Skeleton, parts: &[Bound], assembly: &mut Assembly) -> Bound {
        // Units refer to no unit around them: callees first.
        let n = skeleton.units.len();
        let mut placed: Vec<Option<Link>> = vec![None; n];
        let mut work = vec![0usize];
        while let Some(&i) = work.last() {
            if placed[i].is_some() {
                work.pop();
                continue;
            }
            let (unit, targets) = &skeleton.units[i];
            let missing: Vec<usize> = targets
                .iter()
                .filter_map(|t| match *t {
                    Target::Own(r) if placed[r as usize].is_none() => Some(r as usize),
                    _ => None,
                })
                .collect();
            if !missing.is_empty() {
                work.extend(missing);
                continue;
            }
            let links = targets
                .iter()
                .map(|t| match *t {
                    Target::Own(r) => placed[r as usize].unwrap_or(Link::Local(0)),
                    Target::Part(p) => parts[p as usize].link,
                })
                .collect();
            placed[i] = Some(self.place(assembly, unit.clone(), links));
            work.pop();
        }
        Bound { link: placed[0].unwrap_or(Link::Local(0)), nullable: skeleton.nullable }
    }

    /// A skeleton for holes of which some may be filled with nothing.
    fn skeleton(&self, grammar: &ir::Grammar, parts: &[Bound], budget: &Budget) -> Result<Arc<Skeleton>> {
        // Numbers of parts change from request to request: the first hole is 0.
        let mut order: Vec<u32> = vec![];
        let mut grammar = grammar.clone();
        let mut number = |e: &mut Expr| {
            let Expr::Hole(part) = e else { return };
            let local = order.iter().position(|p| p == part).unwrap_or_else(|| {
                order.push(*part);
                order.len() - 1
            });
            let hole = Expr::Hole(local as u32);
            *e = if parts[*part as usize].nullable { hole.opt() } else { hole };
        };
        for rule in &mut grammar.rules {
            match &mut rule.body {
                Body::Expr(e) => each_hole(e, &mut number),
                Body::Dispatch(d) => d.handlers.iter_mut().for_each(|e| each_hole(e, &mut number)),
                Body::Object(_) | Body::JsonString => {}
            }
        }
        let text = serde_json::to_vec(&grammar).map_err(|e| CompileError::invalid("", e.to_string()))?;
        let key: Digest = *blake3::hash(&text).as_bytes();
        let found = self.skeletons.known.lock().skeletons.get(&key).cloned();
        let local = match found {
            Some(known) => known,
            None => {
                let made = Arc::new(self.lower_skeleton(&grammar, budget)?);
                let mut known = self.skeletons.known.lock();
                if known.skeletons.len() >= MOST_SKELETONS {
                    *known = Known::default();
                }
                known.skeletons.insert(key, made.clone());
                made
            }
        };
        let there = |t: &Target| match *t {
            Target::Part(hole) => Target::Part(order[hole as usize]),
            own => own,
        };
        let units = local.units.iter().map(|(u, t)| (u.clone(), t.iter().map(there).collect())).collect();
        Ok(Arc::new(Skeleton { units, nullable: local.nullable }))
    }

    /// The unit of a text whose tokens are counted.
    fn counted_text(&self, grammar: &ir::Grammar, budget: &Budget) -> Result<Arc<Closing>> {
        let text = serde_json::to_vec(grammar).map_err(|e| CompileError::invalid("", e.to_string()))?;
        let key: Digest = *blake3::hash(&text).as_bytes();
        if let Some(known) = self.skeletons.known.lock().texts.get(&key) {
            return Ok(known.clone());
        }
        let lowered = lower_with(grammar, None, budget)?;
        let stops = grammar.rules.iter().find_map(|r| match &r.body {
            Body::Dispatch(d) => Some(d.stops.as_slice()),
            _ => None,
        });
        let root = &lowered.rules[lowered.root as usize];
        let made = Arc::new(Closing::new(root, stops.unwrap_or_default(), lowered.root_nullable, budget)?);
        let mut known = self.skeletons.known.lock();
        if known.texts.len() >= MOST_SKELETONS {
            known.texts.clear();
        }
        known.texts.insert(key, made.clone());
        Ok(made)
    }

    fn lower_skeleton(&self, grammar: &ir::Grammar, budget: &Budget) -> Result<Skeleton> {
        let lowered = lower_with(grammar, None, budget)?;
        let mut units = vec![];
        for rule in &lowered.rules {
            let targets: Vec<Target> = rule.fsm.callees.iter().map(|c| target(c, rule, &lowered.rules)).collect();
            let mut fsm = rule.fsm.clone();
            for (i, c) in fsm.callees.iter_mut().enumerate() {
                *c = Callee::Hole(i as u32);
            }
            let alone = LoweredRule { name: rule.name.clone(), fsm, holes: vec![] };
            let digest = digests(std::slice::from_ref(&alone), budget)?.unit[0];
            let mut known = self.skeletons.known.lock();
            let unit = known.units.entry(digest).or_insert_with(|| Arc::new(Unit::new(&alone.name, digest, alone.fsm)));
            units.push((unit.clone(), targets));
        }
        Ok(Skeleton { units, nullable: lowered.root_nullable })
    }
}

/// What a callee is; a rule that is nothing but another is that other.
fn target(callee: &Callee, rule: &LoweredRule, rules: &[LoweredRule]) -> Target {
    let (mut callee, mut rule) = (*callee, rule);
    for _ in 0..=rules.len() {
        let next = match callee {
            Callee::Rule(r) => r,
            Callee::Hole(h) => match rule.holes.get(h as usize) {
                Some(&r) => r,
                None => return Target::Part(h),
            },
        };
        rule = &rules[next as usize];
        match forwards(&rule.fsm) {
            Some(c) => callee = c,
            None => return Target::Own(next),
        }
    }
    Target::Own(0)
}

/// The only thing that a unit calls, if it does nothing else.
fn forwards(fsm: &Fsm) -> Option<Callee> {
    let [start, end] = fsm.states.as_slice() else { return None };
    let plain = start.edges.is_empty()
        && start.tokens.is_empty()
        && start.fallback == NONE
        && start.accept == REJECT
        && end.edges.is_empty()
        && end.refs.is_empty()
        && end.tokens.is_empty()
        && end.fallback == NONE
        && end.accept == PLAIN
        && fsm.counters == 0
        && fsm.keys.is_none();
    match (plain, start.refs.as_slice()) {
        (true, [r]) if r.args == NONE && r.act == PLAIN && r.target == 1 => Some(fsm.callees[r.callee as usize]),
        _ => None,
    }
}

fn each_hole(e: &mut Expr, change: &mut impl FnMut(&mut Expr)) {
    let mut stack = vec![e];
    while let Some(e) = stack.pop() {
        match e {
            Expr::Hole(_) => change(e),
            Expr::Seq(v) | Expr::Alt(v) => stack.extend(v.iter_mut().rev()),
            Expr::Repeat { body, .. } => stack.push(body),
            _ => {}
        }
    }
}

/// Whether all of a part can be read as JSON for the bounds: JSON, or JSON among constants that leave no string open, and
/// are ASCII outside of strings.
fn is_json(parts: &[Part<'_>], part: u32) -> bool {
    let grammar = match &parts[part as usize] {
        Part::Source { content, .. } => return matches!(content, Content::Schema { style: Style::Json, .. }),
        Part::Skeleton { grammar, .. } => grammar,
        Part::Choice { .. } | Part::Text { .. } => return false,
    };
    let Some(Body::Expr(root)) = grammar.rules.get(grammar.root as usize).map(|r| &r.body) else { return false };
    let mut lexer = Lexer::START;
    let mut found = false;
    let mut items: Vec<&Expr> = vec![root];
    while let Some(e) = items.pop() {
        match e {
            Expr::Seq(v) => items.extend(v.iter().rev()),
            Expr::Bytes(text) => {
                for &b in text {
                    if lexer.is_outside() && !b.is_ascii() {
                        return false;
                    }
                    lexer.feed(&Bounds::NONE, b);
                }
            }
            Expr::Empty | Expr::Token(_) => {}
            // Ends, one of which comes last.
            Expr::Alt(ways) if items.is_empty() => return found && ways.iter().all(is_constant),
            // Parts come after those that they refer to.
            Expr::Hole(inner) if *inner < part && lexer.is_outside() && is_json(parts, *inner) => found = true,
            _ => return false,
        }
    }
    found
}

fn is_constant(e: &Expr) -> bool {
    match e {
        Expr::Seq(v) => v.iter().all(is_constant),
        e => matches!(e, Expr::Empty | Expr::Bytes(_) | Expr::Token(_)),
    }
}

fn source_of(content: &Content, options: &StructuralOptions) -> Source {
    match content {
        Content::Regex => Source::Regex,
        Content::Ebnf => Source::Ebnf { root: "root".into() },
        Content::Schema { style, any_order, max_whitespace, excludes, tokens } => {
            let mut schema = options.schema.clone();
            schema.any_order |= *any_order;
            schema.max_whitespace = max_whitespace.or(schema.max_whitespace);
            match *style == Style::Json && excludes.is_empty() {
                true => Source::Schema(schema),
                false => Source::Styled(StyledOptions {
                    style: *style,
                    excludes: excludes.clone(),
                    tokens: tokens.clone(),
                    schema,
                }),
            }
        }
    }
}
