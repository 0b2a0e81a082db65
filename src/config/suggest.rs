//! "Did you mean": finds the known name that is most similar to a misspelled one.

/// Returns the known name with the smallest edit distance to `given`, or `None` if all differ too much.
pub(super) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    // A third of the letters may differ: accepts `lisen`, `upsteam`, `time-outs`, but not `foo` for `log`.
    let limit = (given.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&given, &name.to_ascii_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
