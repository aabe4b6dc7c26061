//! ClientHellos made to order.

/// A hello under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hello(Vec<u8>);

impl Hello {
    pub(crate) fn named(name: &[u8]) -> Self {
        Self::default().with_name(name)
    }

    pub(crate) fn with_name(self, name: &[u8]) -> Self {
        self.with(0, &vector(&[&[0], &*vector(name)].concat()))
    }

    pub(crate) fn with_alpn(self, protocols: &[&[u8]]) -> Self {
        let list: Vec<u8> = protocols
            .iter()
            .flat_map(|protocol| [&[protocol.len() as u8], *protocol].concat())
            .collect();
        self.with(16, &vector(&list))
    }

    /// A key share of about a post-quantum key's size.
    pub(crate) fn with_key_share(self, length: usize) -> Self {
        self.with(51, &vector(&[&[0x11, 0xec], &*vector(&vec![0xaa; length])].concat()))
    }

    /// Values a server must not understand, where there may be some.
    pub(crate) fn with_grease(self) -> Self {
        self.with(0x0a0a, &[]).with(0xfafa, &[0])
    }

    fn with(mut self, kind: u16, content: &[u8]) -> Self {
        self.0.extend(kind.to_be_bytes());
        self.0.extend(vector(content));
        self
    }

    /// The handshake message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([9; 32]);
        body.extend([0]);
        body.extend(vector(&[0x0a, 0x0a, 0x13, 0x01]));
        body.extend([1, 0]);
        if !self.0.is_empty() {
            body.extend(vector(&self.0));
        }
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1, length[1], length[2], length[3]], &*body].concat()
    }

    /// In as few records as it can be.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        records(&self.message(), 16 * 1024, 1)
    }
}

/// A message in records of `size` bytes and of version 3.`minor`.
pub(crate) fn records(message: &[u8], size: usize, minor: u8) -> Vec<u8> {
    message.chunks(size).flat_map(|record| [&[22, 3, minor], &*vector(record)].concat()).collect()
}

fn vector(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}
