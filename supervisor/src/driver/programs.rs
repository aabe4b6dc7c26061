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
        let program = Rc::new(Program::open(path)?);
        let id = BinaryId(self.next);
        self.next = self.next.wrapping_add(1);
        let binary = Binary { id, build: program.build(), path: program.path().into() };
        self.open.insert(id, program);
        Ok(binary)
    }

    pub(crate) fn get(&self, id: BinaryId) -> Option<Rc<Program>> {
        self.open.get(&id).map(Rc::clone)
    }

    pub(crate) fn close(&mut self, id: BinaryId) {
        self.open.remove(&id);
    }
}
