//! The result of a search as `POST /search` and `citetap search` return it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::citation::{
    Record, Rules,
    bundle::{self, SearchResultBundle},
    corroborate::Corroboration,
};

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SearchAnswer)]
pub struct Found {
    pub bundle: SearchResultBundle,
    /// Null when nothing was found: there is nothing to agree.
    pub corroboration: Option<Corroboration>,
    pub record: Box<Record>,
}

impl Found {
    /// `None` if the record has no search round.
    pub fn new(record: Box<Record>, rules: &Rules) -> Option<Self> {
        let bundle = bundle::bundles(&record, rules).into_iter().next()?;
        Some(Self { bundle, corroboration: record.corroboration.clone(), record })
    }
}
