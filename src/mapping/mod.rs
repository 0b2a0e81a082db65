//! An OpenAI chat request as another upstream wants it: a function of bytes and values.

mod ask;
mod lexiang;
pub mod template;

use std::borrow::Cow;

pub use ask::{Ask, Refusal};
pub use template::{Template, TemplateError};

use crate::provider::{json_path::Step, splice};

/// Which models a route answers for, and how its upstream is asked.
#[derive(Debug, Clone)]
pub struct Mapping {
    pub models: Vec<String>,
    pub to: To,
    /// Path and query below the route's upstream.
    pub path: String,
    /// What the upstream calls the model; `None`: as the client does.
    pub upstream_model: Option<String>,
}

/// Whose request it becomes.
#[derive(Debug, Clone)]
pub enum To {
    /// Any upstream that takes OpenAI's: the body as it came, but for the model's name.
    OpenAi,
    /// Tencent Lexiang's `ai/qa`.
    Lexiang,
    Template(Template),
}

impl To {
    pub const NAMES: &[&str] = &["openai", "lexiang", "template"];
}

/// What is known of a request beside its body.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    /// The conversation that a header names.
    pub session: Option<&'a str>,
    /// Our id of the request.
    pub request: &'a str,
}

impl Mapping {
    /// The body for the upstream; borrowed where it is the client's own.
    pub fn body<'b>(&self, ask: &Ask<'b>, beside: Beside<'_>) -> Result<Cow<'b, [u8]>, Refusal> {
        match (&self.to, &self.upstream_model) {
            (To::OpenAi, None) => Ok(Cow::Borrowed(ask.json().as_bytes())),
            (To::OpenAi, Some(name)) => {
                let renamed = splice::replace(ask.json(), [(&[Step::Key("model")][..], name.as_str())]);
                renamed.map(|json| Cow::Owned(json.into_bytes())).ok_or_else(|| Refusal::of("model", "is not a text"))
            }
            (To::Lexiang, _) => lexiang::body(ask, beside).map(Cow::Owned),
            (To::Template(template), name) => {
                template.fill(ask, name.as_deref().unwrap_or(&ask.model), beside).map(Cow::Owned)
            }
        }
    }
}

#[cfg(test)]
mod tests;
