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

    /// Fewest characters of a match.
    fn width(&self) -> u64 {
        match self {
            Node::Set(_) => 1,
            Node::Seq(v) => v.iter().fold(0, |sum, n| sum.saturating_add(n.width())),
            Node::Alt(v) => v.iter().map(Node::width).min().unwrap_or(0),
            Node::Repeat { body, min, .. } => u64::from(*min).saturating_mul(body.width()),
            Node::Empty | Node::Start | Node::End | Node::Edge { .. } | Node::Look { .. } => 0,
        }
    }

    /// Without the bounds on repeats that no text of at most `most` characters reaches.
    pub fn within(self, most: u64) -> Node {
        let all = |v: Vec<Node>| v.into_iter().map(|n| n.within(most)).collect::<Vec<_>>();
        match self {
            Node::Seq(v) => Node::Seq(all(v)),
            Node::Alt(v) => Node::Alt(all(v)),
            Node::Repeat { body, min, max } => {
                let reached = |max: &u32| (u64::from(*max) + 1).saturating_mul(body.width()) <= most;
                let max = max.filter(reached);
                Node::Repeat { body: Box::new(body.within(most)), min, max }
            }
            Node::Look { behind, not, body, at } => Node::Look { behind, not, body: Box::new(body.within(most)), at },
            n => n,
        }
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
