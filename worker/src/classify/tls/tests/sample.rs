//! ClientHellos made to order, legal or not.

use super::super::{EXTENSION_ALPN, EXTENSION_SERVER_NAME};

/// The parts of a hello; legal and without extensions by default.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) session: Vec<u8>,
    pub(super) suites: Vec<u8>,
    pub(super) compressions: Vec<u8>,
    /// `None` leaves their length out too, as old clients do.
    pub(super) extensions: Option<Vec<u8>>,
    pub(super) after: Vec<u8>,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            session: vec![7; 32],
            suites: vec![0x13, 0x01, 0xc0, 0x2f],
            compressions: vec![0],
            extensions: Some(Vec::new()),
            after: Vec::new(),
        }
    }
}

impl Sample {
    pub(super) fn bare() -> Self {
        Self { extensions: None, ..Self::default() }
    }

    pub(super) fn named(name: &[u8]) -> Self {
        Self::default().with(EXTENSION_SERVER_NAME, &server_name(&[(0, name)]))
    }

    pub(super) fn with(mut self, kind: u16, content: &[u8]) -> Self {
        self.extensions.get_or_insert_default().extend(extension(kind, content));
        self
    }

    pub(super) fn with_alpn(self, protocols: &[&[u8]]) -> Self {
        let list: Vec<u8> = protocols.iter().flat_map(|protocol| short_vector(protocol)).collect();
        self.with(EXTENSION_ALPN, &vector(&list))
    }

    /// A key share as large as the message is to be, about.
    pub(super) fn with_padding(self, length: usize) -> Self {
        self.with(51, &vec![0xaa; length])
    }

    pub(super) fn message(&self) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend_from_slice(&[9; 32]);
        body.extend(short_vector(&self.session));
        body.extend(vector(&self.suites));
        body.extend(short_vector(&self.compressions));
        if let Some(extensions) = &self.extensions {
            body.extend(vector(extensions));
        }
        body.extend_from_slice(&self.after);
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1, length[1], length[2], length[3]][..], &body].concat()
    }

    /// In as few records as it can be.
    pub(super) fn bytes(&self) -> Vec<u8> {
        records(&self.message(), &[])
    }
}

/// Puts a message into records of these sizes, the rest into as few as possible.
pub(super) fn records(message: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = message;
    let mut sizes = sizes.iter().copied();
    while !rest.is_empty() {
        let (record, after) = rest.split_at(sizes.next().unwrap_or(16 * 1024).min(rest.len()));
        bytes.extend_from_slice(&[22, 3, 1]);
        bytes.extend(vector(record));
        rest = after;
    }
    bytes
}

pub(super) fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(content)].concat()
}

pub(super) fn server_name(names: &[(u8, &[u8])]) -> Vec<u8> {
    vector(
        &names
            .iter()
            .flat_map(|(kind, name)| [&[*kind][..], &vector(name)].concat())
            .collect::<Vec<_>>(),
    )
}

fn vector(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn short_vector(content: &[u8]) -> Vec<u8> {
    [&[u8::try_from(content.len()).unwrap()][..], content].concat()
}
