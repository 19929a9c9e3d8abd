//! Sources to grammar IR to units, their digests, and what is computed from units and a vocabulary: the stepping machine
//! and mask entries. No Python types; see `docs/kernel.md` for the tour.

pub mod automata;
pub mod digest;
pub mod ebnf;
pub mod entry;
pub mod error;
pub mod exchange;
pub mod flat;
pub mod fsm;
pub mod ir;
pub mod limits;
pub mod lower;
pub mod machine;
pub mod mask_cache;
pub mod program;
pub mod regex;
pub mod schema;
pub mod structural;
pub mod tails;
pub mod tools;
pub mod unit;
pub mod vocab;

pub use error::{CompileError, Result};
pub use limits::{Budget, Limits};

/// Version of every stored format and of the digest. Hashed into digests.
///
/// 2: mask-cache entries written by version 1 may lack tokens where a counted class overlaps with what follows it.
pub const FORMAT_VERSION: u32 = 2;

/// Version of what sources are lowered to. Hashed into the keys of manifests, so that a mended front end finds none of
/// the manifests its predecessor stored, and all of the units and entries.
///
/// 1: loops over anchors (`(?:^a*$){2,}`) no longer match more than they should.
/// 2: `format: regex` where nothing else is asked is a grammar; as an automaton it has look-behinds.
/// 3: alternatives of objects fail and depend on names in fewer ways; unique objects and arrays that run out, and numbers
///    without a format, are no longer refused.
/// 4: alternatives are left out that others imply or repeat, names that few patterns allow are declared where they are counted,
///    and bounds on repeats that a length does not reach are not counted inside of look-arounds either.
pub const LOWERING_VERSION: u32 = 4;
