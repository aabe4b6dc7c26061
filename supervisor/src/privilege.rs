//! The identity a worker runs under.
//!
//! Every bind is the supervisor's, so a worker needs no privilege. The worker gives up its own
//! (see `baton_worker`): started as root it could not otherwise run from an opened file, because
//! a process that changed its user may no longer look into its own `/proc/self/fd`.

use std::fmt;
use std::str::FromStr;

use baton_config::model::User;
use nix::unistd::{Gid, Uid, User as Account};

/// A numeric user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once(':')
            .and_then(|(uid, gid)| Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()? }));
        parsed.ok_or_else(|| format!("{text:?} is not UID:GID"))
    }
}

/// Why `supervisor.user` cannot be honoured.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Only root can become somebody else.
    #[error("supervisor.user is only possible when started as root (running as uid {0})")]
    NotRoot(u32),
    /// The user database does not know the name.
    #[error("supervisor.user: no user is called {0:?}")]
    Unknown(String),
    /// The user database could not be read.
    #[error("supervisor.user: cannot look up {name:?}: {source}")]
    Lookup {
        /// The name.
        name: String,
        /// The system's answer.
        source: nix::errno::Errno,
    },
}

impl Identity {
    /// Resolves the configured user.
    ///
    /// # Errors
    /// When we are not root, or the name is not known.
    pub fn resolve(user: &User) -> Result<Self, IdentityError> {
        let own = Uid::effective();
        if !own.is_root() {
            return Err(IdentityError::NotRoot(own.as_raw()));
        }
        match user {
            User::Ids { uid, gid } => Ok(Self { uid: *uid, gid: *gid }),
            User::Name(name) => match Account::from_name(name) {
                Ok(Some(account)) => {
                    Ok(Self { uid: account.uid.as_raw(), gid: Gid::as_raw(account.gid) })
                }
                Ok(None) => Err(IdentityError::Unknown(name.clone())),
                Err(source) => Err(IdentityError::Lookup { name: name.clone(), source }),
            },
        }
    }
}
