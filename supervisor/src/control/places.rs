//! Room for a bounded number of clients, of which those that say nothing never keep others out:
//! where every place is taken, the longest silent client loses its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, spawn_local};

/// Whether a client's request has come.
pub(crate) type Asked = Rc<Cell<bool>>;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    /// The oldest first.
    taken: RefCell<VecDeque<Client>>,
}

#[derive(Debug)]
struct Client {
    conversation: AbortHandle,
    asked: Asked,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), taken: RefCell::default() }
    }

    /// Waits for a place. `None` never comes: the semaphore is not closed.
    pub(crate) async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        self.make_room();
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    fn make_room(&self) {
        let mut taken = self.taken.borrow_mut();
        taken.retain(|client| !client.conversation.is_finished());
        if self.free.available_permits() > 0 {
            return;
        }
        if let Some(silent) = taken.iter().find(|client| !client.asked.get()) {
            tracing::debug!("control socket: a client that says nothing makes room");
            silent.conversation.abort();
        }
    }

    /// Has a client talked to, in its place, until that ends or the place is needed.
    pub(crate) fn occupy<T: Future<Output = ()> + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        talk: impl FnOnce(Asked) -> T,
    ) {
        let asked = Asked::default();
        let talk = talk(Rc::clone(&asked));
        let conversation = spawn_local(async move {
            talk.await;
            drop(place);
        })
        .abort_handle();
        self.taken.borrow_mut().push_back(Client { conversation, asked });
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    #[test]
    fn the_longest_silent_one_makes_room_and_those_who_asked_stay() {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let places = Places::new(3);
            let ended = Rc::new(RefCell::new(Vec::new()));
            for number in 0..10 {
                let place = places.wait().await.unwrap();
                let end = End(number, Rc::clone(&ended));
                places.occupy(place, |asked| async move {
                    let _end = end;
                    // These say what they want, and wait for an answer that does not come.
                    asked.set(number == 0 || number == 4);
                    std::future::pending::<()>().await;
                });
                tokio::task::yield_now().await;
            }
            assert_eq!(*ended.borrow(), [1, 2, 3, 5, 6, 7, 8]);
        });
    }

    struct End(u32, Rc<RefCell<Vec<u32>>>);

    impl Drop for End {
        fn drop(&mut self) {
            self.1.borrow_mut().push(self.0);
        }
    }
}
