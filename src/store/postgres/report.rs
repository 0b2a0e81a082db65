//! The sums of a period, read without its records. How its first sites are found: [`crate::store::sums`].

use sqlx::{PgConnection, Postgres, postgres::PgRow};

use super::text::key;
use crate::store::{
    stats::{self, StatsFilter},
    sums::{Answers, Question, count},
};

/// The slots of a filter: `$1` is the tenant, `$2` and `$3` the days, `$4` the provider or NULL.
macro_rules! of_slots {
    () => {
        "d.tenant = $1 AND d.day >= $2 AND d.day < $3 AND ($4::text IS NULL OR d.provider = $4)"
    };
}

/// Of all shards.
pub(super) const DAYS: &str = concat!(
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
pub(super) const BY_DAY: &str = concat!(
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

impl Answers for Reader<'_> {
    type Db = Postgres;

    async fn ask(&mut self, question: Question<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        let days = stats::days(self.filter);
        let provider = self.filter.provider.as_deref().map(|provider| key(provider).into_owned());
        let asking = |query| {
            let query = sqlx::query::<Postgres>(query).bind(key(self.tenant).into_owned());
            query.bind(days.start).bind(days.end).bind(provider.clone())
        };
        let query = match question {
            Question::Days => asking(DAYS),
            Question::Least { rank } => asking(LEAST).bind(count(rank)),
            Question::Candidates { floor, limit } => asking(CANDIDATES).bind(floor).bind(count(limit)),
            Question::First { of: Some(sites), limit } => asking(FIRST_OF).bind(keys(sites)).bind(count(limit)),
            Question::First { of: None, limit } => asking(FIRST).bind(count(limit)),
            Question::ByDay { sites } => asking(BY_DAY).bind(keys(sites)),
        };
        query.fetch_all(&mut *self.conn).await
    }
}

fn keys(sites: &[String]) -> Vec<String> {
    sites.iter().map(|site| key(site).into_owned()).collect()
}
