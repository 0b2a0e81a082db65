//! The path of a value in a frame's JSON. Adapters send it with a text; `pipeline` uses it to rewrite that text.

/// A path, as a list from the innermost step outwards that borrows from the caller's stack: building one allocates nothing.
/// A string that holds JSON is no step of its own; [`splice`](super::splice) decodes it where the path continues inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JsonPath<'t>(Option<(&'t JsonPath<'t>, Step)>);

/// A step from a value to one inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Key(&'static str),
    Index(usize),
}

impl<'t> JsonPath<'t> {
    /// The root of the document.
    pub const ROOT: Self = Self(None);

    pub fn key(&'t self, key: &'static str) -> Self {
        Self(Some((self, Step::Key(key))))
    }

    pub fn index(&'t self, index: usize) -> Self {
        Self(Some((self, Step::Index(index))))
    }

    /// The steps, starting at the root.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = *self;
        while let Some((up, step)) = at.0 {
            steps.push(step);
            at = *up;
        }
        steps.reverse();
        steps
    }
}
