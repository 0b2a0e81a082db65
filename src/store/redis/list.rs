//! Pages of records: read in steps that the server and we can bear, matched here.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::{
    error::unreadable,
    keys::{self, Keys},
    link::Trouble,
    script::PAGE,
    value,
};
use crate::store::{Cursor, Entry, Filter, Page, StoreError, page::Pager, terms, wanted::Wanted};

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
    /// The records of a list. `live` is when the oldest that may be read was created. `None`: there can be none.
    pub(super) fn new(keys: &Keys, filter: &Filter, live: Option<i64>) -> Option<Self> {
        // The index with the fewest of others; what it does not tell is matched in the record.
        let key = match (&filter.task, &filter.conversation, &filter.domain) {
            (Some(task), ..) => keys.task(task),
            (None, Some(conversation), _) => keys.of("v:", conversation),
            (None, None, Some(domain)) => keys.of("d:", &terms::asked_domain(domain)),
            (None, None, None) => keys.newest(),
        };
        let is_up = filter.task.is_some();
        let (since, until) = (filter.since_ms.max(live), filter.until_ms);
        let (mut from, to) = if is_up {
            (first_of_task(since), until.map_or_else(|| "+".to_owned(), |until| format!("({}", keys::up(until))))
        } else {
            let from = match until {
                Some(until) => format!("[{}", keys::down(until.checked_sub(1)?)),
                None => "-".to_owned(),
            };
            let before = since.and_then(|since| since.checked_sub(1));
            (from, before.map_or_else(|| "+".to_owned(), |before| format!("({}", keys::down(before))))
        };
        if let Some(Cursor { created_ms, provider, id }) = &filter.cursor {
            let time = if is_up { keys::up(*created_ms) } else { keys::down(*created_ms) };
            let after = format!("({time}{}", keys::name(provider, id));
            // Whichever of the two is further.
            if from == "-" || after.get(1..) >= from.get(1..) {
                from = after;
            }
        }
        Some(Self { key, from, to, begin: keys::beginning(filter.provider.as_deref()), is_up })
    }

    /// The page of those that match.
    pub(super) async fn page(
        mut self,
        conn: &mut MultiplexedConnection,
        (keys, tenant): (&Keys, &str),
        filter: &Filter,
    ) -> Result<Page, Trouble> {
        let (wanted, mut pager) = (Wanted::new(filter), Pager::new(filter));
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
                filter.check_task(&entry)?;
                if !wanted.matches(&entry) {
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
