//! What waits to be taken, in order. Mostly that is one piece, which needs no memory of its own.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Out;

#[derive(Default)]
pub(super) struct Outs {
    /// `None`: nothing waits.
    first: Option<Out>,
    rest: VecDeque<Out>,
}

impl Outs {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Out> {
        self.first.iter().chain(&self.rest)
    }

    pub fn push_back(&mut self, out: Out) {
        if self.first.is_none() {
            self.first = Some(out);
        } else {
            self.rest.push_back(out);
        }
    }

    pub fn pop_front(&mut self) -> Option<Out> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }

    /// The upstream's own bytes, if they are next and not more than so many.
    pub fn pop_bytes(&mut self, most: usize) -> Option<Bytes> {
        match self.first.take() {
            Some(Out::Bytes(bytes)) if bytes.len() <= most => {
                self.first = self.rest.pop_front();
                Some(bytes)
            }
            first => {
                self.first = first;
                None
            }
        }
    }

    pub fn pop_back(&mut self) -> Option<Out> {
        self.rest.pop_back().or_else(|| self.first.take())
    }
}

impl Extend<Out> for Outs {
    fn extend<T: IntoIterator<Item = Out>>(&mut self, outs: T) {
        outs.into_iter().for_each(|out| self.push_back(out));
    }
}
