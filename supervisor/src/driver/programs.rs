//! The executables that are kept open, by the numbers the machine knows them by.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use crate::event::{Binary, BinaryId};
use crate::program::Program;

/// At most three are open: the accepted one, one on trial, and one whose trial was given up.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    open: BTreeMap<BinaryId, Rc<Program>>,
    next: u32,
}

impl Programs {
    /// Opens a file and keeps it.
    ///
    /// # Errors
    /// When it cannot be opened or is no executable file.
    pub(crate) fn open(&mut self, path: &Path) -> io::Result<Binary> {
        let program = Program::open(path)?;
        let id = BinaryId(self.next);
        self.next = self.next.wrapping_add(1);
        let binary = Binary { id, build: program.build(), path: program.path().into() };
        self.keep(id, program);
        Ok(binary)
    }

    /// None is open, and the next one gets this number.
    pub(crate) fn resume(next: BinaryId) -> Self {
        Self { open: BTreeMap::new(), next: next.0 }
    }

    /// Keeps one that is open already.
    pub(crate) fn keep(&mut self, id: BinaryId, program: Program) {
        self.open.insert(id, Rc::new(program));
    }

    /// The number of the next one.
    pub(crate) fn next(&self) -> BinaryId {
        BinaryId(self.next)
    }

    pub(crate) fn get(&self, id: BinaryId) -> Option<Rc<Program>> {
        self.open.get(&id).map(Rc::clone)
    }

    pub(crate) fn close(&mut self, id: BinaryId) {
        self.open.remove(&id);
    }
}
