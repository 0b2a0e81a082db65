//! Inline markers: which numbers an answer's text names.

mod rewrite;
mod scan;
pub use rewrite::{Mark, Rewriter, Source, Sources, Style, rewrite, rewrite_whole};

pub use scan::Scanner;
