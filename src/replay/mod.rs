//! Captures, and a scripted upstream that replays them: used by `citetap replay`, `citetap demo`, `/normalize` and the
//! integration tests. Never part of the path of a relayed stream.
//!
//! [`capture`] converts saved responses to SSE bytes and [`capture_reader`] those to records. [`script`] defines how
//! bytes are served: pauses, chunk sizes, faults. [`body`] plays a script as its client reads, [`upstream`] is the HTTP
//! server around it, and [`request_log`] is what tests can query afterwards.

pub mod body;
pub mod capture;
pub mod capture_reader;
mod curl;
pub mod demo;
pub mod demo_history;
mod fresh_ids;
mod har;
pub mod request_log;
pub mod script;
pub mod upstream;

pub use capture::{Capture, CaptureError, CaptureFile, Format, MAX_CAPTURE, read};
pub use capture_reader::{CaptureReader, HarRecords};
pub use demo::demo_routes;
pub use request_log::{Outcome, RecordedRequest};
pub use script::{Chunking, Pace, Reply, Script, Scripted, Step};
pub use upstream::Upstream;

#[cfg(test)]
mod capture_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod upstream_tests;
