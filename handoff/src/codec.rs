//! Bodies: tagged fields whose values are bincode. The only file that names bincode.
//!
//! A body is a row of fields `{tag u16, flags u16, length u32, value}`, little endian. Tags let
//! one release add a field without the other one noticing: an unknown field is skipped unless its
//! mandatory bit says that the message means something else without it. bincode alone could not
//! do that (its encoding is positional), and it is used for single values only, with a limit and
//! with trailing bytes refused. The layout of a value is therefore frozen: a struct inside a field
//! changes by getting a sibling field, never by growing.

use crate::frame::MAX_BODY;
pub(crate) use bincode::{Decode, Encode};

/// Most fields in one body; the messages have fewer than ten.
const MAX_FIELDS: usize = 64;
const FIELD_HEADER: usize = 8;
const FLAG_MANDATORY: u16 = 1;

/// Why a body cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// A field reaches beyond the end of the body.
    #[error("the body ends inside a field")]
    Truncated,
    /// More fields than any message has.
    #[error("more than {MAX_FIELDS} fields")]
    TooManyFields,
    /// A flag that no version defines.
    #[error("field {0} has undefined flags")]
    Flags(u16),
    /// The same tag twice.
    #[error("field {0} is there twice")]
    Duplicate(u16),
    /// A field the message cannot do without.
    #[error("field {0} is missing")]
    Missing(u16),
    /// A field of a newer release that says it must not be skipped.
    #[error("field {0} is mandatory and unknown here")]
    Unknown(u16),
    /// The value ends before its field does.
    #[error("field {0} has bytes behind its value")]
    Trailing(u16),
    /// The value is not what the tag says.
    #[error("field {tag}: {source}")]
    Value {
        /// The field.
        tag: u16,
        /// What the decoder found.
        source: Box<bincode::error::DecodeError>,
    },
    /// A value could not be written.
    #[error("field {tag} cannot be written: {source}")]
    Write {
        /// The field.
        tag: u16,
        /// What the encoder said.
        source: Box<bincode::error::EncodeError>,
    },
    /// Well formed, but not what the message allows.
    #[error("{0}")]
    Content(&'static str),
}

const fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MAX_BODY>()
}

/// Writes a body field by field.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Appends a field the receiver must know.
    pub(crate) fn field(&mut self, tag: u16, value: impl Encode) -> Result<(), CodecError> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&tag.to_le_bytes());
        self.bytes.extend_from_slice(&FLAG_MANDATORY.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        bincode::encode_into_std_write(value, &mut self.bytes, config())
            .map_err(|source| CodecError::Write { tag, source: Box::new(source) })?;
        let len = u32::try_from(self.bytes.len() - start - FIELD_HEADER)
            .map_err(|_| CodecError::Content("a field is longer than any body"))?;
        self.bytes[start + 4..start + FIELD_HEADER].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[derive(Debug, Clone, Copy)]
struct Field<'a> {
    tag: u16,
    mandatory: bool,
    value: &'a [u8],
}

/// A body cut into fields, none of them decoded yet.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    left: Vec<Field<'a>>,
}

impl<'a> Fields<'a> {
    pub(crate) fn parse(mut body: &'a [u8]) -> Result<Self, CodecError> {
        let mut left: Vec<Field<'a>> = Vec::new();
        while !body.is_empty() {
            let Some((&[t0, t1, f0, f1, l0, l1, l2, l3], rest)) =
                body.split_first_chunk::<FIELD_HEADER>()
            else {
                return Err(CodecError::Truncated);
            };
            let tag = u16::from_le_bytes([t0, t1]);
            let flags = u16::from_le_bytes([f0, f1]);
            if flags & !FLAG_MANDATORY != 0 {
                return Err(CodecError::Flags(tag));
            }
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let (value, rest) = rest.split_at_checked(len).ok_or(CodecError::Truncated)?;
            if left.iter().any(|field| field.tag == tag) {
                return Err(CodecError::Duplicate(tag));
            }
            if left.len() == MAX_FIELDS {
                return Err(CodecError::TooManyFields);
            }
            left.push(Field { tag, mandatory: flags & FLAG_MANDATORY != 0, value });
            body = rest;
        }
        Ok(Self { left })
    }

    /// Takes out and decodes a field that must be there.
    pub(crate) fn take<T: Decode<()>>(&mut self, tag: u16) -> Result<T, CodecError> {
        let at = self.left.iter().position(|field| field.tag == tag);
        let field = self.left.swap_remove(at.ok_or(CodecError::Missing(tag))?);
        let (value, used) = bincode::decode_from_slice(field.value, config())
            .map_err(|source| CodecError::Value { tag, source: Box::new(source) })?;
        if used == field.value.len() { Ok(value) } else { Err(CodecError::Trailing(tag)) }
    }

    /// Ends the body: what nobody took may only be optional.
    pub(crate) fn finish(self) -> Result<(), CodecError> {
        match self.left.iter().find(|field| field.mandatory) {
            Some(field) => Err(CodecError::Unknown(field.tag)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
