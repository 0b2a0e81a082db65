//! Key names, and the members of the sorted sets.
//!
//! All keys of a tenant share a hash tag, so they live in one cluster slot and one script can change them together. All
//! members of a set have the same score, so Redis orders them by bytes; scores are doubles and would lose precision.

use crate::store::{Cursor, Entry};

/// Separates the two parts of a name. NUL in the first part is escaped, so that names order as their parts do.
const PART_SEPARATOR: &str = "\0\u{1}";
const ESCAPED_NUL: &str = "\0\u{2}";

/// Hexadecimal digits of the time at the start of a member.
const TIME_HEX_LEN: usize = 16;

/// Key names of one tenant.
pub(super) struct Keys {
    pub(super) base: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, tenant: &str) -> Self {
        // Escaped, so that no tenant can end the hash tag; `t:` keeps it non-empty.
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
        self.of("r:", &join_name(provider, id))
    }

    pub(super) fn task(&self, task: &str) -> String {
        self.of("t:", &escape_part(task))
    }

    pub(super) fn positions(&self, task: &str) -> String {
        self.of("q:", &escape_part(task))
    }

    pub(super) fn consumed(&self, task: &str, consumer: &str) -> String {
        self.of("x:", &join_name(task, consumer))
    }

    pub(super) fn counts(&self, day: i64) -> String {
        self.of("c:", &day.to_string())
    }

    pub(super) fn sites(&self, day: i64, provider: &str) -> String {
        self.of("s:", &format!("{day}:{provider}"))
    }
}

/// Set of all tenants, in a slot of its own.
pub(super) fn tenants(prefix: &str) -> String {
    format!("{prefix}:tenants")
}

pub(super) fn probe(prefix: &str) -> String {
    format!("{prefix}:probe")
}

pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:bus")
}

/// Escapes the first of two parts.
pub(super) fn escape_part(text: &str) -> String {
    text.replace('\0', ESCAPED_NUL)
}

/// Prefix of the names of a provider; empty for all providers.
pub(super) fn name_prefix(provider: Option<&str>) -> String {
    provider.map_or_else(String::new, |provider| escape_part(provider) + PART_SEPARATOR)
}

pub(super) fn join_name(provider: &str, id: &str) -> String {
    escape_part(provider) + PART_SEPARATOR + id
}

/// Hexadecimal text that orders like the number.
pub(super) fn ascending(ms: i64) -> String {
    format!("{:016x}", ms.cast_unsigned() ^ (1 << 63))
}

/// Hexadecimal text that orders from late to early.
pub(super) fn descending(ms: i64) -> String {
    format!("{:016x}", !(ms.cast_unsigned() ^ (1 << 63)))
}

/// Member of the sets ordered newest first, then by provider and id.
pub(super) fn newest_member(entry: &Entry) -> String {
    descending(entry.created_ms) + &join_name(&entry.record.provider, &entry.record.message_id)
}

/// Member of a task's set, ordered oldest first.
pub(super) fn task_member(entry: &Entry) -> String {
    ascending(entry.created_ms) + &join_name(&entry.record.provider, &entry.record.message_id)
}

/// Parses a member back; `is_ascending` says which order it uses.
pub(super) fn parse_member(member: &str, is_ascending: bool) -> Option<Cursor> {
    let (time, name) = member.split_at_checked(TIME_HEX_LEN)?;
    let ordered = u64::from_str_radix(time, 16).ok()?;
    let created_ms = (if is_ascending { ordered } else { !ordered } ^ (1 << 63)).cast_signed();
    let (provider, id) = name.split_once(PART_SEPARATOR)?;
    Some(Cursor { created_ms, provider: provider.replace(ESCAPED_NUL, "\0"), id: id.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::entry;

    #[test]
    fn members_sort_like_lists_and_round_trip() {
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
        assert!(entries.iter().map(newest_member).is_sorted_by(|a, b| a < b));
        entries.sort_by_key(|one| (one.created_ms, key(one)));
        assert!(entries.iter().map(task_member).is_sorted_by(|a, b| a < b));
        for one in &entries {
            let (provider, id) = key(one);
            let expected = Some(Cursor { created_ms: one.created_ms, provider, id });
            assert_eq!(parse_member(&newest_member(one), false), expected);
            assert_eq!(parse_member(&task_member(one), true), expected);
        }
        for nothing in ["", "0", "000000000000000g a", "0000000000000000", "汉汉汉汉汉汉"] {
            assert_eq!(parse_member(nothing, true), None, "{nothing}");
        }
    }

    #[test]
    fn tenant_name_cannot_leave_its_hash_tag() {
        let base = |tenant: &str| Keys::new("citetap", tenant).base;
        assert_eq!(base("team-a"), "citetap:{t:team-a}:");
        assert_eq!(base(""), "citetap:{t:}:");
        assert_eq!(base("a}:n"), "citetap:{t:a%7d%3an}:");
        assert_eq!(base("%7d"), "citetap:{t:%257d}:");
    }
}
