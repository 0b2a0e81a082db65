//! The sums of a period, read without its records. How its first sites are found: [`crate::store::sums`].

use std::collections::HashMap;

use sqlx::{PgConnection, Row as _, postgres::PgArguments, query::Query};

use super::text::{key, unescape};
use crate::store::{
    stats::{self, STATS_TOP_MAX, StatsFilter, StatsReport},
    sums::{CANDIDATES_MAX, count, day, floor, site},
};

/// The slots of a filter: `$1` is the tenant, `$2` and `$3` the days, `$4` the provider or NULL.
macro_rules! of_slots {
    () => {
        "d.tenant = $1 AND d.day >= $2 AND d.day < $3 AND ($4::text IS NULL OR d.provider = $4)"
    };
}

/// Of all shards.
pub(super) const SLOTS: &str = concat!(
    "SELECT d.day, d.provider, sum(d.messages)::bigint AS messages, sum(d.with_sources)::bigint AS with_sources,
     sum(d.citations)::bigint AS citations, sum(d.cited)::bigint AS cited, sum(d.supplemental)::bigint AS supplemental,
     sum(d.filtered)::bigint AS filtered, sum(d.failed)::bigint AS failed, sum(d.duplicates)::bigint AS duplicates,
     sum(d.dangling_markers)::bigint AS dangling_markers, count(*) AS shards FROM citetap_daily d WHERE ",
    of_slots!(),
    " GROUP BY d.day, d.provider ORDER BY d.day, d.provider"
);

/// What the `$5`th site has at least, by the `$5` first of each slot.
pub(super) const LEAST: &str = concat!(
    "SELECT sum(h.citations)::bigint AS least FROM citetap_daily d CROSS JOIN LATERAL
     (SELECT s.domain, s.citations FROM citetap_daily_site s WHERE s.slot = d.n AND s.citations >= 8
      ORDER BY s.citations DESC LIMIT $5) AS h WHERE ",
    of_slots!(),
    " GROUP BY h.domain ORDER BY least DESC LIMIT 1 OFFSET $5 - 1"
);

/// The sites with a slot of `$5` citations or more; `$6` of them at most.
pub(super) const CANDIDATES: &str = concat!(
    "SELECT DISTINCT s.domain FROM citetap_daily d JOIN citetap_daily_site s
     ON s.slot = d.n AND s.citations >= 8 AND s.citations >= $5 WHERE ",
    of_slots!(),
    " LIMIT $6"
);

/// The first `$6` of the sites in `$5`.
pub(super) const FIRST_OF: &str = concat!(
    "SELECT s.domain, sum(s.messages)::bigint AS messages, sum(s.citations)::bigint AS citations,
     sum(s.cited)::bigint AS cited FROM citetap_daily d JOIN citetap_daily_site s
     ON s.slot = d.n AND s.domain = ANY($5::text[]) WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT $6"
);

/// The first `$5` of all sites.
pub(super) const FIRST: &str = concat!(
    "SELECT s.domain, sum(s.messages)::bigint AS messages, sum(s.citations)::bigint AS citations,
     sum(s.cited)::bigint AS cited FROM citetap_daily d JOIN citetap_daily_site s ON s.slot = d.n WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT $5"
);

/// The sites in `$5`, day by day.
pub(super) const BY_SLOT: &str = concat!(
    "SELECT d.day, d.provider, s.domain, sum(s.messages)::bigint AS messages, sum(s.citations)::bigint AS citations,
     sum(s.cited)::bigint AS cited FROM citetap_daily d JOIN citetap_daily_site s
     ON s.slot = d.n AND s.domain = ANY($5::text[]) WHERE ",
    of_slots!(),
    " GROUP BY d.day, d.provider, s.domain"
);

/// Within a transaction of one snapshot, so that all of it is of one moment.
pub(super) struct Reader<'a> {
    pub(super) conn: &'a mut PgConnection,
    pub(super) tenant: &'a str,
    pub(super) filter: &'a StatsFilter,
}

impl Reader<'_> {
    pub(super) async fn report(mut self) -> Result<StatsReport, sqlx::Error> {
        let rows = self.asking(SLOTS).fetch_all(&mut *self.conn).await?;
        let (mut days, mut slots) = (Vec::with_capacity(rows.len()), 0);
        for row in &rows {
            slots += usize::try_from(row.try_get::<i64, _>("shards")?).unwrap_or_default();
            days.push(day(row)?);
        }
        let top = self.filter.top.min(STATS_TOP_MAX);
        if days.is_empty() || top == 0 {
            return Ok(StatsReport { days: readable(days), sites: Vec::new() });
        }
        let rows = match self.candidates(top, slots).await? {
            Some(candidates) => {
                self.asking(FIRST_OF).bind(candidates).bind(count(top)).fetch_all(&mut *self.conn).await?
            }
            None => self.asking(FIRST).bind(count(top)).fetch_all(&mut *self.conn).await?,
        };
        let sites = rows.iter().map(site).collect::<Result<Vec<_>, _>>()?;
        if self.filter.by_day {
            let listed: Vec<String> = sites.iter().map(|one| one.domain.clone()).collect();
            let rows = self.asking(BY_SLOT).bind(listed).fetch_all(&mut *self.conn).await?;
            let places: HashMap<_, _> =
                (0..).zip(&days).map(|(at, one)| ((one.day, one.provider.clone()), at)).collect();
            for row in &rows {
                let place = places.get(&(row.try_get("day")?, row.try_get("provider")?));
                if let Some(day) = place.and_then(|at: &usize| days.get_mut(*at)) {
                    day.sites.push(site(row)?);
                }
            }
            for day in &mut days {
                day.sites = stats::ranked(std::mem::take(&mut day.sites));
            }
        }
        Ok(StatsReport { days: readable(days), sites })
    }

    /// The sites that can be among the first; `None`: any.
    pub(super) async fn candidates(&mut self, top: usize, slots: usize) -> Result<Option<Vec<String>>, sqlx::Error> {
        if let Some(domain) = &self.filter.domain {
            return Ok(Some(vec![key(&stats::asked_site(domain)).into_owned()]));
        }
        if top > CANDIDATES_MAX {
            return Ok(None);
        }
        let least = self.asking(LEAST).bind(count(top)).fetch_optional(&mut *self.conn).await?;
        let Some(least) = least else { return Ok(None) };
        let Some(floor) = floor(least.try_get("least")?, slots) else { return Ok(None) };
        let query = self.asking(CANDIDATES).bind(floor).bind(count(CANDIDATES_MAX + 1));
        let found = query.fetch_all(&mut *self.conn).await?;
        let found = found.iter().map(|row| row.try_get("domain")).collect::<Result<Vec<String>, _>>()?;
        Ok((found.len() <= CANDIDATES_MAX).then_some(found))
    }

    fn asking<'q>(&self, query: &'static str) -> Query<'q, sqlx::Postgres, PgArguments> {
        let days = stats::days(self.filter);
        sqlx::query(query)
            .bind(key(self.tenant).into_owned())
            .bind(days.start)
            .bind(days.end)
            .bind(self.filter.provider.as_deref().map(|provider| key(provider).into_owned()))
    }
}

fn readable(mut days: Vec<stats::DayStats>) -> Vec<stats::DayStats> {
    for day in &mut days {
        day.provider = unescape(std::mem::take(&mut day.provider));
    }
    days
}
