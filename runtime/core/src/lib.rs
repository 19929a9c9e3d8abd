//! Running requests: compiled grammars, matchers, masks. No Python types.

mod ahead;
pub mod batch;
pub mod bounds;
mod counted;
mod distinct;
pub mod durations;
pub mod engine;
pub mod exchange;
pub mod grammar;
pub mod matcher;
pub mod source;
pub mod structural;
pub mod table;
pub mod tagging;
pub mod tokens;
pub mod warm;

pub use bounds::Bounds;
pub use durations::Durations;
pub use engine::{Compiled, Engine, EngineStats, SchemaOptions, Source};
pub use grammar::{Grammar, GrammarStats, Place, TagMap, TagStates};
pub use matcher::{Matcher, MatcherError, TagEvent, Taken};
pub use table::Table;
pub use tokens::Tokens;
