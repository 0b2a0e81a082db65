//! A raw TCP upstream, for bytes that no HTTP library would send.

use std::{future::Future, net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::net::{Proxy, route};

/// The start of an event stream whose body ends with the connection.
pub const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
/// The same with chunked encoding.
pub const CHUNKED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Serves every connection with this function until the test's runtime ends.
pub async fn serve<F, Served>(with: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Served + Send + Sync + 'static,
    Served: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            tokio::spawn(with(stream));
        }
    });
    addr
}

/// Reads the headers of a request, and the part of its body that came with them.
pub async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut more = [0; 4096];
        match stream.read(&mut more).await {
            Ok(n) if n > 0 => head.extend_from_slice(&more[..n]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Answers one request per connection with these bytes and closes.
pub async fn says(response: impl Into<Vec<u8>>) -> SocketAddr {
    let response: Arc<[u8]> = response.into().into();
    serve(move |mut stream| {
        let response = Arc::clone(&response);
        async move {
            head(&mut stream).await;
            // The peer may close before it has read everything.
            let _ = stream.write_all(&response).await;
            let _ = stream.shutdown().await;
            // Closing with unread bytes would send a reset.
            let _ = stream.read(&mut [0; 4096]).await;
        }
    })
    .await
}

/// A proxy in front of it, with additional configuration before its route `/chat`.
pub async fn proxy(upstream: SocketAddr, toml: &str) -> Proxy {
    Proxy::start(&format!("{toml}\n{}provider = \"tencent\"\n", route("chat", &format!("http://{upstream}")))).await
}

/// One chunk of a chunked body.
pub fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}
