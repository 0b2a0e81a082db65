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
        let stop = CancellationToken::new();
        let cores = cores();
        // As many as there are cores: each has one, where its streams' memory stays warm and waking it costs least.
        let core = |number| cores.get(number).filter(|_| cores.len() == count).copied();
        let start = |number| Worker::start(number, core(number), stop.clone());
        let each = (0..count.max(1)).map(start).collect::<io::Result<_>>()?;
        Ok(Self { each, _stop: stop.drop_guard() })
    }

    /// The one with the fewest connections.
    pub fn idlest(&self) -> Option<&Worker> {
        self.each.iter().min_by_key(|worker| worker.busy.load(Relaxed))
    }
}

impl Worker {
    fn start(number: usize, core: Option<usize>, stop: CancellationToken) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name(format!("citetap-{number}")).spawn(move || {
            HERE.set(number);
            core.map(stay_on);
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

/// The cores that this process may use.
#[cfg(target_os = "linux")]
fn cores() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let usable = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|core| usable.is_set(*core)).collect()
}

/// This thread runs there from now on. Refused, it runs where it did.
#[cfg(target_os = "linux")]
fn stay_on(core: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

#[cfg(not(target_os = "linux"))]
fn cores() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The cores on which each worker may run.
    fn allowed(count: usize) -> Vec<Vec<usize>> {
        let workers = Workers::start(count).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        for worker in &workers.each {
            let tell = tell.clone();
            worker.serve(async move { tell.send(cores()).unwrap() });
        }
        drop(tell);
        let mut allowed: Vec<_> = told.into_iter().collect();
        allowed.sort();
        allowed
    }

    #[test]
    fn as_many_workers_as_cores_have_one_each_and_others_have_all() {
        let all = cores();
        assert_eq!(allowed(all.len()), all.iter().map(|core| vec![*core]).collect::<Vec<_>>());
        assert_eq!(allowed(all.len() + 1), vec![all.clone(); all.len() + 1]);
    }
}
