//! The caller's end, blocking: used by the command line and by tests.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::protocol::{Request, Response};
use crate::runtime_dir::CONTROL_SOCKET;

/// Why an instance could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no instance is running in {0}")]
    NoInstance(PathBuf),
    /// The socket exists and cannot be used.
    #[error("control socket of {runtime_dir}: {source}")]
    Io {
        /// Which instance.
        runtime_dir: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The instance ended before it answered.
    #[error("the instance in {0} ended before it answered")]
    Ended(PathBuf),
    /// The answer is not understood: a much newer or older instance.
    #[error("the instance in {runtime_dir} answered {line:?}: {source}")]
    Answer {
        /// Which instance.
        runtime_dir: PathBuf,
        /// What came.
        line: String,
        /// Why it is not understood.
        source: serde_json::Error,
    },
}

/// One request and its answers so far.
#[derive(Debug)]
pub struct Conversation {
    runtime_dir: PathBuf,
    reader: BufReader<UnixStream>,
}

impl Conversation {
    /// Sends `request` to the instance of a runtime directory.
    ///
    /// # Errors
    /// [`ClientError::NoInstance`] when nobody listens.
    pub fn start(runtime_dir: &Path, request: &Request) -> Result<Self, ClientError> {
        let io_error = |source| ClientError::Io { runtime_dir: runtime_dir.into(), source };
        let mut stream = match UnixStream::connect(runtime_dir.join(CONTROL_SOCKET)) {
            Ok(stream) => stream,
            Err(error) if nobody_listens(&error) => {
                return Err(ClientError::NoInstance(runtime_dir.into()));
            }
            Err(error) => return Err(io_error(error)),
        };
        let mut line = serde_json::to_vec(request).map_err(|error| io_error(error.into()))?;
        line.push(b'\n');
        stream.write_all(&line).map_err(io_error)?;
        Ok(Self { runtime_dir: runtime_dir.into(), reader: BufReader::new(stream) })
    }

    /// Gives up on an instance that says nothing for this long.
    ///
    /// # Errors
    /// When the socket does not take the limit.
    pub fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.reader.get_ref().set_read_timeout(Some(limit))
    }

    /// The next answer; all but `Response::Progress` are the last.
    ///
    /// # Errors
    /// When the instance ended, is silent beyond the patience, or is not understood.
    pub fn next_response(&mut self) -> Result<Response, ClientError> {
        let mut line = String::new();
        let read = self
            .reader
            .read_line(&mut line)
            .map_err(|source| ClientError::Io { runtime_dir: self.runtime_dir.clone(), source })?;
        if read == 0 {
            return Err(ClientError::Ended(self.runtime_dir.clone()));
        }
        serde_json::from_str(&line).map_err(|source| ClientError::Answer {
            runtime_dir: self.runtime_dir.clone(),
            line,
            source,
        })
    }
}

fn nobody_listens(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}
