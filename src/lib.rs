//! citetap: an HTTP proxy between a chat frontend and an AI chat upstream. It relays the upstream's
//! SSE stream as it comes, taps the references in it, puts one normalized citation event before
//! the finish, keeps every message's citations, and serves them at `/citations/{messageId}`.
//!
//! # Layout
//!
//! | room | what is in it |
//! |---|---|
//! | [`cli`] | the commands, one file each |
//! | [`config`] | what the operator said, resolved to valid values |
//! | [`server`] | the running process: which room answers a request, periodic work, drain |
//! | [`transport`] | listeners, the hyper server, the pooled hyper client, TLS, header hygiene, timeouts, file limits |
//! | [`relay`] | the proxy handler: route, upstream call, the response body with the tap, records' way to the store |
//! | [`api`] | citations, tasks, normalize, render, search, stats, the OpenAI facade, the console, OpenAPI |
//! | [`ops`] | health, readiness, metrics, version |
//! | [`app`] | what these share: tenants, rates, problems, messages in flight, other replicas |
//! | [`pipeline`] | bytes in, the same bytes and our event out |
//! | [`sse`] | framing; knows no JSON |
//! | [`provider`] | what frames mean, and our frame in their dialect; one folder per provider |
//! | [`citation`] | record, ledger, URLs; scores, corroboration, bundles and their read order, exports |
//! | [`marker`] | inline markers: the grammar, and what is read and rewritten by it as an answer streams |
//! | [`profile`] | how a record and an answer look on the wire, in the upstream's dialect or another |
//! | [`mapping`] | OpenAI requests as upstreams want them |
//! | [`search`] | searches of our own: the search service, its domains, and the query in a request |
//! | [`store`] | where records and read cursors are kept |
//! | [`replay`] | captures, and the scripted upstream that plays them |
//! | [`telemetry`] | metrics, logs and traces: every name, once |
//!
//! `tests/it/rooms.rs` holds who may import whom, without cycles.
//!
//! # Data path
//!
//! ```text
//! client -> transport/server -> relay -> transport/client -> relay/tap_body (the one poll_frame)
//!                                                             |  Bytes
//!                                                          sse/splitter      whole frames, slices of those bytes
//!                                                          provider adapter  frame -> signals
//!                                                          citation/ledger   dedupe, number, score
//!                                                          pipeline          when; profile: how it looks
//!                                                             |  the original bytes + our frame
//!                                                          client            (aside: store, metrics, log)
//! ```
//!
//! HTTP is hyper's on both sides: nothing here parses or writes a message head, a chunk or a pool.
//!
//! `sse`, `citation`, `marker`, `provider`, `profile` and `pipeline` are functions of bytes and values: they name no
//! runtime, so they are tested and replayed as such.
//!
//! # Promises
//!
//! Output minus our frames is the input, byte for byte. A tap that fails becomes a passthrough.
//! One final event per message, on a boundary, before the finish. `stored: true` only after the commit.
//! An abort stays an abort. Every buffer has a cap. Nothing that a stream names is ever fetched.
//!
//! # Deliberately absent
//!
//! No task or channel per stream in the data path (a search of our own runs beside it); no URL of an
//! upstream taken from a request; no redirect followed; no decompression; no `unsafe`.
//!
//! # Cancel safety
//!
//! Dropping a response body cancels its upstream; what was seen is stored from `Drop`, and writes run in
//! the store's own task, so they never die with a request. A search beside a stream ends with it, unless the
//! message was finished: then its answer goes into the store.

pub mod api;
pub mod app;
pub mod citation;
pub mod cli;
pub mod config;
pub mod mapping;
pub mod marker;
pub mod ops;
pub mod pipeline;
pub mod profile;
pub mod provider;
pub mod relay;
pub mod replay;
pub mod search;
pub mod server;
pub mod sse;
pub mod store;
pub mod telemetry;
pub mod transport;

/// The crate's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from, or `unknown`.
pub const COMMIT: &str = env!("CITETAP_COMMIT");
