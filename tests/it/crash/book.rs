//! What must be in a file, compared with what is.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use citetap::citation::Record;
use serde_json::Value;
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use super::{
    load::{Forgotten, Heard, Told},
    streams::{Look, look},
};
use crate::{
    net::{Client, get},
    process::{Running, as_sent},
};

#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub cycles: usize,
    pub starts: usize,
    pub drains: usize,
    pub streams: u64,
    /// Times that somebody was told that a record is stored, and the records.
    pub told: usize,
    pub records: usize,
    pub compared: usize,
    pub forgotten: usize,
    pub missing: usize,
    pub torn: usize,
    pub foreign: usize,
    /// Forgotten, and there again.
    pub returned: usize,
    /// The first few faults in words.
    pub faults: Vec<String>,
}

impl Tally {
    fn fault(&mut self, what: String) {
        if self.faults.len() < 8 {
            self.faults.push(what);
        }
    }

    fn look(&mut self, where_from: &str, record: &Record) -> Look {
        let look = look(record);
        match look {
            Look::Whole => return look,
            Look::Torn => self.torn += 1,
            Look::Foreign => self.foreign += 1,
        }
        self.fault(format!("{where_from}, and {look:?}: {record:?}"));
        look
    }

    pub const fn is_clean(&self) -> bool {
        self.missing + self.torn + self.foreign + self.returned == 0 && self.faults.is_empty()
    }

    pub fn line(&self) -> String {
        let Self { cycles, starts, drains, streams, told, records, compared, .. } = self;
        let Self { forgotten, missing, torn, foreign, returned, .. } = self;
        format!(
            "{cycles} kills ({starts} of them at the start, {drains} while draining), {streams} streams, {told} times \
             \"stored\" of {records} records, {compared} comparisons, {forgotten} forgotten: {missing} missing, \
             {torn} torn, {foreign} foreign, {returned} returned"
        )
    }
}

/// Of one file.
#[derive(Default)]
pub struct Book {
    told: BTreeMap<String, Told>,
    new: BTreeSet<String>,
    forgotten: BTreeMap<String, Forgotten>,
}

impl Book {
    /// What the clients of one process heard.
    pub fn enter(&mut self, heard: &Heard, tally: &mut Tally) {
        tally.streams += heard.streams.load(std::sync::atomic::Ordering::Relaxed);
        for told in heard.told.lock().unwrap().drain(..) {
            tally.told += 1;
            let id = told.record.message_id.clone();
            tally.look("told", &told.record);
            if let Some(before) = self.told.insert(id.clone(), told) {
                // An event and the API told of the same record.
                if as_sent(before.record) != as_sent(self.told[&id].record.clone()) {
                    tally.torn += 1;
                    tally.fault(format!("{id} was told in two ways"));
                }
            } else {
                tally.records += 1;
            }
            self.new.insert(id);
        }
        for (id, what) in heard.forgotten.lock().unwrap().drain(..) {
            tally.forgotten += usize::from(what == Forgotten::Yes);
            self.new.insert(id.clone());
            self.forgotten.insert(id, what);
        }
    }

    /// Those that came since the last time, and not longer ago than `age`.
    pub async fn check_new(&mut self, running: &Running, age: Duration, tally: &mut Tally) {
        let new = std::mem::take(&mut self.new);
        let recent = |id: &&String| self.told.get(*id).is_none_or(|told| told.at.elapsed() < age);
        self.check(running, new.iter().filter(recent), tally).await;
    }

    pub async fn check_all(&self, running: &Running, tally: &mut Tally) {
        self.check(running, self.told.keys().chain(self.forgotten.keys()), tally).await;
    }

    async fn check<'a>(&self, running: &Running, ids: impl Iterator<Item = &'a String>, tally: &mut Tally) {
        let mut client = Client::h1(running.addr).await;
        for id in ids {
            let answer = client.send(get(&format!("/citations/{id}"))).await;
            let status = answer.status.as_u16();
            let text = answer.whole().await.text();
            match (self.forgotten.get(id), status) {
                (Some(Forgotten::Unknown), _) | (Some(Forgotten::Yes), 404) => continue,
                (Some(Forgotten::Yes), _) => {
                    tally.returned += 1;
                    tally.fault(format!("{id} was forgotten, and is there: {status}"));
                    continue;
                }
                (None, _) => {}
            }
            tally.compared += 1;
            let told = &self.told[id].record;
            if status != 200 {
                tally.missing += 1;
                tally.fault(format!("{id} is missing: {status} {text}"));
                continue;
            }
            match serde_json::from_str::<Record>(&text) {
                Ok(kept) if kept.message_id != *id => {
                    tally.foreign += 1;
                    tally.fault(format!("asked for {id}: {text}"));
                }
                Ok(kept) if tally.look("kept", &kept) != Look::Whole => {}
                Ok(kept) if as_sent(kept.clone()) == as_sent(told.clone()) => {}
                _ => {
                    tally.torn += 1;
                    tally.fault(format!("{id} was told as {told:?} and is kept as {text}"));
                }
            }
        }
    }

    /// Whatever is listed is a whole record of the message it names, also where nobody was told, and is counted.
    pub async fn check_list(&self, running: &Running, tally: &mut Tally) {
        let mut client = Client::h1(running.addr).await;
        let (mut listed, mut next) = (BTreeSet::new(), String::new());
        loop {
            let page = client.send(get(&format!("/citations?limit=1000{next}"))).await.json().await;
            for item in page["items"].as_array().unwrap() {
                match serde_json::from_value::<Record>(item.clone()) {
                    Ok(record) => {
                        tally.look("listed", &record);
                        assert!(record.stored, "{item}");
                        assert!(listed.insert((record.provider, record.message_id)), "{item} is listed twice");
                    }
                    Err(error) => {
                        tally.torn += 1;
                        tally.fault(format!("listed, and no record: {error} {item}"));
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
            tally.fault(format!("{} records are listed, and counted: {}", listed.len(), stats["totals"]));
        }
    }
}

/// SQLite's own opinion of the file, its log included.
pub async fn check_file(path: &Path, tally: &mut Tally) {
    let began = Instant::now();
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false);
    let mut conn = options.connect().await.unwrap();
    let verdict: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check").fetch_all(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    if verdict != ["ok"] {
        tally.torn += 1;
        tally.fault(format!("after {:?}: {verdict:?}", began.elapsed()));
    }
}
