//! Converts the upstream's offsets, which count bytes of UTF-8, to code points.

/// Bytes of the answer's text that are mapped (64 KiB of memory at most). Offsets beyond are not converted.
pub const MAX_TEXT: usize = 256 * 1024;

/// Where characters start in the answer's text. Leading ASCII text takes no memory.
#[derive(Default)]
pub struct Offsets {
    /// Length of the ASCII text at the start.
    ascii: usize,
    /// The bytes after that, in blocks of 64.
    blocks: Vec<Block>,
    /// Mapped bytes.
    length: usize,
    /// A delta did not fit, so nothing after it can be mapped.
    is_full: bool,
}

struct Block {
    /// One bit per byte: set where a character starts.
    starts: u64,
    /// Characters before the block.
    before: u64,
}

impl Offsets {
    /// Adds a delta of the answer.
    pub fn push(&mut self, text: &str) {
        self.is_full |= text.len() > MAX_TEXT - self.length;
        if self.is_full {
            return;
        }
        if self.blocks.is_empty() && text.is_ascii() {
            self.ascii += text.len();
            self.length = self.ascii;
            return;
        }
        for byte in text.bytes() {
            let bit = (self.length - self.ascii) % 64;
            if bit == 0 {
                let before = self.blocks.last().map_or(self.ascii as u64, |last| last.before + ones(last.starts));
                self.blocks.push(Block { starts: 0, before });
            }
            let is_start = byte & 0xC0 != 0x80;
            if let Some(block) = self.blocks.last_mut() {
                block.starts |= u64::from(is_start) << bit;
            }
            self.length += 1;
        }
    }

    /// The number of characters before a byte. `None` within a character, and beyond the mapped text.
    pub fn chars_before(&self, byte: u64) -> Option<u64> {
        let byte = usize::try_from(byte).ok().filter(|byte| *byte <= self.length)?;
        let Some(at) = byte.checked_sub(self.ascii) else { return Some(byte as u64) };
        let (index, bit) = (at / 64, at % 64);
        let Some(block) = self.blocks.get(index) else {
            // The end of the text, after its last block.
            return Some(self.blocks.last().map_or(byte as u64, |last| last.before + ones(last.starts)));
        };
        let is_start = byte == self.length || block.starts >> bit & 1 == 1;
        is_start.then(|| block.before + ones(block.starts & ((1 << bit) - 1)))
    }
}

fn ones(bits: u64) -> u64 {
    u64::from(bits.count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_characters_of_every_prefix() {
        let text = format!("{}火灾[1]é😀{}。{}", "a".repeat(70), "b".repeat(64), "灾".repeat(90));
        for pieces in [1, 7, text.chars().count()] {
            let (mut offsets, chars) = (Offsets::default(), text.chars().collect::<Vec<_>>());
            for piece in chars.chunks(pieces) {
                offsets.push(&piece.iter().collect::<String>());
            }
            for byte in 0..=text.len() {
                let expected = text.get(..byte).map(|before| before.chars().count() as u64);
                assert_eq!(offsets.chars_before(byte as u64), expected, "{byte} in pieces of {pieces}");
            }
            assert_eq!(offsets.chars_before(text.len() as u64 + 1), None);
        }
    }

    #[test]
    fn offsets_beyond_the_cap_are_unknown() {
        for (length, mapped) in [(MAX_TEXT, true), (MAX_TEXT + 1, false)] {
            let mut offsets = Offsets::default();
            offsets.push("a");
            offsets.push(&"é".repeat((length - 1) / 2));
            offsets.push(&"b".repeat((length - 1) % 2));
            assert_eq!(offsets.chars_before(length as u64).is_some(), mapped, "{length}");
            offsets.push("c");
            assert_eq!(offsets.chars_before(length as u64 + 1), None);
            assert_eq!(offsets.chars_before(1), Some(1));
        }
    }
}
