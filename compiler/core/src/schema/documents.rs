//! Locations: the places of schemas in their documents, what identifies them, and how references lead to them.
//!
//! A location is a value of a document (by address, so nothing is copied) together with the *dynamic scope* it is seen
//! in. The scope is what `$dynamicRef` can tell apart: for each dynamic anchor, the outermost resource on the way here
//! that has it. There are finitely many, so recursion through dynamic references ends as any other does. Documents
//! without dynamic references have one scope, and never pay for more.

mod alike;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::keyword::{Draft, Kw};
use super::metaschemas;
use super::uri;
use crate::error::{CompileError, Result};

/// Index into [`Documents::locs`].
pub(super) type LocId = u32;

/// How a location was reached from another, for its pointer.
#[derive(Clone, Debug)]
pub(super) enum Step<'a> {
    /// The value lies at this pointer (of a document named by the URI, if it is not the main one).
    At(Box<str>),
    Key(&'a str),
    In(&'static str, &'a str),
    Nth(&'static str, usize),
}

#[derive(Clone, Debug)]
pub(super) struct Loc<'a> {
    pub value: &'a Value,
    parent: LocId,
    step: Step<'a>,
    resource: u32,
    scope: u32,
    /// Range of the location's keywords in the pool; `u32::MAX` until it is opened.
    first: u32,
    count: u32,
    /// See [`Documents::alike`]; [`CLOSED`] until that is asked.
    alike: LocId,
}

struct Resource<'a> {
    base: String,
    root: &'a Value,
    draft: Draft,
    /// The resource that is the whole document.
    document: u32,
}

/// A place that a reference resolved to, before the scope is known.
#[derive(Clone)]
struct Target<'a> {
    value: &'a Value,
    resource: u32,
    pointer: Box<str>,
}

pub(super) struct Documents<'a> {
    pub locs: Vec<Loc<'a>>,
    pool: Vec<(Kw, &'a Value)>,
    ids: FxHashMap<(usize, u32), LocId>,
    /// Locations by what they say: see [`Documents::alike`].
    by_content: FxHashMap<u64, Vec<LocId>>,
    resources: Vec<Resource<'a>>,
    resource_of: FxHashMap<usize, u32>,
    resolved: FxHashMap<(u32, &'a str), Target<'a>>,
    registry: &'a [(String, Value)],
    index: Option<Index<'a>>,
    /// Dynamic scopes: (anchor, place) lists. Scope 0 is empty.
    scopes: Vec<Vec<(&'a str, Target<'a>)>>,
    scope_of: FxHashMap<(u32, u32), u32>,
    /// Whether dynamic scopes are kept.
    pub dynamic: bool,
    default_draft: Draft,
    forced: bool,
    /// `$schema` URIs that are no known draft, with their pointer.
    pub unknown_dialects: Vec<(String, String)>,
    /// `$ref` siblings that were ignored (drafts 4 to 7).
    pub ignored_siblings: Vec<LocId>,
    /// Pointers that lead nowhere where they should, and were followed to where they were meant to lead.
    pub astray: Vec<(LocId, &'a str)>,
}

/// Where URIs and anchors lead.
#[derive(Default)]
struct Index<'a> {
    uris: FxHashMap<String, u32>,
    anchors: FxHashMap<(u32, &'a str), Target<'a>>,
    dynamic: FxHashMap<u32, Vec<(&'a str, Target<'a>)>>,
}

const CLOSED: u32 = u32::MAX;

impl<'a> Documents<'a> {
    pub(super) fn new(
        root: &'a Value,
        registry: &'a [(String, Value)],
        draft: Option<Draft>,
        dynamic: bool,
    ) -> Documents<'a> {
        let mut d = Documents {
            locs: vec![],
            pool: vec![],
            ids: FxHashMap::default(),
            by_content: FxHashMap::default(),
            resources: vec![],
            resource_of: FxHashMap::default(),
            resolved: FxHashMap::default(),
            registry,
            index: None,
            scopes: vec![vec![]],
            scope_of: FxHashMap::default(),
            dynamic,
            default_draft: draft.unwrap_or(Draft::D2020),
            forced: draft.is_some(),
            unknown_dialects: vec![],
            ignored_siblings: vec![],
            astray: vec![],
        };
        d.document(root, "");
        d
    }

    /// The location of the main document's root.
    pub(super) fn root(&mut self) -> LocId {
        let value = self.resources[0].root;
        self.intern(value, 0, 0, 0, Step::At("".into()))
    }

    /// Register a whole document.
    fn document(&mut self, root: &'a Value, uri: &str) -> u32 {
        let inherited = self.default_draft;
        self.add_resource(root, uri, inherited, None)
    }

    fn add_resource(&mut self, root: &'a Value, base: &str, inherited: Draft, outer: Option<u32>) -> u32 {
        let key = root as *const Value as usize;
        if let Some(r) = self.resource_of.get(&key) {
            return *r;
        }
        let draft = match root.get("$schema").and_then(Value::as_str) {
            Some(s) if !self.forced => Draft::from_uri(s).unwrap_or_else(|| {
                self.unknown_dialects.push((base.to_owned(), s.to_owned()));
                inherited
            }),
            _ => inherited,
        };
        let base = match root.get(draft.id_keyword()).and_then(Value::as_str) {
            Some(id) => uri::resolve(base, id.split('#').next().unwrap_or("")),
            None => base.to_owned(),
        };
        let r = self.resources.len() as u32;
        let document = outer.map_or(r, |o| self.resources[o as usize].document);
        self.resources.push(Resource { base, root, draft, document });
        self.resource_of.insert(key, r);
        r
    }

    fn intern(&mut self, value: &'a Value, resource: u32, scope: u32, parent: LocId, step: Step<'a>) -> LocId {
        let key = (value as *const Value as usize, scope);
        let next = self.locs.len() as LocId;
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.locs.push(Loc { value, parent, step, resource, scope, first: CLOSED, count: 0, alike: CLOSED });
        }
        id
    }

    /// A location that stands for `{"const": value}`.
    pub(super) fn constant(&mut self, of: LocId, value: &'a Value) -> LocId {
        static SCHEMA: std::sync::OnceLock<Value> = std::sync::OnceLock::new();
        let key = (value as *const Value as usize, u32::MAX);
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let Loc { resource, scope, .. } = self.locs[of as usize];
        let (id, first) = (self.locs.len() as LocId, self.pool.len() as u32);
        self.pool.push((Kw::Const, value));
        let schema = SCHEMA.get_or_init(|| Value::Object(Map::new()));
        let step = Step::Key(Kw::Const.text());
        self.locs.push(Loc { value: schema, parent: of, step, resource, scope, first, count: 1, alike: id });
        self.ids.insert(key, id);
        id
    }

    /// The location of a sub-schema of `of`.
    pub(super) fn child(&mut self, of: LocId, value: &'a Value, step: Step<'a>) -> LocId {
        let Loc { resource, scope, .. } = self.locs[of as usize];
        self.intern(value, resource, scope, of, step)
    }

    pub(super) fn value(&self, id: LocId) -> &'a Value {
        self.locs[id as usize].value
    }

    pub(super) fn draft(&self, id: LocId) -> Draft {
        self.resources[self.locs[id as usize].resource as usize].draft
    }

    /// The keywords of a location, as a range for [`Documents::keyword`].
    pub(super) fn open(&mut self, id: LocId) -> std::ops::Range<u32> {
        let loc = &self.locs[id as usize];
        if loc.first != CLOSED {
            return loc.first..loc.first + loc.count;
        }
        let (value, mut resource, mut scope) = (loc.value, loc.resource, loc.scope);
        let first = self.pool.len() as u32;
        if let Value::Object(map) = value {
            let mut draft = self.resources[resource as usize].draft;
            if let Some(r) = self.embedded(map, value, resource) {
                resource = r;
                draft = self.resources[r as usize].draft;
            }
            if self.dynamic {
                scope = self.enter(resource, scope);
            }
            let start = self.pool.len();
            for (key, v) in map {
                if let Some(kw) = Kw::of(key, draft) {
                    self.pool.push((kw, v));
                }
            }
            if draft <= Draft::D7 {
                if let Some(i) = self.pool[start..].iter().position(|(k, _)| *k == Kw::Ref) {
                    if self.pool.len() > start + 1 {
                        self.ignored_siblings.push(id);
                    }
                    let only = self.pool[start + i];
                    self.pool.truncate(start);
                    self.pool.push(only);
                }
            }
        }
        let count = self.pool.len() as u32 - first;
        let loc = &mut self.locs[id as usize];
        loc.resource = resource;
        loc.scope = scope;
        loc.first = first;
        loc.count = count;
        first..first + count
    }

    pub(super) fn keyword(&self, i: u32) -> (Kw, &'a Value) {
        self.pool[i as usize]
    }

    /// The value of one keyword of an opened location.
    pub(super) fn get(&mut self, id: LocId, kw: Kw) -> Option<&'a Value> {
        let range = self.open(id);
        self.pool[range.start as usize..range.end as usize].iter().find(|(k, _)| *k == kw).map(|(_, v)| *v)
    }

    /// The resource that starts at a schema object, if one does.
    fn embedded(&mut self, map: &'a Map<String, Value>, value: &'a Value, outer: u32) -> Option<u32> {
        let o = &self.resources[outer as usize];
        if std::ptr::eq(o.root, value) {
            return None;
        }
        // The keyword belongs to the embedded resource's own draft, which `$schema` may change.
        let mut draft = o.draft;
        if !self.forced {
            if let Some(d) = map.get("$schema").and_then(Value::as_str).and_then(Draft::from_uri) {
                draft = d;
            }
        }
        let id = map.get(draft.id_keyword())?.as_str()?;
        if id.starts_with('#') || (draft <= Draft::D7 && map.contains_key("$ref")) {
            return None;
        }
        let base = o.base.clone();
        let inherited = o.draft;
        Some(self.add_resource(value, &base, inherited, Some(outer)))
    }

    /// The scope after entering a resource.
    fn enter(&mut self, resource: u32, scope: u32) -> u32 {
        if let Some(s) = self.scope_of.get(&(resource, scope)) {
            return *s;
        }
        self.build_index();
        let anchors = self.index.as_ref().and_then(|i| i.dynamic.get(&resource)).cloned().unwrap_or_default();
        let mut list = self.scopes[scope as usize].clone();
        for (name, target) in anchors {
            if !list.iter().any(|(n, _)| *n == name) {
                list.push((name, target));
            }
        }
        let same = |a: &Vec<(&str, Target)>, b: &Vec<(&str, Target)>| {
            a.len() == b.len() && a.iter().all(|(n, t)| b.iter().any(|(m, u)| m == n && std::ptr::eq(t.value, u.value)))
        };
        let s = match self.scopes.iter().position(|other| same(other, &list)) {
            Some(i) => i as u32,
            None => {
                self.scopes.push(list);
                self.scopes.len() as u32 - 1
            }
        };
        self.scope_of.insert((resource, scope), s);
        s
    }

    /// Where a `$ref` leads.
    pub(super) fn resolve(&mut self, from: LocId, reference: &'a str, kw: Kw) -> Result<LocId> {
        self.open(from);
        let target = self.target(from, reference, kw)?;
        Ok(self.land(from, target))
    }

    fn land(&mut self, from: LocId, target: Target<'a>) -> LocId {
        let scope = self.locs[from as usize].scope;
        self.intern(target.value, target.resource, scope, from, Step::At(target.pointer))
    }

    /// Where a `$dynamicRef` leads: the outermost place of its anchor in the dynamic scope, if it is a dynamic anchor.
    pub(super) fn resolve_dynamic(&mut self, from: LocId, reference: &'a str, kw: Kw) -> Result<LocId> {
        self.open(from);
        let target = self.target(from, reference, kw)?;
        let name = if kw == Kw::RecursiveRef {
            (target.value.get("$recursiveAnchor") == Some(&Value::Bool(true))).then_some("")
        } else {
            let fragment = reference.split_once('#').map_or("", |(_, f)| f);
            target.value.get("$dynamicAnchor").and_then(Value::as_str).filter(|a| *a == fragment)
        };
        let scope = self.locs[from as usize].scope as usize;
        let outermost = name.and_then(|n| self.scopes[scope].iter().find(|(m, _)| *m == n)).map(|(_, t)| t.clone());
        Ok(self.land(from, outermost.unwrap_or(target)))
    }

    fn target(&mut self, from: LocId, reference: &'a str, kw: Kw) -> Result<Target<'a>> {
        let resource = self.locs[from as usize].resource;
        if let Some(t) = self.resolved.get(&(resource, reference)) {
            return Ok(t.clone());
        }
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let place = |d: &Self| {
            let mut p = d.pointer(from);
            uri::push_token(&mut p, kw.text());
            p
        };
        let whole = if address.is_empty() {
            resource
        } else {
            let full = uri::resolve(&self.resources[resource as usize].base, address);
            match self.find_document(&full) {
                Some(r) => r,
                None => {
                    return Err(CompileError::unsupported(
                        place(self),
                        kw.text(),
                        format!("the document {full:?} is not at hand"),
                        "Pass it in the registry",
                    ))
                }
            }
        };
        let fragment = uri::decode(fragment);
        let t = if fragment.is_empty() {
            let root = self.resources[whole as usize].root;
            Some(Target { value: root, resource: whole, pointer: self.resource_pointer(whole).into() })
        } else if fragment.starts_with('/') {
            match self.walk(whole, &fragment) {
                None if address.is_empty() => {
                    let found = self.walk_astray(whole, &fragment);
                    if found.is_some() {
                        self.astray.push((from, reference));
                    }
                    found
                }
                found => found,
            }
        } else {
            self.build_index();
            let anchors = self.index.as_ref().map(|i| &i.anchors);
            anchors.and_then(|a| a.get(&(whole, fragment.as_str()))).cloned()
        };
        let t =
            t.ok_or_else(|| CompileError::invalid(place(self), format!("the reference {reference:?} leads nowhere")))?;
        self.resolved.insert((resource, reference), t.clone());
        Ok(t)
    }

    fn find_document(&mut self, uri: &str) -> Option<u32> {
        self.build_index();
        if let Some(r) = self.index.as_ref().and_then(|i| i.uris.get(uri)) {
            return Some(*r);
        }
        let registry = self.registry;
        let given = registry.iter().find(|(n, _)| n.trim_end_matches('#') == uri);
        let given = given.map(|(name, value)| (name.trim_end_matches('#'), value));
        let (name, value) = given.or_else(|| metaschemas::find(uri))?;
        let r = self.document(value, name);
        self.scan(value, r);
        if let Some(index) = &mut self.index {
            index.uris.insert(uri.to_owned(), r);
        }
        Some(r)
    }

    /// Follow a JSON pointer from a resource's root, minding resources that start on the way.
    fn walk(&mut self, resource: u32, pointer: &str) -> Option<Target<'a>> {
        let mut value = self.resources[resource as usize].root;
        let mut at = resource;
        for token in pointer.split('/').skip(1) {
            let token = uri::unescape(token);
            value = match value {
                Value::Object(map) => map.get(token.as_ref())?,
                Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                _ => return None,
            };
            if let Value::Object(map) = value {
                at = self.embedded(map, value, at).unwrap_or(at);
            }
        }
        let mut full = self.resource_pointer(resource);
        full.push_str(pointer);
        Some(Target { value, resource: at, pointer: full.into() })
    }

    /// Where a pointer that leads nowhere in its own resource was meant to lead: to the whole resource (`#/`), or to a place of
    /// the document by whoever took no notice of an `$id` on the way.
    fn walk_astray(&mut self, resource: u32, pointer: &str) -> Option<Target<'a>> {
        if pointer == "/" {
            let root = self.resources[resource as usize].root;
            return Some(Target { value: root, resource, pointer: self.resource_pointer(resource).into() });
        }
        let document = self.resources[resource as usize].document;
        if document == resource {
            return None;
        }
        self.walk(document, pointer)
    }

    /// Text that says where a resource is: nothing for the main document.
    fn resource_pointer(&self, resource: u32) -> String {
        if resource == 0 {
            String::new()
        } else {
            format!("{}#", self.resources[resource as usize].base)
        }
    }

    fn build_index(&mut self) {
        if self.index.is_some() {
            return;
        }
        self.index = Some(Index::default());
        let root = self.resources[0].root;
        self.scan(root, 0);
    }

    /// Record the URIs and anchors of a document. Only keywords that hold schemas are looked into.
    fn scan(&mut self, root: &'a Value, resource: u32) {
        let mut work = vec![(root, resource)];
        while let Some((value, outer)) = work.pop() {
            let Value::Object(map) = value else { continue };
            let r = self.embedded(map, value, outer).unwrap_or(outer);
            let draft = self.resources[r as usize].draft;
            let is_root = std::ptr::eq(self.resources[r as usize].root, value);
            let base = self.resources[r as usize].base.clone();
            let here = Target { value, resource: r, pointer: self.resource_pointer(r).into() };
            let Some(index) = self.index.as_mut() else { return };
            if is_root {
                index.uris.entry(base).or_insert(r);
            }
            let mut anchor = |name: &'a str| {
                let pointer = format!("{}#{name}", here.pointer.trim_end_matches('#')).into();
                index.anchors.insert((r, name), Target { pointer, ..here.clone() });
            };
            if draft <= Draft::D7 {
                if let Some(id) = map.get(draft.id_keyword()).and_then(Value::as_str) {
                    if let Some((_, name)) = id.split_once('#') {
                        if !name.is_empty() && !map.contains_key("$ref") {
                            anchor(name);
                        }
                    }
                }
            } else {
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(name) = map.get(key).and_then(Value::as_str) {
                        anchor(name);
                    }
                }
                if let Some(name) = map.get("$dynamicAnchor").and_then(Value::as_str) {
                    index.dynamic.entry(r).or_default().push((name, here.clone()));
                }
                if is_root && map.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
                    index.dynamic.entry(r).or_default().push(("", here.clone()));
                }
            }
            for (key, v) in map {
                match key.as_str() {
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                    | "dependencies" => {
                        if let Value::Object(m) = v {
                            work.extend(m.values().map(|v| (v, r)));
                        }
                    }
                    "allOf" | "anyOf" | "oneOf" | "prefixItems" | "items" => match v {
                        Value::Array(list) => work.extend(list.iter().map(|v| (v, r))),
                        v => work.push((v, r)),
                    },
                    "additionalProperties"
                    | "additionalItems"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "contains"
                    | "propertyNames"
                    | "unevaluatedProperties"
                    | "unevaluatedItems"
                    | "contentSchema" => {
                        work.push((v, r));
                    }
                    _ => {}
                }
            }
        }
    }

    /// JSON pointer of a location.
    pub(super) fn pointer(&self, id: LocId) -> String {
        let mut steps = vec![];
        let mut at = id;
        let mut out = loop {
            let loc = &self.locs[at as usize];
            if let Step::At(p) = &loc.step {
                break p.to_string();
            }
            steps.push(&loc.step);
            at = loc.parent;
        };
        for step in steps.into_iter().rev() {
            match step {
                Step::Key(k) => uri::push_token(&mut out, k),
                Step::In(kw, k) => {
                    uri::push_token(&mut out, kw);
                    uri::push_token(&mut out, k);
                }
                Step::Nth(kw, i) => out.push_str(&format!("/{kw}/{i}")),
                Step::At(_) => {}
            }
        }
        out
    }

    /// A short name for the rule of a location.
    pub(super) fn label(&self, id: LocId) -> String {
        match &self.locs[id as usize].step {
            Step::At(p) => p.rsplit(['/', '#']).next().filter(|s| !s.is_empty()).unwrap_or("root").to_owned(),
            Step::Key(k) | Step::In(_, k) => (*k).to_owned(),
            Step::Nth(kw, i) => format!("{kw}{i}"),
        }
    }
}
