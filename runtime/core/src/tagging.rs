//! Tool lists and tags to grammars: the shared dispatch unit over request-local choices of tags.

use std::borrow::Cow;
use std::sync::Arc;

use gramary_compiler::ir::DispatchRule;
use gramary_compiler::lower::{dispatch, fsm_is_empty};
use gramary_compiler::program::Program;
use gramary_compiler::tools::{choose, split, Tag, Tool};
use gramary_compiler::unit::{has_byte, Digest, Link, Node, Unit};
use gramary_compiler::{Budget, CompileError, Limits};
use rustc_hash::FxHashMap;

use crate::bounds::Bounds;
use crate::engine::{Compiled, Engine, SchemaOptions, Source};
use crate::grammar::{Grammar, TagMap, TagStates};

/// What to do with a tool whose schema cannot be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnError {
    /// The request fails, and the error names the tool.
    #[default]
    Raise,
    /// The tool is not offered.
    Drop,
    /// The tool is offered with any JSON object as its arguments.
    AnyJson,
}

/// How tags sit in the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Frame {
    pub triggers: Vec<Vec<u8>>,
    pub stops: Vec<Vec<u8>>,
    pub excludes: Vec<Vec<u8>>,
    pub min_tags: u32,
    pub max_tags: Option<u32>,
    pub stop_after_last: bool,
}

/// The dispatch unit of a frame, known to the engine by its frame.
#[derive(Debug)]
pub struct FrameUnit {
    unit: Arc<Unit>,
    nullable: bool,
    /// Which trigger each hole follows, and first bytes that its tags must not have.
    holes: Vec<dispatch::HoleSpec>,
}

/// One bad tool of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError {
    pub index: usize,
    pub name: Box<str>,
    pub cause: CompileError,
}

/// A tag to offer.
#[derive(Clone, Debug)]
pub struct TagSpec<'a> {
    pub begin: Cow<'a, [u8]>,
    pub content: Arc<Compiled>,
    pub end: &'a [u8],
}

/// A list of tools, compiled.
#[derive(Debug)]
pub struct CompiledTools {
    pub grammar: Arc<Grammar>,
    /// Tools that were dropped or loosened.
    pub faults: Vec<ToolError>,
    /// Numbers of the offered tools in the list, by tag number.
    pub offered: Vec<usize>,
    pub contents: Vec<Arc<Compiled>>,
}

/// `begin` with the tool's name in place of `{name}`.
#[derive(Clone, Debug)]
pub struct NameTemplate<'a> {
    pub before: &'a str,
    pub after: &'a str,
}

impl<'a> NameTemplate<'a> {
    /// # Errors
    /// If `{name}` does not occur exactly once.
    pub fn parse(text: &'a str) -> Result<Self, CompileError> {
        match text.split_once("{name}") {
            Some((before, after)) if !after.contains("{name}") => Ok(NameTemplate { before, after }),
            _ => Err(CompileError::invalid("/begin", "the begin of a tool's tag must hold {name} exactly once")),
        }
    }
}

/// Options of [`Engine::tools`].
#[derive(Clone, Debug)]
pub struct ToolOptions<'a> {
    pub begin: NameTemplate<'a>,
    pub end: &'a str,
    pub frame: Frame,
    pub on_error: OnError,
    pub schema: SchemaOptions,
    pub bounds: Bounds,
    pub limits: Limits,
}

/// The distinct texts that compiling these tools compiles, in order of first use.
pub fn tool_sources(text: &[u8]) -> Result<Vec<&[u8]>, CompileError> {
    let mut seen = rustc_hash::FxHashSet::default();
    let texts = split(text)?.into_iter().map(|tool| tool.parameters.unwrap_or(ANY_OBJECT));
    Ok(texts.filter(|t| seen.insert(*t)).collect())
}

const ANY_OBJECT: &[u8] = br#"{"type":"object"}"#;

impl Engine {
    /// Compile a list of tools, given as JSON text.
    pub fn tools(&self, text: &[u8], options: &ToolOptions<'_>) -> Result<CompiledTools, ToolError> {
        let whole = |cause: CompileError| {
            let index = match &cause {
                CompileError::Invalid { pointer, .. } => {
                    pointer.split('/').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0)
                }
                _ => 0,
            };
            ToolError { index, name: Box::default(), cause }
        };
        Budget::new(options.limits.clone()).source(text.len()).map_err(whole)?;
        let tools = split(text).map_err(whole)?;
        let mut faults = vec![];
        let mut offered = Vec::with_capacity(tools.len());
        let mut contents: Vec<Arc<Compiled>> = Vec::with_capacity(tools.len());
        let mut names: FxHashMap<&str, usize> = FxHashMap::default();
        for (index, tool) in tools.iter().enumerate() {
            let error = |cause| ToolError { index, name: tool.name.as_ref().into(), cause };
            if let Some(fault) = &tool.fault {
                // Without a name there is nothing to offer, whatever its arguments.
                match options.on_error {
                    OnError::Raise => return Err(error(fault.clone())),
                    OnError::Drop | OnError::AnyJson => faults.push(error(fault.clone())),
                }
                continue;
            }
            if let Some(first) = names.insert(&tool.name, index) {
                return Err(error(CompileError::invalid(
                    format!("/{index}/name"),
                    format!("tool {first} has the same name {:?}; names must be unique in a request", tool.name),
                )));
            }
            match self.content(tool, options) {
                Ok(content) => contents.push(content),
                Err(cause) => {
                    let fault = error(cause.within(&format!("/{index}/parameters")));
                    match options.on_error {
                        OnError::Raise => return Err(fault),
                        OnError::Drop => {
                            faults.push(fault);
                            continue;
                        }
                        OnError::AnyJson => {
                            let schema = Source::Schema(options.schema.clone());
                            let any = self.artifact(&schema, ANY_OBJECT, &options.limits);
                            contents.push(any.map_err(|_| fault.clone())?);
                            faults.push(fault);
                        }
                    }
                }
            }
            offered.push(index);
        }
        let tags: Vec<TagSpec<'_>> = offered
            .iter()
            .zip(&contents)
            .map(|(&index, content)| {
                let (before, after) = (options.begin.before, options.begin.after);
                let name: &str = &tools[index].name;
                TagSpec {
                    begin: Cow::Owned([before, name, after].concat().into_bytes()),
                    content: content.clone(),
                    end: options.end.as_bytes(),
                }
            })
            .collect();
        let limits = options.limits.clone();
        let grammar = self.tags(&tags, &options.frame, options.bounds, limits).map_err(whole)?;
        Ok(CompiledTools { grammar, faults, offered, contents })
    }

    fn content(&self, tool: &Tool<'_>, options: &ToolOptions<'_>) -> Result<Arc<Compiled>, CompileError> {
        let text = tool.parameters.unwrap_or(ANY_OBJECT);
        let compiled = self.artifact(&Source::Schema(options.schema.clone()), text, &options.limits)?;
        if compiled.artifact.nullable {
            return Err(CompileError::invalid("", "the arguments could be empty text"));
        }
        Ok(compiled)
    }

    /// Free text in which `tags` may occur after their triggers. `bounds` read what is inside of a tag as JSON.
    pub fn tags(
        &self,
        tags: &[TagSpec<'_>],
        frame: &Frame,
        bounds: Bounds,
        limits: Limits,
    ) -> Result<Arc<Grammar>, CompileError> {
        // Each tag belongs to the longest trigger that its begin starts with.
        let mut by_trigger: Vec<Vec<u32>> = vec![vec![]; frame.triggers.len()];
        for (i, tag) in tags.iter().enumerate() {
            let fits = frame.triggers.iter().enumerate().filter(|(_, t)| tag.begin.starts_with(t));
            match fits.max_by_key(|(_, t)| t.len()) {
                Some((t, _)) => by_trigger[t].push(i as u32),
                None => {
                    return Err(CompileError::invalid(
                        format!("/tags/{i}/begin"),
                        "the begin of a tag must start with one of the triggers; add its first part to the triggers",
                    ))
                }
            }
        }
        let untagged = (0..).zip(&by_trigger).filter(|(_, tags)| tags.is_empty()).map(|(t, _)| t).collect();
        let unit = self.frame(frame, untagged, &limits)?;
        let mut local: Vec<Arc<Node>> = vec![];
        let mut links = vec![];
        let mut map = TagMap::default();
        for hole in &unit.holes {
            let trigger = &frame.triggers[hole.trigger as usize];
            let mut chosen: Vec<Tag<'_>> = vec![];
            let mut numbers = vec![];
            for &i in &by_trigger[hole.trigger as usize] {
                let tag = &tags[i as usize];
                let rest = &tag.begin[trigger.len()..];
                let collides = match rest.first() {
                    Some(b) => hole.taken.contains(b),
                    None => !hole.taken.is_empty() && self.may_start(&tag.content, hole),
                };
                match (collides, rest.is_empty()) {
                    (false, _) => {
                        let content = Link::Store(tag.content.artifact.root);
                        chosen.push(Tag { rest: Cow::Borrowed(rest), content, optional: false, end: tag.end });
                        numbers.push(i);
                    }
                    // The longer trigger takes this byte.
                    (true, false) => {}
                    (true, true) => return Err(CompileError::invalid(
                        format!("/tags/{i}/begin"),
                        "its trigger ends inside a longer trigger whose next byte may also begin the tag's content; \
                             make the begin longer than the trigger, or the triggers distinct",
                    )),
                }
            }
            let link = Link::Local(local.len() as u32);
            local.push(Arc::new(if chosen.is_empty() {
                no_tags()
            } else {
                let choice = choose(&chosen);
                map.choices.insert(link, TagStates { tags: numbers, inner: choice.inner });
                let height = self.height(&choice.unit, &choice.links);
                Node::local(Arc::new(choice.unit), choice.links, height)
            }));
            links.push(link);
        }
        // The dispatch unit's callees are its holes, in order of first use.
        let bound = unit
            .unit
            .callees
            .iter()
            .map(|c| match *c {
                gramary_compiler::fsm::Callee::Hole(h) => links[h as usize],
                gramary_compiler::fsm::Callee::Rule(r) => links[r as usize],
            })
            .collect();
        let root = Link::Local(local.len() as u32);
        local.push(Arc::new(Node::local(unit.unit.clone(), bound, 0)));
        let mut pins: Vec<_> = tags.iter().map(|t| t.content.artifact.clone()).collect();
        pins.dedup_by_key(|p| Arc::as_ptr(p));
        let program = Program { store: self.store.clone(), local, root, nullable: unit.nullable, pins };
        Ok(self.bind(program, limits, bounds, Some(map)))
    }

    /// Whether the content may begin with a byte that a hole excludes.
    fn may_start(&self, content: &Compiled, hole: &dispatch::HoleSpec) -> bool {
        let mut work = vec![content.artifact.root];
        let mut seen = rustc_hash::FxHashSet::default();
        while let Some(id) = work.pop() {
            let Some(node) = self.store.node(id).filter(|_| seen.insert(id)) else { continue };
            let live = node.unit.live(0);
            if hole.taken.iter().any(|&b| has_byte(&live, b)) {
                return true;
            }
            for r in node.unit.own_refs(0) {
                if let Link::Store(id) = node.links[r.callee as usize] {
                    work.push(id);
                }
            }
        }
        false
    }

    fn height(&self, unit: &Unit, links: &[Link]) -> u32 {
        let below = unit.own_refs(0).iter().filter_map(|r| match links[r.callee as usize] {
            Link::Store(id) => self.store.node(id).map(|n| n.height + 1),
            Link::Local(_) => None,
        });
        below.max().unwrap_or(0)
    }

    /// The dispatch unit of a frame of which the triggers `untagged` have no tags.
    fn frame(&self, frame: &Frame, untagged: Vec<u32>, limits: &Limits) -> Result<Arc<FrameUnit>, CompileError> {
        let key = (frame.clone(), untagged);
        if let Some(known) = self.frames.lock().get(&key) {
            return Ok(known.clone());
        }
        if frame.triggers.is_empty() {
            return Err(CompileError::invalid("/triggers", "give at least one trigger"));
        }
        let rule = DispatchRule {
            triggers: frame.triggers.clone(),
            handlers: vec![],
            stops: frame.stops.clone(),
            excludes: frame.excludes.clone(),
            min_tags: frame.min_tags,
            max_tags: frame.max_tags,
            stop_after_last: frame.stop_after_last,
            open_end: frame.stops.is_empty(),
        };
        let shape = dispatch::shape(&rule, &key.1, &[], &Budget::new(limits.clone()))?;
        if fsm_is_empty(&shape.fsm) && !dispatch::nullable(&rule) {
            return Err(CompileError::unsatisfiable("", "the text needs tags and none can be written"));
        }
        let lowered =
            gramary_compiler::lower::grammar::LoweredRule { name: "dispatch".into(), fsm: shape.fsm, holes: vec![] };
        let digest: Digest =
            gramary_compiler::digest::digests(std::slice::from_ref(&lowered), &Budget::new(limits.clone()))?.unit[0];
        let unit = Arc::new(Unit::new("dispatch", digest, lowered.fsm));
        let known = Arc::new(FrameUnit { unit, nullable: dispatch::nullable(&rule), holes: shape.holes });
        let mut frames = self.frames.lock();
        // Frames are few; a client that invents them is not to grow the process.
        if frames.len() >= MAX_FRAMES {
            frames.clear();
        }
        Ok(frames.entry(key).or_insert(known).clone())
    }
}

/// Frames kept.
const MAX_FRAMES: usize = 256;

/// A node that nothing matches.
fn no_tags() -> Node {
    let unit = Unit::local(
        "no tags",
        (vec![0, 0], vec![]),
        (vec![0, 0], vec![]),
        vec![gramary_compiler::fsm::REJECT],
        Box::default(),
    );
    Node::local(Arc::new(unit), Box::default(), 0)
}
