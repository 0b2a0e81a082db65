//! What holds when a link breaks, one line for every fault, link and moment.
//!
//! Whatever the line says, these hold too: what the client got, without our event, is the beginning of what the upstream
//! sent, or all of it; there is one event at most, on a boundary, before the finish; an end that is not the upstream's is
//! never a clean one; nothing panics; no stream stays open; and when the link is whole again, the next request is served.

use std::time::Duration;

use super::link::Fault;

/// Which link breaks. Its answers do; what goes the other way passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Between the client and citetap.
    Client,
    /// Between citetap and the upstream.
    Upstream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the first byte of the answer's head.
    FirstByte,
    /// In the text's frame, within a character.
    MidFrame,
    /// In the finish's frame, before its last byte.
    Finish,
}

/// What the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// Everything and a clean end.
    All,
    /// What was sent before the fault, and then an abort.
    Cut,
    /// What was sent before the fault, and then neither more nor an end.
    Silence,
    /// An abort instead of an answer.
    Nothing,
    /// No connection.
    Refused,
    /// A problem document: its status and type.
    Problem(u16, &'static str),
}

/// The citation event that the client gets. Each says `stored: true`, and `/citations` has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    None,
    /// `complete: false`, before the frame that was cut.
    Partial,
    /// `complete: true`, before the finish.
    Final,
}

/// What `/citations` has afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    None,
    /// What was seen, with `complete: false`.
    Partial,
    Complete,
}

/// How the upstream's own answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// All was taken.
    Ended,
    /// Its connection ended while it had more to say. On the client's link that is citetap's doing, within a second.
    Cancelled,
    /// It was never asked.
    NotAsked,
}

#[derive(Debug)]
pub struct Cell {
    pub link: Link,
    pub moment: Moment,
    pub fault: Fault,
    pub sees: Sees,
    pub event: Event,
    pub record: Record,
    pub upstream: Upstream,
    /// The outcome in the metrics and the log; empty where there was no stream.
    pub told: &'static str,
    /// For the client to see its end: at least and at most. The most is what the fault itself takes and what a busy
    /// machine adds.
    pub took: (Duration, Duration),
}

/// The times that citetap is given: for the upstream's first byte, its silence, and a client that takes nothing.
pub const PATIENCE: Duration = Duration::from_millis(2500);

const LATENCY: Fault = Fault::Latency(Duration::from_millis(150), Duration::from_millis(50));
const BANDWIDTH: Fault = Fault::Bandwidth(4096);
const SLOW_CLOSE: Fault = Fault::SlowClose(Duration::from_millis(300));
const SLICER: Fault = Fault::Slicer(5);
const LIMIT: Fault = Fault::Limit(3);
const UNREACHABLE: Sees = Sees::Problem(502, "upstream-unreachable");
const TOO_LATE: Sees = Sees::Problem(504, "upstream-timeout");

use self::{
    Event::{Final, None as NoEvent, Partial},
    Link::{Client, Upstream as Up},
    Moment::{Finish, FirstByte, MidFrame},
    Record::{Complete, None as NoRecord, Partial as Begun},
    Sees::{All, Cut, Nothing, Refused, Silence},
    Upstream::{Cancelled, Ended, NotAsked},
};
use super::link::Fault::{Down, Reset, Timeout};

#[rustfmt::skip]
pub const TABLE: [Cell; 48] = [
    //   link    moment     fault       client sees  event    record    upstream   told as          milliseconds
    cell(Client, FirstByte, LATENCY,    All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Client, FirstByte, Down,       Refused,     NoEvent, NoRecord, NotAsked,  "",              (   0,10000)),
    cell(Client, FirstByte, BANDWIDTH,  All,         Final,   Complete, Ended,     "complete",      ( 200,10000)),
    cell(Client, FirstByte, SLOW_CLOSE, Nothing,     NoEvent, Begun,    Cancelled, "client_gone",   ( 300,10000)),
    cell(Client, FirstByte, Timeout,    Silence,     NoEvent, Begun,    Cancelled, "client_gone",   (2500,15000)),
    cell(Client, FirstByte, Reset,      Nothing,     NoEvent, Begun,    Cancelled, "client_gone",   (   0,10000)),
    cell(Client, FirstByte, SLICER,     All,         Final,   Complete, Ended,     "complete",      (   0,10000)),
    cell(Client, FirstByte, LIMIT,      Nothing,     NoEvent, Begun,    Cancelled, "client_gone",   (   0,10000)),

    cell(Client, MidFrame,  LATENCY,    All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Client, MidFrame,  Down,       Cut,         NoEvent, Begun,    Cancelled, "client_gone",   (   0,10000)),
    cell(Client, MidFrame,  BANDWIDTH,  All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Client, MidFrame,  SLOW_CLOSE, Cut,         NoEvent, Begun,    Cancelled, "client_gone",   ( 300,10000)),
    cell(Client, MidFrame,  Timeout,    Silence,     NoEvent, Begun,    Cancelled, "client_gone",   (2500,15000)),
    cell(Client, MidFrame,  Reset,      Cut,         NoEvent, Begun,    Cancelled, "client_gone",   (   0,10000)),
    cell(Client, MidFrame,  SLICER,     All,         Final,   Complete, Ended,     "complete",      (   0,10000)),
    cell(Client, MidFrame,  LIMIT,      Cut,         NoEvent, Begun,    Cancelled, "client_gone",   (   0,10000)),

    cell(Client, Finish,    LATENCY,    All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Client, Finish,    Down,       Cut,         Final,   Complete, Cancelled, "client_gone",   (   0,10000)),
    cell(Client, Finish,    BANDWIDTH,  All,         Final,   Complete, Ended,     "complete",      (  50,10000)),
    cell(Client, Finish,    SLOW_CLOSE, Cut,         Final,   Complete, Cancelled, "client_gone",   ( 300,10000)),
    cell(Client, Finish,    Timeout,    Silence,     Final,   Complete, Cancelled, "client_gone",   (2500,15000)),
    cell(Client, Finish,    Reset,      Cut,         Final,   Complete, Cancelled, "client_gone",   (   0,10000)),
    cell(Client, Finish,    SLICER,     All,         Final,   Complete, Ended,     "complete",      (   0,10000)),
    cell(Client, Finish,    LIMIT,      Cut,         Final,   Complete, Cancelled, "client_gone",   (   0,10000)),

    cell(Up,     FirstByte, LATENCY,    All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Up,     FirstByte, Down,       UNREACHABLE, NoEvent, NoRecord, NotAsked,  "",              (   0,10000)),
    cell(Up,     FirstByte, BANDWIDTH,  All,         Final,   Complete, Ended,     "complete",      ( 200,10000)),
    cell(Up,     FirstByte, SLOW_CLOSE, UNREACHABLE, NoEvent, NoRecord, Cancelled, "",              ( 300,10000)),
    cell(Up,     FirstByte, Timeout,    TOO_LATE,    NoEvent, NoRecord, Cancelled, "",              (2500,15000)),
    cell(Up,     FirstByte, Reset,      UNREACHABLE, NoEvent, NoRecord, Cancelled, "",              (   0,10000)),
    cell(Up,     FirstByte, SLICER,     All,         Final,   Complete, Ended,     "complete",      (   0,10000)),
    cell(Up,     FirstByte, LIMIT,      UNREACHABLE, NoEvent, NoRecord, Cancelled, "",              (   0,10000)),

    cell(Up,     MidFrame,  LATENCY,    All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Up,     MidFrame,  Down,       Cut,         Partial, Begun,    Cancelled, "upstream_cut",  (   0,10000)),
    cell(Up,     MidFrame,  BANDWIDTH,  All,         Final,   Complete, Ended,     "complete",      (  50,10000)),
    cell(Up,     MidFrame,  SLOW_CLOSE, Cut,         Partial, Begun,    Cancelled, "upstream_cut",  ( 300,10000)),
    cell(Up,     MidFrame,  Timeout,    Cut,         Partial, Begun,    Cancelled, "upstream_idle", (2500,15000)),
    cell(Up,     MidFrame,  Reset,      Cut,         Partial, Begun,    Cancelled, "upstream_cut",  (   0,10000)),
    cell(Up,     MidFrame,  SLICER,     All,         Final,   Complete, Ended,     "complete",      (   0,10000)),
    cell(Up,     MidFrame,  LIMIT,      Cut,         Partial, Begun,    Cancelled, "upstream_cut",  (   0,10000)),

    cell(Up,     Finish,    LATENCY,    All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Up,     Finish,    Down,       Cut,         Partial, Begun,    Cancelled, "upstream_cut",  (   0,10000)),
    cell(Up,     Finish,    BANDWIDTH,  All,         Final,   Complete, Ended,     "complete",      (  50,10000)),
    cell(Up,     Finish,    SLOW_CLOSE, Cut,         Partial, Begun,    Cancelled, "upstream_cut",  ( 300,10000)),
    cell(Up,     Finish,    Timeout,    Cut,         Partial, Begun,    Cancelled, "upstream_idle", (2500,15000)),
    cell(Up,     Finish,    Reset,      Cut,         Partial, Begun,    Cancelled, "upstream_cut",  (   0,10000)),
    cell(Up,     Finish,    SLICER,     All,         Final,   Complete, Ended,     "complete",      (   0,10000)),
    cell(Up,     Finish,    LIMIT,      Cut,         Partial, Begun,    Cancelled, "upstream_cut",  (   0,10000)),
];

/// The same for a request that breaks on its way, within its body. What is cut is not answered as if it were whole, and
/// leaves no record.
#[rustfmt::skip]
pub const REQUESTS: [(Link, Fault, Sees); 16] = [
    // link  fault       client sees
    (Client, LATENCY,    All),
    (Client, Down,       Nothing),
    (Client, BANDWIDTH,  All),
    (Client, SLOW_CLOSE, Nothing),
    (Client, Timeout,    TOO_LATE),
    (Client, Reset,      Nothing),
    (Client, SLICER,     All),
    (Client, LIMIT,      Nothing),

    (Up,     LATENCY,    All),
    (Up,     Down,       UNREACHABLE),
    (Up,     BANDWIDTH,  All),
    (Up,     SLOW_CLOSE, UNREACHABLE),
    (Up,     Timeout,    TOO_LATE),
    (Up,     Reset,      UNREACHABLE),
    (Up,     SLICER,     All),
    (Up,     LIMIT,      UNREACHABLE),
];

#[expect(clippy::too_many_arguments, reason = "a line of the table")]
const fn cell(
    link: Link,
    moment: Moment,
    fault: Fault,
    sees: Sees,
    event: Event,
    record: Record,
    upstream: Upstream,
    told: &'static str,
    (least, most): (u64, u64),
) -> Cell {
    let took = (Duration::from_millis(least), Duration::from_millis(most));
    Cell { link, moment, fault, sees, event, record, upstream, told, took }
}
