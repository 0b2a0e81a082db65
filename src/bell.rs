//! A wake-up that is remembered, so that what rings is asked only after it has rung, and not on every poll of what it
//! belongs to.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};

/// Passes a wake-up on to the task that waits, and remembers it.
#[derive(Default)]
struct Clapper {
    rung: AtomicBool,
    /// Stays when it has been woken: whoever waits is not asked again each time.
    task: Mutex<Option<Waker>>,
}

impl Wake for Clapper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, SeqCst);
        if let Some(task) = &*self.task.lock().unwrap_or_else(PoisonError::into_inner) {
            task.wake_by_ref();
        }
    }
}

pub struct Bell {
    clapper: Arc<Clapper>,
    /// Who hears it now.
    task: Option<Waker>,
}

impl Default for Bell {
    /// Rung once already: who may ring has to be asked first.
    fn default() -> Self {
        Self { clapper: Arc::new(Clapper { rung: AtomicBool::new(true), ..Clapper::default() }), task: None }
    }
}

impl Bell {
    /// From now on this task is woken.
    pub fn hear(&mut self, task: &Context<'_>) {
        if !self.task.as_ref().is_some_and(|known| known.will_wake(task.waker())) {
            self.task = Some(task.waker().clone());
            self.clapper.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.task);
        }
    }

    /// Has it rung since it was asked last?
    pub fn rung(&self) -> bool {
        self.clapper.rung.load(SeqCst) && self.clapper.rung.swap(false, SeqCst)
    }

    /// What rings it is polled with this.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.clapper))
    }

    /// Whatever may ring it has changed, and is to be asked again.
    pub fn ring(&self) {
        self.clapper.rung.store(true, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn every_ring_wakes_and_is_heard_once() {
        let woken = Arc::new(Woken::default());
        let (mut bell, task) = (Bell::default(), Waker::from(Arc::clone(&woken)));
        assert!(bell.rung() && !bell.rung(), "what may ring is asked first");
        bell.hear(&Context::from_waker(&task));
        for n in 1..=3 {
            bell.waker().wake();
            assert_eq!(woken.0.load(SeqCst), n, "also when it was woken before");
            assert!(bell.rung() && !bell.rung());
        }
    }
}
