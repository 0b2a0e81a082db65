//! Random ids. Their bytes are drawn from the system in advance: to ask it for those of each request takes longer than most
//! of what else is done with one.

use std::cell::RefCell;

use uuid::{Builder, Uuid};

/// Of a thread.
const DRAWN: usize = 1024;

thread_local! {
    /// And how many of them are left. Each is handed out once, and is not kept.
    static BYTES: RefCell<([u8; DRAWN], usize)> = const { RefCell::new(([0; DRAWN], 0)) };
}

/// One that nobody can guess.
pub fn unguessable() -> Uuid {
    taken().map_or_else(Uuid::new_v4, |bytes| Builder::from_random_bytes(bytes).into_uuid())
}

/// One that sorts by its time.
pub fn timed(unix_ms: i64) -> Uuid {
    let unix_ms = u64::try_from(unix_ms).unwrap_or_default();
    taken().map_or_else(Uuid::now_v7, |bytes| Builder::from_unix_timestamp_millis(unix_ms, &bytes).into_uuid())
}

/// `None`: the system gives none.
fn taken<const N: usize>() -> Option<[u8; N]> {
    BYTES.with_borrow_mut(|(bytes, left)| {
        if *left < N {
            getrandom::fill(bytes).ok()?;
            *left = DRAWN;
        }
        let from = &mut bytes[*left - N..*left];
        *left -= N;
        let mut taken = [0; N];
        taken.copy_from_slice(from);
        from.fill(0);
        Some(taken)
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    #[test]
    fn no_byte_is_handed_out_twice() {
        let draw = || (0..500).flat_map(|_| [unguessable(), timed(1_763_467_200_000)]).collect::<Vec<_>>();
        let others = thread::spawn(draw);
        let all: HashSet<Uuid> = draw().into_iter().chain(others.join().unwrap()).collect();
        assert_eq!(all.len(), 2000);
        // Of the parts that are all random, too.
        let tails: HashSet<&[u8]> = all.iter().map(|id| &id.as_bytes()[9..]).collect();
        assert_eq!(tails.len(), 2000);
        let (left, rest) = BYTES.with_borrow(|(bytes, left)| (*left, bytes[*left..].to_vec()));
        assert!(rest.iter().all(|byte| *byte == 0), "{left} are left, and of the others one is kept");
    }

    #[test]
    fn ids_say_what_they_are() {
        assert_eq!(unguessable().get_version_num(), 4);
        let (sooner, later) = (timed(1_763_467_200_000), timed(1_763_467_200_001));
        assert_eq!(sooner.get_version_num(), 7);
        assert!(sooner < later, "{sooner} {later}");
        assert_eq!(sooner.get_timestamp().map(|time| time.to_unix()), Some((1_763_467_200, 0)));
    }
}
