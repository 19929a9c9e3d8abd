//! The syntax tree of a pattern. Captures, names and laziness are gone: they do not change which strings match.

use super::class::CharSet;

#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Empty,
    /// One character of the set.
    Set(CharSet),
    Seq(Vec<Node>),
    Alt(Vec<Node>),
    Repeat {
        body: Box<Node>,
        min: u32,
        max: Option<u32>,
    },
    /// `^`
    Start,
    /// `$`
    End,
    /// `\b`, or `\B` if `not`; `word` is `\w` as the flags in force define it.
    Edge {
        not: bool,
        word: CharSet,
    },
    Look {
        behind: bool,
        not: bool,
        body: Box<Node>,
        /// Where it stands in the pattern, in characters.
        at: usize,
    },
}

impl Node {
    pub fn seq(mut items: Vec<Node>) -> Node {
        match items.len() {
            0 => Node::Empty,
            1 => items.swap_remove(0),
            _ => Node::Seq(items),
        }
    }

    pub fn alt(mut items: Vec<Node>) -> Node {
        if items.len() == 1 {
            items.swap_remove(0)
        } else {
            Node::Alt(items)
        }
    }

    /// Any string.
    pub fn anything() -> Node {
        Node::Repeat { body: Box::new(Node::Set(CharSet::any())), min: 0, max: None }
    }

    /// Whether some part satisfies `test`.
    pub fn any(&self, test: &impl Fn(&Node) -> bool) -> bool {
        test(self)
            || match self {
                Node::Seq(v) | Node::Alt(v) => v.iter().any(|n| n.any(test)),
                Node::Repeat { body, .. } | Node::Look { body, .. } => body.any(test),
                _ => false,
            }
    }
}
