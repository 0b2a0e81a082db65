//! Inline markers: which numbers an answer's text names.

mod rewrite;
mod scan;
pub use rewrite::{Mark, Rewriter, Source, Sources, Style, rewrite};

pub use scan::Scanner;
