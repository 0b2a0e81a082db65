//! `questions` of a route: example questions that the console shows.

use super::{
    check::{self, Checked},
    value::Entry,
};

/// Maximum number of questions that fit the console's page.
const MAX_QUESTIONS: usize = 16;
/// Maximum length of a question in characters.
const MAX_QUESTION: usize = 500;

pub(super) fn questions(entry: &Entry) -> Checked<Vec<String>> {
    let questions = check::list(entry, &format!("expected a question of 1 to {MAX_QUESTION} characters"), question)?;
    if questions.len() > MAX_QUESTIONS {
        return Err(format!("expected {MAX_QUESTIONS} questions at most"));
    }
    Ok(questions)
}

fn question(text: &str) -> Option<String> {
    let text = text.trim();
    (1..=MAX_QUESTION).contains(&text.chars().count()).then(|| text.to_owned())
}
