//! Whole streams of the position pattern that the demo uses too.

use std::io::{Read, Write};

#[path = "../../../src/demo/pattern.rs"]
mod position;

pub(crate) use position::Pattern;

/// Writes `length` bytes from the start, `chunk` at a time.
pub(crate) fn write_pattern(
    pattern: Pattern,
    out: &mut impl Write,
    length: u64,
    chunk: usize,
) -> std::io::Result<()> {
    let mut buffer = vec![0; chunk];
    let mut position = 0;
    while position < length {
        let size = usize::try_from(length - position).unwrap_or(chunk).min(chunk);
        pattern.fill(position, &mut buffer[..size]);
        out.write_all(&buffer[..size])?;
        position += size as u64;
    }
    Ok(())
}

/// Reads to the end and compares; returns the length.
///
/// # Panics
/// At the first wrong byte.
pub(crate) fn read_pattern(pattern: Pattern, input: &mut impl Read) -> std::io::Result<u64> {
    let mut buffer = vec![0; 64 * 1024];
    let mut position = 0;
    loop {
        let size = input.read(&mut buffer)?;
        if size == 0 {
            return Ok(position);
        }
        if let Some(at) = pattern.mismatch(position, &buffer[..size]) {
            panic!("stream {:#x} is wrong at byte {at}", pattern.0);
        }
        position += size as u64;
    }
}
