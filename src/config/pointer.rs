//! JSON pointers in the configuration.

/// Steps of a pointer; no body is read deeper.
const MAX_STEPS: usize = crate::provider::json::MAX_DEPTH as usize;

/// A JSON pointer (RFC 6901). `-` is the last of a list, and strings that hold JSON are looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

impl Pointer {
    pub fn parse(text: &str) -> Option<Self> {
        let steps = text.strip_prefix('/')?.split('/');
        let steps: Vec<String> = steps
            .map(|step| {
                let escaped = step.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
                escaped.then(|| step.replace("~1", "/").replace("~0", "~"))
            })
            .collect::<Option<_>>()?;
        (steps.len() <= MAX_STEPS).then_some(Self(steps))
    }

    pub fn steps(&self) -> &[String] {
        &self.0
    }
}
