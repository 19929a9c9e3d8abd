//! Tool lists: from a request's text to the tools' names and argument schemas, and the unit that chooses among them.
//!
//! A request offers dozens or hundreds of tools, nearly all of them seen before. So the list is not parsed into a tree: it
//! is split, each tool's schema is looked up by its text, and only unknown ones are parsed. What is built for the request
//! is one flat trie of names.

pub mod choice;
pub mod scan;

pub use choice::{choose, Choice, Tag};
pub use scan::{split, Tool};
