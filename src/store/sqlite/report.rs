//! The sums of a period, read without its records. How its first sites are found: [`crate::store::sums`].

use sqlx::{Sqlite, SqliteConnection, sqlite::SqliteRow};

use crate::store::{
    stats::{self, StatsFilter},
    sums::{Answers, Question, count},
};

/// The slots of a filter: `?1` is the tenant, `?2` and `?3` the days, `?4` the provider or NULL.
macro_rules! of_slots {
    () => {
        "d.tenant = ?1 AND d.day >= ?2 AND d.day < ?3 AND (?4 IS NULL OR d.provider = ?4)"
    };
}

pub(super) const DAYS: &str =
    concat!("SELECT d.*, 1 AS shards FROM daily d WHERE ", of_slots!(), " ORDER BY d.day, d.provider");

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

/// The sites in `?5`, day by day.
pub(super) const BY_DAY: &str = concat!(
    "SELECT d.day, d.provider, s.domain, s.messages, s.citations, s.cited
     FROM json_each(?5) c CROSS JOIN daily d CROSS JOIN daily_site s ON s.slot = d.n AND s.domain = c.value WHERE ",
    of_slots!()
);

/// Within a transaction, so that all of it is of one moment.
pub(super) struct Reader<'a> {
    pub(super) conn: &'a mut SqliteConnection,
    pub(super) tenant: &'a str,
    pub(super) filter: &'a StatsFilter,
}

impl Answers for Reader<'_> {
    type Db = Sqlite;

    async fn ask(&mut self, question: Question<'_>) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let days = stats::days(self.filter);
        let asking = |query| {
            let query = sqlx::query::<Sqlite>(query).bind(self.tenant.to_owned()).bind(days.start).bind(days.end);
            query.bind(self.filter.provider.clone())
        };
        let query = match question {
            Question::Days => asking(DAYS),
            Question::Least { rank } => asking(LEAST).bind(count(rank)),
            Question::Candidates { floor, limit } => asking(CANDIDATES).bind(floor).bind(count(limit)),
            Question::First { of: Some(sites), limit } => asking(FIRST_OF).bind(json(sites)).bind(count(limit)),
            Question::First { of: None, limit } => asking(FIRST).bind(count(limit)),
            Question::ByDay { sites } => asking(BY_DAY).bind(json(sites)),
        };
        query.fetch_all(&mut *self.conn).await
    }
}

fn json(sites: &[String]) -> String {
    serde_json::to_string(sites).unwrap_or_default()
}
