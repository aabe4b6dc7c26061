//! Requests that wait for the transition that is going on.
//!
//! One waits of each kind, further ones join it: a hundred SIGHUPs in a second are one reload
//! that is going on and one that comes after it and sees everything the hundred wanted seen.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::event::{Request, RequestId};

/// A request and everybody who waits for its result; nobody, when a signal asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) request: Request,
    pub(super) requesters: Vec<RequestId>,
}

/// At most one reload and one upgrade, in the order they were first asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Queue {
    waiting: VecDeque<Pending>,
}

impl Queue {
    /// Adds the request, or joins it to an equal one.
    ///
    /// # Errors
    /// When another upgrade waits that is to another binary: one answer cannot serve both.
    pub(super) fn push(&mut self, new: Pending) -> Result<(), String> {
        let same_kind = |waiting: &&mut Pending| {
            std::mem::discriminant(&waiting.request) == std::mem::discriminant(&new.request)
        };
        match self.waiting.iter_mut().find(same_kind) {
            None => self.waiting.push_back(new),
            Some(waiting) if waiting.request == new.request => {
                waiting.requesters.extend(new.requesters);
            }
            Some(_) => return Err("a different upgrade is waiting already".into()),
        }
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<Pending> {
        self.waiting.pop_front()
    }

    /// Everything, when the end has come.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Pending> {
        std::mem::take(&mut self.waiting).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(request: Request, id: u64) -> Pending {
        Pending { request, requesters: vec![RequestId(id)] }
    }

    #[test]
    fn equal_requests_join_and_kinds_keep_their_order() {
        let mut queue = Queue::default();
        let upgrade = Request::Upgrade { binary: None, force: false };
        queue.push(pending(upgrade.clone(), 1)).unwrap();
        queue.push(pending(Request::Reload, 2)).unwrap();
        queue.push(pending(upgrade, 3)).unwrap();
        queue.push(pending(Request::Reload, 4)).unwrap();
        assert_eq!(queue.pop().unwrap().requesters, [RequestId(1), RequestId(3)]);
        assert_eq!(queue.pop().unwrap().requesters, [RequestId(2), RequestId(4)]);
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn an_upgrade_to_another_binary_does_not_join() {
        let mut queue = Queue::default();
        let to = |path: &str| Request::Upgrade { binary: Some(path.into()), force: false };
        queue.push(pending(to("/a"), 1)).unwrap();
        assert!(queue.push(pending(to("/b"), 2)).is_err());
        assert_eq!(queue.pop().unwrap().requesters, [RequestId(1)]);
    }
}
