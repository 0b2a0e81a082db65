//! Inline markers: which numbers an answer's text names.

mod scan;

pub use scan::Scanner;
