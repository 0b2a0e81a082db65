//! citetap: an HTTP proxy between a chat frontend and an AI chat upstream. It relays the upstream's SSE stream unchanged,
//! extracts the references in it, inserts one normalized citation event before the finish, stores every message's
//! citations, and serves them at `/citations/{messageId}`.
//!
//! # Layout
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | the commands, one file each |
//! | [`config`] | the configuration, parsed and validated |
//! | [`server`] | the running process: routes requests to `relay`, `api` or `ops`, runs periodic work, drains |
//! | [`transport`] | listeners, the hyper server, the pooled hyper client, TLS, header hygiene, timeouts, file limits |
//! | [`relay`] | the proxy handler: route lookup, upstream request, the response body with the tap, records to the store |
//! | [`api`] | citations, tasks, normalize, render, search, stats, the OpenAI facade, the console, OpenAPI |
//! | [`ops`] | health, readiness, metrics, version |
//! | [`app`] | state shared by these: tenants, rate limits, problem responses, messages in flight, other replicas |
//! | [`pipeline`] | the stream processor: upstream bytes in, the same bytes and our event out |
//! | [`sse`] | SSE framing; knows no JSON |
//! | [`provider`] | parses frames to signals and encodes our event in the provider's dialect; one folder per provider |
//! | [`citation`] | record, ledger, URLs; scores, corroboration, bundles and their read order, exports |
//! | [`marker`] | inline markers: grammar, streaming parser and rewriter |
//! | [`profile`] | encodes a record and an answer for the client, in the upstream's dialect or another |
//! | [`mapping`] | maps OpenAI requests to the upstreams' request formats |
//! | [`search`] | our own searches: the search service, its domains, and the query in a request |
//! | [`store`] | stores for records and read cursors |
//! | [`replay`] | captures, and the scripted upstream that replays them |
//! | [`telemetry`] | metrics, logs and traces: every name, once |
//!
//! `tests/it/rooms.rs` checks which module imports which, and that there are no cycles.
//!
//! # Data path
//!
//! ```text
//! client -> transport/server -> relay -> transport/client -> relay/tap_body (the one poll_frame)
//!                                                             |  Bytes
//!                                                          sse/splitter      complete frames, slices of those bytes
//!                                                          provider adapter  frame -> signals
//!                                                          citation/ledger   dedupe, number, score
//!                                                          pipeline, profile when to send our event; its encoding
//!                                                             |  the original bytes + our event
//!                                                          client            (aside: store, metrics, log)
//! ```
//!
//! hyper implements HTTP on both sides: no module parses or writes message heads or chunked encoding.
//!
//! `sse`, `citation`, `marker`, `provider`, `profile` and `pipeline` are functions of bytes and values. They use no async
//! runtime, so tests and replays call them directly.
//!
//! # Promises
//!
//! - The output without our frames equals the input, byte for byte.
//! - A tap that fails becomes a passthrough.
//! - Each message gets one final event, at a frame boundary, before the finish.
//! - `stored: true` is sent only after the commit.
//! - An aborted stream never looks complete to the client.
//! - Every buffer has a cap.
//! - No URL from a stream is ever fetched.
//!
//! # Deliberately absent
//!
//! - A task or channel per stream in the data path. A search of our own runs in its own task.
//! - Upstream URLs taken from a request.
//! - Following redirects, decompression, `unsafe`.
//!
//! # Cancel safety
//!
//! Dropping a response body cancels its upstream request and stores, from `Drop`, what was read so far. Writes run in the
//! store's own task, so they outlive the request. A search for a stream is cancelled with it, unless the message was
//! finished: then its results go into the store.

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
/// The commit that the crate was built from, or `unknown`.
pub const COMMIT: &str = env!("CITETAP_COMMIT");
