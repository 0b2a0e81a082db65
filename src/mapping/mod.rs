//! Maps an OpenAI chat request to the request of another upstream. `config` builds the [`Mapping`]s, `api::facade` applies
//! them. Does no I/O.

mod lexiang;
mod request;
pub mod template;

use std::borrow::Cow;

pub use request::{ChatRequest, InvalidRequest};
pub use template::{Template, TemplateError};

use crate::provider::{json_path::Step, splice};

/// The models of a route, and the format of its upstream's requests.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// Model names that clients use for this route.
    pub models: Vec<String>,
    pub to: UpstreamFormat,
    /// Path and query below the route's upstream.
    pub path: String,
    /// The upstream's name of the model. `None`: the client's name.
    pub upstream_model: Option<String>,
}

/// Request format of an upstream.
#[derive(Debug, Clone)]
pub enum UpstreamFormat {
    /// OpenAI's: the client's body, with only the model's name replaced.
    OpenAi,
    /// Tencent Lexiang's `ai/qa`.
    Lexiang,
    /// A JSON document with placeholders, from the configuration.
    Template(Template),
}

impl UpstreamFormat {
    /// Names in the configuration.
    pub const NAMES: &[&str] = &["openai", "lexiang", "template"];
}

/// Values of a request that are not in its body.
#[derive(Debug, Clone, Copy)]
pub struct RequestContext<'a> {
    /// The conversation's id from a header. Overrides the body's.
    pub session: Option<&'a str>,
    /// citetap's id of the request.
    pub request_id: &'a str,
}

impl Mapping {
    /// Builds the upstream's body. Borrowed if it is the client's body unchanged.
    pub fn body<'b>(
        &self,
        request: &ChatRequest<'b>,
        context: RequestContext<'_>,
    ) -> Result<Cow<'b, [u8]>, InvalidRequest> {
        match (&self.to, &self.upstream_model) {
            (UpstreamFormat::OpenAi, None) => Ok(Cow::Borrowed(request.json().as_bytes())),
            (UpstreamFormat::OpenAi, Some(name)) => {
                let renamed = splice::replace(request.json(), [(&[Step::Key("model")][..], name.as_str())]);
                renamed
                    .map(|json| Cow::Owned(json.into_bytes()))
                    .ok_or_else(|| InvalidRequest::new("model", "is not a text"))
            }
            (UpstreamFormat::Lexiang, _) => lexiang::body(request, context).map(Cow::Owned),
            (UpstreamFormat::Template(template), name) => {
                template.fill(request, name.as_deref().unwrap_or(&request.model), context).map(Cow::Owned)
            }
        }
    }
}

#[cfg(test)]
mod tests;
