//! What a search gives: its bundle for an evidence pipeline, the verdict on its sources, and the record of both.

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
    /// `None` for a record that is not of a search.
    pub fn new(record: Box<Record>, rules: &Rules) -> Option<Self> {
        let bundle = bundle::bundles(&record, rules).into_iter().next()?;
        Some(Self { bundle, corroboration: record.corroboration.clone(), record })
    }
}
