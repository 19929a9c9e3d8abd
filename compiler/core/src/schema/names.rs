//! Names that are worked out, kept for as long as those that stand in the documents.

use std::cell::OnceCell;

/// A list that can grow while its items are borrowed. It is short: what is kept is looked for from its start.
#[derive(Default)]
pub(super) struct Names {
    first: OnceCell<Box<Link>>,
}

struct Link {
    name: String,
    next: OnceCell<Box<Link>>,
}

impl Names {
    /// Keeps a name; equal ones are kept once.
    pub(super) fn keep(&self, name: String) -> &str {
        let mut at = &self.first;
        loop {
            match at.get() {
                Some(link) if link.name == name => return &link.name,
                Some(link) => at = &link.next,
                None => return &at.get_or_init(|| Box::new(Link { name, next: OnceCell::new() })).name,
            }
        }
    }
}

// Links are dropped one after the other, not inside one another.
impl Drop for Names {
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut link) = next {
            next = link.next.take();
        }
    }
}
