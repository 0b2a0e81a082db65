//! The sums of a period, read without its records. How its first sites are found: [`crate::store::sums`].

use std::collections::HashMap;

use sqlx::{Row as _, SqliteConnection};

use crate::store::{
    stats::{self, STATS_TOP_MAX, StatsFilter, StatsReport},
    sums::{CANDIDATES_MAX, count, day, floor, site},
};

/// The slots of a filter: `?1` is the tenant, `?2` and `?3` the days, `?4` the provider or NULL.
macro_rules! of_slots {
    () => {
        "d.tenant = ?1 AND d.day >= ?2 AND d.day < ?3 AND (?4 IS NULL OR d.provider = ?4)"
    };
}

pub(super) const SLOTS: &str = concat!("SELECT d.* FROM daily d WHERE ", of_slots!(), " ORDER BY d.day, d.provider");

/// What the `?5`th site has at least, by the `?5` first of each slot.
pub(super) const LEAST: &str = concat!(
    "SELECT sum(s.citations) AS least FROM daily d CROSS JOIN daily_site s ON s.slot = d.n AND s.domain IN
     (SELECT h.domain FROM daily_site h INDEXED BY daily_site_head
      WHERE h.slot = d.n AND h.citations >= 8 ORDER BY h.citations DESC LIMIT ?5) WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY least DESC LIMIT 1 OFFSET ?5 - 1"
);

/// The sites with a slot of `?5` citations or more; `?6` of them at most.
pub(super) const CANDIDATES: &str = concat!(
    "SELECT DISTINCT s.domain FROM daily d CROSS JOIN daily_site s INDEXED BY daily_site_head
     ON s.slot = d.n AND s.citations >= 8 AND s.citations >= ?5 WHERE ",
    of_slots!(),
    " LIMIT ?6"
);

/// The first `?6` of the sites in `?5`, a JSON array.
pub(super) const FIRST_OF: &str = concat!(
    "SELECT s.domain, sum(s.messages) AS messages, sum(s.citations) AS citations, sum(s.cited) AS cited
     FROM json_each(?5) c CROSS JOIN daily d CROSS JOIN daily_site s ON s.slot = d.n AND s.domain = c.value WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT ?6"
);

/// The first `?5` of all sites.
pub(super) const FIRST: &str = concat!(
    "SELECT s.domain, sum(s.messages) AS messages, sum(s.citations) AS citations, sum(s.cited) AS cited
     FROM daily d CROSS JOIN daily_site s ON s.slot = d.n WHERE ",
    of_slots!(),
    " GROUP BY s.domain ORDER BY sum(s.citations) DESC, s.domain LIMIT ?5"
);

/// The sites in `?5`, slot by slot.
pub(super) const BY_SLOT: &str = concat!(
    "SELECT d.n, s.domain, s.messages, s.citations, s.cited
     FROM json_each(?5) c CROSS JOIN daily d CROSS JOIN daily_site s ON s.slot = d.n AND s.domain = c.value WHERE ",
    of_slots!()
);

/// Within a transaction, so that all of it is of one moment.
pub(super) struct Reader<'a> {
    pub(super) conn: &'a mut SqliteConnection,
    pub(super) tenant: &'a str,
    pub(super) filter: &'a StatsFilter,
}

impl Reader<'_> {
    pub(super) async fn report(mut self) -> Result<StatsReport, sqlx::Error> {
        let rows = self.asking(SLOTS).fetch_all(&mut *self.conn).await?;
        let slots = (0..).zip(&rows).map(|(at, row)| Ok((row.try_get("n")?, at)));
        let slots = slots.collect::<Result<HashMap<i64, usize>, sqlx::Error>>()?;
        let mut days = rows.iter().map(day).collect::<Result<Vec<_>, _>>()?;
        let top = self.filter.top.min(STATS_TOP_MAX);
        if days.is_empty() || top == 0 {
            return Ok(StatsReport { days, sites: Vec::new() });
        }
        let rows = match self.candidates(top, days.len()).await? {
            Some(candidates) => {
                let candidates = serde_json::to_string(&candidates).unwrap_or_default();
                self.asking(FIRST_OF).bind(candidates).bind(count(top)).fetch_all(&mut *self.conn).await?
            }
            None => self.asking(FIRST).bind(count(top)).fetch_all(&mut *self.conn).await?,
        };
        let sites = rows.iter().map(site).collect::<Result<Vec<_>, _>>()?;
        if self.filter.by_day {
            let listed: Vec<&str> = sites.iter().map(|one| one.domain.as_str()).collect();
            let listed = serde_json::to_string(&listed).unwrap_or_default();
            for row in &self.asking(BY_SLOT).bind(listed).fetch_all(&mut *self.conn).await? {
                let n: i64 = row.try_get("n")?;
                if let Some(day) = slots.get(&n).and_then(|at| days.get_mut(*at)) {
                    day.sites.push(site(row)?);
                }
            }
            for day in &mut days {
                day.sites = stats::ranked(std::mem::take(&mut day.sites));
            }
        }
        Ok(StatsReport { days, sites })
    }

    /// The sites that can be among the first; `None`: any.
    pub(super) async fn candidates(&mut self, top: usize, slots: usize) -> Result<Option<Vec<String>>, sqlx::Error> {
        if let Some(domain) = &self.filter.domain {
            return Ok(Some(vec![stats::asked_site(domain)]));
        }
        if top > CANDIDATES_MAX {
            return Ok(None);
        }
        let least = self.asking(LEAST).bind(count(top)).fetch_optional(&mut *self.conn).await?;
        let Some(least) = least else { return Ok(None) };
        let least: i64 = least.try_get("least")?;
        let Some(floor) = floor(least, slots) else { return Ok(None) };
        let query = self.asking(CANDIDATES).bind(floor).bind(count(CANDIDATES_MAX + 1));
        let found = query.fetch_all(&mut *self.conn).await?;
        let found = found.iter().map(|row| row.try_get("domain")).collect::<Result<Vec<String>, _>>()?;
        Ok((found.len() <= CANDIDATES_MAX).then_some(found))
    }

    fn asking<'q>(&self, query: &'static str) -> sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
        let days = stats::days(self.filter);
        sqlx::query(query)
            .bind(self.tenant.to_owned())
            .bind(days.start)
            .bind(days.end)
            .bind(self.filter.provider.clone())
    }
}
