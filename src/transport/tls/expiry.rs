//! Parses the end of a certificate's validity, and nothing else of X.509. Called by `tls`.

use jiff::{Timestamp, civil};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The certificate's `notAfter` (RFC 5280 4.1.2.5); `None` if the DER is invalid.
pub fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // serialNumber, signature, issuer
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (SEQUENCE, validity, _) = element(rest)? else { return None };
    let (tag, time, _) = element(element(validity)?.2)?;
    parse_time(tag, std::str::from_utf8(time).ok()?)
}

/// Splits the first DER element: its tag, its contents, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        _ => {
            let (bytes, rest) =
                rest.split_at_checked(usize::from(first & 0x7f)).filter(|(bytes, _)| bytes.len() <= 4)?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn parse_time(tag: u8, text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i16 = digits[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let time = civil::DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    jiff::tz::TimeZone::UTC.to_timestamp(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(year: i32) -> Option<Timestamp> {
        let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 2, 28);
        let key = rcgen::KeyPair::generate().unwrap();
        not_after(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn not_after_parses_both_time_formats() {
        for year in [1996, 2027, 2049, 2050, 3000] {
            assert_eq!(until(year), format!("{year}-02-28T00:00:00Z").parse().ok(), "{year}");
        }
    }

    #[test]
    fn invalid_der_has_no_not_after_and_no_panic() {
        let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let der = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec();
        for length in 0..der.len() {
            assert_eq!(not_after(&der[..length]), None, "{length}");
        }
        for at in 0..200 {
            let mut broken = der.clone();
            broken[at] ^= 0xff;
            // Any result is fine, a panic is not.
            let _ = not_after(&broken);
        }
    }
}
