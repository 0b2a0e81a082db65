//! Exports a record as Markdown, HTML, CSV, BibTeX, RIS, CSL-JSON or prompt text. Called by the API and the CLI. Performs no I/O.
//!
//! Titles, names and snippets are untrusted text: each format must escape them so that they cannot change its structure.
//! Sources are sorted by number; filtered sources are left out.

mod bibtex;
mod csl;
mod csv;
mod html;
mod latex;
mod markdown;
mod prompt;
mod ris;
mod source;
#[cfg(test)]
mod tests;

pub use csv::row as csv_row;
pub use html::{POLICY as HTML_POLICY, escaped};
use source::Source;

use super::Record;

/// An export format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Numbered list of links.
    Markdown,
    /// Definitions of Markdown footnotes, `[^1]: …`.
    Footnotes,
    /// Self-contained HTML page.
    Html,
    Csv,
    Bibtex,
    Ris,
    /// CSL-JSON.
    Csl,
    /// Numbered search results for the prompt of a model.
    Prompt,
}

impl Format {
    pub const ALL: [Self; 8] =
        [Self::Markdown, Self::Footnotes, Self::Html, Self::Csv, Self::Bibtex, Self::Ris, Self::Csl, Self::Prompt];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Footnotes => "footnotes",
            Self::Html => "html",
            Self::Csv => "csv",
            Self::Bibtex => "bibtex",
            Self::Ris => "ris",
            Self::Csl => "csl",
            Self::Prompt => "prompt",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// File name extension, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Markdown | Self::Footnotes => "md",
            Self::Html => "html",
            Self::Csv => "csv",
            Self::Bibtex => "bib",
            Self::Ris => "ris",
            Self::Csl => "json",
            Self::Prompt => "txt",
        }
    }
}

/// Language of headings and other fixed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lang {
    Zh,
    En,
}

impl Lang {
    pub const NAMES: [&'static str; 2] = ["zh", "en"];

    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "zh" => Some(Self::Zh),
            "en" => Some(Self::En),
            _ => None,
        }
    }

    /// The language of the record's text: Chinese if at least a third of the letters are Han characters, because Chinese
    /// titles contain many Latin names.
    fn of(record: &Record) -> Self {
        let titles = record.citations.iter().filter_map(|citation| citation.title.as_deref());
        let texts = titles.chain(record.queries.iter().map(String::as_str)).chain(record.summary.as_deref());
        let (mut han, mut other) = (0_usize, 0_usize);
        for letter in texts.flat_map(str::chars).filter(|c| c.is_alphabetic()) {
            match letter {
                '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' => han += 1,
                _ => other += 1,
            }
        }
        if han > 0 && han * 2 >= other { Self::Zh } else { Self::En }
    }
}

/// Which sources to export, and the language of fixed text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Only the sources that the answer cites.
    pub cited: bool,
    /// `None`: the language of the record's text.
    pub lang: Option<Lang>,
}

/// Renders the record in a format.
pub fn render(record: &Record, format: Format, options: Options) -> String {
    let sources = source::sources(record, options.cited);
    let lang = options.lang.unwrap_or_else(|| Lang::of(record));
    let accessed = source::date(&record.created_at);
    match format {
        Format::Markdown => markdown::list(&sources),
        Format::Footnotes => markdown::footnotes(&sources),
        Format::Html => html::page(record, &sources, lang),
        Format::Csv => csv::table(&sources),
        Format::Bibtex => bibtex::entries(&sources, accessed),
        Format::Ris => ris::entries(&sources, accessed),
        Format::Csl => csl::items(&sources, accessed),
        Format::Prompt => prompt::evidence(&sources, lang),
    }
}
