//! STUB until the engine is merged.
use std::ops::Range;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    #[default]
    Keep,
    Link,
    Sup,
    Footnote,
    Strip,
}
impl Style {
    pub const NAMES: &[&str] = &["keep", "link", "sup", "footnote", "strip"];
    pub const fn as_str(self) -> &'static str {
        "keep"
    }
}
impl std::str::FromStr for Style {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "keep" => Ok(Self::Keep),
            "link" => Ok(Self::Link),
            _ => Err(()),
        }
    }
}
pub struct Source<'a> {
    pub number: u32,
    pub url: Option<&'a str>,
    pub title: Option<&'a str>,
    pub content: Option<&'a str>,
}
pub trait Sources {
    fn find(&self, number: u32) -> Option<Source<'_>>;
}
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub numbers: Vec<u32>,
    pub start: u64,
    pub end: u64,
    pub input: Range<u64>,
    pub text: String,
}
pub struct Rewriter {
    fed: u64,
}
impl Rewriter {
    pub fn new(_style: Style) -> Self {
        Self { fed: 0 }
    }
    pub fn push(&mut self, piece: &str, _s: &dyn Sources, out: &mut String, _m: &mut Vec<Mark>) {
        out.push_str(piece);
        self.fed += piece.len() as u64;
    }
    pub fn finish(&mut self, _s: &dyn Sources, _o: &mut String, _m: &mut Vec<Mark>) {}
    pub fn definitions(&self, _s: &dyn Sources) -> String {
        String::new()
    }
    pub fn held_from(&self) -> u64 {
        self.fed
    }
}
pub fn rewrite_whole(text: &str, _style: Style, _s: &dyn Sources) -> String {
    text.to_owned()
}
pub fn rewrite(text: &str, _style: Style, _s: &dyn Sources) -> (String, Vec<Mark>) {
    (text.to_owned(), Vec::new())
}
