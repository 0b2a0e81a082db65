//! "Did you mean": the nearest of the names that are known.

/// The known name nearest to `given`, unless none is near enough to be what was meant.
pub(super) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    // A third of the letters may be wrong: `lisen`, `upsteam`, `time-outs`; not `foo` for `log`.
    let limit = (given.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&given, &name.to_ascii_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
