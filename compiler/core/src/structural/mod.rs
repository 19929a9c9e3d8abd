//! Structural tags: the language in which serving engines describe free text with constrained parts in it.
//!
//! A tag is read ([`format`]) and planned ([`plan`]): into *contents*, which are sources of their own (a tool's schema, a
//! pattern, a grammar) and are looked up by their text; *choices* of tags, which a request builds flat (see
//! [`tools::choice`](crate::tools::choice)); and *skeletons*, small grammars in which contents and choices are holes. What
//! a skeleton is lowered to depends on nothing that fills its holes, so it is known from request to request, too.

pub mod format;
mod json;
pub mod markers;
pub mod plan;
mod spelled;

pub use markers::Markers;
pub use plan::{plan, Content, Options, Part, Plan, TagPlan};
