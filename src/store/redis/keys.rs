//! What the keys are called, and the places of records in sorted sets.
//!
//! All keys of a tenant have the same hash tag, so that they lie on one shard of a cluster and one script changes them
//! together. The members of a set all have the same score: Redis then orders them by their bytes, exactly, where scores
//! are floating-point numbers.

use crate::store::{Cursor, Entry};

/// Between two parts of a name. A NUL in the first part is written otherwise, so names order as their parts do.
const BETWEEN: &str = "\0\u{1}";
const NUL: &str = "\0\u{2}";

/// Hexadecimal digits that a place begins with.
const TIME_LEN: usize = 16;

/// What the keys of one tenant begin with.
pub(super) struct Keys {
    pub(super) base: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, tenant: &str) -> Self {
        // No text can end the tag early, and even the empty one makes a tag.
        let mut base = format!("{prefix}:{{t:");
        for byte in tenant.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => base.push(char::from(byte)),
                _ => base.push_str(&format!("%{byte:02x}")),
            }
        }
        base.push_str("}:");
        Self { base }
    }

    pub(super) fn of(&self, kind: &str, name: &str) -> String {
        format!("{}{kind}{name}", self.base)
    }

    pub(super) fn newest(&self) -> String {
        self.of("n", "")
    }

    pub(super) fn record(&self, provider: &str, id: &str) -> String {
        self.of("r:", &name(provider, id))
    }

    pub(super) fn task(&self, task: &str) -> String {
        self.of("t:", &part(task))
    }

    pub(super) fn readers(&self, task: &str) -> String {
        self.of("q:", &part(task))
    }

    pub(super) fn consumed(&self, task: &str, consumer: &str) -> String {
        self.of("x:", &name(task, consumer))
    }

    pub(super) fn counts(&self, day: i64) -> String {
        self.of("c:", &day.to_string())
    }

    pub(super) fn sites(&self, day: i64, provider: &str) -> String {
        self.of("s:", &format!("{day}:{provider}"))
    }
}

/// The list of tenants: on a shard of its own.
pub(super) fn tenants(prefix: &str) -> String {
    format!("{prefix}:tenants")
}

pub(super) fn probe(prefix: &str) -> String {
    format!("{prefix}:probe")
}

pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:bus")
}

/// The first of two parts.
pub(super) fn part(text: &str) -> String {
    text.replace('\0', NUL)
}

/// What the names of a provider begin with; of any, nothing.
pub(super) fn beginning(provider: Option<&str>) -> String {
    provider.map_or_else(String::new, |provider| part(provider) + BETWEEN)
}

pub(super) fn name(provider: &str, id: &str) -> String {
    part(provider) + BETWEEN + id
}

/// Orders as the number does.
pub(super) fn up(ms: i64) -> String {
    format!("{:016x}", ms.cast_unsigned() ^ (1 << 63))
}

/// The later, the smaller.
pub(super) fn down(ms: i64) -> String {
    format!("{:016x}", !(ms.cast_unsigned() ^ (1 << 63)))
}

/// Where lists have an entry: the newest first, then by provider and id.
pub(super) fn place(entry: &Entry) -> String {
    down(entry.created_ms) + &name(&entry.record.provider, &entry.record.message_id)
}

/// Where its task has it: the oldest first.
pub(super) fn step(entry: &Entry) -> String {
    up(entry.created_ms) + &name(&entry.record.provider, &entry.record.message_id)
}

/// Reads a place back; `up` tells which order it is of.
pub(super) fn cursor(place: &str, is_up: bool) -> Option<Cursor> {
    let (time, name) = place.split_at_checked(TIME_LEN)?;
    let ordered = u64::from_str_radix(time, 16).ok()?;
    let created_ms = (if is_up { ordered } else { !ordered } ^ (1 << 63)).cast_signed();
    let (provider, id) = name.split_once(BETWEEN)?;
    Some(Cursor { created_ms, provider: provider.replace(NUL, "\0"), id: id.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::entry;

    #[test]
    fn places_order_as_lists_do_and_come_back() {
        let mut entries = Vec::new();
        for ms in [i64::MIN, -1, 0, 1, (1 << 53) + 1, (1 << 53) + 2, i64::MAX] {
            for provider in ["", "\0", "\0\u{1}", "a", "a\0", "a\0\0", "a\u{1}", "a\u{2}b", "ab", "豆包"] {
                for id in ["", "\0", "\u{1}", "\u{2}", "1", "1\0"] {
                    entries.push(entry("t", provider, id, ms));
                }
            }
        }
        let key = |one: &Entry| (one.record.provider.clone(), one.record.message_id.clone());
        entries.sort_by_key(|one| (std::cmp::Reverse(one.created_ms), key(one)));
        assert!(entries.iter().map(place).is_sorted_by(|a, b| a < b));
        entries.sort_by_key(|one| (one.created_ms, key(one)));
        assert!(entries.iter().map(step).is_sorted_by(|a, b| a < b));
        for one in &entries {
            let (provider, id) = key(one);
            let expected = Some(Cursor { created_ms: one.created_ms, provider, id });
            assert_eq!(cursor(&place(one), false), expected);
            assert_eq!(cursor(&step(one), true), expected);
        }
        for nothing in ["", "0", "000000000000000g a", "0000000000000000", "汉汉汉汉汉汉"] {
            assert_eq!(cursor(nothing, true), None, "{nothing}");
        }
    }

    #[test]
    fn no_tenant_can_leave_its_tag() {
        let base = |tenant: &str| Keys::new("citetap", tenant).base;
        assert_eq!(base("team-a"), "citetap:{t:team-a}:");
        assert_eq!(base(""), "citetap:{t:}:");
        assert_eq!(base("a}:n"), "citetap:{t:a%7d%3an}:");
        assert_eq!(base("%7d"), "citetap:{t:%257d}:");
    }
}
