//! How a relayed stream ended.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The upstream ended cleanly, and the client has received everything.
    Complete,
    UpstreamCut,
    UpstreamIdle,
    TotalTimeout,
    ClientGone,
    Shutdown,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::UpstreamCut => "upstream_cut",
            Self::UpstreamIdle => "upstream_idle",
            Self::TotalTimeout => "total_timeout",
            Self::ClientGone => "client_gone",
            Self::Shutdown => "shutdown",
        }
    }
}
