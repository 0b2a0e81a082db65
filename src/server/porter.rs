//! Lets clients in. A connection is served by the thread that accepted it: one that is handed on to another waits until
//! that has woken up, which takes longer than all the rest of its way to the upstream. So it is the doors that move, to
//! the thread with fewer connections.

use std::{convert::Infallible, future::poll_fn, io, pin::Pin, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::door::{Doors, Side, Visitor};
use crate::workers::{Worker, Workers};

/// After an error of `accept` such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who came, and through which door.
pub struct Came {
    pub visitor: Visitor,
    pub side: Side,
    pub tls: Option<Arc<ServerConfig>>,
}

pub struct Porter<F> {
    doors: Doors,
    workers: Arc<[Worker]>,
    /// Where the doors are.
    at: usize,
    /// Has the worker serve who came.
    admit: F,
    shut: CancellationToken,
    /// Goes with the porter.
    _there: oneshot::Sender<Infallible>,
}

/// A porter at work. Dropped, it closes the doors.
pub struct AtWork {
    shut: CancellationToken,
    there: oneshot::Receiver<Infallible>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.shut.cancel();
    }
}

impl AtWork {
    /// Until the doors are closed, which nobody but us does unless something is broken.
    pub async fn ended(&mut self) {
        let _ = (&mut self.there).await;
    }

    /// Who has not been let in by now is refused.
    pub async fn close(mut self) {
        self.shut.cancel();
        self.ended().await;
    }
}

impl<F> Porter<F>
where
    F: Fn(&Worker, Came) + Send + 'static,
{
    pub fn start(doors: &Doors, workers: &Workers, admit: F) -> io::Result<AtWork> {
        let (workers, at) = (workers.each(), 0);
        let (shut, (sender, there)) = (CancellationToken::new(), oneshot::channel());
        let doors = workers[at].within(|| doors.again())?;
        let porter = Self { doors, workers: Arc::clone(&workers), at, admit, shut: shut.clone(), _there: sender };
        workers[at].spawn(porter.work());
        Ok(AtWork { shut, there })
    }

    /// Boxed, as it begins itself anew elsewhere.
    fn work(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let workers = Arc::clone(&self.workers);
            let mut waited = true;
            loop {
                let came = poll_fn(|task| {
                    let polled = self.doors.poll_accept(task);
                    waited |= polled.is_pending();
                    polled.map(|(came, door)| (came, door.side, door.tls.as_ref().map(|tls| tls.now())))
                });
                let (came, side, tls) = tokio::select! {
                    came = came => came,
                    () = self.shut.cancelled() => return,
                };
                match came {
                    Ok(visitor) => {
                        (self.admit)(&workers[self.at], Came { visitor, side, tls });
                        // Who comes alone has mostly asked for something: that goes first, and so does what its upstream
                        // answers at once. Where many come, the others are not kept waiting.
                        if std::mem::take(&mut waited) {
                            tokio::task::yield_now().await;
                        }
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(_) => {
                        tracing::warn!("accept failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
                // Where the doors cannot be opened, they stay.
                if let Some(next) = Worker::idler(&workers, self.at)
                    && let Ok(doors) = workers[next].within(|| self.doors.again())
                {
                    (self.doors, self.at) = (doors, next);
                    workers[next].spawn(self.work());
                    return;
                }
            }
        })
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use tokio::{
        net::{TcpListener, TcpStream, UnixStream},
        sync::mpsc,
    };

    use super::*;
    use crate::{
        server::{Door, Listener},
        workers,
    };

    #[tokio::test]
    async fn connections_are_spread_over_the_workers_until_the_doors_close() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let each = [Listener::Tcp(tcp), Listener::unix(&path, 0o600).unwrap()];
        let doors = Doors::new(each.into_iter().map(|listener| Door::new(listener, Side::Whole, None)).collect());
        let workers = Workers::start(3).unwrap();
        let (served, mut at) = mpsc::channel(1);
        let porter = Porter::start(&doors, &workers, move |worker, came| {
            let served = served.clone();
            worker.serve(Box::pin(async move {
                served.send(workers::here()).await.unwrap();
                std::future::pending::<()>().await;
                drop(came);
            }));
        });
        let porter = porter.unwrap();
        drop(doors);

        let (mut clients, mut counts) = ((Vec::new(), Vec::new()), [0; 3]);
        for turn in 0..60 {
            if turn % 2 == 0 {
                clients.0.push(TcpStream::connect(address).await.unwrap());
            } else {
                clients.1.push(UnixStream::connect(&path).await.unwrap());
            }
            counts[at.recv().await.unwrap()] += 1;
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 2, "{counts:?}");
        }
        porter.close().await;
        TcpStream::connect(address).await.unwrap_err();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_doors_close_with_the_workers() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let workers = Workers::start(1).unwrap();
        let mut porter = Porter::start(&tcp.into(), &workers, |_, _| {}).unwrap();
        TcpStream::connect(address).await.unwrap();
        drop(workers);
        porter.ended().await;
        TcpStream::connect(address).await.unwrap_err();
    }
}
