//! Where in a frame's JSON a text stands.

/// The way down to a value, innermost step first. Strings that hold JSON are no step: whoever follows the
/// way opens them where it leads into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JsonPath<'t>(Option<(&'t JsonPath<'t>, Step)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Key(&'static str),
    Index(usize),
}

impl<'t> JsonPath<'t> {
    /// The document itself.
    pub const ROOT: Self = Self(None);

    pub fn key(&'t self, key: &'static str) -> Self {
        Self(Some((self, Step::Key(key))))
    }

    pub fn index(&'t self, index: usize) -> Self {
        Self(Some((self, Step::Index(index))))
    }

    /// The steps from the document down.
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
