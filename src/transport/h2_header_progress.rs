//! Whether an h2 client is in the middle of a request's header block. The h2 crate has no timeout between a HEADERS frame
//! and its END_HEADERS, so the frames are followed here.

/// Length, type, flags and stream id (RFC 9113 4.1).
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the frames after the preface. Frames may come in any pieces; their payload is skipped.
#[derive(Debug)]
pub struct HeaderProgress {
    frame: [u8; FRAME_HEAD],
    /// Bytes of `frame` that were received.
    known: usize,
    /// Bytes of the frame's payload that are still to come.
    left: usize,
    due: bool,
    /// The current frame ends the header block.
    ends_block: bool,
}

impl HeaderProgress {
    pub fn new() -> Self {
        Self { frame: [0; FRAME_HEAD], known: 0, left: 0, due: true, ends_block: false }
    }

    /// True while a header block has begun and not ended, and before the first one.
    pub fn due(&self) -> bool {
        self.due
    }

    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.known < FRAME_HEAD {
                let (head, rest) = bytes.split_at(bytes.len().min(FRAME_HEAD - self.known));
                self.frame[self.known..self.known + head.len()].copy_from_slice(head);
                self.known += head.len();
                bytes = rest;
                if self.known < FRAME_HEAD {
                    return;
                }
                self.begin_frame();
            }
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            bytes = &bytes[taken..];
            if self.left == 0 {
                self.known = 0;
                self.due &= !self.ends_block;
            }
        }
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, flags, ..] = self.frame;
        self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        self.ends_block = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS != 0;
        self.due |= kind == HEADERS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, len: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, len, kind, flags, 0, 0, 0, 1];
        // The payload looks like frame headers.
        frame.extend((0..len).map(|n| [0, 0, 0, HEADERS, 0][usize::from(n) % 5]));
        frame
    }

    /// `due` after each frame; the same for every split of the input.
    fn due(frames: &[Vec<u8>]) -> Vec<bool> {
        let mut expected = Vec::new();
        let mut whole = HeaderProgress::new();
        for frame in frames {
            whole.feed(frame);
            expected.push(whole.due());
        }
        let all = frames.concat();
        for at in 0..=all.len() {
            let mut pieces = HeaderProgress::new();
            pieces.feed(&all[..at]);
            pieces.feed(&all[at..]);
            assert_eq!(Some(&pieces.due()), expected.last(), "in two at {at}");
        }
        let mut bytewise = HeaderProgress::new();
        for (frame, expected) in frames.iter().zip(&expected) {
            frame.iter().for_each(|byte| bytewise.feed(&[*byte]));
            assert_eq!(bytewise.due(), *expected);
        }
        expected
    }

    #[test]
    fn header_block_is_due_until_it_ends() {
        const SETTINGS: u8 = 4;
        const DATA: u8 = 0;
        let settings = frame(SETTINGS, END_HEADERS, 12);
        assert_eq!(due(&[frame(SETTINGS, 0, 0), settings.clone()]), [true, true], "none has come");
        assert_eq!(due(&[settings.clone(), frame(HEADERS, 5, 30), frame(DATA, 0, 200)]), [true, false, false]);
        let parts = [frame(HEADERS, 1, 30), frame(CONTINUATION, 0, 9), frame(CONTINUATION, END_HEADERS, 0)];
        assert_eq!(due(&parts), [true, true, false]);
        let second = [frame(HEADERS, 4, 3), frame(DATA, 4, 7), frame(HEADERS, 0, 3), frame(CONTINUATION, 4, 1)];
        assert_eq!(due(&second), [false, false, true, false]);
    }

    #[test]
    fn incomplete_headers_frame_is_due() {
        let mut progress = HeaderProgress::new();
        progress.feed(&frame(HEADERS, 4, 3));
        let next = frame(HEADERS, 4, 3);
        progress.feed(&next[..8]);
        assert!(!progress.due(), "it could be any frame");
        progress.feed(&next[8..9]);
        assert!(progress.due());
        progress.feed(&next[9..11]);
        assert!(progress.due());
        progress.feed(&next[11..]);
        assert!(!progress.due());
    }
}
