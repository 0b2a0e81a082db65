//! `[routes.openai]`: the models of a route and how an OpenAI request becomes an upstream request.

use super::{
    check::{self, Checked},
    error::Location,
    resolve::Reader,
    suggest,
    value::Entry,
};
use crate::mapping::{Mapping, Template, TemplateError, UpstreamFormat, template::Slot};

pub(super) const MODELS: &str = "openai.models";
pub(super) const REQUEST: &str = "openai.request";
/// Listed without its query, which may contain a key.
pub(super) const PATH: &str = "openai.path";
pub(super) const UPSTREAM_MODEL: &str = "openai.upstream_model";
/// Never listed, because it may contain a key.
pub(super) const TEMPLATE: &str = "openai.template";
pub(super) const KEYS: &[&str] = &[MODELS, REQUEST, PATH, UPSTREAM_MODEL, TEMPLATE];

/// Maximum number of models of a route.
const MAX_MODELS: usize = 256;
/// Maximum length of a model's name in bytes.
const MAX_MODEL: usize = 128;

// Default paths of upstream requests.
const OPENAI_PATH: &str = "/v1/chat/completions";
const LEXIANG_PATH: &str = "/cgi-bin/v1/ai/qa";

/// The values of `request`.
enum RequestFormat {
    OpenAi,
    Lexiang,
    Template,
}

/// Reads the mapping. Returns `None` if the route has none, or after an error.
pub(super) fn resolve(reader: &mut Reader<'_>, table: &Location) -> Option<Mapping> {
    let first = KEYS.iter().find_map(|key| reader.keys.get(*key))?.location.clone();
    let models = reader.optional(MODELS, models);
    if !reader.keys.contains_key(MODELS) {
        reader.refuse("openai", &first, "without models = [\"…\"] nobody can ask for it");
    }
    let format = match reader.keys.contains_key(REQUEST) {
        false => Some(RequestFormat::OpenAi),
        true => reader.optional(REQUEST, |entry| {
            check::keyword(entry, UpstreamFormat::NAMES, |text| match text {
                "openai" => Some(RequestFormat::OpenAi),
                "lexiang" => Some(RequestFormat::Lexiang),
                "template" => Some(RequestFormat::Template),
                _ => None,
            })
        }),
    };
    let path = reader.optional_as(PATH, Entry::shown_without_query, path);
    let upstream_model =
        reader.optional(UPSTREAM_MODEL, |entry| entry.text().and_then(model).ok_or_else(|| format!("expected {NAME}")));
    let template = reader.keys.get(TEMPLATE).and_then(|entry| template(entry, reader));

    let refuse = |reader: &mut Reader<'_>, key, why| {
        let location = reader.keys.get(key).map_or(table, |entry: &Entry| &entry.location).clone();
        reader.refuse(key, &location, why);
    };
    let (to, default_path) = match format? {
        RequestFormat::OpenAi => (UpstreamFormat::OpenAi, Some(OPENAI_PATH)),
        RequestFormat::Lexiang => {
            if upstream_model.is_some() {
                refuse(reader, UPSTREAM_MODEL, "Lexiang is not told of models; remove it");
            }
            (UpstreamFormat::Lexiang, Some(LEXIANG_PATH))
        }
        RequestFormat::Template => {
            for (key, why) in [
                (TEMPLATE, "request = \"template\" needs a template, a JSON document with placeholders"),
                (PATH, "request = \"template\" needs a path, such as \"/v1/chat\""),
            ] {
                if !reader.keys.contains_key(key) {
                    refuse(reader, key, why);
                }
            }
            (UpstreamFormat::Template(template?), None)
        }
    };
    if !matches!(to, UpstreamFormat::Template(_)) && reader.keys.contains_key(TEMPLATE) {
        refuse(reader, TEMPLATE, "has no effect unless request = \"template\"");
    }
    let path = if reader.keys.contains_key(PATH) { path } else { default_path.map(str::to_owned) };
    Some(Mapping { models: models?, to, path: path?, upstream_model })
}

const NAME: &str = "a model name: 1 to 128 bytes without spaces";

fn models(entry: &Entry) -> Checked<Vec<String>> {
    let models = check::list(entry, &format!("expected {NAME}"), model)?;
    if models.is_empty() {
        return Err("expected at least one model name".to_owned());
    }
    if models.len() > MAX_MODELS {
        return Err(format!("expected {MAX_MODELS} names at most"));
    }
    match models.iter().enumerate().find(|(i, name)| models[..*i].contains(name)) {
        Some((_, twice)) => Err(format!("{twice:?} is named twice")),
        None => Ok(models),
    }
}

fn model(text: &str) -> Option<String> {
    let plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    ((1..=MAX_MODEL).contains(&text.len()) && plain).then(|| text.to_owned())
}

/// Parses a path with an optional query in origin form (RFC 9112, section 3.2.1).
fn path(entry: &Entry) -> Checked<String> {
    let text = entry.text().unwrap_or_default();
    if !text.starts_with('/') {
        return Err(r#"must begin with "/""#.to_owned());
    }
    let target = text.parse::<http::uri::PathAndQuery>().ok().filter(|target| target.as_str() == text);
    let target = target.ok_or("expected a path of visible ASCII characters, others percent-encoded")?;
    if target.path().split('/').any(|segment| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | ".."))
    {
        return Err(r#"must not contain "." or ".." segments"#.to_owned());
    }
    Ok(text.to_owned())
}

fn template(entry: &Entry, reader: &mut Reader<'_>) -> Option<Template> {
    let slots = || Slot::NAMES.iter().map(|name| format!("{{{{{name}}}}}")).collect::<Vec<_>>().join(", ");
    let why = match entry.text().map(Template::parse) {
        Some(Ok(template)) => return Some(template),
        None => "expected a text: a JSON document with placeholders".to_owned(),
        Some(Err(error)) => match error {
            TemplateError::NotJson(why) => format!("is not JSON: {why}"),
            TemplateError::Unknown(name) => match suggest::nearest(&name, Slot::NAMES.iter().copied()) {
                Some(meant) => format!("{{{{{name}}}}} is not a placeholder; did you mean {{{{{meant}}}}}?"),
                None => format!("{{{{{name}}}}} is not a placeholder; there are {}", slots()),
            },
            TemplateError::Unclosed => "has {{ without }}".to_owned(),
            TemplateError::InKey => "has a placeholder in the name of a member; they stand in values".to_owned(),
            TemplateError::NotText(name) => {
                format!("{{{{{name}}}}} is not a text: it stands alone, as \"{{{{{name}}}}}\"")
            }
            TemplateError::NoQuery => "has neither {{messages}} nor {{query}}: nothing would be asked".to_owned(),
        },
    };
    reader.refuse(TEMPLATE, &entry.location, &why);
    None
}
