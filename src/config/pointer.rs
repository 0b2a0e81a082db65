//! JSON pointers: where a request body holds the query of a supplementary search.

/// Maximum number of steps: the depth to which request bodies are parsed.
const MAX_STEPS: usize = crate::provider::json::MAX_DEPTH as usize;

/// A JSON pointer (RFC 6901). Extensions: `-` is the last element of an array, and a string that contains JSON is parsed.
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
