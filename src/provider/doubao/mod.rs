//! Doubao's web chat: its current protocol and the older "samantha" one, which share their
//! search blocks.

mod cards;
mod samantha;
mod web;

pub use samantha::Samantha;
pub use web::Web;

use super::{
    Signal, Sink,
    json::{self, Node},
};

const PROVIDER: &str = "doubao";

/// An error event: `{"error_code":…,"error_msg":…}`, the gateway's `{"code":…,"message":…}`, or anything.
fn fault(data: &str, sink: &mut dyn Sink) {
    if json::with_parsed(data, |node| fault_of(node, sink)).is_none() {
        sink.signal(Signal::Fault { code: None, message: None });
    }
}

fn fault_of(node: &Node<'_>, sink: &mut dyn Sink) {
    sink.signal(Signal::Fault {
        code: node.id(&["error_code", "code"]),
        message: node.text(&["error_msg", "message", "msg"]),
    });
}
