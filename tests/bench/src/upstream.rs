//! The scripted upstream. The request's query selects what it sends:
//! - `dialect`, and either `events=N`, or `ms=N`: events for that many milliseconds.
//! - `every_us=N`: microseconds between events; 0: as fast as the peer reads.
//! - `finish_ns=N`: with `events` and `every_us`, the time of the finish on the shared clock (default: after the last event).
//! - `rest_ms=N`: a paced stream sends the head and one frame in one write, and everything else N milliseconds later.
//! - `batch=BYTES`: events per write up to this size (default: one event per write).
//! - `references=N` before the text (10); `lead=N`: events that are sent at once before the paced ones.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::clock::now_ns;
use crate::dialect::{self, Dialect, Frame, Values};
use crate::http;
use crate::options::Options;
use crate::pacer::{Paced, Pacer};

/// Bytes in one write of the lead.
const LEAD_BATCH: usize = 32 << 10;

struct Shared {
    /// The dialects, by number of references.
    dialects: RefCell<HashMap<usize, [Arc<Dialect>; 3]>>,
    pacer: Pacer,
    /// Ids count up from the start time, so that runs do not repeat ids.
    next_id: Cell<u64>,
}

impl Shared {
    fn dialect(&self, script: &Script) -> Arc<Dialect> {
        let mut dialects = self.dialects.borrow_mut();
        let all = dialects.entry(script.references).or_insert_with(|| dialect::all(script.references).map(Arc::new));
        Arc::clone(&all[script.dialect])
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let listen: SocketAddr = options.get("listen")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    LocalSet::new().block_on(&runtime, serve(listen)).map_err(|e| e.to_string())
}

async fn serve(listen: SocketAddr) -> io::Result<()> {
    let micros = SystemTime::UNIX_EPOCH.elapsed().map_err(io::Error::other)?.as_micros() as u64;
    let next_id = Cell::new(micros / 100_000 % 1_000_000_000 * 100_000_000);
    let shared = Rc::new(Shared { dialects: RefCell::default(), pacer: Pacer::start(), next_id });
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(listen)?;
    let listener: TcpListener = socket.listen(4096)?;
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        socket.set_nodelay(true)?;
        let shared = Rc::clone(&shared);
        // Ignore the error of a peer that disconnects.
        tokio::task::spawn_local(async move { connection(socket, &shared).await.ok() });
    }
}

async fn connection(mut socket: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(target) = http::read_request(&mut socket, &mut buffer).await? {
        let script = Script::parse(&target);
        let id = shared.next_id.get();
        shared.next_id.set(id + 1);
        let dialect = &shared.dialect(&script);
        let mut values = Values { id, number: 0, at_ns: 0 };
        let end_ns = now_ns() + script.ms * 1_000_000;
        let (first, rest) = dialect.preface.split_at(if script.rest_ms > 0 { 1 } else { 0 });
        buffer.clear();
        buffer.extend_from_slice(http::RESPONSE);
        for frame in first {
            chunk(&mut buffer, frame, values);
        }
        socket.write_all(&buffer).await?;
        if script.rest_ms == 0 {
            for frame in rest {
                write_one(&mut socket, &mut buffer, frame, values).await?;
            }
        }
        while values.number < script.lead {
            values.at_ns = now_ns();
            batch(&mut buffer, dialect, &mut values, LEAD_BATCH, script.lead);
            socket.write_all(&buffer).await?;
        }
        if script.every_us > 0 {
            let (last_number, end_ns) =
                if script.events > 0 { (script.events, script.finish_ns) } else { (u32::MAX, end_ns) };
            let every_ns = script.every_us * 1000;
            let mut paced = Paced::new(socket.into_std()?, Arc::clone(dialect), values, every_ns, last_number, end_ns);
            if script.rest_ms > 0 {
                paced.delay_rest(script.rest_ms * 1_000_000, first.len());
            }
            let Some(back) = shared.pacer.send(paced).await else { return Ok(()) };
            socket = TcpStream::from_std(back)?;
            continue;
        }
        while if script.events > 0 { values.number < script.events } else { now_ns() < end_ns } {
            values.at_ns = now_ns();
            if script.batch > 0 {
                batch(&mut buffer, dialect, &mut values, script.batch, u32::MAX);
                socket.write_all(&buffer).await?;
            } else {
                let frame = &dialect.deltas[values.number as usize % dialect.deltas.len()];
                values.number += 1;
                write_one(&mut socket, &mut buffer, frame, values).await?;
            }
        }
        buffer.clear();
        finish(&mut buffer, dialect, values);
        socket.write_all(&buffer).await?;
    }
    Ok(())
}

/// Writes a frame as one chunk.
pub fn chunk(out: &mut Vec<u8>, frame: &Frame, values: Values) {
    size_line(out, frame.len());
    frame.write(out, values);
    out.extend_from_slice(b"\r\n");
}

/// Writes the finish frames and the last chunk.
pub fn finish(out: &mut Vec<u8>, dialect: &Dialect, mut values: Values) {
    values.at_ns = now_ns();
    for frame in &dialect.finish {
        chunk(out, frame, values);
    }
    out.extend_from_slice(http::LAST_CHUNK);
}

/// Fills one chunk with complete events up to `size`, and not beyond the event `last`.
fn batch(out: &mut Vec<u8>, dialect: &Dialect, values: &mut Values, size: usize, last: u32) {
    const LINE: usize = 10;
    out.clear();
    size_line(out, 0);
    loop {
        values.number += 1;
        dialect.deltas[values.number as usize % dialect.deltas.len()].write(out, *values);
        if out.len() + 1024 > size || values.number >= last {
            break;
        }
    }
    let mut line = Vec::with_capacity(LINE);
    size_line(&mut line, out.len() - LINE);
    out[..LINE].copy_from_slice(&line);
    out.extend_from_slice(b"\r\n");
}

/// Writes a chunk size line, which always has ten bytes.
fn size_line(out: &mut Vec<u8>, size: usize) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend((0..8).rev().map(|place| HEX[size >> (4 * place) & 15]));
    out.extend_from_slice(b"\r\n");
}

async fn write_one(socket: &mut TcpStream, buffer: &mut Vec<u8>, frame: &Frame, values: Values) -> io::Result<()> {
    buffer.clear();
    chunk(buffer, frame, values);
    socket.write_all(buffer).await
}

struct Script {
    dialect: usize,
    events: u32,
    finish_ns: u64,
    ms: u64,
    every_us: u64,
    batch: usize,
    references: usize,
    rest_ms: u64,
    lead: u32,
}

impl Script {
    fn parse(target: &str) -> Self {
        let mut script = Self {
            dialect: 0,
            events: 0,
            finish_ns: 0,
            ms: 0,
            every_us: 0,
            batch: 0,
            references: dialect::REFERENCES,
            rest_ms: 0,
            lead: 0,
        };
        let query = target.split_once('?').map_or("", |(_, query)| query);
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "dialect" => script.dialect = dialect::NAMES.iter().position(|n| *n == value).unwrap_or(0),
                "events" => script.events = value.parse().unwrap_or(0),
                "finish_ns" => script.finish_ns = value.parse().unwrap_or(0),
                "ms" => script.ms = value.parse().unwrap_or(0),
                "every_us" => script.every_us = value.parse().unwrap_or(0),
                "batch" => script.batch = value.parse().unwrap_or(0),
                "references" => script.references = value.parse().unwrap_or(0),
                "rest_ms" => script.rest_ms = value.parse().unwrap_or(0),
                "lead" => script.lead = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        script
    }
}
