//! Long bodies: a sealed memfd instead of a packet.
//!
//! The seals are what makes it as good as a packet: the sender can neither change nor shrink it
//! while the receiver reads. They also prove that it is memory, so reading cannot block on a file
//! system somebody made slow.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

/// Why a memfd does not hold a body.
#[derive(Debug, thiserror::Error)]
pub enum MemfdError {
    /// No memfd at all, or one that can still change.
    #[error("the body's descriptor is not a sealed memfd")]
    Unsealed,
    /// Longer or shorter than the header says.
    #[error("the body's memfd has {found} bytes, the header says {declared}")]
    Size {
        /// What the header says.
        declared: usize,
        /// The file's size.
        found: u64,
    },
    /// A system call failed.
    #[error("cannot read the body's memfd: {0}")]
    Io(#[from] io::Error),
}

const SEALS: SealFlag =
    SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_WRITE);

/// Puts `body` into a memfd, CLOEXEC set, that nobody can change any more.
///
/// # Errors
/// No memory or no descriptor.
pub fn seal(body: &[u8]) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create(c"baton-message", flags)?);
    file.write_all(body)?;
    fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(SEALS | SealFlag::F_SEAL_SEAL))?;
    Ok(file.into())
}

/// Reads the whole of a sealed memfd of at most `most` bytes.
///
/// # Errors
/// Not a sealed memfd, or longer.
pub fn read_sealed(fd: OwnedFd, most: usize) -> Result<Vec<u8>, MemfdError> {
    let file = sealed(fd)?;
    let found = file.metadata()?.len();
    match usize::try_from(found) {
        Ok(len) if len <= most => read(&file, len),
        Ok(_) | Err(_) => Err(MemfdError::Size { declared: most, found }),
    }
}

/// Reads the body of `declared` bytes out of a received memfd.
pub(crate) fn unseal(fd: OwnedFd, declared: usize) -> Result<Vec<u8>, MemfdError> {
    let file = sealed(fd)?;
    let found = file.metadata()?.len();
    if found != declared as u64 {
        return Err(MemfdError::Size { declared, found });
    }
    read(&file, declared)
}

fn read(file: &File, len: usize) -> Result<Vec<u8>, MemfdError> {
    let mut body = vec![0; len];
    file.read_exact_at(&mut body, 0)?;
    Ok(body)
}

fn sealed(fd: OwnedFd) -> Result<File, MemfdError> {
    let seals = match fcntl(fd.as_fd(), FcntlArg::F_GET_SEALS) {
        Ok(bits) => SealFlag::from_bits_truncate(bits),
        Err(Errno::EINVAL) => return Err(MemfdError::Unsealed),
        Err(error) => return Err(MemfdError::Io(error.into())),
    };
    if !seals.contains(SEALS) {
        return Err(MemfdError::Unsealed);
    }
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_body_reads_back() {
        let body: Vec<u8> = (0..100_000u32).map(|i| i.to_le_bytes()[0]).collect();
        assert_eq!(unseal(seal(&body).unwrap(), body.len()).unwrap(), body);
    }

    #[test]
    fn a_sealed_body_cannot_be_changed() {
        let mut file = File::from(seal(b"fixed").unwrap());
        assert_eq!(file.write_all(b"other").unwrap_err().raw_os_error(), Some(Errno::EPERM as i32));
        assert!(file.set_len(1).is_err());
    }

    #[test]
    fn an_unsealed_memfd_and_a_plain_file_are_refused() {
        let memfd = memfd_create(c"t", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING);
        assert!(matches!(unseal(memfd.unwrap(), 0), Err(MemfdError::Unsealed)));
        let plain = OwnedFd::from(File::open("/proc/self/exe").unwrap());
        assert!(matches!(unseal(plain, 0), Err(MemfdError::Unsealed)));
        let (pipe, _writer) = io::pipe().unwrap();
        assert!(matches!(unseal(pipe.into(), 0), Err(MemfdError::Unsealed)));
    }

    #[test]
    fn a_memfd_of_another_size_is_refused() {
        for declared in [4, 6, usize::MAX] {
            let refused = unseal(seal(b"12345").unwrap(), declared);
            assert!(matches!(refused, Err(MemfdError::Size { found: 5, .. })), "{refused:?}");
        }
    }
}
