//! Flat constraints: what a conjunction of schemas says about instances of each type, applicators taken apart.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::decimal::Decimal;
use super::documents::LocId;
use super::keyword::{Kw, On};

/// A set of JSON types. Booleans and numbers are split further, so that complements stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Types(pub u8);

impl Types {
    pub const NONE: Types = Types(0);
    pub const NULL: Types = Types(1);
    pub const TRUE: Types = Types(2);
    pub const FALSE: Types = Types(4);
    pub const BOOLEAN: Types = Types(6);
    /// Numbers without a fraction.
    pub const INTEGER: Types = Types(8);
    /// Numbers with a fraction.
    pub const FRACTION: Types = Types(16);
    pub const NUMBER: Types = Types(24);
    pub const STRING: Types = Types(32);
    pub const ARRAY: Types = Types(64);
    pub const OBJECT: Types = Types(128);
    pub const ALL: Types = Types(255);

    /// The groups that are emitted apart.
    pub const GROUPS: [Types; 6] =
        [Types::NULL, Types::BOOLEAN, Types::NUMBER, Types::STRING, Types::ARRAY, Types::OBJECT];

    pub(super) fn named(name: &str) -> Option<Types> {
        Some(match name {
            "null" => Types::NULL,
            "boolean" => Types::BOOLEAN,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "string" => Types::STRING,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            _ => return None,
        })
    }

    pub(super) fn of(v: &Value) -> Types {
        match v {
            Value::Null => Types::NULL,
            Value::Bool(true) => Types::TRUE,
            Value::Bool(false) => Types::FALSE,
            Value::Number(n) => match Decimal::parse(n.as_str()) {
                Some(d) if !d.is_integer() => Types::FRACTION,
                _ => Types::INTEGER,
            },
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(super) fn on(on: On) -> Types {
        match on {
            On::Any => Types::ALL,
            On::Number => Types::NUMBER,
            On::String => Types::STRING,
            On::Array => Types::ARRAY,
            On::Object => Types::OBJECT,
        }
    }

    pub(super) fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    pub(super) fn not(self) -> Types {
        Types(!self.0)
    }

    pub(super) fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A schema location that an instance must satisfy, or (`negated`) must not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Atom(u32);

impl Atom {
    pub(super) fn new(loc: LocId, negated: bool) -> Atom {
        Atom(loc << 1 | negated as u32)
    }

    pub(super) fn is(loc: LocId) -> Atom {
        Atom::new(loc, false)
    }

    pub(super) fn isnt(loc: LocId) -> Atom {
        Atom::new(loc, true)
    }

    pub(super) fn loc(self) -> LocId {
        self.0 >> 1
    }

    pub(super) fn negated(self) -> bool {
        self.0 & 1 == 1
    }

    pub(super) fn flipped(self) -> Atom {
        Atom(self.0 ^ 1)
    }
}

/// A conjunction of atoms, sorted and without repetition: the key of a rule.
pub(super) type Conj = SmallVec<[Atom; 4]>;

/// One literal of a conjunction in progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lit<'a> {
    Atom(Atom),
    /// The keyword's assertion at this location fails; for `properties`, its own or that of `required` beside it.
    Fails(LocId, Kw),
    /// If an object: it has the property.
    Require(&'a str),
    /// If an object: it does not have the property.
    Forbid(&'a str),
    /// If an object with this property: its value satisfies the atom.
    Property(&'a str, Atom),
    /// If an array: it has at least so many items.
    MinItems(u64),
    /// If an array longer than this: the item satisfies the atom.
    Item(usize, Atom),
    /// If an array: some item from this position on satisfies the atom.
    SomeItem(usize, Atom),
    /// If an array: so many items satisfy the location.
    Count(LocId, u64, Option<u64>),
    /// If an object: one of the properties that the keyword of this location looks at fails it.
    SomeProperty(LocId, Kw),
    /// If an object: it has a property whose name is none of these.
    Beyond(&'a Map<String, Value>, (LocId, Kw)),
    /// If an object: what exists has a name without a place of its own.
    SomeName(Existence<'a>),
    /// If an array: it has at most so many items.
    MaxItems(u64),
    /// A number that an OpenAPI format does not allow, and in which way.
    Outside(&'static str, Side),
}

/// How a number can miss a format that is a range of numbers, or of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
    Fraction,
}

/// A property that must exist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Existence<'a> {
    /// One that the keyword of this location does not allow.
    Keyword(LocId, Kw),
    /// One whose name is none of these; where that is asked.
    Beyond(&'a Map<String, Value>, (LocId, Kw)),
}

pub(super) type Lits<'a> = SmallVec<[Lit<'a>; 2]>;

#[derive(Debug)]
pub(super) struct Disjunction<'a> {
    /// Exactly one option instead of at least one: `oneOf`.
    pub exclusive: bool,
    pub options: Vec<Lits<'a>>,
    /// Where it comes from.
    pub loc: LocId,
}

/// A schema object that is applied in place, and the one that applied it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub loc: LocId,
    pub parent: u32,
    /// Applied through an alternative.
    pub option: bool,
}

pub(super) const NO_NODE: u32 = u32::MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bound {
    pub value: Option<Decimal>,
    pub exclusive: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Numbers<'a> {
    pub min: Bound,
    pub max: Bound,
    pub multiples: SmallVec<[&'a str; 1]>,
    pub not_multiples: SmallVec<[&'a str; 1]>,
    pub except: Vec<Decimal>,
    /// Integers must be written without fraction and exponent (draft 4).
    pub plain: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Strings<'a> {
    pub min: u64,
    pub max: Option<u64>,
    /// (pattern, must match)
    pub patterns: SmallVec<[(&'a str, bool); 1]>,
    pub formats: SmallVec<[(&'a str, bool); 1]>,
    pub base64: bool,
    pub except: Vec<&'a str>,
    /// Where to point when a pattern or format cannot be had.
    pub at: LocId,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayPart<'a> {
    pub loc: LocId,
    pub node: u32,
    pub prefix: Option<(&'static str, &'a [Value])>,
    pub rest: Option<(&'static str, &'a Value)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Contains {
    pub atom: Atom,
    pub node: u32,
    pub from: usize,
    pub min: u64,
    pub max: Option<u64>,
    /// Items that match count as evaluated.
    pub evaluates: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Arrays<'a> {
    pub parts: SmallVec<[ArrayPart<'a>; 1]>,
    pub items: Vec<(usize, Atom)>,
    pub contains: Vec<Contains>,
    pub min: u64,
    pub max: Option<u64>,
    pub unique: Option<LocId>,
    pub unevaluated: Vec<(u32, LocId)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectPart<'a> {
    pub loc: LocId,
    pub node: u32,
    pub properties: Option<&'a Map<String, Value>>,
    pub patterns: Option<&'a Map<String, Value>>,
    pub additional: Option<&'a Value>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Objects<'a> {
    pub parts: SmallVec<[ObjectPart<'a>; 2]>,
    pub required: SmallVec<[&'a str; 8]>,
    pub forbidden: SmallVec<[&'a str; 2]>,
    pub properties: SmallVec<[(&'a str, Atom); 2]>,
    pub names: SmallVec<[Atom; 1]>,
    pub min: u64,
    pub max: Option<u64>,
    pub unevaluated: Vec<(u32, LocId)>,
    pub some: Vec<Existence<'a>>,
    /// What exists under a name without a place of its own.
    pub some_names: Vec<Existence<'a>>,
}

/// What copies share until one of them is changed: alternatives are copies of what they have in common, and most change
/// little of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OnWrite<T>(Rc<T>);

impl<T: Clone> OnWrite<T> {
    /// The value itself.
    pub(super) fn own(&self) -> T {
        T::clone(&self.0)
    }
}

impl<T> Deref for OnWrite<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for OnWrite<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}

/// A conjunction taken apart, and the choices still open.
#[derive(Clone, Debug)]
pub(super) struct Flat<'a> {
    pub types: Types,
    /// Counts what narrowed it: an option that leaves this unchanged is no constraint.
    pub edits: u32,
    /// The top literals, which together are the whole conjunction.
    pub lits: SmallVec<[Lit<'a>; 4]>,
    /// The instance is one of these (`enum`, `const`).
    pub values: Option<Rc<Vec<&'a Value>>>,
    pub nodes: SmallVec<[Node; 4]>,
    pub denied: SmallVec<[LocId; 2]>,
    pub choices: SmallVec<[(Rc<Disjunction<'a>>, u32); 2]>,
    pub number: OnWrite<Numbers<'a>>,
    pub string: OnWrite<Strings<'a>>,
    pub array: OnWrite<Arrays<'a>>,
    pub object: OnWrite<Objects<'a>>,
}

impl<'a> Flat<'a> {
    pub(super) fn new() -> Flat<'a> {
        Flat {
            types: Types::ALL,
            edits: 0,
            lits: SmallVec::new(),
            values: None,
            nodes: SmallVec::new(),
            denied: SmallVec::new(),
            choices: SmallVec::new(),
            number: OnWrite::default(),
            string: OnWrite::default(),
            array: OnWrite::default(),
            object: OnWrite::default(),
        }
    }

    pub(super) fn restrict(&mut self, types: Types) {
        let both = self.types.and(types);
        if both != self.types {
            self.types = both;
            self.edits += 1;
        }
    }

    pub(super) fn kill(&mut self) {
        self.restrict(Types::NONE);
    }

    /// What a copy of it costs: see [`super::Compiler::weigh`].
    pub(super) fn weight(&self) -> usize {
        8 + (self.nodes.len() + self.lits.len() + self.denied.len() + self.choices.len()) / 2
    }

    /// Whether nothing can match, as far as that shows at once.
    pub(super) fn is_dead(&self) -> bool {
        self.types.is_empty() || self.values.as_ref().is_some_and(|v| v.is_empty())
    }

    pub(super) fn require(&mut self, name: &'a str) {
        if self.object.forbidden.contains(&name) {
            self.restrict(Types::OBJECT.not());
        }
        // Long lists are given once; looking each name up in them would be quadratic.
        if self.object.required.len() < 64 && self.object.required.contains(&name) {
            return;
        }
        self.object.required.push(name);
        self.edits += 1;
    }

    pub(super) fn forbid(&mut self, name: &'a str) {
        if self.object.required.contains(&name) {
            self.restrict(Types::OBJECT.not());
        }
        if !self.object.forbidden.contains(&name) {
            self.object.forbidden.push(name);
            self.edits += 1;
        }
    }

    pub(super) fn bound(&mut self, value: Decimal, exclusive: bool, upper: bool) {
        let n = &mut self.number;
        let b = if upper { &mut n.max } else { &mut n.min };
        let tighter = match &b.value {
            None => true,
            Some(old) => match value.cmp(old) {
                std::cmp::Ordering::Equal => exclusive && !b.exclusive,
                o => (o == std::cmp::Ordering::Less) == upper,
            },
        };
        if tighter {
            b.value = Some(value);
            b.exclusive = exclusive;
            self.edits += 1;
            if self.number.is_empty() {
                self.restrict(Types::NUMBER.not());
            }
        }
    }

    /// Narrow a pair of counts.
    fn narrow(edits: &mut u32, at: (&mut u64, &mut Option<u64>), min: Option<u64>, max: Option<u64>) -> bool {
        if let Some(m) = min.filter(|m| *m > *at.0) {
            *at.0 = m;
            *edits += 1;
        }
        if let Some(m) = max.filter(|m| at.1.is_none_or(|old| *m < old)) {
            *at.1 = Some(m);
            *edits += 1;
        }
        at.1.is_some_and(|m| m < *at.0)
    }

    pub(super) fn length(&mut self, min: Option<u64>, max: Option<u64>) {
        let s = &mut *self.string;
        if Self::narrow(&mut self.edits, (&mut s.min, &mut s.max), min, max) {
            self.restrict(Types::STRING.not());
        }
    }

    pub(super) fn item_count(&mut self, min: Option<u64>, max: Option<u64>) {
        let a = &mut *self.array;
        if Self::narrow(&mut self.edits, (&mut a.min, &mut a.max), min, max) {
            self.restrict(Types::ARRAY.not());
        }
    }

    pub(super) fn property_count(&mut self, min: Option<u64>, max: Option<u64>) {
        let o = &mut *self.object;
        if Self::narrow(&mut self.edits, (&mut o.min, &mut o.max), min, max) {
            self.restrict(Types::OBJECT.not());
        }
    }

    /// Whether `node` was applied by `ancestor`, or is it.
    pub(super) fn under(&self, node: u32, ancestor: u32) -> bool {
        let mut at = node;
        while at != NO_NODE {
            if at == ancestor {
                return true;
            }
            at = self.nodes[at as usize].parent;
        }
        false
    }
}

impl Numbers<'_> {
    /// Whether the bounds exclude each other.
    pub(super) fn is_empty(&self) -> bool {
        match (&self.min.value, &self.max.value) {
            (Some(a), Some(b)) => a > b || (a == b && (self.min.exclusive || self.max.exclusive)),
            _ => false,
        }
    }
}
