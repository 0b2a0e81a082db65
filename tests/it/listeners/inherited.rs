//! Sockets inherited from systemd, and notifications to the service manager.

use std::{
    net::TcpListener,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::net::{UnixDatagram, UnixListener},
    },
    path::Path,
    process::Command,
    time::Duration,
};

use rustix::io::{FdFlags, fcntl_setfd};
use tokio::net::UnixStream;

use super::{assert_streams, serve, upstream};
use crate::{
    net::{Client, LIMIT, get},
    process::{Running, confined, run},
};

/// The command as systemd would start it: with these sockets from file descriptor 3 on.
fn with_sockets(command: &Command, sockets: &[BorrowedFd<'_>], names: &str) -> Command {
    let mut lines = String::new();
    for (at, socket) in sockets.iter().enumerate() {
        fcntl_setfd(socket, FdFlags::empty()).unwrap();
        lines += &format!("exec {}<&{}\n", 100 + at, socket.as_raw_fd());
    }
    for at in 0..sockets.len() {
        lines += &format!("exec {}<&{} {}<&-\n", 3 + at, 100 + at, 100 + at);
    }
    let count = sockets.len();
    lines += &format!("export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names}");
    let mut command = confined(command, &lines);
    // Some shells support only single-digit descriptors.
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut bash = Command::new("bash");
    bash.args(args).current_dir(command.get_current_dir().unwrap_or(Path::new(".")));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bash.env(name, value),
            None => bash.env_remove(name),
        };
    }
    command = bash;
    command
}

#[tokio::test]
async fn inherited_sockets_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let (tcp, local) = (TcpListener::bind("127.0.0.1:0").unwrap(), dir.path().join("made.sock"));
    let unix = UnixListener::bind(&local).unwrap();
    let addr = tcp.local_addr().unwrap();
    let command = serve(dir.path(), "listen = \"systemd\"", &upstream);
    // A client that connected before the server started is served.
    let early = tokio::net::TcpStream::connect(addr).await.unwrap();
    let mut running =
        Running::start_elsewhere(with_sockets(&command, &[tcp.as_fd(), unix.as_fd()], "http:admin")).await;
    let logged = running.logged("listening", 1).await.remove(0);
    assert_eq!(
        (logged["listen"].as_str(), logged["admin"].as_str()),
        (Some(addr.to_string().as_str()), Some(format!("unix:{}", local.display()).as_str()))
    );
    assert_streams(&mut Client::over(early, false).await).await;
    let mut admin = Client::over(UnixStream::connect(&local).await.unwrap(), false).await;
    assert_eq!(admin.send(get("/metrics")).await.status, 200);
    assert_eq!(Client::h1(addr).await.send(get("/metrics")).await.status, 404);

    running.signal("TERM");
    assert!(running.ended(Duration::from_secs(10)).await.success());
    assert!(local.exists(), "systemd, which created it, may pass it again");
}

#[tokio::test]
async fn inherited_socket_overrides_listen() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let command = serve(dir.path(), "listen = \"127.0.0.1:1\"", &upstream);
    let running = Running::start(with_sockets(&command, &[tcp.as_fd()], "citetap.socket")).await;
    assert_eq!(running.addr, tcp.local_addr().unwrap());
    assert_eq!(running.get("/metrics").await.status, 200);
    drop(running);

    let ran = run(serve(dir.path(), "listen = \"systemd\"", &upstream), "");
    assert!(ran.code == 1 && ran.err.contains("no socket was handed over"), "{ran:?}");
    let ran = run(crate::process::citetap(dir.path(), &["health"]), "");
    assert!(ran.code == 1 && ran.err.contains("--url"), "{ran:?}");

    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let ran = run(with_sockets(&command, &[open.as_fd()], ""), "");
    assert!(ran.code == 1 && ran.err.contains("can be reached from other machines"), "{ran:?}");
    let datagram = UnixDatagram::unbound().unwrap();
    let ran = run(with_sockets(&command, &[datagram.as_fd()], ""), "");
    assert!(ran.code == 1 && ran.err.contains("neither a TCP nor a Unix stream socket"), "{ran:?}");
}

#[tokio::test]
async fn service_manager_is_notified_of_start_reload_and_stop() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let receive = || {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut command = serve(dir.path(), "listen = \"127.0.0.1:0\"", &upstream);
    command.env("NOTIFY_SOCKET", &path);
    let mut running = Running::start(command).await;
    assert_eq!(receive(), "READY=1");
    running.signal("HUP");
    let reloading = receive();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(since.parse::<u64>().unwrap() > 0);
    assert_eq!(receive(), "READY=1");
    running.signal("TERM");
    assert_eq!(receive(), "STOPPING=1");
    assert!(running.ended(Duration::from_secs(10)).await.success());
}
