//! Expectations for a broken link, one line per fault, link and moment.
//!
//! For every line: the client's bytes without our event are a prefix of the upstream's bytes or all of them; there is
//! at most one event, on a boundary and before the finish; an end that is not the upstream's is never clean; nothing
//! panics; no stream stays open; after the link works again the next request is served.

use std::time::Duration;

use super::link::Fault;

/// The broken link. Responses break; the other direction passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Between the client and citetap.
    Client,
    /// Between citetap and the upstream.
    Upstream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the first byte of the response.
    FirstByte,
    /// In the text's frame, within a character.
    MidFrame,
    /// In the finish frame, before its last byte.
    Finish,
}

/// What the client receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// Everything and a clean end.
    All,
    /// Everything before the fault, and then an abort.
    Cut,
    /// Everything before the fault, and then neither more nor an end.
    Silence,
    /// An abort instead of a response.
    Nothing,
    /// No connection.
    Refused,
    /// A problem document: status and type.
    Problem(u16, &'static str),
}

/// The citation event that the client receives. Each has `stored: true`, and `/citations` returns the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    None,
    /// `complete: false`, before the cut frame.
    Partial,
    /// `complete: true`, before the finish.
    Final,
}

/// What `/citations` returns afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    None,
    /// The citations so far, with `complete: false`.
    Partial,
    Complete,
}

/// How the upstream's response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// citetap read everything.
    Ended,
    /// The connection ended early. For a fault of the client's link: citetap closed it within a second.
    Cancelled,
    /// It received no request.
    NoRequest,
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
    /// The outcome in metrics and log. Empty if there was no stream.
    pub outcome: &'static str,
    /// Minimum and maximum time until the client sees the end. The maximum is the fault's own time plus what a busy
    /// machine adds.
    pub took: (Duration, Duration),
}

/// citetap's timeouts: first upstream byte, upstream idle, stalled client.
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
    Upstream::{Cancelled, Ended, NoRequest},
};
use super::link::Fault::{Down, Reset, Timeout};

#[rustfmt::skip]
pub const TABLE: [Cell; 48] = [
    //   link    moment     fault       client sees  event    record    upstream   outcome          milliseconds
    cell(Client, FirstByte, LATENCY,    All,         Final,   Complete, Ended,     "complete",      ( 100,10000)),
    cell(Client, FirstByte, Down,       Refused,     NoEvent, NoRecord, NoRequest, "",              (   0,10000)),
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
    cell(Up,     FirstByte, Down,       UNREACHABLE, NoEvent, NoRecord, NoRequest, "",              (   0,10000)),
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

/// The same for a request that breaks within its body. A cut request is not answered as if it were complete, and leaves
/// no record.
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
    outcome: &'static str,
    (least, most): (u64, u64),
) -> Cell {
    let took = (Duration::from_millis(least), Duration::from_millis(most));
    Cell { link, moment, fault, sees, event, record, upstream, outcome, took }
}
