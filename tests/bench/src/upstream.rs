//! The scripted upstream. The request's query says what it sends:
//! `dialect`, then either `events=N` at once, or `ms=N` of events: one every `every_us`, or (0) as fast as they are taken.
//! `events=N` with `every_us` are paced as well; their finish comes at `finish_ns` of the shared clock, or after the last of them.
//! With `rest_ms=N` a paced stream begins with one frame, in one write with the head; all else comes so much later.
//! With `batch=BYTES` so many go into one write, else each event has its own. `references=N` come before the text (10), and
//! `lead=N` events of it at once.

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
    /// By the number of references.
    dialects: RefCell<HashMap<usize, [Arc<Dialect>; 3]>>,
    pacer: Pacer,
    /// Ids count up from the time of the start, so no run repeats another's.
    next_id: Cell<u64>,
}

impl Shared {
    fn dialect(&self, ask: &Ask) -> Arc<Dialect> {
        let mut dialects = self.dialects.borrow_mut();
        let all = dialects.entry(ask.references).or_insert_with(|| dialect::all(ask.references).map(Arc::new));
        Arc::clone(&all[ask.dialect])
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
        // A peer that goes is no failure of ours.
        tokio::task::spawn_local(async move { connection(socket, &shared).await.ok() });
    }
}

async fn connection(mut socket: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(target) = http::read_request(&mut socket, &mut buffer).await? {
        let ask = Ask::parse(&target);
        let id = shared.next_id.get();
        shared.next_id.set(id + 1);
        let dialect = &shared.dialect(&ask);
        let mut values = Values { id, number: 0, at_ns: 0 };
        let end_ns = now_ns() + ask.ms * 1_000_000;
        let (first, rest) = dialect.preface.split_at(if ask.rest_ms > 0 { 1 } else { 0 });
        buffer.clear();
        buffer.extend_from_slice(http::RESPONSE);
        for frame in first {
            chunk(&mut buffer, frame, values);
        }
        socket.write_all(&buffer).await?;
        if ask.rest_ms == 0 {
            for frame in rest {
                write_one(&mut socket, &mut buffer, frame, values).await?;
            }
        }
        while values.number < ask.lead {
            values.at_ns = now_ns();
            batch(&mut buffer, dialect, &mut values, LEAD_BATCH, ask.lead);
            socket.write_all(&buffer).await?;
        }
        if ask.every_us > 0 {
            let (most, end_ns) = if ask.events > 0 { (ask.events, ask.finish_ns) } else { (u32::MAX, end_ns) };
            let every_ns = ask.every_us * 1000;
            let mut paced = Paced::new(socket.into_std()?, Arc::clone(dialect), values, every_ns, most, end_ns);
            if ask.rest_ms > 0 {
                paced.put_off(ask.rest_ms * 1_000_000, first.len());
            }
            let Some(back) = shared.pacer.send(paced).await else { return Ok(()) };
            socket = TcpStream::from_std(back)?;
            continue;
        }
        while if ask.events > 0 { values.number < ask.events } else { now_ns() < end_ns } {
            values.at_ns = now_ns();
            if ask.batch > 0 {
                batch(&mut buffer, dialect, &mut values, ask.batch, u32::MAX);
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

/// A frame in a chunk of its own.
pub fn chunk(out: &mut Vec<u8>, frame: &Frame, values: Values) {
    size_line(out, frame.len());
    frame.write(out, values);
    out.extend_from_slice(b"\r\n");
}

/// The frames of the end, and the end of the body.
pub fn finish(out: &mut Vec<u8>, dialect: &Dialect, mut values: Values) {
    values.at_ns = now_ns();
    for frame in &dialect.finish {
        chunk(out, frame, values);
    }
    out.extend_from_slice(http::LAST_CHUNK);
}

/// As many whole events as fit, in one chunk; none beyond the last.
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

/// Ten bytes, whatever the size.
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

struct Ask {
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

impl Ask {
    fn parse(target: &str) -> Self {
        let mut ask = Self {
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
                "dialect" => ask.dialect = dialect::NAMES.iter().position(|n| *n == value).unwrap_or(0),
                "events" => ask.events = value.parse().unwrap_or(0),
                "finish_ns" => ask.finish_ns = value.parse().unwrap_or(0),
                "ms" => ask.ms = value.parse().unwrap_or(0),
                "every_us" => ask.every_us = value.parse().unwrap_or(0),
                "batch" => ask.batch = value.parse().unwrap_or(0),
                "references" => ask.references = value.parse().unwrap_or(0),
                "rest_ms" => ask.rest_ms = value.parse().unwrap_or(0),
                "lead" => ask.lead = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        ask
    }
}
