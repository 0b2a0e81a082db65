//! The threads that serve connections. Each has a runtime of its own: a stream is read, tapped and written on one core,
//! and wakes no other. A connection stays with the thread that got it, and so do the connections to its upstreams.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    thread,
    time::Duration,
};

use tokio::runtime::{self, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// So many connections more than another may a worker have: with none, each connection would move the doors.
const MORE: usize = 1;
/// And this share of them: where a thousand come at once, doors that move with every other one let in too few a second.
const SHARE: usize = 32;

/// As the allocator sees it.
const LARGE: usize = 4096;
/// For a client on this machine to take what it was sent.
const PAUSE: Duration = Duration::from_micros(20);
/// A worker's clock goes off so often. Whoever sets a timer that is due before all others has to wake the clock, which is a
/// system call; with this one hardly any timer is.
const TICK: Duration = Duration::from_secs(1);

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
    /// The connections of this thread's worker.
    static BUSY: RefCell<Arc<AtomicUsize>> = RefCell::default();
}

/// The number of this thread's worker; 0 also elsewhere.
pub fn here() -> usize {
    HERE.get()
}

/// Lets a client on this machine have this core, which was sent what it waits for: it may be woken on the core that sent it,
/// as whoever has sent something mostly waits next, and stay there until we do, with other cores idle. So we do: to
/// yield is only a wish, which Linux grants or not by what each has had of the core before. Not where other connections
/// would wait with this one.
#[expect(clippy::disallowed_methods, reason = "this thread has one connection, and it is to stop")]
pub fn give_way() {
    if BUSY.with_borrow(|busy| busy.load(Relaxed) <= 1) {
        thread::sleep(PAUSE);
    }
}

/// After a stream. What it had in small pieces is put together again by the allocator (glibc's) when somebody asks for a large
/// one: rather now than on the way of the next request, of which it would be a tenth.
pub fn settle() {
    std::hint::black_box(Vec::<u8>::with_capacity(LARGE));
}

/// Ends with its last connections' tasks when dropped.
pub struct Workers {
    each: Arc<[Worker]>,
    _stop: DropGuard,
}

pub struct Worker {
    runtime: Handle,
    busy: Arc<AtomicUsize>,
}

/// One connection that a worker has. An `async` block would have room for the connection twice.
struct Busy<F> {
    connection: F,
    count: Arc<AtomicUsize>,
}

impl<F: Future<Output = ()> + Unpin> Future for Busy<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.connection).poll(task)
    }
}

impl<F> Drop for Busy<F> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

impl Workers {
    pub fn start(count: usize) -> io::Result<Self> {
        // First of all: where one cannot start, those before it end.
        let stop = CancellationToken::new().drop_guard();
        let token = stop.token();
        let each = (0..count.max(1)).map(|number| Worker::start(number, token.clone())).collect::<io::Result<_>>()?;
        Ok(Self { each, _stop: stop })
    }

    /// At least one.
    pub fn each(&self) -> Arc<[Worker]> {
        Arc::clone(&self.each)
    }
}

impl Worker {
    fn start(number: usize, stop: CancellationToken) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, busy) = (runtime.handle().clone(), Arc::<AtomicUsize>::default());
        let of_here = Arc::clone(&busy);
        thread::Builder::new().name(format!("citetap-{number}")).spawn(move || {
            HERE.set(number);
            // Linux adds 50 µs to whatever a thread waits for, unless it is told otherwise.
            #[cfg(target_os = "linux")]
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            BUSY.set(of_here);
            runtime.block_on(async { while tokio::time::timeout(TICK, stop.cancelled()).await.is_err() {} });
            // Not waited for: what still runs elsewhere is nobody's any more.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, busy })
    }

    /// Sockets and timers made in `make` are this worker's.
    pub fn within<T>(&self, make: impl FnOnce() -> T) -> T {
        let _here = self.runtime.enter();
        make()
    }

    /// The one among `each` with the fewest connections, if `here` has too many more than that.
    pub fn idler(each: &[Self], here: usize) -> Option<usize> {
        let busy = |at: usize| each[at].busy.load(Relaxed);
        let idlest = (0..each.len()).min_by_key(|at| busy(*at))?;
        (busy(here) > busy(idlest) + MORE + busy(idlest) / SHARE).then_some(idlest)
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    pub fn serve(&self, connection: impl Future<Output = ()> + Send + Unpin + 'static) {
        self.busy.fetch_add(1, Relaxed);
        self.runtime.spawn(Busy { connection, count: Arc::clone(&self.busy) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_move_to_who_has_fewer_and_not_with_each_of_many() {
        let workers = Workers::start(2).unwrap();
        let each = workers.each();
        for (here, there, moves) in
            [(0, 0, false), (1, 0, false), (2, 0, true), (33, 31, true), (500, 490, false), (500, 480, true)]
        {
            each[0].busy.store(here, Relaxed);
            each[1].busy.store(there, Relaxed);
            assert_eq!(Worker::idler(&each, 0), moves.then_some(1), "{here} and {there}");
            assert_eq!(Worker::idler(&each, 1), None, "{here} and {there}");
        }
    }
}
