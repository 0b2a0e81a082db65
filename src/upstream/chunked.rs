//! Chunks (RFC 9112 7.1) taken apart as they come: what they carry is moved together where it lies.

use std::ops::Range;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Bytes of all extensions of a body, which mean nothing here; and of its trailers.
const MAX_ASIDE: usize = 16 * 1024;
const MAX_TRAILERS: usize = 64;
/// Of a size that fits.
const MAX_DIGITS: usize = 16;

#[derive(Debug)]
pub struct Chunked {
    at: At,
    /// Of the chunk: its size as far as it is known, then what is left of it.
    size: u64,
    extensions: usize,
}

#[derive(Debug)]
enum At {
    /// In the size, which has digits already, or not.
    Size(bool),
    /// After the size.
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers(Vec<u8>),
    /// Boxed, as hardly anybody has any.
    End(Option<Box<HeaderMap>>),
    /// It is none of HTTP's chunks.
    Malformed,
}

struct Malformed;

impl Chunked {
    pub fn new() -> Self {
        Self { at: At::Size(false), size: 0, extensions: 0 }
    }

    pub fn is_end(&self) -> bool {
        matches!(self.at, At::End(_))
    }

    pub fn is_malformed(&self) -> bool {
        matches!(self.at, At::Malformed)
    }

    /// After the end.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.at {
            At::End(trailers) => trailers.take().map(|trailers| *trailers),
            _ => None,
        }
    }

    pub fn has_trailers(&self) -> bool {
        matches!(self.at, At::End(Some(_)))
    }

    /// Where in `input` its data lies now, in one piece; and how many bytes of it were the body's: all of them, unless
    /// it ended, or is malformed from there on.
    pub fn decode(&mut self, input: &mut [u8]) -> (Range<usize>, usize) {
        let (mut data, mut at) = (0..0, 0);
        while let Some(&byte) = input.get(at) {
            // Mostly the lines between data are there as a whole.
            if matches!(self.at, At::DataCr) && input.get(at..at + 2) == Some(b"\r\n") {
                self.at = At::Size(false);
                at += 2;
                continue;
            }
            if matches!(self.at, At::Size(false))
                && let Some((size, length)) = input.get(at..).and_then(size_line)
            {
                self.at = if size == 0 { At::Trailers(Vec::new()) } else { At::Data };
                self.size = size;
                at += length;
                continue;
            }
            match self.step(byte) {
                Ok(Step::Next) => at += 1,
                Ok(Step::Data) => {
                    let there = input.len() - at;
                    let length = usize::try_from(self.size).map_or(there, |size| size.min(there));
                    if data.is_empty() {
                        data = at..at + length;
                    } else {
                        input.copy_within(at..at + length, data.end);
                        data.end += length;
                    }
                    self.size -= length as u64;
                    if self.size == 0 {
                        self.at = At::DataCr;
                    }
                    at += length;
                }
                Ok(Step::End) => break,
                Err(Malformed) => {
                    self.at = At::Malformed;
                    break;
                }
            }
        }
        (data, at)
    }

    fn step(&mut self, byte: u8) -> Result<Step, Malformed> {
        match &mut self.at {
            At::Size(known) => match (byte, char::from(byte).to_digit(16)) {
                (_, Some(digit)) => {
                    *known = true;
                    let size = self.size.checked_mul(16).ok_or(Malformed)?;
                    self.size = size | u64::from(digit);
                }
                (b'\r', _) if *known => self.at = At::SizeLf,
                (b';', _) if *known => self.at = At::Extension,
                (b' ' | b'\t', _) if *known => self.at = At::Blank,
                _ => return Err(Malformed),
            },
            At::Blank => match byte {
                b' ' | b'\t' => {}
                b';' => self.at = At::Extension,
                b'\r' => self.at = At::SizeLf,
                _ => return Err(Malformed),
            },
            At::Extension => match byte {
                b'\r' => self.at = At::SizeLf,
                b'\n' => return Err(Malformed),
                _ => {
                    self.extensions += 1;
                    if self.extensions > MAX_ASIDE {
                        return Err(Malformed);
                    }
                }
            },
            At::SizeLf if byte != b'\n' => return Err(Malformed),
            At::SizeLf => self.at = if self.size == 0 { At::Trailers(Vec::new()) } else { At::Data },
            At::Data => return Ok(Step::Data),
            At::DataCr if byte != b'\r' => return Err(Malformed),
            At::DataCr => self.at = At::DataLf,
            At::DataLf if byte != b'\n' => return Err(Malformed),
            At::DataLf => self.at = At::Size(false),
            At::Trailers(bytes) => {
                bytes.push(byte);
                if bytes == b"\r\n" {
                    self.at = At::End(None);
                } else if bytes.ends_with(b"\r\n\r\n") {
                    self.at = At::End(Some(Box::new(trailers(bytes)?)));
                } else if bytes.len() > MAX_ASIDE {
                    return Err(Malformed);
                }
            }
            At::End(_) => return Ok(Step::End),
            At::Malformed => return Err(Malformed),
        }
        Ok(Step::Next)
    }
}

/// A size, and the length of its line, where that is there as a whole and has nothing else in it.
fn size_line(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0;
    for (at, byte) in bytes.iter().take(MAX_DIGITS + 1).enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if at > 0 && bytes.get(at + 1) == Some(&b'\n') => return Some((size, at + 2)),
            _ => return None,
        };
        size = size << 4 | u64::from(digit);
    }
    None
}

/// What a byte was.
enum Step {
    /// One between the data.
    Next,
    /// The first of data.
    Data,
    /// None of the body's.
    End,
}

fn trailers(bytes: &[u8]) -> Result<HeaderMap, Malformed> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(bytes, &mut fields) else {
        return Err(Malformed);
    };
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
        map.append(name, HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Decoded = Option<(Vec<u8>, Option<HeaderMap>, Vec<u8>)>;

    /// What the pieces carry, their trailers, and what follows the body.
    fn decoded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
        let (mut chunked, mut out, mut after) = (Chunked::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut piece = piece.to_vec();
            let (data, used) = chunked.decode(&mut piece);
            assert!(used == piece.len() || chunked.is_end() || chunked.is_malformed());
            out.extend_from_slice(&piece[data]);
            after.extend_from_slice(&piece[used..]);
        }
        chunked.is_end().then(|| (out, chunked.take_trailers(), after))
    }

    fn whole(bytes: &[u8]) -> Decoded {
        decoded([bytes])
    }

    #[test]
    fn chunks_become_one_piece() {
        let (data, trailers, after) = whole(b"3\r\nabc\r\n00a;x=\"y\"\r\n0123456789\r\n0\r\n\r\nHTTP").unwrap();
        assert_eq!((&*data, trailers, &*after), (&b"abc0123456789"[..], None, &b"HTTP"[..]));
    }

    #[test]
    fn trailers_are_read() {
        let (data, trailers, after) = whole("3\r\n中\r\n0\r\nx-a: 1\r\nx-b:2\r\n\r\n".as_bytes()).unwrap();
        assert!(data == "中".as_bytes() && after.is_empty());
        let trailers = trailers.unwrap();
        assert_eq!((trailers["x-a"].as_bytes(), trailers["x-b"].as_bytes()), (&b"1"[..], &b"2"[..]));
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for bytes in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "1\na\r\n0\r\n\r\n",
            "1\r\nab\r\n0\r\n\r\n",
            "1\r\na\n0\r\n\r\n",
            ";\r\n",
            "1;a\n\r\na\r\n0\r\n\r\n",
            "1 1\r\na\r\n0\r\n\r\n",
            "11111111111111111\r\n",
            "0\r\nno trailer\r\n\r\n",
            "0\r\n a: b\r\n\r\n",
            "1\r\na\r\n",
        ] {
            assert_eq!(whole(bytes.as_bytes()), None, "{bytes:?}");
        }
    }

    #[test]
    fn what_came_before_something_malformed_is_there() {
        let mut bytes = *b"3\r\nabc\r\nzz\r\n";
        let mut chunked = Chunked::new();
        let (data, used) = chunked.decode(&mut bytes);
        assert_eq!((&bytes[data], used), (&b"abc"[..], 8));
        assert!(chunked.is_malformed() && chunked.decode(&mut bytes) == (0..0, 0));
    }

    #[test]
    fn extensions_and_trailers_have_a_cap() {
        let extended = |n| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(n));
        assert!(whole(extended(MAX_ASIDE).as_bytes()).is_some());
        assert!(whole(extended(MAX_ASIDE + 1).as_bytes()).is_none());
        let trailed = |n| format!("0\r\na: {}\r\n\r\n", "x".repeat(n));
        assert!(whole(trailed(MAX_ASIDE - 8).as_bytes()).is_some());
        assert!(whole(trailed(MAX_ASIDE).as_bytes()).is_none());
    }

    proptest! {
        #[test]
        fn however_it_is_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut wire: Vec<u8> = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\nx-end: yes\r\n\r\n");
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([wire.len()]) {
                pieces.push(&wire[from..cut]);
                from = cut;
            }
            let (data, trailers, after) = decoded(pieces).unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert!(trailers.is_some_and(|trailers| trailers["x-end"] == "yes") && after.is_empty());
            let letters = decoded(wire.chunks(1)).unwrap();
            prop_assert_eq!(letters.0, chunks.concat());
        }
    }
}
