//! The heap.

/// Gives freed memory back to the system, as far as whole pages of it are free. Takes
/// milliseconds for a heap of some hundred MiB, with each arena locked in turn.
///
/// With a C library that does so by itself this does nothing.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time from any thread (malloc_trim(3)), and touches no block
    // that is in use.
    let _whether_any = unsafe { nix::libc::malloc_trim(0) };
}
