//! Pages of records: read in steps that the server and we can bear, matched here.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;

use super::{
    error::unreadable,
    keys::{self, Keys},
    link::Trouble,
    script::PAGE,
    value,
};
use crate::{
    citation::bundle::task_id,
    store::{Cursor, Entry, Filter, Page, StoreError, page::Pager, terms, wanted::Wanted},
};

/// Records that one step looks at, and bytes that it takes, about.
const STEP: usize = 512;
const STEP_BYTES: usize = 4 << 20;
/// A page that is not full after this time, or after so many bytes, ends all the same: the next one goes on from there.
const TIME: Duration = Duration::from_secs(2);
const BYTES: usize = 256 << 20;

/// A stretch of a sorted set.
pub(super) struct Stretch {
    key: String,
    /// As ZRANGEBYLEX takes them.
    from: String,
    to: String,
    /// What names begin with.
    begin: String,
    is_up: bool,
}

impl Stretch {
    /// The records of a list, newest first. `live` is when the oldest that may be read was created.
    pub(super) fn of_list(keys: &Keys, filter: &Filter, live: Option<i64>) -> Option<Self> {
        // The index with the fewest of others; what it does not tell is matched in the record.
        let key = match (&filter.conversation, &filter.domain) {
            (Some(conversation), _) => keys.of("v:", conversation),
            (None, Some(domain)) => keys.of("d:", &terms::asked_domain(domain)),
            (None, None) => keys.newest(),
        };
        let mut from = "-".to_owned();
        if let Some(until) = filter.until_ms {
            from = format!("[{}", keys::down(until.checked_sub(1)?));
        }
        if let Some(cursor) = &filter.cursor {
            let after = format!("({}{}", keys::down(cursor.created_ms), keys::name(&cursor.provider, &cursor.id));
            // Whichever of the two is further.
            if from == "-" || after.get(1..) >= from.get(1..) {
                from = after;
            }
        }
        let to = match filter.since_ms.max(live).map(|since| since.checked_sub(1)) {
            Some(Some(before)) => format!("({}", keys::down(before)),
            _ => "+".to_owned(),
        };
        Some(Self { key, from, to, begin: keys::beginning(filter.provider.as_deref()), is_up: false })
    }

    /// The records of a task, oldest first.
    pub(super) fn of_task(keys: &Keys, task: &str, after: Option<&Cursor>, live: Option<i64>) -> Self {
        let mut from = first_of_task(live);
        if let Some(cursor) = after {
            let after = format!("({}{}", keys::up(cursor.created_ms), keys::name(&cursor.provider, &cursor.id));
            if from == "-" || after.get(1..) >= from.get(1..) {
                from = after;
            }
        }
        Self { key: keys.task(task), from, to: "+".to_owned(), begin: String::new(), is_up: true }
    }

    /// The page of those that match.
    pub(super) async fn page(
        mut self,
        conn: &mut MultiplexedConnection,
        (keys, tenant): (&Keys, &str),
        mut pager: Pager,
        matches: impl Fn(&Entry) -> Result<bool, StoreError>,
    ) -> Result<Page, Trouble> {
        let (began, mut read) = (Instant::now(), 0);
        // Most pages are small: no more than one beyond it is read, unless some do not match.
        let mut step = pager.wanted().min(STEP);
        loop {
            let mut call = PAGE.key(&self.key);
            let call = call.arg(&keys.base).arg(&self.from).arg(&self.to).arg(step).arg(STEP_BYTES).arg(&self.begin);
            let (last, ended, found): (String, bool, Vec<Vec<u8>>) = call.invoke_async(conn).await?;
            for pair in found.chunks_exact(2) {
                let [place, body] = pair else { continue };
                let entry = self.checked(tenant, place, body)?;
                read += body.len();
                if !matches(&entry)? {
                    continue;
                }
                if pager.is_over() {
                    return Ok(pager.finish());
                }
                pager.push(entry, body.len());
            }
            if ended {
                return Ok(pager.finish());
            }
            if began.elapsed() > TIME || read > BYTES {
                let mut page = pager.finish();
                page.next = Some(keys::cursor(&last, self.is_up).ok_or_else(unreadable)?);
                return Ok(page);
            }
            self.from = format!("({last}");
            step = STEP;
        }
    }

    /// Never what was not asked for.
    fn checked(&self, tenant: &str, place: &[u8], body: &[u8]) -> Result<Entry, StoreError> {
        let entry = value::read(tenant, body)?;
        let expected = if self.is_up { keys::step(&entry) } else { keys::place(&entry) };
        if expected.as_bytes() == place { Ok(entry) } else { Err(StoreError::Mismatch) }
    }
}

/// Where the places of a task begin that are not past their time.
pub(super) fn first_of_task(live: Option<i64>) -> String {
    live.map_or_else(|| "-".to_owned(), |live| format!("[{}", keys::up(live)))
}

pub(super) fn wanted(wanted: &Wanted<'_>, entry: &Entry) -> bool {
    let domains = || Cow::Owned(terms::domains(&entry.record));
    let search = || Cow::Owned(terms::search_text(&entry.record));
    wanted.matches(entry, domains, search)
}

/// As everywhere: never what was not asked for.
pub(super) fn is_of_task(entry: &Entry, task: &str) -> Result<bool, StoreError> {
    if task_id(&entry.record) == task { Ok(true) } else { Err(StoreError::Mismatch) }
}
