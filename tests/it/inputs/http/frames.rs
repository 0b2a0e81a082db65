//! Raw HTTP/2 frames (RFC 9113), for sequences that no client library would send.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::net::LIMIT;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const ACK: u8 = 1;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Header fields of a request, without Huffman coding and without the dynamic table (RFC 7541 6.2.2).
pub fn fields(post: bool, path: &str) -> Vec<u8> {
    let mut block = vec![if post { 0x83 } else { 0x82 }, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"localhost");
    block
}

/// A request on this stream. With a body it stays open.
pub fn request(stream: u32, post: bool, path: &str) -> Vec<u8> {
    let flags = if post { END_HEADERS } else { END_HEADERS | END_STREAM };
    frame(HEADERS, flags, stream, &fields(post, path))
}

/// The id of the client's stream `n`, counted from 0.
pub fn id(n: u32) -> u32 {
    2 * n + 1
}

pub struct Raw {
    pub read: OwnedReadHalf,
    pub write: OwnedWriteHalf,
}

/// The server's frames until it closed or the time was over.
#[derive(Debug, Default)]
pub struct ServerFrames {
    /// Types and payloads, except DATA.
    pub frames: Vec<(u8, Vec<u8>)>,
    pub closed: bool,
}

impl ServerFrames {
    /// The error code of its GOAWAY (RFC 9113 6.8).
    pub fn goaway(&self) -> Option<u32> {
        let last = self.frames.iter().rev().find(|(kind, _)| *kind == GOAWAY)?;
        Some(u32::from_be_bytes(last.1[4..8].try_into().unwrap()))
    }
}

impl Raw {
    /// Connects with these settings.
    pub async fn connect(addr: SocketAddr, settings: &[u8]) -> Self {
        let (read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
        write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        write.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
        Self { read, write }
    }

    /// Sends the pieces without reading. Returns whether all were accepted within the time.
    pub async fn flood(&mut self, pieces: impl Iterator<Item = Vec<u8>>, limit: Duration) -> bool {
        let sending = async {
            for piece in pieces {
                if self.write.write_all(&piece).await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(limit, sending).await.unwrap_or(false)
    }

    /// Sends the pieces while reading, then reads to the end or for a while.
    pub async fn flood_reading(
        self,
        pieces: impl Iterator<Item = Vec<u8>> + Send + 'static,
        rest: Duration,
    ) -> ServerFrames {
        let Self { read, mut write } = self;
        let sending = tokio::spawn(async move {
            for piece in pieces {
                if write.write_all(&piece).await.is_err() {
                    break;
                }
            }
            write
        });
        let reading = tokio::spawn(read_frames(read));
        let write = tokio::time::timeout(LIMIT, sending).await.expect("the flood is over").unwrap();
        let stopped = tokio::time::timeout(rest, async {
            while !reading.is_finished() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let _ = stopped.await;
        // If the connection is still open, end it here.
        drop(write);
        tokio::time::timeout(LIMIT, reading).await.expect("an end").unwrap()
    }
}

/// Reads frames to the connection's end.
pub async fn read_frames(mut read: OwnedReadHalf) -> ServerFrames {
    let mut received = ServerFrames::default();
    let mut head = [0; 9];
    while read.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        if read.read_exact(&mut payload).await.is_err() {
            break;
        }
        if head[3] != DATA && received.frames.len() < 100_000 {
            received.frames.push((head[3], payload));
        }
    }
    received.closed = true;
    received
}
