//! Captures, and the scripted upstream that plays them: what `citetap replay` reads, what `citetap demo`
//! talks to, and what the integration tests put behind the proxy.
//!
//! [`capture`] turns a saved stream of any usual kind into SSE bytes, and [`reading`] those into records. [`script`] says how bytes are served:
//! pauses, chunk sizes, faults. [`body`] plays a script at the pace of its reader, [`upstream`] is the HTTP
//! server around it, and [`observe`] is what a test can ask of that server afterwards. Nothing here is in the
//! path of a relayed stream.

pub mod body;
pub mod capture;
mod curl;
pub mod demo;
mod fresh;
mod har;
pub mod history;
pub mod observe;
pub mod reading;
pub mod script;
pub mod upstream;

pub use capture::{Capture, CaptureError, Captured, Format, MAX_CAPTURE, read};
pub use demo::demo_routes;
pub use observe::{Outcome, Seen};
pub use reading::{Reading, Records};
pub use script::{Chunking, Pace, Reply, Script, Scripted, Step};
pub use upstream::Upstream;

#[cfg(test)]
mod capture_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod upstream_tests;
