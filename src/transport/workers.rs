//! Worker threads, each with a current-thread runtime: a stream is read, tapped and written on one core, without waking
//! another. A connection stays on the worker that accepted it, and so do its upstream connections.

use std::{cell::Cell, io, thread};

use tokio::runtime::{self, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Index of the worker that this thread is; 0 on other threads.
pub fn current() -> usize {
    CURRENT.get()
}

/// The worker threads. They stop, and drop their connections, when this is dropped.
pub struct Workers {
    runtimes: Vec<Handle>,
    _stop: DropGuard,
}

impl Workers {
    /// Starts `count` threads, at least one.
    pub fn start(count: usize) -> io::Result<Self> {
        // Made before the threads: if one cannot start, the others stop.
        let stop = CancellationToken::new().drop_guard();
        let runtimes =
            (0..count.max(1)).map(|worker| start(worker, stop.token().clone())).collect::<io::Result<_>>()?;
        Ok(Self { runtimes, _stop: stop })
    }

    pub fn runtimes(&self) -> &[Handle] {
        &self.runtimes
    }
}

fn start(worker: usize, stop: CancellationToken) -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(format!("citetap-{worker}")).spawn(move || {
        CURRENT.set(worker);
        runtime.block_on(stop.cancelled());
        // Blocking tasks that still run are not waited for.
        runtime.shutdown_background();
    })?;
    Ok(handle)
}
