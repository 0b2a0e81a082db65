//! What the SQL engines have in common where they report sums.
//!
//! The first sites of a period are found without reading all of them. With `least`, a sum that enough sites are known to
//! reach, a site that reaches it too has a day with at least `least / days` citations: only those can be among the first,
//! and an index has them. (Cao and Wang, "Efficient top-K query calculation in distributed networks", PODC 2004.)

use sqlx::{ColumnIndex, Database, Decode, Error, Row, Type};

use super::stats::{Counts, DayStats, Site, SiteStats};

/// Fewer citations on a day are not in the index of those days: as in its migrations.
const HEAD: i64 = 8;
/// With more candidates it is faster to add up all sites.
pub(super) const CANDIDATES_MAX: usize = 2000;

/// What a site among the first has in one slot at least; `None`: too few for the index.
pub(super) fn floor(least: i64, slots: usize) -> Option<i64> {
    let slots = count(slots).max(1);
    // Rounded up: whoever reaches the sum has a day with so many.
    let floor = least / slots + i64::from(least % slots > 0);
    (floor >= HEAD).then_some(floor)
}

pub(super) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn day<D, R>(row: &R) -> Result<DayStats, Error>
where
    D: Database<Row = R>,
    R: Row<Database = D>,
    for<'r> i64: Decode<'r, D> + Type<D>,
    for<'r> String: Decode<'r, D> + Type<D>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let counts = Counts {
        messages: row.try_get("messages")?,
        with_sources: row.try_get("with_sources")?,
        citations: row.try_get("citations")?,
        cited: row.try_get("cited")?,
        supplemental: row.try_get("supplemental")?,
        filtered: row.try_get("filtered")?,
        failed: row.try_get("failed")?,
        duplicates: row.try_get("duplicates")?,
        dangling_markers: row.try_get("dangling_markers")?,
    };
    Ok(DayStats { day: row.try_get("day")?, provider: row.try_get("provider")?, counts, sites: Vec::new() })
}

pub(super) fn site<D, R>(row: &R) -> Result<SiteStats, Error>
where
    D: Database<Row = R>,
    R: Row<Database = D>,
    for<'r> i64: Decode<'r, D> + Type<D>,
    for<'r> String: Decode<'r, D> + Type<D>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let site =
        Site { messages: row.try_get("messages")?, citations: row.try_get("citations")?, cited: row.try_get("cited")? };
    Ok(SiteStats { domain: row.try_get("domain")?, site })
}
