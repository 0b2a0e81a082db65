//! Refuses response heads that hyper accepts but a proxy must not relay. Called by `client`.

use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};

/// Checks the head of a final response and reduces equal lengths to one. The error says what is wrong.
pub fn check(status: StatusCode, headers: &mut HeaderMap) -> Result<(), &'static str> {
    // No upgrade is ever requested, because `relay::check` refuses them.
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("it switches protocols unasked");
    }
    // hyper decodes a final `chunked` only, and the header is not relayed, so the client would not know of other codings.
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        return Err("its transfer coding is another than chunked");
    }
    unify_lengths(headers)
}

/// RFC 9110 8.6: equal lengths are relayed as one; other lists are invalid. hyper does not check responses without a body,
/// such as those to `HEAD`.
fn unify_lengths(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let values = headers.get_all(CONTENT_LENGTH);
    let mut lengths = values.iter().flat_map(|value| value.as_bytes().split(|b| *b == b',')).map(length);
    let Some(first) = lengths.next() else { return Ok(()) };
    let first = first.ok_or("its content-length is no length")?;
    let mut count = 1;
    for length in lengths {
        if length != Some(first) {
            return Err("its lengths disagree");
        }
        count += 1;
    }
    if count > 1 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(first));
    }
    Ok(())
}

fn length(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    // `parse` accepts a sign.
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: http::HeaderName, values: &[&'static str]) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_static(value));
        }
        check(StatusCode::OK, &mut headers).is_ok().then_some(headers)
    }

    #[test]
    fn equal_lengths_become_one() {
        for values in [&["2"][..], &["2, 2"], &["2", "2"], &["2 ,2", "02"]] {
            let headers = checked(CONTENT_LENGTH, values).unwrap();
            assert_eq!(headers.get_all(CONTENT_LENGTH).iter().collect::<Vec<_>>(), ["2"], "{values:?}");
        }
        assert!(checked(CONTENT_LENGTH, &[]).is_some());
    }

    #[test]
    fn lengths_that_disagree_are_refused() {
        let max = "18446744073709551616";
        for values in [&["2, 3"][..], &["2", "3"], &["2,"], &[","], &[""], &["+2"], &["-2"], &["2 2"], &["0x2"], &[max]]
        {
            assert!(checked(CONTENT_LENGTH, values).is_none(), "{values:?}");
        }
    }

    #[test]
    fn coding_other_than_chunked_is_refused() {
        for (values, is_accepted) in [
            (&["chunked"][..], true),
            (&["CHUNKED"], true),
            (&["gzip, chunked"], false),
            (&["gzip", "chunked"], false),
            (&["chunked", "chunked"], false),
            (&["identity"], false),
        ] {
            assert_eq!(checked(TRANSFER_ENCODING, values).is_some(), is_accepted, "{values:?}");
        }
    }
}
