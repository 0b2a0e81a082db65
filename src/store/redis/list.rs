//! List pages: read in bounded steps, filtered here.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::{
    connection::CallError,
    error::unreadable_error,
    keys::{self, Keys},
    script::PAGE,
    value,
};
use crate::store::{Cursor, Entry, Filter, Page, StoreError, filter_match::FilterMatcher, page::Pager, terms};

/// Approximate limits of one step, in records and bytes.
const STEP_RECORDS_MAX: usize = 512;
const STEP_BYTES_MAX: usize = 4 << 20;
/// A page that is not full after this time, or after scanning this many bytes, ends early and continues in the next
/// one.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);
const PAGE_SCAN_BYTES_MAX: usize = 256 << 20;

/// A range of a sorted set.
pub(super) struct IndexRange {
    key: String,
    /// Bounds in the syntax of ZRANGEBYLEX.
    from: String,
    to: String,
    /// Prefix that names must have.
    name_prefix: String,
    is_ascending: bool,
}

impl IndexRange {
    /// The range for a filter; `None` if it is empty. `live` is the creation time of the oldest unexpired record.
    pub(super) fn new(keys: &Keys, filter: &Filter, live: Option<i64>) -> Option<Self> {
        // Use the most selective index; [`FilterMatcher`] tests the remaining conditions.
        let key = match (&filter.task, &filter.conversation, &filter.domain) {
            (Some(task), ..) => keys.task(task),
            (None, Some(conversation), _) => keys.of("v:", conversation),
            (None, None, Some(domain)) => keys.of("d:", &terms::query_domain(domain)),
            (None, None, None) => keys.newest(),
        };
        let is_ascending = filter.task.is_some();
        let (since, until) = (filter.since_ms.max(live), filter.until_ms);
        let (mut from, to) = if is_ascending {
            (task_start(since), until.map_or_else(|| "+".to_owned(), |until| format!("({}", keys::ascending(until))))
        } else {
            let from = match until {
                Some(until) => format!("[{}", keys::descending(until.checked_sub(1)?)),
                None => "-".to_owned(),
            };
            let before = since.and_then(|since| since.checked_sub(1));
            (from, before.map_or_else(|| "+".to_owned(), |before| format!("({}", keys::descending(before))))
        };
        if let Some(Cursor { created_ms, provider, id }) = &filter.cursor {
            let time = if is_ascending { keys::ascending(*created_ms) } else { keys::descending(*created_ms) };
            let after = format!("({time}{}", keys::join_name(provider, id));
            // Start at the later of the two bounds.
            if from == "-" || after.get(1..) >= from.get(1..) {
                from = after;
            }
        }
        Some(Self { key, from, to, name_prefix: keys::name_prefix(filter.provider.as_deref()), is_ascending })
    }

    /// Reads the range until the page is full.
    pub(super) async fn page(
        mut self,
        conn: &mut MultiplexedConnection,
        (keys, tenant): (&Keys, &str),
        filter: &Filter,
    ) -> Result<Page, CallError> {
        let (matcher, mut pager) = (FilterMatcher::new(filter), Pager::new(filter));
        let (began, mut read) = (Instant::now(), 0);
        // Most pages are small: read only one entry more than a page, unless some do not match.
        let mut step = pager.fetch_limit().min(STEP_RECORDS_MAX);
        loop {
            let mut call = PAGE.key(&self.key);
            let call =
                call.arg(&keys.base).arg(&self.from).arg(&self.to).arg(step).arg(STEP_BYTES_MAX).arg(&self.name_prefix);
            let (last, ended, found): (String, bool, Vec<Vec<u8>>) = call.invoke_async(conn).await?;
            for pair in found.chunks_exact(2) {
                let [member, body] = pair else { continue };
                let entry = self.checked(tenant, member, body)?;
                read += body.len();
                filter.check_task(&entry)?;
                if !matcher.matches(&entry) {
                    continue;
                }
                if pager.close_if_full() {
                    return Ok(pager.finish());
                }
                pager.push(entry, body.len());
            }
            if ended {
                return Ok(pager.finish());
            }
            if began.elapsed() > PAGE_TIME_MAX || read > PAGE_SCAN_BYTES_MAX {
                let mut page = pager.finish();
                page.next = Some(keys::parse_member(&last, self.is_ascending).ok_or_else(unreadable_error)?);
                return Ok(page);
            }
            self.from = format!("({last}");
            step = STEP_RECORDS_MAX;
        }
    }

    /// Decodes a value and verifies that it belongs to this member.
    fn checked(&self, tenant: &str, member: &[u8], body: &[u8]) -> Result<Entry, StoreError> {
        let entry = value::read(tenant, body)?;
        let expected = if self.is_ascending { keys::task_member(&entry) } else { keys::newest_member(&entry) };
        if expected.as_bytes() == member { Ok(entry) } else { Err(StoreError::Mismatch) }
    }
}

/// Lower bound of a task's unexpired members.
pub(super) fn task_start(live: Option<i64>) -> String {
    live.map_or_else(|| "-".to_owned(), |live| format!("[{}", keys::ascending(live)))
}
