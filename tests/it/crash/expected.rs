//! Expected records of a store file, and their comparison with its content.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use citetap::citation::Record;
use serde_json::Value;
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use super::{
    load::{Deletion, Observations, StoredReport},
    streams::{RecordState, look},
};
use crate::{
    net::{Client, get},
    process::{Running, as_sent},
};

#[derive(Debug, Default, Clone)]
pub struct Findings {
    pub cycles: usize,
    pub starts: usize,
    pub drains: usize,
    pub streams: u64,
    /// Number of times that a client learned that a record is stored, and number of records.
    pub reported: usize,
    pub records: usize,
    pub compared: usize,
    pub forgotten: usize,
    pub missing: usize,
    pub torn: usize,
    pub mixed: usize,
    /// Deleted records that reappeared.
    pub returned: usize,
    /// Descriptions of the first few faults.
    pub faults: Vec<String>,
}

impl Findings {
    fn fault(&mut self, what: String) {
        if self.faults.len() < 8 {
            self.faults.push(what);
        }
    }

    fn look(&mut self, where_from: &str, record: &Record) -> RecordState {
        let look = look(record);
        match look {
            RecordState::Whole => return look,
            RecordState::Torn => self.torn += 1,
            RecordState::Mixed => self.mixed += 1,
        }
        self.fault(format!("{where_from}, and {look:?}: {record:?}"));
        look
    }

    pub const fn is_clean(&self) -> bool {
        self.missing + self.torn + self.mixed + self.returned == 0 && self.faults.is_empty()
    }

    pub fn line(&self) -> String {
        let Self { cycles, starts, drains, streams, reported, records, compared, .. } = self;
        let Self { forgotten, missing, torn, mixed, returned, .. } = self;
        format!(
            "{cycles} kills ({starts} of them at the start, {drains} while draining), {streams} streams, {reported} times \
             \"stored\" of {records} records, {compared} comparisons, {forgotten} forgotten: {missing} missing, \
             {torn} torn, {mixed} mixed, {returned} returned"
        )
    }
}

/// Expected records of one file.
#[derive(Default)]
pub struct ExpectedRecords {
    reported: BTreeMap<String, StoredReport>,
    new: BTreeSet<String>,
    forgotten: BTreeMap<String, Deletion>,
}

impl ExpectedRecords {
    /// What the clients of one process observed.
    pub fn enter(&mut self, observations: &Observations, findings: &mut Findings) {
        findings.streams += observations.streams.load(std::sync::atomic::Ordering::Relaxed);
        for reported in observations.reported.lock().unwrap().drain(..) {
            findings.reported += 1;
            let id = reported.record.message_id.clone();
            findings.look("reported", &reported.record);
            if let Some(before) = self.reported.insert(id.clone(), reported) {
                // An event and the API returned the same record.
                if as_sent(before.record) != as_sent(self.reported[&id].record.clone()) {
                    findings.torn += 1;
                    findings.fault(format!("{id} was reported in two ways"));
                }
            } else {
                findings.records += 1;
            }
            self.new.insert(id);
        }
        for (id, what) in observations.forgotten.lock().unwrap().drain(..) {
            findings.forgotten += usize::from(what == Deletion::Yes);
            self.new.insert(id.clone());
            self.forgotten.insert(id, what);
        }
    }

    /// Records since the last call that are younger than `age`.
    pub async fn check_new(&mut self, running: &Running, age: Duration, findings: &mut Findings) {
        let new = std::mem::take(&mut self.new);
        let recent = |id: &&String| self.reported.get(*id).is_none_or(|reported| reported.at.elapsed() < age);
        self.check(running, new.iter().filter(recent), findings).await;
    }

    pub async fn check_all(&self, running: &Running, findings: &mut Findings) {
        self.check(running, self.reported.keys().chain(self.forgotten.keys()), findings).await;
    }

    async fn check<'a>(&self, running: &Running, ids: impl Iterator<Item = &'a String>, findings: &mut Findings) {
        let mut client = Client::h1(running.addr).await;
        for id in ids {
            let response = client.send(get(&format!("/citations/{id}"))).await;
            let status = response.status.as_u16();
            let text = response.whole().await.text();
            match (self.forgotten.get(id), status) {
                (Some(Deletion::Unknown), _) | (Some(Deletion::Yes), 404) => continue,
                (Some(Deletion::Yes), _) => {
                    findings.returned += 1;
                    findings.fault(format!("{id} was forgotten, and is there: {status}"));
                    continue;
                }
                (None, _) => {}
            }
            findings.compared += 1;
            let reported = &self.reported[id].record;
            if status != 200 {
                findings.missing += 1;
                findings.fault(format!("{id} is missing: {status} {text}"));
                continue;
            }
            match serde_json::from_str::<Record>(&text) {
                Ok(kept) if kept.message_id != *id => {
                    findings.mixed += 1;
                    findings.fault(format!("requested {id}: {text}"));
                }
                Ok(kept) if findings.look("kept", &kept) != RecordState::Whole => {}
                Ok(kept) if as_sent(kept.clone()) == as_sent(reported.clone()) => {}
                _ => {
                    findings.torn += 1;
                    findings.fault(format!("{id} was reported as {reported:?} and is kept as {text}"));
                }
            }
        }
    }

    /// Every listed record is complete, has the right message id, and is counted, even if no client learned of it.
    pub async fn check_list(&self, running: &Running, findings: &mut Findings) {
        let mut client = Client::h1(running.addr).await;
        let (mut listed, mut next) = (BTreeSet::new(), String::new());
        loop {
            let page = client.send(get(&format!("/citations?limit=1000{next}"))).await.json().await;
            for item in page["items"].as_array().unwrap() {
                match serde_json::from_value::<Record>(item.clone()) {
                    Ok(record) => {
                        findings.look("listed", &record);
                        assert!(record.stored, "{item}");
                        assert!(listed.insert((record.provider, record.message_id)), "{item} is listed twice");
                    }
                    Err(error) => {
                        findings.torn += 1;
                        findings.fault(format!("listed, and no record: {error} {item}"));
                    }
                }
            }
            match page["next"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => break,
            }
        }
        let stats: Value = client.send(get("/stats")).await.json().await;
        if stats["totals"]["messages"] != listed.len() {
            findings.fault(format!("{} records are listed, and counted: {}", listed.len(), stats["totals"]));
        }
    }
}

/// SQLite's integrity check, including its log.
pub async fn check_file(path: &Path, findings: &mut Findings) {
    let began = Instant::now();
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false);
    let mut conn = options.connect().await.unwrap();
    let verdict: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check").fetch_all(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    if verdict != ["ok"] {
        findings.torn += 1;
        findings.fault(format!("after {:?}: {verdict:?}", began.elapsed()));
    }
}
