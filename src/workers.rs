//! The threads that serve connections. Each has a runtime of its own: a stream is read, tapped and written on one core,
//! and wakes no other. A connection stays with the thread that got it, and so do the connections to its upstreams.

use std::{
    cell::Cell,
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use tokio::runtime::{self, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// The number of this thread's worker; 0 also elsewhere.
pub fn here() -> usize {
    HERE.get()
}

/// Ends with its last connections' tasks when dropped.
pub struct Workers {
    each: Vec<Worker>,
    _stop: DropGuard,
}

pub struct Worker {
    runtime: Handle,
    busy: Arc<AtomicUsize>,
}

/// One connection that a worker has.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
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

    /// The one with the fewest connections.
    pub fn idlest(&self) -> Option<&Worker> {
        self.each.iter().min_by_key(|worker| worker.busy.load(Relaxed))
    }
}

impl Worker {
    fn start(number: usize, stop: CancellationToken) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name(format!("citetap-{number}")).spawn(move || {
            HERE.set(number);
            runtime.block_on(stop.cancelled());
            // Not waited for: what still runs elsewhere is nobody's any more.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, busy: Arc::default() })
    }

    /// Sockets and timers made in `make` are this worker's.
    pub fn within<T>(&self, make: impl FnOnce() -> T) -> T {
        let _here = self.runtime.enter();
        make()
    }

    pub fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.busy.fetch_add(1, Relaxed);
        let busy = Busy(Arc::clone(&self.busy));
        self.runtime.spawn(async move {
            connection.await;
            drop(busy);
        });
    }
}
