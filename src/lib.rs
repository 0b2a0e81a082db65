//! citetap: an HTTP proxy between a chat frontend and an AI chat upstream. It relays the upstream's
//! SSE stream as it comes, taps the references in it, puts one normalized citation event before
//! the finish, keeps every message's citations, and serves them at `/citations/{messageId}`.
//!
//! # The house
//!
//! | room | what is in it |
//! |---|---|
//! | [`cli`] | the commands, one file each |
//! | [`config`] | what the operator said, resolved to valid values |
//! | [`server`] | router, relay, the citations and tasks API, auth, operators' endpoints, the console |
//! | [`upstream`] | the HTTP client: header hygiene, timeouts |
//! | [`files`] | how many connections there can be |
//! | [`sse`] | framing; knows no JSON |
//! | [`provider`] | what frames mean, one file per wire format |
//! | [`citation`] | record, ledger, URLs; scores, corroboration, bundles and their read order, exports |
//! | [`mapping`] | OpenAI requests as upstreams want them |
//! | [`marker`] | inline markers: the grammar, and what is read and rewritten by it as an answer streams |
//! | [`profile`] | how a record and an answer look on the wire, in the upstream's dialect or another |
//! | [`pipeline`] | bytes in, the same bytes and our event out |
//! | [`supplement`] | searches of our own: the search service, whose domains count, what a request asks |
//! | [`store`] | where records and read cursors are kept |
//! | [`replay`] | captures, and the scripted upstream that plays them |
//! | [`workers`] | the threads that connections are served on |
//! | [`telemetry`] | metrics, logs and traces: every name, once |
//!
//! # The data's path
//!
//! ```text
//! client -> server/relay -> upstream/wire ---> pipeline/body (the one poll_frame)
//!                                                 |  Bytes
//!                                              sse/splitter      whole frames, slices of those bytes
//!                                              provider adapter  frame -> signals
//!                                              citation/ledger   dedupe, number, score
//!                                              pipeline          when; profile: how it looks
//!                                                 |  the original bytes + our frame
//!                                              server/carry      the client (aside: store, metrics, log)
//! ```
//!
//! Over HTTP/1.1, a chat whose request comes in one piece is ours from end to end: `server/plain` reads the request and writes
//! the head of the answer, `upstream/sending` and `head` the other way round, `upstream/wire` takes the chunks apart,
//! `server/carry` makes the client's. Of other requests hyper reads the heads and writes those of their answers; all of
//! h2 is hyper's.
//!
//! `sse`, `citation`, `marker`, `provider`, `profile` and `pipeline` but for its `body` are functions
//! of bytes and values: they name no runtime, so they are tested and replayed as such.
//!
//! # Promises
//!
//! Output minus our frames is the input, byte for byte. A tap that fails becomes a passthrough.
//! One final event per message, on a boundary, before the finish. `stored: true` only after the commit.
//! An abort stays an abort. Every buffer has a cap. Nothing that a stream names is ever fetched.
//!
//! # Deliberately absent
//!
//! No task or channel per stream in the data's path (a search of our own runs beside it); no URL of an
//! upstream taken from a request; no redirect followed; no decompression; no `unsafe`.
//!
//! # Cancel safety
//!
//! Dropping a response body cancels its upstream; what was seen is stored from `Drop`, and writes run in
//! the store's own task, so they never die with a request. A search beside a stream ends with it, unless the
//! message was finished: then its answer goes into the store.

mod bell;
pub mod citation;
pub mod cli;
pub mod config;
pub mod files;
pub mod mapping;
pub mod marker;
pub mod pipeline;
pub mod profile;
pub mod provider;
mod random;
pub mod replay;
pub mod server;
pub mod sse;
pub mod store;
pub mod supplement;
pub mod telemetry;
pub mod upstream;
pub mod workers;

/// The crate's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from, or `unknown`.
pub const COMMIT: &str = env!("CITETAP_COMMIT");
